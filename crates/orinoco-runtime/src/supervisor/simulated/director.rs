//! Changes and faults, at times that the seed decides.

use std::sync::mpsc::channel;
use std::time::Duration;

use orinoco_core::Nanos;
use orinoco_sim::Task;

use super::boards::{Genome, any_levels};
use super::run::{Run, Weather};
use super::threads::{fault, up_to};
use crate::action::Action;

/// Maximum time until the end of a run with faults is requested.
const RUN_MAX: Duration = Duration::from_secs(600);
/// Maximum number of boards that are requested in quick succession.
const BURST_MAX: usize = 20;
/// Maximum pause between two acts.
const PAUSE_MAX: Duration = Duration::from_secs(20);

/// Director of a run: decides what happens to it from outside.
pub(super) struct Director {
    /// Board that was requested last.
    pub(super) wanted: Genome,
    /// Time at which the end is requested; `None` if nothing happens by itself.
    end: Option<Nanos>,
    /// Number of boards of a burst that are still to come.
    burst: usize,
    pub(super) reloads: u64,
    pub(super) lanes_broken: u64,
}

impl Director {
    /// Makes a director that does nothing: only the test acts.
    pub(super) fn idle(wanted: Genome) -> Self {
        Self { wanted, end: None, burst: 0, reloads: 0, lanes_broken: 0 }
    }

    /// Makes a director that may do anything, until a stop at any moment.
    pub(super) fn busy(wanted: Genome, end: Duration) -> Self {
        Self { end: Some(Nanos(0) + end.min(RUN_MAX)), ..Self::idle(wanted) }
    }
}

impl Run<'_> {
    /// Takes one act.
    pub(super) fn step_director(&mut self, task: Task) {
        let now = self.simulator.now();
        let Some(end) = self.director.end else { return self.simulator.wait(task, None) };
        if now >= end {
            self.director.end = None;
            // A few runs end because their outputs have no reader.
            match self.weather == Weather::Rough && self.simulator.rng().u32(..8) == 0 {
                true => self.is_unread = true,
                false => self.stop(),
            }
            // The end is requested again, sooner or later.
            let later = now + up_to(self.simulator.rng(), Duration::from_secs(90));
            self.director.end = Some(later);
            return self.simulator.work(task, later);
        }
        if self.director.burst > 0 {
            self.director.burst -= 1;
            self.reload_changed();
        } else {
            self.act_by_chance();
        }
        let pause = match self.director.burst {
            0 => up_to(self.simulator.rng(), PAUSE_MAX),
            _ => up_to(self.simulator.rng(), Duration::from_millis(5)),
        };
        self.simulator.work(task, end.min(now + pause));
    }

    fn act_by_chance(&mut self) {
        let lane = self.simulator.rng().usize(..self.lanes.len());
        match self.simulator.rng().u32(..20) {
            0..8 => self.reload_changed(),
            8..10 => self.director.burst = self.simulator.rng().usize(1..=BURST_MAX),
            10..12 => self.break_lane(lane),
            12..14 => {
                let files = ["file-0", "file-1", "state-0", "state-2", "state-3", "file-objects"];
                let file = files[self.simulator.rng().usize(..files.len())];
                *self.versions.entry(file.to_owned()).or_default() += 1;
                self.simulator.note(|| format!("{file} is replaced"));
            }
            14..16 => self.send(Action::Snapshot(channel().0)),
            16 => self.reload(self.director.wanted.board()),
            17 => {
                let levels = any_levels(self.simulator.rng());
                self.choose_levels(levels);
            }
            _ => {}
        }
    }

    /// Requests a board that differs from the one that was requested last.
    pub(super) fn reload_changed(&mut self) {
        self.director.wanted = self.director.wanted.changed(self.simulator.rng());
        self.director.reloads += 1;
        self.reload(self.director.wanted.board());
    }

    /// Breaks the engine of a lane.
    pub(super) fn break_lane(&mut self, lane: usize) {
        let runs = |lane: &super::threads::Lane| lane.task.is_some() && lane.end.is_none();
        if self.lanes[lane].as_ref().is_some_and(runs) {
            self.director.lanes_broken += 1;
            self.end_lane(lane, Err(fault(&format!("lane {lane}"), "its engine is broken")));
        }
    }
}
