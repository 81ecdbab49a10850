//! Settings of a board that decide how much power the same work needs.

use orinoco_board::power::NvpModes;
use orinoco_board::readers::{Hertz, Snapshot};
use orinoco_sysroot::Sysroot;

/// Power mode and clock limits of a board, as they were known last. Whoever changes them: the governor, `nvpmodel`,
/// `jetson_clocks`, or the kernel's thermal throttling, which lowers the same limits.
#[derive(Default)]
pub(super) struct PowerSettings {
    mode: Option<u32>,
    /// Lowest and highest clock of each device, then of each group of cores.
    limits: Vec<[Option<Hertz>; 2]>,
}

impl PowerSettings {
    /// Takes the limits of `snapshot` and the present power mode. Returns whether one of them has changed. One that is not known
    /// at present has not.
    pub(super) fn update(&mut self, sysroot: &Sysroot, snapshot: &Snapshot) -> bool {
        let devices = snapshot.devices.iter().map(|device| [&device.min, &device.max]);
        let policies = snapshot.cpu.policies.iter().map(|policy| [&policy.min, &policy.max]);
        let limits = devices.chain(policies).map(|limits| limits.map(|limit| limit.as_ref().ok().copied()));
        self.limits.resize(snapshot.devices.len() + snapshot.cpu.policies.len(), [None; 2]);
        let known = self.limits.iter_mut().flatten();
        let changed = known.zip(limits.flatten()).filter_map(|(known, now)| replace(known, now)).count();
        replace(&mut self.mode, NvpModes::read_number(sysroot)).is_some() || changed > 0
    }
}

/// Replaces a value by the present one, if that is known. Returns the one before if it was another.
fn replace<T: Copy + PartialEq>(known: &mut Option<T>, now: Option<T>) -> Option<T> {
    let before = known.replace(now?);
    before.filter(|_| before != now)
}
