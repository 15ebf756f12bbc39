//! The flows that a workload asks for, drawn without a network: none of them ever ends.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use evenkeel_scenario::format::{Scenario, Workload as Spec};
use evenkeel_scenario::sweep::run_seed;

use crate::packet::GuestId;
use crate::run::setup::{self, PlacedVm};
use crate::time::{Duration, Instant};
use crate::workload::{FlowId, Side, System, Workload};

/// As many bytes or more mean a flow without end.
const ENDLESS_BYTES: u64 = 1 << 40;

/// A flow that begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Flow {
    pub start: Instant,
    pub from: GuestId,
    pub to: GuestId,
    /// `None`: without end.
    pub bytes: Option<u64>,
}

/// All flows of a cell's first repetition that begin before it ends, in the order of their beginning.
pub(super) fn flows(scenario: &Scenario, places: &[PlacedVm]) -> Vec<Flow> {
    let seed = run_seed(scenario.seed, 0);
    let members = setup::members(scenario, scenario.workload(), places, 0, seed);
    let Some(mut workload) = Workload::new(scenario.workload(), members) else { return Vec::new() };
    let mark = Instant::START + Duration::from_ms(scenario.warmup_ms);
    let end = mark + Duration::from_ms(scenario.duration_ms);
    let mut draw = Draw::default();
    workload.start(&mut draw);
    draw.establish(&mut workload);
    let mut is_marked = false;
    while let Some(Reverse((at, _, tag))) = draw.calls.pop().filter(|Reverse((at, ..))| *at < end) {
        if !is_marked && at >= mark {
            is_marked = true;
            workload.mark(&mut draw);
        }
        draw.now = at;
        workload.on_call(&mut draw, tag);
        draw.establish(&mut workload);
    }
    // The workload opens one flow more before it knows that the one before it was the last that is measured.
    let mut left = match scenario.workload() {
        Spec::Poisson { flows, .. } if *flows > 0 => *flows,
        _ => u32::MAX,
    };
    let mut flows = draw.flows;
    flows.retain(|flow| {
        let counts = flow.bytes.is_some() && flow.start >= mark;
        let keeps = !counts || left > 0;
        left -= u32::from(counts && keeps);
        keeps
    });
    flows.sort();
    flows
}

/// A system in which every connection is there at once, and no byte arrives.
#[derive(Default)]
struct Draw {
    now: Instant,
    /// Calls of one instant come in the order in which they were asked for.
    calls: BinaryHeap<Reverse<(Instant, u64, u32)>>,
    asked: u64,
    flows: Vec<Flow>,
    opened: VecDeque<FlowId>,
}

impl Draw {
    fn establish(&mut self, workload: &mut Workload) {
        while let Some(flow) = self.opened.pop_front() {
            workload.on_established(self, flow);
        }
    }
}

impl System for Draw {
    fn now(&self) -> Instant {
        self.now
    }

    fn open(&mut self, from: GuestId, to: GuestId) -> FlowId {
        let flow = FlowId(self.flows.len() as u32);
        self.flows.push(Flow { start: self.now, from, to, bytes: None });
        self.opened.push_back(flow);
        flow
    }

    fn write(&mut self, flow: FlowId, _: Side, bytes: u64) {
        if let Some(flow) = self.flows.get_mut(flow.0 as usize) {
            flow.bytes = Some(bytes).filter(|bytes| *bytes < ENDLESS_BYTES);
        }
    }

    fn expect(&mut self, _: FlowId, _: Side, _: u64) {}

    fn close(&mut self, _: FlowId) {}

    fn call_at(&mut self, at: Instant, tag: u32) {
        self.asked += 1;
        self.calls.push(Reverse((at.max(self.now), self.asked, tag)));
    }

    fn call_in(&mut self, _: GuestId, at: Instant, tag: u32) {
        self.call_at(at, tag);
    }

    fn work(&mut self, _: GuestId, _: Duration) {}

    fn ping(&mut self, _: GuestId, _: GuestId, _: u32) {}

    fn stop(&mut self) {}
}
