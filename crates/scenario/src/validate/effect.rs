//! Settings that act in no cell, and columns and plots that would be empty.

use evenkeel_quote::quoted;
use evenkeel_settings::Mode;
use evenkeel_settings::vflood::BufferPolicy;
use toml::{Table, Value};

use crate::cell::{Cell, Point, VARIABLE, covers};
use crate::check::join;
use crate::error::Problem;
use crate::format::{
    Axis, DelayedAck, Discipline, FlowSizes, Host, HostKind, MachineKind, Network, Plot, Record, Scenario, Scheduler,
    Topology, VmGroup, Workload,
};
use crate::metric::{Formula, Metric, SizeClass, Source};

/// Settings that are written down, differ from their default, and act in no cell.
pub(crate) fn idle(scenario: &Scenario, tree: &Table, cells: &[Cell]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut judge = |(key, value): &(String, Value), place: &str, cells: &mut dyn Iterator<Item = &Cell>| {
        let reasons: Option<Vec<_>> = cells.map(|cell| why_idle(key, &cell.scenario)).collect();
        if let Some(why) = reasons.and_then(|all| all.first().copied()).filter(|_| !is_default(key, value)) {
            let of_axis = if place == key { String::new() } else { format!("{} ", quoted(key)) };
            problems.push(Problem::at(place, format!("{of_axis}has no effect: {why}")));
        }
    };
    let axes: Vec<Vec<Point>> = scenario.axes.iter().map(Axis::points).collect();
    let overridden = |cell: &Cell, key: &str| {
        let chosen =
            axes.iter().zip(&cell.labels).filter_map(|(points, (_, label))| points.iter().find(|p| p.label == *label));
        chosen.flat_map(|p| p.set.keys()).any(|set| covers(set, key))
    };
    for root in VARIABLE {
        for leaf in tree.get(*root).map(|value| leaves(root, value)).unwrap_or_default() {
            judge(&leaf, &leaf.0, &mut cells.iter().filter(|cell| !overridden(cell, &leaf.0)));
        }
    }
    for (index, (axis, points)) in scenario.axes.iter().zip(&axes).enumerate() {
        for (position, point) in points.iter().enumerate() {
            for (key, value) in &point.set {
                for leaf in leaves(key, value) {
                    let place = axis.place(index, position, key);
                    judge(&leaf, &place, &mut cells.iter().filter(|cell| cell.labels[index].1 == point.label));
                }
            }
        }
    }
    problems
}

/// Columns and plots that would be empty in every cell.
pub(crate) fn empty_results(scenario: &Scenario, cells: &[Cell]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut judge = |path: String, what: &str, why: &dyn Fn(&Scenario) -> Option<&'static str>| {
        if let Some(reason) = cells
            .iter()
            .map(|cell| why(&cell.scenario))
            .collect::<Option<Vec<_>>>()
            .and_then(|all| all.first().copied())
        {
            problems.push(Problem::at(path, format!("{what} would be empty: {reason}")));
        }
    };
    for (index, metric) in scenario.report.columns.iter().enumerate() {
        judge(format!("report.columns[{index}]"), &format!("column {}", quoted(metric)), &|s| why_no_metric(metric, s));
    }
    for (index, figures) in scenario.paper.iter().enumerate() {
        for (key, metric) in figures.compared() {
            judge(format!("paper[{index}].{key}"), &format!("the comparison of {}", quoted(metric)), &|s| {
                why_no_metric(metric, s)
            });
        }
    }
    for (index, plot) in scenario.report.plots.iter().enumerate() {
        let path = format!("report.plots[{index}]");
        match plot {
            Plot::Bars { metric, .. } | Plot::Lines { metric, .. } | Plot::Heat { metric, .. } => {
                judge(format!("{path}.metric"), &format!("the plot of {}", quoted(metric)), &|s| {
                    why_no_metric(metric, s)
                });
            }
            Plot::Plane { x_metric, y_metric, .. } => {
                for (key, metric) in [("x_metric", x_metric), ("y_metric", y_metric)] {
                    judge(format!("{path}.{key}"), &format!("the plot of {}", quoted(metric)), &|s| {
                        why_no_metric(metric, s)
                    });
                }
            }
            Plot::Factors { metrics, .. } => {
                for (place, metric) in metrics.iter().enumerate() {
                    judge(format!("{path}.metrics[{place}]"), &format!("the column of {}", quoted(metric)), &|s| {
                        why_no_metric(metric, s)
                    });
                }
            }
            Plot::Series { series, .. } => {
                for name in series {
                    judge(format!("{path}.series"), &format!("series {}", quoted(name)), &|s| why_no_series(name, s));
                }
            }
            Plot::Cdf { series, .. } => {
                judge(format!("{path}.series"), &format!("series {}", quoted(series)), &|s| why_no_series(series, s))
            }
            Plot::Sequence { .. } => judge(path, "the plot", &|s| why_no_series("meas_rtt_ms", s)),
        }
    }
    problems
}

