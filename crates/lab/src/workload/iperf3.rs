//! The real iperf3.

use super::members::Members;
use super::task::{TaskOf, started};
use crate::error::LabError;
use crate::host::vm::Vm;
use crate::proto::Op;

/// First port of the servers; each client of a workload has a server of its own at each VM that it sends to.
const FIRST_PORT: usize = 5601;
/// Ports of each workload, one per client position: the lab has at most this many VMs.
const PORTS_OF_WORKLOAD: usize = 64;
/// How much longer clients send: the measured time begins, and ends, later than theirs.
const BEYOND_MS: u64 = 2000;

/// A client, with its position among all VMs, and a server.
pub type Pair<'a> = ((usize, &'a Vm), &'a Vm);

/// Each VM that sends takes one that receives, in turn.
pub fn pairs<'a>(members: &Members<'a>) -> Vec<Pair<'a>> {
    let (from, to) = (&members.from, &members.to);
    from.iter().enumerate().map(|(position, client)| (*client, to[position % to.len()].1)).collect()
}

fn port(place: u8, client: usize) -> String {
    (FIRST_PORT + usize::from(place) * PORTS_OF_WORKLOAD + client).to_string()
}

fn argv(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Starts the servers, which end with their clients.
pub fn serve(members: &Members, pairs: &[Pair]) -> Result<(), LabError> {
    for ((client, _), server) in pairs {
        let port = port(members.place, *client);
        started(server, Op::Spawn { argv: argv(&["iperf3", "-s", "-1", "-p", &port]) })?;
        // The server needs a moment to listen, and says nothing before a client comes.
        server.shell(&format!(
            "i=0; until ss -Hltn sport = :{port} | grep -q . || [ $i -ge 100 ]; do i=$((i+1)); sleep 0.05; done"
        ))?;
    }
    Ok(())
}

/// Starts all clients at once; returns their tasks.
pub fn begin(members: &Members, flows: u32, pairs: &[Pair]) -> Result<Vec<TaskOf>, LabError> {
    let seconds = |ms: u64| ms.div_ceil(1000).max(1).to_string();
    let start = |((index, client), server): &Pair| {
        let (address, flows, port) = (server.spec.address.to_string(), flows.to_string(), port(members.place, *index));
        let (time, omit) = (seconds(members.scenario.duration_ms + BEYOND_MS), seconds(members.scenario.warmup_ms));
        let words = argv(&["iperf3", "-c", &address, "-p", &port, "-J", "-P", &flows, "-t", &time, "-O", &omit]);
        Ok((*index, started(client, Op::Spawn { argv: words })?))
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = pairs.iter().map(|pair| scope.spawn(move || start(pair))).collect();
        threads.into_iter().map(|t| t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

/// What a client's server received, by the client's report.
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
