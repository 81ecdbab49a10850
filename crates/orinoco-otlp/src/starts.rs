//! Times from which cumulative series count.

use std::collections::BTreeMap;

use orinoco_core::Nanos;

/// Series of a metric: its name and its labels.
type Key = (&'static str, Vec<(&'static str, String)>);

/// Start times of the counters and histograms of a run. A stream that leaves and joins again counts from 0 again, which a receiver
/// can only tell from a new start time.
#[derive(Debug)]
pub(crate) struct Starts {
    /// Time before which no series of the present reading existed: the start of the run, then the previous reading.
    absent_at: Nanos,
    series: BTreeMap<Key, Counting>,
}

/// A series that counts.
#[derive(Clone, Copy, Debug)]
struct Counting {
    start: Nanos,
    value: f64,
    /// Whether the series is in the present reading.
    is_present: bool,
}

impl Starts {
    /// Creates the start times of a run that started at `run`.
    pub(crate) fn new(run: Nanos) -> Self {
        Self { absent_at: run, series: BTreeMap::new() }
    }

    /// Returns the start time of a series whose value is `value` in the present reading.
    pub(crate) fn start(
        &mut self,
        name: &'static str,
        labels: &[(&'static str, String)],
        value: f64,
    ) -> Nanos {
        let absent_at = self.absent_at;
        let new = Counting { start: absent_at, value, is_present: true };
        let entry = self.series.entry((name, labels.to_vec()));
        let counting = entry.and_modify(|known| *known = known.at(value, absent_at)).or_insert(new);
        counting.start
    }

    /// Ends the reading at `now`: series that were not in it have ended.
    pub(crate) fn finish(&mut self, now: Nanos) {
        self.series.retain(|_, counting| std::mem::take(&mut counting.is_present));
        self.absent_at = now;
    }
}

impl Counting {
    fn at(self, value: f64, absent_at: Nanos) -> Self {
        let start = if value < self.value { absent_at } else { self.start };
        Self { start, value, is_present: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_counts_from_when_it_was_not_there_or_fell() {
        let mut starts = Starts::new(Nanos(5));
        let gate = [("stream", "gate".to_owned())];
        let mut read = |now: u64, gate_value: Option<f64>| {
            let total = starts.start("frames", &[], now as f64);
            let of_gate = gate_value.map(|value| starts.start("frames", &gate, value).0);
            starts.finish(Nanos(now));
            (total.0, of_gate)
        };
        assert_eq!(read(10, None), (5, None));
        assert_eq!(read(20, Some(3.0)), (5, Some(10)), "it was not there at 10");
        assert_eq!(read(30, Some(4.0)), (5, Some(10)));
        assert_eq!(read(40, Some(1.0)), (5, Some(30)), "another one of its name");
        assert_eq!(read(50, None), (5, None));
        assert_eq!(read(60, Some(9.0)), (5, Some(50)), "it came back");
        assert_eq!(starts.series.len(), 2);
    }
}
