//! The runner over a socket pair, as the host sees it, and workloads over loopback.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::http::Http;
use super::recording::Recording;
use super::workload::{bulk, poisson, request_response, strobe};
use super::{AtEof, End, answer, serve};
use crate::proto::{Answer, Call, Op, Recorded, Reply, ServeRole, SocketSettings, Task};

const LOCAL: &str = "127.0.0.1";

/// The host's side of a running loop.
struct Host {
    stream: BufReader<UnixStream>,
    calls: u64,
    runner: JoinHandle<anyhow::Result<End>>,
}

impl Host {
    fn new() -> Self {
        let (host, guest) = UnixStream::pair().expect("a pair");
        host.set_read_timeout(Some(Duration::from_secs(20))).expect("a limit");
        let writer = guest.try_clone().expect("a second descriptor");
        let runner = thread::spawn(move || answer(guest, writer, 0, AtEof::End));
        Self { stream: BufReader::new(host), calls: 0, runner }
    }

    fn write(&mut self, line: &str) {
        self.stream.get_mut().write_all(line.as_bytes()).expect("written");
    }

    fn send(&mut self, op: Op) -> u64 {
        self.calls += 1;
        let line = serde_json::to_string(&Call { id: self.calls, op }).expect("encoded");
        self.write(&(line + "\n"));
        self.calls
    }

    fn read(&mut self) -> Reply {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("a reply in time");
        serde_json::from_str(&line).expect("a reply")
    }

    fn call(&mut self, op: Op) -> Result<Answer, String> {
        let id = self.send(op);
        let reply = self.read();
        assert_eq!(reply.id, id);
        reply.result
    }

    fn ok(&mut self, op: Op) -> Answer {
        self.call(op).expect("no error")
    }

    /// What was recorded of each workload.
    fn collect_all(&mut self) -> Vec<Recorded> {
        assert!(matches!(self.ok(Op::End), Answer::Counters { .. }));
        let Answer::Recorded { workloads } = self.ok(Op::Collect) else { panic!("not a record") };
        workloads
    }

    /// What was recorded of the only workload.
    fn collect(&mut self) -> Recorded {
        let mut workloads = self.collect_all();
        assert_eq!(workloads.len(), 1);
        workloads.remove(0)
    }

    fn end(self) -> End {
        drop(self.stream);
        self.runner.join().expect("no panic").expect("no error")
    }
}

/// What an attempt of 50 ms gives, or longer ones: a busy machine may not run every thread in that time.
fn in_time<T>(mut attempt: impl FnMut(Duration) -> Option<T>) -> T {
    [50, 200, 1000, 5000].into_iter().find_map(|ms| attempt(Duration::from_millis(ms))).expect("in five seconds")
}

fn argv(text: &str) -> Vec<String> {
    ["sh", "-c", text].map(String::from).to_vec()
}

/// A task of the first workload.
fn start_op(task: Task) -> Op {
    Op::Start { place: 0, task }
}

fn serve_task(role: ServeRole) -> Task {
    Task::Serve { role, sockets: SocketSettings::default() }
}

fn serve_op(role: ServeRole) -> Op {
    start_op(serve_task(role))
}

fn bulk_task(flows: u32) -> Task {
    Task::Bulk { to: LOCAL.into(), flows, sockets: SocketSettings::default() }
}

fn strobe_op(requests: u32) -> Op {
    let (from, sockets) = (vec![LOCAL.into(); 3], SocketSettings::default());
    start_op(Task::Strobe { from, bytes_per_server: 100_000, requests, sockets })
}

#[test]
fn the_runner_says_who_it_is_runs_programs_and_handles_files() {
    let mut host = Host::new();
    assert!(matches!(host.ok(Op::Hello), Answer::Hello { release, .. } if !release.is_empty()));
    let Answer::Exec { status, stdout, .. } = host.ok(Op::Exec { argv: argv("echo hello; exit 7") }) else { panic!() };
    assert_eq!((status, stdout.as_str()), (7, "hello\n"));
    let file = tempfile::NamedTempFile::new().expect("a file");
    let path = file.path().to_str().expect("a name").to_owned();
    host.ok(Op::WriteFile { path: path.clone(), text: "abc".into() });
    assert!(
        matches!(host.ok(Op::ReadFile { path, offset: 1 }), Answer::Bytes { base64, eof: true } if base64 == "YmM=")
    );
    assert!(matches!(host.ok(Op::Counters), Answer::Counters { values } if values.contains_key("TcpRetransSegs")));
    assert_eq!(host.end(), End::Closed);
}

