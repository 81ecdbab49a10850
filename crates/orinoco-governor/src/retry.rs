//! Waits after a step up that a limit took back.

use std::collections::BTreeMap;
use std::time::Duration;

use orinoco_core::Nanos;

/// Time within which a step down says that the step up before it was wrong.
const JUDGE: Duration = Duration::from_secs(60);
/// First wait until a level is tried again; it doubles with each failure. A minute holds no more than one attempt, so that its mean
/// power stays within the limit.
const WAIT_MIN: Duration = Duration::from_secs(60);
/// Longest wait.
const WAIT_MAX: Duration = Duration::from_secs(240);
/// Factor by which the room under the limits must have grown for an earlier attempt: the load fell, or it became colder.
const ROOM_GROWTH: f64 = 1.06;

/// Levels that were tried in vain, by actuator and level.
#[derive(Clone, Debug, Default)]
pub(crate) struct Retries {
    levels: BTreeMap<(String, usize), Retry>,
    /// Latest step up.
    latest: Option<Attempt>,
}

#[derive(Clone, Copy, Debug)]
struct Retry {
    not_before: Nanos,
    wait: Duration,
    room: f64,
}

#[derive(Clone, Debug)]
struct Attempt {
    actuator: String,
    level: usize,
    at: Nanos,
    room: f64,
}

impl Retries {
    /// Whether a level may be tried now, with this room under the limits.
    pub(crate) fn allows(&self, now: Nanos, actuator: &str, level: usize, room: f64) -> bool {
        let retry = self.levels.get(&(actuator.to_owned(), level));
        retry.is_none_or(|retry| now >= retry.not_before || room >= retry.room * ROOM_GROWTH)
    }

    /// Notes a step up.
    pub(crate) fn stepped_up(&mut self, now: Nanos, actuator: &str, level: usize, room: f64) {
        self.latest = Some(Attempt { actuator: actuator.to_owned(), level, at: now, room });
    }

    /// Notes that the latest step up was wrong, if it was a moment ago.
    pub(crate) fn failed(&mut self, now: Nanos) {
        let Some(attempt) = self.latest.take().filter(|attempt| now.since(attempt.at) <= JUDGE) else {
            return;
        };
        let key = (attempt.actuator, attempt.level);
        let wait = self.levels.get(&key).map_or(WAIT_MIN, |before| (before.wait * 2).min(WAIT_MAX));
        self.levels.insert(key, Retry { not_before: now + wait, wait, room: attempt.room });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_and_more_room_ends_them() {
        let at = |seconds| Nanos(0) + Duration::from_secs(seconds);
        let mut retries = Retries::default();
        assert!(retries.allows(at(0), "gpu", 3, 1.1));
        retries.stepped_up(at(0), "gpu", 3, 1.1);
        retries.failed(at(5));
        assert!(!retries.allows(at(64), "gpu", 3, 1.1) && retries.allows(at(65), "gpu", 3, 1.1));
        assert!(retries.allows(at(6), "gpu", 3, 1.3) && retries.allows(at(6), "gpu", 2, 1.1));
        retries.stepped_up(at(65), "gpu", 3, 1.1);
        retries.failed(at(70));
        assert!(!retries.allows(at(189), "gpu", 3, 1.1) && retries.allows(at(190), "gpu", 3, 1.1));
        retries.stepped_up(at(300), "gpu", 3, 1.1);
        retries.failed(at(361));
        assert!(retries.allows(at(362), "gpu", 3, 1.1), "it held for a minute");
    }
}
