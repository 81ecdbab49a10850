//! Results of the models for a frame.

use std::borrow::Cow;
use std::sync::Arc;

use orinoco_core::{Detection, InferenceResult, ModelId, Nanos, TrackId};
use orinoco_telemetry::Stage;

use crate::Frame;

/// A frame and what its stream's models found in it.
#[derive(Debug)]
pub struct FrameResult {
    /// The frame.
    pub frame: Frame,
    /// In the order in which the models ran. A model that looks at objects has an entry for each of them, one that did not
    /// look at this frame has none.
    pub found: Vec<ModelResult>,
    /// When the last plan finished.
    pub finished: Nanos,
}

/// Result of one model for a frame, or for an object in it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelResult {
    /// Index into the board's models.
    pub model: ModelId,
    /// Object that it looked at; `None` for the whole frame.
    pub object: Option<Object>,
    /// The model did not look at this frame: this is where its objects should be by now.
    pub predicted: bool,
    /// Its result, in coordinates of the frame.
    pub inference: InferenceResult,
    /// For each detection, whether it is for the tracker only: too weak to be reported by itself, and no track's. Sinks leave
    /// it out; its row stays, because objects name rows. Empty where every detection is reported.
    pub tracker_only: Vec<bool>,
    /// Zones and lines that tracked objects crossed in this frame.
    pub crossings: Vec<Crossing>,
}

/// A tracked object that crossed the border of a zone, or a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crossing {
    /// The zone's or line's name.
    pub name: Arc<str>,
    /// Kind of the crossing.
    pub kind: CrossingKind,
    /// The object.
    pub track: TrackId,
    /// The class as which it was first seen.
    pub class_id: u32,
}

/// Kind of a [`Crossing`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrossingKind {
    /// Into a zone.
    Entered,
    /// Out of a zone.
    Left,
    /// Over a line, from side A to side B.
    AToB,
    /// Over a line, from side B to side A.
    BToA,
}

impl ModelResult {
    /// Whether sinks report the detection of this index.
    pub fn reports(&self, detection: usize) -> bool {
        !self.tracker_only.get(detection).is_some_and(|tracker_only| *tracker_only)
    }

    /// Returns the result without detections that are for the tracker only.
    pub fn reported(&self) -> Cow<'_, InferenceResult> {
        let all = &self.inference;
        if !self.tracker_only.contains(&true) {
            return Cow::Borrowed(all);
        }
        let each = all.keypoints_each();
        let rows = || (0..all.detections.len()).filter(|row| self.reports(*row));
        Cow::Owned(InferenceResult {
            detections: rows().map(|row| all.detections[row]).collect(),
            corners: rows().filter_map(|row| all.corners.get(row).copied()).collect(),
            keypoints: rows().flat_map(|row| &all.keypoints[row * each..][..each]).copied().collect(),
            masks: rows().filter_map(|row| all.masks.get(row).cloned()).collect(),
            tracks: rows().filter_map(|row| all.tracks.get(row).copied()).collect(),
            classes: all.classes.clone(),
            class_map: all.class_map.clone(),
            embedding: all.embedding.clone(),
            tensors: all.tensors.clone(),
            not_finite: all.not_finite,
        })
    }
}

/// An object that a model found, of the same frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object {
    /// Index of that model into the board's models.
    pub model: ModelId,
    /// Index into its detections.
    pub detection: usize,
}

impl FrameResult {
    /// The detection that an object is.
    pub fn detection(&self, object: Object) -> Option<&Detection> {
        self.holder(object)?.inference.detections.get(object.detection)
    }

    /// The track of an object, where objects are followed.
    pub fn track(&self, object: Object) -> Option<TrackId> {
        self.holder(object)?.inference.tracks.get(object.detection).copied().flatten()
    }

    /// Returns the results that sinks report: all but those in objects that are for the tracker only.
    pub fn reported(&self) -> impl Iterator<Item = &ModelResult> {
        self.found.iter().filter(|found| found.object.is_none_or(|object| self.reports(object)))
    }

    /// Index of an object among the detections that are reported.
    pub fn reported_index(&self, object: Object) -> Option<usize> {
        let holder = self.holder(object)?;
        let before = (0..object.detection).filter(|row| holder.reports(*row)).count();
        holder.reports(object.detection).then_some(before)
    }

    /// Returns the stage that took the largest part of the frame's time from its slot to `end`, the end of the sinks.
    ///
    /// In the stages of a model the frame is for as long as its batch. What is left of its time in the lane is inference: the
    /// engine's, and that of an earlier frame of its stream on another board, behind which it waited.
    pub(crate) fn longest_stage(&self, end: Nanos) -> Stage {
        let times = self.frame.lane_times;
        let (queue, preprocess, postprocess) = (times.queue(), times.preprocess(), times.postprocess());
        let to_results = self.finished.since(self.frame.arrived);
        let parts = [
            (Stage::Queue, queue),
            (Stage::Preprocess, preprocess),
            (Stage::Infer, to_results.saturating_sub(queue + preprocess + postprocess)),
            (Stage::Postprocess, postprocess),
            (Stage::Sink, end.since(self.finished)),
        ];
        let longest =
            parts.into_iter().reduce(|longest, part| if part.1 > longest.1 { part } else { longest });
        longest.expect("there are five").0
    }

    fn reports(&self, object: Object) -> bool {
        self.holder(object).is_none_or(|holder| holder.reports(object.detection))
    }

    /// The result that an object is part of.
    fn holder(&self, object: Object) -> Option<&ModelResult> {
        self.found.iter().find(|found| found.model == object.model && found.object.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LaneTimes, Slot, SlotPool};
    use orinoco_core::{FrameDesc, PixelFormat};
    use std::time::Duration;

    /// Returns the longest stage of a frame that arrived at 100 ms, waited, was preprocessed and postprocessed for so many ms,
    /// and was finished and written so many ms after its arrival.
    fn check(queue: u64, preprocess: u64, postprocess: u64, finished: u64, written: u64) -> Stage {
        let ms = |ms| Nanos((100 + ms) * 1_000_000);
        let slot = SlotPool::new(1, 1).try_take().expect("free");
        let desc = FrameDesc::packed(PixelFormat::Gray8, 1, 1);
        let mut frame = Frame::new(desc, Slot::Owned(slot), ms(0)).expect("fits");
        let [queue, preprocess, postprocess] = [queue, preprocess, postprocess].map(Duration::from_millis);
        frame.lane_times = LaneTimes::new(queue, preprocess, postprocess);
        FrameResult { frame, found: Vec::new(), finished: ms(finished) }.longest_stage(ms(written))
    }

    #[test]
    fn the_longest_stage_is_named() {
        assert_eq!(check(40, 10, 5, 75, 90), Stage::Queue);
        assert_eq!(check(10, 40, 5, 75, 90), Stage::Preprocess);
        assert_eq!(check(10, 20, 5, 75, 90), Stage::Infer);
        assert_eq!(check(10, 20, 30, 75, 90), Stage::Postprocess);
        assert_eq!(check(10, 10, 5, 75, 200), Stage::Sink);
        // A frame that waited behind one whose inference came late: its own times are short.
        assert_eq!(check(1, 1, 1, 2000, 2001), Stage::Infer);
        // Of equal ones the first.
        assert_eq!(check(20, 20, 20, 80, 100), Stage::Queue);
        // Longer than the times hold.
        assert_eq!(check(5_000_000, 0, 0, 5_000_001, 5_000_002), Stage::Queue);
    }
}
