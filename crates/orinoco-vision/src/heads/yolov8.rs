//! YOLOv8 and YOLO11 (Ultralytics), anchor-free: one output `[n, 4 + classes + extra, anchors]`, channels before anchors;
//! box as centre and size in model pixels, class scores already 0 to 1. `extra` is, by task: for `yolov8-seg` the
//! coefficients of the prototype masks in the second output `[n, coefficients, h, w]`; for `yolov8-pose` three values
//! (x, y, visibility) or two (x, y) for each keypoint; for `yolov8-obb` one angle in radians.

mod masks;
mod oriented;

use orinoco_core::text::count;
use orinoco_core::{Detection, Dim, InferenceResult, Keypoint, TensorDesc};

use super::yolov5::from_center;
use super::{
    Build, Guess, GuessModel, Head, HeadDescriptor, HeadKind, HeadResultKind, HeadSamples, HeadSpec,
    KeypointShape, Output, OutputForm, cells, check_axes, fixed_after_batch, is_candidate, only,
};
use crate::nms::{CANDIDATES_MAX, suppress_by};
use crate::{Fit, InputSpec, Mapping, Rounding};
use oriented::{Oriented, far_distance};

pub(super) const DETECT: HeadKind = HeadKind(&DETECT_DESCRIPTOR);
pub(super) const SEGMENT: HeadKind = HeadKind(&SEGMENT_DESCRIPTOR);
pub(super) const POSE: HeadKind = HeadKind(&POSE_DESCRIPTOR);
pub(super) const ORIENTED: HeadKind = HeadKind(&ORIENTED_DESCRIPTOR);

static DETECT_DESCRIPTOR: HeadDescriptor = HeadDescriptor {
    form: OutputForm::Channels,
    settle_keypoints,
    ..usual("yolov8", |s, _, o| build(s, Task::Detect, o), |i, o| guess(i, Task::Detect, o), DETECT_SAMPLES)
};
static SEGMENT_DESCRIPTOR: HeadDescriptor = HeadDescriptor {
    finds: HeadResultKind::Instances,
    ..usual(
        "yolov8-seg",
        |s, _, o| build(s, Task::Segment, o),
        |i, o| guess(i, Task::Segment, o),
        SEGMENT_SAMPLES,
    )
};
static POSE_DESCRIPTOR: HeadDescriptor = HeadDescriptor {
    settle_keypoints,
    ..usual("yolov8-pose", |s, _, o| build(s, Task::Pose, o), |i, o| guess(i, Task::Pose, o), POSE_SAMPLES)
};
static ORIENTED_DESCRIPTOR: HeadDescriptor = HeadDescriptor {
    settle_keypoints,
    ..usual(
        "yolov8-obb",
        |s, _, o| build(s, Task::Oriented, o),
        |i, o| guess(i, Task::Oriented, o),
        ORIENTED_SAMPLES,
    )
};

/// Returns the settings that the heads of all tasks share.
const fn usual(name: &'static str, build: Build, guess: GuessModel, samples: HeadSamples) -> HeadDescriptor {
    HeadDescriptor {
        strides: &STRIDES,
        rounding: Rounding::Nearest,
        reads_ultralytics: true,
        ..HeadDescriptor::usual(name, build, guess, samples)
    }
}

const STRIDES: [u32; 3] = [8, 16, 32];
/// Number of values before the classes: centre and size.
const BOX_VALUES: usize = 4;
/// Number of values of a keypoint: x, y, visibility. Some models have no visibility.
const KEYPOINT_VALUES: usize = 3;
/// Number of a person's keypoints in COCO, for which the published models are trained.
const COCO_KEYPOINTS: usize = 17;
/// Number of classes of DOTA 1.0, for which the published models of oriented boxes are trained.
const DOTA_CLASSES: usize = 15;

#[derive(Clone, Copy, PartialEq)]
enum Task {
    Detect,
    Segment,
    Pose,
    Oriented,
}

