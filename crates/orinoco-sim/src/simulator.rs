use std::collections::BTreeSet;

use orinoco_core::{Nanos, Rng};

use crate::trace::Trace;

/// Simulated thread, which takes steps and waits between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Task(usize);

impl Task {
    /// Returns the index in the order in which tasks were added.
    pub fn index(self) -> usize {
        self.0
    }
}

/// Virtual time, seeded random numbers, and the tasks that wait. Time passes when every task waits for it. If several tasks
/// are due at the same time, the seed decides their order.
///
/// The caller owns the tasks and loops: `while let Some(task) = simulator.next(end) { .. }`. Each step ends in
/// [`Simulator::wait`] or [`Simulator::work`]; a task whose step calls neither has ended.
#[derive(Debug)]
pub struct Simulator {
    now: Nanos,
    rng: Rng,
    /// Future steps: time, random number that decides among equal times, and task.
    queue: BTreeSet<(Nanos, u32, Task)>,
    tasks: Vec<TaskState>,
    steps: u64,
    fingerprint: u64,
    trace: Trace,
}

/// Current activity of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TaskActivity {
    /// Takes a step, or ended with its latest step.
    Stepping,
    /// Waits: a notification makes its next step due now.
    Waiting,
    /// Works for a time: a notification is kept for its next wait.
    Working,
}

#[derive(Debug)]
struct TaskState {
    doing: TaskActivity,
    /// Time and random number of the task's entry in the queue.
    entry: Option<(Nanos, u32)>,
    /// Whether a notification came that no wait has consumed.
    is_notified: bool,
}

impl Simulator {
    /// Creates a run at time zero, without tasks.
    pub fn new(seed: u64) -> Self {
        Self::with_trace(seed, Trace::default())
    }

    pub(crate) fn traced(seed: u64) -> Self {
        Self::with_trace(seed, Trace::on())
    }

    fn with_trace(seed: u64, trace: Trace) -> Self {
        let (now, rng, queue, tasks) = (Nanos(0), Rng::with_seed(seed), BTreeSet::new(), Vec::new());
        Self { now, rng, queue, tasks, steps: 0, fingerprint: 0, trace }
    }

    /// Returns the virtual time.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Returns the random numbers of this run.
    pub fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    /// Returns the number of steps taken.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Returns a number that depends on the task and the time of every step so far. Runs with equal numbers most likely
    /// took the same steps.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Adds a task. Its first step is due now.
    pub fn add_task(&mut self) -> Task {
        let task = Task(self.tasks.len());
        self.tasks.push(TaskState { doing: TaskActivity::Working, entry: None, is_notified: false });
        self.enqueue(task, self.now);
        task
    }

    /// Lets a task wait for a notification, at most until `until`, as a thread waits for its signal. A notification since
    /// the task's latest wait ends this one at once.
    pub fn wait(&mut self, task: Task, until: Option<Nanos>) {
        let state = &mut self.tasks[task.0];
        state.doing = TaskActivity::Waiting;
        let until = if std::mem::take(&mut state.is_notified) { Some(self.now) } else { until };
        self.dequeue(task);
        if let Some(until) = until {
            self.enqueue(task, until.max(self.now));
        }
    }

    /// Lets a task work until `until`. Notifications meanwhile are kept for its next wait.
    pub fn work(&mut self, task: Task, until: Nanos) {
        self.tasks[task.0].doing = TaskActivity::Working;
        self.dequeue(task);
        self.enqueue(task, until.max(self.now));
    }

    /// Notifies a task. A task that has ended stays ended.
    pub fn notify(&mut self, task: Task) {
        let state = &mut self.tasks[task.0];
        match state.doing {
            TaskActivity::Stepping | TaskActivity::Working => state.is_notified = true,
            TaskActivity::Waiting => {
                self.dequeue(task);
                self.enqueue(task, self.now);
            }
        }
    }

    /// Returns the time of a task's next step; `None` if it waits for a notification only, or has ended.
    pub fn due(&self, task: Task) -> Option<Nanos> {
        self.tasks[task.0].entry.map(|(when, _)| when)
    }

