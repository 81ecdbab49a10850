//! Answers that are computed once for many clients.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use orinoco_server::Limits;

use crate::fake::Served;

const CLIENTS: usize = 20;

#[test]
fn clients_that_ask_together_share_one_status() {
    let served = Served::new(Limits::default());
    served.board.hangs.close();
    let bodies: Vec<String> = thread::scope(|scope| {
        let ask = || scope.spawn(|| served.unix().get("/v1/status").body);
        let clients: Vec<_> = (0..CLIENTS).map(|_| ask()).collect();
        // Every request has arrived, and each scrape is one more.
        let arrived = "orinoco_server_requests_total{listener=\"socket\"}";
        let mut scrapes = 0;
        loop {
            scrapes += 1;
            if served.metric(arrived) as usize >= CLIENTS + scrapes {
                break;
            }
        }
        served.board.hangs.open();
        clients.into_iter().map(|client| client.join().expect("an answer")).collect()
    });
    assert!(bodies.iter().all(|body| *body == bodies[0] && body.contains("gate-3")));
    assert_eq!(served.board.statuses.load(Ordering::SeqCst), 1);
}

#[test]
fn a_status_is_shared_for_a_tenth_of_a_second() {
    let served = Served::new(Limits::default());
    let statuses = || served.board.statuses.load(Ordering::SeqCst);
    let mut client = served.unix();
    for _ in 0..60 {
        for path in ["/v1/status", "/healthz", "/readyz"] {
            client.get(path);
        }
    }
    assert_eq!(statuses(), 1);
    served.clock.advance(Duration::from_millis(99));
    client.get("/v1/status");
    assert_eq!(statuses(), 1);
    served.clock.advance(Duration::from_millis(1));
    client.get("/v1/status");
    assert_eq!(statuses(), 2);
}

#[test]
fn scrapes_are_shared_too() {
    let served = Served::new(Limits::default());
    let mut client = served.tcp();
    for _ in 0..60 {
        assert_eq!(client.request("GET", "/metrics", &served.host()).status, 200);
    }
    assert_eq!(served.board.scrapes.load(Ordering::SeqCst), 1);
    assert_eq!(served.board.statuses.load(Ordering::SeqCst), 0);
}

#[test]
fn a_client_that_leaves_does_not_end_the_question_of_others() {
    let served = Served::new(Limits::default());
    served.board.hangs.close();
    let mut first = served.unix();
    first.send("GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n");
    while served.board.statuses.load(Ordering::SeqCst) == 0 {
        thread::yield_now();
    }
    let mut second = served.unix();
    second.send("GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n");
    drop(first);
    served.board.hangs.open();
    assert_eq!(second.answer(true).expect("an answer").status, 200);
    assert_eq!(served.board.statuses.load(Ordering::SeqCst), 1);
}
