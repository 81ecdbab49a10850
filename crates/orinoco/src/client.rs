//! Client of the daemon's control socket: HTTP/1.1 over a Unix socket, or over TCP on this machine.
//!
//! One request is one connection, with one time-out over everything. The client neither follows redirects nor looks at proxy
//! settings: the daemon is on this machine.

#![expect(clippy::disallowed_methods, reason = "the time-out of a connection is I/O")]

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::body::Bytes;
use hyper::header::{CONNECTION, HOST};
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use orinoco_api::{ClusterModels, ErrorReport, Fault, STATUS_SCHEMA, Status};
use orinoco_core::text::mebibytes;
use orinoco_core::{Code, Diagnosis, WithSubject, codes};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::{Builder, Runtime};

/// Socket of the daemon under its systemd unit (`RuntimeDirectory=orinoco`).
const SOCKET: &str = "/run/orinoco/orinoco.sock";

/// Environment variable with another path of the socket.
const SOCKET_VARIABLE: &str = "ORINOCO_SOCKET";

/// Time within which an answer is complete. The daemon answers in milliseconds, also while all cores are busy.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Greatest size of an answer: what is larger is no status, and shall not fill the memory.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Port of the daemon's address where a URL has none.
const PORT: u16 = 8002;

/// Daemon to ask.
#[derive(Args, Clone, Debug)]
pub(crate) struct DaemonArgs {
    /// Control socket of the daemon [default: $ORINOCO_SOCKET, else /run/orinoco/orinoco.sock]
    #[arg(long, value_name = "PATH", conflicts_with = "address")]
    pub(crate) socket: Option<PathBuf>,
    /// Address of the daemon instead of its socket, such as http://127.0.0.1:8002
    #[arg(long, value_name = "URL")]
    pub(crate) address: Option<Address>,
}

/// Address at which a daemon listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// Unix socket.
    Socket(PathBuf),
    /// TCP on this machine: host and port as they were given, and the addresses to try.
    Tcp(String, Vec<SocketAddr>),
}

/// Client of one daemon.
#[derive(Debug)]
pub(crate) struct Client {
    address: Address,
    within: Duration,
    runtime: Runtime,
}

impl Address {
    /// Returns the address that the command line names, else that of the environment, else the one of the systemd unit.
    fn from_args(args: &DaemonArgs) -> Self {
        if let Some(address) = &args.address {
            return address.clone();
        }
        let variable = std::env::var_os(SOCKET_VARIABLE).filter(|path| !path.is_empty());
        let socket = args.socket.clone().or_else(|| variable.map(PathBuf::from));
        Self::Socket(socket.unwrap_or_else(|| PathBuf::from(SOCKET)))
    }
}

impl FromStr for Address {
    type Err = String;

    /// Reads an address such as `http://127.0.0.1:8002`.
    fn from_str(text: &str) -> Result<Self, String> {
        const EXPECTED: &str = "expected an address such as http://127.0.0.1:8002";
        let uri: Uri = text.parse().map_err(|_| EXPECTED.to_owned())?;
        let (Some("http"), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(EXPECTED.to_owned());
        };
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() || authority.as_str().contains('@') {
            return Err(format!("{EXPECTED}, without a path"));
        }
        let (host, port) = (authority.host(), authority.port_u16().unwrap_or(PORT));
        let ips: Vec<IpAddr> = match host.trim_matches(['[', ']']).parse::<IpAddr>() {
            Ok(ip) => vec![ip],
            Err(_) if host == "localhost" => vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
            Err(_) => Vec::new(),
        };
        if ips.is_empty() || ips.iter().any(|ip| !ip.is_loopback()) {
            return Err(format!(
                "the daemon listens on its own machine only; for another board, forward its port with `ssh -L \
                 {port}:127.0.0.1:{port} BOARD` and use http://127.0.0.1:{port}"
            ));
        }
        let addresses = ips.into_iter().map(|ip| SocketAddr::new(ip, port)).collect();
        Ok(Self::Tcp(format!("{host}:{port}"), addresses))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(path) => write!(f, "{}", path.display()),
            Self::Tcp(host, _) => write!(f, "http://{host}"),
        }
    }
}

impl Client {
    /// Creates the client of the daemon that the command line names. Nothing is connected yet.
    pub(crate) fn new(args: &DaemonArgs) -> Result<Self, Diagnosis> {
        Self::of(Address::from_args(args), ANSWER_WITHIN)
    }

    fn of(address: Address, within: Duration) -> Result<Self, Diagnosis> {
        let runtime = Builder::new_current_thread().enable_io().enable_time().build().about(
            &codes::ENGINE_RUN,
            "the client of the daemon",
            "check the limit of open files (`ulimit -n`)",
        )?;
        Ok(Self { address, within, runtime })
    }

