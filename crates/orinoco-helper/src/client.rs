//! The daemon's side of the socket.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use orinoco_api::helper::{Answer, PowerState, Refusal, Request};

use crate::protocol::{ANSWER_BYTES_MAX, PROTOCOL_VERSION, line_of};

/// Longest time of an answer: `nvpmodel` may take seconds.
const ANSWER_MAX: Duration = Duration::from_secs(12);

/// Connection to the helper. When it is dropped, the helper restores what it has changed.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
}

/// The helper cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// It cannot be reached.
    #[error("the helper cannot be reached")]
    Connect(#[source] io::Error),
    /// The connection broke.
    #[error("the connection to the helper broke")]
    Broken(#[source] io::Error),
    /// It answers something that this program does not understand.
    #[error("the helper is from another version of Orinoco")]
    Answer,
    /// It refuses.
    #[error("the helper refuses: {}", .0.text)]
    Refused(Refusal),
}

impl Client {
    /// Connects, and asks what is set and what can be set.
    ///
    /// # Errors
    /// The helper cannot be reached, is of another version, or refuses this user.
    pub fn connect(socket: &Path) -> Result<(Self, PowerState), ClientError> {
        let stream = UnixStream::connect(socket).map_err(ClientError::Connect)?;
        stream.set_read_timeout(Some(ANSWER_MAX)).map_err(ClientError::Connect)?;
        stream.set_write_timeout(Some(ANSWER_MAX)).map_err(ClientError::Connect)?;
        let mut client = Self { stream: BufReader::new(stream) };
        let state = client.ask(&Request::Status {})?;
        if state.version != PROTOCOL_VERSION {
            return Err(ClientError::Answer);
        }
        Ok((client, state))
    }

    /// Sends a request, and returns the state after it.
    ///
    /// # Errors
    /// The helper refuses, which leaves the connection usable, or the connection broke.
    pub fn ask(&mut self, request: &Request) -> Result<PowerState, ClientError> {
        // A helper that refuses a client sends its answer at once and closes: what it said is worth more than the broken pipe.
        let sent = self.stream.get_mut().write_all(&line_of(request));
        let answer = self.answer();
        match (sent, answer) {
            (Err(why), Err(ClientError::Broken(_) | ClientError::Answer)) => Err(ClientError::Broken(why)),
            (_, answer) => answer,
        }
    }

    fn answer(&mut self) -> Result<PowerState, ClientError> {
        let mut line = Vec::new();
        let mut bounded = (&mut self.stream).take(ANSWER_BYTES_MAX as u64);
        bounded.read_until(b'\n', &mut line).map_err(ClientError::Broken)?;
        if line.is_empty() {
            return Err(ClientError::Broken(io::ErrorKind::UnexpectedEof.into()));
        }
        match serde_json::from_slice(&line).map_err(|_| ClientError::Answer)? {
            Answer::Done(state) => Ok(state),
            Answer::Refused(refusal) => Err(ClientError::Refused(refusal)),
        }
    }
}
