//! Health of a group that two threads share.

use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use super::Health;

/// Health of a group, for the threads that make calls and the one that gives signs of life.
pub(crate) struct SharedHealth {
    health: Mutex<Health>,
    /// Time between two signs of life.
    beat: Duration,
}

impl SharedHealth {
    pub(crate) fn new(health: Health) -> Self {
        let beat = health.beat();
        Self { health: Mutex::new(health), beat }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Health> {
        self.health.lock()
    }

    /// The same for the thread that gives signs of life. On a busy machine, another thread may lose its core just while it holds the
    /// health, and get one again only after the time in which a silent rank counts as dead. `give_sign` is called at each beat until then.
    pub(crate) fn lock_alive(&self, mut give_sign: impl FnMut()) -> MutexGuard<'_, Health> {
        loop {
            match self.health.try_lock_for(self.beat) {
                Some(health) => return health,
                None => give_sign(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    #[test]
    fn signs_are_given_while_another_thread_holds_the_health() {
        let shared = SharedHealth::new(Health::new(0, 2, Duration::from_millis(20), Duration::ZERO));
        let (sender, signs) = channel();
        thread::scope(|scope| {
            let held = shared.lock();
            let beats = scope.spawn(|| shared.lock_alive(|| sender.send(()).unwrap()).failure().is_none());
            (0..3).for_each(|_| signs.recv().unwrap());
            drop(held);
            assert!(beats.join().unwrap());
        });
    }
}