struct YoloV8 {
    spec: HeadSpec,
    task: Task,
    /// Index of the output with the boxes, and of the one with the prototypes.
    boxes: usize,
    prototypes: usize,
    keypoint_values: usize,
    /// Best class of each anchor, with its score.
    best: Vec<(u32, f32)>,
    /// Anchor, class and score of the candidates above the threshold.
    above: Vec<(usize, u32, f32)>,
    candidates: Vec<Candidate>,
    /// Prototypes of one mask blended, in the cells under its box, and one row of them at the height of a pixel.
    blend: Vec<f32>,
    line: Vec<f32>,
}

/// Candidate: a box before suppression.
#[derive(Clone, Copy)]
struct Candidate {
    detection: Detection,
    anchor: usize,
    oriented: Oriented,
}

impl AsRef<Detection> for Candidate {
    fn as_ref(&self) -> &Detection {
        &self.detection
    }
}

fn build(spec: &HeadSpec, task: Task, outputs: &[TensorDesc]) -> Result<Box<dyn Head>, String> {
    let (mut boxes, mut prototypes) = (0, 0);
    if task == Task::Segment {
        let rank = |axes| outputs.iter().position(|output| output.shape.len() == axes);
        let both = rank(3).zip(rank(4)).filter(|_| outputs.len() == 2);
        let pair = "yolov8-seg has one output of 3 axes and one of 4";
        (boxes, prototypes) =
            both.ok_or_else(|| format!("it has {}, where {pair}", count(outputs.len() as u64, "output")))?;
    } else {
        only(outputs, "this head")?;
    }
    let output = &outputs[boxes];
    let extra = match (task, &outputs[prototypes].shape[..]) {
        (Task::Segment, [_, Dim::Fixed(coefficients), ..]) => *coefficients,
        (Task::Oriented, _) => 1,
        (Task::Pose, _) => match output.shape.get(1) {
            Some(Dim::Fixed(channels)) => channels.saturating_sub(BOX_VALUES + spec.classes),
            _ => {
                return Err(format!(
                    "its output is {output}, which does not say how many keypoints there are"
                ));
            }
        },
        _ => 0,
    };
    let usual = if extra.is_multiple_of(KEYPOINT_VALUES) { KEYPOINT_VALUES } else { KEYPOINT_VALUES - 1 };
    let keypoint_values = spec.keypoint_values.unwrap_or(usual);
    if task == Task::Pose && (extra == 0 || !extra.is_multiple_of(keypoint_values)) {
        return Err(format!(
            "its output is {output}: no values are left for keypoints after {} classes",
            spec.classes
        ));
    }
    check_axes(output, &[Dim::Dynamic, Dim::Fixed(BOX_VALUES + spec.classes + extra), Dim::Dynamic])?;
    Ok(Box::new(YoloV8 {
        spec: spec.clone(),
        task,
        boxes,
        prototypes,
        keypoint_values,
        best: Vec::new(),
        above: Vec::new(),
        candidates: Vec::new(),
        blend: Vec::new(),
        line: Vec::new(),
    }))
}

fn guess(input: &InputSpec, task: Task, outputs: &[TensorDesc]) -> Option<Guess> {
    let anchors = cells(&STRIDES, input.width, input.height, false).len();
    let boxes = outputs.iter().find_map(fixed_after_batch::<2>)?;
    let values = (boxes[1] == anchors).then_some(boxes[0])?.checked_sub(BOX_VALUES)?;
    let (kind, classes) = match (task, outputs.len()) {
        (Task::Detect, 1) => (DETECT, values),
        (Task::Segment, 2) => {
            let [coefficients, ..] = outputs.iter().find_map(fixed_after_batch::<3>)?;
            (SEGMENT, values.checked_sub(coefficients)?)
        }
        (Task::Pose, 1) if values == 1 + COCO_KEYPOINTS * KEYPOINT_VALUES => (POSE, 1),
        (Task::Oriented, 1) if values == DOTA_CLASSES + 1 => (ORIENTED, DOTA_CLASSES),
        _ => return None,
    };
    let guess = Guess::new(HeadSpec::new(kind, classes), input).unit_rgb(Fit::Letterbox);
    (classes > 0).then(|| match task {
        Task::Pose => guess.unsure("head", "a yolov8 detector of 52 classes has the same shape"),
        Task::Oriented => guess.unsure("head", "a yolov8 detector of 16 classes has the same shape"),
        _ => guess,
    })
}

