//! Made-up but likely results, the same on every machine.

pub mod browser;
pub mod invented;
pub mod small;

use std::collections::BTreeMap;
use std::path::Path;

use evenkeel_scenario::Scenario;
use evenkeel_scenario::io::{append_record, create_results};
use evenkeel_scenario::provenance::{Program, Provenance};
use evenkeel_scenario::result::{Engine, FlowRecord, PacketRecord, RunRecord, RunSet, SeenAt, Series};

/// A scenario with every kind of plot, three axes and a paper's figures; more than one run could record.
pub const EVERYTHING: &str = include_str!("everything.toml");
/// A scenario without axes.
pub const PLAIN: &str = include_str!("plain.toml");

/// Results as a directory holds them.
pub struct Sample {
    pub set: RunSet,
    pub scenario: Scenario,
    pub records: Vec<RunRecord>,
}

impl Sample {
    /// Three axes, eight cells, three runs each.
    pub fn everything() -> Self {
        let mut records = Vec::new();
        for (era, era_label) in ["paper's day", "current"].into_iter().enumerate() {
            for (rto, rto_label) in ["smallest", "200 ms"].into_iter().enumerate() {
                for (pvtcp, pvtcp_label) in ["off", "on"].into_iter().enumerate() {
                    for repetition in 0..3 {
                        let cell = [("era", era_label), ("RTO min", rto_label), ("PVTCP", pvtcp_label)];
                        records.push(record(&cell, repetition, era, rto, pvtcp));
                    }
                }
            }
        }
        records[4].remarks.push("The receiver's capture lost 12 packets.".to_owned());
        Self { set: set(EVERYTHING), scenario: parse(EVERYTHING), records }
    }

    /// One cell, one run.
    pub fn plain() -> Self {
        Self { set: set(PLAIN), scenario: parse(PLAIN), records: vec![record(&[], 0, 1, 0, 0)] }
    }

    /// Writes the directory that `write_report` reads.
    pub fn write(&self, dir: &Path) {
        create_results(dir, &self.set).unwrap();
        self.records.iter().for_each(|record| append_record(dir, record).unwrap());
    }

    pub fn html(&self) -> String {
        evenkeel_report::render_html(&self.set, &self.scenario, &self.records)
    }
}

pub fn parse(text: &str) -> Scenario {
    toml::from_str(text).unwrap()
}

fn set(text: &str) -> RunSet {
    let versions = [
        ("evenkeel", "0.1.0"),
        ("qemu", "10.0.2"),
        ("host kernel", "6.12.38+deb13-amd64"),
        ("guest kernel newest", "6.12.43-1"),
        ("cpu", "2 x a processor with quite a long name @ 2.80GHz"),
    ];
    RunSet {
        schema: 1,
        engine: Engine::Lab,
        scenario_toml: text.to_owned(),
        versions: versions.map(|(name, version)| (name.to_owned(), version.to_owned())).into(),
        command: "evenkeel lab scenarios/pvtcp/everything.toml --out results".to_owned(),
        started: "2025-08-30T12:00:00Z".to_owned(),
        remarks: vec![
            "TCG: no KVM on this machine, so guests run several times slower than on hardware.".to_owned(),
            "Two cores: senders share one, the receiver and the switch have the other.".to_owned(),
        ],
        provenance: Some(Provenance {
            program: Program {
                commit: Some("0123456789abcdef0123456789abcdef01234567".to_owned()),
                clean: Some(false),
                code: "c0dec0dec0dec0de".to_owned(),
            },
            settings: "5e775e775e775e77".to_owned(),
            host: "a processor (2 cores), Linux 6.12.38".to_owned(),
            again: None,
        }),
    }
}

/// A small generator of uniform numbers from 0 to 1, the same everywhere.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