    /// Lets time pass until the next step, and returns its task. If no step is due by `end`, time passes until `end`, and
    /// the result is `None`.
    pub fn next(&mut self, end: Nanos) -> Option<Task> {
        let Some(&(when, tie, task)) = self.queue.first().filter(|(when, ..)| *when <= end) else {
            self.now = self.now.max(end);
            return None;
        };
        self.queue.remove(&(when, tie, task));
        let state = &mut self.tasks[task.0];
        (state.doing, state.entry) = (TaskActivity::Stepping, None);
        self.now = self.now.max(when);
        self.steps += 1;
        // FNV-1a over whole words instead of bytes.
        for word in [self.now.0, task.0 as u64] {
            self.fingerprint = (self.fingerprint ^ word).wrapping_mul(0x0100_0000_01b3);
        }
        Some(task)
    }

    /// Adds a line to the trace. `words` is called only when a failed run is repeated.
    pub fn note(&mut self, words: impl FnOnce() -> String) {
        self.trace.push(self.now, words);
    }

    pub(crate) fn trace(&self) -> &Trace {
        &self.trace
    }

    fn enqueue(&mut self, task: Task, when: Nanos) {
        let tie = self.rng.u32(..);
        self.queue.insert((when, tie, task));
        self.tasks[task.0].entry = Some((when, tie));
    }

    fn dequeue(&mut self, task: Task) {
        if let Some((when, tie)) = self.tasks[task.0].entry.take() {
            self.queue.remove(&(when, tie, task));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const FAR: Nanos = Nanos(u64::MAX);
    const SECOND: Duration = Duration::from_secs(1);

    fn with_tasks(seed: u64, tasks: usize) -> (Simulator, Vec<Task>) {
        let mut simulator = Simulator::new(seed);
        let tasks = (0..tasks).map(|_| simulator.add_task()).collect();
        (simulator, tasks)
    }

    #[test]
    fn time_passes_to_the_next_step_and_to_the_end() {
        let (mut simulator, tasks) = with_tasks(1, 1);
        assert_eq!(simulator.next(FAR), Some(tasks[0]));
        simulator.wait(tasks[0], Some(Nanos(0) + 5 * SECOND));
        assert_eq!(simulator.next(Nanos(0) + 2 * SECOND), None);
        assert_eq!(simulator.now(), Nanos(0) + 2 * SECOND);
        assert_eq!((simulator.next(FAR), simulator.now()), (Some(tasks[0]), Nanos(0) + 5 * SECOND));
        simulator.wait(tasks[0], None);
        assert_eq!(simulator.next(Nanos(0) + 60 * SECOND), None);
    }

    #[test]
    fn a_notification_ends_a_wait_but_no_work_and_is_not_lost() {
        let (mut simulator, tasks) = with_tasks(1, 1);
        let task = simulator.next(FAR).expect("its first step");
        simulator.wait(task, Some(Nanos(0) + SECOND));
        simulator.notify(task);
        assert_eq!((simulator.next(FAR), simulator.now()), (Some(task), Nanos(0)));
        simulator.work(task, Nanos(0) + SECOND);
        simulator.notify(task);
        assert_eq!((simulator.next(FAR), simulator.now()), (Some(task), Nanos(0) + SECOND));
        simulator.wait(task, None);
        assert_eq!(simulator.next(FAR), Some(task), "the notification that came while it worked");
        simulator.notify(task);
        simulator.wait(task, None);
        assert_eq!(simulator.next(FAR), Some(task), "the notification of its own step");
        simulator.notify(tasks[0]);
        assert_eq!(simulator.next(FAR), None, "it has ended");
    }

    #[test]
    fn the_seed_decides_among_equal_times_and_repeats() {
        let order = |seed| {
            let (mut simulator, _) = with_tasks(seed, 6);
            let order: Vec<usize> = std::iter::from_fn(|| simulator.next(FAR)).map(Task::index).collect();
            (order, simulator.fingerprint())
        };
        assert_eq!(order(3), order(3));
        let orders: BTreeSet<_> = (0..20).map(order).collect();
        assert!(orders.len() > 10, "{} orders of 20", orders.len());
    }
}
