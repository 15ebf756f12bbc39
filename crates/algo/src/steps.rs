//! The steps of a packet's way through a VM's port, in their order: `algo/base/steps.h`, whose lists the eBPF programs
//! run.

use crate::sys;

/// On the way to the VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum ToVm {
    /// ProBoSCIS takes probes and reports.
    Probes = sys::step_to_vm_STEP_TO_VM_PROBES,
    /// A SYN or SYN-ACK is noted, and what belongs to no known connection passes.
    Flow = sys::step_to_vm_STEP_TO_VM_FLOW,
    /// Marks are counted and hidden, echoes set DCTCP's limit.
    Marks = sys::step_to_vm_STEP_TO_VM_MARKS,
    /// CERA times the handshake and has the flow's share.
    Uplink = sys::step_to_vm_STEP_TO_VM_UPLINK,
    /// An ACK lets out what vFlood holds.
    AckClock = sys::step_to_vm_STEP_TO_VM_ACK_CLOCK,
    /// The window that the VM is told is written.
    Window = sys::step_to_vm_STEP_TO_VM_WINDOW,
    /// Echoes are hidden.
    Echoes = sys::step_to_vm_STEP_TO_VM_ECHOES,
    /// vSnoop acknowledges.
    EarlyAck = sys::step_to_vm_STEP_TO_VM_EARLY_ACK,
    /// A connection may be over.
    End = sys::step_to_vm_STEP_TO_VM_END,
}

/// On the way from the VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum FromVm {
    /// Probes and reports that this host has sent pass.
    Probes = sys::step_from_vm_STEP_FROM_VM_PROBES,
    /// Signed handshakes pass, and the connection is looked up.
    Flow = sys::step_from_vm_STEP_FROM_VM_FLOW,
    /// A copy of data becomes vSnoop's early ACK.
    Copy = sys::step_from_vm_STEP_FROM_VM_COPY,
    /// What belongs to no known connection passes.
    Known = sys::step_from_vm_STEP_FROM_VM_KNOWN,
    /// Probes go ahead of a SYN, the SYN-ACK's window follows those that came.
    Handshake = sys::step_from_vm_STEP_FROM_VM_HANDSHAKE,
    /// What vFlood held goes on behind [`Hold`](Self::Hold).
    Back = sys::step_from_vm_STEP_FROM_VM_BACK,
    /// ACKs that say nothing new are dropped, and early ACKs ride on data.
    AckFilter = sys::step_from_vm_STEP_FROM_VM_ACK_FILTER,
    /// Packets become ECN-capable.
    Ecn = sys::step_from_vm_STEP_FROM_VM_ECN,
    /// An ACK has the number of what comes next.
    Number = sys::step_from_vm_STEP_FROM_VM_NUMBER,
    /// Marks are echoed.
    Echo = sys::step_from_vm_STEP_FROM_VM_ECHO,
    /// CERA counts.
    Uplink = sys::step_from_vm_STEP_FROM_VM_UPLINK,
    /// vFlood holds data back.
    Hold = sys::step_from_vm_STEP_FROM_VM_HOLD,
    /// Early ACKs ride on what was held.
    AckOnData = sys::step_from_vm_STEP_FROM_VM_ACK_ON_DATA,
    /// A connection may be over.
    End = sys::step_from_vm_STEP_FROM_VM_END,
}

#[cfg(test)]
mod tests {
    use super::{FromVm, ToVm};

    /// What each step relies on: that another has been there before.
    #[test]
    fn steps_stand_behind_what_they_rely_on() {
        let to_vm = [
            (ToVm::Probes, ToVm::Flow, "probes are of no connection"),
            (ToVm::Flow, ToVm::Marks, "marks are noted with the connection"),
            (ToVm::Marks, ToVm::Window, "DCTCP's limit is one of the arbiter's"),
            (ToVm::Uplink, ToVm::Window, "CERA's limit is one of the arbiter's"),
            (ToVm::AckClock, ToVm::Window, "vFlood's grant is one of the arbiter's"),
            (ToVm::Marks, ToVm::Echoes, "echoes are counted before they are hidden"),
            (ToVm::Window, ToVm::EarlyAck, "what is acknowledged is as the VM gets it"),
            (ToVm::Echoes, ToVm::EarlyAck, "what is acknowledged is as the VM gets it"),
            (ToVm::EarlyAck, ToVm::End, "an early ACK is of a connection that is known"),
        ];
        for (first, second, why) in to_vm {
            assert!(first < second, "{first:?} stands behind {second:?}: {why}");
        }
        let from_vm = [
            (FromVm::Probes, FromVm::Flow, "probes are of no connection"),
            (FromVm::Flow, FromVm::Copy, "a copy is of no connection of that direction"),
            (FromVm::Copy, FromVm::Known, "a copy is not passed"),
            (FromVm::Known, FromVm::Handshake, "a handshake ends the way behind what is known"),
            (FromVm::Handshake, FromVm::Back, "what is held belongs to a connection"),
            (FromVm::Back, FromVm::AckFilter, "what was held has been seen"),
            (FromVm::AckFilter, FromVm::Ecn, "what is dropped is not counted"),
            (FromVm::AckFilter, FromVm::Echo, "what is dropped echoes nothing"),
            (FromVm::AckFilter, FromVm::Uplink, "what is dropped does not pass the uplink"),
            (FromVm::Ecn, FromVm::Hold, "what is held is ECN-capable when it leaves"),
            (FromVm::Echo, FromVm::Hold, "its ACK goes ahead of what is held"),
            (FromVm::Uplink, FromVm::Hold, "what is held is counted once"),
            (FromVm::Hold, FromVm::AckOnData, "early ACKs ride on what leaves"),
            (FromVm::AckOnData, FromVm::End, "early ACKs are of a connection that is known"),
        ];
        for (first, second, why) in from_vm {
            assert!(first < second, "{first:?} stands behind {second:?}: {why}");
        }
    }
}
