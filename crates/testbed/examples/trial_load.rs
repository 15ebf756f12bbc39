//! Short connections, for bench/host/trial.sh: each carries a size at random one way, and a byte back.
//!
//! trial_load serve ADDRESS:PORT                 takes what comes to its end, and answers a byte; where all that comes
//!                                               is a number and a line feed, so many bytes
//! trial_load send ADDRESS:PORT SECONDS CLIENTS SIZE,SIZE...
//! trial_load fetch ADDRESS:PORT SECONDS CLIENTS SIZE,SIZE...
//!                                               one connection after the other; prints how many there were

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use evenkeel_algo::noise::Random;

const USAGE: &str = "usage: trial_load serve ADDRESS:PORT, or send|fetch ADDRESS:PORT SECONDS CLIENTS SIZE,SIZE...";
/// Between two connections of a client: up to twice as long.
const MEAN_PAUSE_US: u64 = 20_000;
const TIMEOUT: Duration = Duration::from_secs(30);
/// Longer than any number that is asked for.
const REQUEST_BYTES: usize = 16;

#[derive(Clone, Copy)]
enum Way {
    Send,
    Fetch,
}

fn take(mut connection: TcpStream) -> io::Result<()> {
    let (mut head, mut taken) = (Vec::new(), 0);
    let mut chunk = vec![0; 1 << 18];
    loop {
        let bytes = connection.read(&mut chunk)?;
        if bytes == 0 {
            break;
        }
        taken += bytes;
        head.extend(&chunk[..bytes.min(REQUEST_BYTES.saturating_sub(head.len()))]);
    }
    let request = std::str::from_utf8(&head).ok().filter(|_| taken < REQUEST_BYTES);
    let asked = request.and_then(|text| text.strip_suffix('\n')?.parse().ok()).unwrap_or(1);
    connection.write_all(&vec![0; asked])
}

fn serve(at: SocketAddr) -> io::Result<()> {
    for connection in TcpListener::bind(at)?.incoming() {
        let connection = connection?;
        // If it breaks, its client reports that.
        thread::spawn(move || take(connection));
    }
    Ok(())
}

fn exchange(to: SocketAddr, way: Way, bytes: usize) -> io::Result<()> {
    let mut connection = TcpStream::connect_timeout(&to, TIMEOUT)?;
    connection.set_read_timeout(Some(TIMEOUT))?;
    connection.set_write_timeout(Some(TIMEOUT))?;
    let answer = match way {
        Way::Send => {
            connection.write_all(&vec![0; bytes])?;
            1
        }
        Way::Fetch => {
            writeln!(connection, "{bytes}")?;
            bytes
        }
    };
    connection.shutdown(Shutdown::Write)?;
    let got = io::copy(&mut connection, &mut io::sink())?;
    if got == answer as u64 { Ok(()) } else { Err(io::Error::other(format!("{got} bytes of {answer} came"))) }
}

fn client(to: SocketAddr, way: Way, sizes: &[usize], end: Instant, seed: u64) -> io::Result<u64> {
    let mut random = Random::new(seed);
    let mut done = 0;
    while Instant::now() < end {
        thread::sleep(Duration::from_micros(random.any() % (2 * MEAN_PAUSE_US)));
        exchange(to, way, sizes[(random.any() % sizes.len() as u64) as usize])?;
        done += 1;
    }
    Ok(done)
}

fn ask(to: SocketAddr, way: Way, seconds: u64, clients: u64, sizes: &[usize]) -> io::Result<u64> {
    let end = Instant::now() + Duration::from_secs(seconds);
    thread::scope(|scope| {
        let clients: Vec<_> = (0..clients).map(|seed| scope.spawn(move || client(to, way, sizes, end, seed))).collect();
        clients.into_iter().map(|client| client.join().expect("a client does not panic")).sum()
    })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", at] => serve(at.parse()?)?,
        [way @ ("send" | "fetch"), to, seconds, clients, sizes] => {
            let way = if way == "send" { Way::Send } else { Way::Fetch };
            let sizes = sizes.split(',').map(str::parse).collect::<Result<Vec<usize>, _>>()?;
            println!("{}", ask(to.parse()?, way, seconds.parse()?, clients.parse()?, &sizes)?);
        }
        _ => return Err(USAGE.into()),
    }
    Ok(())
}
