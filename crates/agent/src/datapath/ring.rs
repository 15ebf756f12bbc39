//! The ring of the datapath's events: read to its end, and checked in case nobody was woken up for what is in it.
//!
//! The kernel wakes up a reader only for an event at the reader's position (`bpf_ringbuf_commit`). A reader that has
//! moved on must therefore look once more, after a barrier: without one, its processor may read the next event's state
//! before others see the new position. The kernel then takes the reader for busy and does not wake it; the position
//! stays, so no later event wakes it either.

use std::cell::RefCell;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::atomic::{Ordering, fence};

use libbpf_rs::{AsRawLibbpf, MapHandle, RingBuffer, RingBufferBuilder};

use super::error::DatapathError;
use super::intf::ek_event;
use crate::common::bytes::from_bytes;

/// Events that are read in one go; then the agent's other work gets its turn.
const AT_ONCE: usize = 4096;

/// The ring.
pub(super) struct Ring {
    ring: RingBuffer<'static>,
    events: Rc<RefCell<Vec<ek_event>>>,
    /// The reader's position at the last look, if events waited there.
    stood: Option<u64>,
}

/// What was read.
#[derive(Debug)]
pub struct Events {
    /// In the order in which they came.
    pub events: Vec<ek_event>,
    /// Whether the ring was read to its end: only then is somebody woken up for the next one.
    pub are_all: bool,
}

impl Ring {
    pub(super) fn open(map: &MapHandle) -> Result<Self, DatapathError> {
        let failed = |error: libbpf_rs::Error| DatapathError::bpf("cannot read events", &error);
        let events = Rc::new(RefCell::new(Vec::new()));
        let sink = Rc::clone(&events);
        let mut builder = RingBufferBuilder::new();
        let read = move |bytes: &[u8]| {
            sink.borrow_mut().extend(from_bytes::<ek_event>(bytes));
            0
        };
        builder.add(map, read).map_err(failed)?;
        Ok(Self { ring: builder.build().map_err(failed)?, events, stood: None })
    }

    /// Readable when there are events.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring buffer owns the descriptor and lives as long as this borrow.
        unsafe { BorrowedFd::borrow_raw(self.ring.epoll_fd()) }
    }

    /// The reader's position, and that of the next event to come.
    fn places(&self) -> (u64, u64) {
        // SAFETY: the ring buffer lives as long as this borrow, and has one ring.
        unsafe {
            let ring = libbpf_sys::ring_buffer__ring(self.ring.as_libbpf_object().as_ptr(), 0);
            (libbpf_sys::ring__consumer_pos(ring), libbpf_sys::ring__producer_pos(ring))
        }
    }

    /// The events that are there.
    pub(super) fn read(&mut self) -> Result<Events, DatapathError> {
        let mut are_all = false;
        while !are_all && self.events.borrow().len() < AT_ONCE {
            let (before, _) = self.places();
            let answer = self.ring.consume_raw_n(AT_ONCE);
            if answer < 0 {
                let error = libbpf_rs::Error::from_raw_os_error(-answer);
                return Err(DatapathError::bpf("cannot read events", &error));
            }
            are_all = self.places().0 == before;
            fence(Ordering::SeqCst);
        }
        Ok(Events { events: self.events.take(), are_all })
    }

    /// Looks at the ring. Returns whether the reader has not moved since the last look, with events waiting both times:
    /// a reader that is woken up in time moves on between two looks.
    pub(super) fn stands_still(&mut self) -> bool {
        let (at, end) = self.places();
        let now = (at != end).then_some(at);
        let stood = std::mem::replace(&mut self.stood, now);
        now.is_some() && now == stood
    }
}
