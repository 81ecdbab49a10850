//! Plot of accuracy over latency, with further figures as labels.

use std::error::Error;
use std::ops::Range;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::TO_STRING;

/// Width and height of the plot, in pixels.
const SIZE: (u32, u32) = (960, 560);
/// Width of a character and height of a line of the labels, in pixels; both as a renderer's usual font has them.
const CHAR_WIDTH: f64 = 6.6;
const LINE_HEIGHT: i32 = 17;
/// Distance of a label from its point, in pixels.
const LABEL_GAP: i32 = 12;
/// Smallest range of the vertical axis: smaller differences of accuracy are noise, and must not look large.
const ACCURACY_RANGE_MIN: f64 = 0.05;

/// Point of a trade-off plot.
#[derive(Clone, Debug, PartialEq)]
pub struct TradeOff {
    /// Latency in milliseconds.
    pub latency_ms: f64,
    /// Value of the metric; `None` where it is not measured: the point then lies on the horizontal axis.
    pub accuracy: Option<f64>,
    /// Lines of the label: name first, then further figures.
    pub label: Vec<String>,
}

/// Draws the points as SVG: latency to the right, accuracy upwards. `metric` is the name of the vertical axis.
pub fn trade_off(title: &str, metric: &str, points: &[TradeOff]) -> String {
    let (xs, ys) = (latency_range(points), accuracy_range(points));
    let mut svg = String::new();
    let result = (|| -> Result<(), Box<dyn Error>> {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&root)
            .caption(title, ("sans-serif", 20))
            .margin(14)
            .x_label_area_size(46)
            .y_label_area_size(60)
            .build_cartesian_2d(xs, ys.clone())?;
        chart
            .configure_mesh()
            .x_desc("median latency of one inference, ms")
            .y_desc(metric)
            .label_style(("sans-serif", 14))
            .bold_line_style(RGBColor(230, 230, 230))
            .light_line_style(WHITE)
            .draw()?;
        let place = |point: &TradeOff| (point.latency_ms, point.accuracy.unwrap_or(ys.start));
        let pixels: Vec<(i32, i32)> = points.iter().map(|point| chart.backend_coord(&place(point))).collect();
        let boxes = label_boxes(points, &pixels);
        for (index, point) in points.iter().enumerate() {
            let color = Palette99::pick(index).to_rgba();
            root.draw(&Circle::new(pixels[index], 7, color.filled()))?;
            for (line, row) in point.label.iter().zip(0..) {
                let size = if row == 0 { 15 } else { 13 };
                let style = ("sans-serif", size).into_font().color(&BLACK);
                // A label on the left ends at its point: how wide its font is, is only estimated.
                let label = boxes[index];
                let (side, x) = match label.left > pixels[index].0 {
                    true => (HPos::Left, label.left),
                    false => (HPos::Right, label.left + label.width),
                };
                let style = style.pos(Pos::new(side, VPos::Top));
                let at = (x, label.top + row * LINE_HEIGHT);
                root.draw(&Text::new(line.clone(), at, style))?;
            }
        }
        Ok(root.present()?)
    })();
    result.expect(TO_STRING);
    svg
}

/// Returns the range of the horizontal axis: from 0, because latencies are compared by their ratio.
fn latency_range(points: &[TradeOff]) -> Range<f64> {
    let longest = points.iter().map(|point| point.latency_ms).fold(0.0, f64::max);
    0.0..if longest > 0.0 { 1.15 * longest } else { 1.0 }
}

/// Returns the range of the vertical axis: that of the points, widened.
fn accuracy_range(points: &[TradeOff]) -> Range<f64> {
    let values = || points.iter().filter_map(|point| point.accuracy);
    let (least, most) = (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
    if least > most {
        return 0.0..1.0;
    }
    let margin = (0.5 * (most - least)).max(ACCURACY_RANGE_MIN);
    (least - margin).max(0.0)..(most + margin).min(1.05)
}

/// Area of a label, in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LabelBox {
    left: i32,
    top: i32,
    width: i32,
    height: i32,
}