#[test]
fn what_is_no_call_is_refused_and_the_runner_goes_on() {
    let mut host = Host::new();
    host.write("nonsense\n");
    let reply = host.read();
    assert!(reply.id == 0 && reply.result.is_err_and(|error| error.starts_with("not a call")));
    host.write("{\"id\":12,\"op\":{\"op\":\"dance\"}}\n");
    let reply = host.read();
    assert!(reply.id == 12 && reply.result.is_err_and(|error| error.contains("dance")));
    host.write(&"x".repeat(2 << 20));
    host.write("\n");
    let reply = host.read();
    assert!(reply.id == 0 && reply.result.is_err_and(|error| error.contains("longer")));
    assert!(host.call(Op::Kill { task: 99 }).is_err_and(|error| error.contains("99")));
    assert!(host.call(Op::Collect).is_err_and(|error| error.contains("not begun")));
    assert!(host.call(Op::Exec { argv: vec!["no-such-program".into()] }).is_err());
    host.ok(Op::Hello);
    assert_eq!(host.end(), End::Closed);
}

#[test]
fn power_off_ends_the_loop_unanswered() {
    let mut host = Host::new();
    host.send(Op::PowerOff);
    assert_eq!(host.end(), End::PowerOff);
}

#[test]
fn a_program_can_be_killed_while_it_is_waited_for() {
    let mut host = Host::new();
    let Answer::Started { task } = host.ok(Op::Spawn { argv: argv("echo on; exec sleep 60") }) else { panic!() };
    let wait = host.send(Op::Wait { task });
    let kill = host.send(Op::Kill { task });
    let mut ids = Vec::new();
    for _ in 0..2 {
        let reply = host.read();
        ids.push(reply.id);
        assert!(matches!(reply.result, Ok(Answer::Exec { status: -1, .. })), "{reply:?}");
    }
    ids.sort_unstable();
    assert_eq!(ids, [wait, kill]);
    // Its end can be asked for again until another is spawned.
    assert!(matches!(host.ok(Op::Kill { task }), Answer::Exec { .. }));
    host.ok(Op::Spawn { argv: argv("true") });
    assert!(host.call(Op::Kill { task }).is_err());
}

#[test]
fn a_strobe_asks_until_it_has_done_its_requests_since_the_mark() {
    let mut host = Host::new();
    host.ok(serve_op(ServeRole::BlockServer));
    host.ok(strobe_op(20));
    let wait_for_end = |host: &mut Host| {
        let begun = Instant::now();
        loop {
            let Answer::Progress { requests, ended, error } = host.ok(Op::Progress) else { panic!() };
            assert_eq!(error, None);
            if ended {
                return requests;
            }
            assert!(begun.elapsed() < Duration::from_secs(20));
            thread::sleep(Duration::from_millis(5));
        }
    };
    assert_eq!(wait_for_end(&mut host), 20);
    // Both ends of each connection are in this "VM".
    let recorded = in_time(|time| {
        host.ok(Op::Mark { workloads: 1, tcp_info_period_ms: 2 });
        thread::sleep(time);
        assert_eq!(wait_for_end(&mut host), 20);
        Some(host.collect()).filter(|recorded| recorded.sockets.len() == 6)
    });
    assert_eq!(recorded.blocks.len(), 20);
    assert!(recorded.blocks.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0 + 1), "{:?}", recorded.blocks);
    assert_eq!(recorded.received.iter().map(|(_, bytes)| bytes).sum::<u64>(), 20 * 3 * 100_000);
    assert_eq!(recorded.received.len(), 3);
    assert!(recorded.sockets.iter().all(|socket| socket.samples[0].snd_cwnd > 0 && socket.samples[0].rto_us > 0));
    assert!(recorded.errors.is_empty(), "{:?}", recorded.errors);
    host.ok(Op::Stop);
    assert_eq!(host.end(), End::Closed);
}

