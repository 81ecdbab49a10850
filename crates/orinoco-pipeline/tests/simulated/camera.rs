//! A source that does what the director wants.

use std::time::Duration;

use orinoco_core::{Diagnosis, Nanos, Rng, codes};
use orinoco_pipeline::{SourceError, SourceResult};

/// A camera or a file.
pub(crate) struct Camera {
    /// Time between two frames; zero for a file, which is read as fast as it is taken.
    period: Duration,
    /// Frames until its end.
    pub(crate) frames_left: u64,
    pub(crate) mode: Mode,
    /// Since when it is in this mode.
    pub(crate) since: Nanos,
    /// When it delivers again, if it is to.
    pub(crate) back_at: Option<Nanos>,
    /// Frames that come at once.
    pub(crate) burst: u32,
    next_at: Nanos,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Delivers,
    /// It is open and says nothing.
    Silent,
    /// It cannot be reached, and is lost where it was open.
    Away,
    /// It is damaged for good.
    Damaged,
}

impl Camera {
    pub(crate) fn new(period: Duration, frames_left: u64) -> Self {
        Self {
            period,
            frames_left,
            mode: Mode::Delivers,
            since: Nanos(0),
            back_at: None,
            burst: 0,
            next_at: Nanos(0),
        }
    }

    /// When it is open or not, and which of them.
    pub(crate) fn open(&mut self, now: Nanos, rng: &mut Rng) -> (Nanos, SourceResult) {
        self.come_back(now);
        let opened = now + Duration::from_millis(rng.u64(1..300));
        self.next_at = opened + self.period;
        match self.mode {
            Mode::Delivers | Mode::Silent => (opened, SourceResult::Opened),
            Mode::Away => (now + Duration::from_millis(rng.u64(1..2000)), lost()),
            Mode::Damaged => (opened, damaged()),
        }
    }

    /// When a read ends that began `now`, and with what.
    pub(crate) fn read(
        &mut self,
        wait_max: Duration,
        has_slot: bool,
        now: Nanos,
        rng: &mut Rng,
    ) -> (Nanos, SourceResult) {
        self.come_back(now);
        let within = |rng: &mut Rng| now + wait_max.mul_f64(rng.f64());
        match self.mode {
            Mode::Silent => (now + wait_max, SourceResult::Silent),
            Mode::Away => (within(rng), lost()),
            Mode::Damaged => (within(rng), damaged()),
            Mode::Delivers if self.frames_left == 0 => (within(rng), SourceResult::End),
            Mode::Delivers if !has_slot => (within(rng), SourceResult::Waited),
            Mode::Delivers if self.burst > 0 => {
                self.burst -= 1;
                (now, self.frame(0))
            }
            Mode::Delivers if self.period.is_zero() => {
                (now + Duration::from_micros(rng.u64(500..20_000)), self.frame(0))
            }
            Mode::Delivers if self.next_at > now + wait_max => (now + wait_max, SourceResult::Silent),
            Mode::Delivers => {
                let (when, late) = (self.next_at.max(now), now.since(self.next_at));
                let lost = u64::try_from(late.as_nanos() / self.period.as_nanos()).expect("a short time");
                self.next_at = when + self.period;
                (when, self.frame(lost))
            }
        }
    }

    fn come_back(&mut self, now: Nanos) {
        if let Some(back_at) = self.back_at.take_if(|back_at| *back_at <= now) {
            (self.mode, self.since) = (Mode::Delivers, back_at);
        }
    }

    fn frame(&mut self, lost: u64) -> SourceResult {
        self.frames_left -= 1;
        SourceResult::Frame { lost }
    }
}

fn lost() -> SourceResult {
    SourceResult::Failed(SourceError::Transient(fault("the connection is lost")))
}

fn damaged() -> SourceResult {
    SourceResult::Failed(SourceError::Permanent(fault("the file is damaged")))
}

fn fault(cause: &str) -> Diagnosis {
    Diagnosis::new(&codes::SOURCE_UNREACHABLE, "camera", cause, "nothing")
}
