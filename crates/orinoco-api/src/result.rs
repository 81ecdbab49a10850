//! Results of one model for one image or sound.

use orinoco_core::{ClassMap, ClassScore, Detection, InferenceResult, Keypoint, Mask, Point, RawTensor};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Schema name of [`ResultLine`].
pub const RESULT_SCHEMA: &str = "orinoco.result/1";

/// Inference result of one model for one frame, image or window of sound.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResultLine {
    /// Name and version of this contract.
    #[schemars(extend("const" = RESULT_SCHEMA))]
    pub schema: String,
    /// Name of the stream; absent for `infer`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stream: Option<String>,
    /// Path of the image; absent unless `infer` read an image.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub image: Option<String>,
    /// Path of the sound; absent unless `infer` read a sound.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub audio: Option<String>,
    /// Sequence number of the frame at its source, from 0; for `infer` the number of the image or window.
    pub seq: u64,
    /// Presentation time in nanoseconds of the source's clock; for a sound the start of the window.
    pub pts_ns: u64,
    /// Time of day at which a live source captured the frame, in nanoseconds since 1970-01-01 00:00 UTC; absent for
    /// recordings and test patterns.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub wall_ns: Option<u64>,
    /// Name of the model.
    pub model: String,
    /// Name of the engine.
    pub engine: String,
    /// Object in the same frame, found by another model, that this model operated on; absent where it operated on the
    /// whole frame.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub object: Option<ObjectJson>,
    /// True where the model skipped this frame and `detections` are the tracker's predictions; absent otherwise.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub predicted: bool,
    /// Detected objects, best score first.
    pub detections: Vec<DetectionJson>,
    /// Zone events: tracked objects that entered or left a zone in this frame; absent where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub zones: Vec<ZoneEventJson>,
    /// Line events: tracked objects that crossed a line in this frame; absent where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub lines: Vec<LineEventJson>,
    /// Classes of the whole image, best score first; absent where the model gives none.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub classes: Vec<ClassJson>,
    /// Semantic segmentation: a class for each cell; absent where the model gives none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mask: Option<ClassMapJson>,
    /// Embedding: a unit vector that identifies the object or scene; absent where the model gives none.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub embedding: Vec<f32>,
    /// Raw output tensors of the model; absent where a head decodes them.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub tensors: Vec<TensorJson>,
}

impl ResultLine {
    /// Creates a line with the results of `model`. The caller fills in the stream, time and object. `labels` are the
    /// model's.
    pub fn new(model: &str, engine: &str, inference: &InferenceResult, labels: &[String]) -> Self {
        let label = |class_id: u32| labels.get(class_id as usize).map_or("?", String::as_str);
        let each = inference.keypoints_each();
        let detections = inference.detections.iter().enumerate().map(|(index, found)| DetectionJson {
            corners: inference.corners.get(index).map(|corners| corners.map(pair)),
            keypoints: inference.keypoints[index * each..][..each].iter().map(keypoint).collect(),
            mask: inference.masks.get(index).map(MaskJson::from),
            track_id: inference.tracks.get(index).copied().flatten().map(|track| track.0),
            ..DetectionJson::new(found, label(found.class_id))
        });
        let class = |class: &ClassScore| ClassJson {
            class_id: class.class_id,
            label: label(class.class_id).to_owned(),
            score: class.score,
        };
        Self {
            schema: RESULT_SCHEMA.to_owned(),
            model: model.to_owned(),
            engine: engine.to_owned(),
            detections: detections.collect(),
            classes: inference.classes.iter().map(class).collect(),
            mask: (inference.class_map.width > 0).then(|| ClassMapJson::from(&inference.class_map)),
            embedding: inference.embedding.clone(),
            tensors: inference.tensors.iter().map(TensorJson::from).collect(),
            ..Self::default()
        }
    }
}

/// Event of a tracked object that entered or left a zone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ZoneEventJson {
    /// Name of the zone.
    pub name: String,
    /// `entered` or `left`.
    pub event: String,
    /// Tracked object.
    #[serde(flatten)]
    pub by: TrackJson,
}