#[test]
fn what_comes_after_the_end_is_not_recorded() {
    let mut host = Host::new();
    host.ok(serve_op(ServeRole::Sink));
    host.ok(start_op(bulk_task(1)));
    assert!(host.call(Op::End).is_err_and(|error| error.contains("not begun")));
    let (last_us, longest) = in_time(|time| {
        let before_mark = Instant::now();
        host.ok(Op::Mark { workloads: 1, tcp_info_period_ms: 2 });
        assert!(host.call(Op::Collect).is_err_and(|error| error.contains("not ended")));
        thread::sleep(time);
        host.ok(Op::End);
        let longest = before_mark.elapsed();
        thread::sleep(Duration::from_millis(100));
        let Answer::Recorded { workloads } = host.ok(Op::Collect) else { panic!("not a record") };
        let measured_us = workloads[0].measured_us;
        assert!(u128::from(measured_us) <= longest.as_micros(), "{measured_us} {longest:?}");
        let samples = workloads[0].sockets.iter().flat_map(|socket| &socket.samples);
        samples.map(|sample| sample.t_us).max().map(|last_us| (last_us, longest))
    });
    assert!(u128::from(last_us) <= longest.as_micros(), "{last_us} {longest:?}");
    assert!(host.call(Op::Collect).is_err_and(|error| error.contains("not ended")));
}

#[test]
fn a_workload_can_be_stopped_and_started_again() {
    let mut host = Host::new();
    for _ in 0..3 {
        host.ok(serve_op(ServeRole::Sink));
        host.ok(start_op(bulk_task(2)));
        let recorded = in_time(|time| {
            host.ok(Op::Mark { workloads: 1, tcp_info_period_ms: 0 });
            thread::sleep(time);
            let recorded = host.collect();
            assert!(recorded.measured_us >= 50_000);
            Some(recorded).filter(|recorded| recorded.received.iter().filter(|&&(_, bytes)| bytes > 0).count() == 2)
        });
        assert_eq!(recorded.received.len(), 2);
        assert!(recorded.sockets.is_empty() && recorded.errors.is_empty());
        let asked = Instant::now();
        host.ok(Op::Stop);
        assert!(asked.elapsed() < Duration::from_secs(1));
    }
}

#[test]
fn workloads_at_once_have_servers_and_records_of_their_own() {
    let mut host = Host::new();
    for (place, flows) in [(0, 1), (2, 3)] {
        host.ok(Op::Start { place, task: serve_task(ServeRole::Sink) });
        host.ok(Op::Start { place, task: bulk_task(flows) });
    }
    // Both ends of the first workload's connection are in this "VM".
    let recorded = in_time(|time| {
        host.ok(Op::Mark { workloads: 3, tcp_info_period_ms: 2 });
        thread::sleep(time);
        let recorded = host.collect_all();
        let is_all = recorded[2].received.iter().filter(|&&(_, bytes)| bytes > 0).count() == 3;
        Some(recorded).filter(|recorded| is_all && recorded[0].received.len() == 1 && recorded[0].sockets.len() == 2)
    });
    assert_eq!(recorded.iter().map(|own| own.received.len()).collect::<Vec<_>>(), [1, 0, 3]);
    assert!(recorded.iter().all(|own| own.measured_us >= 50_000 && own.errors.is_empty()), "{recorded:?}");
    assert_eq!(recorded.iter().map(|own| own.sockets.len()).collect::<Vec<_>>(), [2, 0, 0]);
    host.ok(Op::Stop);
    assert!(host.call(Op::Collect).is_err_and(|error| error.contains("not begun")));
}

#[test]
fn a_second_server_on_the_port_is_refused() {
    let mut host = Host::new();
    host.ok(serve_op(ServeRole::Sink));
    assert!(host.call(serve_op(ServeRole::Sink)).is_err_and(|error| error.contains("cannot")));
}

fn local(role: ServeRole) -> (Arc<Recording>, SocketAddr, JoinHandle<()>) {
    let recording = Arc::new(Recording::new());
    let at = SocketAddr::from(([127, 0, 0, 1], 0));
    let (address, thread) = serve::start(&recording, at, role, SocketSettings::default()).expect("serves");
    (recording, address, thread)
}

