//! NanoDet and NanoDet-Plus (generalised focal loss, Li et al. 2020): one row for each cell of three or four grids,
//! `[class scores.., 4 x (reg_max + 1) distances]`. The scores are between 0 and 1; each distance to an edge (left, top,
//! right, bottom) is the mean of a softmax over 0..=reg_max, in strides. The distances of three grids (NanoDet) are from
//! the middle of a cell, those of four (NanoDet-Plus) from its upper left corner: in NanoDet's sources
//! `GFLHead.get_single_level_center_point` adds half a cell, and `NanoDetPlusHead` does not.

use orinoco_core::{BoxF, Detection, Findings, TensorDesc};

use super::{
    Cell, Guess, Head, HeadKind, HeadSpec, Output, add, best, cells, check_axes, fixed_after_batch,
    is_candidate, labels_above, only, suppress_as,
};
use crate::{Fit, InputSpec, Mapping};

pub(super) const KIND: HeadKind = HeadKind { name: "nanodet", build, guess };

/// NanoDet-Plus has four grids, NanoDet three.
const STRIDES: [u32; 4] = [8, 16, 32, 64];
/// `reg_max` of every published model is 7.
const BINS_USUAL: usize = 8;
/// Values of a row of the published models: 80 classes and their distances.
pub(super) const COCO_VALUES: usize = 80 + 4 * BINS_USUAL;

struct NanoDet {
    spec: HeadSpec,
    /// Where distances are from.
    cells: Vec<Cell>,
    bins: usize,
}

/// The grids whose cells add up to `rows`, with the place in each cell that distances are from.
fn grids(spec: &HeadSpec, input: &InputSpec, rows: usize) -> Option<Vec<Cell>> {
    let given = [spec.strides.as_slice(), &STRIDES, &STRIDES[..3]];
    let grids = |strides: &[u32]| {
        let inset = if strides.len() == STRIDES.len() { 0.0 } else { 0.5 };
        let mut cells = cells(strides, input.width, input.height, true);
        cells.iter_mut().for_each(|cell| (cell.x, cell.y) = (cell.x + inset, cell.y + inset));
        cells
    };
    given.into_iter().filter(|strides| !strides.is_empty()).map(grids).find(|cells| cells.len() == rows)
}

fn build(spec: &HeadSpec, input: &InputSpec, outputs: &[TensorDesc]) -> Result<Box<dyn Head>, String> {
    let output = only(outputs, KIND.name)?;
    let wrong = || {
        check_axes(output, &[orinoco_core::Dim::Dynamic; 3]).err().unwrap_or_else(|| {
            format!("its output is {output}, whose rows are not the cells of NanoDet's grids")
        })
    };
    let [rows, values] = fixed_after_batch(output).ok_or_else(wrong)?;
    let cells = grids(spec, input, rows).ok_or_else(wrong)?;
    let distances = values.saturating_sub(spec.classes);
    if distances < 8 || !distances.is_multiple_of(4) {
        return Err(format!(
            "its output is {output}, which leaves no distances beside {} classes",
            spec.classes
        ));
    }
    Ok(Box::new(NanoDet { spec: spec.clone(), cells, bins: distances / 4 }))
}

fn guess(input: &InputSpec, outputs: &[TensorDesc]) -> Option<Guess> {
    let [output] = outputs else { return None };
    let [rows, values] = fixed_after_batch(output)?;
    let classes = values.checked_sub(4 * BINS_USUAL).filter(|classes| *classes > 0)?;
    let head = HeadSpec { iou_threshold: 0.6, score_threshold: 0.35, ..HeadSpec::new(KIND.name, classes) };
    grids(&head, input, rows)?;
    let mut guess = Guess::new(head, input).bgr().fit(Fit::Stretch);
    // NanoDet's configurations: BGR of ImageNet.
    guess.input.mean = [103.53, 116.28, 123.675];
    guess.input.scale = [1.0 / 57.375, 1.0 / 57.12, 1.0 / 58.395];
    Some(guess.unsure("mean", "NanoDet's usual normalisation; some exports fold it into the graph"))
}

impl Head for NanoDet {
    fn decode(&mut self, outputs: &[Output<'_>], item: usize, mapping: &Mapping, found: &mut Findings) {
        let rows = outputs[0].item(item).chunks_exact(self.spec.classes + 4 * self.bins);
        for (row, cell) in rows.zip(&self.cells) {
            let (classes, distances) = row.split_at(self.spec.classes);
            if !is_candidate(best(classes).1, &self.spec) {
                continue;
            }
            let mut edges = distances.chunks_exact(self.bins).map(|bins| mean_bin(bins) * cell.stride);
            let [left, top, right, bottom] = std::array::from_fn(|_| edges.next().unwrap_or(0.0));
            let (x, y) = (cell.x * cell.stride, cell.y * cell.stride);
            let bounds = BoxF { x1: x - left, y1: y - top, x2: x + right, y2: y + bottom };
            let bounds = mapping.to_source(bounds);
            labels_above(
                &self.spec,
                classes,
                |score| score,
                |class_id, score| add(found, Detection { class_id, score, bounds }),
            );
        }
        suppress_as(&self.spec, &mut found.detections);
    }
}

/// The mean of the softmax over the bins' numbers.
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

#[cfg(test)]
mod tests {
    use super::super::tests::decode;
    use super::*;

    #[test]
    fn distances_are_means_of_bins() {
        // 16 x 16 pixels: 4 + 1 + 1 + 1 cells, 2 classes, 2 bins. Cell 1 is at x = 8.
        let mut data = vec![0.0; 7 * 10];
        data[10..20].copy_from_slice(&[0.1, 0.9, 0.0, 200.0, 200.0, 0.0, 0.0, 0.0, 0.0, 200.0]);
        let found = decode(&HeadSpec::new("nanodet", 2), (16, 16), &[("output", &[1, 7, 10], &data)]);
        let bounds = BoxF { x1: 0.0, y1: 0.0, x2: 24.0, y2: 16.0 };
        assert_eq!(found.detections, [Detection { class_id: 1, score: 0.9, bounds }]);
        // Three grids, 4 + 1 + 1 cells: the middle of cell 1 is at x = 12, y = 4.
        let found = decode(&HeadSpec::new("nanodet", 2), (16, 16), &[("output", &[1, 6, 10], &data[..60])]);
        let bounds = BoxF { x1: 8.0, y1: 8.0, x2: 32.0, y2: 24.0 };
        assert_eq!(found.detections, [Detection { class_id: 1, score: 0.9, bounds }]);
    }
}
