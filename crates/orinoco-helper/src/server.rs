//! The loop of the program: who may ask, one client at a time, and when it restores.

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use orinoco_api::helper::{Answer, RefusalReason};
use orinoco_sysroot::Sysroot;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv, sockopt};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use crate::power_settings::PowerSettings;
use crate::protocol::{ANSWER_BYTES_MAX, REQUEST_BYTES_MAX, line_of, refusal};

/// Time after which a client that sends nothing is dropped, and after which a helper without a client ends. The daemon asks for the
/// status every few seconds: one that hangs must not keep its settings.
pub const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Longest time for which an answer waits for its reader.
const WRITE_MAX: Duration = Duration::from_secs(1);

/// Users that may ask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peers {
    /// User of the daemon, in addition to root.
    daemon: Option<u32>,
}

/// Program that serves one socket.
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
    peers: Peers,
    settings: PowerSettings,
    timer: OwnedFd,
    silence_max: Duration,
    client: Option<Connection>,
}

/// Client that is connected.
#[derive(Debug)]
struct Connection {
    stream: UnixStream,
    /// Start of a request whose end has not come.
    partial: Vec<u8>,
}

/// The socket cannot be served.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct ServerError {
    what: &'static str,
    source: io::Error,
}

/// End of a connection: nothing more is read from it.
struct Gone;

impl Peers {
    /// Allows a user of the board, and root. A name that the board does not know allows root only.
    pub fn of_user(sysroot: &Sysroot, name: &str) -> Self {
        let users = sysroot.text("/etc/passwd").unwrap_or_default();
        let user = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let mut user = user.filter(|fields| fields[0] == name);
        Self { daemon: user.next().and_then(|fields| fields.get(2)?.parse().ok()) }
    }

    fn allow(self, uid: u32) -> bool {
        uid == 0 || self.daemon == Some(uid)
    }
}

impl Server {
    /// Creates the server of a socket that listens.
    ///
    /// # Errors
    /// The socket is none that listens, or the kernel refuses a timer.
    pub fn new(
        listener: UnixListener,
        settings: PowerSettings,
        peers: Peers,
        silence_max: Duration,
    ) -> Result<Self, ServerError> {
        let prepare = || {
            if !sockopt::socket_acceptconn(&listener)? {
                return Err(io::Error::other("it is not a listening socket"));
            }
            listener.set_nonblocking(true)?;
            Ok(timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?)
        };
        let timer = prepare().map_err(failed("using the socket from systemd"))?;
        Ok(Self { listener, peers, settings, timer, silence_max, client: None })
    }

    /// Restores what a killed helper left, and serves clients until none has been there for a while. `log` gets what is worth
    /// a line.
    ///
    /// # Errors
    /// The kernel refuses to wait for clients.
    pub fn run(&mut self, log: &mut dyn FnMut(&str)) -> Result<(), ServerError> {
        self.restore("an earlier helper was killed", log);
        self.wind().map_err(failed("setting the timer"))?;
        loop {
            let (is_asked, is_called) = self.wait().map_err(failed("waiting for clients"))?;
            if is_asked && let Err(Gone) = self.serve(log) {
                self.drop_client("the client disconnected", log);
            }
            if self.is_silent() {
                let is_idle = self.client.is_none() && !self.settings.state().is_changed;
                if is_idle {
                    return Ok(());
                }
                let seconds = self.silence_max.as_secs();
                self.drop_client(&format!("the client sent nothing for {seconds} s"), log);
            }
            if is_called {
                self.accept(log);
            }
        }
    }

    /// Waits for the client, a new one, or the timer. Returns whether the client and a new one can be read.
    fn wait(&self) -> io::Result<(bool, bool)> {
        let mut waited =
            vec![PollFd::new(&self.timer, PollFlags::IN), PollFd::new(&self.listener, PollFlags::IN)];
        if let Some(client) = &self.client {
            waited.push(PollFd::new(&client.stream, PollFlags::IN));
        }
        match poll(&mut waited, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(why) => return Err(why.into()),
        }
        let is_ready = |index: usize| waited.get(index).is_some_and(|fd| !fd.revents().is_empty());
        Ok((is_ready(2), is_ready(1)))
    }

