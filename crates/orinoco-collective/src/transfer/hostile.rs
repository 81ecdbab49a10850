//! Peers that do not keep the protocol: frames that no agent would send, or not now.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use orinoco_core::Rng;

use super::buffer::Buffers;
use super::dialogue::Dialogue;
use super::error::RefusalReason;
use super::frame::{Body, Frame, HEADER_BYTES, Notice, PIECE_BYTES, Target};
use super::notification::{NOTIFICATIONS_MAX, Notifications};
use super::region::{Access, Region, RegionHandle, Registry};
use super::requests::{Answer, REQUESTS_MAX, Requests};
use super::shared::Shared;
use crate::mutations::{check, mutate, noise, seal_checksum, set_number};
use crate::tcp::{Offer, Pulse, flag};
use crate::{FailureCause, MessageSettings};

const LIAR: usize = 1;
const REGION_BYTES: usize = 1000;

/// Rank 0, with two regions.
struct Victim {
    shared: Arc<Shared>,
    requests: Arc<Requests>,
    dialogue: Dialogue,
    open: RegionHandle,
    closed: RegionHandle,
}

impl Victim {
    fn new(pulse: &Arc<Pulse>, keeps_whole: bool) -> Self {
        let registry = Arc::new(Registry::default());
        let open = registry.register("open", Region::host(REGION_BYTES), Access::ReadWrite).unwrap();
        let closed = registry.register("closed", vec![7; REGION_BYTES].into(), Access::Read).unwrap();
        let shared = Arc::new(Shared {
            registry,
            notifications: Notifications::default(),
            buffers: Arc::new(Buffers::default()),
            pulse: Arc::clone(pulse),
            silence: Duration::ZERO,
            is_leaving: AtomicBool::new(false),
        });
        let requests = Arc::new(Requests::new(Arc::new(flag().unwrap())));
        let dialogue = Dialogue::new(LIAR, keeps_whole, Arc::clone(&shared), Arc::clone(&requests));
        Self { shared, requests, dialogue, open, closed }
    }

    /// Takes a stream of frames, as the thread of a connection does. Half a frame at its end is waited for.
    fn take(&mut self, mut stream: &[u8]) -> Result<(), FailureCause> {
        while let Some((header, rest)) = stream.split_first_chunk::<HEADER_BYTES>() {
            let frame = self.dialogue.accept(header)?;
            let Some((bytes, rest)) = rest.split_at_checked(frame.payload_bytes()) else { break };
            let mut payload = self.shared.buffers.take(bytes.len());
            payload.copy_from_slice(bytes);
            self.dialogue.arrived(frame, payload)?;
            stream = rest;
        }
        Ok(())
    }

    /// Bodies of all frames that it sends now.
    fn sent(&mut self) -> Vec<Body> {
        let next =
            || self.dialogue.next_outgoing().map(|outgoing| Frame::decode(&outgoing.header).unwrap().body);
        std::iter::from_fn(next).collect()
    }
}

fn pulse() -> Arc<Pulse> {
    let settings = MessageSettings { silence: Duration::from_secs(1), ..MessageSettings::default() };
    Pulse::start(0, 0, vec![None, None], Offer::OURS.capabilities, &settings).unwrap()
}

fn target(region: &str, offset: u64) -> Target {
    Target { region: region.to_owned(), serial: 0, offset, notice: None, is_durable: false }
}

/// A frame with its payload.
fn message(number: u32, body: Body, payload: &[u8]) -> Vec<u8> {
    let bytes = u32::try_from(payload.len()).unwrap();
    let checksum = (!payload.is_empty()).then(|| crc32c::crc32c(payload));
    [&Frame { number, bytes, checksum, body }.encode()[..], payload].concat()
}

fn get(number: u32, target: Target, bytes: u32) -> Vec<u8> {
    Frame { number, bytes, checksum: None, body: Body::Get(target) }.encode().to_vec()
}

/// A right conversation: this rank's one request was a get of 100 bytes.
fn conversation() -> Vec<u8> {
    let notice = Some(Notice { value: 7, transfer_bytes: 100 });
    [
        message(0, Body::Put(target("open", 10)), &[3; 200]),
        message(0, Body::Data { serial: 1 }, &[9; 100]),
        get(1, target("closed", 0), 1000),
        message(2, Body::List, &[]),
        message(3, Body::Put(Target { notice, ..target("open", 0) }), &[4; 100]),
    ]
    .concat()
}

