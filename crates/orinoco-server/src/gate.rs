//! Requests that are let through: the rules that hold for every path.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{
    ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderValue, TRANSFER_ENCODING,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::uri::Authority;
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;

use crate::counters::{Counters, Refusal, Way};
use crate::refusal::refused;

/// Port that a Host header may leave out.
const HTTP_PORT: u16 = 80;

/// Gate of one listener.
pub(crate) struct Gate {
    counters: Arc<Counters>,
    /// Address of the TCP listener; `None` on the Unix socket, which web pages cannot reach.
    address: Option<SocketAddr>,
}

impl Gate {
    /// Creates the gate of the Unix socket, or of the TCP listener at `address`.
    pub(crate) fn new(counters: Arc<Counters>, address: Option<SocketAddr>) -> Self {
        Self { counters, address }
    }

    /// Returns the way by which its clients connect.
    pub(crate) fn way(&self) -> Way {
        if self.address.is_some() { Way::Tcp } else { Way::Socket }
    }

    /// Returns the reason to refuse a request and its answer, if it has one.
    fn refusal(&self, request: &Request) -> Option<(Refusal, Response)> {
        let path = request.uri().path();
        if let Some(address) = self.address {
            if !is_for(address, request) {
                let cause = "the request is not addressed to this machine by its own name";
                let next = format!("write http://{address}{path}, or localhost with that port");
                return Some((Refusal::Host, refused(StatusCode::FORBIDDEN, path, cause, &next)));
            }
            if ![Method::GET, Method::HEAD].contains(request.method()) {
                let cause = format!("{} is not served over TCP", request.method());
                let mut answer =
                    refused(StatusCode::METHOD_NOT_ALLOWED, path, &cause, "use GET, or the Unix socket");
                answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET,HEAD"));
                return Some((Refusal::Request, answer));
            }
        }
        if has_body(request.headers()) {
            let cause = "the request has a body, which no path takes";
            let mut answer = refused(StatusCode::PAYLOAD_TOO_LARGE, path, cause, "send it without a body");
            // The body is not read, so the connection cannot go on.
            answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            return Some((Refusal::Request, answer));
        }
        None
    }
}

/// Lets a request through or refuses it, and marks each answer as one that nobody stores or interprets otherwise. There are
/// no CORS headers: a web page may not read an answer.
pub(crate) async fn pass(State(gate): State<Arc<Gate>>, request: Request, next: Next) -> Response {
    gate.counters.count_request(gate.way());
    let mut answer = match gate.refusal(&request) {
        Some((refusal, answer)) => {
            gate.counters.count_refusal(gate.way(), refusal);
            answer
        }
        None => next.run(request).await,
    };
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

fn has_body(headers: &HeaderMap) -> bool {
    let is_empty = |length: &HeaderValue| length.as_bytes() == b"0";
    headers.contains_key(TRANSFER_ENCODING)
        || headers.get(CONTENT_LENGTH).is_some_and(|length| !is_empty(length))
}

/// Whether a request names the listener at `address`, or localhost with its port, as its host. A name that a web page chose
/// for this machine (DNS rebinding) is another.
fn is_for(address: SocketAddr, request: &Request) -> bool {
    let mut hosts = request.headers().get_all(HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
    let Ok(host) = Authority::try_from(host.as_bytes()) else { return false };
    is_own(address, &host) && request.uri().authority().is_none_or(|host| is_own(address, host))
}

fn is_own(address: SocketAddr, host: &Authority) -> bool {
    let name = host.host();
    let literal: Option<IpAddr> = match name.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').and_then(|ip| ip.parse().ok()).map(IpAddr::V6),
        None => name.parse().ok().map(IpAddr::V4),
    };
    let own = [address.ip(), IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    let is_name = name.eq_ignore_ascii_case("localhost") || literal.is_some_and(|ip| own.contains(&ip));
    // An authority may have a user before its host.
    is_name && !host.as_str().contains('@') && host.port_u16().unwrap_or(HTTP_PORT) == address.port()
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    fn check(hosts: &[&str], target: &str, expected: bool) {
        let mut request = Request::builder().uri(target);
        for host in hosts {
            request = request.header(HOST, *host);
        }
        let request = request.body(Body::empty()).expect("a request");
        let address = SocketAddr::from(([127, 0, 0, 1], 8002));
        assert_eq!(is_for(address, &request), expected, "{hosts:?} {target}");
    }

    #[test]
    fn only_names_of_this_machine_with_the_port_are_hosts() {
        for host in ["127.0.0.1:8002", "localhost:8002", "LOCALHOST:8002", "[::1]:8002"] {
            check(&[host], "/metrics", true);
        }
        for host in [
            "evil.example:8002",
            "localhost",
            "127.0.0.1",
            "127.0.0.1:80",
            "127.0.0.2:8002",
            "localhost.evil.example:8002",
            "localhost.:8002",
            "127.0.0.1.nip.io:8002",
            "me@127.0.0.1:8002",
            "127.0.0.1:8002@evil.example",
            "[::1:8002",
            "::1",
            "",
            "localhost:99999",
        ] {
            check(&[host], "/metrics", false);
        }
        check(&[], "/metrics", false);
        check(&["localhost:8002", "evil.example:8002"], "/metrics", false);
        check(&["localhost:8002"], "http://localhost:8002/metrics", true);
        check(&["localhost:8002"], "http://evil.example/metrics", false);
    }

    #[test]
    fn the_default_port_may_be_left_out() {
        let host = |host: &str| Authority::try_from(host).expect("an authority");
        assert!(is_own(SocketAddr::from(([127, 0, 0, 1], 80)), &host("localhost")));
        assert!(is_own(SocketAddr::from(([127, 0, 0, 7], 80)), &host("127.0.0.7")));
        assert!(!is_own(SocketAddr::from(([127, 0, 0, 1], 80)), &host("localhost:8002")));
    }
}
