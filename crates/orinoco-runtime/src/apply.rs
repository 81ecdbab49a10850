//! Applies a prepared change: lanes get new plans and inference intervals of their models, streams join them, and others are asked to leave. If a stream cannot join, the others
//! are not affected, and its earlier version stays. This module starts no thread itself, so that a simulated board applies
//! changes by the same rules.

use orinoco_board::Board;
use orinoco_core::{Diagnosis, StreamId};

use crate::action::{Applied, Joined, Replaced};

/// Running lanes and streams, to which a change is applied.
pub(crate) trait Host {
    /// Type of a prepared stream.
    type Open;

    /// Returns the name of a prepared stream.
    fn name_of(open: &Self::Open) -> &str;

    /// Whether the running stream `stream` has this name.
    fn is_called(&self, stream: StreamId, name: &str) -> bool;

    /// Lets a stream join its lane. If the lane does not run, it is created, and started later.
    fn join(&mut self, open: Self::Open) -> Result<Joined, JoinFailure>;

    /// Gives lanes the plans that replace others.
    fn replace_plans(&mut self) -> Vec<Result<Replaced, Diagnosis>>;
    /// Gives lanes the inference intervals of their models that have changed.
    fn set_intervals(&mut self);

    /// Starts the lanes that were created, after all streams have joined.
    fn start_lanes(&mut self) -> Vec<(usize, Result<(), Diagnosis>)>;
}

/// Failure of a stream to join.
pub(crate) struct JoinFailure {
    pub(crate) why: Diagnosis,
    /// Whether the stream can join when the change is prepared again: its lane has failed meanwhile, or dropped a model.
    pub(crate) once_more: bool,
}

/// Replaces plans, lets streams join, and lists those that have to leave because they are not on the board any more or have
/// changed.
pub(crate) fn apply<H: Host>(
    host: &mut H,
    board: Board,
    joining: Vec<H::Open>,
    mut leaving: Vec<StreamId>,
) -> Applied {
    let mut applied = Applied { board: Some(board), ..Applied::default() };
    for replaced in host.replace_plans() {
        match replaced {
            Ok(replaced) => applied.replaced.push(replaced),
            Err(why) => applied.faults.push(why),
        }
    }
    host.set_intervals();
    for open in joining {
        let name = H::name_of(&open).to_owned();
        match host.join(open) {
            Ok(joined) => applied.joined.push(joined),
            Err(JoinFailure { why, once_more }) => {
                leaving.retain(|stream| !host.is_called(*stream, &name));
                let list = if once_more { &mut applied.missed } else { &mut applied.faults };
                list.push(why);
            }
        }
    }
    for (lane, started) in host.start_lanes() {
        match started {
            Ok(()) => applied.lanes.push(lane),
            Err(why) => {
                // A lane that did not start takes no frames of its streams.
                let lost = applied.joined.iter().filter(|joined| joined.lane == lane);
                leaving.extend(lost.map(|joined| joined.stream));
                applied.faults.push(why);
            }
        }
    }
    applied.left = leaving;
    applied
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model_version::LanePlan;
    use crate::testing::board;
    use orinoco_core::{ModelId, codes};

    /// Lanes of a test. A prepared stream is its id and its name; streams with odd ids are on lane 1, which does not start.
    struct Lanes;

    fn fault() -> Diagnosis {
        Diagnosis::new(&codes::ENGINE_RUN, "test", "it fails", "nothing")
    }

    impl Host for Lanes {
        type Open = (u32, &'static str);

        fn name_of(open: &Self::Open) -> &str {
            open.1
        }

        fn is_called(&self, stream: StreamId, name: &str) -> bool {
            name == ["a", "b", "c"][stream.index() % 3]
        }

        fn join(&mut self, (id, name): Self::Open) -> Result<Joined, JoinFailure> {
            let joined =
                Joined { stream: StreamId(id), name: name.into(), lane: id as usize % 2, is_live: true };
            if name == "c" { Err(JoinFailure { why: fault(), once_more: false }) } else { Ok(joined) }
        }

        fn replace_plans(&mut self) -> Vec<Result<Replaced, Diagnosis>> {
            let old = LanePlan { lane: 0, model: ModelId(0), generation: 0 };
            vec![Ok(Replaced { name: "m".into(), old }), Err(fault())]
        }

        fn set_intervals(&mut self) {}
        fn start_lanes(&mut self) -> Vec<(usize, Result<(), Diagnosis>)> {
            vec![(0, Ok(())), (1, Err(fault()))]
        }
    }

    #[test]
    fn streams_of_a_lane_that_does_not_start_leave_and_one_that_cannot_join_stays() {
        let (joining, leaving) = (vec![(10, "a"), (11, "b"), (12, "c")], [0, 1, 2].map(StreamId).to_vec());
        let applied = apply(&mut Lanes, board(2, &[]), joining, leaving);
        assert_eq!(applied.joined.iter().map(|joined| joined.stream.0).collect::<Vec<_>>(), [10, 11]);
        assert_eq!(applied.left, [0, 1, 11].map(StreamId), "the old c stays");
        assert_eq!((applied.lanes, applied.faults.len(), applied.missed.len()), (vec![0], 3, 0));
        assert_eq!(applied.replaced.iter().map(|replaced| &*replaced.name).collect::<Vec<_>>(), ["m"]);
    }
}
