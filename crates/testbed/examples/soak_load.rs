//! The applications' clients of bench/host/soak.sh. Every byte that comes back is compared with what was sent, and
//! everything else that can go wrong is counted.
//!
//! soak_load files DIRECTORY                            what nginx serves
//! soak_load serve PORT                                 the other end of transfers: TCP at PORT, MPTCP at the next
//! soak_load ask SECONDS SEED CA WORKLOAD@ADDRESS:PORT...
//!
//! `ask` has one connection at a time for each target. Workloads: redis, memcached, postgres, nginx (by curl, which
//! trusts CA), iperf3, tcp, mptcp, tfo. It prints a line of JSON for each fault, and in the end one for each target. A
//! read or write that makes no progress for a minute is stuck; it stays open for some seconds more, to be looked at.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Error, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use evenkeel_algo::noise::Random;
use nix::sys::socket::{setsockopt, sockopt};
use serde_json::{Value, json};
use socket2::{Domain, Protocol, Socket, Type};

/// An operation without any progress for this long is stuck.
const TIMEOUT: Duration = Duration::from_secs(60);
/// A new longest wait is reported if it is longer than this.
const SLOW: Duration = Duration::from_secs(20);
/// How long a stuck connection stays open after it was reported.
const EXHIBIT: Duration = Duration::from_secs(5);
/// What is read or written at once.
const CHUNK: usize = 1 << 16;
/// A prime, so that data that is shifted by any number of segments does not look right.
const TABLE: usize = 1_048_573;
const KEYS: usize = 16;
/// Values of stores have up to twice 2 to the power of this.
const VALUE_BYTES_LOG2: usize = 16;
const TRANSFER_BYTES_LOG2: usize = 21;
/// Sizes of the files that nginx serves.
const FILES: [usize; 8] = [1, 700, 1448, 10_000, 65_536, 200_003, 1_000_000, 3_000_017];
const IPERF_SECONDS: u64 = 10;

type Outcome<T> = io::Result<T>;

fn damaged<T>(what: impl Into<String>) -> Outcome<T> {
    Err(Error::new(ErrorKind::InvalidData, what.into()))
}

/// Bytes `at` and following of the stream that a seed gives, at most [`CHUNK`].
fn pattern(seed: u64, at: u64, bytes: usize) -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    let table = BYTES.get_or_init(|| {
        let mut random = Random::new(1);
        let mut table: Vec<u8> = (0..TABLE).map(|_| random.any() as u8).collect();
        table.extend_from_within(..CHUNK);
        table
    });
    let start = (Random::new(seed).any().wrapping_add(at) % TABLE as u64) as usize;
    &table[start..start + bytes]
}

fn value(seed: u64, bytes: usize) -> Vec<u8> {
    (0..bytes).step_by(CHUNK).flat_map(|at| pattern(seed, at as u64, CHUNK.min(bytes - at))).copied().collect()
}

/// Small sizes as often as large ones: up to twice 2 to the `log2`.
fn draw_size(random: &mut Random, log2: usize) -> usize {
    let least = 1 << random.below(log2 + 1);
    least + random.below(least)
}

/// `at` is where in the stream they are.
fn compare(at: u64, got: &[u8], want: &[u8]) -> Outcome<()> {
    match got.iter().zip(want).position(|(a, b)| a != b) {
        _ if got == want => Ok(()),
        Some(first) => damaged(format!("byte {} is {:#x}, not {:#x}", at + first as u64, got[first], want[first])),
        None => damaged(format!("{} bytes, not {}", got.len(), want.len())),
    }
}

/// What a target has come to.
#[derive(Default)]
struct Tally {
    operations: u64,
    bytes: u64,
    connections: u64,
    damaged: u64,
    reset: u64,
    refused: u64,
    stuck: u64,
    waits: Arc<Waits>,
}

/// The longest that a read or write took, in us.
#[derive(Default)]
struct Waits(AtomicU64);

