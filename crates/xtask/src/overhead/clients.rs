//! Clients of the control socket: scrapes of the metrics over TCP on a connection that stays, as Prometheus does, and status requests on
//! the Unix socket, each on a connection of its own, as `orinoco top` does.

#![expect(clippy::disallowed_methods, reason = "clients ask by real time")]

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::daemon::Addresses;

/// Time between two scrapes: 60 in a second.
const SCRAPE_EVERY: Duration = Duration::from_nanos(1_000_000_000 / 60);
/// Number of clients that ask for the status.
const STATUS_CLIENTS: usize = 20;
/// Time between two requests of one of them: five times as often as `orinoco top` asks.
const STATUS_EVERY: Duration = Duration::from_millis(200);

/// Clients that run until the daemon ends.
pub(super) struct Clients {
    flags: Arc<Flags>,
    scraper: Option<JoinHandle<Answers>>,
    statuses: Vec<JoinHandle<Answers>>,
}

/// Flags that clients look at before each request.
#[derive(Debug, Default)]
struct Flags {
    is_over: AtomicBool,
    /// Whether the daemon is stopped; then they ask nothing.
    is_paused: AtomicBool,
}

/// Answers that clients got.
#[derive(Clone, Copy, Debug, Default)]
struct Answers {
    good: u64,
    bad: u64,
}

/// Answers of all clients.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ClientCounts {
    scrapes: Answers,
    statuses: Answers,
}

impl fmt::Display for ClientCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} scrapes, {} statuses", self.scrapes.good, self.statuses.good)
    }
}

impl Clients {
    /// Starts the clients; none where the daemon has no control socket.
    pub(super) fn start(addresses: Option<Addresses>) -> Self {
        let flags = Arc::<Flags>::default();
        let Some(Addresses { socket, tcp }) = addresses else {
            return Self { flags, scraper: None, statuses: Vec::new() };
        };
        let shared = Arc::clone(&flags);
        let scraper = thread::spawn(move || {
            let mut scraper = Scraper { address: tcp, connection: None };
            repeat(SCRAPE_EVERY, &shared, || scraper.scrape())
        });
        let status = |_| {
            let (socket, shared) = (socket.clone(), Arc::clone(&flags));
            thread::spawn(move || {
                repeat(STATUS_EVERY, &shared, || {
                    ask(UnixStream::connect(&socket)?, "localhost", "/v1/status")
                })
            })
        };
        Self { statuses: (0..STATUS_CLIENTS).map(status).collect(), scraper: Some(scraper), flags }
    }

    /// Lets the clients ask nothing until [`Clients::resume`]. Their turns go on, so that the rate in between is the same.
    pub(super) fn pause(&self) {
        self.flags.is_paused.store(true, Ordering::Release);
    }

    pub(super) fn resume(&self) {
        self.flags.is_paused.store(false, Ordering::Release);
    }

    /// Ends the clients, after the daemon. Fails if a running daemon answered one of them badly, or none of a kind.
    pub(super) fn finish(self) -> Result<ClientCounts> {
        self.flags.is_over.store(true, Ordering::Release);
        let answers = |thread: JoinHandle<Answers>| thread.join().expect("clients do not panic");
        let add = |sum: Answers, of: Answers| Answers { good: sum.good + of.good, bad: sum.bad + of.bad };
        let has_clients = self.scraper.is_some();
        let scrapes = self.scraper.map_or_else(Answers::default, answers);
        let statuses = self.statuses.into_iter().map(answers).fold(Answers::default(), add);
        let bad = scrapes.bad + statuses.bad;
        ensure!(bad == 0, "{bad} requests of clients were not answered with 200");
        let is_answered = scrapes.good > 0 && statuses.good > 0;
        ensure!(
            is_answered || !has_clients,
            "{} scrapes and {} statuses were answered",
            scrapes.good,
            statuses.good
        );
        Ok(ClientCounts { scrapes, statuses })
    }
}

/// Repeats a request until the daemon or the measurement has ended.
fn repeat(every: Duration, flags: &Flags, mut request: impl FnMut() -> io::Result<bool>) -> Answers {
    // Clients of a board run elsewhere. Here they share its cores, and must at least not take them from its lanes.
    let _ = rustix::process::nice(19);
    let (mut answers, mut refused, mut next) = (Answers::default(), 0, Instant::now());
    while !flags.is_over.load(Ordering::Acquire) {
        if !flags.is_paused.load(Ordering::Acquire) {
            match request() {
                Ok(true) => {
                    answers.good += 1;
                    answers.bad += std::mem::take(&mut refused);
                }
                // A daemon that ends refuses requests, too: these only count if it answers again.
                Ok(false) => refused += 1,
                // The daemon has ended.
                Err(_) => return answers,
            }
        }
        // A client that is behind does not catch up.
        next = (next + every).max(Instant::now());
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    answers
}

/// Client that scrapes the metrics as Prometheus does.
struct Scraper {
    address: String,
    /// Connection of the scrapes before.
    connection: Option<BufReader<TcpStream>>,
}

impl Scraper {
    /// Requests the metrics, and returns whether they were answered with 200. If the daemon has closed the connection of the scrapes
    /// before, on another one.
    fn scrape(&mut self) -> io::Result<bool> {
        if let Some(connection) = self.connection.take()
            && let Ok(is_good) = self.scrape_on(connection)
        {
            return Ok(is_good);
        }
        self.scrape_on(BufReader::new(TcpStream::connect(&self.address)?))
    }

    fn scrape_on(&mut self, mut connection: BufReader<TcpStream>) -> io::Result<bool> {
        let request = format!("GET /metrics HTTP/1.1\r\nHost: {}\r\n\r\n", self.address);
        connection.get_mut().write_all(request.as_bytes())?;
        let (mut head, mut length) = (String::new(), None);
        while !head.ends_with("\r\n\r\n") {
            let line = head.len();
            if connection.read_line(&mut head)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if let Some(value) = head[line..].strip_prefix("content-length: ") {
                length = value.trim_end().parse::<usize>().ok();
            }
        }
        let mut body = vec![0; length.ok_or(io::ErrorKind::InvalidData)?];
        connection.read_exact(&mut body)?;
        self.connection = Some(connection);
        Ok(head.starts_with("HTTP/1.1 200 "))
    }
}

/// Requests a path of `host`, and returns whether it was answered with 200. An answer that the end of the daemon cut off is an error.
fn ask(mut stream: impl Read + Write, host: &str, path: &str) -> io::Result<bool> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    if answer.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(answer.starts_with(b"HTTP/1.1 200 "))
}
