//! YOLOv5 (and YOLOv7 exported with its grid): rows of `[cx, cy, w, h, objectness, class scores..]` in model pixels,
//! three for each cell of three grids.

use orinoco_core::{BoxF, Detection, Dim, InferenceResult, TensorDesc};

use super::{
    Guess, Head, HeadDescriptor, HeadKind, HeadSamples, HeadSpec, Output, OutputForm, add, cells, check_axes,
    fixed_after_batch, is_candidate, labels_above, only, suppress_as,
};
use crate::{Fit, InputSpec, Mapping, Rounding};

pub(super) const KIND: HeadKind = HeadKind(&DESCRIPTOR);

static DESCRIPTOR: HeadDescriptor = HeadDescriptor {
    form: OutputForm::PixelRows,
    strides: &STRIDES,
    rounding: Rounding::Nearest,
    reads_ultralytics: true,
    ..HeadDescriptor::usual("yolov5", build, guess, SAMPLES)
};

const STRIDES: [u32; 3] = [8, 16, 32];
const ANCHORS_EACH: usize = 3;
/// Number of values before the classes: box and objectness.
const BOX_VALUES: usize = 5;

struct YoloV5 {
    spec: HeadSpec,
}

fn build(spec: &HeadSpec, _: &InputSpec, outputs: &[TensorDesc]) -> Result<Box<dyn Head>, String> {
    let output = only(outputs, KIND.name)?;
    check_axes(output, &[Dim::Dynamic, Dim::Dynamic, Dim::Fixed(BOX_VALUES + spec.classes)])?;
    Ok(Box::new(YoloV5 { spec: spec.clone() }))
}

fn guess(input: &InputSpec, outputs: &[TensorDesc]) -> Option<Guess> {
    let [output] = outputs else { return None };
    let [rows, values] = fixed_after_batch(output)?;
    let cells = cells(&STRIDES, input.width, input.height, false).len();
    let fits = rows == cells * ANCHORS_EACH && values > BOX_VALUES;
    let head = || HeadSpec::new(KIND, values - BOX_VALUES);
    fits.then(|| Guess::new(head(), input).unit_rgb(Fit::Letterbox))
}

impl Head for YoloV5 {
    fn decode(
        &mut self,
        outputs: &[Output<'_>],
        item: usize,
        mapping: &Mapping,
        found: &mut InferenceResult,
    ) {
        for row in outputs[0].item(item).chunks_exact(BOX_VALUES + self.spec.classes) {
            let (place, classes) = row.split_at(BOX_VALUES);
            // Class scores are at most 1, so most rows are rejected by their objectness.
            if !is_candidate(place[4], &self.spec) {
                continue;
            }
            let bounds = mapping.to_source(from_center(place));
            labels_above(
                &self.spec,
                classes,
                |class| place[4] * class,
                |class_id, score| add(found, Detection { class_id, score, bounds }),
            );
        }
        suppress_as(&self.spec, &mut found.detections);
    }
}

/// Converts centre and size to a box.
pub(super) fn from_center(place: &[f32]) -> BoxF {
    let (w, h) = (place[2] / 2.0, place[3] / 2.0);
    BoxF { x1: place[0] - w, y1: place[1] - h, x2: place[0] + w, y2: place[1] + h }
}

/// Models that the suite of heads feeds.
const SAMPLES: HeadSamples = HeadSamples::published(80, 640, &[("output0", &[1, 25200, 85])])
    .finding(2, &[("y", &[1, 3, 7], &[9.0, 9.0, 4.0, 4.0, 0.9, 0.7, 0.2])]);

#[cfg(test)]
mod tests {
    use super::super::tests::decode;
    use super::*;

    #[test]
    fn rows_become_boxes() {
        let rows = [16.0, 8.0, 8.0, 4.0, 0.9, 0.1, 0.8, 16.0, 8.0, 8.0, 4.0, 0.2, 0.1, 0.8];
        let found = decode(&HeadSpec::new(KIND, 2), (32, 32), &[("output0", &[1, 2, 7], &rows)]);
        let bounds = BoxF { x1: 24.0, y1: 12.0, x2: 40.0, y2: 20.0 };
        assert_eq!(found.detections, [Detection { class_id: 1, score: 0.9 * 0.8, bounds }]);
    }
}
