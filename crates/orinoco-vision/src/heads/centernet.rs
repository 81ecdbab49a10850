//! CenterNet, "Objects as Points" (Zhou et al. 2019): `heatmap` [n, classes, h, w] of centre scores between 0 and 1,
//! `size` [n, 2, h, w] as width and height in model pixels, `offset` [n, 2, h, w] of the centre within its cell, in
//! cells. A centre is a cell that no neighbour exceeds.

use orinoco_core::{BoxF, Detection, InferenceResult, TensorDesc};

use super::{
    Guess, Head, HeadDescriptor, HeadKind, HeadSamples, HeadSpec, Output, SampleModel, add, find_output,
    fixed_after_batch, is_candidate, suppress_as,
};
use crate::{Fit, InputSpec, Mapping};

pub(super) const KIND: HeadKind = HeadKind(&DESCRIPTOR);

static DESCRIPTOR: HeadDescriptor = HeadDescriptor::usual("centernet", build, guess, SAMPLES);

struct CenterNet {
    spec: HeadSpec,
    stride: f32,
    columns: usize,
    rows: usize,
    heatmap: usize,
    size: usize,
    offset: usize,
}

fn build(spec: &HeadSpec, input: &InputSpec, outputs: &[TensorDesc]) -> Result<Box<dyn Head>, String> {
    let [stride] = spec.strides[..] else { return Err("centernet needs exactly one stride".to_owned()) };
    let (columns, rows) = ((input.width / stride) as usize, (input.height / stride) as usize);
    Ok(Box::new(CenterNet {
        spec: spec.clone(),
        stride: stride as f32,
        columns,
        rows,
        heatmap: find_output(outputs, "heatmap", &[spec.classes, rows, columns])?,
        size: find_output(outputs, "size", &[2, rows, columns])?,
        offset: find_output(outputs, "offset", &[2, rows, columns])?,
    }))
}

fn guess(input: &InputSpec, outputs: &[TensorDesc]) -> Option<Guess> {
    let heatmap = outputs.iter().find(|output| output.name == "heatmap")?;
    let [classes, rows, columns] = fixed_after_batch(heatmap)?;
    let stride = input.width.checked_div(u32::try_from(columns).ok()?)?;
    let square = stride > 0 && input.height.checked_div(stride)? as usize == rows;
    let head = HeadSpec {
        strides: vec![stride],
        score_threshold: 0.4,
        iou_threshold: 0.5,
        ..HeadSpec::new(KIND, classes)
    };
    square.then(|| Guess::new(head, input).unit_rgb(Fit::Stretch))
}

impl Head for CenterNet {
    fn decode(
        &mut self,
        outputs: &[Output<'_>],
        item: usize,
        mapping: &Mapping,
        found: &mut InferenceResult,
    ) {
        let cells = self.columns * self.rows;
        let size = outputs[self.size].item(item);
        let offset = outputs[self.offset].item(item);
        for (class_id, heat) in (0u32..).zip(outputs[self.heatmap].item(item).chunks_exact(cells)) {
            let rows = heat.chunks_exact(self.columns).enumerate();
            let each = rows.flat_map(|(y, row)| row.iter().enumerate().map(move |(x, score)| (x, y, *score)));
            for (cell, (x, y, score)) in each.enumerate() {
                if is_candidate(score, &self.spec) && self.is_peak(heat, (x, y), score) {
                    let cx = (x as f32 + offset[cell]) * self.stride;
                    let cy = (y as f32 + offset[cells + cell]) * self.stride;
                    let (w, h) = (size[cell] / 2.0, size[cells + cell] / 2.0);
                    let bounds = BoxF { x1: cx - w, y1: cy - h, x2: cx + w, y2: cy + h };
                    let bounds = mapping.to_source(bounds);
                    add(found, Detection { class_id, score, bounds });
                }
            }
        }
        suppress_as(&self.spec, &mut found.detections);
    }
}

impl CenterNet {
    fn is_peak(&self, heat: &[f32], (x, y): (usize, usize), score: f32) -> bool {
        let (left, right) = (x.saturating_sub(1), (x + 2).min(self.columns));
        let mut rows = y.saturating_sub(1)..(y + 2).min(self.rows);
        // A neighbour that is NaN hides nothing.
        let hides = |neighbour: &f32| *neighbour > score;
        !rows.any(|row| heat[row * self.columns..][left..right].iter().any(hides))
    }
}

/// Models that the suite of heads feeds.
const SAMPLES: HeadSamples = HeadSamples {
    published: SampleModel {
        classes: 80,
        side: 512,
        strides: &[4],
        outputs: &[
            ("heatmap", &[1, 80, 128, 128]),
            ("size", &[1, 2, 128, 128]),
            ("offset", &[1, 2, 128, 128]),
        ],
    },
    finding: Some(SampleModel {
        classes: 2,
        side: 32,
        strides: &[8],
        outputs: &[
            ("heatmap", &[1, 2, 4, 4], &[0.7]),
            ("size", &[1, 2, 4, 4], &[4.0]),
            ("offset", &[1, 2, 4, 4], &[0.5]),
        ],
    }),
};

#[cfg(test)]
mod tests {
    use super::super::tests::decode;
    use super::*;

    #[test]
    fn peaks_become_boxes() {
        let spec = HeadSpec { strides: vec![8], ..HeadSpec::new(KIND, 1) };
        // Cell 1 is a peak next to its shoulder 2; cell 7 is below the threshold.
        let heat = [0.0, 0.9, 0.8, 0.0, 0.0, 0.0, 0.0, 0.3];
        let size: Vec<f32> = (0..16).map(|i| if i < 8 { 4.0 } else { 8.0 }).collect();
        let outputs: [(&str, &[usize], &[f32]); 3] = [
            ("heatmap", &[1, 1, 2, 4], &heat),
            ("size", &[1, 2, 2, 4], &size),
            ("offset", &[1, 2, 2, 4], &[0.5; 16]),
        ];
        let bounds = BoxF { x1: 20.0, y1: 0.0, x2: 28.0, y2: 16.0 };
        let found = decode(&spec, (32, 16), &outputs);
        assert_eq!(found.detections, [Detection { class_id: 0, score: 0.9, bounds }]);
    }
}
