//! Runs every head on outputs that no model should give, and the parts after it for a frame of 1080p: tracker, zones,
//! overlay, JSON. Values that are not finite are left out and counted; huge boxes are boxes; a frame takes less than
//! 100 ms.

#![expect(clippy::disallowed_methods, reason = "the test waits for real threads or processes")]
#![allow(clippy::print_stdout, reason = "tests say what they measured")]

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use orinoco_api::ResultLine;
use orinoco_core::{Choice, ColorOrder, Dim, ElementType, InferenceResult, Layout, Pts, Resize, TensorDesc};
use orinoco_vision::zones::{Counter, FramePoint, FrameSize, Line, MARGIN, Zone};
use orinoco_vision::{
    Across, Align, Canvas, Fit, Head, HeadKind, HeadSpec, InputSpec, Output, Tracker, TrackerConfig, draw,
    draw_within, heads,
};

const FRAME: FrameSize = FrameSize { width: 1920, height: 1080 };
/// Maximum time of head, tracker, zones, overlay and JSON together for one frame of [`FRAME`], in milliseconds.
const FRAME_MS_MAX: f64 = 100.0;
/// Number of runs, of which the fastest counts: other programs use part of the cache and of the memory's bandwidth.
const TRIES: u32 = 12;
/// Lock that lets one of these tests run at a time, so that they do not slow one another.
static TURN: Mutex<()> = Mutex::new(());

/// Returns the time for which this thread had a core. A busy machine does not extend it, unlike the time of a clock.
fn thread_time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}
const NANOSECONDS_PER_FRAME: u64 = 40_000_000;

/// splitmix64 (Steele et al. 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }
}

/// Model with outputs for a head.
struct Model {
    spec: HeadSpec,
    side: u32,
    outputs: Vec<(&'static str, Vec<usize>)>,
}

/// Returns a model for each head, as large as published ones.
fn model_of(kind: HeadKind) -> Model {
    let heads::SampleModel { classes, side, strides, outputs } = kind.samples.published;
    let spec = HeadSpec { strides: strides.to_vec(), ..HeadSpec::new(kind, classes) };
    Model { spec, side, outputs: outputs.iter().map(|(name, shape)| (*name, shape.to_vec())).collect() }
}

fn input(side: u32, kind: HeadKind) -> InputSpec {
    InputSpec {
        layout: Layout::Nchw,
        width: side,
        height: side,
        color: ColorOrder::Rgb,
        resize: Resize::Bilinear,
        fit: Fit::Letterbox,
        align: Align::Center,
        rounding: kind.rounding,
        fill: 114,
        mean: [0.0; 3],
        scale: [1.0; 3],
    }
}

/// Parts of a pipeline after a model.
struct Chain {
    head: Box<dyn Head>,
    input: InputSpec,
    tracker: Tracker,
    counter: Counter,
    frame: Vec<u8>,
    labels: Vec<String>,
    frames: u64,
}

impl Chain {
    fn new(model: &Model) -> Self {
        let descs: Vec<TensorDesc> = model
            .outputs
            .iter()
            .map(|(name, shape)| TensorDesc {
                name: (*name).to_owned(),
                element: Some(ElementType::F32),
                shape: shape.iter().map(|size| Dim::Fixed(*size)).collect(),
            })
            .collect();
        let input = input(model.side, model.spec.kind);
        let head = heads::build(&model.spec, &input, &descs).expect("the shapes are those of the head");
        let corners = [(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0)].map(|(x, y)| FramePoint { x, y });
        let zones = vec![Zone::new("all", corners.to_vec()).expect("an area")];
        let lines = vec![Line::new("middle", [corners[0], corners[2]]).expect("a line")];
        Self {
            head,
            input,
            tracker: Tracker::new(TrackerConfig::default()),
            counter: Counter::new(zones, lines, MARGIN),
            frame: vec![0; (FRAME.width * FRAME.height * 3 / 2) as usize],
            labels: (0..model.spec.classes).map(|class| format!("class {class}")).collect(),
            frames: 0,
        }
    }

