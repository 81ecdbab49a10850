//! Paths, methods and bodies.

use orinoco_api::MODEL_DATA_BYTES_MAX;
use orinoco_server::{Limits, PROMETHEUS_CONTENT_TYPE, ROUTES};
use serde_json::json;

use crate::fake::{MODEL_BYTES, Served, target};

fn content_type(path: &str) -> &'static str {
    match path {
        "/metrics" => PROMETHEUS_CONTENT_TYPE,
        "/v1/events" => "text/event-stream",
        "/v1/cluster/model-data" => "application/octet-stream",
        _ => "application/json",
    }
}

#[test]
fn every_path_is_served_on_the_socket_with_its_methods() {
    let served = Served::new(Limits::default());
    for route in ROUTES {
        for method in ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"] {
            let mut client = served.unix();
            client.send(&format!("{method} {} HTTP/1.1\r\nHost: any name\r\n\r\n", target(route.path)));
            let (status, headers) = client.head().expect("an answer");
            let place = format!("{method} {}: {headers:?}", route.path);
            if route.methods.contains(&method) {
                assert_eq!(status, 200, "{place}");
                assert_eq!(headers["content-type"], content_type(route.path), "{place}");
            } else {
                assert_eq!(status, 405, "{place}");
                assert_eq!(headers["allow"].replace(',', ", "), route.methods.join(", "), "{place}");
            }
            assert_eq!(headers["cache-control"], "no-store", "{place}");
        }
    }
}

#[test]
fn over_tcp_get_and_head_are_served_and_no_dump() {
    let served = Served::new(Limits::default());
    for route in ROUTES {
        for method in ["GET", "HEAD", "POST", "DELETE", "OPTIONS"] {
            let mut client = served.tcp();
            let host = served.host();
            client.send(&format!(
                "{method} {} HTTP/1.1\r\n{host}Origin: http://evil.example\r\n\r\n",
                route.path
            ));
            let (status, headers) = client.head().expect("an answer");
            let place = format!("{method} {}: {headers:?}", route.path);
            let expected = match method {
                "GET" | "HEAD" if route.over_tcp => 200,
                "GET" | "HEAD" => 403,
                _ => 405,
            };
            assert_eq!(status, expected, "{place}");
            let lets_others_read = |name: &String| name.starts_with("access-control");
            assert!(!headers.keys().any(lets_others_read), "{place}");
        }
    }
    let dump = served.tcp().request("GET", "/v1/dump", &served.host());
    assert_eq!(dump.cause(), "it is served on the Unix socket only");
}

#[test]
fn a_file_of_another_board_comes_in_parts() {
    let served = Served::new(Limits::default());
    let part = |offset: u64| {
        let path =
            format!("/v1/cluster/model-data?seat=east&model=person&file=1%2Fmodel.onnx&offset={offset}");
        served.unix().get(&path)
    };
    let lengths =
        [0, MODEL_DATA_BYTES_MAX, MODEL_BYTES, u64::MAX].map(|offset| part(offset).body.len() as u64);
    assert_eq!(lengths, [MODEL_DATA_BYTES_MAX, MODEL_BYTES - MODEL_DATA_BYTES_MAX, 0, 0]);
    let shorter = |length: u64| {
        let query = format!("seat=east&model=person&file=1%2Fmodel.onnx&offset=0&length={length}");
        served.unix().get(&format!("/v1/cluster/model-data?{query}")).body.len() as u64
    };
    assert_eq!([1, 16_384, u64::MAX].map(shorter), [1, 16_384, MODEL_DATA_BYTES_MAX]);
    let absent =
        served.unix().get("/v1/cluster/model-data?seat=west&model=person&file=1%2Fmodel.onnx&offset=0");
    assert_eq!(
        (absent.status, absent.cause().as_str()),
        (502, "no connected board of the cluster has this seat")
    );
    for query in [
        "",
        "?seat=east&model=person&file=a",
        "?seat=east&model=person&file=a&offset=-1",
        "?seat=east&model=person&file=1%2Fmodel.onnx&offset=0&length=0",
        "?offset=0&to=/etc",
    ] {
        let refused = served.unix().get(&format!("/v1/cluster/model-data{query}"));
        assert_eq!(refused.status, 400, "{query}: {}", refused.body);
    }
}

#[test]
fn one_connection_takes_many_requests() {
    let served = Served::new(Limits::default());
    let mut client = served.unix();
    for _ in 0..50 {
        assert_eq!(client.get("/v1/status").json(), json!(served_status()));
        assert!(client.get("/metrics").body.contains("orinoco_rail_power_watts{rail=\"VDD_IN\"} 7.25\n"));
    }
    let head = client.request("HEAD", "/v1/status", "Host: localhost\r\n");
    let body = client.get("/v1/status").body;
    assert_eq!(head.headers["content-length"], body.len().to_string(), "HEAD is GET without the body");
    assert_eq!(served.metric("orinoco_server_connections_total{listener=\"socket\"}"), 2.0);
    assert_eq!(served.metric("orinoco_server_requests_total{listener=\"socket\"}"), 104.0);
}

fn served_status() -> orinoco_api::Status {
    crate::fake::status()
}

#[test]
fn an_unknown_path_is_answered_with_those_that_are_known() {
    let served = Served::new(Limits::default());
    for path in ["/", "/v1/status/", "/v1/../metrics", "/healthz%00"] {
        let answer = served.unix().get(path);
        assert_eq!(answer.status, 404, "{path}");
        let next = answer.json()["faults"][0]["next"].as_str().expect("a text").to_owned();
        assert!(ROUTES.iter().all(|route| next.contains(route.path)), "{next}");
    }
    // A query changes nothing.
    assert_eq!(served.unix().get("/healthz?verbose=1").status, 200);
}

#[test]
fn bodies_are_refused_and_end_the_connection() {
    let served = Served::new(Limits::default());
    for body in ["Content-Length: 1000000000\r\n", "Transfer-Encoding: chunked\r\n"] {
        for (method, path) in [("GET", "/v1/status"), ("POST", "/v1/dump")] {
            let mut client = served.unix();
            let answer = client.request(method, path, &format!("Host: localhost\r\n{body}"));
            assert_eq!(answer.status, 413, "{method} {path} {body}");
            client.wait_for_end();
        }
    }
    let mut client = served.unix();
    let empty = "Host: localhost\r\nContent-Length: 0\r\n";
    assert_eq!(client.request("POST", "/v1/dump", empty).status, 200);
    assert_eq!(client.request("POST", "/v1/dump", empty).status, 200, "the connection goes on");
}

#[test]
fn long_heads_and_bytes_that_are_no_request_are_refused() {
    let served = Served::new(Limits::default());
    let long = format!("GET /v1/status HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(1 << 20));
    let many = format!("GET /v1/status HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(1000));
    let target = format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "x".repeat(1 << 20));
    for text in [&long, &many, &target, "\u{16}\u{3}\u{1}\r\n\r\n", "GET\r\n\r\n"] {
        let mut client = served.unix();
        client.send(text);
        if let Ok((status, _)) = client.head() {
            assert!((400..=431).contains(&status), "{status}");
        }
        client.wait_for_end();
    }
    assert_eq!(served.unix().get("/healthz").status, 200);
}
