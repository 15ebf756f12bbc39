//! Asks a memcached, as memaslap does: some requests under way at any time, each on a connection of its own, nine GETs
//! to a SET, keys of 64 bytes and values of 1024. Prints the latencies of the measured time as JSON, in microseconds.
//!
//! memcached_load ADDRESS:PORT CONNECTIONS WARMUP_SECONDS SECONDS
//!
//! With 0 connections it only fills the memcached.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

const KEYS: u64 = 1000;
const VALUE_BYTES: usize = 1024;
const TIMEOUT: Duration = Duration::from_secs(30);

struct Connection {
    stream: BufReader<TcpStream>,
    value: Vec<u8>,
    random: u64,
}

impl Connection {
    fn new(server: SocketAddr, number: u64) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&server, TIMEOUT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(Self { stream: BufReader::new(stream), value: vec![b'v'; VALUE_BYTES], random: number + 1 })
    }

    /// splitmix64
    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        Ok(line)
    }

    fn set(&mut self, key: u64) -> io::Result<()> {
        let mut request = format!("set {key:064} 0 0 {VALUE_BYTES}\r\n").into_bytes();
        request.extend(&self.value);
        request.extend(b"\r\n");
        self.stream.get_mut().write_all(&request)?;
        match self.line()?.as_str() {
            "STORED\r\n" => Ok(()),
            other => Err(io::Error::other(format!("to a set it says {other:?}"))),
        }
    }

    fn get(&mut self, key: u64) -> io::Result<()> {
        self.stream.get_mut().write_all(format!("get {key:064}\r\n").as_bytes())?;
        let header = self.line()?;
        if !header.starts_with("VALUE ") {
            return Err(io::Error::other(format!("to a get it says {header:?}")));
        }
        let mut rest = [0; VALUE_BYTES + 2 + 5];
        self.stream.read_exact(&mut rest)
    }

    /// The latencies of requests that began in the time asked for.
    fn run(mut self, begin: Instant, end: Instant) -> io::Result<Vec<u32>> {
        let mut latencies = Vec::new();
        loop {
            let sent = Instant::now();
            if sent >= end {
                return Ok(latencies);
            }
            let (key, kind) = (self.draw() % KEYS, self.draw() % 10);
            if kind == 0 { self.set(key) } else { self.get(key) }?;
            if sent >= begin {
                latencies.push(sent.elapsed().as_micros().try_into().unwrap_or(u32::MAX));
            }
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [server, connections, warmup_s, seconds] = arguments.as_slice() else {
        return Err("memcached_load ADDRESS:PORT CONNECTIONS WARMUP_SECONDS SECONDS".into());
    };
    let (server, connections): (SocketAddr, u64) = (server.parse()?, connections.parse()?);
    // Without connections it only sets the values that GETs read.
    if connections == 0 {
        let mut first = Connection::new(server, 0)?;
        for key in 0..KEYS {
            first.set(key)?;
        }
    }
    let begin = Instant::now() + Duration::from_secs_f64(warmup_s.parse()?);
    let end = begin + Duration::from_secs_f64(seconds.parse()?);
    let open: io::Result<Vec<Connection>> = (1..=connections).map(|number| Connection::new(server, number)).collect();
    let threads: Vec<_> = open?.into_iter().map(|one| std::thread::spawn(move || one.run(begin, end))).collect();
    let mut all = Vec::new();
    for thread in threads {
        all.extend(thread.join().map_err(|_| "a connection panicked")??);
    }
    all.sort_unstable();
    let at = |share: f64| all.get(((all.len() as f64 - 1.0) * share) as usize).copied().unwrap_or(0);
    let mean = all.iter().map(|us| f64::from(*us)).sum::<f64>() / (all.len() as f64).max(1.0);
    println!(
        "{{\"requests\": {}, \"mean_us\": {mean:.1}, \"p50_us\": {}, \"p90_us\": {}, \"p99_us\": {}, \"p999_us\": {}, \
         \"max_us\": {}}}",
        all.len(),
        at(0.5),
        at(0.9),
        at(0.99),
        at(0.999),
        at(1.0)
    );
    Ok(())
}
