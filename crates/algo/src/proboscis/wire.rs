//! What a probe or a report carries.

use crate::sys;

/// Length of the TCP header of a probe or report, with its option.
pub const TCP_BYTES: u32 = sys::PROBOSCIS_TCP_BYTES;
/// Length of the option.
pub const OPTION_BYTES: usize = sys::PROBOSCIS_OPTION_BYTES as usize;

/// The packets that carry the option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeKind {
    /// A probe ahead of a SYN.
    Probe,
    /// A report on the probes that arrived.
    Report,
    /// A probe ahead of a SYN-ACK.
    Answer,
}

/// The option without its tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProbeOption {
    /// What it is.
    pub kind: ProbeKind,
    /// Number of the train.
    pub train: u8,
    /// Index of the probe in it.
    pub index: u8,
    /// Probes in the train.
    pub total: u8,
    /// Report: probes that came. Probe ahead of a SYN: 1 if the SYN-ACK is to have some, too.
    pub seen: u8,
    /// Report: how many of these were marked.
    pub marked: u8,
}

impl ProbeOption {
    /// Reads an option and its tag; `None` if the bytes are no such option, or one of an unknown version or type.
    pub fn read(bytes: &[u8; OPTION_BYTES]) -> Option<(Self, u64)> {
        let (mut o, mut tag) = (sys::proboscis_option::default(), 0);
        // SAFETY: all pointers are to live values of the length that the C code knows; it does not keep them.
        let is_known = unsafe { sys::proboscis_option_read(bytes.as_ptr(), &mut o, &mut tag) };
        let kind = match u32::from(o.type_) {
            sys::proboscis_type_PROBOSCIS_REPORT => ProbeKind::Report,
            sys::proboscis_type_PROBOSCIS_ANSWER => ProbeKind::Answer,
            _ => ProbeKind::Probe,
        };
        let option = Self { kind, train: o.train, index: o.index, total: o.total, seen: o.seen, marked: o.marked };
        is_known.then_some((option, tag))
    }

    /// Its bytes.
    pub fn write(&self, tag: u64) -> [u8; OPTION_BYTES] {
        let kind = match self.kind {
            ProbeKind::Probe => sys::proboscis_type_PROBOSCIS_PROBE,
            ProbeKind::Report => sys::proboscis_type_PROBOSCIS_REPORT,
            ProbeKind::Answer => sys::proboscis_type_PROBOSCIS_ANSWER,
        };
        let o = sys::proboscis_option {
            type_: kind as u8,
            train: self.train,
            index: self.index,
            total: self.total,
            seen: self.seen,
            marked: self.marked,
        };
        let mut bytes = [0; OPTION_BYTES];
        // SAFETY: as in `read`.
        unsafe { sys::proboscis_option_write(bytes.as_mut_ptr(), &o, tag) }
        bytes
    }
}
