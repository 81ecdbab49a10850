//! Threads that send, and one that receives.

use std::time::Duration;

use super::check;
use super::frames::clock;
use crate::channel;
use crate::sync::{join, spawn};

#[test]
fn every_item_of_every_sender_arrives_once() {
    check(|| {
        let (sender, receiver) = channel(1, clock());
        let other = sender.clone();
        let senders = [(sender, 0), (other, 10)].map(|(sender, first)| {
            spawn(move || (first..first + 3).for_each(|item| sender.send(item).expect("it is received")))
        });
        let receiver = spawn(move || {
            let clock = clock();
            let until = clock.now() + Duration::from_secs(3600);
            let mut items: Vec<_> = std::iter::from_fn(|| receiver.receive(Some(until)).ok()).collect();
            items.sort_unstable();
            items
        });
        senders.into_iter().for_each(join);
        assert_eq!(join(receiver), [0, 1, 2, 10, 11, 12]);
    });
}

#[test]
fn senders_do_not_wait_for_a_receiver_that_is_gone() {
    check(|| {
        let (sender, receiver) = channel(1, clock());
        let other = sender.clone();
        let senders =
            [sender, other].map(|sender| spawn(move || (0..3).all(|item| sender.send(item).is_ok())));
        let receiver = spawn(move || _ = receiver.receive(None));
        let sent = senders.map(join);
        join(receiver);
        assert!(sent.contains(&false), "one of them waits for room at the end");
    });
}
