//! Transfers one after the other: what each end knows of them is put together by one clock.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use super::members::{Members, addresses_in_turn};
use crate::error::LabError;
use crate::host::clock::Clock;
use crate::host::vm::Vm;
use crate::proto::{Recorded, RequestTime, ServeRole, Task};

/// Starts those that receive.
pub fn serve(members: &Members) -> Result<(), LabError> {
    let server = |vm: &Vm| Task::Serve { role: ServeRole::Transfers, sockets: members.sockets(vm) };
    members.to.iter().try_for_each(|(_, vm)| members.start(vm, server(vm)))
}

/// Starts those that send.
pub fn begin(members: &Members, bytes: u64, concurrent: u32, pause_ms: u32) -> Result<(), LabError> {
    members.from.iter().enumerate().try_for_each(|(position, (_, vm))| {
        let to = addresses_in_turn(position, &members.to);
        members.start(vm, Task::Transfers { to, bytes, concurrent, pause_ms, sockets: members.sockets(vm) })
    })
}

/// Makes requests of the senders out of what both ends have recorded: the time from the opening of the connection to
/// the last byte at the receiver, and that from when the sender had it. The measured time began at `mark_ns` of this
/// machine's clock. Of each VM's transfers the first `limit` count; 0: all.
pub fn complete(recorded: &mut [&mut Recorded], addresses: &[Ipv4Addr], clocks: &[Clock], mark_ns: u64, limit: u32) {
    let by_host_clock = |ns: u64, vm: usize| clocks[vm].by_host(ns);
    // A port can be used again: the arrival that counts is the first after the start.
    let mut ends: HashMap<(String, u16, String), Vec<(i64, u64)>> = HashMap::new();
    for (vm, part) in recorded.iter_mut().enumerate() {
        for arrived in &part.arrived {
            let key = (arrived.from.clone(), arrived.port, addresses[vm].to_string());
            ends.entry(key).or_default().push((by_host_clock(arrived.end_ns, vm), arrived.bytes));
        }
    }
    for (vm, part) in recorded.iter_mut().enumerate() {
        let mut sent = std::mem::take(&mut part.sent);
        sent.truncate(if limit == 0 { usize::MAX } else { limit as usize });
        part.requests = sent
            .into_iter()
            .map(|sent| {
                let start_ns = by_host_clock(sent.start_ns, vm);
                let key = (addresses[vm].to_string(), sent.port, sent.to.clone());
                let end = ends.get(&key).and_then(|ends| ends.iter().find(|(end_ns, _)| *end_ns > start_ns));
                // One that did not bring all was cut off by the end of the run.
                let end = end.filter(|(_, bytes)| *bytes == sent.bytes);
                let connected_ns = sent.connected_ns.map(|ns| by_host_clock(ns, vm));
                // The mark is taken when all VMs have theirs: a transfer may have begun before it.
                let since_mark_ns = (start_ns - mark_ns as i64).max(0) as u64;
                // The clocks' error can exceed the time that a small transfer takes.
                let since_connected = |(end_ns, connected_ns): (i64, i64)| (end_ns - connected_ns).max(0) as u64;
                RequestTime {
                    to: sent.to,
                    bytes: sent.bytes,
                    start_us: since_mark_ns / 1000,
                    took_us: end.map(|(end_ns, _)| end_ns.abs_diff(start_ns) / 1000),
                    connected_took_us: end
                        .map(|(end_ns, _)| *end_ns)
                        .zip(connected_ns)
                        .map(|times| since_connected(times) / 1000),
                }
            })
            .collect();
    }
}

#[cfg(test)]
mod tests {
    use crate::proto::{Arrived, Sent};

    use super::*;

    #[test]
    fn a_transfers_time_is_between_two_clocks() {
        // A transfer has its connection 0.5 ms after it asked for it.
        let sent = |port, start_ns| {
            let connected_ns = Some(start_ns + 500_000);
            Sent { to: "10.0.0.2".into(), port, bytes: 100, start_ns, connected_ns }
        };
        let arrived = |port, bytes, end_ns| Arrived {
            from: "10.0.0.1".into(),
            port,
            bytes,
            end_ns,
            longest_stall_ns: 0,
            is_damaged: false,
        };
        // The sender's clock is 1 ms ahead of the host's, the receiver's 2 ms behind.
        let clocks = [1_000_000, -2_000_000].map(|offset_ns| Clock { offset_ns, later: None });
        let sender = Recorded {
            sent: vec![sent(7, 11_000_000), sent(8, 21_000_000), sent(7, 31_000_000), sent(9, 41_000_000)],
            ..Recorded::default()
        };
        let receiver = Recorded {
            arrived: vec![arrived(7, 100, 13_000_000), arrived(8, 60, 23_000_000), arrived(7, 100, 31_000_000)],
            ..Recorded::default()
        };
        let recorded = [sender, receiver];
        let addresses = ["10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()];
        let of_mark = |mark_ns| {
            let mut recorded = recorded.clone();
            complete(&mut recorded.each_mut(), &addresses, &clocks, mark_ns, 3);
            let times = |r: &RequestTime| (r.start_us, r.took_us, r.connected_took_us);
            recorded[0].requests.iter().map(times).collect::<Vec<_>>()
        };
        let took = [(Some(5000), Some(4500)), (None, None), (Some(3000), Some(2500))];
        let from = |starts: [u64; 3]| starts.into_iter().zip(took).map(|(start, (all, rest))| (start, all, rest));
        assert_eq!(of_mark(6_000_000), from([4_000, 14_000, 24_000]).collect::<Vec<_>>());
        assert_eq!(of_mark(10_300_000), from([0, 9_700, 19_700]).collect::<Vec<_>>());
    }

    #[test]
    fn a_transfer_that_ends_before_its_connection_by_clocks_that_differ_took_no_time() {
        let sent = Sent { to: "10.0.0.2".into(), port: 7, bytes: 1, start_ns: 1000, connected_ns: Some(900_000) };
        let arrived = Arrived {
            from: "10.0.0.1".into(),
            port: 7,
            bytes: 1,
            end_ns: 850_000,
            longest_stall_ns: 0,
            is_damaged: false,
        };
        let mut recorded = [
            Recorded { sent: vec![sent], ..Recorded::default() },
            Recorded { arrived: vec![arrived], ..Recorded::default() },
        ];
        let addresses = ["10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()];
        complete(&mut recorded.each_mut(), &addresses, &[Clock::default(); 2], 0, 0);
        let request = &recorded[0].requests[0];
        assert_eq!((request.took_us, request.connected_took_us), (Some(849), Some(0)));
    }
}