/// Every dotted key at and below `key` that is no table.
fn leaves(key: &str, value: &Value) -> Vec<(String, Value)> {
    match value {
        Value::Table(table) => table.iter().flat_map(|(below, value)| leaves(&join(key, below), value)).collect(),
        leaf => vec![(key.to_owned(), leaf.clone())],
    }
}

/// Whether a value is the default.
fn is_default(key: &str, value: &Value) -> bool {
    let (table, rest) = match key.split('.').collect::<Vec<_>>()[..] {
        ["network", ref rest @ ..] => (Value::try_from(Network::default()), rest.to_vec()),
        ["record", ref rest @ ..] => (Value::try_from(Record::default()), rest.to_vec()),
        ["vms", _, ref rest @ ..] => (Value::try_from(VmGroup::default()), rest.to_vec()),
        _ => return false,
    };
    let default = rest.iter().try_fold(table.unwrap_or(Value::Boolean(false)), |at, key| at.get(key).cloned());
    match (default, value) {
        (Some(Value::Float(default)), Value::Integer(value)) => default == *value as f64,
        (default, value) => default.as_ref() == Some(value),
    }
}

/// Why a setting does nothing in a cell; None if it does something, or may.
fn why_idle(key: &str, scenario: &Scenario) -> Option<&'static str> {
    // A setting is idle if it is for all of the group's workloads.
    let group = match key.split('.').collect::<Vec<_>>()[..] {
        ["vms", group, ..] => Some(group),
        _ => None,
    };
    let concerns = |one: &Scenario| {
        let (from, to) = one.workload().roles();
        group.is_none_or(|group| group == from || group == to)
    };
    let reasons: Option<Vec<_>> =
        scenario.alone().filter(|(_, one)| concerns(one)).map(|(_, one)| why_idle_alone(key, &one)).collect();
    reasons?.first().copied()
}

/// The same where there is one workload.
fn why_idle_alone(key: &str, scenario: &Scenario) -> Option<&'static str> {
    let ping = matches!(scenario.workload(), Workload::Ping { .. });
    match key.split('.').collect::<Vec<_>>()[..] {
        ["network", "buffer_segments"] if scenario.network.rate_mbit == 0 => {
            Some("the port is not shaped (network.rate_mbit = 0)")
        }
        ["record", "queue_period_ms"] if scenario.network.rate_mbit == 0 && scenario.record.queue_period_ms > 0 => {
            Some("the port is not shaped (network.rate_mbit = 0), so it has no queue to record")
        }
        ["record", "tcp_info_period_ms"] if ping && scenario.record.tcp_info_period_ms > 0 => {
            Some("a ping has no TCP sockets")
        }
        ["record", "tcp_info_period_ms"] if open_loop(scenario) && scenario.record.tcp_info_period_ms > 0 => {
            Some(COME_AND_GO)
        }
        ["network", ref rest @ ..] => why_idle_in_network(rest, &scenario.network),
        ["hosts", name, ref rest @ ..] => why_idle_in_hosts(rest, name, scenario),
        ["vms", _, "tcp", ..] if ping => Some("a ping does not use TCP"),
        ["vms", group, ref rest @ ..] => why_idle_in_group(group, rest, scenario.vms.get(group)?, scenario),
        _ => None,
    }
}

