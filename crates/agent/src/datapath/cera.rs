//! The shares of the uplink: memory that the programs and the agent have in common, so that an epoch needs no system
//! call per port.

use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use evenkeel_algo::cera::{LeastRtt, Loop, Meter, Seen, Traffic};
use libbpf_rs::{MapCore, MapHandle};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

use super::error::DatapathError;
use super::intf;

const BYTES: usize = size_of::<intf::ek_cera_port>() * intf::EK_MAX_PORTS as usize;

// The same C structures, declared for two crates.
const _: () = assert!(size_of::<Meter>() == size_of::<intf::cera_meter>());
const _: () = assert!(size_of::<LeastRtt>() == size_of::<intf::cera_rtt>());
const _: () = assert!(align_of::<Meter>() == align_of::<intf::cera_meter>());
const _: () = assert!(align_of::<LeastRtt>() == align_of::<intf::cera_rtt>());

/// All ports' shares, by slot. One agent has them at a time.
#[derive(Debug)]
pub struct Shares(NonNull<c_void>);

// SAFETY: the mapping is the whole process's until it is dropped; no thread has a part of its own.
unsafe impl Send for Shares {}

impl Drop for Shares {
    fn drop(&mut self) {
        // SAFETY: mapped with this length, and nothing borrowed from it is left.
        let _ = unsafe { munmap(self.0, BYTES) };
    }
}

/// A VM's limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limit {
    /// The VM's window; 0: none.
    pub window_segments: u32,
    /// Active flows, which share the window equally.
    pub flows: u32,
    /// The place of the flow at which the division's remainder goes on.
    pub next: u32,
    /// What the window is for.
    pub of_loop: Loop,
    /// When the limit ends, by CLOCK_MONOTONIC.
    pub until_ns: u64,
}

impl Shares {
    pub(super) fn map(map: &MapHandle) -> Result<Self, DatapathError> {
        let failed = |errno: nix::errno::Errno| DatapathError::io("cannot map the shares of the uplink", errno.into());
        if map.max_entries() != intf::EK_MAX_PORTS || map.value_size() as usize != size_of::<intf::ek_cera_port>() {
            return Err(failed(nix::errno::Errno::EINVAL));
        }
        let length = NonZeroUsize::new(BYTES).ok_or_else(|| failed(nix::errno::Errno::EINVAL))?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping of a map that has that length.
        let memory = unsafe { mmap(None, length, access, MapFlags::MAP_SHARED, map.as_fd(), 0) };
        memory.map(Self).map_err(failed)
    }

    /// The share of the port with this slot; none beyond the last.
    pub fn get(&mut self, slot: u32) -> Option<Share<'_>> {
        if slot >= intf::EK_MAX_PORTS {
            return None;
        }
        // SAFETY: within the mapping.
        let share = unsafe { self.0.cast::<intf::ek_cera_port>().add(slot as usize) };
        Some(Share { share, _shares: self })
    }
}

/// A port's share. Programs count in it all the time, so what they write is read and written through raw pointers only.
#[derive(Debug)]
pub struct Share<'a> {
    share: NonNull<intf::ek_cera_port>,
    _shares: &'a mut Shares,
}

