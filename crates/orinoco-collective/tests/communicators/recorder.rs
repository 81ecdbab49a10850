//! Flight recorder: which operations a rank has called, and for whom it waited.

use std::thread;
use std::time::Duration;

use orinoco_collective::{
    FlightRecord, OperationRecord, OperationState, ReduceOp, ShmGroup, Statistics, TcpGroup,
};

use crate::{Group, Kind, Times, run};

/// A communicator with a flight recorder.
trait Recorded: Group {
    fn recent(&self) -> FlightRecord;

    fn statistics(&self) -> Statistics;
}

macro_rules! recorded {
    ($($group:ident)*; $($module:ident)*) => {
        $(impl Recorded for $group {
            fn recent(&self) -> FlightRecord {
                $group::recent(self)
            }

            fn statistics(&self) -> Statistics {
                $group::statistics(self)
            }
        })*

        $(mod $module {
            use crate::$module::KIND;

            recorded!(tests KIND [
                the_last_operations_are_recorded
                waits_for_a_rank_that_is_late_are_counted
                after_a_failure_the_record_names_the_operation_and_the_rank
                a_mismatch_is_recorded
            ]);
        })*
    };
    (tests $kind:ident [$($test:ident)*]) => {$(
        #[test]
        fn $test() {
            super::$test(&$kind);
        }
    )*};
}

recorded! {
    ShmGroup TcpGroup;
    on_shm
    on_shm_without_single_copy
    on_tcp
    on_three_tcp_connections_without_busy_poll
}

fn the_last_operations_are_recorded<G: Recorded>(kind: &Kind<G>) {
    run(kind, 2, Times::of_a_busy_machine(), |mut group| {
        let empty = group.recent();
        assert!(empty.operations.is_empty() && empty.failure.is_none(), "{empty}");
        for _ in 0..30 {
            group.all_reduce(ReduceOp::Sum, &mut [1.0f32; 2]).unwrap();
            group.all_gather_v(&[1u8], &[1, 1], &mut [0; 2]).unwrap();
            group.broadcast(1, &mut vec![0u8; 300_000]).unwrap();
        }
        match group.rank() {
            0 => group.send(1, &[5i32]).unwrap(),
            _ => group.recv(0, &mut [0i32]).unwrap(),
        }
        let record = group.recent();
        assert_eq!((record.operations.len(), group.statistics().operations), (64, 91));
        let numbers: Vec<u64> = record.operations.iter().map(|operation| operation.number).collect();
        assert_eq!(numbers, (28..=91).collect::<Vec<_>>());
        let mut before = Duration::ZERO;
        for operation in &record.operations {
            let expected = match operation.number {
                91 => "send of 1 i32 from rank 0",
                number => [
                    "broadcast of 300000 u8, root 1",
                    "all_reduce of 2 f32, sum",
                    "all_gather_v of u8, counts with the checksum",
                ][number as usize % 3],
            };
            assert!(operation.call.to_string().starts_with(expected), "{record}");
            let OperationState::Done { ended } = operation.state else { panic!("{record}") };
            assert!(before <= operation.began && operation.began <= ended, "{record}");
            before = ended;
            let of_longest = operation.longest.map_or(Duration::ZERO, |(_, time)| time);
            assert_eq!(of_longest, operation.waited, "there is only one other rank");
        }
    });
}

#[expect(clippy::disallowed_methods, reason = "a rank that is late for real")]
fn waits_for_a_rank_that_is_late_are_counted<G: Recorded>(kind: &Kind<G>) {
    run(kind, 3, Times::of_a_busy_machine(), |mut group| {
        for _ in 0..4 {
            if group.rank() == 2 {
                thread::sleep(Duration::from_millis(100));
            }
            group.all_reduce(ReduceOp::Sum, &mut [1.0f32; 4]).unwrap();
        }
        let (waits, record) = (group.statistics().waits, group.recent());
        assert_eq!(waits[group.rank()].count, 0, "a rank does not wait for itself: {record}");
        if group.rank() == 2 {
            return;
        }
        // On a busy machine any rank may be late as well, this one among them, so there is only a lower bound.
        assert!(waits[2].waited >= Duration::from_millis(50), "{record}");
        assert!(waits.iter().all(|waits| waits.longest <= waits.waited), "{record}");
        let of_ranks: Duration = waits.iter().map(|waits| waits.waited).sum();
        let of_operations: Duration = record.operations.iter().map(|operation| operation.waited).sum();
        assert_eq!(of_operations, of_ranks, "{record}");
        let names =
            |operation: &OperationRecord| operation.longest.is_some_and(|(rank, _)| rank != group.rank());
        assert!(record.operations.iter().any(names), "{record}");
    });
}

fn after_a_failure_the_record_names_the_operation_and_the_rank<G: Recorded>(kind: &Kind<G>) {
    let records = run(kind, 3, Times::of_a_busy_machine(), |mut group| {
        group.barrier().unwrap();
        if group.rank() == 1 {
            return None;
        }
        let error = group.all_reduce(ReduceOp::Sum, &mut [1.0f32; 1000]).unwrap_err();
        group.barrier().unwrap_err();
        Some((error.to_string(), group.recent()))
    });
    for (error, record) in records.into_iter().flatten() {
        assert_eq!(record.failure.as_ref(), Some(&error));
        let [first, second] = record.operations[..] else { panic!("two operations: {record}") };
        assert!(matches!(first.state, OperationState::Done { .. }), "{record}");
        assert!(matches!(second.state, OperationState::Failed { .. }), "{record}");
        let text = record.to_string();
        let said = format!(": {error}.\nDuring it, this rank waited ");
        assert!(text.contains("\nOperation 2 failed at ") && text.contains(&said), "{text}");
    }
}

fn a_mismatch_is_recorded<G: Recorded>(kind: &Kind<G>) {
    run(kind, 2, Times::of_a_busy_machine(), |mut group| {
        let error = group.all_reduce(ReduceOp::Sum, &mut vec![1.0f32; 4 + group.rank()]).unwrap_err();
        let record = group.recent();
        assert_eq!(record.failure, Some(error.to_string()));
        let own = format!("all_reduce of {} f32, sum", 4 + group.rank());
        assert_eq!(record.operations.last().expect("the call").call.to_string(), own);
    });
}