const COME_AND_GO: &str = "the connections of this workload come and go; they are not sampled";

fn open_loop(scenario: &Scenario) -> bool {
    matches!(scenario.workload(), Workload::Poisson { .. } | Workload::Transfers { .. })
}

fn why_idle_in_hosts(key: &[&str], name: &str, scenario: &Scenario) -> Option<&'static str> {
    let kind = scenario.hosts.get(name)?;
    match *key {
        ["neighbours", "load" | "duty_ms"] if kind.neighbours.per_core == 0 => {
            Some("there are no neighbours (neighbours.per_core)")
        }
        ["neighbours", "duty_ms"] if matches!(kind.scheduler, Scheduler::Slices { .. }) => {
            Some("with drawn slices a neighbour computes in some slices and not in others (scheduler.kind)")
        }
        ["scheduler", "slice_jitter" | "idle_us"] if kind.neighbours.per_core == 0 => {
            Some("there are no neighbours (neighbours.per_core)")
        }
        _ => None,
    }
}

fn why_idle_in_network(key: &[&str], network: &Network) -> Option<&'static str> {
    match *key {
        ["leaves" | "spines" | "hosts_per_leaf" | "uplink_rate_mbit"]
            if !matches!(network.topology, Topology::LeafSpine | Topology::FatTree) =>
        {
            Some("only a leaf-spine and a fat-tree have it (network.topology)")
        }
        ["pods" | "cores_per_spine" | "core_rate_mbit"] if network.topology != Topology::FatTree => {
            Some("only a fat-tree has it (network.topology)")
        }
        ["edge_rate_mbit"] if network.topology != Topology::Dumbbell => {
            Some("only a dumbbell has it (network.topology)")
        }
        ["buffer_segments"] if network.shared_buffer_kib.is_some() => {
            Some("the ports share one memory (network.shared_buffer_kib)")
        }
        ["buffer_alpha"] if network.shared_buffer_kib.is_none() => {
            Some("each port has its own buffer (network.shared_buffer_kib is left out)")
        }
        ["queue", parameter] if parameter != "discipline" => why_idle_in_queue(parameter, network.queue.discipline),
        _ => None,
    }
}

fn why_idle_in_queue(parameter: &str, discipline: Discipline) -> Option<&'static str> {
    let (used, why) = match parameter {
        "ecn_threshold_segments" => (
            matches!(discipline, Discipline::Red | Discipline::Priority),
            "only the disciplines `red` and `priority` use it",
        ),
        "red_min_segments" | "red_max_segments" | "red_max_probability" => {
            (discipline == Discipline::Red, "only the discipline `red` uses it")
        }
        "codel_target_us" | "codel_interval_us" => (
            matches!(discipline, Discipline::Codel | Discipline::FqCodel),
            "only the disciplines `codel` and `fq-codel` use it",
        ),
        "thresholds_bytes" => (discipline == Discipline::Priority, "only the discipline `priority` uses it"),
        _ => return None,
    };
    (!used).then_some(why)
}

