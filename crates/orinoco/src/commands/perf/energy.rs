//! Energy of a collective operation. All ranks work in bursts and pause together, as rank 0 says; one process of each board reads
//! its rails meanwhile. The figures of the boards are added up.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use orinoco_api::{Measured, PerfEnergy, Uncertain};
use orinoco_board::Detection;
use orinoco_board::readers::Sensors;
use orinoco_collective::{CollectiveError, Communicator, ReduceOp};
use orinoco_core::{Clock, ComputeUnit, Nanos, TimeSpan};
use orinoco_pipeline::MonotonicClock;
use orinoco_sysroot::Sysroot;
use orinoco_telemetry::BatchRecord;

use super::operation::{Number, Operation, Reduction, Vectors};
use crate::commands::energy::{
    BATCH_SPAN, LoadPlan, Measurement, Meter, SETTLE, Step, batch, measure, plan, reason_text, wait_until,
};

/// Sensors of the board of this rank, if it is the rank that reads them.
pub(super) struct Board {
    clock: Arc<dyn Clock>,
    busy: Duration,
    sensors: Option<(Sensors, Detection)>,
}

/// The operation whose energy is measured.
pub(super) struct Call<'a, T: Number> {
    pub(super) operation: Operation,
    pub(super) reduction: Reduction,
    pub(super) vectors: &'a mut Vectors<T>,
    /// Bytes of a call, as its bandwidth counts them.
    pub(super) bytes: usize,
    /// Seconds of a call.
    pub(super) seconds: f64,
}

/// Part of the measurement, which rank 0 announces to all.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Part {
    /// Do nothing for this time.
    Pause(Duration),
    /// Call the operation once more as often as one span takes.
    Work,
    /// The measurement is over.
    End,
}

impl Part {
    /// Returns the part as numbers that can be broadcast.
    fn to_words(self) -> [u64; 2] {
        match self {
            Self::Pause(time) => [0, time.as_nanos() as u64],
            Self::Work => [1, 0],
            Self::End => [2, 0],
        }
    }

    fn from_words([kind, nanos]: [u64; 2]) -> Self {
        match kind {
            0 => Self::Pause(Duration::from_nanos(nanos)),
            1 => Self::Work,
            _ => Self::End,
        }
    }
}

impl Board {
    /// Finds the sensors of this board in `sysroot` if this rank `reads` them. Each size takes `busy` of work, as much idle time, and
    /// pauses.
    pub(super) fn find(sysroot: Sysroot, reads: bool, busy: Duration) -> Self {
        let sensors = reads.then(|| (Sensors::discover(&sysroot), orinoco_board::detect(&sysroot)));
        Self { clock: Arc::new(MonotonicClock::default()), busy, sensors }
    }

    /// Measures the energy of an operation. All ranks call it, and all return the same value or reason.
    pub(super) fn measure<T: Number>(
        &mut self,
        group: &mut impl Communicator,
        call: Call<'_, T>,
    ) -> Result<Measured<PerfEnergy>, Box<dyn Error>> {
        let Self { clock, busy, sensors } = self;
        let now = clock.now();
        let meter = sensors
            .as_mut()
            .map(|(sensors, detection)| Meter::choose(sensors, detection, ComputeUnit::Cpu, now));
        let (meter, missing) = match meter.transpose() {
            Ok(meter) => (meter, None),
            Err(reason) => (None, Some(reason)),
        };
        if let Some(reason) = first_missing(group, missing)? {
            return Ok(Measured::missing(reason));
        }
        wait_until(&**clock, clock.now() + SETTLE);
        let mut burst = [meter.as_ref().map_or(0, |meter| meter.burst().as_nanos() as u64)];
        group.all_reduce(ReduceOp::Max, &mut burst)?;
        let burst = Duration::from_nanos(burst[0]);
        let plan = (group.rank() == 0).then(|| plan(clock.now(), burst, *busy, 1));
        let (calls, bytes) = (call.per_span(), call.bytes);
        let work = || follow(&mut *group, plan, call, calls, &**clock);
        let measured = match meter {
            Some(mut meter) => measure(std::slice::from_mut(&mut meter), clock, work)?.pop(),
            None => work().map(|_| None)?,
        };
        sum(group, measured.as_ref(), f64::from(calls), bytes as f64)
    }
}

impl<T: Number> Call<'_, T> {
    /// Returns the number of calls that are one span of work.
    fn per_span(&self) -> u32 {
        /// Calls of a span at most.
        const CALLS_MAX: f64 = 1e6;
        (BATCH_SPAN.as_secs_f64() / self.seconds).clamp(1.0, CALLS_MAX) as u32
    }
}

