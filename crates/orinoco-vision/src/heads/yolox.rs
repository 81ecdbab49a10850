//! YOLOX (Ge et al. 2021): one row per cell of three grids, `[dx, dy, log w, log h, objectness, class scores..]`, the
//! grids in raster order, finest first; objectness and class scores already between 0 and 1.

use orinoco_core::{BoxF, Detection, InferenceResult, TensorDesc};

use super::{
    Cell, Guess, Head, HeadDescriptor, HeadKind, HeadSamples, HeadSpec, Output, OutputForm, add, cells,
    check_shape, fixed_after_batch, is_candidate, labels_above, only, suppress_as,
};
use crate::{Align, Fit, InputSpec, Mapping, Rounding};

pub(super) const KIND: HeadKind = HeadKind(&DESCRIPTOR);

static DESCRIPTOR: HeadDescriptor = HeadDescriptor {
    form: OutputForm::GridRows,
    strides: &STRIDES,
    // YOLOX's own decoder reports every class of a box.
    multi_label: true,
    rounding: Rounding::Down,
    ..HeadDescriptor::usual("yolox", build, guess, SAMPLES)
};

/// Default cell sizes of YOLOX, in model pixels.
const STRIDES: [u32; 3] = [8, 16, 32];
/// Number of values before the classes: box and objectness.
const BOX_VALUES: usize = 5;

struct Yolox {
    spec: HeadSpec,
    cells: Vec<Cell>,
}

fn build(spec: &HeadSpec, input: &InputSpec, outputs: &[TensorDesc]) -> Result<Box<dyn Head>, String> {
    let output = only(outputs, KIND.name)?;
    let cells = cells(spec.strides_or_usual(), input.width, input.height, false);
    check_shape(output, &[cells.len(), BOX_VALUES + spec.classes])?;
    Ok(Box::new(Yolox { spec: spec.clone(), cells }))
}

fn guess(input: &InputSpec, outputs: &[TensorDesc]) -> Option<Guess> {
    let [output] = outputs else { return None };
    let [rows, values] = fixed_after_batch(output)?;
    let fits = rows == cells(&STRIDES, input.width, input.height, false).len() && values > BOX_VALUES;
    // NanoDet has rows of 80 classes and 4 x 8 distances.
    if !fits || values == super::nanodet::COCO_VALUES {
        return None;
    }
    let head = HeadSpec { strides: STRIDES.to_vec(), ..HeadSpec::new(KIND, values - BOX_VALUES) };
    let mut guess = Guess::new(head, input)
        .bgr()
        .fit(Fit::Letterbox)
        .unsure("color", "YOLOX is trained on BGR, and exports may differ")
        .unsure("mean", "samples of 0 to 255 since YOLOX 0.1.1; earlier models were normalised")
        .unsure("align", "YOLOX's own demo letterboxes top-left, some exports centre");
    guess.input.align = Align::TopLeft;
    Some(guess)
}

impl Head for Yolox {
    fn decode(
        &mut self,
        outputs: &[Output<'_>],
        item: usize,
        mapping: &Mapping,
        found: &mut InferenceResult,
    ) {
        let rows = outputs[0].item(item).chunks_exact(BOX_VALUES + self.spec.classes);
        for (row, cell) in rows.zip(&self.cells) {
            let (place, classes) = row.split_at(BOX_VALUES);
            let objectness = place[4];
            // Class scores are at most 1, so most cells are rejected by their objectness.
            if !is_candidate(objectness, &self.spec) {
                continue;
            }
            let bounds = mapping.to_source(bounds(place, cell));
            labels_above(
                &self.spec,
                classes,
                |class| objectness * class,
                |class_id, score| add(found, Detection { class_id, score, bounds }),
            );
        }
        suppress_as(&self.spec, &mut found.detections);
    }
}

fn bounds(place: &[f32], cell: &Cell) -> BoxF {
    let (cx, cy) = ((place[0] + cell.x) * cell.stride, (place[1] + cell.y) * cell.stride);
    let (w, h) = (place[2].exp() * cell.stride / 2.0, place[3].exp() * cell.stride / 2.0);
    BoxF { x1: cx - w, y1: cy - h, x2: cx + w, y2: cy + h }
}

/// Models that the suite of heads feeds.
const SAMPLES: HeadSamples = HeadSamples::published(80, 640, &[("output", &[1, 8400, 85])])
    .finding(2, &[("y", &[1, 21, 7], &[0.0, 0.0, 0.0, 0.0, 0.9, 0.7, 0.2])]);

#[cfg(test)]
mod tests {
    use super::super::tests::{decode, output};
    use super::*;
    use crate::input::tests::spec;

    #[test]
    fn one_lit_cell_is_one_box() {
        let mut data = vec![0.0; 42 * 7];
        // Cell (1, 0) of the stride-16 grid, 8 by 24 pixels, class 1.
        data[(32 + 1) * 7..][..7].copy_from_slice(&[0.5, 0.5, 0.5f32.ln(), 1.5f32.ln(), 0.9, 0.1, 0.8]);
        let found = decode(&HeadSpec::new(KIND, 2), (64, 32), &[("output", &[1, 42, 7], &data)]).detections;
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].class_id, 1);
        assert!((found[0].score - 0.72).abs() < 1e-6);
        let b = found[0].bounds;
        for (seen, exact) in [(b.x1, 40.0), (b.y1, -8.0), (b.x2, 56.0), (b.y2, 40.0)] {
            assert!((seen - exact).abs() < 1e-3, "{b:?}");
        }
    }

    #[test]
    fn another_shape_is_refused_with_both_shapes() {
        let input = spec(64, 32, Fit::Stretch, Align::TopLeft);
        let outputs = [output("output", &[1, 42, 7])];
        let fault = build(&HeadSpec::new(KIND, 3), &input, &outputs).err().expect("7 values are not 5 + 3");
        assert_eq!(fault, "its output is output f32[1,42,7], but model.toml describes it as [?,42,8]");
    }
}