fn why_idle_in_group(name: &str, key: &[&str], group: &VmGroup, scenario: &Scenario) -> Option<&'static str> {
    let (from, to) = scenario.workload().roles();
    let (sends, receives) = (name == from, name == to);
    // Flows in the background go from both groups to both.
    let mesh = matches!(scenario.workload(), Workload::Poisson { background_mesh_flows: 1.., .. });
    let (sends_only, receives_only) = (sends && !receives && !mesh, receives && !sends && !mesh);
    let sack_off = group.tcp.sack == Some(false);
    // The receiver of a strobe sends 8 bytes per request, so settings for ACKs or for windows of data do next to
    // nothing there, but not nothing: only the one-way workloads are clear.
    let one_way = matches!(
        scenario.workload(),
        Workload::Bulk { .. } | Workload::Iperf3 { .. } | Workload::Poisson { .. } | Workload::Transfers { .. }
    );
    // Requests can be as large as responses.
    let asymmetric = !matches!(
        scenario.workload(),
        Workload::RequestResponse { .. } | Workload::Memcached { .. } | Workload::ThreeTier { .. }
    );
    if let [table, setting] = *key {
        let off = group.mechanisms().find(|mechanism| mechanism.name == table && mechanism.mode == Mode::Off);
        if let Some(off) = off.filter(|_| setting != "mode") {
            return Some(off.why_idle);
        }
    }
    match *key {
        ["core", "slice_ms" | "slice_jitter" | "load" | "idle_us"] if group.core.vms_per_core == 1 => {
            Some("the VMs have their core to themselves (core.vms_per_core = 1)")
        }
        ["port_queue_segments" | "host_delay_us"] if !group.hypervisor => {
            Some("there is no driver domain between these machines and the network (hypervisor = false)")
        }
        ["kernel" | "vcpus" | "memory_mib" | "hz"] if group.machine == MachineKind::Namespace => {
            Some("a namespace has the kernel, the processors, the memory and the clock of its machine (machine)")
        }
        ["cera", "client_delay_us"] if group.cera.clients == Some(0) => {
            Some("no VM has CERA's client (cera.clients = 0)")
        }
        ["nic_queue", parameter] if parameter != "discipline" => {
            why_idle_in_queue(parameter, group.nic_queue.discipline)
        }
        ["vflood", "low_rtt_us" | "alpha_low_rtt"] if group.vflood().policy != BufferPolicy::Priority => {
            Some("only the policy `priority` uses it (vflood.policy)")
        }
        ["vflood", "alpha"] if group.vflood().policy == BufferPolicy::None => {
            Some("the policy `none` does not use it (vflood.policy)")
        }
        ["vflood", ..] if receives_only && one_way => Some("this group only receives; vFlood acts on what VMs send"),
        ["vsnoop", ..] if sends_only && one_way => Some("this group only sends; vSnoop acts on what VMs receive"),
        ["tcp", "hystart"] if group.tcp.congestion_control() != "cubic" => {
            Some("only CUBIC has it (tcp.congestion_control)")
        }
        ["tcp", "hystart"] if group.vflood.mode() == Mode::Enforce => {
            Some("slow start is the host's affair with vFlood (vflood.mode = \"enforce\")")
        }
        ["tcp", "dsack"] if sack_off && group.tcp.dsack == Some(true) => Some("DSACK needs SACK, which is off"),
        ["tcp", "tail_loss_probe"] if sack_off && group.tcp.tail_loss_probe == Some(true) => {
            Some("tail-loss probes need SACK, which is off")
        }
        ["tcp", "eifel"] if !group.tcp.timestamps() && group.tcp.eifel == Some(true) => {
            Some("Eifel detection needs timestamps, which are off")
        }
        ["tcp", "delayed_ack_max_us"] if group.tcp.delayed_ack == DelayedAck::Off => {
            Some("ACKs are not delayed (tcp.delayed_ack = \"off\")")
        }
        ["tcp", "delayed_ack_max_us"] if sends_only && one_way => {
            Some("this group only sends; the receiving group acknowledges")
        }
        ["tcp", "receive_buffer_bytes"] if asymmetric && sends_only => {
            Some("this group sends; the receiving group's receive buffer counts")
        }
        ["tcp", "send_buffer_bytes"] if asymmetric && receives_only => {
            Some("this group receives; the sending group's send buffer counts")
        }
        ["tcp", "delayed_ack"] if sends_only && one_way => {
            Some("this group only sends; the receiving group acknowledges")
        }
        ["tcp", "initial_window_segments"] if asymmetric && receives_only => {
            Some("this group receives; the sending group's initial window counts")
        }
        ["tcp", "gso_segments"] if asymmetric && receives_only => {
            Some("this group receives; the sending group's packets count")
        }
        ["tcp", "hystart"] if asymmetric && receives_only => {
            Some("this group receives; the sending group's slow start counts")
        }
        _ => None,
    }
}

