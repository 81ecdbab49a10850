//! A sequence of launches as one: captured on a stream, instantiated once, replayed with one call.

use crate::capture::{Captured, ExecutableGraph};
use crate::{CudaError, Stream};

/// Maximum number of capture attempts for the same shapes. Engines may refuse their first run, in which they initialise; one
/// that refuses twice will go on refusing.
const CAPTURE_TRIES_MAX: u32 = 2;

/// Counts of a graph's runs: replays, captures, updates, fallbacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GraphCounters {
    /// Sequences captured.
    pub captures: u64,
    /// Graphs made runnable from nothing.
    pub instantiations: u64,
    /// Runnable graphs changed in place for new shapes, which is cheaper.
    pub updates: u64,
    /// Runs with one launch.
    pub replays: u64,
    /// Runs whose launches were made one by one because there was no graph.
    pub fallbacks: u64,
}

/// Way in which a run was executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GraphRun {
    /// With one launch of the graph there was.
    Replayed,
    /// With one launch of a graph just captured.
    Captured,
    /// Launch by launch; [`Graph::refusal`] says why.
    Directly,
}

/// A plan's launches.
#[derive(Debug, Default)]
pub struct Graph {
    plan: Plan<ExecutableGraph>,
}

impl Graph {
    /// A graph that has captured nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs on `stream` what `record` launches. `shapes` names all that is fixed in those launches: sizes, addresses and
    /// arguments passed by value. While it stays the same, `record` is not called. What `record` launches must not
    /// wait, allocate, or run on other streams. The memory it uses is kept as long as the graph.
    pub fn run(
        &mut self,
        stream: &Stream,
        shapes: u64,
        mut record: impl FnMut(&Stream) -> Result<(), CudaError>,
    ) -> Result<GraphRun, CudaError> {
        self.plan.run(&mut LiveGraph { stream, record: &mut record }, shapes)
    }

    /// Counts so far.
    pub fn counters(&self) -> GraphCounters {
        self.plan.counters
    }

    /// Error of the last capture, if it failed.
    pub fn refusal(&self) -> Option<&CudaError> {
        self.plan.refusal.as_ref()
    }
}

/// Driver functions that capture, update and launch graphs; tests replace them.
trait GraphDriver<E> {
    type Captured;
    fn capture(&mut self) -> Result<Self::Captured, CudaError>;
    fn instantiate(&mut self, captured: Self::Captured) -> Result<E, CudaError>;
    /// Changes `exec` in place, or gives `captured` back where that cannot be done.
    fn update(&mut self, exec: &mut E, captured: Self::Captured) -> Result<(), Self::Captured>;
    fn launch(&mut self, exec: &E) -> Result<(), CudaError>;
    fn directly(&mut self) -> Result<(), CudaError>;
}

struct LiveGraph<'a> {
    stream: &'a Stream,
    record: &'a mut dyn FnMut(&Stream) -> Result<(), CudaError>,
}

impl GraphDriver<ExecutableGraph> for LiveGraph<'_> {
    type Captured = Captured;

    fn capture(&mut self) -> Result<Captured, CudaError> {
        Captured::new(self.stream, &mut *self.record)
    }

    fn instantiate(&mut self, captured: Captured) -> Result<ExecutableGraph, CudaError> {
        ExecutableGraph::new(captured)
    }

    fn update(&mut self, exec: &mut ExecutableGraph, captured: Captured) -> Result<(), Captured> {
        exec.update(captured)
    }

    fn launch(&mut self, exec: &ExecutableGraph) -> Result<(), CudaError> {
        exec.launch(self.stream)
    }

    fn directly(&mut self) -> Result<(), CudaError> {
        (self.record)(self.stream)
    }
}

/// Decides between replay, capture and direct launches.
#[derive(Debug)]
struct Plan<E> {
    exec: Option<E>,
    /// Shapes for which `exec` was captured; `None` if it cannot be used.
    shapes: Option<u64>,
    /// The shapes whose capture failed last, and how often.
    refused: Option<(u64, u32)>,
    refusal: Option<CudaError>,
    counters: GraphCounters,
}

impl<E> Default for Plan<E> {
    fn default() -> Self {
        let counters = GraphCounters::default();
        Self { exec: None, shapes: None, refused: None, refusal: None, counters }
    }
}

impl<E> Plan<E> {
    fn run<S: GraphDriver<E>>(&mut self, steps: &mut S, shapes: u64) -> Result<GraphRun, CudaError> {
        let ran = if self.shapes == Some(shapes) {
            GraphRun::Replayed
        } else {
            match self.renew(steps, shapes) {
                Ok(true) => GraphRun::Captured,
                Ok(false) => GraphRun::Directly,
                Err(refusal) => {
                    let tries = self.tries(shapes) + 1;
                    self.refused = Some((shapes, tries));
                    self.refusal = Some(refusal);
                    GraphRun::Directly
                }
            }
        };
        match (&self.exec, ran) {
            (Some(exec), GraphRun::Replayed | GraphRun::Captured) => {
                steps.launch(exec)?;
                self.counters.replays += 1;
            }
            _ => {
                self.counters.fallbacks += 1;
                steps.directly()?;
            }
        }
        Ok(ran)
    }

