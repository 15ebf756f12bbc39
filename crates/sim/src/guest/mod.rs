//! VMs, and machines without a hypervisor.
//!
//! A VM's virtual CPU runs in slices. When it gets its core back, it catches up in the order of a Linux guest: the
//! clock's late tick; expired timers; the packets at its port; the application. A machine without a hypervisor is a
//! guest that never waits.
//!
//! A VM on a host whose scheduler shares out the cores halts when it has nothing to do; see [`crate::host::cores`].

pub mod cera;
pub mod clock;
pub mod pvtcp;
pub mod vcpu;
pub mod vflood;

use std::collections::VecDeque;
use std::sync::Arc;

use evenkeel_scenario::slices::Turns;

use crate::footprint::{of_deque, of_vec};
use crate::host::cores::Duty;
use crate::host::scheduler::EntityId;
use crate::host::{Port, PortSpec};
use crate::packet::{ConnId, HostId, PacketId};
use crate::tcp::TcpConfig;
use crate::time::{Duration, Instant};
use clock::Clock;
use pvtcp::{Pvtcp, PvtcpSpec};
use vcpu::VirtualCpu;

/// A guest's parameters.
#[derive(Clone, Debug)]
pub struct GuestSpec {
    /// Where it is.
    pub host: HostId,
    /// Its TCP.
    pub tcp: Arc<TcpConfig>,
    /// Clock ticks a second; 0: timers are exact.
    pub hz: u32,
    /// When the first tick is.
    pub tick_phase: Duration,
    /// When its virtual CPU has its core; `None`: always, unless it competes for cores with others of its host.
    pub turns: Option<Turns>,
    /// What it computes beside its traffic.
    pub own_load: Option<Duty>,
    /// Its port on the host. `None`: a machine without a hypervisor.
    pub port: Option<PortSpec>,
    /// How long its CPU is busy with each packet that it sends or receives.
    pub packet_cost: Duration,
    /// How long its CPU is busy when its applications wake up to read what has come; packets that come meanwhile are
    /// read together.
    pub read_cost: Duration,
    /// PVTCP.
    pub pvtcp: Option<PvtcpSpec>,
    /// Bytes of a message from which on its packets are of the next class (PIAS).
    pub class_thresholds_bytes: Arc<[u64]>,
}

impl GuestSpec {
    /// A machine without a hypervisor, and without a tick if its TCP has none.
    pub fn plain(host: HostId, tcp: Arc<TcpConfig>) -> Self {
        let hz = Duration::from_s(1).ps().checked_div(tcp.jiffy.ps()).unwrap_or(0) as u32;
        Self {
            host,
            tcp,
            hz,
            tick_phase: Duration::ZERO,
            turns: None,
            own_load: None,
            port: None,
            packet_cost: Duration::ZERO,
            read_cost: Duration::ZERO,
            pvtcp: None,
            class_thresholds_bytes: Arc::from([]),
        }
    }
}

/// Something that a guest's application has to do as soon as the guest runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Call the workload back with this number, as it asked.
    Call(u32),
    /// Tell it that a connection is established.
    Established(ConnId),
    /// Tell it that what it expects has come.
    Delivered(ConnId),
    /// Tell it that the reply to this echo request has come.
    Echo(u32),
    /// Open a connection.
    Open(ConnId),
    /// Write to one.
    Write(ConnId, u64),
    /// Send an echo request to a guest.
    Ping(crate::packet::GuestId, u32),
    /// Share out the window that the host gives the guest (CERA).
    Share(u32),
}

