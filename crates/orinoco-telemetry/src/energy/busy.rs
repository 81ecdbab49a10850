//! Busy times: which model kept which unit busy, at which stage, and when.

use std::collections::VecDeque;
use std::time::Duration;

use orinoco_core::{ComputeUnit, ModelId, Nanos, TimeSpan};

use super::sensor::{Kernel, Sensor};
use crate::{BatchRecord, Stage};

/// Most spans that wait for the readings that see them. At 1,000 batches a second with five spans each they are 3 s. Where
/// readings wait longer for slow batches, they are attributed before spans are lost.
const SPANS_MAX: usize = 16_384;

/// Step of the sensor's clock over which the effect of the clock on a busy share is taken, as a part of its tolerance. It is
/// small, so that the mean of the two ends is the share by the nominal clock.
const CLOCK_STEP: f64 = 0.01;

/// Model, stage and unit: the work that the regression tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) model: ModelId,
    pub(super) stage: Stage,
    pub(super) unit: ComputeUnit,
}

impl Key {
    pub(super) fn of(record: &BatchRecord) -> Self {
        Self { model: record.model, stage: record.stage, unit: record.unit }
    }
}

/// Busy time of one [`Key`], and number of its images.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    /// `None` for the place that all share for whom there was no other.
    pub(super) key: Option<Key>,
    pub(super) busy: Duration,
    pub(super) items: u64,
    spans: u32,
}

/// Columns, and the latest spans of each.
#[derive(Clone, Debug)]
pub(super) struct BusyTimes {
    /// Views of a reading if the sensor's clock is fast, and if it is slow, by `clock_step`.
    kernels: [Kernel; 2],
    clock_step: f64,
    clock_tolerance: f64,
    reach: Duration,
    columns_max: usize,
    columns: Vec<Column>,
    /// Sorted by end.
    spans: VecDeque<(TimeSpan, usize)>,
    longest: Duration,
    /// Time before which spans are unknown.
    unknown_until: Nanos,
}

impl BusyTimes {
    pub(super) fn new(sensor: &Sensor, columns_max: usize, start: Nanos) -> Self {
        let clock_step = CLOCK_STEP * sensor.clock_tolerance;
        let kernels = [-clock_step, clock_step].map(|step| Kernel::new(sensor, 1.0 + step));
        Self {
            reach: kernels[1].reach(),
            kernels,
            clock_step,
            clock_tolerance: sensor.clock_tolerance,
            columns_max,
            columns: Vec::with_capacity(columns_max + 1),
            spans: VecDeque::with_capacity(SPANS_MAX),
            longest: Duration::ZERO,
            unknown_until: start,
        }
    }

    /// Returns the time within which the readings do not show what happened when: the width of the sensor's average, or the
    /// mean duration of the longest stage.
    pub(super) fn resolution(&self) -> Duration {
        let stages = self.columns.iter().map(|column| column.busy / column.spans.max(1));
        stages.fold(self.kernels[1].width(), Duration::max)
    }

    pub(super) fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Forgets all columns and spans; what was before `at` is unknown.
    pub(super) fn restart(&mut self, at: Nanos) {
        self.columns.clear();
        self.spans.clear();
        self.longest = Duration::ZERO;
        self.unknown_until = at;
    }

    /// Returns the column of a key, which is created if there is none. The last place is shared by all who come when the
    /// others are taken.
    pub(super) fn column(&mut self, key: Key) -> usize {
        if let Some(at) = self.columns.iter().position(|column| column.key == Some(key)) {
            return at;
        }
        let is_full = self.columns.len() >= self.columns_max;
        if self.columns.len() <= self.columns_max {
            let key = (!is_full).then_some(key);
            self.columns.push(Column { key, busy: Duration::ZERO, items: 0, spans: 0 });
        }
        self.columns.len() - 1
    }

    /// Returns whether a key would have to share its place with others.
    pub(super) fn lacks_column(&self, key: Key) -> bool {
        self.columns.len() >= self.columns_max && self.columns.iter().all(|column| column.key != Some(key))
    }

    /// Returns the time up to which readings see the oldest span, if it must go when another is added.
    pub(super) fn seen_until_if_full(&self) -> Option<Nanos> {
        let (oldest, _) = self.spans.front().filter(|_| self.spans.len() >= SPANS_MAX)?;
        Some(oldest.end() + self.reach)
    }

    /// Adds a span of work on `items` images.
    pub(super) fn add(&mut self, column: usize, span: TimeSpan, items: u32) {
        let of_column = &mut self.columns[column];
        of_column.busy += span.duration();
        of_column.items += u64::from(items);
        of_column.spans = of_column.spans.saturating_add(1);
        if self.spans.len() == SPANS_MAX
            && let Some((lost, _)) = self.spans.pop_front()
        {
            self.unknown_until = self.unknown_until.max(lost.end());
        }
        self.longest = self.longest.max(span.duration());
        // Spans come nearly in the order of their ends.
        let later = self.spans.iter().rev().take_while(|(other, _)| other.end() > span.end()).count();
        self.spans.insert(self.spans.len() - later, (span, column));
    }

    /// Writes two numbers for each column to `shares`: its share in a reading, and by how much the share changes with the
    /// relative error of the sensor's clock. Readings come in the order of their times: spans that no later reading sees are
    /// removed. Returns whether all spans of the reading are known.
    pub(super) fn shares(&mut self, at: Nanos, shares: &mut Vec<f64>) -> bool {
        let oldest = at - self.reach;
        while self.spans.front().is_some_and(|(span, _)| span.end() < oldest) {
            self.spans.pop_front();
        }
        shares.clear();
        shares.resize(2 * self.columns.len(), 0.0);
        let last_end = at + self.longest;
        for &(span, column) in self.spans.iter().take_while(|(span, _)| span.end() <= last_end) {
            if span.start() < at {
                let [fast, slow] = [0, 1].map(|clock| self.kernels[clock].weight(at, span));
                shares[2 * column] += 0.5 * (fast + slow);
                if self.clock_step > 0.0 {
                    shares[2 * column + 1] += (slow - fast) / (2.0 * self.clock_step);
                }
            }
        }
        // Shares that differ by rounding only must not look like a change.
        shares.iter_mut().for_each(|share| *share = (*share * 1e9).round() * 1e-9);
        oldest >= self.unknown_until
    }

    /// Returns the standard deviation of the sensor's relative clock error before anything is measured: it lies uniformly
    /// within its tolerance.
    pub(super) fn clock_deviation(&self) -> f64 {
        self.clock_tolerance / 3_f64.sqrt()
    }
}
