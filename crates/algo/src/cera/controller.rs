//! The host's side.

use super::{MAX_VMS, Settings};
use crate::sys;

/// What is to be done at the end of an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing: no VM has a limit.
    Free,
    /// Limits grow; guests' own windows do so by themselves.
    Grow,
    /// All windows are to be set.
    Cut,
}

/// Decides when windows are cut, and how they grow.
#[derive(Debug, Clone, Default)]
pub struct Controller(sys::cera_controller);

/// What an epoch has found out about a VM.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Vm {
    /// n_k: bytes that it has sent in the last M epochs.
    pub sent_bytes: u64,
    /// mu_k.
    pub weight: u32,
    /// d_k: its RTT without the time in the queue.
    pub rtt_us: u32,
    /// How much more it may have in flight because of pauses, from [`Pace::turn`](super::Pace::turn).
    pub reserve_bytes: u64,
    /// What it sends over a longer time: [`Pace::usual_bytes`](super::Pace::usual_bytes).
    pub usual_bytes: u64,
    /// Its active flows.
    pub flows: u32,
    /// It has been silent until now.
    pub is_fresh: bool,
    /// w_k, in segments, from [`Controller::divide`]; for a silent VM, what it would have if it woke up.
    pub window: u32,
    /// How long that lasts at its part of C, from [`Controller::divide`].
    pub loop_us: u32,
    /// Bytes per second that it may send by its weight, from [`Controller::divide`].
    pub rate: u64,
}

impl Controller {
    /// An epoch has ended with `queue_bytes` waiting at the uplink. `rtt_us` is d plus the time in the queue, `window`
    /// is W of CERA eq. 1.
    pub fn epoch(&mut self, settings: &Settings, queue_bytes: u64, rtt_us: u32, window: u32) -> Verdict {
        // SAFETY: both pointers are to live values for the length of the call; the C code does not keep them.
        match unsafe { sys::cera_epoch(&mut self.0, &settings.raw(), queue_bytes, rtt_us, window) } {
            sys::cera_verdict_CERA_CUT => Verdict::Cut,
            sys::cera_verdict_CERA_GROW => Verdict::Grow,
            _ => Verdict::Free,
        }
    }

    /// By how many segments limits may grow in an RTT.
    pub fn per_rtt(&self) -> u32 {
        self.0.per_rtt
    }

    /// Whether the remainder of a division goes to others from this epoch on, which happens once per RTT.
    pub fn has_turned(&self) -> bool {
        self.0.turned > 0
    }

    /// Segments by which limits have grown since the last cut.
    pub fn extra(&self) -> u32 {
        self.0.extra
    }

    /// Finds the windows of all VMs, and returns how many have sent. VMs beyond [`MAX_VMS`] have no window.
    pub fn divide(&mut self, settings: &Settings, vms: &mut [Vm], bytes_per_s: u64) -> u32 {
        let mut raw: Vec<sys::cera_vm> = vms
            .iter()
            .take(MAX_VMS)
            .map(|vm| sys::cera_vm {
                sent_bytes: vm.sent_bytes,
                weight: vm.weight,
                rtt_us: vm.rtt_us,
                reserve_bytes: vm.reserve_bytes,
                usual_bytes: vm.usual_bytes,
                flows: vm.flows,
                fresh: u32::from(vm.is_fresh),
                ..sys::cera_vm::default()
            })
            .collect();
        let count = raw.len() as u32;
        // SAFETY: `raw` has `count` elements, which live for the length of the call; the C code does not keep them.
        let active = unsafe { sys::cera_divide(&mut self.0, &settings.raw(), raw.as_mut_ptr(), count, bytes_per_s) };
        vms.iter_mut().for_each(|vm| (vm.window, vm.loop_us, vm.rate) = (0, 0, 0));
        for (vm, raw) in vms.iter_mut().zip(&raw) {
            (vm.window, vm.loop_us, vm.rate) = (raw.window, raw.loop_us, raw.rate);
        }
        active
    }
}

/// What a VM has sent in the last epochs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// All of it.
    pub bytes: u64,
    /// Bytes of the epoch that has just ended.
    pub newest_bytes: u64,
    /// Active flows: those with data in the last two RTTs, or a little more.
    pub flows: u32,
    /// The VM woke up a short while ago.
    pub is_fresh: bool,
}

impl Traffic {
    fn new(raw: sys::cera_traffic) -> Self {
        Self { bytes: raw.bytes, newest_bytes: raw.newest_bytes, flows: raw.flows, is_fresh: raw.fresh > 0 }
    }
}

/// What a VM sends.
#[derive(Debug, Clone, Default)]
#[repr(transparent)]
pub struct Meter(sys::cera_meter);

impl Meter {
    /// A packet leaves. `stamp` is its flow's, 0 at first; `None` for packets without data.
    pub fn count(&mut self, stamp: Option<&mut u32>, bytes: u32) {
        let stamp = stamp.map_or(std::ptr::null_mut(), |stamp| stamp as *mut u32);
        // SAFETY: the pointers are null, or to live values for the length of the call; the C code does not keep them.
        unsafe { sys::cera_count(&mut self.0, stamp, bytes) }
    }

    /// The epoch ends. Returns the traffic of the last `epochs`, this one included. Flows are counted by slots of
    /// `stride` epochs.
    pub fn turn(&mut self, epochs: u32, stride: u32) -> Traffic {
        // SAFETY: as in `count`.
        Traffic::new(unsafe { sys::cera_meter_epoch(&mut self.0, epochs, stride) })
    }

    /// As [`turn`](Self::turn), for a meter that others count in at the same time: a packet of that moment may be
    /// counted or not.
    ///
    /// # Safety
    /// `meter` points to a meter that can be read and written for the length of the call.
    pub unsafe fn end_epoch_shared(meter: *mut Self, epochs: u32, stride: u32) -> Traffic {
        // SAFETY: the caller guarantees it; `Meter` is a transparent wrapper.
        Traffic::new(unsafe { sys::cera_meter_epoch(meter.cast(), epochs, stride) })
    }
}

/// The least RTT of the last seconds.
#[derive(Debug, Clone, Default)]
#[repr(transparent)]
pub struct LeastRtt(sys::cera_rtt);

impl LeastRtt {
    /// The part of a handshake's time that was not spent in a queue of `queue_us`.
    pub fn without(us: u32, queue_us: u32) -> u32 {
        // SAFETY: the C function is pure.
        unsafe { sys::cera_rtt_without(us, queue_us) }
    }

    /// A VM's RTT, from the shortest handshake of its host and the shortest of its own without the queue.
    pub fn of_vm(host_us: u32, own_us: u32) -> u32 {
        // SAFETY: the C function is pure.
        unsafe { sys::cera_rtt_of_vm(host_us, own_us) }
    }

    /// A handshake took `us`.
    pub fn sample(&mut self, now_us: u64, us: u32) {
        // SAFETY: the pointer is to a live value for the length of the call; the C code does not keep it.
        unsafe { sys::cera_rtt_sample(&mut self.0, now_us, us) }
    }

    /// The least sample; `None` before the first.
    pub fn get(&self) -> Option<u32> {
        // SAFETY: as in `sample`.
        let us = unsafe { sys::cera_rtt_least(&self.0) };
        (us > 0).then_some(us)
    }
}
