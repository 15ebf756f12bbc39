//! The web application of three tiers: the part of the web front that calls the stores, and the users.
//!
//! nginx runs in front of it on the same VM and takes the users' connections. It fetches the objects of pages from the
//! file store by itself.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;
use evenkeel_scenario::random::Random;

use crate::guest::http::Http;
use crate::guest::postgres::Postgres;
use crate::guest::recording::Recording;
use crate::guest::socket;
use crate::proto::{OBJECT_PATH, SocketSettings, WebCall, WebOperation, WebStore};

/// Path of an operation; its number follows.
const OPERATION: &str = "/operation/";
/// Longest value in the cache and the database: filling them fails if a call asks for more.
const MAX_VALUE_BYTES: usize = 16 << 20;

/// How long the database may take to start.
const START_LIMIT: Duration = Duration::from_secs(60);

/// Where the stores are.
#[derive(Debug, Clone, Copy)]
pub struct Stores {
    /// PostgreSQL.
    pub database: SocketAddr,
    /// memcached.
    pub cache: SocketAddr,
    /// nginx with files.
    pub files: SocketAddr,
}

/// What a page is made with.
#[derive(Debug)]
struct Application {
    stores: Stores,
    keep_alive: bool,
    operations: Vec<WebOperation>,
}

/// Open connections to the stores.
#[derive(Debug, Default)]
struct Connections {
    database: Option<Postgres>,
    cache: Option<TcpStream>,
    files: Option<Http>,
}

/// Fills the stores, and answers nginx's requests at `at`; each connection has a thread.
pub fn serve(
    recording: &Arc<Recording>,
    at: SocketAddr,
    stores: Stores,
    keep_alive: bool,
    operations: Vec<WebOperation>,
) -> anyhow::Result<(SocketAddr, JoinHandle<()>)> {
    let application = Arc::new(Application { stores, keep_alive, operations });
    application.fill().context("filling the stores")?;
    let listener = TcpListener::bind(at).with_context(|| format!("cannot listen on {at}"))?;
    let address = listener.local_addr().context("no local address")?;
    recording.add_listener(listener.try_clone().context("cannot duplicate the listening socket")?);
    let thread = recording.spawn("web", move |recording| {
        let mut threads: Vec<JoinHandle<()>> = Vec::new();
        loop {
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(_) if recording.stopping() => break,
                Err(_) => continue,
            };
            threads.retain(|thread| !thread.is_finished());
            let application = Arc::clone(&application);
            threads.push(recording.spawn("page", move |recording| {
                let answered = application.answer(stream);
                // A page that the workload's end cuts off is no error.
                if recording.stopping() { Ok(()) } else { answered }
            })?);
        }
        for thread in threads {
            let _ = thread.join();
        }
        Ok(())
    })?;
    Ok((address, thread))
}

impl Application {
    /// Puts a value of each size that is asked for into the database and the cache. nginx has its files already.
    fn fill(&self) -> anyhow::Result<()> {
        let mut connections = Connections::default();
        // PostgreSQL may still be starting.
        let end = Instant::now() + START_LIMIT;
        while connections.database(self.stores.database).is_err() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(100));
        }
        let database = connections.database(self.stores.database)?;
        database.query("DROP TABLE IF EXISTS content")?;
        database.query("CREATE TABLE content (bytes integer PRIMARY KEY, body text NOT NULL, asked text)")?;
        let calls = || self.operations.iter().flat_map(|operation| &operation.calls);
        for call in calls() {
            let bytes = usize::try_from(call.response_bytes)?;
            anyhow::ensure!(bytes <= MAX_VALUE_BYTES, "a value of {bytes} bytes is too large");
            match call.store {
                WebStore::Database => {
                    let insert = format!(
                        "INSERT INTO content VALUES ({bytes}, repeat('x', {bytes})) ON CONFLICT (bytes) DO NOTHING"
                    );
                    connections.database(self.stores.database)?.query(&insert)?;
                }
                WebStore::Cache => {
                    let cache = connections.cache(self.stores.cache)?;
                    let set = format!("set value-{bytes} 0 0 {bytes}\r\n{}\r\n", "v".repeat(bytes));
                    cache.write_all(set.as_bytes()).context("filling the cache")?;
                    read_exactly(cache, b"STORED\r\n".len())?;
                }
                WebStore::Files => {}
            }
        }
        Ok(())
    }

    fn answer(&self, stream: TcpStream) -> anyhow::Result<()> {
        let mut http = Http::new(stream)?;
        let mut kept = Connections::default();
        while let Some(head) = http.head()? {
            http.skip(head.body_bytes)?;
            let number = head.first.split(' ').nth(1).and_then(|path| path.strip_prefix(OPERATION)?.parse().ok());
            let operation: Option<&WebOperation> = number.and_then(|number: usize| self.operations.get(number));
            let operation = operation.with_context(|| format!("no such operation: {}", head.first))?;
            let mut fresh = Connections::default();
            let connections = if self.keep_alive { &mut kept } else { &mut fresh };
            for call in &operation.calls {
                for _ in 0..call.times {
                    connections.call(&self.stores, call, self.keep_alive)?;
                }
            }
            http.send("HTTP/1.1 200 OK\r\n", operation.response_bytes)?;
            if head.closes {
                break;
            }
        }
        Ok(())
    }
}