impl Waits {
    fn measure<T>(&self, wait: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = wait();
        self.0.fetch_max(start.elapsed().as_micros() as u64, Ordering::Relaxed);
        result
    }
}

/// A connection whose reads and writes are timed.
struct Line<S> {
    stream: S,
    waits: Arc<Waits>,
}

impl<S: Read> Read for Line<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.waits.measure(|| self.stream.read(buffer))
    }
}

impl<S: Write> Write for Line<S> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.waits.measure(|| self.stream.write(buffer))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn limit(stream: &TcpStream, patience: Duration) -> Outcome<()> {
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))
}

fn connect(target: &Target, waits: &Waits) -> Outcome<TcpStream> {
    let protocol = if target.workload == "mptcp" { Protocol::MPTCP } else { Protocol::TCP };
    let socket = Socket::new(Domain::for_address(target.address), Type::STREAM, Some(protocol))?;
    if target.workload == "tfo" {
        // Connects with the first data.
        setsockopt(&socket, sockopt::TcpFastOpenConnect, &true)?;
        socket.connect(&target.address.into())?;
    } else {
        waits.measure(|| socket.connect_timeout(&target.address.into(), TIMEOUT))?;
    }
    let stream = TcpStream::from(socket);
    limit(&stream, TIMEOUT)?;
    Ok(stream)
}

/// Something that keeps values under keys.
trait Store {
    fn set(&mut self, key: &str, value: &[u8]) -> Outcome<()>;
    fn get(&mut self, key: &str) -> Outcome<Vec<u8>>;
    /// A value in the form that the store can take.
    fn form(&self, value: Vec<u8>) -> Vec<u8> {
        value
    }
}

type Reader = BufReader<Line<TcpStream>>;

fn expect(reader: &mut Reader, want: &str) -> Outcome<()> {
    let line = read_line(reader)?;
    if line == want { Ok(()) } else { damaged(format!("it says {line:?}, not {want:?}")) }
}

/// Reads a line; returns it without its end, which is CR LF.
fn read_line(reader: &mut Reader) -> Outcome<String> {
    let mut line = Vec::new();
    if reader.take(CHUNK as u64).read_until(b'\n', &mut line)? == 0 {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    match line.strip_suffix(b"\r\n") {
        Some(line) => Ok(String::from_utf8_lossy(line).into_owned()),
        None if line.ends_with(b"\n") || line.len() == CHUNK => damaged(format!("a line ends in {:?}", line.last())),
        None => Err(ErrorKind::UnexpectedEof.into()),
    }
}

/// Reads a value whose size the other end says in text.
fn read_sized(reader: &mut Reader, size: &str) -> Outcome<Vec<u8>> {
    let Some(bytes) = size.parse().ok().filter(|bytes| *bytes <= 4 << VALUE_BYTES_LOG2) else {
        return damaged(format!("a value has {size:?} bytes"));
    };
    let mut value = vec![0; bytes];
    reader.read_exact(&mut value)?;
    expect(reader, "")?;
    Ok(value)
}

struct Redis(Reader);

impl Redis {
    fn ask(&mut self, words: &[&[u8]]) -> Outcome<()> {
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            request.extend(format!("${}\r\n", word.len()).into_bytes());
            request.extend(*word);
            request.extend(b"\r\n");
        }
        self.0.get_mut().write_all(&request)
    }
}

impl Store for Redis {
    fn set(&mut self, key: &str, value: &[u8]) -> Outcome<()> {
        self.ask(&[b"SET", key.as_bytes(), value])?;
        expect(&mut self.0, "+OK")
    }

    fn get(&mut self, key: &str) -> Outcome<Vec<u8>> {
        self.ask(&[b"GET", key.as_bytes()])?;
        match read_line(&mut self.0)?.strip_prefix('$') {
            Some(size) => read_sized(&mut self.0, size),
            None => damaged("to a GET it does not answer with a value"),
        }
    }
}