/// Returns the reason of the first rank that has one. All ranks return the same.
fn first_missing(
    group: &mut impl Communicator,
    missing: Option<String>,
) -> Result<Option<String>, CollectiveError> {
    /// Longest reason that other ranks get, in bytes.
    const REASON_BYTES: usize = 512;
    let mut first =
        [missing.as_ref().map_or(u32::MAX, |_| u32::try_from(group.rank()).expect("a few ranks"))];
    group.all_reduce(ReduceOp::Min, &mut first)?;
    if first[0] == u32::MAX {
        return Ok(None);
    }
    let root = first[0] as usize;
    let mut bytes = [0_u8; REASON_BYTES];
    if group.rank() == root {
        let text = missing.unwrap_or_default();
        let length = text.floor_char_boundary(REASON_BYTES);
        bytes[..length].copy_from_slice(&text.as_bytes()[..length]);
    }
    group.broadcast(root, &mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(Some(format!("on the board of rank {root}: {}", text.trim_end_matches('\0'))))
}

/// Does what rank 0 says until the measurement is over; rank 0 has the `plan`. Returns the spans of this rank's work, each with one
/// item, which is `calls` calls.
fn follow<T: Number>(
    group: &mut impl Communicator,
    mut plan: Option<LoadPlan>,
    call: Call<'_, T>,
    calls: u32,
    clock: &dyn Clock,
) -> Result<Vec<BatchRecord>, CollectiveError> {
    let Call { operation, reduction, vectors, .. } = call;
    let (mut batches, mut burst_end) = (Vec::new(), None);
    loop {
        let next = plan.as_mut().map_or(Part::End, |plan| next_part(plan, &mut burst_end, clock.now()));
        let mut words = next.to_words();
        group.broadcast(0, &mut words)?;
        match Part::from_words(words) {
            Part::Pause(time) => wait_until(clock, clock.now() + time),
            Part::Work => {
                let start = clock.now();
                for _ in 0..calls {
                    operation.call(group, reduction, vectors)?;
                }
                batches.push(batch(0, TimeSpan::new(start, clock.now()), 1));
            }
            Part::End => return Ok(batches),
        }
    }
}

/// Returns what all ranks do next at `now`. `burst_end` is the end of the present burst.
fn next_part(plan: &mut LoadPlan, burst_end: &mut Option<Nanos>, now: Nanos) -> Part {
    if burst_end.is_some_and(|end| now < end) {
        return Part::Work;
    }
    *burst_end = None;
    match plan.next(now) {
        Step::Pause(until) => Part::Pause(until.since(now)),
        Step::Work { until, .. } => {
            *burst_end = Some(until);
            Part::Work
        }
        Step::End => Part::End,
    }
}

/// Adds up what the boards measured. An item of each is `calls` calls. All ranks return the same.
fn sum(
    group: &mut impl Communicator,
    measured: Option<&Measurement>,
    calls: f64,
    bytes: f64,
) -> Result<Measured<PerfEnergy>, Box<dyn Error>> {
    let own = measured.map(|measured| Ok((measured.per_item(0)?, measured.idle()?)));
    let (own, missing) = match own.transpose() {
        Ok(own) => (own, None),
        Err(reason) => (None, Some(reason_text(reason, "--energy=SECONDS"))),
    };
    if let Some(reason) = first_missing(group, missing)? {
        return Ok(Measured::missing(reason));
    }
    let mut figures = own.map_or([0.0; 5], |(item, idle)| {
        [item.energy.to_f64(), item.half_width.to_f64(), idle.value, idle.half_width, 1.0]
    });
    group.all_reduce(ReduceOp::Sum, &mut figures)?;
    let [energy, half_width, idle, idle_half_width, boards] = figures;
    let each = |items: f64| Uncertain { value: energy / items, half_width: half_width / items };
    Ok(Measured::Value(PerfEnergy {
        joules_per_gb: each(calls * bytes / 1e9),
        joules_per_call: each(calls),
        idle_watts: Uncertain { value: idle, half_width: idle_half_width },
        boards: boards as u64,
        rails: measured.map(Measurement::rails).unwrap_or_default(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_survive_the_broadcast() {
        for part in [Part::Pause(Duration::from_millis(417)), Part::Work, Part::End] {
            assert_eq!(Part::from_words(part.to_words()), part);
        }
    }

    #[test]
    fn ranks_work_until_a_burst_is_over() {
        let (burst, busy) = (Duration::from_millis(400), Duration::from_secs(2));
        let mut plan = plan(Nanos(0), burst, busy, 1);
        let (mut now, mut burst_end) = (Nanos(0), None);
        let (mut worked, mut paused, mut bursts) = (Duration::ZERO, Duration::ZERO, 0);
        let mut before = Part::End;
        loop {
            let part = next_part(&mut plan, &mut burst_end, now);
            let took = match part {
                Part::Pause(time) => time,
                Part::Work => Duration::from_millis(1),
                Part::End => break,
            };
            match part {
                Part::Work => worked += took,
                _ => paused += took,
            }
            bursts += u32::from(part == Part::Work && before != Part::Work);
            (now, before) = (now + took, part);
        }
        // The last call of a burst may end after it.
        let late = Duration::from_millis(1) * bursts;
        assert!(bursts > 2 && busy <= worked && worked <= busy + late, "{worked:?} in {bursts} bursts");
        assert!(paused >= busy, "the idle time is as long: {paused:?}");
    }
}
