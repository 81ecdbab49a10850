//! What the shells wait at: signals, requests to stop, free slots.

use std::sync::Arc;
use std::time::Duration;

use orinoco_core::{Clock, Nanos, StreamId};

use super::check;
use super::frames::clock;
use crate::sync::{Mutex, join, spawn};
use crate::{SlotPool, Stop};

/// Two threads hand a number to and fro, each woken by the other.
#[test]
fn no_notification_is_lost() {
    check(|| {
        let turn = Arc::new(Mutex::new(0));
        let signals = [clock().signal(), clock().signal()];
        let threads = [0, 1].map(|me| {
            let (turn, signals) = (Arc::clone(&turn), signals.clone());
            spawn(move || {
                for round in 0..3 {
                    while *turn.lock().expect("not poisoned") != 2 * round + me {
                        signals[me].wait(None);
                    }
                    *turn.lock().expect("not poisoned") += 1;
                    signals[1 - me].notify();
                }
            })
        });
        threads.into_iter().for_each(join);
    });
}

#[test]
fn a_wait_ends_at_its_time_or_at_a_notification() {
    check(|| {
        let clock = clock();
        let signal = clock.signal();
        let waiter = spawn({
            let (clock, signal) = (clock.clone(), signal.clone());
            move || {
                signal.wait(None);
                let until = clock.now() + Duration::from_secs(3600);
                signal.wait(Some(until));
                assert!(clock.now() >= until, "nobody notified it again");
            }
        });
        signal.notify();
        join(waiter);
    });
}

#[test]
fn a_request_to_stop_ends_every_sleep_that_it_is_meant_for() {
    check(|| {
        let (stop, clock) = (Stop::default(), clock());
        let sleep = |stop: Stop, wait| {
            let clock: Arc<dyn Clock> = clock.clone();
            spawn(move || (stop.sleep(&*clock, wait), clock.now()))
        };
        let day = Duration::from_secs(86_400);
        let sleepers = [sleep(stop.clone(), day), sleep(stop.of(StreamId(0)), day)];
        let other = sleep(stop.of(StreamId(1)), Duration::from_millis(1));
        let request = spawn({
            let stop = stop.clone();
            move || {
                stop.of(StreamId(0)).request();
                stop.request();
            }
        });
        for (stopped, now) in sleepers.map(join) {
            assert!(stopped && now < Nanos(0) + day, "at {now:?}");
        }
        // The request for all comes before its time has passed, or after.
        join(other);
        join(request);
    });
}

#[test]
fn every_slot_comes_back_to_the_thread_that_waits_for_it() {
    check(|| {
        const SLOTS: usize = 2;
        let (lend, lent) = shuttle::sync::mpsc::channel();
        let taker = spawn(move || {
            let (pool, clock) = (SlotPool::new(SLOTS, 1), clock());
            let day = Duration::from_secs(86_400);
            for _ in 0..3 * SLOTS {
                lend.send(pool.take(day, &*clock).expect("slots come back")).expect("it listens");
            }
            drop(lend);
            // Some may still be out: then all of them come within the wait.
            let all: Vec<_> = (0..SLOTS).filter_map(|_| pool.take(day, &*clock)).collect();
            assert_eq!(all.len(), SLOTS);
        });
        let holder = spawn(move || lent.iter().for_each(drop));
        join(taker);
        join(holder);
    });
}

#[test]
fn a_pool_may_go_before_its_slots() {
    check(|| {
        let pool = SlotPool::new(1, 1);
        let slot = pool.try_take().expect("it is free");
        let holder = spawn(move || drop(slot));
        let taker = spawn(move || drop(pool.take(Duration::from_millis(1), &*clock())));
        join(holder);
        join(taker);
    });
}