#[test]
fn any_stream_is_served_or_names_its_sender() {
    let pulse = pulse();
    let valid = conversation();
    check("transfers", |rng| {
        let mut victim = Victim::new(&pulse, rng.bool());
        let requests = Arc::clone(&victim.requests);
        let call = requests.begin(Duration::ZERO).unwrap().unwrap();
        call.add(0, Body::Get(target("elsewhere", 0)), 100, victim.shared.buffers.take(0));
        victim.sent();
        let mut stream = valid.clone();
        match rng.u32(..4) {
            0 => {
                let len = rng.usize(..3000);
                stream = noise(rng, len);
            }
            1 => mutate(rng, &mut stream, &valid),
            _ => lie(rng, &mut stream),
        }
        let result = victim.take(&stream);
        assert!(
            matches!(result, Ok(()) | Err(FailureCause::Damaged | FailureCause::Unexpected)),
            "{result:?}"
        );
        victim.sent();
        let mut kept = [0; REGION_BYTES];
        victim.closed.read(0, &mut kept).unwrap();
        assert_eq!(kept, [7; REGION_BYTES], "a region that others may only read");
        if let Some((_, Answer::Data { bytes, .. })) = call.next(Duration::ZERO) {
            assert_eq!(bytes.len(), 100, "an answer of another length");
        }
    });
    pulse.leave();
}

/// Changes a field of some headers, and seals them again: the sender knows the format.
fn lie(rng: &mut Rng, stream: &mut [u8]) {
    let starts: Vec<usize> = {
        let is_header = |at: &usize| {
            stream[*at..].first_chunk::<HEADER_BYTES>().is_some_and(|header| Frame::decode(header).is_some())
        };
        (0..stream.len()).filter(|at| stream[*at] == b'T').filter(is_header).collect()
    };
    for start in starts {
        let field = [1, 2, 3, 4, 8, 12, 16, 24, 32, 40, 60][rng.usize(..11)];
        let header = &mut stream[start..start + HEADER_BYTES];
        set_number(rng, &mut header[..HEADER_BYTES - 4], field);
        seal_checksum(header);
    }
}

#[test]
fn ranges_at_the_bounds_of_numbers_are_refused_and_the_connection_goes_on() {
    let pulse = pulse();
    let mut victim = Victim::new(&pulse, true);
    let out = |region_bytes| Body::Refused(RefusalReason::OutOfRange { region_bytes });
    let notice = |transfer_bytes| Some(Notice { value: 1, transfer_bytes });
    let attempts = [
        (get(0, target("open", u64::MAX), 1), out(1000)),
        (get(1, target("open", u64::MAX - 1), PIECE_BYTES as u32), out(1000)),
        (get(2, target("open", 1000), 1), out(1000)),
        (get(3, target("open", 1001), 0), out(1000)),
        (message(4, Body::Put(target("open", u64::MAX)), &[1]), out(1000)),
        (message(5, Body::Put(target("closed", 0)), &[1]), Body::Refused(RefusalReason::NotWritable)),
        (get(6, target("nothing", 0), 1), Body::Refused(RefusalReason::UnknownRegion)),
        (get(7, Target { serial: 77, ..target("open", 0) }, 1), Body::Refused(RefusalReason::Unregistered)),
        (get(8, Target { notice: notice(u64::MAX), ..target("open", 0) }, 1), out(0)),
        (get(9, Target { notice: notice(0), ..target("open", 0) }, 1), out(0)),
        (get(10, target("open", 1000), 0), Body::Data { serial: 1 }),
    ];
    for (bytes, expected) in attempts {
        victim.take(&bytes).unwrap();
        assert_eq!(victim.sent(), [expected]);
    }
    assert_eq!(victim.shared.notifications.next(Duration::ZERO), None);
    let mut bytes = [1; REGION_BYTES];
    victim.open.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, [0; REGION_BYTES], "nothing was written");
    pulse.leave();
}

#[test]
fn answers_that_no_request_awaits_name_their_sender() {
    let pulse = pulse();
    let answers = [
        message(0, Body::Done { serial: 1 }, &[]),
        message(0, Body::Data { serial: 1 }, &[9; 99]),
        message(0, Body::Data { serial: 1 }, &[9; 101]),
        message(1, Body::Data { serial: 1 }, &[9; 100]),
        message(0, Body::Regions, &[]),
        message(1, Body::Refused(RefusalReason::UnknownRegion), &[]),
    ];
    for answer in &answers {
        let mut victim = Victim::new(&pulse, true);
        assert_eq!(victim.take(answer), Err(FailureCause::Unexpected), "no request at all");
        let requests = Arc::clone(&victim.requests);
        let call = requests.begin(Duration::ZERO).unwrap().unwrap();
        call.add(0, Body::Get(target("elsewhere", 0)), 100, victim.shared.buffers.take(0));
        assert_eq!(victim.take(answer), Err(FailureCause::Unexpected), "the request was not sent");
        victim.sent();
        assert_eq!(victim.take(answer), Err(FailureCause::Unexpected), "it was another request");
        assert!(call.next(Duration::ZERO).is_none());
        let right = message(0, Body::Data { serial: 1 }, &[9; 100]);
        victim.take(&right).unwrap();
        assert!(matches!(call.next(Duration::ZERO), Some((0, Answer::Data { .. }))));
        assert_eq!(victim.take(&right), Err(FailureCause::Unexpected), "a second answer");
    }
    pulse.leave();
}