fn why_no_metric(name: &str, scenario: &Scenario) -> Option<&'static str> {
    let (workload, name) = Metric::split(name);
    if let Some(workload) = workload {
        if scenario.workloads.len() == 1 {
            return Some("of the only workload metrics have no name before them");
        }
        let Some((_, one)) = scenario.alone().find(|(name, _)| *name == workload) else {
            return Some("no workload has this name");
        };
        return match Metric::named(name) {
            Some(metric) if metric.is_of_workload() => why_no_metric_alone(metric, &one),
            _ => Some("it is of the whole run: no workload has its own"),
        };
    }
    let metric = Metric::named(name)?;
    if scenario.workloads.len() > 1 && metric.is_of_workload() && metric != Metric::GoodputMbit {
        return Some("each workload has its own: put the workload's name before it (`NAME.METRIC`)");
    }
    let reasons: Option<Vec<_>> = scenario.alone().map(|(_, one)| why_no_metric_alone(metric, &one)).collect();
    reasons?.first().copied()
}

/// The same where there is one workload.
fn why_no_metric_alone(metric: Metric, scenario: &Scenario) -> Option<&'static str> {
    let workload = scenario.workload();
    let (from, to) = workload.roles();
    let groups = || scenario.vms.values();
    let in_namespaces = |group: &str| {
        let group = scenario.vms.get(group)?;
        (group.machine == MachineKind::Namespace).then_some("a namespace has no virtual CPU (machine)")
    };
    let formula = match metric.source() {
        Source::Count { of, .. } => return why_off(of, scenario),
        Source::Formula(formula) => formula,
    };
    match formula {
        Formula::TimeS | Formula::KernelComplaints => None,
        Formula::Flows | Formula::FlowsUnfinished | Formula::ThroughputP50Mbit => why_no_flows(scenario),
        Formula::MissedDeadlines => match workload {
            Workload::Poisson { deadline_ms: 1.., .. } => None,
            _ => Some("no flow has a deadline (workloads.NAME.deadline_ms)"),
        },
        Formula::BackgroundGoodputMbit => match workload {
            Workload::Poisson { background_flows: 1.., .. } | Workload::Poisson { background_mesh_flows: 1.., .. } => {
                None
            }
            _ => Some("there are no flows in the background (workloads.NAME.background_flows, background_mesh_flows)"),
        },
        Formula::EcnMarks => {
            let nics = groups().map(|group| group.nic_queue.discipline);
            let nothing = |queue| matches!(queue, Discipline::DropTail | Discipline::Pfabric);
            nics.chain([scenario.network.queue.discipline])
                .all(nothing)
                .then_some("this queue marks nothing (network.queue.discipline)")
        }
        Formula::FctConnectedP50Ms | Formula::ThroughputConnectedP50Mbit => {
            (!matches!(workload, Workload::Transfers { .. }))
                .then_some("only transfers note when their sender has its connection")
        }
        Formula::FctMeanMs
        | Formula::FctP50Ms
        | Formula::FctP90Ms
        | Formula::FctP99Ms
        | Formula::FctP999Ms
        | Formula::FctMaxMs => why_no_flows(scenario),
        Formula::FctSmallMeanMs
        | Formula::FctSmallP50Ms
        | Formula::FctSmallP90Ms
        | Formula::FctSmallP99Ms
        | Formula::FctSmallP999Ms
        | Formula::FctSmallMaxMs => why_no_flows(scenario).or_else(|| why_none_of_size(SizeClass::Small, scenario)),
        Formula::FctMediumMeanMs
        | Formula::FctMediumP50Ms
        | Formula::FctMediumP90Ms
        | Formula::FctMediumP99Ms
        | Formula::FctMediumP999Ms
        | Formula::FctMediumMaxMs => why_no_flows(scenario).or_else(|| why_none_of_size(SizeClass::Medium, scenario)),
        Formula::FctLargeMeanMs
        | Formula::FctLargeP50Ms
        | Formula::FctLargeP90Ms
        | Formula::FctLargeP99Ms
        | Formula::FctLargeP999Ms
        | Formula::FctLargeMaxMs => why_no_flows(scenario).or_else(|| why_none_of_size(SizeClass::Large, scenario)),
        Formula::RttP50Ms | Formula::RttP90Ms | Formula::RttMeanMs | Formula::RttMaxMs => {
            (!matches!(workload, Workload::Ping { .. })).then_some("only a ping measures it")
        }
        Formula::BlockP50Ms | Formula::BlockP99Ms | Formula::Blocks => {
            (!matches!(workload, Workload::Strobe { .. })).then_some("only a strobe has blocks")
        }
        Formula::RtoMs | Formula::RtoP90Ms => why_no_series("rto_ms", scenario),
        Formula::SrttMs => why_no_series("srtt_ms", scenario),
        Formula::RtoRuns1 | Formula::RtoRuns2 | Formula::RtoRuns3 | Formula::RtoRuns4 | Formula::DuplicateAcks => {
            why_no_series("meas_rtt_ms", scenario)
        }
        Formula::QueueMeanSegments | Formula::QueueMaxSegments => why_no_series("queue_segments", scenario),
        Formula::QueueDelayMeanMs
        | Formula::QueueDelayP50Ms
        | Formula::QueueDelayP99Ms
        | Formula::QueueDelayFirstMeanMs
        | Formula::QueueDelayFirstP99Ms
        | Formula::UplinkUse => (!scenario.record.sender_nic).then_some("it needs record.sender_nic = true"),
        Formula::CeraCuts | Formula::WeightError => why_off("cera", scenario),
        Formula::SenderCpu => in_namespaces(from),
        Formula::VcpuWaitP50Ms | Formula::VcpuWaitP90Ms | Formula::VcpuWaitMaxMs => {
            let is_on = scenario.vms.get(from).is_some_and(|group| group.on.is_some());
            (!is_on).then_some("the sending VMs are not on hosts that share cores (vms.NAME.on)")
        }
        Formula::ThrottledMs => groups().all(|g| g.quota.is_none()).then_some("no VM has a quota (vms.NAME.quota)"),
        Formula::ReceiverCpu => in_namespaces(to),
        Formula::ThroughputNearP50Mbit | Formula::ThroughputFarP50Mbit => why_no_flows(scenario).or_else(|| {
            scenario.vms.get(to).is_none_or(|g| g.far_count == 0).then_some("no VM that receives is far (far_count)")
        }),
        Formula::LongestStallMs | Formula::Damaged => {
            (!matches!(workload, Workload::Transfers { .. })).then_some("only transfers have it")
        }
        Formula::MigrationOfflineMs
        | Formula::MigrationMs
        | Formula::MigrationDowntimeMs
        | Formula::MigrationOnlineMs => {
            groups().all(|g| g.migrate_at_ms.is_none()).then_some("no VM moves (migrate_at_ms)")
        }
        Formula::OperationsPerS => (!matches!(workload, Workload::ThreeTier { .. }))
            .then_some("only the users of a web application have operations (kind = \"three-tier\")"),
        Formula::DomainCpu => groups().all(|g| g.host != HostKind::Vm).then_some("no host is a VM (host = \"vm\")"),
        Formula::VfloodShare => groups()
            .all(|g| g.vflood.clients.is_none())
            .then_some("no group has VMs with vFlood beside others (vflood.clients)"),
        Formula::VfloodHeldMeanUs | Formula::VfloodLowRttSegments | Formula::VfloodHighRttSegments => {
            why_off("vflood", scenario)
        }
        Formula::PvtcpLongestUs | Formula::PvtcpHeld | Formula::PvtcpReloads => why_off("pvtcp", scenario),
        Formula::GoodputMbit
        | Formula::Timeouts
        | Formula::TimeoutsPerS
        | Formula::TailLossProbes
        | Formula::TailLossProbesPerS
        | Formula::TlpRecoveries
        | Formula::Undone
        | Formula::SpuriousFrto
        | Formula::DetectedShare
        | Formula::SegmentsSent
        | Formula::Retransmitted
        | Formula::NeedlessRetransmissions
        | Formula::NeedlessPerS
        | Formula::Dsacks
        | Formula::PortDrops
        | Formula::AcksSent
        | Formula::ProbesSent
        | Formula::ProbesMarked
        | Formula::SynsRepeated
        | Formula::FirstWindowsScaled
        | Formula::FirstWindowsOneMss
        | Formula::WindowsLimited
        | Formula::WireFirstSegments
        | Formula::WireBurstSegments
        | Formula::WireBeyondSegments
        | Formula::Resets => matches!(workload, Workload::Ping { .. }).then_some("a ping does not use TCP"),
    }
}