    /// Starts the time of silence again.
    fn wind(&self) -> io::Result<()> {
        let silence = Timespec {
            tv_sec: self.silence_max.as_secs() as i64,
            tv_nsec: i64::from(self.silence_max.subsec_nanos()),
        };
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let once = Itimerspec { it_interval: zero, it_value: silence };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)?;
        Ok(())
    }

    /// Whether the time of silence has passed since it was started.
    fn is_silent(&self) -> bool {
        rustix::io::read(&self.timer, &mut [0; 8]).is_ok()
    }

    fn accept(&mut self, log: &mut dyn FnMut(&str)) {
        // A client that has closed its connection already needs no answer.
        let Ok((stream, _)) = self.listener.accept() else { return };
        let Ok(peer) = sockopt::socket_peercred(&stream) else { return };
        let _ = stream.set_write_timeout(Some(WRITE_MAX));
        let (uid, pid) = (peer.uid.as_raw(), peer.pid.as_raw_nonzero());
        let refusal = match &self.client {
            _ if !self.peers.allow(uid) => {
                Some(refusal(RefusalReason::NotAllowed, "only the daemon's user and root may connect"))
            }
            Some(_) => Some(refusal(RefusalReason::Busy, "another client is connected")),
            None => None,
        };
        if let Some(refusal) = refusal {
            log(&format!("refused process {pid} of user {uid}: {}", refusal.text));
            let _ = (&stream).write_all(&line_of(&Answer::Refused(refusal)));
            return;
        }
        log(&format!("client: process {pid} of user {uid}"));
        self.client = Some(Connection { stream, partial: Vec::new() });
        // A timer that cannot be set again still ends the silence that it was set for.
        let _ = self.wind();
    }

    /// Reads what the client has sent, and answers each whole request.
    fn serve(&mut self, log: &mut dyn FnMut(&str)) -> Result<(), Gone> {
        let Some(Connection { stream, mut partial }) = self.client.take() else { return Ok(()) };
        let mut chunk = [0; REQUEST_BYTES_MAX];
        let read = match recv(&stream, &mut chunk, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return Err(Gone),
            Ok((_, read)) => read,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(_) => return Err(Gone),
        };
        partial.extend_from_slice(&chunk[..read]);
        while let Some(end) = partial.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = partial.drain(..=end).collect();
            self.reply(&stream, &line[..end], log)?;
        }
        if partial.len() >= REQUEST_BYTES_MAX {
            let text = format!("a request has at most {REQUEST_BYTES_MAX} bytes");
            let refusal = refusal(RefusalReason::NotARequest, text);
            let _ = (&stream).write_all(&line_of(&Answer::Refused(refusal)));
            return Err(Gone);
        }
        self.client = Some(Connection { stream, partial });
        Ok(())
    }

    fn reply(&mut self, stream: &UnixStream, line: &[u8], log: &mut dyn FnMut(&str)) -> Result<(), Gone> {
        let before = self.settings.state();
        let answer = self.settings.answer(line);
        match &answer {
            Answer::Done(state) if *state != before => log(&format!("done: {}", shown(line))),
            Answer::Done(_) => {}
            Answer::Refused(refusal) => log(&format!("refused: {}: {}", shown(line), refusal.text)),
        }
        let bytes = line_of(&answer);
        debug_assert!(bytes.len() <= ANSWER_BYTES_MAX, "{} bytes in an answer", bytes.len());
        let _ = self.wind();
        let mut stream = stream;
        stream.write_all(&bytes).map_err(|_| Gone)
    }

    /// Drops the client, if there is one, and restores the settings.
    fn drop_client(&mut self, why: &str, log: &mut dyn FnMut(&str)) {
        self.client = None;
        self.restore(why, log);
        let _ = self.wind();
    }

    fn restore(&mut self, why: &str, log: &mut dyn FnMut(&str)) {
        if !self.settings.state().is_changed {
            return;
        }
        match self.settings.restore() {
            Ok(()) => log(&format!("restored the power settings: {why}")),
            Err(error) => log(&error.to_string()),
        }
    }
}

/// Returns the start of a request for the log, without control characters.
fn shown(line: &[u8]) -> String {
    String::from_utf8_lossy(line).chars().take(120).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> ServerError {
    move |source| ServerError { what, source }
}