struct Memcached(Reader);

impl Store for Memcached {
    fn set(&mut self, key: &str, value: &[u8]) -> Outcome<()> {
        let mut request = format!("set {key} 0 0 {}\r\n", value.len()).into_bytes();
        request.extend(value);
        request.extend(b"\r\n");
        self.0.get_mut().write_all(&request)?;
        expect(&mut self.0, "STORED")
    }

    fn get(&mut self, key: &str) -> Outcome<Vec<u8>> {
        self.0.get_mut().write_all(format!("get {key}\r\n").as_bytes())?;
        let header = read_line(&mut self.0)?;
        let Some(size) = header.strip_prefix(&format!("VALUE {key} 0 ")) else {
            return damaged(format!("to a get it says {header:?}"));
        };
        let value = read_sized(&mut self.0, size)?;
        expect(&mut self.0, "END")?;
        Ok(value)
    }
}

/// By the simple query protocol. Values are text.
struct Postgres(Reader);

impl Postgres {
    fn open(mut reader: Reader) -> Outcome<Self> {
        let mut startup = vec![0, 3, 0, 0];
        startup.extend(b"user\0soak\0database\0postgres\0\0");
        let mut message = (startup.len() as u32 + 4).to_be_bytes().to_vec();
        message.extend(startup);
        reader.get_mut().write_all(&message)?;
        let mut this = Self(reader);
        this.row()?;
        Ok(this)
    }

    fn query(&mut self, text: &[&[u8]]) -> Outcome<Option<Vec<u8>>> {
        let text = text.concat();
        let mut message = vec![b'Q'];
        message.extend((text.len() as u32 + 5).to_be_bytes());
        message.extend(&text);
        message.push(0);
        self.0.get_mut().write_all(&message)?;
        self.row()
    }

    /// The first column of the last row, once the server is ready for more.
    fn row(&mut self) -> Outcome<Option<Vec<u8>>> {
        let mut row = None;
        loop {
            let mut head = [0; 5];
            self.0.read_exact(&mut head)?;
            let bytes = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
            if !(4..=8 << VALUE_BYTES_LOG2).contains(&bytes) {
                return damaged(format!("a message of {bytes} bytes"));
            }
            let mut body = vec![0; bytes - 4];
            self.0.read_exact(&mut body)?;
            match head[0] {
                b'Z' => return Ok(row),
                b'E' => return damaged(format!("it says {:?}", String::from_utf8_lossy(&body))),
                // Two octets for the number of columns, four for the size of the first.
                b'D' => row = Some(body.split_off(6.min(body.len()))),
                _ => (),
            }
        }
    }
}

impl Store for Postgres {
    fn set(&mut self, key: &str, value: &[u8]) -> Outcome<()> {
        let insert = format!("INSERT INTO soak VALUES ('{key}', '").into_bytes();
        let update = b"') ON CONFLICT (key) DO UPDATE SET value = EXCLUDED.value";
        self.query(&[&insert, value, update]).map(drop)
    }

    fn get(&mut self, key: &str) -> Outcome<Vec<u8>> {
        match self.query(&[format!("SELECT value FROM soak WHERE key = '{key}'").as_bytes()])? {
            Some(value) => Ok(value),
            None => damaged(format!("there is no {key}")),
        }
    }

    fn form(&self, value: Vec<u8>) -> Vec<u8> {
        value.into_iter().map(|byte| b'A' + byte % 26).collect()
    }
}

/// What the stores' keys are known to have: a seed and a size.
type Known = HashMap<usize, (u64, usize)>;

