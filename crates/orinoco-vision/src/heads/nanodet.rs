//! NanoDet and NanoDet-Plus (generalised focal loss, Li et al. 2020): one row for each cell of three or four grids,
//! `[class scores.., 4 x (reg_max + 1) distances]`, in one output; or the class scores and the distances of each grid
//! in outputs of their own, as in OpenCV's model zoo. Each distance to an edge (left, top, right, bottom) is the mean
//! of a softmax over 0..=reg_max, in strides. With three grids (NanoDet) distances are measured from the centre of a
//! cell, with four (NanoDet-Plus) from its upper left corner: in NanoDet's sources
//! `GFLHead.get_single_level_center_point` adds half a cell, and `NanoDetPlusHead` does not.
//!
//! NanoDet's own export applies the logistic function to the class scores. If a score of an image lies outside of 0 to
//! 1, all are taken as logits, unless `activation` is set.

use orinoco_core::{Activation, BoxF, Detection, InferenceResult, TensorDesc};

use super::{
    Cell, Guess, Head, HeadDescriptor, HeadKind, HeadSamples, HeadSpec, Output, add, best, cells, check_axes,
    fixed_after_batch, is_candidate, labels_above, probability, suppress_as,
};
use crate::{Fit, InputSpec, Mapping};

pub(super) const KIND: HeadKind = HeadKind(&DESCRIPTOR);

static DESCRIPTOR: HeadDescriptor =
    HeadDescriptor { strides: &STRIDES, ..HeadDescriptor::usual("nanodet", build, guess, SAMPLES) };

/// NanoDet-Plus has four grids, NanoDet three.
const STRIDES: [u32; 4] = [8, 16, 32, 64];
/// `reg_max` of every published model is 7.
const BINS_USUAL: usize = 8;
/// Number of values in a row of the published models: 80 classes and their distances.
pub(super) const COCO_VALUES: usize = 80 + 4 * BINS_USUAL;

struct NanoDet {
    spec: HeadSpec,
    /// Cells from which distances are measured.
    cells: Vec<Cell>,
    bins: usize,
    grids: Vec<Grid>,
}

/// Rows of one output, one for each cell, or a part of each row.
#[derive(Clone, Copy)]
struct Rows {
    output: usize,
    /// Length of a row, and index of its first value that is used.
    length: usize,
    first: usize,
}

impl Rows {
    fn row<'a>(&self, outputs: &[Output<'a>], item: usize, row: usize, count: usize) -> &'a [f32] {
        &outputs[self.output].item(item)[row * self.length + self.first..][..count]
    }
}

/// Consecutive cells whose values are in the same outputs.
struct Grid {
    /// Number of cells.
    count: usize,
    scores: Rows,
    distances: Rows,
}

/// Arrangement of the values of all cells in the outputs.
struct Form {
    bins: usize,
    grids: Vec<Grid>,
}

/// Returns the number of rows and the number of values in a row.
fn rows_and_values(output: &TensorDesc) -> Option<(usize, usize)> {
    fixed_after_batch(output).map(|[rows, values]| (rows, values))
}

/// Returns the number of bins for `distances` values to four edges; `None` where it does not divide evenly.
fn bins_of(distances: usize) -> Option<usize> {
    (distances >= 8 && distances.is_multiple_of(4)).then_some(distances / 4)
}

/// Arranges class scores and distances in one output.
fn joint(output: &TensorDesc, classes: usize) -> Option<Form> {
    let (rows, values) = rows_and_values(output)?;
    let bins = bins_of(values.checked_sub(classes)?)?;
    let part = |first| Rows { output: 0, length: values, first };
    Some(Form { bins, grids: vec![Grid { count: rows, scores: part(0), distances: part(classes) }] })
}

/// Arranges class scores and distances in two outputs for each grid, in any order. Where both have equally many values
/// they alternate, class scores first.
fn split(outputs: &[TensorDesc], classes: usize) -> Option<Form> {
    let shapes: Vec<(usize, usize)> = outputs.iter().map(rows_and_values).collect::<Option<_>>()?;
    let distances = shapes.iter().map(|(_, values)| *values).find(|values| *values != classes);
    let distances = distances.unwrap_or(classes);
    let bins = bins_of(distances)?;
    let of = |wanted: usize, place: usize| {
        let alike =
            |index: &usize| shapes[*index].1 == wanted && (classes != distances || index % 2 == place);
        let mut found: Vec<usize> = (0..shapes.len()).filter(alike).collect();
        // Grids are sorted, the finest first.
        found.sort_by_key(|index| std::cmp::Reverse(shapes[*index].0));
        found
    };
    let (scores, distances) = (of(classes, 0), of(distances, 1));
    let is_paired = scores.len() == distances.len() && 2 * scores.len() == shapes.len();
    let part = |output: usize| Rows { output, length: shapes[output].1, first: 0 };
    let grid = |(scores, distances): (&usize, &usize)| {
        let counts = (shapes[*scores].0, shapes[*distances].0);
        let grid = Grid { count: counts.0, scores: part(*scores), distances: part(*distances) };
        (counts.0 == counts.1).then_some(grid)
    };
    let grids = scores.iter().zip(&distances).map(grid).collect::<Option<Vec<Grid>>>()?;
    is_paired.then_some(Form { bins, grids })
}

