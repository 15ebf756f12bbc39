//! vSnoop on a simulated host: ACKs ahead of the VM's own, where `algo/vsnoop/vsnoop.h` allows them.

use std::collections::HashMap;

use evenkeel_algo::vsnoop::{self, Core, Data, Doubt, EarlyAck, Settings, State, Vm, VmAck};
use evenkeel_settings::Mode;

use super::shim::{Counters, Effects, FromVm, Shim, ToVm, Verdict};
use crate::packet::{ConnId, Flags, Packet, Payload, SackBlocks, Segment};
use crate::time::Instant;

/// How vSnoop is set up on a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Off, observe or enforce.
    pub mode: Mode,
    /// The queue's share.
    pub settings: Settings,
    /// Places of the queue that are never counted on.
    pub reserve_segments: u32,
    /// Payload of a full segment.
    pub mss_bytes: u32,
}

#[derive(Debug, Default)]
struct Flow {
    /// Tells a connection from the one that had its slot before.
    generation: u32,
    flow: vsnoop::Flow,
    /// The last packet from the VM; early ACKs have its addresses.
    from_vm: Option<Packet>,
    /// An early ACK with news is about to go out.
    is_pending: bool,
}

/// vSnoop on a VM's port.
#[derive(Debug)]
pub struct Vsnoop {
    spec: Spec,
    vm: Vm,
    flows: HashMap<u32, Flow>,
    early_acks: u64,
    on_data: u64,
    dropped: u64,
    no_buffer: u64,
    unexpected: u64,
}

impl Vsnoop {
    /// On a port that has seen nothing.
    pub fn new(spec: Spec) -> Self {
        Self {
            spec,
            vm: Vm::default(),
            flows: HashMap::new(),
            early_acks: 0,
            on_data: 0,
            dropped: 0,
            no_buffer: 0,
            unexpected: 0,
        }
    }

    fn enforces(&self) -> bool {
        self.spec.mode == Mode::Enforce
    }

    /// The flow of a connection's end. A flow of an earlier connection in the same slot is forgotten.
    fn flow(&mut self, end: ConnId) -> &mut Flow {
        let flow = self.flows.entry(end.index).or_default();
        if flow.generation != end.generation {
            flow.flow.close(&mut self.vm);
            *flow = Flow { generation: end.generation, ..Flow::default() };
        }
        flow
    }

    fn data_to_vm(&mut self, now: Instant, end: ConnId, segment: &Segment, effects: &mut Effects) {
        let Spec { settings, reserve_segments: reserve, .. } = self.spec;
        let (enforces, mut vm) = (self.enforces(), std::mem::take(&mut self.vm));
        let flow = self.flow(end);
        let (state, acked) = (flow.flow.state(), flow.flow.acked());
        let has_place = effects.port_room >= vsnoop::wanted_slots(1, reserve) as usize;
        let doubt = if has_place { Doubt::CERTAIN } else { Doubt::QUEUE };
        let bytes = segment.payload_bytes;
        let core = if effects.vm_runs { Core::On } else { Core::Off };
        let data = Data { seq: segment.seq, bytes, segments: 1, last_bytes: bytes, is_fin: false, doubt, core };
        let early = flow.flow.data(&mut vm, settings, data, now.us());
        let after = flow.flow.state();
        if let Some((ack, like)) = early.zip(flow.from_vm.as_ref()).filter(|_| enforces) {
            flow.is_pending = ack.ack != acked;
            effects.from_vm.push((FromVm::AckFilter, early_ack(like, &ack, segment.ts_val)));
        }
        self.vm = vm;
        self.early_acks += u64::from(early.is_some());
        self.no_buffer += u64::from(after != state && after == State::NoBuffer);
        self.unexpected += u64::from(after != state && after == State::UnexpectedSequence);
    }

