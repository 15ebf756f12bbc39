//! A guest's word about its own TCP: whether the TCP takes whatever its windows have offered, and if not, why.

/// Why the TCP may not. The numbers are bits on the wire: they never change, and are below [`REASONS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u16)]
pub enum Reason {
    /// Something that decides it cannot be read.
    Unreadable = 0,
    /// The kernel takes windows back.
    ShrinkWindow = 1,
    /// A network card's packets go to a master.
    Master = 2,
    /// Another device takes packets of a network card.
    Upper = 3,
    /// A network card takes packets for other link addresses: a device in another network namespace has them.
    Addresses = 4,
    /// A program decides about packets before all else.
    Xdp = 5,
    /// A tc filter, or a program in its place, decides about packets.
    Tc = 6,
    /// Packets wait for other processors in a queue that may be full.
    Rps = 7,
    /// Connections are passed on to other machines.
    IpVs = 8,
}

/// All of them, with what users read.
const KNOWN: [(Reason, &str); 9] = [
    (Reason::Unreadable, "something that decides it cannot be read in the VM"),
    (Reason::ShrinkWindow, "its kernel takes windows back (net.ipv4.tcp_shrink_window)"),
    (Reason::Master, "a network card of it belongs to a bridge, a bond or another master"),
    (Reason::Upper, "another device takes packets of its network card (macvlan, ipvlan or the like)"),
    (Reason::Addresses, "its network card takes packets for other link addresses (a macvlan in a container)"),
    (Reason::Xdp, "an XDP program looks at its packets"),
    (Reason::Tc, "a tc filter or program looks at its packets"),
    (Reason::Rps, "its packets wait for other processors (rps_cpus)"),
    (Reason::IpVs, "it passes connections on (IPVS)"),
];

/// How many numbers there can be.
const REASONS: u32 = 63;
/// The bit that says that something was said; the reasons' bits are below it.
const SAID: u64 = 1 << REASONS;

/// What a guest says against its TCP; empty if it vouches for it. Unknown numbers speak against it as well.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reasons(u64);

impl Reasons {
    /// Whether the guest vouches for its TCP.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether this is one of them.
    pub fn has(self, reason: Reason) -> bool {
        self.0 & 1 << reason as u16 != 0
    }

    /// These reasons and this one.
    #[must_use]
    pub fn with(self, reason: Reason) -> Self {
        Self(self.0 | 1 << reason as u16)
    }

    /// As they are on the wire; 0: nothing was said.
    pub fn to_bits(said: Option<Self>) -> u64 {
        said.map_or(0, |reasons| SAID | reasons.0)
    }

    /// From the wire.
    pub fn from_bits(bits: u64) -> Option<Self> {
        (bits & SAID != 0).then_some(Self(bits & !SAID))
    }

    /// In words, one for each.
    pub fn words(self) -> Vec<String> {
        let word = |number: u32| match KNOWN.iter().find(|(reason, _)| *reason as u32 == number) {
            Some((_, text)) => (*text).to_owned(),
            None => format!("a reason that this evenkeel does not know (number {number})"),
        };
        (0..REASONS).filter(|number| self.0 & 1 << number != 0).map(word).collect()
    }
}

impl FromIterator<Reason> for Reasons {
    fn from_iter<T: IntoIterator<Item = Reason>>(reasons: T) -> Self {
        reasons.into_iter().fold(Self::default(), Self::with)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_said_is_neither_yes_nor_no() {
        assert_eq!(Reasons::to_bits(None), 0);
        assert_eq!(Reasons::from_bits(0), None);
        assert_eq!(Reasons::from_bits(Reasons::to_bits(Some(Reasons::default()))), Some(Reasons::default()));
        let no = Reasons::from_iter([Reason::Rps, Reason::Unreadable]);
        assert_eq!(Reasons::from_bits(Reasons::to_bits(Some(no))), Some(no));
        assert!(!no.is_empty() && no.has(Reason::Rps) && !no.has(Reason::Tc));
    }

    #[test]
    fn every_reason_has_a_number_and_words_of_its_own() {
        for (place, (reason, text)) in KNOWN.iter().enumerate() {
            assert_eq!(*reason as usize, place);
            assert_eq!(Reasons::from_iter([*reason]).words(), [*text]);
        }
        assert!((KNOWN.len() as u32) < REASONS);
    }

    #[test]
    fn a_reason_of_a_later_evenkeel_is_a_no() {
        let later = Reasons::from_bits(SAID | 1 << 40).unwrap();
        assert!(!later.is_empty());
        assert_eq!(later.words(), ["a reason that this evenkeel does not know (number 40)"]);
    }
}
