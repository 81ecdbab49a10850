//! Applying a prepared change: streams join their lanes, and others are asked to leave. One that cannot join leaves the
//! others as they are, and itself as it was before. It starts no thread itself, so a simulated board applies changes by the
//! same rules.

use orinoco_board::Board;
use orinoco_core::{Diagnosis, StreamId};

use crate::action::{Applied, Joined};

/// Lanes and streams at work, to which a change is applied.
pub(crate) trait Host {
    /// A prepared stream.
    type Open;

    /// Name of a prepared stream.
    fn name_of(open: &Self::Open) -> &str;

    /// Whether a stream at work has this name.
    fn is_called(&self, stream: StreamId, name: &str) -> bool;

    /// Lets a stream join its lane. A lane that does not run is made for it, and started later.
    fn join(&mut self, open: Self::Open) -> Result<Joined, JoinFailure>;

    /// Starts the lanes that were made, when all streams have joined.
    fn start_lanes(&mut self) -> Vec<(usize, Result<(), Diagnosis>)>;
}

/// Why a stream could not join.
pub(crate) struct JoinFailure {
    pub(crate) why: Diagnosis,
    /// It can, when the change is prepared once more: its lane has failed meanwhile, or given up a model.
    pub(crate) once_more: bool,
}

/// Lets streams join, and lists those that have to leave: those that are gone from the board or have changed.
pub(crate) fn apply<H: Host>(
    host: &mut H,
    board: Board,
    joining: Vec<H::Open>,
    mut leaving: Vec<StreamId>,
) -> Applied {
    let mut applied = Applied { board: Some(board), ..Applied::default() };
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
            Err(why) => applied.faults.push(why),
        }
    }
    applied.left = leaving;
    applied
}
