//! YOLOX (Ge et al. 2021): one row per cell of three grids, `[dx, dy, log w, log h, objectness, class scores..]`, the
//! grids in raster order, finest first; objectness and class scores already between 0 and 1.

use orinoco_core::{BoxF, Detection, Dim, TensorDesc};

use super::{Head, HeadKind, HeadSpec, Output, check_shape};
use crate::{InputSpec, Mapping, suppress};

pub(super) const KIND: HeadKind = HeadKind { name: "yolox", build, guess };

const STRIDES: [u32; 3] = [8, 16, 32];
/// Box and objectness, before the classes.
const BOX_VALUES: usize = 5;

struct Yolox {
    spec: HeadSpec,
    cells: Vec<Cell>,
}

struct Cell {
    x: f32,
    y: f32,
    stride: f32,
}

fn build(spec: &HeadSpec, input: &InputSpec, outputs: &[TensorDesc]) -> Result<Box<dyn Head>, String> {
    let [output] = outputs else {
        return Err(format!("it has {} outputs, where yolox has 1", outputs.len()));
    };
    let mut spec = spec.clone();
    if spec.strides.is_empty() {
        spec.strides = STRIDES.to_vec();
    }
    let cells = cells(&spec.strides, input.width, input.height);
    check_shape(output, &[cells.len(), BOX_VALUES + spec.classes])?;
    Ok(Box::new(Yolox { spec, cells }))
}

fn guess(width: u32, height: u32, outputs: &[TensorDesc]) -> Option<HeadSpec> {
    let [TensorDesc { shape, .. }] = outputs else { return None };
    let [_, Dim::Fixed(rows), Dim::Fixed(values)] = shape[..] else { return None };
    let fits = rows == cells(&STRIDES, width, height).len() && values > BOX_VALUES;
    fits.then(|| HeadSpec {
        kind: "yolox".to_owned(),
        strides: STRIDES.to_vec(),
        classes: values - BOX_VALUES,
        score_threshold: 0.3,
        iou_threshold: 0.45,
        detections_max: 300,
    })
}

fn cells(strides: &[u32], width: u32, height: u32) -> Vec<Cell> {
    let grid = |stride: u32| {
        let (columns, rows) = (width / stride, height / stride);
        (0..rows).flat_map(move |y| {
            (0..columns).map(move |x| Cell { x: x as f32, y: y as f32, stride: stride as f32 })
        })
    };
    strides.iter().flat_map(|stride| grid(*stride)).collect()
}

impl Head for Yolox {
    fn decode(&mut self, outputs: &[Output<'_>], item: usize, mapping: &Mapping, found: &mut Vec<Detection>) {
        found.clear();
        let values = BOX_VALUES + self.spec.classes;
        for (cell, row) in self.cells.iter().zip(outputs[0].item(item).chunks_exact(values)) {
            let objectness = row[4];
            // Class scores are at most 1, so most cells end here.
            if objectness <= self.spec.score_threshold {
                continue;
            }
            for (class_id, class_score) in (0u32..).zip(&row[BOX_VALUES..]) {
                let score = objectness * class_score;
                if score > self.spec.score_threshold {
                    let bounds = mapping.to_source(cell.bounds(row));
                    found.push(Detection { class_id, score, bounds });
                }
            }
        }
        suppress(found, self.spec.iou_threshold, self.spec.detections_max);
    }
}

impl Cell {
    fn bounds(&self, row: &[f32]) -> BoxF {
        let (cx, cy) = ((row[0] + self.x) * self.stride, (row[1] + self.y) * self.stride);
        let (w, h) = (row[2].exp() * self.stride, row[3].exp() * self.stride);
        BoxF { x1: cx - w / 2.0, y1: cy - h / 2.0, x2: cx + w / 2.0, y2: cy + h / 2.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::tests::spec;
    use crate::{Align, Fit};
    use orinoco_core::ElementType;

    fn output(rows: usize, values: usize) -> TensorDesc {
        let shape = vec![Dim::Fixed(1), Dim::Fixed(rows), Dim::Fixed(values)];
        TensorDesc { name: "output".to_owned(), element: Some(ElementType::F32), shape }
    }

    #[test]
    fn one_lit_cell_is_one_box() {
        let input = spec(64, 32, Fit::Stretch, Align::TopLeft);
        let outputs = [output(32 + 8 + 2, 7)];
        let head_spec = guess(64, 32, &outputs).expect("looks like yolox");
        let mut head = build(&head_spec, &input, &outputs).expect("fits");
        let mut data = vec![0.0; 42 * 7];
        // Cell (1, 0) of the stride-16 grid, 8 by 24 pixels, class 1.
        data[(32 + 1) * 7..][..7].copy_from_slice(&[0.5, 0.5, 0.5f32.ln(), 1.5f32.ln(), 0.9, 0.1, 0.8]);
        let mut found = Vec::new();
        head.decode(&[Output { shape: &[1, 42, 7], data: &data }], 0, &input.mapping(128, 32), &mut found);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].class_id, 1);
        assert!((found[0].score - 0.72).abs() < 1e-6);
        let b = found[0].bounds;
        for (seen, exact) in [(b.x1, 40.0), (b.y1, -4.0), (b.x2, 56.0), (b.y2, 20.0)] {
            assert!((seen - exact).abs() < 1e-3, "{b:?}");
        }
    }

    #[test]
    fn another_shape_is_refused_with_both_shapes() {
        let input = spec(64, 32, Fit::Stretch, Align::TopLeft);
        let head = HeadSpec { classes: 3, ..guess(64, 32, &[output(42, 7)]).expect("looks like yolox") };
        let fault = build(&head, &input, &[output(42, 7)]).err().expect("7 values are not 5 + 3");
        assert_eq!(fault, "its output is output f32[1,42,7], where the description makes it [?,42,8]");
    }
}
