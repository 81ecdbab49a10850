//! Output heads: a model's raw tensors into findings. A new head is one file here and one line in [`ALL`].

mod centernet;
mod classification;
mod detr;
mod embedding;
mod end2end;
mod fastestdet;
mod listed;
mod nanodet;
mod raw;
mod segmentation;
mod ssd;
mod yolov5;
mod yolov8;
mod yolox;

pub use yolox::STRIDES as YOLOX_STRIDES;

use orinoco_core::text::count;
use orinoco_core::{Activation, Choice, ColorOrder, Detection, Dim, Findings, TensorDesc};

use crate::{Across, Align, Fit, InputSpec, Mapping, Rounding, suppress};

/// How to read a model's outputs.
#[derive(Clone, Debug, PartialEq)]
pub struct HeadSpec {
    /// The head's name: one of [`names`].
    pub kind: String,
    /// Number of classes.
    pub classes: usize,
    /// Cell sizes in model pixels, finest first; empty where the head has usual ones.
    pub strides: Vec<u32>,
    /// What scores this or less is dropped: one rule for all heads, the one of the published decoders.
    pub score_threshold: f32,
    /// Boxes of one class that overlap a better one by more than this are dropped.
    pub iou_threshold: f32,
    /// The most detections of one frame.
    pub detections_max: usize,
    /// Whether boxes of different classes hide one another.
    pub across: Across,
    /// Whether a box is reported once for each class above the threshold, as COCO's evaluations do, or only for its best.
    pub multi_label: bool,
    /// What turns the model's class values into probabilities.
    pub activation: Activation,
    /// The class that means "nothing", which is never reported.
    pub background: Option<u32>,
    /// The most classes reported of a whole frame.
    pub top: usize,
    /// How boxes are written, where a head allows several ways.
    pub boxes: BoxForm,
    /// The unit of boxes, where a head allows several.
    pub box_unit: BoxUnit,
    /// Values of a keypoint: x and y (2), and visibility (3). `None`: what the number of all of them says, which is 3 where
    /// both divide it.
    pub keypoint_values: Option<usize>,
}

impl HeadSpec {
    /// A spec with the settings that most models of the field use.
    pub fn new(kind: &str, classes: usize) -> Self {
        let box_unit = if kind == listed::KIND.name { BoxUnit::Pixels } else { BoxUnit::Fraction };
        // Every class of a frame is of interest, if only as the second guess.
        let score_threshold = if kind == classification::KIND.name { 0.0 } else { 0.3 };
        Self {
            kind: kind.to_owned(),
            classes,
            strides: Vec::new(),
            score_threshold,
            iou_threshold: 0.45,
            detections_max: 300,
            across: Across::NoClasses,
            // YOLOX's own decoding.
            multi_label: kind == yolox::KIND.name,
            activation: Activation::Auto,
            background: None,
            top: 5,
            boxes: BoxForm::Corners,
            box_unit,
            keypoint_values: None,
        }
    }

    /// The strides given, else `usual`.
    pub fn strides_or(&self, usual: &[u32]) -> Vec<u32> {
        if self.strides.is_empty() { usual.to_vec() } else { self.strides.clone() }
    }
}

/// How a box is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoxForm {
    /// `x1, y1, x2, y2`.
    Corners,
    /// `centre x, centre y, width, height`.
    Center,
}

impl Choice for BoxForm {
    const ALL: &'static [Self] = &[Self::Corners, Self::Center];

    fn name(self) -> &'static str {
        match self {
            Self::Corners => "corners",
            Self::Center => "center",
        }
    }
}

/// The unit of a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoxUnit {
    /// 0 to 1 of the model's input.
    Fraction,
    /// Pixels of the model's input.
    Pixels,
}

impl Choice for BoxUnit {
    const ALL: &'static [Self] = &[Self::Fraction, Self::Pixels];

    fn name(self) -> &'static str {
        match self {
            Self::Fraction => "fraction",
            Self::Pixels => "pixels",
        }
    }
}

/// One output tensor, f32, row-major, batch first.
#[derive(Clone, Copy, Debug)]
pub struct Output<'a> {
    /// Its shape.
    pub shape: &'a [usize],
    /// Its values.
    pub data: &'a [f32],
    /// Pictures of the batch. [`check_batch`] says whether the first axis is that.
    pub batch: usize,
}