/// Why nobody counts what a mechanism does.
fn why_off(name: &str, scenario: &Scenario) -> Option<&'static str> {
    let of_group = |group: &VmGroup| group.mechanisms().find(|mechanism| mechanism.name == name);
    let mut mechanisms = scenario.vms.values().filter_map(of_group);
    let is_off = mechanisms.clone().all(|mechanism| mechanism.mode == Mode::Off);
    mechanisms.next().filter(|_| is_off).map(|mechanism| mechanism.why_uncounted)
}

fn why_no_flows(scenario: &Scenario) -> Option<&'static str> {
    let flows = matches!(
        scenario.workload(),
        Workload::Poisson { .. }
            | Workload::RequestResponse { .. }
            | Workload::Memcached { .. }
            | Workload::Transfers { .. }
            | Workload::ThreeTier { .. }
    );
    (!flows).then_some("only a Poisson process, transfers, and requests and responses have flows that end")
}

/// Why no flow is of this size.
fn why_none_of_size(asked: SizeClass, scenario: &Scenario) -> Option<&'static str> {
    let bytes = match scenario.workload() {
        Workload::Poisson { sizes: FlowSizes::Bytes(bytes), .. } => *bytes,
        Workload::RequestResponse { response_bytes, .. } => *response_bytes,
        Workload::Memcached { value_bytes, .. } => *value_bytes,
        Workload::Transfers { bytes, .. } => *bytes,
        _ => return None,
    };
    (SizeClass::of(bytes.into()) != asked).then_some("all flows are of another size")
}