/// Returns the cells of the grids with `counts` cells, with the point in each cell from which distances are measured. A
/// single count is the sum of all grids.
fn cells_of(spec: &HeadSpec, input: &InputSpec, counts: &[usize]) -> Option<Vec<Cell>> {
    let given = [spec.strides.as_slice(), &STRIDES, &STRIDES[..3]];
    let fits = |strides: &&[u32]| {
        let each = strides.iter().map(|stride| cells(&[*stride], input.width, input.height, true).len());
        match counts {
            [all] => each.sum::<usize>() == *all,
            counts => each.eq(counts.iter().copied()),
        }
    };
    let strides = given.into_iter().filter(|strides| !strides.is_empty()).find(fits)?;
    let inset = if strides.len() == STRIDES.len() { 0.0 } else { 0.5 };
    let mut cells = cells(strides, input.width, input.height, true);
    cells.iter_mut().for_each(|cell| (cell.x, cell.y) = (cell.x + inset, cell.y + inset));
    Some(cells)
}

fn build(spec: &HeadSpec, input: &InputSpec, outputs: &[TensorDesc]) -> Result<Box<dyn Head>, String> {
    if spec.activation == Activation::Softmax {
        return Err("nanodet has one sigmoid score per class and no softmax".to_owned());
    }
    let form = match outputs {
        [output] => {
            check_axes(output, &[orinoco_core::Dim::Dynamic; 3])?;
            joint(output, spec.classes).ok_or_else(|| {
                format!(
                    "its output is {output}: no columns are left for box distances after {} classes",
                    spec.classes
                )
            })
        }
        outputs => split(outputs, spec.classes).ok_or_else(|| {
            format!(
                "it has {} outputs, and not two for each stride: [n, cells, {}] and [n, cells, 4 x bins]",
                outputs.len(),
                spec.classes
            )
        }),
    }?;
    let counts: Vec<usize> = form.grids.iter().map(|grid| grid.count).collect();
    let cells = cells_of(spec, input, &counts).ok_or_else(|| match outputs {
        [output] => format!("its output is {output}, whose number of rows does not match NanoDet's strides"),
        _ => format!("its outputs have {counts:?} rows, which do not match NanoDet's strides"),
    })?;
    Ok(Box::new(NanoDet { spec: spec.clone(), cells, bins: form.bins, grids: form.grids }))
}

fn guess(input: &InputSpec, outputs: &[TensorDesc]) -> Option<Guess> {
    const DISTANCES_USUAL: usize = 4 * BINS_USUAL;
    let values: Vec<usize> = outputs.iter().map(|o| Some(rows_and_values(o)?.1)).collect::<Option<_>>()?;
    let classes = match values[..] {
        [both] => both.checked_sub(DISTANCES_USUAL).filter(|classes| *classes > 0)?,
        [first, second, ..] => {
            let classes = if first == DISTANCES_USUAL { second } else { first };
            values.contains(&DISTANCES_USUAL).then_some(classes)?
        }
        [] => return None,
    };
    let head = HeadSpec { iou_threshold: 0.6, score_threshold: 0.35, ..HeadSpec::new(KIND, classes) };
    build(&head, input, outputs).ok()?;
    let mut guess = Guess::new(head, input).bgr().fit(Fit::Stretch);
    // Normalisation of NanoDet's configurations: BGR of ImageNet.
    guess.input.mean = [103.53, 116.28, 123.675];
    guess.input.scale = [1.0 / 57.375, 1.0 / 57.12, 1.0 / 58.395];
    guess = guess.unsure("mean", "NanoDet's usual normalisation; some exports fold it into the graph");
    if outputs.len() > 1 {
        guess = guess.unsure("fit", "NanoDet is trained on stretched images; OpenCV's demo letterboxes them");
    }
    Some(guess)
}

