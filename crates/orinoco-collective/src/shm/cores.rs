//! Cores on which the ranks of a group may run.

use std::thread;

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity};

/// Number of cores that the ranks in these processes have together, as far as this rank sees.
///
/// A rank that is bound to a core (taskset(1), `mpiexec --bind-to core`) sees one core alone, though the others have theirs. Of processes in
/// other containers nothing is known, and a limit of this rank's own container (cgroups(7)) counts for all.
pub(super) fn count(processes: impl Iterator<Item = u32>) -> usize {
    let seen = thread::available_parallelism().map_or(1, usize::from);
    let Ok(own) = sched_getaffinity(None) else { return seen };
    if seen < cores(&own).count() {
        return seen;
    }
    let sets = processes.filter_map(|process| Pid::from_raw(i32::try_from(process).ok()?));
    let mut all = own;
    for set in sets.filter_map(|process| sched_getaffinity(Some(process)).ok()) {
        cores(&set).for_each(|core| all.set(core));
    }
    cores(&all).count()
}

fn cores(set: &CpuSet) -> impl Iterator<Item = usize> {
    (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core))
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use rustix::thread::sched_setaffinity;

    use super::*;

    /// A process that is bound to a core, until it is dropped.
    struct Bound(Child);

    impl Bound {
        fn to(core: usize) -> Self {
            let child = Command::new("sleep").arg("60").spawn().expect("a process that sleeps");
            let process = Pid::from_raw(child.id() as i32).expect("a process has a number");
            let bound = Self(child);
            let mut set = CpuSet::new();
            set.set(core);
            sched_setaffinity(Some(process), &set).expect("a core on which this test runs, too");
            bound
        }

        fn number(&self) -> u32 {
            self.0.id()
        }
    }

    impl Drop for Bound {
        fn drop(&mut self) {
            // It may have ended.
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn the_cores_of_ranks_that_are_bound_count_together() {
        let own = sched_getaffinity(None).expect("the cores of this test");
        let (first, last) = (cores(&own).next().expect("a core"), cores(&own).last().expect("a core"));
        let bound = [Bound::to(first), Bound::to(last)];
        // A thread of its own, since a test's binding stays with its thread.
        let counts = thread::scope(|scope| {
            let counts = scope.spawn(|| {
                let mut set = CpuSet::new();
                set.set(first);
                sched_setaffinity(None, &set).expect("a core of this test");
                let numbers = || bound.iter().map(Bound::number);
                [count(numbers().take(1)), count(numbers()), count([0, u32::MAX].into_iter())]
            });
            counts.join().expect("no panic")
        });
        let together = if first == last { 1 } else { 2 };
        assert_eq!(counts, [1, together, 1]);
    }
}
