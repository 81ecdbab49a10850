//! Limits of this machine: the least time that any operation takes.

use std::time::Duration;

use super::segment::{Piece, SLOT_BYTES};
use super::wait::{Awaited, raise};
use super::{Call, CollectiveError, ShmGroup};
use crate::Communicator;
use crate::call::Operation;
use crate::clock::Ticks;

/// Exchanges that are timed, after a tenth as many that are not.
const EXCHANGES: u32 = 2_000;
/// Copies that are timed.
const COPIES: usize = 200;

/// Limits of a transport: what it does without this library.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Median time of the shortest exchange. In shared memory every rank raises a flag and sees those of all others.
    pub exchange: Duration,
    /// Bytes per second, at the median, that a rank receives. In shared memory it copies what another has just written.
    pub bytes_per_second: f64,
}

impl ShmGroup {
    /// Measures the limits. All ranks must call it; each gets the figures of the slowest rank.
    ///
    /// # Errors
    /// See [`ShmGroup`].
    pub fn measure_limits(&mut self) -> Result<Limits, CollectiveError> {
        let mut slowest = [self.exchange_seconds()?, self.copy_seconds()?];
        self.all_reduce(crate::ReduceOp::Max, &mut slowest)?;
        let [exchange, copy] = slowest;
        let bytes_per_second = SLOT_BYTES as f64 / copy.max(f64::MIN_POSITIVE);
        Ok(Limits { exchange: Duration::from_secs_f64(exchange), bytes_per_second })
    }

    fn exchange_seconds(&mut self) -> Result<f64, CollectiveError> {
        let call = Call::new(Operation::Barrier, None, None, 0, 0);
        let mut times = Vec::new();
        for round in 0..EXCHANGES + EXCHANGES / 10 {
            // As a measured operation: timed after a barrier of the same kind.
            self.exchange_flags(call)?;
            let start = Ticks::now();
            self.exchange_flags(call)?;
            if round >= EXCHANGES / 10 {
                times.push(Ticks::now().since(start));
            }
        }
        Ok(median(times))
    }

    /// Raises this rank's bare flag, and waits for all others'.
    fn exchange_flags(&mut self, call: Call) -> Result<(), CollectiveError> {
        self.exchanges = self.exchanges.wrapping_add(1);
        let (segment, round) = (&*self.segment, self.exchanges);
        raise(segment.bare_line(self.rank, round), round);
        for rank in (0..self.ranks).filter(|rank| *rank != self.rank) {
            let line = segment.bare_line(rank, round);
            self.waiting.wait(&Awaited { segment, rank, line, pieces: round, call, operation: None })?;
        }
        Ok(())
    }

    fn copy_seconds(&mut self) -> Result<f64, CollectiveError> {
        let next = (self.rank + 1) % self.ranks;
        let mut copy = vec![0u8; SLOT_BYTES];
        let mut times = Vec::new();
        for round in 0..COPIES {
            // Between two barriers nobody publishes, so all slots are free for this.
            self.barrier()?;
            let slot = Piece::Slot { number: 0 };
            self.segment.write::<u8>(self.rank, slot, SLOT_BYTES).fill(round as u8);
            self.barrier()?;
            let start = Ticks::now();
            copy.copy_from_slice(self.segment.read(next, slot, SLOT_BYTES));
            times.push(Ticks::now().since(start));
            std::hint::black_box(&copy);
        }
        Ok(median(times))
    }
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64()
}
