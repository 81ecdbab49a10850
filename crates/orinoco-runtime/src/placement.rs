//! Choice of the lane that a stream joins.

use orinoco_board::BoardStream;
use orinoco_core::{Diagnosis, codes};
use orinoco_infer::Scratch;
use orinoco_pipeline::LaneEntry;

use crate::scratch_size::ScratchSize;

/// Lane as it was when a change was requested.
#[derive(Clone)]
pub(crate) struct LaneView {
    /// Entry for streams while the lane runs; `None` if it has to be started for the first stream that joins.
    pub(crate) entry: Option<LaneEntry>,
    /// Scratch area of the lane; `None` if the board has no budget, or if an area is mapped for the first stream that
    /// joins.
    pub(crate) scratch: Option<Scratch>,
    /// Number of streams that stay or join.
    pub(crate) streams: usize,
}

/// Lanes of a board.
#[derive(Clone)]
pub(crate) struct LaneViews {
    pub(crate) lanes: Vec<LaneView>,
}

/// Permission for streams to join lanes without a scratch area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NewAreas {
    /// Streams may join such lanes. With a budget, an area is mapped for them.
    Allowed,
    /// Streams join only lanes that have an area.
    None,
}

/// Fault of a stream for whose models no lane has enough scratch memory (`E0110`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NoLane {
    /// Name of the stream.
    pub(crate) stream: String,
    /// Scratch memory that its models need.
    pub(crate) needed: ScratchSize,
    /// Largest area of the lanes that it may join; `None` if none of them has one.
    pub(crate) largest: Option<ScratchSize>,
}

impl From<NoLane> for Diagnosis {
    fn from(NoLane { stream, needed, largest }: NoLane) -> Self {
        let cause = match largest {
            Some(there) => needed.shortfall(there),
            None => "no lane has scratch memory for it".to_owned(),
        };
        let next = "restart the daemon, which then plans its memory again";
        Self::new(&codes::RELOAD, format!("stream {stream}"), cause, next)
    }
}

impl LaneView {
    /// Returns the size of the lane's scratch area, if it has one.
    pub(crate) fn scratch_size(&self) -> Option<ScratchSize> {
        self.scratch.as_ref().map(ScratchSize::of)
    }
}

impl LaneViews {
    /// Chooses the lane that a stream names, else the `preferred` one, else the one with the fewest streams. An area never
    /// grows, so that the stream's models must fit into the area of its lane.
    pub(crate) fn choose(
        &mut self,
        stream: &BoardStream,
        needed: ScratchSize,
        preferred: Option<usize>,
        new_areas: NewAreas,
    ) -> Result<usize, NoLane> {
        let may_join = |(index, lane): &(usize, &LaneView)| {
            let is_wanted = stream.lane.is_none_or(|wanted| wanted == *index);
            is_wanted && (lane.scratch.is_some() || new_areas == NewAreas::Allowed)
        };
        let fits = |lane: &LaneView| lane.scratch_size().is_none_or(|there| needed.fits(there));
        let lanes = || self.lanes.iter().enumerate().filter(may_join);
        let fit = lanes().filter(|(_, lane)| fits(lane));
        let best = fit.min_by_key(|(index, lane)| (Some(*index) != preferred, lane.streams, *index));
        let index = best.map(|(index, _)| index).ok_or_else(|| {
            let largest = lanes().filter_map(|(_, lane)| lane.scratch_size());
            let largest =
                largest.max_by_key(|scratch_size| (scratch_size.device_bytes, scratch_size.host_bytes));
            NoLane { stream: stream.name.clone(), needed, largest }
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
        let without_area = LaneView { entry: None, scratch: None, streams: 0 };
        let mut lanes = LaneViews { lanes: vec![lane(1 << 20, 3), lane(1 << 12, 0), without_area] };
        let mut stream = BoardStream::new("a", uri("test://ball"), Vec::new());
        let host = |host_bytes| ScratchSize { host_bytes, device_bytes: 0 };
        let mut choose = |stream: &BoardStream, needed, new_areas| {
            lanes.choose(stream, needed, None, new_areas).map_err(|why| Diagnosis::from(why).cause)
        };
        assert_eq!(choose(&stream, host(1 << 12), NewAreas::None), Ok(1), "the fewest streams");
        assert_eq!(choose(&stream, host(1 << 20), NewAreas::None), Ok(0), "it has room");
        assert_eq!(choose(&stream, host(1 << 20), NewAreas::Allowed), Ok(2), "an area is made for it");
        let mut refused = |lane, needed| {
            stream.lane = lane;
            choose(&stream, needed, NewAreas::None).expect_err("no lane has room")
        };
        let host_short = refused(None, host(3 << 20));
        assert!(
            host_short.contains("needs 2.0 MiB more scratch memory than its lane has (1.0 MiB)"),
            "{host_short}"
        );
        assert!(refused(None, host((1 << 20) + 1)).contains("needs less than 0.1 MiB more"));
        assert!(refused(Some(1), host(1 << 20)).contains("than its lane has (less than 0.1 MiB)"));
        let on_device = refused(None, ScratchSize { host_bytes: 0, device_bytes: 1 });
        assert!(on_device.contains("less than 0.1 MiB more scratch memory on the GPU"), "{on_device}");
        assert!(refused(Some(2), host(0)).contains("no lane has scratch memory for it"));
        stream.lane = Some(1);
        let refused =
            lanes.choose(&stream, host(1 << 20), None, NewAreas::Allowed).expect_err("it has an area");
        let (needed, largest) = (host(1 << 20), Some(host(1 << 12)));
        assert_eq!(refused, NoLane { stream: "a".to_owned(), needed, largest });
    }

    #[test]
    fn a_lane_without_a_stream_is_started_where_memory_is_not_planned() {
        let lane = |streams| LaneView { entry: None, scratch: None, streams };
        let mut lanes = LaneViews { lanes: vec![lane(2), lane(0)] };
        let stream = BoardStream::new("a", uri("test://ball"), Vec::new());
        let mut choose = |stream: &BoardStream, preferred| {
            let chosen = lanes.choose(stream, ScratchSize::default(), preferred, NewAreas::Allowed);
            chosen.expect("there is one")
        };
        assert_eq!([(); 3].map(|()| choose(&stream, None)), [1, 1, 0]);
        assert_eq!(choose(&stream, Some(0)), 0, "where it was before");
        assert_eq!(choose(&BoardStream { lane: Some(1), ..stream }, Some(0)), 1, "it names its lane");
    }
}
