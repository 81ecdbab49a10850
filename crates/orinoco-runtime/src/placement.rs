//! Which lane a stream joins.

use orinoco_board::BoardStream;
use orinoco_core::{Diagnosis, codes};
use orinoco_infer::Scratch;
use orinoco_pipeline::LaneEntry;

use crate::planning::ScratchSize;

/// A lane as it was when a change was asked for.
pub(crate) struct LaneView {
    /// Where streams join it, while it runs; else it is started for the first stream that joins.
    pub(crate) entry: Option<LaneEntry>,
    /// Its area, where the board has a budget.
    pub(crate) scratch: Option<Scratch>,
    /// Streams that stay, and those that join.
    pub(crate) streams: usize,
}

/// The lanes of a board.
pub(crate) struct LaneViews {
    pub(crate) lanes: Vec<LaneView>,
    /// Whether lanes compute in areas of a memory plan. One that has none cannot be started then.
    pub(crate) is_planned: bool,
}

impl LaneViews {
    /// Chooses the lane that a stream names, else the one with the fewest streams. The areas of a run are mapped once: the
    /// stream's models must fit into that of its lane.
    pub(crate) fn choose(&mut self, stream: &BoardStream, needed: ScratchSize) -> Result<usize, Diagnosis> {
        let is_planned = self.is_planned;
        let scratch_size = |lane: &LaneView| match (&lane.scratch, is_planned) {
            (Some(scratch), _) => Some(ScratchSize::of(scratch)),
            (None, false) => Some(ScratchSize { host_bytes: u64::MAX, device_bytes: u64::MAX }),
            (None, true) => None,
        };
        let wanted = |lane: usize| stream.lane.is_none_or(|wanted| wanted == lane);
        let lanes = self.lanes.iter().enumerate().filter(|(index, _)| wanted(*index));
        let scratch_sizes: Vec<(usize, ScratchSize)> =
            lanes.filter_map(|(index, lane)| Some((index, scratch_size(lane)?))).collect();
        let fit = scratch_sizes
            .iter()
            .filter(|(_, scratch_size)| needed.fits(*scratch_size))
            .map(|(index, _)| *index);
        let fewest = fit.min_by_key(|index| (self.lanes[*index].streams, *index));
        let index = fewest.ok_or_else(|| {
            let largest = scratch_sizes.iter().map(|(_, scratch_size)| *scratch_size);
            let largest =
                largest.max_by_key(|scratch_size| (scratch_size.device_bytes, scratch_size.host_bytes));
            let cause = match (largest, stream.lane) {
                (Some(there), _) => needed.shortfall(there),
                (None, Some(lane)) => {
                    format!("lane {lane} has no memory planned: no stream was on it at the start")
                }
                (None, None) => "no lane has memory planned".to_owned(),
            };
            let next = "restart the daemon: it plans anew";
            Diagnosis::new(&codes::RELOAD, format!("stream {}", stream.name), cause, next)
        })?;
        self.lanes[index].streams += 1;
        Ok(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::uri;

    #[test]
    fn a_stream_joins_a_lane_that_has_room_for_its_models() {
        let lane = |bytes: usize, streams: usize| {
            let scratch = Some(Scratch::new(bytes).expect("there is room"));
            LaneView { entry: None, scratch, streams }
        };
        let unplanned = LaneView { entry: None, scratch: None, streams: 0 };
        let mut lanes =
            LaneViews { lanes: vec![lane(1 << 20, 3), lane(1 << 12, 0), unplanned], is_planned: true };
        let mut stream = BoardStream::new("a", uri("test://ball"), Vec::new());
        let host = |host_bytes| ScratchSize { host_bytes, device_bytes: 0 };
        assert_eq!(lanes.choose(&stream, host(1 << 12)).expect("both have room"), 1, "the fewest streams");
        assert_eq!(lanes.choose(&stream, host(1 << 20)).expect("one has room"), 0);
        let mut refused = |lane, needed| {
            stream.lane = lane;
            lanes.choose(&stream, needed).expect_err("no lane has room").cause
        };
        let host_short = refused(None, host(3 << 20));
        assert!(host_short.contains("needs 2.0 MiB more to compute in than the 1.0 MiB"), "{host_short}");
        assert!(refused(None, host((1 << 20) + 1)).contains("needs less than 0.1 MiB more"));
        assert!(refused(Some(1), host(1 << 20)).contains("than the less than 0.1 MiB"));
        let on_device = refused(None, ScratchSize { host_bytes: 0, device_bytes: 1 });
        assert!(on_device.contains("less than 0.1 MiB more on the GPU"), "{on_device}");
        assert!(refused(Some(2), host(0)).contains("no memory planned"));
    }

    #[test]
    fn a_lane_without_a_stream_is_started_where_memory_is_not_planned() {
        let lane = |streams| LaneView { entry: None, scratch: None, streams };
        let mut lanes = LaneViews { lanes: vec![lane(2), lane(0)], is_planned: false };
        let stream = BoardStream::new("a", uri("test://ball"), Vec::new());
        let mut choose =
            |stream: &BoardStream| lanes.choose(stream, ScratchSize::default()).expect("there is one");
        assert_eq!([choose(&stream), choose(&stream), choose(&stream)], [1, 1, 0]);
        assert_eq!(choose(&BoardStream { lane: Some(0), ..stream }), 0);
    }
}