impl Head for NanoDet {
    fn decode(
        &mut self,
        outputs: &[Output<'_>],
        item: usize,
        mapping: &Mapping,
        found: &mut InferenceResult,
    ) {
        let are_logits = match self.spec.activation {
            Activation::Auto => self.has_logits(outputs, item),
            activation => activation == Activation::Sigmoid,
        };
        let score_of = |value: f32| if are_logits { probability(value) } else { value };
        let mut cells = self.cells.iter();
        for grid in &self.grids {
            for (row, cell) in (0..grid.count).zip(&mut cells) {
                let classes = grid.scores.row(outputs, item, row, self.spec.classes);
                if !is_candidate(score_of(best(classes).1), &self.spec) {
                    continue;
                }
                let distances = grid.distances.row(outputs, item, row, 4 * self.bins);
                let mut edges = distances.chunks_exact(self.bins).map(|bins| mean_bin(bins) * cell.stride);
                let [left, top, right, bottom] = std::array::from_fn(|_| edges.next().unwrap_or(0.0));
                let (x, y) = (cell.x * cell.stride, cell.y * cell.stride);
                let bounds = BoxF { x1: x - left, y1: y - top, x2: x + right, y2: y + bottom };
                let bounds = mapping.to_source(bounds);
                labels_above(&self.spec, classes, score_of, |class_id, score| {
                    add(found, Detection { class_id, score, bounds });
                });
            }
        }
        suppress_as(&self.spec, &mut found.detections);
    }
}

/// Tolerance below 0 and above 1 for a probability that was rounded to 8 bits.
const PROBABILITY_SLACK: f32 = 0.05;

impl NanoDet {
    /// Whether a class value of this image cannot be a probability. Most of the thousands of cells in an image are
    /// empty, and their logits are far below 0.
    fn has_logits(&self, outputs: &[Output<'_>], item: usize) -> bool {
        let improbable = |value: &f32| *value < -PROBABILITY_SLACK || *value > 1.0 + PROBABILITY_SLACK;
        self.grids.iter().any(|grid| {
            (0..grid.count)
                .any(|row| grid.scores.row(outputs, item, row, self.spec.classes).iter().any(improbable))
        })
    }
}

/// Returns the mean of the softmax over the bins' numbers.
fn mean_bin(bins: &[f32]) -> f32 {
    let (_, top) = best(bins);
    let (mut weight, mut sum) = (0.0, 0.0);
    for (index, bin) in (0u16..).zip(bins) {
        let e = (bin - top).exp();
        weight += e;
        sum += e * f32::from(index);
    }
    sum / weight
}

/// Models that the suite of heads feeds.
const SAMPLES: HeadSamples = HeadSamples::published(80, 416, &[("output", &[1, 3598, 112])]).finding(
    2,
    &[(
        "y",
        &[1, 21, 34],
        &[
            0.7, 0.2, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0,
            1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0,
        ],
    )],
);

#[cfg(test)]
mod tests {
    use super::super::tests::decode;
    use super::*;

    #[test]
    fn distances_are_means_of_bins() {
        // 16 x 16 pixels: 4 + 1 + 1 + 1 cells, 2 classes, 2 bins. Cell 1 is at x = 8.
        let mut data = vec![0.0; 7 * 10];
        data[10..20].copy_from_slice(&[0.1, 0.9, 0.0, 200.0, 200.0, 0.0, 0.0, 0.0, 0.0, 200.0]);
        let found = decode(&HeadSpec::new(KIND, 2), (16, 16), &[("output", &[1, 7, 10], &data)]);
        let bounds = BoxF { x1: 0.0, y1: 0.0, x2: 24.0, y2: 16.0 };
        assert_eq!(found.detections, [Detection { class_id: 1, score: 0.9, bounds }]);
        // Three grids, 4 + 1 + 1 cells: the centre of cell 1 is at x = 12, y = 4.
        let found = decode(&HeadSpec::new(KIND, 2), (16, 16), &[("output", &[1, 6, 10], &data[..60])]);
        let bounds = BoxF { x1: 8.0, y1: 8.0, x2: 32.0, y2: 24.0 };
        assert_eq!(found.detections, [Detection { class_id: 1, score: 0.9, bounds }]);
    }

