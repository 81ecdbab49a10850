//! Connection to the helper, made again where it broke.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

use orinoco_core::{Diagnosis, Nanos, codes};
use orinoco_helper::{Client, ClientError, PowerState, RefusalReason, Request, SOCKET};

/// Time between two attempts to reach the helper.
const RECONNECT_EVERY: Duration = Duration::from_secs(10);
/// Time between two questions for its state: it drops a client that is silent for 30 s, and somebody else may change settings.
const ASK_EVERY: Duration = Duration::from_secs(5);

const _: () = assert!(ASK_EVERY.as_secs() * 3 < orinoco_helper::SILENCE_MAX.as_secs());

/// Failure of a question or a request to the helper.
#[derive(Debug)]
pub(super) enum HelperError {
    /// There is no connection (`E0921`).
    NotConnected,
    /// The helper refuses the step, and stays connected (`E0922`).
    Refused {
        /// The request for the step.
        request: Request,
        /// The helper's reason.
        why: String,
    },
    /// The connection could not be made, or was given up (`E0921`).
    Lost(ClientError),
}

/// Connection to the helper, or the reason why there is none.
pub(super) struct Helper {
    socket: PathBuf,
    client: Option<Client>,
    /// Time of the next attempt, or of the next question.
    due: Nanos,
}

impl Helper {
    pub(super) fn new(socket: Option<PathBuf>) -> Self {
        Self { socket: socket.unwrap_or_else(|| SOCKET.into()), client: None, due: Nanos(0) }
    }

    /// Asks for the state, if that is due; connects first, if there is no connection. Returns `None` if nothing was due.
    pub(super) fn poll(&mut self, now: Nanos) -> Option<Result<PowerState, HelperError>> {
        if now < self.due {
            return None;
        }
        let asked = match &mut self.client {
            Some(client) => client.ask(&Request::Status {}),
            None => Client::connect(&self.socket).map(|(client, state)| {
                self.client = Some(client);
                state
            }),
        };
        self.due = now + if asked.is_ok() { ASK_EVERY } else { RECONNECT_EVERY };
        Some(asked.map_err(|why| self.lost(why)))
    }

    /// Sends a request, and returns the state after it. The error is a fault of the step, or of the connection.
    pub(super) fn ask(&mut self, now: Nanos, request: &Request) -> Result<PowerState, HelperError> {
        let client = self.client.as_mut().ok_or(HelperError::NotConnected)?;
        match client.ask(request) {
            Err(ClientError::Refused(refusal)) => {
                Err(HelperError::Refused { request: request.clone(), why: refusal.text })
            }
            Err(why) => {
                self.due = now + RECONNECT_EVERY;
                Err(self.lost(why))
            }
            Ok(state) => Ok(state),
        }
    }

    pub(super) fn is_connected(&self) -> bool {
        self.client.is_some()
    }

    /// Drops the connection.
    fn lost(&mut self, why: ClientError) -> HelperError {
        self.client = None;
        HelperError::Lost(why)
    }

    /// Returns the fault that a user sees.
    pub(super) fn diagnosis(&self, error: &HelperError) -> Diagnosis {
        match error {
            HelperError::NotConnected => {
                let next = "it tries again every 10 s; see `journalctl -u orinoco-helper`";
                self.fault("the daemon is not connected to the helper", next)
            }
            HelperError::Refused { request, why } => {
                let next = "see `journalctl -u orinoco-helper`";
                Diagnosis::new(&codes::GOVERNOR_STEP, step_of(request), why, next)
            }
            HelperError::Lost(why) => self.loss(why),
        }
    }

    fn loss(&self, why: &ClientError) -> Diagnosis {
        let start = "run `sudo systemctl enable --now orinoco-helper.socket`";
        match why {
            ClientError::Connect(source) if source.kind() == ErrorKind::NotFound => {
                self.fault("the helper's socket does not exist", start)
            }
            ClientError::Connect(source) if source.kind() == ErrorKind::PermissionDenied => {
                let next = "run the daemon as the user orinoco, to whom the socket belongs";
                self.fault("this user may not use the helper's socket", next)
            }
            ClientError::Connect(source) => {
                self.fault(&format!("the helper cannot be reached: {source}"), start)
            }
            ClientError::Broken(source) => {
                self.fault(&format!("the connection broke: {source}"), "see `journalctl -u orinoco-helper`")
            }
            ClientError::Answer => {
                self.fault(&why.to_string(), "install the helper that came with this daemon")
            }
            ClientError::Refused(refusal) if refusal.reason == RefusalReason::Busy => {
                self.fault(&why.to_string(), "stop the other daemon that governs this board")
            }
            ClientError::Refused(_) => {
                let next = "run the daemon as the user orinoco, or start orinoco-helper with --user set to the \
                            daemon's user";
                self.fault(&why.to_string(), next)
            }
        }
    }

    fn fault(&self, cause: &str, next: &str) -> Diagnosis {
        Diagnosis::new(&codes::GOVERNOR_HELPER, self.socket.display(), cause, next)
    }
}

fn step_of(request: &Request) -> String {
    match request {
        Request::SetPowerMode { name } => format!("power mode {name}"),
        Request::SetClock { domain, hertz } => format!("{domain} at {} MHz", hertz / 1_000_000),
        Request::Status {} | Request::Restore {} => "power settings".to_owned(),
    }
}
