//! Objects as points (Zhou et al. 2019): `heatmap` [n, classes, h, w] of centre scores between 0 and 1, `size`
//! [n, 2, h, w] as width and height in model pixels, `offset` [n, 2, h, w] of the centre within its cell, in cells. A
//! centre is a cell that no neighbour exceeds.

use orinoco_core::{BoxF, Detection, Dim, TensorDesc};

use super::{Head, HeadKind, HeadSpec, Output, find_output};
use crate::{InputSpec, Mapping, suppress};

pub(super) const KIND: HeadKind = HeadKind { name: "centernet", build, guess };

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

fn guess(width: u32, height: u32, outputs: &[TensorDesc]) -> Option<HeadSpec> {
    let heatmap = outputs.iter().find(|output| output.name == "heatmap")?;
    let [_, Dim::Fixed(classes), Dim::Fixed(rows), Dim::Fixed(columns)] = heatmap.shape[..] else {
        return None;
    };
    let stride = width.checked_div(u32::try_from(columns).ok()?)?;
    let square = stride > 0 && height.checked_div(stride)? as usize == rows;
    square.then(|| HeadSpec {
        kind: "centernet".to_owned(),
        strides: vec![stride],
        classes,
        score_threshold: 0.4,
        iou_threshold: 0.5,
        detections_max: 300,
    })
}

impl Head for CenterNet {
    fn decode(&mut self, outputs: &[Output<'_>], item: usize, mapping: &Mapping, found: &mut Vec<Detection>) {
        found.clear();
        let cells = self.columns * self.rows;
        let size = outputs[self.size].item(item);
        let offset = outputs[self.offset].item(item);
        for (class_id, heat) in (0u32..).zip(outputs[self.heatmap].item(item).chunks_exact(cells)) {
            for (cell, score) in heat.iter().enumerate() {
                if *score > self.spec.score_threshold && self.is_peak(heat, cell) {
                    let cx = ((cell % self.columns) as f32 + offset[cell]) * self.stride;
                    let cy = ((cell / self.columns) as f32 + offset[cells + cell]) * self.stride;
                    let (w, h) = (size[cell] / 2.0, size[cells + cell] / 2.0);
                    let bounds = BoxF { x1: cx - w, y1: cy - h, x2: cx + w, y2: cy + h };
                    found.push(Detection { class_id, score: *score, bounds: mapping.to_source(bounds) });
                }
            }
        }
        suppress(found, self.spec.iou_threshold, self.spec.detections_max);
    }
}

impl CenterNet {
    fn is_peak(&self, heat: &[f32], cell: usize) -> bool {
        let (x, y) = (cell % self.columns, cell / self.columns);
        let xs = x.saturating_sub(1)..=(x + 1).min(self.columns - 1);
        let mut ys = y.saturating_sub(1)..=(y + 1).min(self.rows - 1);
        ys.all(|row| xs.clone().all(|column| heat[row * self.columns + column] <= heat[cell]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::tests::spec;
    use crate::{Align, Fit};
    use orinoco_core::ElementType;

    #[test]
    fn peaks_become_boxes() {
        let tensor = |name: &str, channels: usize| TensorDesc {
            name: name.to_owned(),
            element: Some(ElementType::F32),
            shape: vec![Dim::Dynamic, Dim::Fixed(channels), Dim::Fixed(2), Dim::Fixed(4)],
        };
        let outputs = [tensor("heatmap", 1), tensor("size", 2), tensor("offset", 2)];
        let input = spec(32, 16, Fit::Stretch, Align::TopLeft);
        let head_spec = guess(32, 16, &outputs).expect("looks like centernet");
        let mut head = build(&head_spec, &input, &outputs).expect("fits");
        // Cell 1 is a peak beside its shoulder 2; cell 7 is below the threshold.
        let heat = [0.0, 0.9, 0.8, 0.0, 0.0, 0.0, 0.0, 0.3];
        let size: Vec<f32> = (0..16).map(|i| if i < 8 { 4.0 } else { 8.0 }).collect();
        let offset = [0.5; 16];
        let shaped = |data| Output { shape: &[1, 1, 2, 4], data };
        let mut found = Vec::new();
        head.decode(&[shaped(&heat), shaped(&size), shaped(&offset)], 0, &input.mapping(32, 16), &mut found);
        let bounds = BoxF { x1: 10.0, y1: 0.0, x2: 14.0, y2: 8.0 };
        assert_eq!(found, [Detection { class_id: 0, score: 0.9, bounds }]);
    }
}