/// Sets a value, or gets one. A value that was not confirmed is not known.
fn use_store(store: &mut dyn Store, prefix: &str, known: &mut Known, random: &mut Random) -> Outcome<u64> {
    let key = random.below(KEYS);
    let name = format!("{prefix}-{key}");
    if random.below(2) == 0 || !known.contains_key(&key) {
        let (seed, bytes) = (random.any(), draw_size(random, VALUE_BYTES_LOG2));
        known.remove(&key);
        store.set(&name, &store.form(value(seed, bytes)))?;
        known.insert(key, (seed, bytes));
        return Ok(bytes as u64);
    }
    let (seed, bytes) = known[&key];
    compare(0, &store.get(&name)?, &store.form(value(seed, bytes)))?;
    Ok(bytes as u64)
}

/// Sends bytes of a seed's stream.
fn send(line: &mut impl Write, seed: u64, bytes: u64) -> Outcome<()> {
    for at in (0..bytes).step_by(CHUNK) {
        line.write_all(pattern(seed, at, (bytes - at).min(CHUNK as u64) as usize))?;
    }
    Ok(())
}

/// Reads bytes of a seed's stream to the end, and then says whether they were right.
fn receive(line: &mut impl Read, seed: u64, bytes: u64) -> Outcome<Outcome<()>> {
    let mut buffer = vec![0; CHUNK];
    let (mut at, mut verdict) = (0, Ok(()));
    while at < bytes {
        let want = (bytes - at).min(CHUNK as u64) as usize;
        let got = match line.read(&mut buffer[..want]) {
            Ok(0) => return Err(Error::new(ErrorKind::UnexpectedEof, format!("it ends after {at} of {bytes} bytes"))),
            Ok(got) => got,
            Err(error) => return Err(Error::new(error.kind(), format!("{error}, after {at} of {bytes} bytes"))),
        };
        verdict = verdict.and_then(|()| compare(at, &buffer[..got], pattern(seed, at, got)));
        at += got as u64;
    }
    Ok(verdict)
}

/// Both directions at once; `up` is what this end sends. Then the server's verdict.
fn transfer(mut line: Line<TcpStream>, up: u64, down: u64, seed: u64) -> Outcome<u64> {
    let head = [seed, up, down].map(u64::to_be_bytes).concat();
    line.write_all(&head)?;
    let mut sender = Line { stream: line.stream.try_clone()?, waits: Arc::clone(&line.waits) };
    let sending = thread::spawn(move || send(&mut sender, seed, up));
    let received = receive(&mut line, seed + 1, down);
    if received.is_err() {
        // Stops the sender; but a stuck connection stays open, to be looked at.
        match &received {
            Err(error) if is_stuck(error.kind()) => (),
            _ => drop(line.stream.shutdown(Shutdown::Both)),
        }
    }
    let sent = sending.join().unwrap();
    received??;
    sent?;
    let mut verdict = [0];
    line.read_exact(&mut verdict)?;
    if verdict == *b"K" { Ok(up + down) } else { damaged("the server says that what it got was not right") }
}

fn serve_one(stream: TcpStream) -> Outcome<()> {
    // The client has to find a stuck connection first, and to show it.
    limit(&stream, TIMEOUT * 3)?;
    let mut line = Line { stream, waits: Arc::default() };
    let mut head = [0; 24];
    line.read_exact(&mut head)?;
    let [seed, up, down] = [0, 8, 16].map(|at| u64::from_be_bytes(head[at..at + 8].try_into().unwrap()));
    let mut sender = Line { stream: line.stream.try_clone()?, waits: Arc::default() };
    let sending = thread::spawn(move || send(&mut sender, seed + 1, down));
    let verdict = receive(&mut line, seed, up)?;
    sending.join().unwrap()?;
    line.write_all(if verdict.is_ok() { b"K" } else { b"X" })?;
    // The client closes first.
    line.read(&mut [0]).map(drop)
}

fn serve(port: u16) -> Outcome<()> {
    for (port, protocol) in [(port, Protocol::TCP), (port + 1, Protocol::MPTCP)] {
        let socket = Socket::new(Domain::IPV6, Type::STREAM, Some(protocol))?;
        socket.set_reuse_address(true)?;
        socket.set_only_v6(false)?;
        socket.bind(&SocketAddr::new([0; 16].into(), port).into())?;
        socket.listen(64)?;
        let listener = TcpListener::from(socket);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // The client knows what became of it, and says so.
                thread::spawn(move || drop(serve_one(stream)));
            }
        });
    }
    loop {
        thread::park();
    }
}