    /// Returns where the daemon listens.
    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Asks for the status of the board.
    ///
    /// # Errors
    /// Says who does not answer, who answers something else, or what the daemon says itself, and what to do.
    pub(crate) fn status(&self) -> Result<Status, Diagnosis> {
        let (code, body) = self.get("/v1/status")?;
        match code {
            StatusCode::OK => self.parse_status(&body),
            code => Err(self.refusal(code, &body)),
        }
    }

    /// Asks for the models that the other boards of the cluster share.
    ///
    /// # Errors
    /// As [`Client::status`].
    pub(crate) fn cluster_models(&self) -> Result<ClusterModels, Diagnosis> {
        match self.get("/v1/cluster/models")? {
            (StatusCode::OK, body) => serde_json::from_slice(&body).map_err(|why| {
                let next = "use the `orinoco` that was installed with the daemon";
                self.fault(&codes::DAEMON_ANSWER, format!("its list of models cannot be read: {why}"), next)
            }),
            (code, body) => Err(self.refusal(code, &body)),
        }
    }

    /// Asks for a part of a file of another board's model, given by its bytes. The file may end sooner.
    ///
    /// # Errors
    /// As [`Client::status`].
    pub(crate) fn model_data(
        &self,
        seat: &str,
        model: &str,
        file: &str,
        part: Range<u64>,
    ) -> Result<Bytes, Diagnosis> {
        let (offset, length) = (part.start.to_string(), (part.end - part.start).to_string());
        let query = form_urlencoded::Serializer::new(String::new())
            .extend_pairs([("seat", seat), ("model", model), ("file", file)])
            .extend_pairs([("offset", &offset), ("length", &length)])
            .finish();
        match self.get(&format!("/v1/cluster/model-data?{query}"))? {
            (StatusCode::OK, body) => Ok(body),
            (code, body) => Err(self.refusal(code, &body)),
        }
    }

    /// Sends one request, and returns the code and body of the answer.
    fn get(&self, path: &str) -> Result<(StatusCode, Bytes), Diagnosis> {
        let whole = async { tokio::time::timeout(self.within, self.exchange(path)).await };
        match self.runtime.block_on(whole) {
            Ok(answer) => answer,
            Err(_) => Err(self.silent()),
        }
    }

    async fn exchange(&self, path: &str) -> Result<(StatusCode, Bytes), Diagnosis> {
        match &self.address {
            Address::Socket(socket) => {
                let stream = UnixStream::connect(socket).await.map_err(|why| self.not_connected(&why))?;
                self.converse(stream, "localhost", path).await
            }
            Address::Tcp(host, addresses) => {
                let stream = connect_any(addresses).await.map_err(|why| self.not_connected(&why))?;
                self.converse(stream, host, path).await
            }
        }
    }

