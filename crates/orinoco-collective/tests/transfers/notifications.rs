//! Notifications of owners.

use std::thread;
use std::time::Duration;

use orinoco_collective::Security;
use orinoco_collective::transfer::{
    Access, Notification, RefusalReason, Region, TransferError, TransferOptions,
};

use crate::{PIECE, SECURITIES, pair, usual};

const SOON: Duration = Duration::from_secs(20);
/// Most notifications that an owner has.
const KEPT: u64 = 1024;

fn notifying(value: u64) -> TransferOptions {
    TransferOptions { notify: Some(value), ..usual() }
}

#[test]
fn owners_are_notified_of_puts_and_gets_in_their_order() {
    for security in &SECURITIES {
        let [owner, other] = pair(security);
        let len = 3 * PIECE + 1;
        let region = owner.register("slots", Region::host(4 * PIECE), Access::ReadWrite).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                for value in 1..=50 {
                    other.put(0, "slots", 5, &vec![value as u8; len], notifying(value)).unwrap();
                    other.get(0, "slots", value, &mut [0; 10], notifying(u64::MAX - value)).unwrap();
                    other.put(0, "slots", 0, &[], usual()).unwrap();
                }
                other.put(0, "slots", 9, &[], notifying(0)).unwrap();
            });
            let next = || owner.next_notification(SOON).expect("a notification");
            let of = |offset, bytes, value| Notification {
                from: 1,
                region: "slots".to_owned(),
                offset,
                bytes,
                value,
            };
            for value in 1..=50 {
                assert_eq!(next(), of(5, len as u64, value));
                if value == 50 {
                    let mut content = vec![0; len];
                    region.read(5, &mut content).unwrap();
                    assert!(content.iter().all(|byte| *byte == 50), "all is there when it is notified");
                }
                assert_eq!(next(), of(value, 10, u64::MAX - value));
            }
            assert_eq!(next(), of(9, 0, 0));
        });
        assert_eq!(owner.next_notification(Duration::from_millis(20)), None);
        assert_eq!(other.next_notification(Duration::ZERO), None);
    }
}

#[test]
fn a_full_queue_refuses_transfers_and_drops_nothing() {
    let [owner, other] = pair(&Security::Plaintext);
    let region = owner.register("slots", Region::host(1), Access::ReadWrite).unwrap();
    for value in 0..KEPT {
        other.put(0, "slots", 0, &[1], notifying(value)).unwrap();
    }
    let error = other.put(0, "slots", 0, &[2], notifying(KEPT)).unwrap_err();
    let is_full =
        matches!(error, TransferError::Refused { rank: 0, why: RefusalReason::NotificationsFull, .. });
    assert!(is_full, "{error}");
    let mut byte = [0];
    region.read(0, &mut byte).unwrap();
    assert_eq!(byte, [1], "it was not written");
    other.put(0, "slots", 0, &[3], usual()).expect("without a notification there is room");
    assert_eq!(owner.next_notification(SOON).unwrap().value, 0);
    other.put(0, "slots", 0, &[4], notifying(KEPT)).expect("there is room for one");
    for value in 1..=KEPT {
        assert_eq!(owner.next_notification(SOON).unwrap().value, value);
    }
    assert_eq!(owner.next_notification(Duration::ZERO), None);
}

/// Several threads wait, and each notification wakes one.
#[test]
fn each_notification_is_taken_once() {
    let [owner, other] = pair(&Security::Plaintext);
    let region = owner.register("slots", Region::host(1), Access::Write).unwrap();
    let mut taken: Vec<u64> = thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let next = || owner.next_notification(SOON).map(|notification| notification.value);
                    (0..50).map(|_| next().expect("one for each")).collect::<Vec<_>>()
                })
            })
            .collect();
        (0..200).for_each(|value| other.put(0, "slots", 0, &[1], notifying(value)).unwrap());
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    taken.sort_unstable();
    assert!(taken.into_iter().eq(0..200));
    drop(region);
}