#[test]
fn a_strobe_stops_in_the_middle_of_a_block() {
    let (server, address, serving) = local(ServeRole::BlockServer);
    let client = Arc::new(Recording::new());
    // Larger than can be sent in the time.
    let request = strobe::Request { bytes_per_server: 1 << 50, limit: 0 };
    let (progress, asking) = strobe::start(&client, &[address], request, SocketSettings::default()).expect("connects");
    let recorded = in_time(|time| {
        client.mark();
        thread::sleep(time);
        Some(client.end().expect("marked")).filter(|recorded| recorded.received[0].1 > 0)
    });
    assert!(recorded.blocks.is_empty());
    let asked = Instant::now();
    client.stop();
    asking.join().expect("no panic");
    assert!(asked.elapsed() < Duration::from_secs(1));
    assert!(progress.ended() && client.first_error().is_none());
    server.stop();
    serving.join().expect("no panic");
    assert_eq!(server.first_error(), None);
}

#[test]
fn a_server_that_goes_away_is_an_error_of_the_strobe() {
    let (server, address, serving) = local(ServeRole::BlockServer);
    let client = Arc::new(Recording::new());
    let request = strobe::Request { bytes_per_server: 10_000, limit: 0 };
    let (progress, asking) = strobe::start(&client, &[address], request, SocketSettings::default()).expect("connects");
    thread::sleep(Duration::from_millis(20));
    server.stop();
    serving.join().expect("no panic");
    drop(server);
    asking.join().expect("no panic");
    assert!(progress.ended());
    assert!(client.first_error().is_some_and(|error| error.starts_with("strobe: ")), "{:?}", client.first_error());
}

#[test]
fn a_sink_takes_clients_that_leave_for_no_error() {
    let (server, address, serving) = local(ServeRole::Sink);
    let client = Arc::new(Recording::new());
    let threads = bulk::start(&client, address, 3, SocketSettings::default()).expect("connects");
    in_time(|time| {
        server.mark();
        thread::sleep(time);
        (server.end().expect("marked").received.len() == 3).then_some(())
    });
    server.mark();
    client.stop();
    for thread in threads {
        thread.join().expect("no panic");
    }
    drop(client);
    thread::sleep(Duration::from_millis(20));
    let recorded = server.end().expect("marked");
    assert_eq!((recorded.received.len(), recorded.errors.len()), (3, 0));
    server.stop();
    serving.join().expect("no panic");
}

/// Takes requests until its test ends; answers each with this status line when it has the whole body, and with as many
/// zeros as a range asks for.
fn http_server(status: &'static str) -> SocketAddr {
    let listener = std::net::TcpListener::bind((LOCAL, 0)).expect("bound");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut reader = BufReader::new(stream);
                let (mut line, mut left, mut asked) = (String::new(), 0_u64, 0_u64);
                while reader.read_line(&mut line).is_ok_and(|n| n > 0) && line.trim() != "" {
                    if let Some(length) = line.trim().strip_prefix("Content-Length: ") {
                        left = length.parse().expect("a length");
                    }
                    if let Some(last) = line.trim().strip_prefix("Range: bytes=0-") {
                        asked = last.parse::<u64>().expect("a number") + 1;
                    }
                    line.clear();
                }
                let read = std::io::copy(&mut std::io::Read::take(&mut reader, left), &mut std::io::sink());
                assert_eq!(read.ok(), Some(left));
                let head = format!("HTTP/1.1 {status}\r\nContent-Length: {asked}\r\n\r\n");
                let mut answer = std::io::Read::chain(head.as_bytes(), std::io::Read::take(std::io::repeat(0), asked));
                let _ = std::io::copy(&mut answer, reader.get_mut());
            });
        }
    });
    address
}

/// Sends requests of these sizes, all at once, or GETs of `request_bytes` for as much; returns what was recorded when
/// it is `done`.
fn requested(to: SocketAddr, sizes: &[u64], request_bytes: usize, done: impl Fn(&Recorded) -> bool) -> Recorded {
    let recording = Arc::new(Recording::new());
    let start = recording.mark();
    let plan = sizes.iter().map(|&bytes| poisson::Planned { at: Duration::from_millis(2), to, bytes }).collect();
    let asks = poisson::Asks { request_bytes, settings: SocketSettings::default() };
    let thread = poisson::start(&recording, start, plan, asks).expect("started");
    let end = Instant::now() + Duration::from_secs(20);
    let recorded = loop {
        let recorded = recording.peek();
        if done(&recorded) {
            break recorded;
        }
        assert!(Instant::now() < end, "{recorded:?}");
        thread::sleep(Duration::from_millis(5));
    };
    recording.stop();
    thread.join().expect("no panic");
    recorded
}