#[test]
fn an_answer_to_a_call_that_was_given_up_is_dropped() {
    let pulse = pulse();
    let mut victim = Victim::new(&pulse, true);
    let requests = Arc::clone(&victim.requests);
    let ask = |region: &str| {
        let call = requests.begin(Duration::ZERO).unwrap().expect("there is room");
        call.add(0, Body::Get(target(region, 0)), 100, Arc::new(Buffers::default()).take(0));
        call
    };
    // Calls take four requests each. Those that are given up keep one of them, until its answer comes.
    for number in 0..100 {
        let given_up = ask("first");
        victim.sent();
        drop(given_up);
        let unsent = ask("unsent");
        drop(unsent);
        let call = ask("second");
        victim.sent();
        let (number, other) = (2 * number, 2 * number + 1);
        victim.take(&message(number, Body::Data { serial: 1 }, &[1; 100])).unwrap();
        assert!(call.next(Duration::ZERO).is_none(), "it is the answer to another call");
        victim.take(&message(other, Body::Data { serial: 1 }, &[2; 100])).unwrap();
        let Some((0, Answer::Data { bytes, .. })) = call.next(Duration::ZERO) else { panic!("no data") };
        assert_eq!(bytes[..], [2; 100]);
    }
    // A peer that answers nothing costs a bounded number of requests.
    let mut calls = 0;
    while let Some(call) = requests.begin(Duration::ZERO).unwrap() {
        call.add(0, Body::List, 0, victim.shared.buffers.take(0));
        victim.sent();
        calls += 1;
        assert!(calls <= REQUESTS_MAX, "more calls than requests");
    }
    pulse.leave();
}

#[test]
fn a_peer_that_takes_no_answers_may_ask_a_bounded_number_of_times() {
    let pulse = pulse();
    let mut victim = Victim::new(&pulse, true);
    for number in 0..REQUESTS_MAX as u32 {
        victim.take(&get(number, target("open", 0), 1000)).unwrap();
    }
    assert_eq!(victim.take(&get(99, target("open", 0), 1000)), Err(FailureCause::Unexpected));
    pulse.leave();
}

#[test]
fn payloads_that_were_damaged_are_noticed_where_the_connection_does_not() {
    let pulse = pulse();
    let mut victim = Victim::new(&pulse, false);
    let right = message(0, Body::Put(target("open", 0)), &[5; 300]);
    victim.take(&right).unwrap();
    let mut damaged = right.clone();
    damaged[HEADER_BYTES + 100] ^= 1;
    assert_eq!(victim.take(&damaged), Err(FailureCause::Damaged));
    let without = Frame { number: 1, bytes: 3, checksum: None, body: Body::Put(target("open", 0)) };
    assert_eq!(victim.take(&[&without.encode()[..], &[1, 2, 3]].concat()), Err(FailureCause::Damaged));
    let mut bytes = [0; REGION_BYTES];
    victim.open.read(0, &mut bytes).unwrap();
    assert_eq!((bytes[..300].to_vec(), bytes[300]), (vec![5; 300], 0));
    pulse.leave();
}

#[test]
fn a_put_whose_notification_has_no_room_is_refused_and_writes_nothing() {
    let pulse = pulse();
    let mut victim = Victim::new(&pulse, true);
    let notice = Some(Notice { value: 1, transfer_bytes: 1 });
    let put = |number| message(number, Body::Put(Target { notice, ..target("open", 0) }), &[number as u8]);
    for number in 0..NOTIFICATIONS_MAX as u32 {
        victim.take(&put(number)).unwrap();
        assert_eq!(victim.sent(), [Body::Done { serial: 1 }]);
    }
    let full = [Body::Refused(RefusalReason::NotificationsFull)];
    let mut before = [0];
    victim.open.read(0, &mut before).unwrap();
    victim.take(&put(2222)).unwrap();
    assert_eq!(victim.sent(), full);
    let mut after = [0];
    victim.open.read(0, &mut after).unwrap();
    assert_eq!(before, after);
    assert!(victim.shared.notifications.next(Duration::ZERO).is_some());
    victim.take(&put(3333)).unwrap();
    assert_eq!(victim.sent(), [Body::Done { serial: 1 }], "there is room for one");
    pulse.leave();
}
