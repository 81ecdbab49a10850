//! The queue's thread and those who wait for it under shuttle: they run one at a time, in an order that a seed decides
//! (`cargo xtask shuttle`). A wait that nobody ends is a deadlock to shuttle, and fails the test.

use std::sync::Arc;

use orinoco_sim::check_orders;
use shuttle::thread;

use super::{Pending, Queue};
use crate::call::Operation;
use crate::{Call, CollectiveError};

/// Stands in for a communicator: the operations that have run on it.
type Log = Vec<usize>;

/// Starts an operation that notes its number, and returns all that have run before it.
fn start(queue: &Queue<Log>, number: usize) -> Pending<Log> {
    queue.start(move |log| {
        log.push(number);
        Ok(log.clone())
    })
}

#[test]
fn operations_run_in_their_order_and_whoever_waits_is_woken() {
    check_orders(|| {
        let queue = Queue::new(Log::new()).unwrap();
        let pending: Vec<_> = (0..3).map(|number| start(&queue, number)).collect();
        // They are waited for on another thread, the last one first.
        let waiter = thread::spawn(move || {
            pending.into_iter().rev().map(|pending| pending.wait().unwrap()).collect::<Vec<_>>()
        });
        let later = start(&queue, 3);
        assert_eq!(later.wait().unwrap(), [0, 1, 2, 3]);
        assert_eq!(waiter.join().unwrap(), [vec![0, 1, 2], vec![0, 1], vec![0]]);
    });
}

#[test]
fn a_queue_that_is_dropped_has_run_everything() {
    check_orders(|| {
        let queue = Queue::new(Log::new()).unwrap();
        let pending = Arc::new(start(&queue, 0));
        let seen = Arc::clone(&pending);
        let failed = queue.start(|_| Err::<(), _>(wrong_length()));
        let looker = thread::spawn(move || seen.is_done());
        drop(queue);
        assert!(pending.is_done());
        looker.join().unwrap();
        assert!(failed.wait().is_err());
    });
}

fn wrong_length() -> CollectiveError {
    let call = Call::new(Operation::Barrier, None, None, 0, 0);
    CollectiveError::Length { what: "the input", len: 1, expected: 2, call }
}
