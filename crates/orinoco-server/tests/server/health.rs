//! Health and readiness of a board in each of its states.

use std::sync::atomic::Ordering;
use std::time::Duration;

use orinoco_api::{Health, Status};
use orinoco_server::Limits;

use crate::fake::{Served, status};

/// Compares the answers about a board with this status: status, healthy, ready, reasons.
fn check(status: Status, healthz: u16, readyz: u16, expected: &[&str]) {
    let served = Served::new(Limits::default());
    *served.board.status.lock().expect("no panic") = Some(status);
    for (path, code) in [("/healthz", healthz), ("/readyz", readyz)] {
        let (answered, Health { state, healthy, ready, reasons, .. }) = served.health(path);
        assert_eq!(answered, code, "{path} {reasons:?}");
        assert_eq!((state.as_str(), healthy, ready), ("running", healthz == 200, readyz == 200), "{path}");
        assert_eq!(reasons, expected, "{path}");
    }
}

#[test]
fn a_board_that_runs_is_healthy_and_ready() {
    check(status(), 200, 200, &[]);
}

#[test]
fn a_board_without_a_camera_is_healthy_and_not_ready() {
    let mut status = status();
    status.ready = false;
    status.streams[0].state = "backing-off".to_owned();
    check(status.clone(), 200, 503, &["stream `north` delivers no frames: backing-off"]);
    status.streams.clear();
    check(status, 200, 503, &["not every stream delivers frames"]);
}

#[test]
fn a_board_with_a_stuck_lane_is_neither() {
    let mut status = status();
    status.healthy = false;
    check(status.clone(), 503, 503, &["a lane makes no progress"]);
    (status.lanes[0].stuck, status.lanes[0].executing_ms) = (true, Some(35_040.0));
    check(status, 503, 503, &["lane 0 has executed one batch for 35.0 s"]);
}

#[test]
fn a_board_that_starts_is_healthy_and_not_ready() {
    let served = Served::starting(Limits::default());
    assert_eq!(served.health("/healthz").0, 200);
    let (code, health) = served.health("/readyz");
    assert_eq!(
        (code, health.state.as_str(), health.reasons),
        (503, "starting", vec!["the board is starting".into()])
    );
    for path in ["/v1/status", "/v1/dump"] {
        let answer = served.unix().get(path);
        assert_eq!((answer.status, answer.cause().as_str()), (503, "the board is starting"), "{path}");
        assert_eq!(answer.headers["retry-after"], "1");
    }
    assert!(served.unix().get("/metrics").body.contains("\norinoco_server_requests_total"));
    served.attach();
    assert_eq!(served.health("/readyz").0, 200);
    assert_eq!(served.unix().get("/v1/status").status, 200);
}

#[test]
fn a_board_that_does_not_answer_is_reported_and_delays_nothing_else() {
    let limits = Limits { answer_wait_max: Duration::from_millis(200), ..Limits::default() };
    let served = Served::new(limits);
    served.board.hangs.close();
    for _ in 0..3 {
        let (code, health) = served.health("/healthz");
        let reasons = vec!["the run did not answer within 0.2 s".to_owned()];
        assert_eq!((code, health.state.as_str(), health.reasons), (503, "unresponsive", reasons));
        assert_eq!(served.unix().get("/v1/status").status, 503);
        assert_eq!(served.unix().get("/metrics").status, 200);
        assert_eq!(served.unix().get("/v1/dump").status, 200);
    }
    assert_eq!(served.board.statuses.load(Ordering::SeqCst), 1, "it is asked once, however many wait");
    served.board.hangs.open();
    while served.health("/healthz").0 != 200 {}
}

#[test]
fn a_server_ends_although_its_board_does_not_answer() {
    let mut served = Served::new(Limits { end_wait_max: Duration::from_millis(100), ..Limits::default() });
    served.board.hangs.close();
    let mut client = served.unix();
    client.send("GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n");
    while served.board.statuses.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    drop(served.server.take());
    client.wait_for_end();
}

#[test]
fn a_board_that_panics_is_asked_again() {
    let served = Served::new(Limits::default());
    served.board.panics.store(true, Ordering::SeqCst);
    let answer = served.unix().get("/v1/status");
    assert_eq!(answer.status, 503);
    assert_eq!(answer.cause(), "the run could not report its state, because of a bug in Orinoco");
    served.board.panics.store(false, Ordering::SeqCst);
    assert_eq!(served.unix().get("/v1/status").status, 200);
}