/// What curl's exit code stands for.
fn curl_fault(code: Option<i32>, said: &str) -> Error {
    // What TLS cannot read was changed on its way; a connection that ends too early is in the same list.
    let is_damaged = said.contains("error:") && !said.contains("unexpected eof") || said.contains("SSL certificate");
    let kind = match code {
        _ if is_damaged => ErrorKind::InvalidData,
        Some(28) => ErrorKind::TimedOut,
        Some(18 | 35 | 52 | 55 | 56) => ErrorKind::ConnectionReset,
        _ => ErrorKind::Other,
    };
    Error::new(kind, format!("curl ends with {code:?}: {said}"))
}

/// One curl: some files on one connection, or one.
fn fetch(target: &Target, random: &mut Random, waits: &Arc<Waits>) -> Outcome<u64> {
    let count = if random.below(2) == 0 { 1 } else { 2 + random.below(7) };
    let files: Vec<usize> = (0..count).map(|_| random.below(FILES.len())).collect();
    let (host, patience) = (format!("soak:{}", target.address.port()), TIMEOUT.as_secs().to_string());
    let mut curl = Command::new("curl")
        .args(["--silent", "--show-error", "--no-buffer", "--noproxy", "*", "--cacert", &target.ca])
        .args(["--speed-limit", "1", "--speed-time", &patience, "--connect-timeout", &patience])
        .args(["--write-out", "%{stderr}%{http_code} at port %{local_port}; ", "--fail-early"])
        .args(["--resolve", &format!("{host}:{}", target.address.ip())])
        .args(files.iter().map(|file| format!("https://{host}/{file}")))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut output = Line { stream: curl.stdout.take().unwrap(), waits: Arc::clone(waits) };
    let (mut bytes, mut verdict) = (0, Ok(()));
    for file in files {
        verdict = receive(&mut output, file as u64, FILES[file] as u64).and_then(|verdict| verdict);
        if verdict.is_err() {
            break;
        }
        bytes += FILES[file] as u64;
    }
    // With an open pipe that nobody reads, curl would not end.
    drop(output);
    let result = curl.wait_with_output()?;
    let is_damaged = verdict.as_ref().is_err_and(|error| error.kind() == ErrorKind::InvalidData);
    if !result.status.success() && !is_damaged {
        return Err(curl_fault(result.status.code(), String::from_utf8_lossy(&result.stderr).trim()));
    }
    verdict.map(|()| bytes)
}