    fn filter(&mut self, now: Instant, end: ConnId, packet: &Packet, segment: &Segment) -> Verdict {
        let (enforces, mut vm) = (self.enforces(), std::mem::take(&mut self.vm));
        let flow = self.flow(end);
        flow.from_vm = Some(*packet);
        let is_bare = segment.payload_bytes == 0 && segment.sack.count == 0 && !segment.flags.has(Flags::ECE);
        let blocks = &segment.sack.blocks[..usize::from(segment.sack.count)];
        let ack = VmAck {
            seq: segment.seq,
            bytes: segment.payload_bytes,
            ack: segment.ack,
            window: segment.window,
            ts_val: segment.ts_val,
            is_bare,
            has_later: blocks.iter().any(|(_, end)| end.wrapping_sub(segment.ack) as i32 > 0),
        };
        let passes = flow.flow.vm_ack(&mut vm, &ack, now.us());
        self.vm = vm;
        self.dropped += u64::from(!passes);
        if passes || !enforces { Verdict::Pass } else { Verdict::Drop }
    }

    /// Data takes along the early ACK that the VM does not know of.
    fn ride(&mut self, end: ConnId, segment: &mut Segment) -> Verdict {
        let flow = self.flow(end);
        if segment.payload_bytes == 0 {
            let is_early = std::mem::take(&mut flow.is_pending);
            return if is_early && flow.flow.has_ridden(segment.ack) { Verdict::Drop } else { Verdict::Pass };
        }
        if let Some(early) = flow.flow.ride(segment.ack) {
            segment.ack = early.ack;
            segment.window = early.window;
            segment.sack = SackBlocks::default();
            self.on_data += 1;
        }
        Verdict::Pass
    }
}

fn early_ack(like: &Packet, ack: &EarlyAck, ts_ecr: u32) -> Packet {
    let mut packet = like.bare_ack(ack.seq);
    if let Payload::Tcp(_, segment) = &mut packet.payload {
        segment.ack = ack.ack;
        segment.window = ack.window;
        segment.flags = Flags::ACK;
        segment.ts_val = ack.ts_val;
        segment.ts_ecr = if ack.ts_val > 0 { ts_ecr } else { 0 };
        segment.sack = SackBlocks::default();
    }
    packet
}

impl Shim for Vsnoop {
    fn steps_to_vm(&self) -> &'static [ToVm] {
        &[ToVm::EarlyAck]
    }

    fn steps_from_vm(&self) -> &'static [FromVm] {
        &[FromVm::AckFilter, FromVm::AckOnData]
    }

    fn on_to_vm(
        &mut self,
        now: Instant,
        _: ToVm,
        end: Option<ConnId>,
        packet: &mut Packet,
        effects: &mut Effects,
    ) -> Verdict {
        let (Some(end), Payload::Tcp(_, segment)) = (end, packet.payload) else { return Verdict::Pass };
        if segment.flags.has(Flags::SYN) {
            let mss = self.spec.mss_bytes;
            self.flow(end).flow.peer_syn(segment.seq, mss);
        } else if segment.payload_bytes > 0 {
            self.data_to_vm(now, end, &segment, effects);
        } else {
            self.flow(end).flow.peer_ack(segment.seq, false);
        }
        Verdict::Pass
    }

    fn on_from_vm(
        &mut self,
        now: Instant,
        place: FromVm,
        end: Option<ConnId>,
        packet: &mut Packet,
        _: &mut Effects,
    ) -> Verdict {
        let (Some(end), Payload::Tcp(_, segment)) = (end, &mut packet.payload) else { return Verdict::Pass };
        if segment.flags.has(Flags::SYN) {
            self.flow(end).flow.vm_syn(segment.window_scale);
            return Verdict::Pass;
        }
        if place == FromVm::AckOnData {
            return if self.enforces() { self.ride(end, segment) } else { Verdict::Pass };
        }
        let segment = *segment;
        self.filter(now, end, packet, &segment)
    }

    fn on_close(&mut self, _: Instant, end: ConnId) {
        if let Some(flow) = self.flows.get_mut(&end.index).filter(|flow| flow.generation == end.generation) {
            flow.flow.close(&mut self.vm);
            self.flows.remove(&end.index);
        }
    }

    fn counters(&self) -> Counters {
        vec![
            ("VsnoopEarlyAcks", self.early_acks),
            ("VsnoopOnData", self.on_data),
            ("VsnoopDropped", self.dropped),
            ("VsnoopNoBuffer", self.no_buffer),
            ("VsnoopUnexpectedSequence", self.unexpected),
        ]
    }
}
