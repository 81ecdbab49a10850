//! Event streams.

use std::sync::atomic::Ordering;
use std::time::Duration;

use orinoco_api::EventJson;
use orinoco_server::Limits;

use crate::client::Client;
use crate::fake::Served;

/// Open event stream.
struct Events(Client);

impl Events {
    /// Opens a stream after the event `last`, or from the oldest event.
    fn open(served: &Served, last: Option<&str>) -> Self {
        let mut client = served.unix();
        let last = last.map_or_else(String::new, |last| format!("Last-Event-ID: {last}\r\n"));
        client.send(&format!("GET /v1/events HTTP/1.1\r\nHost: localhost\r\n{last}\r\n"));
        let (status, headers) = client.head().expect("an answer");
        assert_eq!((status, headers["content-type"].as_str()), (200, "text/event-stream"));
        Self(client)
    }

    /// Reads the next event; `None` for a comment.
    fn next(&mut self) -> Option<EventJson> {
        let (mut id, mut data) = (None, None);
        loop {
            let line = self.0.line().expect("the stream goes on");
            if line.starts_with(':') {
                return None;
            } else if let Some(text) = line.strip_prefix("id: ") {
                id = Some(text.to_owned());
            } else if let Some(text) = line.strip_prefix("data: ") {
                data = Some(text.to_owned());
            } else if line.is_empty()
                && let (Some(id), Some(data)) = (&id, &data)
            {
                let event: EventJson = serde_json::from_str(data).expect("an event");
                assert_eq!(*id, event.number.to_string());
                return Some(event);
            }
        }
    }

    fn numbers(&mut self, count: usize) -> Vec<u64> {
        (0..count).map(|_| self.next().expect("an event").number).collect()
    }
}

#[test]
fn events_arrive_and_a_client_resumes_after_its_last() {
    let served = Served::new(Limits::default());
    served.board.emit("one");
    served.board.emit("two");
    let mut events = Events::open(&served, None);
    assert_eq!(events.numbers(2), [1, 2]);
    served.board.emit("three");
    assert_eq!(events.next().expect("an event").text, "three");
    drop(events);
    served.board.emit("four");
    served.board.emit("five");
    assert_eq!(Events::open(&served, Some("3")).numbers(2), [4, 5]);
    assert_eq!(Events::open(&served, Some("0")).numbers(5), [1, 2, 3, 4, 5]);
    assert_eq!(Events::open(&served, Some("of another server")).numbers(5), [1, 2, 3, 4, 5]);
    let mut waiting = Events::open(&served, Some("5"));
    served.board.emit("six");
    assert_eq!(waiting.numbers(1), [6]);
    assert_eq!(Events::open(&served, Some("57")).numbers(6), [1, 2, 3, 4, 5, 6], "57 was of an earlier run");
}

#[test]
fn events_before_the_board_runs_are_not_lost() {
    let served = Served::starting(Limits::default());
    served.board.emit("engine refused");
    let mut events = Events::open(&served, None);
    served.attach();
    assert_eq!(events.next().expect("an event").text, "engine refused");
}

#[test]
fn the_board_is_read_once_for_all_streams() {
    let served = Served::new(Limits::default());
    let mut streams: Vec<Events> = (0..20).map(|_| Events::open(&served, None)).collect();
    for number in 1..=5 {
        served.board.emit("again");
        for stream in &mut streams {
            assert_eq!(stream.numbers(1), [number]);
        }
    }
    let reads = served.board.event_reads.load(Ordering::SeqCst);
    assert!((1..=6).contains(&reads), "{reads} reads for 5 events and the start");
}

#[test]
fn a_burst_is_kept_within_a_bound_and_a_gap_shows_it() {
    let served = Served::new(Limits::default());
    (0..3000).for_each(|_| served.board.emit("burst"));
    // The board's wake-ups may come together, and then the log has what the board returned last.
    while Events::open(&served, None).numbers(1)[0] < 1977 {}
    let mut events = Events::open(&served, Some("1"));
    assert_eq!(events.numbers(1024), (1977..=3000).collect::<Vec<_>>());
}

#[test]
fn comments_keep_a_stream_alive() {
    let served = Served::new(Limits { keep_alive_every: Duration::from_millis(20), ..Limits::default() });
    let mut events = Events::open(&served, None);
    assert!(events.next().is_none());
    assert!(events.next().is_none());
    served.board.emit("one");
    while events.next().is_none_or(|event| event.text != "one") {}
}

#[test]
fn streams_are_bounded_and_one_that_ends_makes_room() {
    let served = Served::new(Limits { event_streams_max: 2, ..Limits::default() });
    for _ in 0..10 {
        let _streams = [open_when_free(&served), open_when_free(&served)];
        let answer = served.unix().get("/v1/events");
        assert_eq!((answer.status, answer.cause().as_str()), (503, "2 event streams are open, the maximum"));
        assert_eq!(served.unix().get("/v1/status").status, 200);
    }
}

/// Opens a stream as soon as the server has noticed that an earlier one is gone.
fn open_when_free(served: &Served) -> Client {
    loop {
        let mut client = served.unix();
        client.send("GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n");
        if client.head().expect("an answer").0 == 200 {
            return client;
        }
    }
}

#[test]
fn streams_end_with_the_server() {
    let mut served = Served::new(Limits::default());
    served.board.emit("one");
    let mut events = Events::open(&served, None);
    assert_eq!(events.numbers(1), [1]);
    drop(served.server.take());
    assert_eq!(events.0.wait_for_end(), "\r\n0\r\n\r\n".len(), "the chunk and the body end");
}
