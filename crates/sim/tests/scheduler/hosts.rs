use evenkeel_sim::host::scheduler::linux::{GroupSpec, Linux, LinuxSpec, ThreadSpec};
use evenkeel_sim::host::scheduler::quota::Quota;
use evenkeel_sim::host::scheduler::Scheduler;
use evenkeel_sim::time::{Duration, Instant};

use crate::machine::{Load, Machine, Requests};

fn quantiles<S: Scheduler>(scheduler: S, loads: &[Load], cost_us: u64) -> [f64; 4] {
    let mut machine = Machine::new(scheduler, loads, 7);
    machine.ask(Requests { to: 0, gap: Duration::from_ms(50), cost: Duration::from_us(cost_us) });
    machine.run(Instant::START + Duration::from_s(300));
    let mut answers = std::mem::take(&mut machine.answers);
    answers.sort_unstable();
    [0.5, 0.9, 0.99, 1.0].map(|q| answers[((answers.len() - 1) as f64 * q) as usize].as_ms_f64() + 0.3)
}

fn spec(neighbours: u32, quota: Option<Quota>, slice: Option<Duration>) -> LinuxSpec {
    let group = |number| GroupSpec { weight: 100, quota: quota.filter(|_| number == 0) };
    let thread = |number| ThreadSpec { group: Some(number), slice: slice.filter(|_| number == 0) };
    LinuxSpec {
        cores: 1,
        slice: Some(Duration::from_us(1400)),
        groups: (0..=neighbours).map(group).collect(),
        threads: (0..=neighbours).map(thread).collect(),
        ..LinuxSpec::default()
    }
}

#[test]
fn explore() {
    let ms = Duration::from_ms;
    let cyc = |percent: u64, by_clock| Load::Cycle { busy: Duration::from_us(300 * percent), period: ms(30), by_clock };
    let some = Load::Some { percent: 60, period: ms(30) };
    let own = Some(Duration::from_us(300));
    let q = |quota, period| Some(Quota { quota: ms(quota), period: ms(period), burst: Duration::ZERO });
    for cost in [500, 800, 1000] {
        println!("cost {cost}");
        let run = |name: &str, want: &str, spec: LinuxSpec, loads: &[Load]| {
            println!("{name:40} want {want:20} got {:.1?}", quantiles(Linux::new(&spec, Some(3)), loads, cost));
        };
        run("eevdf idle", "1.1 4.9 9.4", spec(2, None, None), &[Load::Idle, Load::Busy, Load::Busy]);
        for by_clock in [false, true] {
            run("eevdf own 60", "4.6 9.7 20", spec(2, None, None), &[cyc(60, by_clock), Load::Busy, Load::Busy]);
            run("eevdf own 60 nb 60", "1.3 5.5 12", spec(2, None, None), &[cyc(60, by_clock), cyc(60, by_clock), cyc(60, by_clock)]);
            run("eevdf own 60 nb some", "1.3 5.5 12", spec(2, None, None), &[cyc(60, by_clock), some, some]);
            run("quota 30/100 own 60", "4.0 37 52", spec(0, q(30, 100), None), &[cyc(60, by_clock)]);
        }
        run("quota 30/100 own 100", "22.6 62 72", spec(0, q(30, 100), None), &[Load::Busy]);
        run("quota 3/10 own 100", "4.8 8.9 18", spec(0, q(3, 10), None), &[Load::Busy]);
        run("0.3 idle", "1.1 3.5 7", spec(2, None, own), &[Load::Idle, Load::Busy, Load::Busy]);
        run("0.3 idle nb 60", "1.4 2.2 5", spec(2, None, own), &[Load::Idle, cyc(60, false), cyc(60, false)]);
        run("0.3 idle nb some", "1.4 2.2 5", spec(2, None, own), &[Load::Idle, some, some]);
    }
}
