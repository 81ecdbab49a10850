//! Semantic segmentation: scores `[n, classes, h, w]` (or `[n, h, w, classes]`, where the input is NHWC too), of which
//! the greatest is the class; or the class ids themselves, `[n, h, w]` or `[n, 1, h, w]`. Ids are rounded, so the
//! single probability of a model of two classes becomes the more likely class.

use orinoco_core::text::count;
use orinoco_core::{Dim, InferenceResult, Layout, TensorDesc};

use super::{Guess, Head, HeadDescriptor, HeadKind, HeadResultKind, HeadSamples, HeadSpec, Output, only};
use crate::{Fit, InputSpec, Mapping};

/// The kind of this head.
pub const KIND: HeadKind = HeadKind(&DESCRIPTOR);

static DESCRIPTOR: HeadDescriptor = HeadDescriptor {
    finds: HeadResultKind::ClassMap,
    ..HeadDescriptor::usual("segmentation", build, guess, SAMPLES)
};

/// Maximum number of classes: ids are 8-bit, and 255 is reserved for [`NOT_LABELLED`].
const CLASSES_MAX: usize = 255;
/// Class of a cell for which the model gave no finite number.
const NOT_LABELLED: u8 = 255;

#[derive(Clone, Copy, PartialEq)]
enum Form {
    /// Scores, with the class axis before rows and columns.
    Planar,
    /// Scores, with the class axis last.
    Interleaved,
    /// Class ids.
    Ids,
}

struct Segmentation {
    form: Form,
    classes: usize,
    best: Vec<f32>,
}

fn form(output: &TensorDesc, classes: usize, layout: Layout) -> Option<Form> {
    match (&output.shape[..], layout) {
        ([_, _, _], _) => Some(Form::Ids),
        ([_, Dim::Fixed(1), _, _], Layout::Nchw) => Some(Form::Ids),
        ([_, _, _, Dim::Fixed(1)], Layout::Nhwc) => Some(Form::Ids),
        ([_, channels, _, _], Layout::Nchw) if channels.accepts(classes) => Some(Form::Planar),
        ([_, _, _, channels], _) if channels.accepts(classes) => Some(Form::Interleaved),
        ([_, channels, _, _], _) if channels.accepts(classes) => Some(Form::Planar),
        _ => None,
    }
}

fn build(spec: &HeadSpec, input: &InputSpec, outputs: &[TensorDesc]) -> Result<Box<dyn Head>, String> {
    // Some exports add the output of an auxiliary head; the first output is the right one.
    let output = outputs.first().ok_or("it has no output")?;
    if outputs.len() > 2 {
        only(outputs, KIND.name)?;
    }
    if spec.classes < 2 {
        let next = "give the background a label";
        return Err(format!(
            "it has {}, where a map has 2 or more; {next}",
            count(spec.classes as u64, "class")
        ));
    }
    if spec.classes > CLASSES_MAX {
        return Err(format!("it has {} classes, but at most {CLASSES_MAX} are supported", spec.classes));
    }
    let form = form(output, spec.classes, input.layout);
    let form = form
        .ok_or_else(|| format!("its output is {output}, which is not a map of {} classes", spec.classes))?;
    Ok(Box::new(Segmentation { form, classes: spec.classes, best: Vec::new() }))
}

fn guess(input: &InputSpec, outputs: &[TensorDesc]) -> Option<Guess> {
    let output = outputs.first().filter(|_| outputs.len() <= 2)?;
    let [a, b, c] = super::fixed_after_batch(output)?;
    let (classes, rows, columns) = match input.layout {
        Layout::Nchw => (a, b, c),
        Layout::Nhwc => (c, a, b),
    };
    // The map must not have more cells than the image has pixels, in both directions.
    let part = |side: u32, cells: usize| cells > 1 && cells <= side as usize;
    let fits = (2..=CLASSES_MAX).contains(&classes) && part(input.width, columns) && part(input.height, rows);
    let head = HeadSpec::new(KIND, classes);
    let mut guess = Guess::new(head, input).fit(Fit::Stretch);
    match input.layout {
        // TensorFlow's models are trained with -1 to 1, PyTorch's with the mean and deviation of ImageNet.
        Layout::Nhwc => {
            guess.input.mean = [127.5; 3];
            guess.input.scale = [1.0 / 127.5; 3];
        }
        Layout::Nchw => {
            guess.input.mean = [123.675, 116.28, 103.53];
            guess.input.scale = [1.0 / 58.395, 1.0 / 57.12, 1.0 / 57.375];
        }
    }
    fits.then(|| {
        guess
            .unsure("mean", "the graph does not show how images were normalised in training")
            .unsure("fit", "the graph does not show how images were cropped in training")
    })
}