fn end_within(child: &mut Child, limit: Duration) -> Outcome<()> {
    let end = Instant::now() + limit;
    while child.try_wait()?.is_none() {
        if Instant::now() > end {
            child.kill()?;
            return Err(Error::new(ErrorKind::TimedOut, "iperf3 does not end"));
        }
        thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// One iperf3, in one direction or the other. It compares nothing; what is counted must agree.
fn iperf3(target: &Target, random: &mut Random, waits: &Waits) -> Outcome<u64> {
    let family = if target.address.is_ipv6() { "-6" } else { "-4" };
    let mut command = Command::new("iperf3");
    command
        .args([
            family,
            "--json",
            "--client",
            &target.address.ip().to_string(),
            "--port",
            &target.address.port().to_string(),
        ])
        .args(["--time", &IPERF_SECONDS.to_string(), "--bitrate", "15M", "--connect-timeout", "60000"]);
    if random.below(2) == 0 {
        command.arg("--reverse");
    }
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let mut output = child.stdout.take().unwrap();
    let reading = thread::spawn(move || {
        let mut text = String::new();
        output.read_to_string(&mut text).map(|_| text)
    });
    end_within(&mut child, Duration::from_secs(IPERF_SECONDS) + TIMEOUT)?;
    let text = reading.join().unwrap()?;
    let report: Value =
        serde_json::from_str(&text).map_err(|error| Error::other(format!("iperf3's report: {error}")))?;
    if let Some(error) = report["error"].as_str() {
        let is_reset = ["reset", "Broken pipe", "closed", "terminated"].iter().any(|word| error.contains(word));
        let kind = match error {
            _ if error.contains("timed out") => ErrorKind::TimedOut,
            _ if is_reset => ErrorKind::ConnectionReset,
            _ => ErrorKind::Other,
        };
        return Err(Error::new(kind, format!("iperf3: {error}")));
    }
    let mut silent = 0.0;
    for interval in report["intervals"].as_array().into_iter().flatten() {
        let sum = &interval["sum"];
        silent = if sum["bytes"] == 0 { silent + sum["seconds"].as_f64().unwrap_or(0.0) } else { 0.0 };
        waits.0.fetch_max((silent * 1e6) as u64, Ordering::Relaxed);
    }
    let bytes = |end: &str| report["end"][end]["bytes"].as_u64().unwrap_or(0);
    let (sent, received) = (bytes("sum_sent"), bytes("sum_received"));
    if received > sent { damaged(format!("{received} bytes came of {sent}")) } else { Ok(received) }
}

#[derive(Clone)]
struct Target {
    workload: String,
    address: SocketAddr,
    ca: String,
}

fn is_stuck(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// A thread's work with one target.
struct Work {
    target: Target,
    prefix: String,
    random: Random,
    known: Known,
    tally: Tally,
    /// The connection's own end, where that is known.
    local: Option<SocketAddr>,
    end: Instant,
}

impl Work {
    fn think(&mut self, most_ms: usize) {
        if self.random.below(4) != 0 {
            thread::sleep(Duration::from_millis(self.random.below(most_ms) as u64));
        }
    }

    fn done(&mut self, bytes: u64) {
        self.tally.operations += 1;
        self.tally.bytes += bytes;
    }

    /// A connection, and what is done on it. What failed comes with the connection, so that it is still open.
    fn connection(&mut self) -> Result<(), (Error, Option<TcpStream>)> {
        self.local = None;
        let waits = Arc::clone(&self.tally.waits);
        match self.target.workload.as_str() {
            "nginx" => {
                let bytes = fetch(&self.target, &mut self.random, &waits).map_err(|error| (error, None))?;
                self.done(bytes);
                self.think(1000);
                return Ok(());
            }
            "iperf3" => {
                let bytes = iperf3(&self.target, &mut self.random, &waits).map_err(|error| (error, None))?;
                self.done(bytes);
                self.think(1000);
                return Ok(());
            }
            _ => (),
        }
        let stream = connect(&self.target, &waits).map_err(|error| (error, None))?;
        self.local = stream.local_addr().ok();
        let kept = stream.try_clone().map_err(|error| (error, None))?;
        let line = Line { stream, waits };
        self.converse(line).map_err(|error| (error, Some(kept)))
    }

    fn converse(&mut self, line: Line<TcpStream>) -> Outcome<()> {
        if matches!(self.target.workload.as_str(), "tcp" | "mptcp" | "tfo") {
            let sizes = [0; 2].map(|_| draw_size(&mut self.random, TRANSFER_BYTES_LOG2) as u64);
            let bytes = transfer(line, sizes[0], sizes[1], self.random.any())?;
            self.done(bytes);
            self.think(1500);
            return Ok(());
        }
        let reader = BufReader::new(line);
        let mut store: Box<dyn Store> = match self.target.workload.as_str() {
            "redis" => Box::new(Redis(reader)),
            "memcached" => Box::new(Memcached(reader)),
            "postgres" => Box::new(Postgres::open(reader)?),
            other => return Err(Error::other(format!("no workload is called {other:?}"))),
        };
        for _ in 0..1 + self.random.below(200) {
            let bytes = use_store(store.as_mut(), &self.prefix, &mut self.known, &mut self.random)?;
            self.done(bytes);
            self.think(200);
            if Instant::now() > self.end {
                break;
            }
        }
        Ok(())
    }

    fn longest(&self) -> Duration {
        Duration::from_micros(self.tally.waits.0.load(Ordering::Relaxed))
    }

    /// Prints something of this connection.
    fn tell(&self, mut line: Value) {
        line["time"] = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64().into();
        line["workload"] = self.target.workload.as_str().into();
        line["server"] = self.target.address.to_string().into();
        line["client"] = self.local.map(|local| local.to_string()).into();
        println!("{line}");
    }

    fn run(mut self) -> Tally {
        while Instant::now() < self.end {
            self.tally.connections += 1;
            let (longest, result) = (self.longest(), self.connection());
            if self.longest() > longest.max(SLOW) {
                self.tell(json!({ "slow_s": self.longest().as_secs_f64() }));
            }
            let Err((error, kept)) = result else { continue };
            let (kind, count) = match error.kind() {
                ErrorKind::InvalidData => ("damaged", &mut self.tally.damaged),
                kind if is_stuck(kind) => ("stuck", &mut self.tally.stuck),
                ErrorKind::ConnectionReset
                | ErrorKind::ConnectionAborted
                | ErrorKind::BrokenPipe
                | ErrorKind::UnexpectedEof => ("reset", &mut self.tally.reset),
                _ => ("refused", &mut self.tally.refused),
            };
            *count += 1;
            self.tell(json!({ "fault": kind, "text": error.to_string() }));
            if kind == "stuck" {
                thread::sleep(EXHIBIT);
            }
            drop(kept);
            self.think(1000);
        }
        self.tally
    }
}

fn ask(seconds: u64, seed: u64, ca: &str, targets: &[String]) -> Outcome<()> {
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut threads = Vec::new();
    for (number, text) in targets.iter().enumerate() {
        let (workload, address) =
            text.split_once('@').ok_or_else(|| Error::other(format!("{text:?} is not WORKLOAD@ADDRESS:PORT")))?;
        let address = address.parse().map_err(|error| Error::other(format!("{address:?}: {error}")))?;
        let target = Target { workload: workload.to_owned(), address, ca: ca.to_owned() };
        let work = Work {
            target: target.clone(),
            prefix: format!("{seed}-{number}"),
            random: Random::new(seed << 32 | number as u64),
            known: Known::new(),
            tally: Tally::default(),
            local: None,
            end,
        };
        threads.push((target, thread::spawn(|| work.run())));
    }
    for (target, thread) in threads {
        let tally = thread.join().map_err(|_| Error::other("a connection panicked"))?;
        println!(
            "{}",
            json!({
                "workload": target.workload, "server": target.address.to_string(), "operations": tally.operations,
                "bytes": tally.bytes, "connections": tally.connections, "damaged": tally.damaged, "reset": tally.reset,
                "refused": tally.refused, "stuck": tally.stuck,
                "longest_wait_s": tally.waits.0.load(Ordering::Relaxed) as f64 / 1e6,
            })
        );
    }
    Ok(())
}

fn write_files(directory: &Path) -> Outcome<()> {
    for (number, bytes) in FILES.iter().enumerate() {
        std::fs::write(directory.join(number.to_string()), value(number as u64, *bytes))?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["files", directory] => write_files(Path::new(directory))?,
        ["serve", port] => serve(port.parse()?)?,
        ["ask", seconds, seed, ca, _, ..] => ask(seconds.parse()?, seed.parse()?, ca, &arguments[4..])?,
        _ => return Err("soak_load files DIRECTORY | serve PORT | ask SECONDS SEED CA WORKLOAD@ADDRESS:PORT...".into()),
    }
    Ok(())
}
