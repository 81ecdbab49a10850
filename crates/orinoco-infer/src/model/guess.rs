//! What a graph that nobody described most likely is, and what of that the graph does not prove.

use std::path::Path;

use orinoco_core::{Diagnosis, Dim, ElementType, Layout, TensorDesc, codes};
use orinoco_vision::{Align, ColorOrder, Fit, Guess, HeadSpec, InputSpec, Resize, Rounding, heads};

use super::input::{AudioFeatures, AudioSpec, Feed, FeedValue, ModelInput, SIDE_MAX, WINDOW_MAX};
use super::output::numbered_labels;
use super::{Model, metadata};

/// A key of a guessed description that may be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsure {
    /// The key.
    pub key: &'static str,
    /// Why the graph does not prove it.
    pub why: &'static str,
}

/// Sides of a picture whose graph leaves them open: what most detectors are exported with.
const SIDE_USUAL: u32 = 640;
/// What speech is recorded with.
const SAMPLE_RATE_USUAL: u32 = 16_000;
/// New samples of a model that leaves their number open: 32 ms.
const WINDOW_USUAL: usize = 512;

impl Model {
    /// What the graph in `file` most likely is, from its inputs and outputs alone.
    pub fn guess(file: &Path, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Result<Self, Diagnosis> {
        let (main, feeds, mut unsure) = split_inputs(inputs, outputs);
        let unknown = |cause: String| {
            let next = "write a model.toml for it (docs/model-files.md has one for each head)";
            Diagnosis::new(&codes::MODEL_UNKNOWN, file.display(), cause, next)
        };
        let main =
            main.ok_or_else(|| unknown("it has no input that could be a picture or sound".to_owned()))?;
        let fed_back = |output: &&TensorDesc| {
            !feeds.iter().any(|feed| feed.value == FeedValue::State(output.name.clone()))
        };
        let read: Vec<TensorDesc> = outputs.iter().filter(fed_back).cloned().collect();
        let (input, mut head) = if let Some(image) = image_input(main, &mut unsure) {
            let Guess { head, input, unsure: more } =
                heads::guess(&image, &read).expect("the head `raw` takes anything");
            unsure.extend(more.into_iter().map(|(key, why)| Unsure { key, why }));
            unsure.push(Unsure { key: "resize", why: "the filter of training is not in the graph" });
            if input.color != ColorOrder::Gray && !unsure.iter().any(|unsure| unsure.key == "color") {
                unsure.push(Unsure { key: "color", why: "the order of channels is not in the graph" });
            }
            (ModelInput::Image(input), head)
        } else if let Some(audio) = audio_input(main, &mut unsure) {
            (ModelInput::Audio(audio), audio_head(&read))
        } else {
            return Err(unknown(format!("its input {main} is neither a picture nor sound")));
        };
        let labels = guess_labels(file, &read, &mut head, &mut unsure);
        let name = file.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
        Ok(Self {
            name,
            description: String::new(),
            license: String::new(),
            file: file.to_owned(),
            sha256: None,
            input_name: Some(main.name.clone()),
            input,
            input_element: None,
            input_quantization: None,
            feeds,
            head,
            output_quantization: None,
            labels,
            described_by: None,
            unsure,
        })
    }
}

/// The names of classes: the trainer's, where the file carries them, else numbers.
fn guess_labels(
    file: &Path,
    outputs: &[TensorDesc],
    head: &mut HeadSpec,
    unsure: &mut Vec<Unsure>,
) -> Vec<String> {
    if !heads::has_classes(&head.kind) {
        return Vec::new();
    }
    let notes = metadata::notes(file);
    if let Some(shape) = notes.get("kpt_shape").and_then(|shape| metadata::keypoint_shape(shape)) {
        settle_keypoints(shape, outputs, head, unsure);
    }
    let named = notes.get("names").and_then(|names| metadata::class_names(names));
    let open = unsure.iter().any(|unsure| unsure.key == "classes");
    if let Some(names) = named.filter(|names| open || names.len() == head.classes) {
        // The trainer's own list settles how many there are, and so which head it is.
        unsure.retain(|unsure| !["classes", "head"].contains(&unsure.key));
        head.classes = names.len();
        return names;
    }
    unsure.push(Unsure { key: "classes", why: "the names of classes are not in the graph" });
    numbered_labels(head.classes)
}

/// Makes a pose model of what has the shape of a detector of more classes, where the trainer noted `count` keypoints of
/// `values` each.
fn settle_keypoints(
    (count, values): (usize, usize),
    outputs: &[TensorDesc],
    head: &mut HeadSpec,
    unsure: &mut Vec<Unsure>,
) {
    const BOX_VALUES: usize = 4;
    let [TensorDesc { shape, .. }] = outputs else { return };
    let [_, Dim::Fixed(channels), _] = shape[..] else { return };
    let alike = ["yolov8", "yolov8-pose", "yolov8-obb"].contains(&head.kind.as_str());
    if !alike || count == 0 || !(2..=3).contains(&values) {
        return;
    }
    let more = count.checked_mul(values).and_then(|more| more.checked_add(BOX_VALUES));
    if let Some(classes) = more.and_then(|more| channels.checked_sub(more)).filter(|classes| *classes > 0) {
        unsure.retain(|unsure| unsure.key != "head");
        head.kind = "yolov8-pose".to_owned();
        head.classes = classes;
        // Three is what a head without the key takes them for.
        head.keypoint_values = (values == 2).then_some(values);
    }
}

/// The main input, and what goes into the others.
fn split_inputs<'a>(
    inputs: &'a [TensorDesc],
    outputs: &[TensorDesc],
) -> (Option<&'a TensorDesc>, Vec<Feed>, Vec<Unsure>) {
    let mut unsure = Vec::new();
    let (main, others) = match inputs {
        [] => return (None, Vec::new(), unsure),
        // The largest rank is the picture; the first one among equals.
        _ => {
            let rank = |input: &TensorDesc| if input.shape.len() == 4 { 4 } else { 0 };
            let best = (0..inputs.len()).rev().max_by_key(|index| rank(&inputs[*index])).unwrap_or(0);
            (&inputs[best], inputs.iter().enumerate().filter(move |(index, _)| *index != best))
        }
    };
    let mut feeds = Vec::new();
    for (_, input) in others {
        // An output of the same rank whose name begins like the input's: `state` and `stateN`, `h0` and `h0_out`.
        let back = outputs
            .iter()
            .find(|output| output.name.starts_with(&input.name) && output.shape.len() == input.shape.len());
        let value = match back {
            Some(output) => FeedValue::State(output.name.clone()),
            None => {
                let why = "what goes into an input beside the main one is not in the graph";
                unsure.push(Unsure { key: "value", why });
                let speech_rate = input.name == "sr" && input.element == Some(ElementType::I64);
                FeedValue::Constant(vec![if speech_rate { SAMPLE_RATE_USUAL as f32 } else { 0.0 }])
            }
        };
        let open = input.shape.contains(&Dim::Dynamic);
        let size = |dim: &Dim| if let Dim::Fixed(n) = dim { *n } else { 1 };
        let shape = if open { input.shape.iter().map(size).collect() } else { Vec::new() };
        feeds.push(Feed { input: input.name.clone(), shape, value });
    }
    (Some(main), feeds, unsure)
}