impl<'a> Output<'a> {
    /// The values of one picture of the batch.
    pub fn item(&self, index: usize) -> &'a [f32] {
        let per_item = self.data.len().checked_div(self.batch).unwrap_or(0);
        &self.data[index * per_item..][..per_item]
    }
}

/// Reads one model's outputs. Made for known shapes, so decoding cannot fail.
pub trait Head: Send {
    /// Reads picture `item` of the batch into `found`, which is empty: detections in source pixels, best first. What is not
    /// a finite number is left out and counted (`not_finite`), so that everything in `found` but raw tensors is one.
    fn decode(&mut self, outputs: &[Output<'_>], item: usize, mapping: &Mapping, found: &mut Findings);
}

/// Makes a head for a model with these outputs, or says what does not fit.
pub type Build = fn(&HeadSpec, &InputSpec, &[TensorDesc]) -> Result<Box<dyn Head>, String>;

/// One kind of head.
pub struct HeadKind {
    /// Its name in model files.
    pub name: &'static str,
    /// Makes one.
    pub build: Build,
    /// What a model without a description would be if its outputs look like this head's. `input` is what its graph says:
    /// size, layout and channels.
    pub guess: fn(input: &InputSpec, outputs: &[TensorDesc]) -> Option<Guess>,
}

/// What a graph looks like, and what of that is not certain.
#[derive(Clone, Debug, PartialEq)]
pub struct Guess {
    /// How to read the outputs.
    pub head: HeadSpec,
    /// What the head's models usually want to see.
    pub input: InputSpec,
    /// Keys of the description that the graph does not prove, each with the reason.
    pub unsure: Vec<(&'static str, &'static str)>,
}

impl Guess {
    fn new(head: HeadSpec, input: &InputSpec) -> Self {
        let input = InputSpec { rounding: rounding(&head.kind), ..input.clone() };
        Self { head, input, unsure: Vec::new() }
    }

    /// RGB from 0 to 1, as most trainers feed.
    fn unit_rgb(mut self, fit: Fit) -> Self {
        self.input.scale = [1.0 / 255.0; 3];
        self.fit(fit)
    }

    /// BGR, as models trained with OpenCV see it.
    fn bgr(mut self) -> Self {
        if self.input.color != ColorOrder::Gray {
            self.input.color = ColorOrder::Bgr;
        }
        self
    }

    fn fit(mut self, fit: Fit) -> Self {
        self.input.fit = fit;
        self.input.align = Align::Center;
        self
    }

    fn unsure(mut self, key: &'static str, why: &'static str) -> Self {
        self.unsure.push((key, why));
        self
    }
}

/// Every head. Guesses are tried in this order: the shapes that say most come first.
pub static ALL: &[HeadKind] = &[
    centernet::KIND,
    yolox::KIND,
    nanodet::KIND,
    yolov8::SEGMENT,
    yolov8::POSE,
    yolov8::ORIENTED,
    yolov8::DETECT,
    yolov5::KIND,
    end2end::KIND,
    listed::KIND,
    detr::KIND,
    ssd::KIND,
    fastestdet::KIND,
    classification::KIND,
    embedding::KIND,
    segmentation::KIND,
    raw::KIND,
];

/// The names of all heads.
pub fn names() -> Vec<&'static str> {
    ALL.iter().map(|kind| kind.name).collect()
}

/// Makes the head that `spec` names, or says what does not fit.
pub fn build(spec: &HeadSpec, input: &InputSpec, outputs: &[TensorDesc]) -> Result<Box<dyn Head>, String> {
    let kind = ALL.iter().find(|kind| kind.name == spec.kind);
    let kind =
        kind.ok_or_else(|| format!("`{}` is not a head; use one of {}", spec.kind, names().join(", ")))?;
    (kind.build)(spec, input, outputs)
}

/// Checks that the first axis of every output, as a run gave it, is the batch: a graph may take any batch, and reshape to
/// one that was written into it. Of a single picture `raw` takes any tensors, and `listed` lists without that axis.
pub fn check_batch(kind: &str, outputs: &[TensorDesc], batch: usize) -> Result<(), String> {
    let takes_whole = kind == raw::KIND.name || (kind == listed::KIND.name && listed::is_flat(outputs));
    let is_whole = takes_whole && batch == 1;
    match outputs.iter().find(|output| output.shape.first() != Some(&Dim::Fixed(batch))) {
        Some(odd) if !is_whole => {
            Err(format!("its output is {odd} for a batch of {batch}, which has to be the first axis"))
        }
        _ => Ok(()),
    }
}

/// What the first head that the outputs look like makes of the model. There always is one: `raw` takes anything.
pub fn guess(input: &InputSpec, outputs: &[TensorDesc]) -> Option<Guess> {
    ALL.iter().find_map(|kind| (kind.guess)(input, outputs))
}

/// Whether findings of this head name classes, so that its description must.
pub fn has_classes(kind: &str) -> bool {
    ![embedding::KIND.name, raw::KIND.name].contains(&kind)
}

/// Whether this head finds boxes.
pub fn has_boxes(kind: &str) -> bool {
    has_classes(kind) && ![classification::KIND.name, segmentation::KIND.name].contains(&kind)
}

/// How the trainers of this head's models round the sides of a letterboxed picture (docs/model-files.md has the table);
/// those that never letterbox cut the exact product.
pub fn rounding(kind: &str) -> Rounding {
    let ultralytics = [
        yolov5::KIND.name,
        yolov8::DETECT.name,
        yolov8::SEGMENT.name,
        yolov8::POSE.name,
        yolov8::ORIENTED.name,
        end2end::KIND.name,
    ];
    match kind {
        kind if ultralytics.contains(&kind) => Rounding::Nearest,
        kind if kind == yolox::KIND.name => Rounding::Down,
        _ => Rounding::Exact,
    }
}

/// The one output, or what does not fit.
fn only<'a>(outputs: &'a [TensorDesc], head: &str) -> Result<&'a TensorDesc, String> {
    match outputs {
        [output] => Ok(output),
        _ => Err(format!("it has {}, where {head} has 1", count(outputs.len() as u64, "output"))),
    }
}