/// A guest.
#[derive(Debug)]
pub struct Guest {
    /// Where it is.
    pub host: HostId,
    /// Its TCP.
    pub tcp: Arc<TcpConfig>,
    /// Its clock.
    pub clock: Clock,
    /// Its virtual CPU.
    pub vcpu: VirtualCpu,
    /// Its port; `None` without a hypervisor.
    pub port: Option<Port>,
    /// PVTCP, if it is loaded.
    pub pvtcp: Option<Pvtcp>,
    /// CERA's client, if there is one.
    pub cera: Option<cera::Client>,
    /// vFlood's part of its agent, if its host's vFlood can rest.
    pub vflood: Option<vflood::Agent>,
    pub(crate) packet_cost: Duration,
    pub(crate) read_cost: Duration,
    pub(crate) class_thresholds_bytes: Arc<[u64]>,
    /// Packets that wait for its CPU: in the port's queue, if there is a port.
    pub(crate) backlog: VecDeque<PacketId>,
    /// The packet that it works on, where that can be interrupted: its effects come when the work is done.
    pub(crate) in_hand: Option<PacketId>,
    /// Connections with data that their applications have not read.
    pub(crate) unread: Vec<ConnId>,
    /// Applications have woken up to read.
    pub(crate) is_reading: bool,
    /// Connections whose timers have run out while the virtual CPU was off its core.
    pub(crate) due: Vec<ConnId>,
    pub(crate) tasks: VecDeque<Task>,
    /// Packets that found the ring to the host full.
    pub(crate) qdisc: VecDeque<PacketId>,
    pub(crate) own_load: Option<Duty>,
    /// Its entity in its host's scheduler, if there is one.
    pub(crate) entity: Option<EntityId>,
    /// It computes beside its traffic. Only set where the host's scheduler decides; otherwise its duty tells.
    pub(crate) computes: bool,
    /// It has got its core back, and has not yet done what waited for that.
    pub(crate) is_back: bool,
    /// It has waited for its core since it was halted, and no timer has run out since: no clock event can be late.
    pub(crate) is_punctual: bool,
    /// It is in the list of guests with something to do.
    pub(crate) is_ready: bool,
    /// An event is to come that looks at it when its CPU is no longer busy.
    pub(crate) cpu_awaited: bool,
    /// When it last received or sent anything, or got its core back.
    pub(crate) active_at: Instant,
    /// An event is to come that looks whether it is idle.
    pub(crate) idle_awaited: bool,
    pub(crate) received: u64,
    pub(crate) sent: u64,
}

impl Guest {
    /// A guest that has done nothing yet.
    pub fn new(spec: &GuestSpec) -> Self {
        let clock = Clock::new(spec.hz, spec.tick_phase);
        Self {
            host: spec.host,
            tcp: Arc::clone(&spec.tcp),
            clock,
            vcpu: VirtualCpu::new(spec.turns.clone()),
            port: spec.port.as_ref().map(Port::new),
            pvtcp: spec.pvtcp.as_ref().and_then(|pvtcp| Pvtcp::new(pvtcp, &clock)),
            cera: None,
            vflood: None,
            packet_cost: spec.packet_cost,
            read_cost: spec.read_cost,
            class_thresholds_bytes: Arc::clone(&spec.class_thresholds_bytes),
            backlog: VecDeque::new(),
            in_hand: None,
            unread: Vec::new(),
            is_reading: false,
            due: Vec::new(),
            tasks: VecDeque::new(),
            qdisc: VecDeque::new(),
            own_load: spec.own_load,
            entity: None,
            computes: false,
            is_back: false,
            is_punctual: false,
            is_ready: false,
            cpu_awaited: false,
            active_at: Instant::START,
            idle_awaited: spec.turns.as_ref().is_some_and(|turns| turns.idle_ns().is_some()),
            received: 0,
            sent: 0,
        }
    }

    /// Packets received by the guest so far.
    pub const fn received(&self) -> u64 {
        self.received
    }

    /// Packets sent by the guest so far.
    pub const fn sent(&self) -> u64 {
        self.sent
    }

    /// Bytes allocated for what waits in it and at its port.
    pub(crate) fn heap_bytes(&self) -> u64 {
        let waiting = of_deque(&self.backlog) + of_deque(&self.qdisc) + of_deque(&self.tasks);
        let at_port = self.port.as_ref().map_or(0, Port::heap_bytes);
        waiting + of_vec(&self.unread) + of_vec(&self.due) + at_port
    }

    /// Whether it has something to do when its CPU is free.
    pub(crate) fn has_work(&self) -> bool {
        self.is_reading
            || self.in_hand.is_some()
            || !(self.backlog.is_empty() && self.unread.is_empty() && self.tasks.is_empty())
    }

    /// Whether a packet takes effect only after its cost in time: the guest may lose its core meanwhile.
    #[inline]
    pub(crate) fn takes_in_hand(&self) -> bool {
        self.entity.is_some() && self.packet_cost > Duration::ZERO
    }

    /// Whether it reads what has come before anything else can come.
    #[inline]
    pub(crate) fn reads_at_once(&self) -> bool {
        self.packet_cost == Duration::ZERO && self.read_cost == Duration::ZERO
    }

    /// Packets that wait for the guest.
    pub fn waiting(&self) -> usize {
        self.backlog.len()
    }
}