/// What the graph says of a picture: size, layout and channels.
fn image_input(input: &TensorDesc, unsure: &mut Vec<Unsure>) -> Option<InputSpec> {
    let axes = match input.shape[..] {
        [_, a, b, c] => [a, b, c],
        [a, b, c] => [a, b, c],
        _ => return None,
    };
    let channels = |dim: Dim| matches!(dim, Dim::Fixed(1 | 3));
    let (layout, depth, height, width) = match axes {
        [depth, height, width] if channels(depth) => (Layout::Nchw, depth, height, width),
        [height, width, depth] if channels(depth) => (Layout::Nhwc, depth, height, width),
        [Dim::Dynamic, height, width] => (Layout::Nchw, Dim::Fixed(3), height, width),
        _ => return None,
    };
    if height == Dim::Dynamic || width == Dim::Dynamic {
        unsure.push(Unsure { key: "width", why: "the graph takes any size" });
    }
    if layout == Layout::Nhwc && depth == Dim::Fixed(1) {
        unsure.push(Unsure { key: "kind", why: "features of sound have the same shape" });
    }
    if matches!(input.element, Some(ElementType::I8)) {
        unsure.push(Unsure {
            key: "quant_scale",
            why: "the step of an integer input is not in its declaration",
        });
    }
    let side = |dim: Dim| match dim {
        Dim::Fixed(n) => u32::try_from(n).ok().filter(|n| (1..=SIDE_MAX).contains(&i64::from(*n))),
        Dim::Dynamic => Some(SIDE_USUAL),
    };
    Some(InputSpec {
        layout,
        width: side(width)?,
        height: side(height)?,
        color: if depth == Dim::Fixed(1) { ColorOrder::Gray } else { ColorOrder::Rgb },
        resize: Resize::Bilinear,
        fit: Fit::Stretch,
        align: Align::TopLeft,
        rounding: Rounding::Down,
        fill: 114,
        mean: [0.0; 3],
        scale: [1.0; 3],
    })
}