/// The index of the output `name` of shape `[any, rest..]`, or what does not fit.
fn find_output(outputs: &[TensorDesc], name: &str, rest: &[usize]) -> Result<usize, String> {
    let found = outputs.iter().position(|output| output.name == name);
    let names = || outputs.iter().map(|o| o.name.as_str()).collect::<Vec<_>>().join(", ");
    let index = found.ok_or_else(|| format!("it has no output `{name}`; its outputs are {}", names()))?;
    check_shape(&outputs[index], rest)?;
    Ok(index)
}

/// Checks that `output` is `[any, rest..]`.
fn check_shape(output: &TensorDesc, rest: &[usize]) -> Result<(), String> {
    let wanted: Vec<Dim> = std::iter::once(Dim::Dynamic).chain(rest.iter().map(|n| Dim::Fixed(*n))).collect();
    check_axes(output, &wanted)
}

/// Checks that every axis of `output` can be what `wanted` says.
fn check_axes(output: &TensorDesc, wanted: &[Dim]) -> Result<(), String> {
    let fits = |(axis, wanted): (&Dim, &Dim)| match wanted {
        Dim::Fixed(size) => axis.accepts(*size),
        Dim::Dynamic => true,
    };
    if output.shape.len() == wanted.len() && output.shape.iter().zip(wanted).all(fits) {
        return Ok(());
    }
    let wanted = orinoco_core::shape_text(wanted);
    Err(format!("its output is {output}, where the description makes it {wanted}"))
}

/// The fixed sizes of the axes after the first, if there are `N` of them.
fn fixed_after_batch<const N: usize>(output: &TensorDesc) -> Option<[usize; N]> {
    let axes = output.shape.get(1..)?;
    let sizes: Vec<usize> =
        axes.iter().filter_map(|axis| if let Dim::Fixed(n) = axis { Some(*n) } else { None }).collect();
    (axes.len() == N).then(|| sizes.try_into().ok()).flatten()
}

/// A cell of a grid over the model's input.
#[derive(Clone, Copy)]
struct Cell {
    x: f32,
    y: f32,
    stride: f32,
}

/// The cells of every stride in raster order. A stride that does not divide a side has a partial cell at the end when
/// `partial` says so.
fn cells(strides: &[u32], width: u32, height: u32, partial: bool) -> Vec<Cell> {
    let count = |side: u32, stride: u32| if partial { side.div_ceil(stride) } else { side / stride };
    let grid = |stride: u32| {
        let (columns, rows) = (count(width, stride), count(height, stride));
        (0..rows).flat_map(move |y| {
            (0..columns).map(move |x| Cell { x: x as f32, y: y as f32, stride: stride as f32 })
        })
    };
    strides.iter().flat_map(|stride| grid(*stride)).collect()
}