impl Share<'_> {
    /// Clears the share: nothing is known of its port yet.
    pub fn clear(&mut self) {
        // SAFETY: the whole share is within the mapping, and all zeros are a value.
        unsafe { self.share.write_bytes(0, 1) };
    }

    /// Ends the epoch. Returns the traffic of the last `epochs` ones, this one included.
    pub fn turn(&mut self, epochs: u32, stride: u32) -> Traffic {
        // SAFETY: within the mapping, and the structures are the same.
        unsafe { Meter::end_epoch_shared((&raw mut (*self.share.as_ptr()).meter).cast(), epochs, stride) }
    }

    /// The shortest handshake since the last call.
    pub fn take_handshake(&mut self) -> Option<u32> {
        // SAFETY: aligned and within the mapping.
        let least = unsafe { AtomicU32::from_ptr(&raw mut (*self.share.as_ptr()).handshake_us) };
        let us = least.swap(0, Ordering::Relaxed);
        (us > 0).then_some(us)
    }

    /// What programs have seen of pauses since the last call.
    pub fn take_pauses(&mut self) -> Seen {
        // SAFETY: within the mapping.
        let pause = unsafe { &raw mut (*self.share.as_ptr()).pause };
        // SAFETY: aligned and within the mapping.
        let [longest, of_vm, full] = unsafe {
            [&raw mut (*pause).longest_us, &raw mut (*pause).longest_vm_us, &raw mut (*pause).full]
                .map(|word| AtomicU32::from_ptr(word).swap(0, Ordering::Relaxed))
        };
        Seen { pause_us: longest, vm_pause_us: of_vm, is_full: full > 0 }
    }

    /// The shortest handshakes of the last seconds: as they were, and without the time in the uplink's queue.
    pub fn rtts(&mut self) -> (&mut LeastRtt, &mut LeastRtt) {
        let share = self.share.as_ptr();
        // SAFETY: two different members within the mapping, which nobody else writes, and the structures are the same.
        unsafe { (&mut *(&raw mut (*share).rtt).cast(), &mut *(&raw mut (*share).own_rtt).cast()) }
    }

    /// By how much the farthest flow since the last call was farther than what the VM's windows are for.
    pub fn take_far(&mut self) -> u32 {
        // SAFETY: aligned and within the mapping.
        unsafe { AtomicU32::from_ptr(&raw mut (*self.share.as_ptr()).far_us) }.swap(0, Ordering::Relaxed)
    }

    /// Sets how long the uplink's queue is.
    pub fn queue(&mut self, queue_us: u32) {
        // SAFETY: aligned and within the mapping.
        unsafe { AtomicU32::from_ptr(&raw mut (*self.share.as_ptr()).queue_us) }.store(queue_us, Ordering::Relaxed);
    }

    /// Sets the limit. For one packet, a program may see parts of the old limit and parts of the new.
    pub fn limit(&mut self, limit: Limit) {
        let share = self.share.as_ptr();
        // SAFETY: aligned and within the mapping.
        unsafe {
            AtomicU32::from_ptr(&raw mut (*share).flows).store(limit.flows, Ordering::Relaxed);
            AtomicU32::from_ptr(&raw mut (*share).next).store(limit.next, Ordering::Relaxed);
            let Loop { rtt_us, loop_us, cover_us } = limit.of_loop;
            AtomicU32::from_ptr(&raw mut (*share).loop_.rtt_us).store(rtt_us, Ordering::Relaxed);
            AtomicU32::from_ptr(&raw mut (*share).loop_.loop_us).store(loop_us, Ordering::Relaxed);
            AtomicU32::from_ptr(&raw mut (*share).loop_.cover_us).store(cover_us, Ordering::Relaxed);
            AtomicU32::from_ptr(&raw mut (*share).window).store(limit.window_segments, Ordering::Relaxed);
            AtomicU64::from_ptr(&raw mut (*share).until_ns).store(limit.until_ns, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod fake {
    //! Shares without a kernel, for tests of the controller.

    use super::*;

    impl Shares {
        /// All of them cleared.
        pub fn anonymous() -> Self {
            let length = NonZeroUsize::new(BYTES).unwrap();
            let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
            // SAFETY: new memory.
            Self(unsafe { nix::sys::mman::mmap_anonymous(None, length, access, MapFlags::MAP_PRIVATE) }.unwrap())
        }
    }

    impl Share<'_> {
        /// As the program counts data of a flow.
        pub fn count(&mut self, stamp: &mut u32, bytes: u32) {
            // SAFETY: within the mapping, the structures are the same, and nobody else is here.
            unsafe { &mut *(&raw mut (*self.share.as_ptr()).meter).cast::<Meter>() }.count(Some(stamp), bytes);
        }

        /// As the program times a handshake.
        pub fn handshake(&mut self, us: u32) {
            // SAFETY: within the mapping.
            unsafe { (*self.share.as_ptr()).handshake_us = us };
        }

        /// As the programs note a flow that goes farther.
        pub fn far(&mut self, longer_us: u32) {
            // SAFETY: within the mapping.
            unsafe { (*self.share.as_ptr()).far_us = longer_us };
        }

        /// As the programs time a pause that is the VM's.
        pub fn pause(&mut self, us: u32) {
            // SAFETY: within the mapping.
            let pause = unsafe { &mut (*self.share.as_ptr()).pause };
            (pause.longest_us, pause.longest_vm_us, pause.full) = (us, us, 1);
        }

        /// What the program would obey.
        pub fn limit_set(&self) -> Limit {
            // SAFETY: within the mapping, and nobody else writes.
            let share = unsafe { &*self.share.as_ptr() };
            let intf::cera_loop { rtt_us, loop_us, cover_us } = share.loop_;
            Limit {
                window_segments: share.window,
                flows: share.flows,
                next: share.next,
                of_loop: Loop { rtt_us, loop_us, cover_us },
                until_ns: share.until_ns,
            }
        }
    }
}