/// Turns the guess of a detector with many classes into a pose model of the same shape.
fn settle_keypoints(head: &mut HeadSpec, outputs: &[TensorDesc], noted: KeypointShape) -> bool {
    let [TensorDesc { shape, .. }] = outputs else { return false };
    let [_, Dim::Fixed(channels), _] = shape[..] else { return false };
    if noted.count == 0 || !(KEYPOINT_VALUES - 1..=KEYPOINT_VALUES).contains(&noted.values) {
        return false;
    }
    let more = noted.count.checked_mul(noted.values).and_then(|more| more.checked_add(BOX_VALUES));
    let classes = more.and_then(|more| channels.checked_sub(more)).filter(|classes| *classes > 0);
    let Some(classes) = classes else { return false };
    head.kind = POSE;
    head.classes = classes;
    // A head without the key assumes three values.
    head.keypoint_values = (noted.values != KEYPOINT_VALUES).then_some(noted.values);
    true
}

impl Head for YoloV8 {
    fn decode(
        &mut self,
        outputs: &[Output<'_>],
        item: usize,
        mapping: &Mapping,
        found: &mut InferenceResult,
    ) {
        let [_, _, anchors] = *outputs[self.boxes].shape else { return };
        let channels = Channels { values: outputs[self.boxes].item(item), anchors };
        found.not_finite += self.find_candidates(&channels, mapping);
        let (iou_max, keep_max) = (self.spec.iou_threshold, self.spec.detections_max);
        match self.task {
            Task::Oriented => {
                let far = far_distance(iou_max);
                suppress_by(&mut self.candidates, keep_max, self.spec.across, |better, other| {
                    better.oriented.overlaps(&other.oriented, iou_max, far)
                })
            }
            _ => suppress_by(&mut self.candidates, keep_max, self.spec.across, |better, other| {
                better.detection.bounds.iou(&other.detection.bounds) > iou_max
            }),
        }
        found.detections.extend(self.candidates.iter().map(|candidate| candidate.detection));
        match self.task {
            Task::Detect => {}
            Task::Oriented => {
                found.corners.extend(self.candidates.iter().map(|c| c.oriented.corners(mapping)))
            }
            Task::Pose => self.keypoints(&channels, mapping, found),
            Task::Segment => self.masks(&channels, &outputs[self.prototypes], item, mapping, found),
        }
    }
}

/// Values of one image: for each channel a line of all anchors.
struct Channels<'a> {
    values: &'a [f32],
    anchors: usize,
}

impl Channels<'_> {
    fn at(&self, channel: usize, anchor: usize) -> f32 {
        self.values[channel * self.anchors + anchor]
    }
}

impl YoloV8 {
    /// Fills `candidates`. Returns the number of other candidates, whose score or box is not finite.
    fn find_candidates(&mut self, channels: &Channels<'_>, mapping: &Mapping) -> u64 {
        let lines = channels.values.chunks_exact(channels.anchors.max(1)).skip(BOX_VALUES);
        let lines = (0u32..).zip(lines.take(self.spec.classes));
        self.above.clear();
        if self.spec.multi_label {
            for (class_id, line) in lines {
                let above = line.iter().enumerate().filter(|(_, score)| is_candidate(**score, &self.spec));
                self.above.extend(above.map(|(anchor, score)| (anchor, class_id, *score)));
            }
        } else {
            // Loops class by class, because the anchors of a class are contiguous.
            self.best.clear();
            self.best.resize(channels.anchors, (0, f32::NAN));
            for (class_id, line) in lines {
                for (best, score) in self.best.iter_mut().zip(line) {
                    // NaN counts only where there is nothing else.
                    if *score > best.1 || best.1.is_nan() {
                        *best = (class_id, *score);
                    }
                }
            }
            let best = self.best.iter().enumerate();
            let above = best.filter(|(_, (_, score))| is_candidate(*score, &self.spec));
            self.above.extend(above.map(|(anchor, (class_id, score))| (anchor, *class_id, *score)));
        }
        let above_before = self.above.len();
        self.above.retain(|(_, _, score)| score.is_finite());
        let mut not_finite = (above_before - self.above.len()) as u64;
        // Only the best candidates are compared, so only their boxes are read.
        if self.above.len() > CANDIDATES_MAX {
            self.above.select_nth_unstable_by(CANDIDATES_MAX, |a, b| {
                b.2.total_cmp(&a.2).then((a.1, a.0).cmp(&(b.1, b.0)))
            });
            self.above.truncate(CANDIDATES_MAX);
        }
        self.candidates.clear();
        for &(anchor, class_id, score) in &self.above {
            let place: [f32; BOX_VALUES] = std::array::from_fn(|channel| channels.at(channel, anchor));
            let angle = match self.task {
                Task::Oriented => channels.at(BOX_VALUES + self.spec.classes, anchor),
                _ => 0.0,
            };
            let oriented = Oriented::new(place, angle);
            let bounds = match self.task {
                Task::Oriented => oriented.bounds(mapping),
                _ => mapping.to_source(from_center(&place)),
            };
            let detection = Detection { class_id, score, bounds };
            if detection.is_finite() {
                self.candidates.push(Candidate { detection, anchor, oriented });
            } else {
                not_finite += 1;
            }
        }
        not_finite
    }