fn record(cell: &[(&str, &str)], repetition: u32, era: usize, rto: usize, pvtcp: usize) -> RunRecord {
    let mut dice = Dice(u64::from(repetition) * 97 + (era * 4 + rto * 2 + pvtcp) as u64 + 1);
    let noise = 0.97 + 0.06 * dice.roll();
    let stalls = [[41.0, 3.0], [9.0, 0.0]][rto][pvtcp] * noise;
    let goodput = [[612.0, 903.0], [341.0, 348.0]][rto][pvtcp] * (1.0 + 0.04 * era as f64) * noise;
    let metrics = [
        ("goodput_mbit", goodput),
        ("block_p50_ms", 8_900.0 / goodput),
        ("block_p99_ms", 51_000.0 / goodput + 90.0 * rto as f64),
        ("timeouts", (stalls * 31.0).round()),
        ("needless_retransmissions", if pvtcp == 1 { 0.0 } else { (stalls * 77.0).round() }),
        ("tail_loss_probes", if era == 1 { (stalls * 12.0).round() } else { 0.0 }),
        ("rto_ms", [3.2, 204.0][rto] * noise),
        ("receiver_cpu", 71.3 * noise),
    ];
    let flow = FlowRecord {
        from: "sender-0".to_owned(),
        to: "receiver-0".to_owned(),
        bytes: (goodput * 1.25e6) as u64,
        start_us: 0,
        duration_us: 10_000_000,
    };
    RunRecord {
        cell: cell.iter().map(|(name, label)| ((*name).to_owned(), (*label).to_owned())).collect(),
        repetition,
        seed: 1 + u64::from(repetition),
        duration_us: 10_000_000,
        metrics: metrics.map(|(name, value)| (name.to_owned(), value)).into(),
        counters: BTreeMap::from([("sender-0".to_owned(), BTreeMap::from([("TcpExtTCPTimeouts".to_owned(), 31)]))]),
        flows: vec![flow],
        series: series(&mut dice, rto, pvtcp),
        packets: packets(pvtcp == 1),
        remarks: Vec::new(),
    }
}

/// RTTs that jump to 30 and 60 ms where the VM was off its core, as in Fig. 9.
fn series(dice: &mut Dice, rto: usize, pvtcp: usize) -> Vec<Series> {
    let named = |name: &str, points| Series { name: name.to_owned(), subject: "sender-0".to_owned(), points };
    let mut rtts = Vec::new();
    let mut rtos = Vec::new();
    for step in -200..2400i64 {
        let away = step % 21 == 0 && pvtcp == 0;
        let rtt = if away { 30.0 + 31.0 * dice.roll() } else { 0.25 + 0.4 * dice.roll() };
        rtts.push((step * 4_000, rtt));
        if step % 12 == 0 {
            let floor = [3.0, 203.0][rto];
            rtos.push((step * 4_000, floor + if away { 25.0 } else { dice.roll() }));
        }
    }
    let pings = (0..120)
        .map(|step| (step * 80_000, if dice.roll() < 0.6 { 0.3 + dice.roll() * 0.3 } else { dice.roll() * 60.0 }));
    vec![named("rtt_ms", pings.collect()), named("meas_rtt_ms", rtts), named("rto_ms", rtos)]
}

/// A sender that is off its core from 12 to 72 ms: ACKs wait in the host, and a timeout follows unless PVTCP holds it
/// off.
fn packets(held: bool) -> Vec<PacketRecord> {
    let mut packets = Vec::new();
    let mut put = |t_us: i64, at, data, segment: u64, retransmission| {
        packets.push(PacketRecord {
            t_us,
            at,
            data,
            seq: 8_400_000 + segment * 1448,
            len: if data { 1448 } else { 0 },
            retransmission,
            descheduled: (12_000..72_000).contains(&t_us),
        });
    };
    for segment in 0..24u64 {
        let sent = segment as i64 * 515;
        put(sent, SeenAt::Sender, true, segment, false);
        put(sent + 60, SeenAt::SenderPort, true, segment, false);
        put(sent + 900, SeenAt::SenderPort, false, segment + 1, false);
        // ACKs that reach the host after 12 ms wait there until the VM is back.
        let read = if sent + 950 < 12_000 { sent + 950 } else { 72_400 + segment as i64 * 8 };
        put(read, SeenAt::Sender, false, segment + 1, false);
    }
    if !held {
        put(72_100, SeenAt::Sender, true, 22, true);
        put(72_160, SeenAt::SenderPort, true, 22, true);
    }
    for segment in 24..48u64 {
        let sent = 73_000 + (segment as i64 - 24) * if held { 500 } else { 900 };
        put(sent, SeenAt::Sender, true, segment, false);
        put(sent + 60, SeenAt::SenderPort, true, segment, false);
        put(sent + 900, SeenAt::SenderPort, false, segment + 1, false);
        put(sent + 950, SeenAt::Sender, false, segment + 1, false);
    }
    packets.sort_by_key(|packet| packet.t_us);
    packets
}