fn why_no_series(series: &str, scenario: &Scenario) -> Option<&'static str> {
    let reasons: Option<Vec<_>> = scenario.alone().map(|(_, one)| why_no_series_alone(series, &one)).collect();
    reasons?.first().copied()
}

/// The same where there is one workload.
fn why_no_series_alone(series: &str, scenario: &Scenario) -> Option<&'static str> {
    let record = &scenario.record;
    match (series, scenario.workload()) {
        ("vcpu_wait_ms", _) => {
            let is_linux = |host: &Host| matches!(host.scheduler, Scheduler::Linux { .. });
            let on_linux =
                |group: &VmGroup| group.on.as_ref().and_then(|on| scenario.hosts.get(on)).is_some_and(is_linux);
            (!scenario.vms.values().any(on_linux)).then_some("no VM is on hosts with Linux's scheduler (vms.NAME.on)")
        }
        ("rtt_ms", workload) => (!matches!(workload, Workload::Ping { .. })).then_some("only a ping records it"),
        (_, Workload::Ping { .. }) if series != "queue_segments" => Some("a ping does not use TCP"),
        ("block_ms", workload) => (!matches!(workload, Workload::Strobe { .. })).then_some("only a strobe has blocks"),
        ("srtt_ms" | "rto_ms" | "cwnd_segments", Workload::Iperf3 { .. }) => Some("iperf3's sockets are not sampled"),
        ("srtt_ms" | "rto_ms" | "cwnd_segments", Workload::Poisson { .. } | Workload::Transfers { .. }) => {
            Some(COME_AND_GO)
        }
        ("srtt_ms" | "rto_ms" | "cwnd_segments", _) => {
            (record.tcp_info_period_ms == 0).then_some("record.tcp_info_period_ms is 0")
        }
        ("meas_rtt_ms", _) => (!record.capture).then_some("it needs record.capture = true"),
        ("queue_segments", _) if scenario.network.rate_mbit == 0 => {
            Some("the port is not shaped (network.rate_mbit = 0)")
        }
        ("share_segments", _) if why_off("cera", scenario).is_some() => why_off("cera", scenario),
        ("queue_segments" | "share_segments", _) => {
            (record.queue_period_ms == 0).then_some("record.queue_period_ms is 0")
        }
        _ => None,
    }
}