    fn keypoints(&self, channels: &Channels<'_>, mapping: &Mapping, found: &mut InferenceResult) {
        let first = BOX_VALUES + self.spec.classes;
        let lines = channels.values.len() / channels.anchors.max(1);
        for candidate in &self.candidates {
            let keypoints = (first..lines).step_by(self.keypoint_values).map(|channel| {
                let value = |offset: usize| channels.at(channel + offset, candidate.anchor);
                let score = if self.keypoint_values == KEYPOINT_VALUES { value(2) } else { 1.0 };
                Keypoint { at: mapping.point(value(0), value(1)), score }
            });
            for keypoint in keypoints {
                let is_finite = [keypoint.at.x, keypoint.at.y, keypoint.score].iter().all(|n| n.is_finite());
                found.not_finite += u64::from(!is_finite);
                // COCO writes a keypoint that is not there as zeros.
                found.keypoints.push(if is_finite { keypoint } else { Keypoint::default() });
            }
        }
    }
}

/// Models that the suite of heads feeds for this task.
const DETECT_SAMPLES: HeadSamples = HeadSamples::published(80, 640, &[("output0", &[1, 84, 8400])])
    .finding(2, &[("y", &[1, 6, 1], &[9.0, 9.0, 4.0, 4.0, 0.7, 0.2])]);
/// Models that the suite of heads feeds for this task.
const SEGMENT_SAMPLES: HeadSamples =
    HeadSamples::published(80, 640, &[("output0", &[1, 116, 8400]), ("output1", &[1, 32, 160, 160])])
        .finding(2, &[("y", &[1, 7, 1], &[9.0, 9.0, 4.0, 4.0, 0.7, 0.2, 1.0]), ("p", &[1, 1, 8, 8], &[1.0])]);
/// Models that the suite of heads feeds for this task.
const POSE_SAMPLES: HeadSamples = HeadSamples::published(1, 640, &[("output0", &[1, 56, 8400])])
    .finding(1, &[("y", &[1, 8, 1], &[9.0, 9.0, 4.0, 4.0, 0.7, 1.0, 1.0, 0.5])]);
/// Models that the suite of heads feeds for this task.
const ORIENTED_SAMPLES: HeadSamples = HeadSamples::published(15, 1024, &[("output0", &[1, 20, 21504])])
    .finding(2, &[("y", &[1, 7, 1], &[9.0, 9.0, 4.0, 4.0, 0.7, 0.2, 0.3])]);

#[cfg(test)]
mod tests {
    use orinoco_core::{BoxF, Point};

    use super::super::tests::decode;
    use super::*;

    /// Arranges a list of values for each anchor as channels before anchors.
    fn channels(anchors: &[&[f32]]) -> Vec<f32> {
        (0..anchors[0].len()).flat_map(|channel| anchors.iter().map(move |anchor| anchor[channel])).collect()
    }

    #[test]
    fn anchors_become_boxes() {
        let data = channels(&[&[16.0, 8.0, 8.0, 4.0, 0.1, 0.8], &[17.0, 8.0, 8.0, 4.0, 0.2, 0.7]]);
        let found = decode(&HeadSpec::new(DETECT, 2), (32, 32), &[("output0", &[1, 6, 2], &data)]);
        let bounds = BoxF { x1: 24.0, y1: 12.0, x2: 40.0, y2: 20.0 };
        assert_eq!(found.detections, [Detection { class_id: 1, score: 0.8, bounds }]);
    }

