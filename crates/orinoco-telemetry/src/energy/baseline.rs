use orinoco_core::{Nanos, Watts};

use super::quantile::Error;
use super::report::{Baseline, BaselineSource, NotMeasured};

/// Most blocks of idle readings; then pairs are merged. Few blocks are long, so that their means are nearly independent.
const BLOCKS_MAX: usize = 16;

/// Fewest blocks from which an error is estimated.
const BLOCKS_MIN: usize = 4;

/// Readings in a block at first.
const BLOCK_READINGS_MIN: u64 = 8;

/// Readings in which no lane was busy, in blocks of time, whose means tell the error and the drift.
#[derive(Clone, Debug)]
pub(super) struct IdleReadings {
    start: Nanos,
    block_readings: u64,
    blocks: Vec<Block>,
    current: Block,
}

#[derive(Clone, Copy, Debug, Default)]
struct Block {
    readings: u64,
    /// Sum of the times since the start, in hours.
    hours: f64,
    power: f64,
}

impl Block {
    fn add(&mut self, other: &Block) {
        self.readings += other.readings;
        self.hours += other.hours;
        self.power += other.power;
    }

    fn means(&self) -> (f64, f64) {
        (self.hours / self.readings as f64, self.power / self.readings as f64)
    }
}

impl IdleReadings {
    pub(super) fn new(start: Nanos) -> Self {
        let blocks = Vec::with_capacity(BLOCKS_MAX);
        Self { start, block_readings: BLOCK_READINGS_MIN, blocks, current: Block::default() }
    }

    /// Adds a reading, in watts.
    pub(super) fn add(&mut self, at: Nanos, power: f64) {
        let hours = at.since(self.start).as_secs_f64() / 3600.0;
        self.current.add(&Block { readings: 1, hours, power });
        if self.current.readings < self.block_readings {
            return;
        }
        self.blocks.push(std::mem::take(&mut self.current));
        if self.blocks.len() == BLOCKS_MAX {
            for pair in 0..BLOCKS_MAX / 2 {
                let mut merged = self.blocks[2 * pair];
                merged.add(&self.blocks[2 * pair + 1]);
                self.blocks[pair] = merged;
            }
            self.blocks.truncate(BLOCKS_MAX / 2);
            self.block_readings *= 2;
        }
    }

    /// Returns the mean power of the whole blocks, whose gain is wrong by at most `gain`, a ratio.
    pub(super) fn baseline(&self, gain: f64) -> Result<Baseline, NotMeasured> {
        let count = self.blocks.len();
        if count < BLOCKS_MIN {
            let none = count == 0 && self.current.readings == 0;
            return Err(if none { NotMeasured::NeverIdle } else { NotMeasured::TooFewReadings });
        }
        let blocks = count as f64;
        let means: Vec<(f64, f64)> = self.blocks.iter().map(Block::means).collect();
        let hour = means.iter().map(|(hour, _)| hour).sum::<f64>() / blocks;
        let power = means.iter().map(|(_, power)| power).sum::<f64>() / blocks;
        let hours_square: f64 = means.iter().map(|(at, _)| (at - hour).powi(2)).sum();
        let slope = means.iter().map(|(at, of)| (at - hour) * (of - power)).sum::<f64>() / hours_square;
        let spread: f64 = means.iter().map(|(_, of)| (of - power).powi(2)).sum();
        let residual: f64 = means.iter().map(|(at, of)| (of - power - slope * (at - hour)).powi(2)).sum();
        let of_mean = Error {
            deviation: (spread / (blocks - 1.0) / blocks).sqrt(),
            freedom: blocks - 1.0,
            range: gain * power.abs(),
        };
        let of_slope = Error {
            deviation: (residual / (blocks - 2.0) / hours_square).sqrt(),
            freedom: blocks - 2.0,
            range: gain * slope.abs(),
        };
        Ok(Baseline {
            power: Watts::from_f64(power),
            half_width: Watts::from_f64(of_mean.half_width()),
            drift_per_hour: Some((Watts::from_f64(slope), Watts::from_f64(of_slope.half_width()))),
            source: BaselineSource::IdleReadings {
                readings: self.blocks.iter().map(|block| block.readings).sum(),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use orinoco_core::Rng;

    use super::*;

    /// Returns the baseline of readings each second of 5 W, rising by `drift` W in an hour, with noise of plus and minus 0.1 W.
    fn check(readings: u64, drift: f64) -> Baseline {
        let (mut idle, mut rng) = (IdleReadings::new(Nanos(0)), Rng::with_seed(3));
        for at in 0..readings {
            let power = 5.0 + drift / 3600.0 * at as f64 + 0.2 * (rng.f64() - 0.5);
            idle.add(Nanos(at * 1_000_000_000), power);
        }
        idle.baseline(0.0).expect("enough readings")
    }

    #[test]
    fn a_drift_is_found_and_the_error_shrinks_with_the_readings() {
        let rising = check(1_000, 0.36);
        assert!((rising.power.to_f64() - 5.05).abs() < 0.01, "{rising:?}");
        let (drift, half_width) = rising.drift_per_hour.expect("measured");
        assert!(
            (drift.to_f64() - 0.36).abs() < half_width.to_f64() && half_width.to_f64() < 0.1,
            "{rising:?}"
        );
        assert!(check(1_000, 0.0).half_width.to_f64() < 0.5 * check(64, 0.0).half_width.to_f64());
    }

    #[test]
    fn without_idle_readings_there_is_no_baseline() {
        let mut idle = IdleReadings::new(Nanos(0));
        assert_eq!(idle.baseline(0.0), Err(NotMeasured::NeverIdle));
        idle.add(Nanos(1), 5.0);
        assert_eq!(idle.baseline(0.0), Err(NotMeasured::TooFewReadings));
    }
}
