//! Clients that are slow, stuck or too many.

use std::sync::atomic::Ordering;
use std::time::Duration;

use orinoco_server::Limits;

use crate::fake::Served;

const HALF: &str = "GET /v1/status HTTP/1.1\r\nHost: local";

#[test]
fn twenty_stuck_clients_do_not_delay_another() {
    let served = Served::new(Limits::default());
    served.board.dump_bytes.store(8 << 20, Ordering::SeqCst);
    let mut stuck = Vec::new();
    for number in 0..20 {
        let mut client = if number % 2 == 0 { served.unix() } else { served.tcp() };
        // Some stop in the middle of a request, and some do not read what they asked for.
        client.send(HALF);
        if number % 4 == 0 {
            client.send("host\r\n\r\nGET /v1/dump HTTP/1.1\r\nHost: localhost\r\n\r\n");
        }
        stuck.push(client);
    }
    for _ in 0..100 {
        assert_eq!(served.unix().get("/v1/status").status, 200);
        assert_eq!(served.tcp().request("GET", "/metrics", &served.host()).status, 200);
    }
    // They were all connected meanwhile: with the limits of the daemon none of them has been dropped yet.
    stuck[1].send("host\r\n\r\n");
    assert_eq!(stuck[1].answer(true).expect("an answer").status, 403, "its host is not the listener's");
    stuck[2].send("host\r\n\r\n");
    assert_eq!(stuck[2].answer(true).expect("an answer").status, 200);
}

#[test]
fn too_many_connections_are_refused_until_one_is_free() {
    let limits =
        Limits { connections_max: 4, place_wait_max: Duration::from_millis(50), ..Limits::default() };
    let served = Served::new(limits);
    let mut stuck: Vec<_> = (0..4).map(|_| served.unix()).collect();
    for client in &mut stuck {
        assert_eq!(client.get("/healthz").status, 200);
    }
    for _ in 0..3 {
        let mut client = served.unix();
        let answer = client.get("/healthz");
        assert_eq!((answer.status, answer.cause().as_str()), (503, "4 connections are open, the maximum"));
        client.wait_for_end();
    }
    // The other listener has places of its own.
    let refused = "orinoco_server_refused_total{listener=\"socket\",reason=\"connections\"} 3";
    let metrics = served.tcp().request("GET", "/metrics", &served.host());
    assert!(metrics.body.contains(refused), "{}", metrics.body);
    drop(stuck.pop());
    while served.unix().get("/healthz").status != 200 {}
}

#[test]
fn clients_of_a_burst_wait_for_a_place() {
    let limits = Limits { connections_max: 2, place_wait_max: Duration::from_secs(60), ..Limits::default() };
    let served = Served::new(limits);
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                for _ in 0..10 {
                    assert_eq!(served.unix().get("/v1/status").status, 200);
                }
            });
        }
    });
}

#[test]
fn a_client_that_sends_too_slowly_is_dropped() {
    let limits =
        Limits { connections_max: 2, request_wait_max: Duration::from_millis(200), ..Limits::default() };
    let served = Served::new(limits);
    for text in [HALF, ""] {
        let mut stuck = [served.unix(), served.unix()];
        stuck.iter_mut().for_each(|client| client.send(text));
        for client in &mut stuck {
            client.wait_for_end();
        }
    }
    let mut idle = served.unix();
    assert_eq!(idle.get("/healthz").status, 200);
    assert_eq!(idle.wait_for_end(), 0, "an idle connection ends, too");
    assert_eq!(served.unix().get("/healthz").status, 200);
}

#[test]
fn a_client_that_does_not_read_is_dropped() {
    const DUMP: usize = 64 << 20;
    // On a busy machine, so long an answer takes seconds to make.
    let answer_wait_max = Duration::from_secs(60);
    let limits = Limits { write_stall_max: Duration::from_millis(200), answer_wait_max, ..Limits::default() };
    let served = Served::new(limits);
    served.board.dump_bytes.store(DUMP, Ordering::SeqCst);
    let mut stuck = served.unix();
    stuck.send("GET /v1/dump HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let (status, headers) = stuck.head().expect("the beginning of an answer");
    assert_eq!(status, 200);
    let length: usize = headers["content-length"].parse().expect("a number");
    assert!(length > DUMP);
    // It reads on only when the server has dropped it, which ends what is in the socket's buffer.
    stuck.wait_until_closed();
    assert!(stuck.wait_for_end() < length, "the answer was cut off");
    // One that reads slowly, but reads, gets it all.
    let answer = served.unix().get("/v1/dump");
    assert_eq!(answer.body.len(), length);
}