    /// Runs one frame through all parts. Returns the results, their line of JSON, and the time.
    fn run(&mut self, model: &Model, values: &[Vec<f32>]) -> (InferenceResult, String, Duration) {
        let outputs = model.outputs.iter().zip(values);
        let outputs: Vec<Output<'_>> =
            outputs.map(|((_, shape), data)| Output { shape, data, batch: 1 }).collect();
        let mapping = self.input.mapping(FRAME.width, FRAME.height);
        let mut found = InferenceResult::default();
        let (start, began) = (Instant::now(), thread_time());
        self.head.decode(&outputs, 0, &mapping, &mut found);
        self.tracker.update(&found.detections, Pts(self.frames * NANOSECONDS_PER_FRAME), &mut found.tracks);
        self.frames += 1;
        self.counter.update(&self.tracker, FRAME, &mut Vec::new());
        let mut canvas = Canvas::new(&mut self.frame, FRAME.width, FRAME.height).expect("it fits");
        draw(&mut canvas, &found, &self.labels, "hostile");
        let line = ResultLine::new("hostile", "test", &found, &self.labels);
        let text = serde_json::to_string(&line).expect("a result is JSON");
        let took = match (began, thread_time()) {
            (Some(began), Some(ended)) => ended.saturating_sub(began),
            _ => start.elapsed(),
        };
        if let Some(holder) = found.detections.first() {
            draw_within(&mut canvas, &found, &self.labels, holder);
        }
        (found, text, took)
    }
}

/// Checks that everything except raw tensors is finite, and that parts of detections have one entry for each.
fn check_findings(found: &InferenceResult, what: &str) {
    assert!(found.detections.iter().all(|detection| detection.is_finite()), "{what}: {:?}", found.detections);
    assert!(found.detections.len() <= 300, "{what}: {} detections", found.detections.len());
    let points = found.corners.iter().flatten().chain(found.keypoints.iter().map(|k| &k.at));
    assert!(points.into_iter().all(|at| at.x.is_finite() && at.y.is_finite()), "{what}");
    assert!(found.keypoints.iter().all(|keypoint| keypoint.score.is_finite()), "{what}");
    assert!(found.classes.iter().all(|class| class.score.is_finite()), "{what}: {:?}", found.classes);
    assert!(found.embedding.iter().all(|value| value.is_finite()), "{what}");
    for part in [found.corners.len(), found.masks.len(), found.tracks.len()] {
        assert!(part == 0 || part == found.detections.len(), "{what}: {part} of {}", found.detections.len());
    }
}

/// Checks that the JSON is valid, can be read back, and has numbers everywhere except in raw tensors.
fn check_json(text: &str, found: &InferenceResult, what: &str) {
    let read: ResultLine = serde_json::from_str(text).unwrap_or_else(|why| panic!("{what}: {why}: {text}"));
    assert_eq!(read.detections.len(), found.detections.len(), "{what}");
    assert!(!text.contains("null") || !read.tensors.is_empty(), "{what}: {text}");
}

/// Whether long tests are enabled: `ORINOCO_TEST_LONG=1`.
fn is_long() -> bool {
    std::env::var_os("ORINOCO_TEST_LONG").is_some()
}

/// Makes outputs with `value` in every element.
fn constant(model: &Model, value: f32) -> Vec<Vec<f32>> {
    model.outputs.iter().map(|(_, shape)| vec![value; shape.iter().product()]).collect()
}

/// Makes outputs with random values from `choice`.
fn random(model: &Model, seed: u64, choice: &[f32]) -> Vec<Vec<f32>> {
    let mut random = Random(seed);
    let mut values = |shape: &Vec<usize>| -> Vec<f32> {
        (0..shape.iter().product()).map(|_| choice[random.below(choice.len())]).collect()
    };
    model.outputs.iter().map(|(_, shape)| values(shape)).collect()
}

/// Runs `values` through all parts, once for the results, then for the time.
fn check(model: &Model, values: &[Vec<f32>], what: &str) -> InferenceResult {
    let what = format!("{:?} with {what}", model.spec.kind);
    // A failed test leaves nothing behind that the others need.
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut chain = Chain::new(model);
    let (found, text, mut least) = chain.run(model, values);
    check_findings(&found, &what);
    check_json(&text, &found, &what);
    for _ in 1..TRIES {
        if least.as_secs_f64() * 1e3 < FRAME_MS_MAX / 2.0 {
            break;
        }
        let (again, _, took) = chain.run(model, values);
        assert_eq!(again.detections, found.detections, "{what}: the same every time");
        least = least.min(took);
    }
    let ms = least.as_secs_f64() * 1e3;
    println!("{what}: {ms:.1} ms, {} detections, {} not finite", found.detections.len(), found.not_finite);
    assert!(ms < FRAME_MS_MAX, "{what}: {ms:.1} ms");
    found
}

#[test]
fn what_is_no_number_is_left_out_and_counted() {
    for kind in heads::ALL {
        let model = model_of(*kind);
        let found = check(&model, &constant(&model, f32::NAN), "NaN");
        assert!(
            found.detections.is_empty() && found.classes.is_empty() && found.embedding.is_empty(),
            "{kind:?}"
        );
        assert!(found.not_finite > 0, "{kind:?}: not counted");
        assert!(found.class_map.classes.iter().all(|class| *class == 255), "{kind:?}");
    }
}

#[test]
fn infinities_are_left_out_and_counted() {
    for kind in heads::ALL {
        let model = model_of(*kind);
        let found = check(&model, &constant(&model, f32::INFINITY), "infinity");
        assert!(
            found.detections.is_empty() && found.classes.is_empty() && found.embedding.is_empty(),
            "{kind:?}"
        );
        assert!(found.not_finite > 0, "{kind:?}: not counted");
        // These values score below any threshold; values that are not reported need not be counted.
        let found = check(&model, &constant(&model, f32::NEG_INFINITY), "negative infinity");
        assert!(
            found.detections.is_empty() && found.classes.is_empty() && found.embedding.is_empty(),
            "{kind:?}"
        );
    }
}

#[test]
fn huge_numbers_are_numbers() {
    for kind in heads::ALL {
        let model = model_of(*kind);
        let more: &[f32] = if is_long() { &[-1e30, f32::MAX, f32::MIN_POSITIVE] } else { &[] };
        for value in [1e8, 1e30, f32::MIN].iter().chain(more) {
            check(&model, &constant(&model, *value), &format!("{value:e}"));
        }
    }
}

#[test]
fn mixed_values_come_through() {
    let special =
        [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30, -1e30, 1e8, -1e8, 0.5, 0.9, 1.0, 0.0, 3.0];
    let huge = [1e30, 1e8, -1e8, 1e8, 0.9, 1.0, 0.5];
    let usual = [0.9, 1.0, 0.5, 0.0, 100.0, 300.0, 600.0];
    for kind in heads::ALL {
        let model = model_of(*kind);
        for seed in 0..if is_long() { 8 } else { 1 } {
            check(&model, &random(&model, seed, &special), &format!("special values, seed {seed}"));
            check(&model, &random(&model, seed, &huge), &format!("huge values, seed {seed}"));
            check(&model, &random(&model, seed, &usual), &format!("usual values, seed {seed}"));
        }
    }
}

/// Makes outputs in which every candidate scores 1 in every class, and as few as possible suppress one another.
fn crowd(model: &Model) -> Vec<Vec<f32>> {
    let mut values = constant(model, 1.0);
    let channels_first = |values: &mut Vec<f32>, anchors: usize| {
        for anchor in 0..anchors {
            let (x, y) = ((anchor % 128) as f32 * 5.0 + 2.5, (anchor / 128) as f32 * 5.0 + 2.5);
            for (channel, value) in [x, y, 4.0, 4.0].into_iter().enumerate() {
                values[channel * anchors + anchor] = value;
            }
        }
    };
    match model.spec.kind.name {
        // The box of a cell is the cell.
        "yolox" => {
            values[0].chunks_exact_mut(85).for_each(|row| row[..4].copy_from_slice(&[0.5, 0.5, 0.0, 0.0]));
        }
        "yolov5" => {
            for (index, row) in values[0].chunks_exact_mut(85).enumerate() {
                let (x, y) = ((index % 160) as f32 * 4.0 + 2.0, (index / 160) as f32 * 4.0 + 2.0);
                row[..4].copy_from_slice(&[x, y, 4.0, 4.0]);
            }
        }
        "yolov8" | "yolov8-seg" | "yolov8-pose" => channels_first(&mut values[0], 8400),
        "yolov8-obb" => channels_first(&mut values[0], 21504),
        "centernet" => {
            values[1].fill(4.0);
            values[2].fill(0.5);
        }
        "ssd" => {
            for (index, place) in values[1].chunks_exact_mut(4).enumerate() {
                let (x, y) = ((index % 100) as f32 / 100.0, (index / 100) as f32 / 100.0);
                place.copy_from_slice(&[x, y, x + 0.01, y + 0.01]);
            }
        }
        _ => {}
    }
    values
}

#[test]
fn a_crowd_of_equal_scores_is_in_time() {
    for kind in heads::ALL {
        let mut model = model_of(*kind);
        for multi_label in [false, true] {
            model.spec.multi_label = multi_label;
            check(&model, &crowd(&model), &format!("a crowd, multi_label = {multi_label}"));
        }
    }
}

#[test]
fn boxes_of_which_all_but_a_few_are_hidden_are_in_time() {
    // 299 positions, each with many boxes on one another: nothing ends the comparison before the last candidate.
    for name in ["yolov8", "yolov8-obb", "yolov8-seg"] {
        let mut model = model_of(HeadKind::from_name(name).expect("a head has this name"));
        (model.spec.multi_label, model.spec.across) = (true, Across::AllClasses);
        let mut values = constant(&model, 0.9);
        let anchors = model.outputs[0].1[2];
        for anchor in 0..anchors {
            let place = anchor % 299;
            let (x, y) = ((place % 20) as f32 * 30.0 + 15.0, (place / 20) as f32 * 30.0 + 15.0);
            for (channel, value) in [x, y, 20.0, 20.0].into_iter().enumerate() {
                values[0][channel * anchors + anchor] = value;
            }
        }
        let found = check(&model, &values, "299 boxes many times");
        assert_eq!(found.detections.len(), 299, "{name}");
    }
}