    /// Splits the one output of three grids of 32 x 32 pixels into six: class scores and distances of each grid.
    fn six(data: &[f32], order: [usize; 6]) -> Vec<(&'static str, Vec<usize>, Vec<f32>)> {
        let names = ["cls_8", "dis_8", "cls_16", "dis_16", "cls_32", "dis_32"];
        let outputs = names.into_iter().enumerate().map(|(index, name)| {
            let rows = [0..16, 16..20, 20..21][index / 2].clone();
            let columns = if index % 2 == 0 { 0..2 } else { 2..10 };
            let values: Vec<f32> =
                rows.clone().flat_map(|row| data[row * 10..][..10][columns.clone()].to_vec()).collect();
            (name, vec![1, rows.len(), columns.len()], values)
        });
        let outputs: Vec<_> = outputs.collect();
        order.map(|index| outputs[index].clone()).into()
    }

    #[test]
    fn grids_may_have_outputs_of_their_own() {
        let mut data = vec![0.0; 21 * 10];
        data[10..20].copy_from_slice(&[0.1, 0.9, 0.0, 200.0, 200.0, 0.0, 0.0, 0.0, 0.0, 200.0]);
        // A cell of the second grid, and the one of the third.
        data[170..180].copy_from_slice(&[0.7, 0.2, 200.0, 0.0, 0.0, 200.0, 200.0, 0.0, 0.0, 200.0]);
        data[200..210].copy_from_slice(&[0.8, 0.1, 0.0, 200.0, 0.0, 200.0, 0.0, 200.0, 0.0, 200.0]);
        let spec = HeadSpec::new(KIND, 2);
        let joint = decode(&spec, (32, 32), &[("output", &[1, 21, 10], &data)]).detections;
        assert_eq!(joint.len(), 3);
        // In the order of OpenCV's model zoo, in two groups, and backwards.
        for order in [[0, 1, 2, 3, 4, 5], [0, 2, 4, 1, 3, 5], [5, 3, 1, 4, 2, 0]] {
            let outputs = six(&data, order);
            let outputs: Vec<(&str, &[usize], &[f32])> =
                outputs.iter().map(|(name, shape, data)| (*name, &shape[..], &data[..])).collect();
            assert_eq!(decode(&spec, (32, 32), &outputs).detections, joint, "{order:?}");
        }
    }

    #[test]
    fn logits_are_made_probabilities() {
        let logit = |p: f32| (p / (1.0 - p)).ln();
        let mut data = vec![0.0; 6 * 10];
        data.chunks_exact_mut(10).for_each(|row| row[..2].fill(-9.0));
        data[10..12].copy_from_slice(&[-9.0, logit(0.9)]);
        let check = |activation: Activation, expected: &[f32]| {
            let spec = HeadSpec { activation, ..HeadSpec::new(KIND, 2) };
            let found = decode(&spec, (16, 16), &[("output", &[1, 6, 10], &data)]).detections;
            let scores: Vec<f32> = found.iter().map(|found| (found.score * 1e3).round() / 1e3).collect();
            assert_eq!(scores, expected, "{activation:?}");
        };
        check(Activation::Auto, &[0.9]);
        check(Activation::Sigmoid, &[0.9]);
        check(Activation::None, &[(logit(0.9) * 1e3).round() / 1e3]);
        let spec = HeadSpec { activation: Activation::Softmax, ..HeadSpec::new(KIND, 2) };
        let input = crate::input::tests::spec(16, 16, Fit::Stretch, crate::Align::TopLeft);
        let refused = build(&spec, &input, &[super::super::tests::output("output", &[1, 6, 10])]);
        assert!(refused.err().is_some_and(|why| why.contains("no softmax")));
    }

    #[test]
    fn outputs_that_are_no_pairs_are_refused() {
        let input = crate::input::tests::spec(16, 16, Fit::Stretch, crate::Align::TopLeft);
        let check = |shapes: &[[usize; 3]], expected: &str| {
            let outputs = shapes.iter().map(|shape| super::super::tests::output("y", shape));
            let outputs: Vec<TensorDesc> = outputs.collect();
            let refused = build(&HeadSpec::new(KIND, 2), &input, &outputs).err();
            assert!(refused.as_ref().is_some_and(|why| why.contains(expected)), "{shapes:?}: {refused:?}");
        };
        check(&[[1, 4, 2], [1, 4, 8], [1, 1, 2]], "not two for each stride");
        check(&[[1, 4, 2], [1, 1, 8]], "not two for each stride");
        check(&[[1, 4, 2], [1, 4, 7]], "not two for each stride");
        check(&[[1, 4, 2], [1, 4, 8]], "not match NanoDet");
        check(&[[1, 9, 10]], "not match NanoDet");
        check(&[[1, 6, 5]], "no columns are left");
    }
}