/// Hands on the classes of a box that are above the threshold, with their scores: all of them, or the best. `score_of`
/// makes a score of a class value, and grows with it.
#[inline]
fn labels_above(
    spec: &HeadSpec,
    values: &[f32],
    score_of: impl Fn(f32) -> f32,
    mut report: impl FnMut(u32, f32),
) {
    let mut consider = |class_id: u32, value: f32| {
        let score = score_of(value);
        if is_candidate(score, spec) {
            report(class_id, score);
        }
    };
    if spec.multi_label {
        (0u32..).zip(values).for_each(|(class_id, value)| consider(class_id, *value));
    } else {
        let (class_id, value) = best(values);
        consider(class_id, value);
    }
}

/// Whether something of this score may be a detection: it is above the threshold, or is no number, which [`add`] counts.
#[inline]
fn is_candidate(score: f32, spec: &HeadSpec) -> bool {
    score > spec.score_threshold || score.is_nan()
}

/// Adds a candidate to the detections, or counts it where its score or its box is not a finite number.
#[inline]
fn add(found: &mut Findings, candidate: Detection) {
    if candidate.is_finite() {
        found.detections.push(candidate);
    } else {
        found.not_finite += 1;
    }
}

/// The index and value of the greatest. What is no number counts only where there is nothing else.
#[inline]
fn best(scores: &[f32]) -> (u32, f32) {
    let mut best = (0, f32::NAN);
    for (index, score) in (0u32..).zip(scores) {
        if *score > best.1 || best.1.is_nan() {
            best = (index, *score);
        }
    }
    best
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// The probability of a class value. An infinite one is no confidence, although the logistic function makes 1 of it.
fn probability(value: f32) -> f32 {
    if value == f32::INFINITY { f32::NAN } else { sigmoid(value) }
}

/// Suppression as the spec wants it.
fn suppress_as(spec: &HeadSpec, found: &mut Vec<Detection>) {
    suppress(found, spec.iou_threshold, spec.detections_max, spec.across);
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::input::tests::spec;
    use orinoco_core::ElementType;

    /// A graph's output with a free batch; 0 stands for a dynamic axis.
    pub(crate) fn output(name: &str, axes: &[usize]) -> TensorDesc {
        let dim = |n: &usize| if *n == 0 { Dim::Dynamic } else { Dim::Fixed(*n) };
        TensorDesc {
            name: name.to_owned(),
            element: Some(ElementType::F32),
            shape: axes.iter().map(dim).collect(),
        }
    }

    /// What a head makes of one picture, stretched to the model's size from twice that size.
    pub(crate) fn decode(
        head_spec: &HeadSpec,
        side: (u32, u32),
        outputs: &[(&str, &[usize], &[f32])],
    ) -> Findings {
        let input = spec(side.0, side.1, Fit::Stretch, Align::TopLeft);
        let descs: Vec<TensorDesc> = outputs.iter().map(|(name, shape, _)| output(name, shape)).collect();
        let mut head = build(head_spec, &input, &descs).expect("fits");
        let shaped = outputs.iter().map(|(_, shape, data)| Output { shape, data, batch: 1 });
        let shaped: Vec<Output<'_>> = shaped.collect();
        let mut found = Findings::default();
        head.decode(&shaped, 0, &input.mapping(2 * side.0, 2 * side.1), &mut found);
        found
    }

    /// An output's name, shape and values.
    type Named = (&'static str, Vec<usize>, Vec<f32>);

    /// Something that each head with a threshold finds in a picture of 32 x 32 pixels.
    fn found_by_each() -> Vec<(HeadSpec, Vec<Named>)> {
        let of = |name, shape: &[usize], row: &[f32]| {
            let values = row.iter().copied().cycle().take(shape.iter().product()).collect();
            (name, shape.to_vec(), values)
        };
        let nanodet: Vec<f32> = [0.7, 0.2].into_iter().chain([1.0; 32]).collect();
        let maps = vec![
            of("heatmap", &[1, 2, 4, 4], &[0.7]),
            of("size", &[1, 2, 4, 4], &[4.0]),
            of("offset", &[1, 2, 4, 4], &[0.5]),
        ];
        let lists = vec![
            of("boxes", &[2, 4], &[1.0, 2.0, 9.0, 9.0]),
            of("scores", &[2], &[0.7]),
            of("labels", &[2], &[1.0]),
        ];
        let pairs = |scores| vec![of(scores, &[1, 3, 2], &[0.7, 0.2]), of("pred_boxes", &[1, 3, 4], &[0.5])];
        let of_two = |kind| HeadSpec::new(kind, 2);
        vec![
            (of_two("yolox"), vec![of("y", &[1, 21, 7], &[0.0, 0.0, 0.0, 0.0, 0.9, 0.7, 0.2])]),
            (of_two("yolov5"), vec![of("y", &[1, 3, 7], &[9.0, 9.0, 4.0, 4.0, 0.9, 0.7, 0.2])]),
            (of_two("yolov8"), vec![of("y", &[1, 6, 1], &[9.0, 9.0, 4.0, 4.0, 0.7, 0.2])]),
            (of_two("yolov8-obb"), vec![of("y", &[1, 7, 1], &[9.0, 9.0, 4.0, 4.0, 0.7, 0.2, 0.3])]),
            (
                HeadSpec::new("yolov8-pose", 1),
                vec![of("y", &[1, 8, 1], &[9.0, 9.0, 4.0, 4.0, 0.7, 1.0, 1.0, 0.5])],
            ),
            (
                of_two("yolov8-seg"),
                vec![
                    of("y", &[1, 7, 1], &[9.0, 9.0, 4.0, 4.0, 0.7, 0.2, 1.0]),
                    of("p", &[1, 1, 8, 8], &[1.0]),
                ],
            ),
            (of_two("end2end"), vec![of("y", &[1, 2, 6], &[1.0, 2.0, 9.0, 9.0, 0.7, 1.0])]),
            (of_two("nanodet"), vec![of("y", &[1, 21, 34], &nanodet)]),
            (of_two("fastestdet"), vec![of("y", &[1, 7, 2, 2], &[0.7])]),
            (HeadSpec { strides: vec![8], ..of_two("centernet") }, maps),
            (of_two("ssd"), pairs("scores")),
            (of_two("detr"), pairs("logits")),
            (of_two("listed"), lists),
            (of_two("classification"), vec![of("y", &[1, 2], &[0.7, 0.3])]),
        ]
    }

    #[test]
    fn every_head_reports_what_scores_more_than_its_threshold() {
        let boxless = ["embedding", "segmentation", "raw"];
        let tried: Vec<String> = found_by_each().into_iter().map(|(spec, _)| spec.kind).collect();
        assert!(names().iter().all(|name| boxless.contains(name) || tried.iter().any(|kind| kind == name)));
        for (spec, outputs) in found_by_each() {
            let outputs: Vec<(&str, &[usize], &[f32])> =
                outputs.iter().map(|(name, shape, data)| (*name, &shape[..], &data[..])).collect();
            let scores = |score_threshold: f32| -> Vec<f32> {
                let found = decode(&HeadSpec { score_threshold, ..spec.clone() }, (32, 32), &outputs);
                let of_boxes = found.detections.iter().map(|found| found.score);
                of_boxes.chain(found.classes.iter().map(|found| found.score)).collect()
            };
            let best = scores(0.0).into_iter().fold(0.0, f32::max);
            assert!(best > 0.0, "{}", spec.kind);
            assert!(scores(best.next_down()).contains(&best), "{}: more than the threshold", spec.kind);
            assert!(!scores(best).contains(&best), "{}: no more than the threshold", spec.kind);
        }
    }

    fn guessed(side: (u32, u32), outputs: &[(&str, &[usize])]) -> String {
        let input = spec(side.0, side.1, Fit::Stretch, Align::TopLeft);
        let descs: Vec<TensorDesc> = outputs.iter().map(|(name, shape)| output(name, shape)).collect();
        let guess = guess(&input, &descs).expect("raw takes anything");
        let unsure: Vec<&str> = guess.unsure.iter().map(|(key, _)| *key).collect();
        build(&guess.head, &guess.input, &descs).map(|_| ()).expect("what is guessed can be built");
        format!("{} {} ?{}", guess.head.kind, guess.head.classes, unsure.join(","))
    }

    #[test]
    fn the_first_axis_is_the_batch() {
        let check = |kind: &str, outputs: &[(&str, &[usize])], batch, expected: Result<(), &str>| {
            let outputs: Vec<TensorDesc> = outputs.iter().map(|(name, shape)| fixed(name, shape)).collect();
            let checked = check_batch(kind, &outputs, batch);
            assert_eq!(checked, expected.map_err(str::to_owned), "{kind}");
        };
        let baked = "its output is y f32[1,84,33600] for a batch of 4, which has to be the first axis";
        check("yolov8", &[("y", &[1, 84, 33600])], 4, Err(baked));
        check("yolov8", &[("y", &[4, 84, 8400])], 4, Ok(()));
        let flat: [(&str, &[usize]); 3] = [("boxes", &[0, 4]), ("scores", &[0]), ("labels", &[0])];
        let of_all = "its output is boxes f32[0,4] for a batch of 2, which has to be the first axis";
        check("listed", &flat, 2, Err(of_all));
        check("listed", &flat, 1, Ok(()));
        check("raw", &[("y", &[3, 4])], 1, Ok(()));
        let of_two = "its output is y f32[3,4] for a batch of 2, which has to be the first axis";
        check("raw", &[("y", &[3, 4])], 2, Err(of_two));
    }

    /// An output as a run gave it.
    fn fixed(name: &str, shape: &[usize]) -> TensorDesc {
        let shape = shape.iter().map(|size| Dim::Fixed(*size)).collect();
        TensorDesc { name: name.to_owned(), element: Some(ElementType::F32), shape }
    }

    #[test]
    fn shapes_say_which_head() {
        let check = |side, outputs: &[(&str, &[usize])], expected: &str| {
            assert_eq!(guessed(side, outputs), expected);
        };
        check((416, 416), &[("output", &[1, 3549, 85])], "yolox 80 ?color,mean,align");
        check((640, 640), &[("output0", &[1, 25200, 85])], "yolov5 80 ?");
        check((640, 640), &[("output0", &[1, 84, 8400])], "yolov8 80 ?");
        check(
            (640, 640),
            &[("output0", &[1, 116, 8400]), ("output1", &[1, 32, 160, 160])],
            "yolov8-seg 80 ?",
        );
        check((640, 640), &[("output0", &[1, 56, 8400])], "yolov8-pose 1 ?head");
        check((1024, 1024), &[("output0", &[1, 20, 21504])], "yolov8-obb 15 ?head");
        check((640, 640), &[("output0", &[1, 300, 6])], "end2end 80 ?classes");
        check((320, 320), &[("output", &[1, 2125, 112])], "nanodet 80 ?mean");
        check(
            (416, 416),
            &[
                ("cls_8", &[1, 2704, 80]),
                ("dis_8", &[1, 2704, 32]),
                ("cls_16", &[1, 676, 80]),
                ("dis_16", &[1, 676, 32]),
                ("cls_32", &[1, 169, 80]),
                ("dis_32", &[1, 169, 32]),
            ],
            "nanodet 80 ?mean,fit",
        );
        check(
            (64, 64),
            &[
                ("cls_8", &[1, 64, 3]),
                ("cls_16", &[1, 16, 3]),
                ("cls_32", &[1, 4, 3]),
                ("cls_64", &[1, 1, 3]),
                ("dis_8", &[1, 64, 32]),
                ("dis_16", &[1, 16, 32]),
                ("dis_32", &[1, 4, 32]),
                ("dis_64", &[1, 1, 32]),
            ],
            "nanodet 3 ?mean,fit",
        );
        check((352, 352), &[("758", &[1, 85, 22, 22])], "fastestdet 80 ?head,color,fit");
        check(
            (320, 240),
            &[("scores", &[1, 4420, 2]), ("boxes", &[1, 4420, 4])],
            "ssd 2 ?boxes,background,mean,fit",
        );
        check((640, 640), &[("logits", &[1, 300, 80]), ("pred_boxes", &[1, 300, 4])], "detr 80 ?fit");
        check(
            (640, 640),
            &[("logits", &[1, 100, 92]), ("pred_boxes", &[1, 100, 4])],
            "detr 92 ?fit,activation",
        );
        check((640, 640), &[("output0", &[1, 300, 84])], "detr 80 ?head");
        check(
            (320, 320),
            &[("boxes", &[0, 4]), ("scores", &[0]), ("labels", &[0])],
            "listed 91 ?classes,fit",
        );
        check((224, 224), &[("softmaxout_1", &[1, 1000, 1, 1])], "classification 1000 ?mean,color,fit");
        check((257, 257), &[("logits", &[1, 21, 257, 257])], "segmentation 21 ?mean,fit");
        check((128, 256), &[("features", &[1, 512])], "embedding 0 ?head,mean,fit");
        check((224, 224), &[("y", &[1, 1, 672, 672])], "raw 0 ?head,fit,mean");
    }
}