/// Event of a tracked object that crossed a line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LineEventJson {
    /// Name of the line.
    pub name: String,
    /// Direction of the crossing: `a_to_b` or `b_to_a`.
    pub direction: String,
    /// Tracked object.
    #[serde(flatten)]
    pub by: TrackJson,
}

/// Tracked object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TrackJson {
    /// Track id, as in `detections`.
    pub track_id: u64,
    /// Index into the model's labels: the class that the object had when its track began.
    pub class_id: u32,
    /// Name of that class.
    pub label: String,
}

/// Object that another model detected.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ObjectJson {
    /// Name of the other model.
    pub model: String,
    /// Index of the object in `detections` of that model's line for this frame, from 0.
    pub index: usize,
    /// Detection of the other model.
    #[serde(flatten)]
    pub detection: DetectionJson,
}

/// One detected object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DetectionJson {
    /// Index into the model's labels.
    pub class_id: u32,
    /// Name of the class.
    pub label: String,
    /// Confidence, 0 to 1.
    pub score: f32,
    /// Bounding box `[x1, y1, x2, y2]` in source pixels.
    #[serde(rename = "box")]
    pub bounds: [f32; 4],
    /// Corners of an oriented box, clockwise, each `[x, y]` in source pixels; `box` is the upright box around them.
    /// Absent where boxes are upright.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub corners: Option<[[f32; 2]; 4]>,
    /// Keypoints, each `[x, y, score]` in source pixels; absent where the model gives none.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub keypoints: Vec<[f32; 3]>,
    /// Instance mask; absent where the model gives none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mask: Option<MaskJson>,
    /// Track id, the same from frame to frame; absent where the detection belongs to no track.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub track_id: Option<u64>,
}

impl DetectionJson {
    /// Creates a detection with the name of its class.
    pub fn new(found: &Detection, label: &str) -> Self {
        let b = found.bounds;
        let bounds = [b.x1, b.y1, b.x2, b.y2];
        Self {
            class_id: found.class_id,
            label: label.to_owned(),
            score: found.score,
            bounds,
            ..Self::default()
        }
    }
}

/// One class with its score.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClassJson {
    /// Index into the model's labels.
    pub class_id: u32,
    /// Name of the class.
    pub label: String,
    /// Confidence, 0 to 1.
    pub score: f32,
}

/// Instance mask: the pixels of one object, within a rectangle of the frame.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MaskJson {
    /// Left edge of the rectangle, in source pixels.
    pub left: u32,
    /// Top edge of the rectangle, in source pixels.
    pub top: u32,
    /// Width of the rectangle, in source pixels.
    pub width: u32,
    /// Height of the rectangle, in source pixels.
    pub height: u32,
    /// Run lengths in pixels, row by row, alternately outside and inside the object, starting with outside.
    pub runs: Vec<u32>,
}

impl From<&Mask> for MaskJson {
    fn from(mask: &Mask) -> Self {
        let (mut runs, mut inside, mut rest) = (Vec::new(), 0, mask.pixels.as_slice());
        loop {
            let run = memchr::memchr(1 - inside, rest).unwrap_or(rest.len());
            runs.push(run as u32);
            rest = &rest[run..];
            if rest.is_empty() {
                break;
            }
            inside = 1 - inside;
        }
        Self { left: mask.left, top: mask.top, width: mask.width, height: mask.height, runs }
    }
}

/// Class of every cell of a grid that covers the whole frame.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClassMapJson {
    /// Columns of the grid.
    pub width: u32,
    /// Rows of the grid.
    pub height: u32,
    /// Runs of cells with one class, row by row, each `[class id, cells]`; class 255 marks cells without a finite
    /// value.
    pub runs: Vec<[u32; 2]>,
}