    /// Makes `exec` the graph for `shapes`; `false` where that was refused too often.
    fn renew<S: GraphDriver<E>>(&mut self, steps: &mut S, shapes: u64) -> Result<bool, CudaError> {
        if self.tries(shapes) >= CAPTURE_TRIES_MAX {
            return Ok(false);
        }
        self.shapes = None;
        let captured = steps.capture()?;
        self.counters.captures += 1;
        let left = match &mut self.exec {
            Some(exec) => steps.update(exec, captured).err(),
            None => Some(captured),
        };
        match left {
            None => self.counters.updates += 1,
            Some(captured) => {
                self.exec = None;
                self.exec = Some(steps.instantiate(captured)?);
                self.counters.instantiations += 1;
            }
        }
        (self.shapes, self.refused) = (Some(shapes), None);
        Ok(true)
    }

    fn tries(&self, shapes: u64) -> u32 {
        self.refused.filter(|(refused, _)| *refused == shapes).map_or(0, |(_, tries)| tries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DriverFault;

    /// A driver that writes down what it is asked, and refuses what the test wants.
    #[derive(Default)]
    struct Fake {
        asked: String,
        refuses_captures: u32,
        refuses_updates: bool,
        refuses_instantiation: bool,
    }

    fn fault() -> CudaError {
        let source = DriverFault { code: 900, name: "CUDA_ERROR_X".into(), meaning: "no".into() };
        CudaError { call: "cuX", doing: "trying".into(), source }
    }

    impl GraphDriver<u64> for Fake {
        type Captured = u64;

        fn capture(&mut self) -> Result<u64, CudaError> {
            self.asked.push('c');
            match self.refuses_captures.checked_sub(1) {
                Some(left) => {
                    self.refuses_captures = left;
                    Err(fault())
                }
                None => Ok(1),
            }
        }

        fn instantiate(&mut self, captured: u64) -> Result<u64, CudaError> {
            self.asked.push('i');
            if self.refuses_instantiation { Err(fault()) } else { Ok(captured) }
        }

        fn update(&mut self, _: &mut u64, captured: u64) -> Result<(), u64> {
            self.asked.push('u');
            if self.refuses_updates { Err(captured) } else { Ok(()) }
        }

        fn launch(&mut self, _: &u64) -> Result<(), CudaError> {
            self.asked.push('l');
            Ok(())
        }

        fn directly(&mut self) -> Result<(), CudaError> {
            self.asked.push('d');
            Ok(())
        }
    }

    fn check(mut fake: Fake, shapes: &[u64], asked: &str) -> GraphCounters {
        let mut plan = Plan::default();
        for shapes in shapes {
            plan.run(&mut fake, *shapes).expect("nothing fails for good");
        }
        assert_eq!(fake.asked, asked);
        assert_eq!(plan.refusal.is_some(), asked.contains('d'));
        assert_eq!(plan.counters.replays + plan.counters.fallbacks, shapes.len() as u64);
        plan.counters
    }

    #[test]
    fn what_does_not_change_is_captured_once() {
        let counters = check(Fake::default(), &[7, 7, 7], "cilll");
        let expected = GraphCounters { captures: 1, instantiations: 1, replays: 3, ..Default::default() };
        assert_eq!(counters, expected);
    }

    #[test]
    fn new_shapes_update_the_graph_or_make_another() {
        assert_eq!(check(Fake::default(), &[7, 8, 8], "cilcull").updates, 1);
        let fake = Fake { refuses_updates: true, ..Fake::default() };
        assert_eq!(check(fake, &[7, 8, 8], "cilcuill").instantiations, 2);
    }

    #[test]
    fn a_refused_capture_is_tried_again_once_for_the_same_shapes() {
        let refusing = |times| Fake { refuses_captures: times, ..Fake::default() };
        assert_eq!(check(refusing(1), &[7, 7, 7], "cdcill").fallbacks, 1);
        assert_eq!(check(refusing(9), &[7, 7, 7, 7], "cdcddd").fallbacks, 4);
        assert_eq!(check(refusing(2), &[7, 7, 7, 8], "cdcddcil").fallbacks, 3);
        let fake = Fake { refuses_instantiation: true, ..Fake::default() };
        assert_eq!(check(fake, &[7, 7, 7], "cidcidd").captures, 2);
    }
}