impl Connections {
    fn database(&mut self, at: SocketAddr) -> anyhow::Result<&mut Postgres> {
        match &mut self.database {
            Some(database) => Ok(database),
            none => Ok(none.insert(Postgres::connect(at)?)),
        }
    }

    fn cache(&mut self, at: SocketAddr) -> anyhow::Result<&mut TcpStream> {
        match &mut self.cache {
            Some(cache) => Ok(cache),
            none => {
                let stream = socket::connect(at, SocketSettings::default())?;
                stream.set_nodelay(true).context("TCP_NODELAY")?;
                stream.set_read_timeout(Some(Duration::from_secs(60))).context("SO_RCVTIMEO")?;
                Ok(none.insert(stream))
            }
        }
    }

    fn call(&mut self, stores: &Stores, call: &WebCall, keep_alive: bool) -> anyhow::Result<()> {
        let (asked, bytes) = (call.request_bytes, call.response_bytes);
        match call.store {
            // A comment fills the query up to the length asked for.
            WebStore::Database => {
                let query = format!("SELECT body FROM content WHERE bytes = {bytes} --");
                let filler = "q".repeat(usize::try_from(asked)?.saturating_sub(query.len()));
                let came = self.database(stores.database)?.query(&format!("{query}{filler}"))?;
                anyhow::ensure!(came as u64 >= bytes, "the database gave {came} bytes, {bytes} were asked for");
            }
            WebStore::Cache => {
                let cache = self.cache(stores.cache)?;
                cache.write_all(format!("get value-{bytes}\r\n").as_bytes()).context("asking the cache")?;
                let length = format!("VALUE value-{bytes} 0 {bytes}\r\n").len() as u64 + bytes + 7;
                let answer = read_exactly(cache, usize::try_from(length)?)?;
                anyhow::ensure!(answer.starts_with(b"VALUE ") && answer.ends_with(b"END\r\n"), "a miss in the cache");
            }
            // A request that is larger than its answer is an upload.
            WebStore::Files => {
                let files = match self.files.take() {
                    Some(files) => files,
                    None => Http::connect(stores.files)?,
                };
                let files = self.files.insert(files);
                if asked > bytes {
                    files.request("PUT", "/upload", asked, keep_alive)?;
                } else {
                    files.request("GET", &format!("{OBJECT_PATH}{bytes}"), 0, keep_alive)?;
                }
                if !keep_alive {
                    self.files = None;
                }
            }
        }
        Ok(())
    }
}

fn read_exactly(stream: &mut TcpStream, bytes: usize) -> anyhow::Result<Vec<u8>> {
    let mut answer = vec![0; bytes];
    stream.read_exact(&mut answer).context("reading the cache's answer")?;
    Ok(answer)
}

/// What users do.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The web front.
    pub server: SocketAddr,
    /// How many of them.
    pub users: u32,
    /// Mean time between a response and the next request.
    pub think_time: Duration,
    /// Whether they use their connections again.
    pub keep_alive: bool,
    /// What they choose from.
    pub operations: Vec<WebOperation>,
    /// Seed of the random draws.
    pub seed: u64,
}

/// Starts the users, each in a thread.
pub fn start(recording: &Arc<Recording>, plan: &Plan) -> anyhow::Result<Vec<JoinHandle<()>>> {
    let user = |number: u32| {
        let plan = Plan { seed: plan.seed.wrapping_add(u64::from(number)), ..plan.clone() };
        recording.spawn("user", move |recording| {
            let used = plan.use_it(recording);
            if recording.stopping() { Ok(()) } else { used }
        })
    };
    (0..plan.users).map(user).collect()
}

impl Plan {
    fn use_it(&self, recording: &Recording) -> anyhow::Result<()> {
        let mut random = Random::new(self.seed, 0);
        let weights: usize = self.operations.iter().map(|operation| operation.weight as usize).sum();
        let mut kept = None;
        loop {
            let drawn = random.below(weights);
            let mut sum = 0;
            let number = self.operations.iter().position(|operation| {
                sum += operation.weight as usize;
                drawn < sum
            });
            let number = number.context("there is nothing to do")?;
            let think = Duration::from_secs_f64(random.exponential(self.think_time.as_secs_f64()));
            if recording.sleep_until(Instant::now() + think) {
                return Ok(());
            }
            let operation = &self.operations[number];
            let bytes = operation.response_bytes + u64::from(operation.objects) * operation.object_bytes;
            let request = recording.request(self.server, bytes, Instant::now());
            self.perform(number, operation, &mut kept)?;
            recording.request_done(request, Instant::now());
        }
    }

    fn perform(&self, number: usize, operation: &WebOperation, kept: &mut Option<Http>) -> anyhow::Result<()> {
        let mut ask = |method: &str, path: &str, body_bytes: u64| {
            let mut http = match kept.take() {
                Some(http) => http,
                None => Http::connect(self.server)?,
            };
            let answer = http.request(method, path, body_bytes, self.keep_alive)?;
            *kept = (self.keep_alive && !answer.closes).then_some(http);
            Ok::<_, anyhow::Error>(answer.body_bytes)
        };
        let came = ask("POST", &format!("{OPERATION}{number}"), operation.request_bytes)?;
        anyhow::ensure!(came == operation.response_bytes, "a page of {came} bytes");
        for _ in 0..operation.objects {
            let came = ask("GET", &format!("{OBJECT_PATH}{}", operation.object_bytes), 0)?;
            anyhow::ensure!(came == operation.object_bytes, "an object of {came} bytes");
        }
        Ok(())
    }
}
