//! Slots of a send queue. A device says that a write is done only if it is asked to, and a completion stands for all writes before
//! it: one in sixteen is asked for.

/// Writes of which one has a completion.
const SIGNAL_EVERY: usize = 16;
/// Writes that the queue holds.
pub(super) const SLOTS: usize = 128;

const _: () = assert!(SLOTS >= 2 * SIGNAL_EVERY, "a completion is on its way whenever all slots are taken");

/// Slots of a send queue.
#[derive(Default)]
pub(super) struct Slots {
    taken: usize,
    /// Writes since the last one that has a completion.
    silent: usize,
}

impl Slots {
    pub(super) fn free(&self) -> usize {
        SLOTS - self.taken
    }

    /// Whether writes are on their way, as far as is known.
    pub(super) fn is_any_taken(&self) -> bool {
        self.taken > 0
    }

    /// Whether the last write has no completion.
    pub(super) fn is_end_silent(&self) -> bool {
        self.silent > 0
    }

    /// Takes a slot. Returns the number of slots that the write's completion frees, if it has one.
    pub(super) fn take(&mut self) -> Option<usize> {
        assert!(self.free() > 0, "a free slot");
        self.taken += 1;
        self.silent += 1;
        (self.silent == SIGNAL_EVERY).then(|| self.signal())
    }

    /// Takes a slot for a write that has a completion in any case. Returns the number of slots that it frees.
    pub(super) fn take_last(&mut self) -> usize {
        assert!(self.free() > 0, "a free slot");
        self.taken += 1;
        self.silent += 1;
        self.signal()
    }

    fn signal(&mut self) -> usize {
        std::mem::take(&mut self.silent)
    }

    /// Notes a completion that frees so many slots.
    pub(super) fn completed(&mut self, freed: usize) {
        self.taken = self.taken.checked_sub(freed).expect("a completion of writes that were made");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_write_in_sixteen_has_a_completion() {
        let mut slots = Slots::default();
        let mut completions = Vec::new();
        for _ in 0..1_000 {
            if slots.free() == 0 {
                slots.completed(completions.pop().expect("a completion on its way"));
            }
            completions.extend(slots.take());
        }
        let freed: usize = completions.drain(..).sum();
        slots.completed(freed);
        assert_eq!(slots.taken, 1_000 % SIGNAL_EVERY);
        let freed = slots.take_last();
        assert_eq!(freed, 1_000 % SIGNAL_EVERY + 1);
        assert!(!slots.is_end_silent());
        slots.completed(freed);
        assert!(!slots.is_any_taken());
    }
}