impl From<&ClassMap> for ClassMapJson {
    fn from(map: &ClassMap) -> Self {
        let mut runs: Vec<[u32; 2]> = Vec::new();
        for class in map.classes.iter().map(|class| u32::from(*class)) {
            match runs.last_mut() {
                Some([last, cells]) if *last == class => *cells += 1,
                _ => runs.push([class, 1]),
            }
        }
        Self { width: map.width, height: map.height, runs }
    }
}

/// Raw output tensor of a model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TensorJson {
    /// Name of the output in the graph.
    pub name: String,
    /// Shape without the batch axis.
    pub shape: Vec<usize>,
    /// Elements in row-major order; `null` where the model gave an infinity or NaN, read back as NaN.
    #[serde(deserialize_with = "numbers_or_null")]
    #[schemars(with = "Vec<Option<f32>>")]
    pub data: Vec<f32>,
}

fn numbers_or_null<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<f32>, D::Error> {
    let values = Vec::<Option<f32>>::deserialize(deserializer)?;
    Ok(values.into_iter().map(|value| value.unwrap_or(f32::NAN)).collect())
}

impl From<&RawTensor> for TensorJson {
    fn from(tensor: &RawTensor) -> Self {
        Self { name: tensor.name.clone(), shape: tensor.shape.clone(), data: tensor.data.clone() }
    }
}

fn pair(point: Point) -> [f32; 2] {
    [point.x, point.y]
}

fn keypoint(keypoint: &Keypoint) -> [f32; 3] {
    [keypoint.at.x, keypoint.at.y, keypoint.score]
}

#[cfg(test)]
mod tests {
    use super::*;
    use orinoco_core::BoxF;

    #[test]
    fn the_contract() {
        let bounds = BoxF { x1: 1.0, y1: 2.0, x2: 3.5, y2: 4.0 };
        let detections = vec![Detection { class_id: 1, score: 0.5, bounds }];
        let labels = ["car".to_owned(), "bus".to_owned()];
        let inference = InferenceResult { detections, ..InferenceResult::default() };
        let line = ResultLine {
            stream: Some("cam".to_owned()),
            seq: 7,
            pts_ns: 40_000_000,
            ..ResultLine::new("m", "tract", &inference, &labels)
        };
        let text = serde_json::to_string(&line).expect("serialises");
        assert_eq!(
            text,
            r#"{"schema":"orinoco.result/1","stream":"cam","seq":7,"pts_ns":40000000,"model":"m","engine":"tract","detections":[{"class_id":1,"label":"bus","score":0.5,"box":[1.0,2.0,3.5,4.0]}]}"#
        );
        assert_eq!(serde_json::from_str::<ResultLine>(&text).expect("parses"), line);
    }

    #[test]
    fn raw_tensors_that_are_not_finite_are_read_back() {
        let data = vec![1.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30];
        let tensors = vec![RawTensor { name: "y".to_owned(), shape: vec![5], data }];
        let line =
            ResultLine::new("m", "tract", &InferenceResult { tensors, ..InferenceResult::default() }, &[]);
        let text = serde_json::to_string(&line).expect("serialises");
        assert!(text.contains(r#""data":[1.0,null,null,null,1e+30]"#), "{text}");
        let read: ResultLine = serde_json::from_str(&text).expect("what was written is read");
        let kinds: Vec<bool> = read.tensors[0].data.iter().map(|value| value.is_finite()).collect();
        assert_eq!(kinds, [true, false, false, false, true]);
    }

    #[test]
    fn masks_are_runs() {
        let mask = Mask { left: 1, top: 2, width: 3, height: 2, pixels: vec![1, 1, 0, 0, 0, 1] };
        assert_eq!(MaskJson::from(&mask).runs, [0, 2, 3, 1]);
        let mask = Mask { pixels: vec![0, 0, 0, 1, 1, 0], ..mask };
        assert_eq!(MaskJson::from(&mask).runs, [3, 2, 1]);
        assert_eq!(MaskJson::from(&Mask::default()).runs, [0]);
        let map = ClassMap { width: 2, height: 2, classes: vec![0, 7, 7, 7] };
        assert_eq!(ClassMapJson::from(&map).runs, [[0, 1], [7, 3]]);
    }
}
