//! Latency and throughput: inferences without pauses, of several models in turns.

use std::time::Duration;

use orinoco_api::{BatchThroughput, Latency, StageSummary};
use orinoco_core::{Clock, Diagnosis};
use orinoco_pipeline::StageTimes;

use super::subject::Subject;

/// Number of turns of each subject. Their order is reversed from round to round (ABBA), so that a machine that becomes slower
/// or warmer slows all subjects alike.
const ROUNDS: u32 = 4;
/// Maximum number of inferences that are kept of one subject: at 32 bytes each, 32 MiB.
const SAMPLES_MAX: usize = 1 << 20;
/// Stages of an inference.
const STAGES: [&str; 3] = ["preprocess", "infer", "postprocess"];

/// Throughput of one subject, with the reason why larger batches are missing.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Throughput {
    /// By batch size.
    pub(super) batches: Vec<BatchThroughput>,
    /// Reason why there are no larger batches.
    pub(super) limit: Option<String>,
}

/// Times of inferences, in nanoseconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Samples {
    total: Vec<u64>,
    stages: [Vec<u64>; 3],
    /// Time in which they were executed.
    elapsed: Duration,
}

impl Samples {
    fn add(&mut self, times: &StageTimes) {
        let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.total.push(nanos(times.postprocess.end().since(times.preprocess.start())));
        for (stage, (_, span)) in self.stages.iter_mut().zip(times.stages()) {
            stage.push(nanos(span.duration()));
        }
    }

    /// Returns the percentiles of the whole inference and of its stages.
    pub(super) fn latency(&self) -> Latency {
        let [p50, p90, p99, p999, max] = percentiles(&self.total);
        let stages = STAGES.iter().zip(&self.stages).map(|(stage, nanos)| {
            let [p50_us, p90_us, p99_us, p999_us, max_us] = percentiles(nanos);
            let count = nanos.len() as u64;
            StageSummary { stage: (*stage).to_owned(), count, p50_us, p90_us, p99_us, p999_us, max_us }
        });
        Latency { count: self.total.len() as u64, p50, p90, p99, p999, max, stages: stages.collect() }
    }

    /// Returns the throughput of batches of `batch` images.
    pub(super) fn throughput(&self, batch: usize) -> BatchThroughput {
        let inferences = self.total.len();
        let images = (inferences * batch) as f64;
        let seconds = self.elapsed.as_secs_f64();
        BatchThroughput {
            batch,
            inferences: inferences as u64,
            images_per_s: if seconds > 0.0 { images / seconds } else { 0.0 },
            p50_us: percentiles(&self.total)[0],
        }
    }
}

/// Executes all subjects in turns, each for `seconds` in total and at least once a turn.
pub(super) fn measure(
    subjects: &mut [Subject],
    seconds: Duration,
    clock: &dyn Clock,
) -> Result<Vec<Samples>, Diagnosis> {
    let mut samples = vec![Samples::default(); subjects.len()];
    for subject in turns(subjects.len(), ROUNDS) {
        let (start, own) = (clock.now(), &mut samples[subject]);
        let until = start + seconds / ROUNDS;
        loop {
            own.add(&subjects[subject].execute()?);
            let now = clock.now();
            if now >= until || own.total.len() >= SAMPLES_MAX {
                own.elapsed += now.since(start);
                break;
            }
        }
    }
    Ok(samples)
}

/// Returns the order of the subjects: first to last, last to first, and so on.
fn turns(subjects: usize, rounds: u32) -> Vec<usize> {
    let round = |round: u32| -> Vec<usize> {
        let order = 0..subjects;
        if round.is_multiple_of(2) { order.collect() } else { order.rev().collect() }
    };
    (0..rounds).flat_map(round).collect()
}

/// Returns the 50th, 90th, 99th and 99.9th percentile and the maximum, in microseconds: of each the smallest time that so
/// many per cent of the times do not exceed (nearest rank). All are 0 where there are no times.
fn percentiles(nanos: &[u64]) -> [f64; 5] {
    let mut sorted = nanos.to_vec();
    sorted.sort_unstable();
    // In tenths of a per cent, so that ranks are exact.
    [500, 900, 990, 999, 1000].map(|tenths| {
        let rank = (sorted.len() * tenths).div_ceil(1000).max(1);
        sorted.get(rank - 1).map_or(0.0, |nanos| *nanos as f64 / 1e3)
    })
}

#[cfg(test)]
mod tests {
    use orinoco_core::{Nanos, TimeSpan};

    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let thousand: Vec<u64> = (1..=1000).rev().map(|us| us * 1000).collect();
        assert_eq!(percentiles(&thousand), [500.0, 900.0, 990.0, 999.0, 1000.0]);
        assert_eq!(percentiles(&[7_000, 9_000, 8_000]), [8.0, 9.0, 9.0, 9.0, 9.0]);
        assert_eq!(percentiles(&[1_500]), [1.5; 5]);
        assert_eq!(percentiles(&[]), [0.0; 5]);
    }

    #[test]
    fn turns_are_reversed_from_round_to_round() {
        assert_eq!(turns(2, 4), [0, 1, 1, 0, 0, 1, 1, 0]);
        assert_eq!(turns(1, 2), [0, 0]);
    }

    #[test]
    fn stages_and_throughput_are_of_the_whole_batch() {
        let span = |from: u64, to: u64| TimeSpan::new(Nanos(from * 1000), Nanos(to * 1000));
        let mut samples = Samples { elapsed: Duration::from_millis(10), ..Samples::default() };
        for _ in 0..4 {
            samples.add(&StageTimes {
                preprocess: span(10, 110),
                infer: span(110, 2010),
                postprocess: span(2010, 2030),
                ..StageTimes::default()
            });
        }
        let latency = samples.latency();
        assert_eq!((latency.count, latency.p50, latency.max), (4, 2020.0, 2020.0));
        let stages: Vec<_> =
            latency.stages.iter().map(|stage| (stage.stage.as_str(), stage.p50_us)).collect();
        assert_eq!(stages, [("preprocess", 100.0), ("infer", 1900.0), ("postprocess", 20.0)]);
        let throughput = samples.throughput(8);
        assert_eq!((throughput.images_per_s, throughput.p50_us), (3200.0, 2020.0));
    }
}