    #[test]
    fn keypoints_stay_with_their_box() {
        let low = [4.0, 4.0, 4.0, 4.0, 0.5, 1.0, 2.0, 0.25];
        let high = [20.0, 20.0, 4.0, 4.0, 0.9, 3.0, 4.0, 0.75];
        let data = channels(&[&low, &high]);
        let found = decode(&HeadSpec::new(POSE, 1), (32, 32), &[("output0", &[1, 8, 2], &data)]);
        assert_eq!(found.keypoints_each(), 1);
        let expected = [(6.0, 8.0, 0.75), (2.0, 4.0, 0.25)];
        let expected = expected.map(|(x, y, score)| Keypoint { at: Point { x, y }, score });
        assert_eq!(found.keypoints, expected);
    }

    #[test]
    fn keypoints_may_have_no_visibility() {
        let check = |keypoint_values: Option<usize>, keypoints: &[f32], expected: &[(f32, f32, f32)]| {
            let data = [&[16.0, 16.0, 8.0, 8.0, 0.9][..], keypoints].concat();
            let spec = HeadSpec { keypoint_values, ..HeadSpec::new(POSE, 1) };
            let found = decode(&spec, (32, 32), &[("output0", &[1, data.len(), 1], &data)]);
            let seen: Vec<_> = found.keypoints.iter().map(|k| (k.at.x, k.at.y, k.score)).collect();
            assert_eq!(seen, expected);
        };
        let six = [1.0, 2.0, 0.5, 4.0, 5.0, 0.25];
        check(None, &six, &[(2.0, 4.0, 0.5), (8.0, 10.0, 0.25)]);
        check(Some(2), &six, &[(2.0, 4.0, 1.0), (1.0, 8.0, 1.0), (10.0, 0.5, 1.0)]);
        check(None, &six[..4], &[(2.0, 4.0, 1.0), (1.0, 8.0, 1.0)]);
    }

    #[test]
    fn a_mask_is_cut_to_its_box() {
        // A box over the upper left quarter; the prototype is positive in the left half of the image.
        let data = channels(&[&[4.0, 4.0, 8.0, 8.0, 0.9, 2.0]]);
        let prototype = [1.0, -1.0, 1.0, -1.0];
        let outputs: [(&str, &[usize], &[f32]); 2] =
            [("output0", &[1, 6, 1], &data), ("output1", &[1, 1, 2, 2], &prototype)];
        let found = decode(&HeadSpec::new(SEGMENT, 1), (16, 16), &outputs);
        let mask = &found.masks[0];
        assert_eq!((mask.left, mask.top, mask.width, mask.height), (0, 0, 16, 16));
        // The sign changes in the middle of the image, on the box's right edge.
        assert!(mask.pixels.iter().all(|pixel| *pixel == 1), "{mask:?}");
    }

    #[test]
    fn turned_boxes_are_compared_as_they_lie() {
        let turn = std::f32::consts::FRAC_PI_2;
        let flat = [16.0, 16.0, 16.0, 2.0, 0.9, 0.0];
        let (same, cross) = ([16.0, 16.0, 2.0, 16.0, 0.8, turn], [16.0, 16.0, 16.0, 2.0, 0.7, turn]);
        let data = channels(&[&flat, &same, &cross]);
        let found = decode(&HeadSpec::new(ORIENTED, 1), (32, 32), &[("output0", &[1, 6, 3], &data)]);
        // A box of half the shape turned by a quarter is the same box; a cross is not.
        assert_eq!(found.detections.iter().map(|d| d.score).collect::<Vec<_>>(), [0.9, 0.7]);
        let corner = found.corners[1][0];
        assert!((corner.x - 34.0).abs() < 1e-3 && (corner.y - 16.0).abs() < 1e-3, "{corner:?}");
        let bounds = found.detections[1].bounds;
        assert!((bounds.x1 - 30.0).abs() < 1e-3 && (bounds.y2 - 48.0).abs() < 1e-3, "{bounds:?}");
    }
}