impl Head for Segmentation {
    fn decode(
        &mut self,
        outputs: &[Output<'_>],
        item: usize,
        mapping: &Mapping,
        found: &mut InferenceResult,
    ) {
        let (values, shape) = (outputs[0].item(item), outputs[0].shape);
        let (rows, columns) = match (self.form, shape) {
            (Form::Interleaved, [_, rows, columns, _]) => (*rows, *columns),
            (Form::Ids, [_, rows, columns, 1]) => (*rows, *columns),
            (_, [.., rows, columns]) => (*rows, *columns),
            _ => return,
        };
        // Only the part of the grid under the image is kept.
        let window = mapping.window();
        let (model_w, model_h) = (mapping.model.0 as usize, mapping.model.1 as usize);
        let share = |value: usize, cells: usize, side: usize| (value * cells + side / 2) / side;
        let columns_seen =
            share(window.at.0, columns, model_w)..share(window.at.0 + window.size.0, columns, model_w);
        let rows_seen = share(window.at.1, rows, model_h)..share(window.at.1 + window.size.1, rows, model_h);
        let mut not_finite = 0;
        let map = &mut found.class_map;
        (map.width, map.height) = (columns_seen.len() as u32, rows_seen.len() as u32);
        for row in rows_seen {
            let cells = row * columns + columns_seen.start..row * columns + columns_seen.end;
            not_finite += self.classify(values, rows * columns, cells, &mut map.classes);
        }
        found.not_finite += not_finite;
    }
}

impl Segmentation {
    /// Appends the classes of consecutive `cells`. Returns how many of them have a best value that is not finite; these
    /// are not labelled.
    fn classify(
        &mut self,
        values: &[f32],
        area: usize,
        cells: std::ops::Range<usize>,
        classes: &mut Vec<u8>,
    ) -> u64 {
        let first = classes.len();
        self.best.clear();
        match self.form {
            Form::Ids => {
                self.best.extend_from_slice(&values[cells]);
                classes.extend(self.best.iter().map(|id| id.round() as u8));
            }
            Form::Interleaved => {
                let scores =
                    values[cells.start * self.classes..cells.end * self.classes].chunks_exact(self.classes);
                for (class_id, score) in scores.map(super::best) {
                    classes.push(class_id as u8);
                    self.best.push(score);
                }
            }
            Form::Planar => {
                self.best.extend_from_slice(&values[cells.clone()]);
                classes.resize(first + cells.len(), 0);
                for class in 1..self.classes {
                    let scores = &values[class * area..][cells.clone()];
                    let cells = self.best.iter_mut().zip(&mut classes[first..]).zip(scores);
                    let better = |best: f32, score: f32| score > best || best.is_nan();
                    for ((best, id), score) in cells.filter(|((best, _), score)| better(**best, **score)) {
                        (*best, *id) = (*score, class as u8);
                    }
                }
            }
        }
        let mut not_finite = 0;
        for (class_id, best) in classes[first..].iter_mut().zip(&self.best) {
            if !best.is_finite() {
                *class_id = NOT_LABELLED;
                not_finite += 1;
            }
        }
        not_finite
    }
}

/// Models that the suite of heads feeds.
const SAMPLES: HeadSamples = HeadSamples::published(21, 512, &[("y", &[1, 21, 512, 512])]);

#[cfg(test)]
mod tests {
    use super::super::tests::{decode, output};
    use super::*;
    use crate::Align;
    use crate::input::tests::spec;

    #[test]
    fn every_form_gives_the_same_map() {
        let expected = [0, 1, 1, 0];
        let planar = [0.9, 0.1, 0.2, 0.8, 0.1, 0.9, 0.8, 0.2];
        let ids = [0.0, 1.0, 1.0, 0.0];
        for (shape, data) in
            [(&[1usize, 2, 2, 2][..], &planar[..]), (&[1, 2, 2], &ids), (&[1, 1, 2, 2], &ids)]
        {
            let found = decode(&HeadSpec::new(KIND, 2), (4, 4), &[("y", shape, data)]);
            assert_eq!((found.class_map.width, found.class_map.height), (2, 2), "{shape:?}");
            assert_eq!(found.class_map.classes, expected, "{shape:?}");
        }
    }

    #[test]
    fn ids_and_probabilities_are_rounded() {
        // Ids as dequantisation gives them, and sigmoids of the second of two classes.
        let nearly = [2.999_999_8, 0.000_1, 0.97, 0.3];
        let found = decode(&HeadSpec::new(KIND, 4), (4, 4), &[("y", &[1, 1, 2, 2], &nearly)]);
        assert_eq!(found.class_map.classes, [3, 0, 1, 0]);
    }

    #[test]
    fn one_class_is_no_map() {
        let input = spec(8, 8, Fit::Stretch, Align::TopLeft);
        let built = build(&HeadSpec::new(KIND, 1), &input, &[output("y", &[1, 1, 8, 8])]);
        let why = "it has 1 class, where a map has 2 or more; give the background a label";
        assert_eq!(built.err().as_deref(), Some(why));
    }

    #[test]
    fn letterbox_borders_are_cut_off() {
        let input = spec(8, 8, Fit::Letterbox, Align::Center);
        let head_spec = HeadSpec::new(KIND, 3);
        let mut head = build(&head_spec, &input, &[output("y", &[1, 8, 8])]).expect("fits");
        let data: Vec<f32> = (0..64).map(|cell| if (16..48).contains(&cell) { 1.0 } else { 2.0 }).collect();
        let mut found = InferenceResult::default();
        let output = Output { shape: &[1, 8, 8], data: &data, batch: 1 };
        head.decode(&[output], 0, &input.mapping(16, 8), &mut found);
        assert_eq!((found.class_map.width, found.class_map.height), (8, 4));
        assert!(found.class_map.classes.iter().all(|class| *class == 1));
    }
}