#[test]
fn requests_are_sent_whole_and_timed_by_their_answers() {
    let sizes = [1, 1460, 15_000, 3_000_000];
    let all = |r: &Recorded| r.requests.len() == 4 && r.requests.iter().all(|r| r.took_us.is_some());
    for (status, request_bytes) in [("204 No Content", 0), ("206 Partial Content", 200)] {
        let recorded = requested(http_server(status), &sizes, request_bytes, all);
        let mut sent: Vec<u64> = recorded.requests.iter().map(|r| r.bytes).collect();
        sent.sort_unstable();
        assert_eq!(sent, sizes);
        assert!(recorded.requests.iter().all(|r| r.to == LOCAL && r.start_us == 2000));
        assert!(recorded.errors.is_empty(), "{status}: {:?}", recorded.errors);
    }
}

#[test]
fn a_request_that_is_refused_is_an_error_and_stays_unfinished() {
    let recorded = requested(http_server("500 Oh"), &[100], 0, |r| !r.errors.is_empty());
    assert!(recorded.errors[0].contains("500 Oh"), "{:?}", recorded.errors);
    assert_eq!(recorded.requests[0].took_us, None);
    let nobody = std::net::TcpListener::bind((LOCAL, 0)).expect("bound").local_addr().expect("an address");
    let recorded = requested(nobody, &[100], 0, |r| !r.errors.is_empty());
    assert_eq!(recorded.requests[0].took_us, None);
}

/// Answers the requests of one connection with a file of `bytes`, and says how many there were when it ends.
fn file_server(bytes: u64) -> (SocketAddr, JoinHandle<u32>) {
    let listener = std::net::TcpListener::bind((LOCAL, 0)).expect("bound");
    let address = listener.local_addr().expect("an address");
    let served = thread::spawn(move || {
        let mut http = Http::new(listener.accept().expect("a client").0).expect("a connection");
        let mut requests = 0;
        while let Ok(Some(head)) = http.head() {
            assert!(head.first.starts_with("GET /object/20000?qq") && !head.closes, "{}", head.first);
            requests += 1;
            if http.send("HTTP/1.1 200 OK\r\n", bytes).is_err() {
                break;
            }
        }
        requests
    });
    (address, served)
}

fn fetching(servers: Vec<SocketAddr>, think_time: Duration) -> (Arc<Recording>, Vec<JoinHandle<()>>) {
    let recording = Arc::new(Recording::new());
    recording.mark();
    let outstanding = servers.len() as u32;
    let plan = request_response::Plan { servers, outstanding, request_bytes: 200, response_bytes: 20_000, think_time };
    let threads = request_response::start(&recording, &plan, SocketSettings::default()).expect("connects");
    (recording, threads)
}

#[test]
fn files_are_asked_for_again_on_the_same_connections_after_a_pause() {
    let servers = [file_server(20_000), file_server(20_000)];
    let begun = Instant::now();
    let (recording, threads) = fetching(servers.iter().map(|(at, _)| *at).collect(), Duration::from_millis(20));
    let answered = || recording.peek().requests.iter().filter(|r| r.took_us.is_some()).count();
    while answered() < 6 {
        assert!(begun.elapsed() < Duration::from_secs(20) && recording.first_error().is_none());
        thread::sleep(Duration::from_millis(5));
    }
    recording.stop();
    for thread in threads {
        thread.join().expect("no panic");
    }
    let most = 2 * (1 + begun.elapsed().as_millis() / 20);
    assert_eq!(recording.first_error(), None);
    assert!(recording.peek().requests.iter().all(|r| r.bytes == 20_000));
    let requests = servers.map(|(_, server)| u128::from(server.join().expect("no panic")));
    assert!(requests[0].min(requests[1]) >= 2 && (6..=most).contains(&(requests[0] + requests[1])), "{requests:?}");
}

#[test]
fn another_file_than_was_asked_for_is_an_error() {
    let (address, server) = file_server(10);
    let (recording, threads) = fetching(vec![address], Duration::ZERO);
    for thread in threads {
        thread.join().expect("no panic");
    }
    assert!(recording.first_error().is_some_and(|error| error.contains("a file of 10 bytes")));
    recording.stop();
    drop(recording);
    assert_eq!(server.join().expect("no panic"), 1);
}
