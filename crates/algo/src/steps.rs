//! The steps of a packet's way through a VM's port, in their order: [`ToVm`] and [`FromVm`] are made of the lists in
//! `algo/base/steps.h`, which the eBPF programs run.

include!(concat!(env!("OUT_DIR"), "/steps.rs"));

#[cfg(test)]
mod tests {
    use super::{FromVm, ToVm};

    /// What each step relies on: another step that comes before it.
    #[test]
    fn steps_stand_behind_what_they_rely_on() {
        let to_vm = [
            (ToVm::Probes, ToVm::Flow, "probes are of no connection"),
            (ToVm::Flow, ToVm::Marks, "marks are noted with the connection"),
            (ToVm::Flow, ToVm::Exchange, "what is timed belongs to a connection"),
            (ToVm::Exchange, ToVm::AckClock, "what the ends say is timed, before anything follows from it"),
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
            (FromVm::Back, FromVm::Note, "what was held may have another number than the VM's by now"),
            (FromVm::Note, FromVm::AckFilter, "the VM's own number is noted before another takes its place"),
            (FromVm::Back, FromVm::AckFilter, "what was held has been seen"),
            (FromVm::Back, FromVm::Exchange, "what was held is timed once"),
            (FromVm::Exchange, FromVm::AckFilter, "an ACK of the VM's counts, whether it is dropped or not"),
            (FromVm::AckFilter, FromVm::Ecn, "what is dropped is not counted"),
            (FromVm::AckFilter, FromVm::Echo, "what is dropped echoes nothing"),
            (FromVm::AckFilter, FromVm::Uplink, "what is dropped does not pass the uplink"),
            (FromVm::Ecn, FromVm::Hold, "what is held is ECN-capable when it leaves"),
            (FromVm::Echo, FromVm::Hold, "its ACK goes ahead of what is held"),
            (FromVm::Uplink, FromVm::Hold, "what is held is counted once"),
            (FromVm::Hold, FromVm::AckOnData, "early ACKs ride on what leaves"),
            (FromVm::AckOnData, FromVm::End, "early ACKs are of a connection that is known"),
            (FromVm::Hold, FromVm::Departure, "what is held is timed from when it leaves"),
            (FromVm::Departure, FromVm::End, "what is timed is of a connection that is known"),
        ];
        for (first, second, why) in from_vm {
            assert!(first < second, "{first:?} stands behind {second:?}: {why}");
        }
    }
}