    async fn converse<S>(&self, stream: S, host: &str, path: &str) -> Result<(StatusCode, Bytes), Diagnosis>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let broken = |why: hyper::Error| self.not_http(&why);
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        // The connection ends with the request: the task is dropped with what it still had to read.
        let connection = tokio::spawn(connection);
        let request = Request::get(path)
            .header(HOST, host)
            .header(CONNECTION, "close")
            .body(Empty::<Bytes>::new())
            .expect("a path and plain headers");
        let answer = sender.send_request(request).await.map_err(broken)?;
        let code = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        connection.abort();
        let body = body.map_err(|why| match why.is::<LengthLimitError>() {
            true => {
                self.wrong_answer(format!("its answer has more than {}", mebibytes(ANSWER_BYTES_MAX as u64)))
            }
            false => self.closed("in the middle of the answer"),
        })?;
        Ok((code, body.to_bytes()))
    }

    fn parse_status(&self, body: &[u8]) -> Result<Status, Diagnosis> {
        let value: Value =
            serde_json::from_slice(body).map_err(|_| self.wrong_answer("its answer is not JSON"))?;
        let other = |cause: String| {
            let next = "use the `orinoco` that was installed with the daemon";
            self.fault(&codes::DAEMON_ANSWER, cause, next)
        };
        match value["schema"].as_str() {
            Some(STATUS_SCHEMA) => {}
            Some(schema) => {
                return Err(other(format!(
                    "the daemon answers in the format {schema}, and this program reads {STATUS_SCHEMA}"
                )));
            }
            None => return Err(self.wrong_answer("its answer is JSON, but no status")),
        }
        serde_json::from_value(value)
            .map_err(|why| other(format!("the daemon's status cannot be read: {why}")))
    }

    /// Returns what the daemon says when it refuses, or that somebody else refuses.
    fn refusal(&self, code: StatusCode, body: &[u8]) -> Diagnosis {
        let report: Option<ErrorReport> = serde_json::from_slice(body).ok();
        match report.and_then(|report| report.faults.into_iter().next()) {
            Some(fault) => self.of_daemon(&fault),
            None => self.wrong_answer(format!("it refuses with HTTP {code}")),
        }
    }

    fn of_daemon(&self, fault: &Fault) -> Diagnosis {
        let known = codes::ALL.iter().find(|code| code.id == fault.code);
        let code = known.copied().unwrap_or(&codes::DAEMON_ANSWER);
        Diagnosis::new(code, &fault.subject, &fault.cause, &fault.next)
    }

    fn not_connected(&self, why: &io::Error) -> Diagnosis {
        let socket = match &self.address {
            Address::Socket(path) => Some(path.as_path()),
            Address::Tcp(..) => None,
        };
        match (why.kind(), socket) {
            (ErrorKind::PermissionDenied, Some(_)) => self.fault(
                &codes::DAEMON_DENIED,
                "this user may not use the daemon's socket",
                "run `sudo usermod -aG orinoco \"$USER\"` and log in again",
            ),
            (ErrorKind::WouldBlock, _) => self.silent(),
            (ErrorKind::NotFound, Some(_)) => self.absent("no daemon runs: its socket does not exist"),
            (ErrorKind::ConnectionRefused, Some(path)) if !is_socket(path) => {
                let next = "name the daemon's socket with --socket";
                self.fault(&codes::DAEMON_ABSENT, "it is not a socket", next)
            }
            (ErrorKind::ConnectionRefused, Some(_)) => {
                self.absent("nobody listens at it: the daemon has ended")
            }
            (ErrorKind::ConnectionRefused, None) => {
                let next = "name the address of [control] in the board file, or use the socket";
                self.fault(&codes::DAEMON_ABSENT, "no daemon listens at this address", next)
            }
            _ => self.absent(&format!("it cannot be reached: {why}")),
        }
    }

    fn absent(&self, cause: &str) -> Diagnosis {
        let next = "start the daemon with `sudo systemctl start orinocod`, or name its socket with --socket";
        self.fault(&codes::DAEMON_ABSENT, cause, next)
    }

    fn silent(&self) -> Diagnosis {
        let cause = format!("the daemon did not answer within {} s", self.within.as_secs_f64());
        let next = "see what it does with `journalctl -u orinocod -n 50`, and try again";
        self.fault(&codes::DAEMON_SILENT, cause, next)
    }

    fn not_http(&self, why: &hyper::Error) -> Diagnosis {
        if why.is_parse() {
            return self.wrong_answer("its answer is not HTTP");
        }
        self.closed("before the answer")
    }

    fn closed(&self, when: &str) -> Diagnosis {
        let next = "try again; if it stays so, see `journalctl -u orinocod -n 50`";
        self.fault(&codes::DAEMON_ANSWER, format!("the connection was closed {when}"), next)
    }

    fn wrong_answer(&self, what: impl fmt::Display) -> Diagnosis {
        let next = match self.address {
            Address::Socket(_) => {
                "name the daemon's socket with --socket, or compare the versions of `orinoco` and `orinocod`"
            }
            Address::Tcp(..) => {
                "name the daemon's address with --address, or compare the versions of `orinoco` and `orinocod`"
            }
        };
        self.fault(&codes::DAEMON_ANSWER, format!("this is not the daemon: {what}"), next)
    }

    fn fault(&self, code: &'static Code, cause: impl fmt::Display, next: &str) -> Diagnosis {
        Diagnosis::new(code, &self.address, cause, next)
    }
}

/// Connects to the first address that accepts. The error is that of the last.
async fn connect_any(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut last = io::Error::from(ErrorKind::AddrNotAvailable);
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(why) => last = why,
        }
    }
    Err(last)
}

/// Whether a path is that of a socket. The kernel refuses connections to other files as it does to a socket without a listener.
fn is_socket(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|data| data.file_type().is_socket())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_of_this_machine() {
        let check = |text: &str, expected: Result<&str, &str>| {
            let address = text.parse::<Address>().map(|address| address.to_string());
            match (address, expected) {
                (Ok(address), Ok(expected)) => assert_eq!(address, expected),
                (Err(why), Err(part)) => assert!(why.contains(part), "{text}: {why}"),
                (other, _) => panic!("{text}: {other:?}"),
            }
        };
        check("http://127.0.0.1:8002", Ok("http://127.0.0.1:8002"));
        check("http://127.0.0.1", Ok("http://127.0.0.1:8002"));
        check("http://localhost:9000/", Ok("http://localhost:9000"));
        check("http://[::1]:8002", Ok("http://[::1]:8002"));
        check("http://10.0.0.7:9002", Err("ssh -L 9002:127.0.0.1:9002"));
        check("http://board:8002", Err("ssh -L"));
        check("https://127.0.0.1:8002", Err("expected an address"));
        check("127.0.0.1:8002", Err("expected an address"));
        check("http://127.0.0.1:8002/v1/status", Err("without a path"));
        check("http://me@127.0.0.1:8002", Err("without a path"));
        check("", Err("expected an address"));
    }

    #[test]
    fn localhost_is_tried_by_both_protocols() {
        let address: Address = "http://localhost:1".parse().expect("an address");
        let addresses = ["127.0.0.1:1", "[::1]:1"].map(|text| text.parse().expect("an address"));
        assert_eq!(address, Address::Tcp("localhost:1".to_owned(), addresses.to_vec()));
    }
}
