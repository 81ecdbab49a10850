//! Settings of a board that decide how much power the same work needs.

use orinoco_board::power::NvpModes;
use orinoco_board::readers::{Hertz, Snapshot};
use orinoco_sysroot::Sysroot;

/// Power mode and clock limits of a board. The governor, `nvpmodel` and `jetson_clocks` change them, and the kernel moves the same
/// limits while it throttles, or when a driver asks for a clock for a moment. Only what has held for two looks is a change.
#[derive(Default)]
pub(super) struct PowerSettings {
    /// Those for which the energy is fitted.
    fitted: Settings,
    latest: Settings,
}

/// Settings at one time, as far as they are known.
#[derive(Clone, Default, PartialEq)]
struct Settings {
    mode: Option<u32>,
    /// Lowest and highest clock of each device, then of each group of cores.
    limits: Vec<[Option<Hertz>; 2]>,
}

impl PowerSettings {
    /// Takes the limits of `snapshot` and the present power mode. Returns whether they have changed for good.
    pub(super) fn update(&mut self, sysroot: &Sysroot, snapshot: &Snapshot) -> bool {
        let now = self.latest.updated(sysroot, snapshot);
        let has_held = now == self.latest;
        self.latest = now;
        if !has_held {
            return false;
        }
        let is_change = self.latest.contradicts(&self.fitted);
        self.fitted = self.latest.clone();
        is_change
    }

    /// Whether the settings at the last look were those for which the energy is fitted.
    pub(super) fn are_fitted(&self) -> bool {
        !self.latest.contradicts(&self.fitted)
    }
}

impl Settings {
    /// Returns the present settings. What cannot be read now stays as it was.
    fn updated(&self, sysroot: &Sysroot, snapshot: &Snapshot) -> Self {
        let devices = snapshot.devices.iter().map(|device| [&device.min, &device.max]);
        let policies = snapshot.cpu.policies.iter().map(|policy| [&policy.min, &policy.max]);
        let limits = devices.chain(policies).enumerate().map(|(index, limits)| {
            let [min, max] = limits.map(|limit| limit.as_ref().ok().copied());
            let [min_before, max_before] = self.limits.get(index).copied().unwrap_or_default();
            [min.or(min_before), max.or(max_before)]
        });
        Self { mode: NvpModes::read_number(sysroot).or(self.mode), limits: limits.collect() }
    }

    /// Whether a setting that is known in both has another value.
    fn contradicts(&self, other: &Self) -> bool {
        let mut limits = self.limits.as_flattened().iter().zip(other.limits.as_flattened());
        differ(self.mode, other.mode) || limits.any(|(one, other)| differ(*one, *other))
    }
}

fn differ<T: PartialEq>(one: Option<T>, other: Option<T>) -> bool {
    one.zip(other).is_some_and(|(one, other)| one != other)
}