/// Samples of sound: one line of them.
fn audio_input(input: &TensorDesc, unsure: &mut Vec<Unsure>) -> Option<AudioSpec> {
    let [_, samples] = input.shape[..] else { return None };
    let window = if let Dim::Fixed(n) = samples { n } else { WINDOW_USUAL };
    if !i64::try_from(window).is_ok_and(|window| (1..=WINDOW_MAX).contains(&window)) {
        return None;
    }
    unsure.push(Unsure { key: "window", why: "how many of the samples are new is not in the graph" });
    unsure.push(Unsure { key: "context", why: "how many of the samples are repeated is not in the graph" });
    unsure.push(Unsure { key: "sample_rate", why: "it is not in the graph" });
    let features = AudioFeatures::Samples { window, context: 0 };
    Some(AudioSpec { sample_rate: SAMPLE_RATE_USUAL, features })
}

/// Classes of the sound where there is one row of them, else whatever comes.
fn audio_head(outputs: &[TensorDesc]) -> HeadSpec {
    match outputs {
        [TensorDesc { shape, .. }] => match shape[..] {
            [_, Dim::Fixed(classes)] => HeadSpec::new("classification", classes),
            _ => HeadSpec::new("raw", 0),
        },
        _ => HeadSpec::new("raw", 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noted_keypoints_make_a_pose_model() {
        let check = |kind: &str, noted, channels: usize, expected: (&str, usize, Option<usize>)| {
            let shape = vec![Dim::Fixed(1), Dim::Fixed(channels), Dim::Fixed(8400)];
            let output = TensorDesc { name: "output0".to_owned(), element: Some(ElementType::F32), shape };
            let (mut head, mut unsure) = (HeadSpec::new(kind, channels - 4), Vec::new());
            settle_keypoints(noted, &[output], &mut head, &mut unsure);
            assert_eq!((head.kind.as_str(), head.classes, head.keypoint_values), expected);
        };
        check("yolov8", (3, 2), 4 + 2 + 6, ("yolov8-pose", 2, Some(2)));
        check("yolov8-obb", (5, 3), 4 + 1 + 15, ("yolov8-pose", 1, None));
        // What was noted leaves no class, or belongs to another head.
        check("yolov8", (3, 2), 4 + 6, ("yolov8", 6, None));
        check("detr", (3, 2), 4 + 2 + 6, ("detr", 8, None));
    }

    #[test]
    fn sizes_that_no_description_may_have_are_not_guessed() {
        let desc = |name: &str, shape: &[usize]| TensorDesc {
            name: name.to_owned(),
            element: Some(ElementType::F32),
            shape: shape.iter().map(|size| Dim::Fixed(*size)).collect(),
        };
        let check = |input: &[usize], output: &[usize], is_known: bool| {
            let guessed = Model::guess(Path::new("m.onnx"), &[desc("x", input)], &[desc("y", output)]);
            match guessed {
                Ok(_) => assert!(is_known, "{input:?}"),
                Err(fault) => assert!(!is_known && fault.code.id == codes::MODEL_UNKNOWN.id, "{fault}"),
            }
        };
        check(&[1, 3, 640, 640], &[1, 25200, 85], true);
        check(&[1, 3, 200_000, 200_000], &[1, 25200, 85], false);
        check(&[1, 3, 640, 0], &[1, 25200, 85], false);
        check(&[1, 512], &[1, 2], true);
        check(&[1, 0], &[1, 2], false);
        check(&[1, 1_000_000_000], &[1, 2], false);
    }
}
