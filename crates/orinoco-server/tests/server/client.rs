//! Plain HTTP client over a socket, which shows exactly what the server sent.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use serde_json::Value;

/// Maximum time for which a test waits for the server: much longer than any wait of the server in the tests.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(60);

/// Connection to the server.
pub(crate) struct Client {
    write: Box<dyn Write>,
    read: BufReader<Box<dyn Read>>,
    socket: OwnedFd,
}

/// Answer to one request.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Headers by their names in lower case.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|why| panic!("{why}: {}", self.body))
    }

    /// Returns the cause of the first fault.
    pub(crate) fn cause(&self) -> String {
        self.json()["faults"][0]["cause"].as_str().unwrap_or_default().to_owned()
    }
}

impl Client {
    pub(crate) fn unix(path: &Path) -> Self {
        let stream = UnixStream::connect(path).expect("the socket answers");
        stream.set_read_timeout(Some(WAIT_MAX)).expect("a time-out");
        let read: Box<dyn Read> = Box::new(stream.try_clone().expect("a second handle"));
        let socket = stream.try_clone().expect("a third handle").into();
        Self { write: Box::new(stream), read: BufReader::new(read), socket }
    }

    pub(crate) fn tcp(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the listener answers");
        stream.set_read_timeout(Some(WAIT_MAX)).expect("a time-out");
        let read: Box<dyn Read> = Box::new(stream.try_clone().expect("a second handle"));
        let socket = stream.try_clone().expect("a third handle").into();
        Self { write: Box::new(stream), read: BufReader::new(read), socket }
    }

    /// Sends bytes as they are. The server may have closed the connection, which the answer shows.
    pub(crate) fn send(&mut self, text: &str) {
        let _ = self.write.write_all(text.as_bytes());
    }

    /// Waits until the server has closed the connection, without reading what it sent before.
    pub(crate) fn wait_until_closed(&self) {
        let mut sockets = [PollFd::new(&self.socket, PollFlags::empty())];
        let wait_max = Timespec { tv_sec: WAIT_MAX.as_secs() as i64, tv_nsec: 0 };
        retry_on_intr(|| poll(&mut sockets, Some(&wait_max))).expect("it can be polled");
        assert!(sockets[0].revents().contains(PollFlags::HUP), "the server has not closed the connection");
    }

    /// Sends a request with the headers in `headers`, each with its line end.
    pub(crate) fn request(&mut self, method: &str, path: &str, headers: &str) -> Answer {
        self.send(&format!("{method} {path} HTTP/1.1\r\n{headers}\r\n"));
        self.answer(method != "HEAD").unwrap_or_else(|why| panic!("{method} {path}: {why}"))
    }

    pub(crate) fn get(&mut self, path: &str) -> Answer {
        self.request("GET", path, "Host: localhost\r\n")
    }

    /// Reads an answer with its body, or its head alone.
    pub(crate) fn answer(&mut self, has_body: bool) -> io::Result<Answer> {
        let (status, headers) = self.head()?;
        let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        let mut body = vec![0; if has_body { length } else { 0 }];
        self.read.read_exact(&mut body)?;
        Ok(Answer { status, headers, body: String::from_utf8(body).expect("text") })
    }

    /// Reads status and headers.
    pub(crate) fn head(&mut self) -> io::Result<(u16, BTreeMap<String, String>)> {
        let first = self.line()?;
        let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| io::Error::other(format!("not an answer: {first:?}")))?;
        let mut headers = BTreeMap::new();
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(':') else { break };
            headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
        Ok((status, headers))
    }

    /// Reads a line without its end; an error at the end of the connection.
    pub(crate) fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.read.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        line.truncate(line.trim_end_matches(['\r', '\n']).len());
        Ok(line)
    }

    /// Waits until the server has closed the connection. Returns the number of bytes that came before.
    pub(crate) fn wait_for_end(&mut self) -> usize {
        let mut rest = Vec::new();
        match self.read.read_to_end(&mut rest) {
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => panic!("the connection stays open"),
            // A connection that was reset has ended, too.
            _ => rest.len(),
        }
    }
}
