//! The real iperf3.

use evenkeel_scenario::format::Scenario;

use super::members::Members;
use super::task::{Running, started};
use crate::error::LabError;
use crate::host::vm::Vm;
use crate::proto::Op;

/// First port of the servers; each client has a server of its own.
const FIRST_PORT: u32 = 5201;

/// Starts it: each VM that sends takes one that receives, in turn.
pub fn start(members: &Members, flows: u32) -> Result<Running, LabError> {
    let (from, to) = (&members.from, &members.to);
    let pairs: Vec<_> =
        from.iter().enumerate().map(|(position, client)| (*client, to[position % to.len()].1)).collect();
    Ok(Running { iperf3: start_between(members.scenario, flows, &pairs)?, ..Running::default() })
}

/// Starts iperf3 between pairs of a client (with its index) and a server: first all servers, then all clients at once.
pub fn start_between(
    scenario: &Scenario,
    flows: u32,
    pairs: &[((usize, &Vm), &Vm)],
) -> Result<Vec<(usize, u64)>, LabError> {
    let seconds = |ms: u64| ms.div_ceil(1000).max(1).to_string();
    let argv = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
    let port = |position: usize| (FIRST_PORT + position as u32).to_string();
    for (position, (_, server)) in pairs.iter().enumerate() {
        let port = port(position);
        started(server, Op::Spawn { argv: argv(&["iperf3", "-s", "-1", "-p", &port]) })?;
        // The server needs a moment to listen, and says nothing before a client comes.
        server.shell(&format!(
            "i=0; until ss -Hltn sport = :{port} | grep -q . || [ $i -ge 100 ]; do i=$((i+1)); sleep 0.05; done"
        ))?;
    }
    let start = |position: usize| {
        let ((index, client), server) = pairs[position];
        let (address, flows, port) = (server.spec.address.to_string(), flows.to_string(), port(position));
        let (time, omit) = (seconds(scenario.duration_ms), seconds(scenario.warmup_ms));
        let mut words = argv(&["iperf3", "-c", &address, "-p", &port, "-J", "-P", &flows, "-t", &time, "-O", &omit]);
        if let Some(bytes) = scenario.vms[&client.spec.group].tcp.send_buffer_bytes {
            words.extend(["-w".to_owned(), (bytes / 2).to_string()]);
        }
        Ok((index, started(client, Op::Spawn { argv: words })?))
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..pairs.len()).map(|position| scope.spawn(move || start(position))).collect();
        threads.into_iter().map(|t| t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

pub fn bits_per_second(report: &str) -> Option<f64> {
    let report: serde_json::Value = serde_json::from_str(report).ok()?;
    report["end"]["sum_received"]["bits_per_second"].as_f64()
}

#[cfg(test)]
mod tests {
    use super::bits_per_second;

    #[test]
    fn reads_iperf3s_report() {
        assert_eq!(bits_per_second(r#"{"end":{"sum_received":{"bits_per_second":1.5e8}}}"#), Some(1.5e8));
        assert_eq!(bits_per_second(r#"{"error":"unable to connect"}"#), None);
        assert_eq!(bits_per_second("iperf3: error"), None);
    }
}
