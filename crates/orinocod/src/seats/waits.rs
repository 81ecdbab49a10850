//! Waits of this board for the answers of other seats, which show the one that is slow.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use orinoco_api::SeatAnswers;
use orinoco_core::Nanos;
use orinoco_telemetry::{Metric, MetricKind, MetricValue};

/// Waits by name of the seat, since the daemon has started.
#[derive(Default)]
pub(crate) struct Waits(Mutex<BTreeMap<String, Wait>>);

#[derive(Clone, Copy, Default)]
struct Wait {
    answers: u64,
    total_ns: u64,
    longest_ns: u64,
    lost: u64,
}

impl Waits {
    /// A seat has answered.
    pub(super) fn answered(&self, seat: &str, start: Nanos, end: Nanos) {
        let waited = end.0.saturating_sub(start.0);
        self.update(seat, |wait| {
            wait.answers += 1;
            wait.total_ns += waited;
            wait.longest_ns = wait.longest_ns.max(waited);
        });
    }

    /// The connection to a seat was lost.
    pub(super) fn lost(&self, seat: &str) {
        self.update(seat, |wait| wait.lost += 1);
    }

    /// Returns the waits for a seat; `None` if there were none.
    pub(crate) fn of(&self, seat: &str) -> Option<SeatAnswers> {
        self.lock().get(seat).map(|wait| SeatAnswers {
            count: wait.answers,
            mean_ms: (wait.answers > 0).then(|| wait.total_ns as f64 / wait.answers as f64 / 1e6),
            longest_ms: (wait.answers > 0).then(|| wait.longest_ns as f64 / 1e6),
            lost_connections: wait.lost,
        })
    }

    /// Returns the waits as metrics: none where no other seat executes models for this board.
    pub(crate) fn metrics(&self) -> Vec<Metric> {
        let waits = self.lock();
        if waits.is_empty() {
            return Vec::new();
        }
        let counter = |name, help| Metric::new(name, MetricKind::Counter, help);
        let mut answers = counter(
            "orinoco_seat_answers_total",
            "Answers of another board that executes models for this one.",
        );
        let mut total =
            counter("orinoco_seat_wait_seconds_total", "Time for which this board waited for those answers.");
        let mut lost = counter(
            "orinoco_seat_lost_connections_total",
            "Connections to another board that were lost while it executed models for this one.",
        );
        let mut longest = Metric::new(
            "orinoco_seat_longest_wait_seconds",
            MetricKind::Gauge,
            "Longest wait for an answer of another board.",
        );
        for (seat, wait) in &*waits {
            let seat = [("seat", seat.as_str())];
            answers.add(&seat, MetricValue::Number(wait.answers as f64));
            total.add(&seat, MetricValue::Number(wait.total_ns as f64 / 1e9));
            lost.add(&seat, MetricValue::Number(wait.lost as f64));
            longest.add(&seat, MetricValue::Number(wait.longest_ns as f64 / 1e9));
        }
        vec![answers, total, lost, longest]
    }

    fn update(&self, seat: &str, update: impl FnOnce(&mut Wait)) {
        update(self.lock().entry(seat.to_owned()).or_default());
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Wait>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slow_seat_is_seen() {
        let waits = Waits::default();
        assert!(waits.of("north").is_none() && waits.metrics().is_empty());
        for (seat, waited_ms) in [("north", 10), ("north", 30), ("south", 2)] {
            waits.answered(seat, Nanos(5_000_000), Nanos(5_000_000 + waited_ms * 1_000_000));
        }
        waits.lost("south");
        waits.lost("west");
        let of = |seat| waits.of(seat).unwrap();
        assert_eq!(
            (of("north").count, of("north").mean_ms, of("north").longest_ms),
            (2, Some(20.0), Some(30.0))
        );
        assert_eq!((of("south").count, of("south").lost_connections), (1, 1));
        assert_eq!((of("west").mean_ms, of("west").lost_connections), (None, 1), "it never answered");
        let metrics = waits.metrics();
        assert_eq!(metrics[1].series[0].labels, [("seat", "north".to_owned())]);
        assert_eq!(metrics[1].series[0].value, MetricValue::Number(0.04));
        assert!(metrics.iter().all(|metric| metric.series.len() == 3));
    }
}