impl LabelBox {
    fn overlaps(&self, other: &Self) -> bool {
        let apart = |at: i32, length: i32, other: i32, other_length: i32| {
            at >= other + other_length || other >= at + length
        };
        !apart(self.left, self.width, other.left, other.width)
            && !apart(self.top, self.height, other.top, other.height)
    }
}

/// Places each label next to its point: to the right, or to the left where it would leave the plot; then up or down until it
/// overlaps no label before it.
fn label_boxes(points: &[TradeOff], pixels: &[(i32, i32)]) -> Vec<LabelBox> {
    let mut placed: Vec<LabelBox> = Vec::new();
    for (point, &(x, y)) in points.iter().zip(pixels) {
        let chars = point.label.iter().map(|line| line.chars().count()).max().unwrap_or(0);
        let (width, height) = ((chars as f64 * CHAR_WIDTH) as i32, point.label.len() as i32 * LINE_HEIGHT);
        let is_right = x + LABEL_GAP + width <= SIZE.0 as i32;
        let left = if is_right { x + LABEL_GAP } else { x - LABEL_GAP - width };
        let free = |top: &i32| {
            let label = LabelBox { left, top: *top, width, height };
            !placed.iter().any(|other| other.overlaps(&label))
        };
        // Steps of a line, alternately down and up, within the plot.
        let steps = (0..60).map(|step| if step % 2 == 0 { step / 2 } else { -(step / 2) - 1 });
        let tops = steps.map(|step| y - LINE_HEIGHT / 2 + step * LINE_HEIGHT);
        let in_plot = |top: &i32| (40..SIZE.1 as i32 - 60 - height).contains(top);
        let top = tops.clone().filter(in_plot).find(free).unwrap_or(y);
        placed.push(LabelBox { left, top, width, height });
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(latency_ms: f64, accuracy: Option<f64>) -> TradeOff {
        TradeOff { latency_ms, accuracy, label: vec!["yolox_nano on tract".into(), "20.1 MiB".into()] }
    }

    #[test]
    fn axes_fit_the_points() {
        let points = [point(10.0, Some(0.40)), point(20.0, Some(0.42))];
        assert_eq!(latency_range(&points), 0.0..23.0);
        let range = accuracy_range(&points);
        assert!((range.start - 0.35).abs() < 1e-9 && (range.end - 0.47).abs() < 1e-9, "{range:?}");
        assert_eq!(accuracy_range(&[point(1.0, Some(0.0))]), 0.0..0.05);
        assert_eq!((latency_range(&[]), accuracy_range(&[point(1.0, None)])), (0.0..1.0, 0.0..1.0));
    }

    #[test]
    fn labels_do_not_overlap_and_stay_in_the_plot() {
        let points = [point(1.0, None), point(1.0, None), point(1.0, None), point(1.0, None)];
        let boxes = label_boxes(&points, &[(300, 200), (302, 201), (940, 200), (300, 499)]);
        for (index, one) in boxes.iter().enumerate() {
            assert!(one.left >= 0 && one.left + one.width <= SIZE.0 as i32, "{one:?}");
            assert!(one.top + one.height <= SIZE.1 as i32, "{one:?}");
            assert!(boxes[..index].iter().all(|other| !other.overlaps(one)), "{boxes:?}");
        }
        assert!(boxes[0].left > 300 && boxes[2].left + boxes[2].width < 940, "{boxes:?}");
    }

    #[test]
    fn a_plot_names_its_points() {
        let svg = trade_off("a < b", "AP", &[point(5.0, Some(0.4)), point(9.0, None)]);
        for part in ["a &lt; b", "yolox_nano on tract", "20.1 MiB", "median latency"] {
            assert!(svg.contains(part), "{part}");
        }
        assert!(trade_off("none", "AP", &[]).contains("none"), "an empty one is drawn, too");
    }
}
