//! Plots of a model's figures, as SVG.

mod card;
mod trade_off;

use std::error::Error;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::Confusion;
use crate::coco::{RECALL_POINTS, Report};

pub use card::{BarChart, CardFigure, CardImage, card};
pub use trade_off::{TradeOff, trade_off};

/// Maximum number of classes with a name in the legend.
const NAMED_MAX: usize = 10;
/// Width and height of the plots, in pixels.
const SIDE: (u32, u32) = (960, 640);
/// Width of the legend, in pixels.
const LEGEND: u32 = 200;
/// Maximum number of classes in a confusion matrix; beyond it, those with most labels are shown.
const MATRIX_MAX: usize = 40;
/// Maximum number of classes at which counts are written into the cells.
const NUMBERED_MAX: usize = 20;

/// Reason why drawing cannot fail.
const TO_STRING: &str = "an SVG is drawn into a String";

/// Draws precision over recall at IoU 0.5: a bold line for the mean of all classes, a coloured one for each of the
/// classes with most objects, and a faint one for each of the others. `labels` are the names of the classes.
pub fn precision_recall(report: &Report, labels: &[String]) -> String {
    let mut known: Vec<usize> =
        (0..report.classes.len()).filter(|class| report.classes[*class].objects > 0).collect();
    known.sort_by_key(|class| std::cmp::Reverse(report.classes[*class].objects));
    let mean = mean_curve(report);
    let mut svg = String::new();
    let result = (|| -> Result<(), Box<dyn Error>> {
        let root = SVGBackend::with_string(&mut svg, SIDE).into_drawing_area();
        root.fill(&WHITE)?;
        let (left, legend) = root.split_horizontally(SIDE.0 - LEGEND);
        let ap50 = report.ap50.map_or_else(String::new, |ap50| format!(", AP50 {ap50:.3}"));
        let mut chart = ChartBuilder::on(&left)
            .caption(format!("Precision and recall at IoU 0.5{ap50}"), ("sans-serif", 20))
            .margin(12)
            .x_label_area_size(42)
            .y_label_area_size(52)
            .build_cartesian_2d(0.0..1.0, 0.0..1.0)?;
        chart
            .configure_mesh()
            .x_desc("recall")
            .y_desc("precision")
            .label_style(("sans-serif", 14))
            .bold_line_style(RGBColor(230, 230, 230))
            .light_line_style(WHITE)
            .draw()?;
        // Faint lines come first, so that the others lie on top.
        for (rank, class) in known.iter().enumerate().rev() {
            let color = if rank < NAMED_MAX { class_color(rank) } else { RGBAColor(150, 150, 150, 0.3) };
            let width = if rank < NAMED_MAX { 2 } else { 1 };
            let points = curve_points(&report.classes[*class].precision);
            chart.draw_series(LineSeries::new(points, color.stroke_width(width)))?;
        }
        chart.draw_series(LineSeries::new(curve_points(&mean), BLACK.stroke_width(3)))?;
        draw_legend(&legend, 0, "all classes", &BLACK.to_rgba())?;
        for (rank, class) in known.iter().take(NAMED_MAX).enumerate() {
            let name = labels.get(*class).map_or("?", String::as_str);
            let ap50 = report.classes[*class].ap50.unwrap_or(0.0);
            draw_legend(&legend, rank + 1, &format!("{name} {ap50:.3}"), &class_color(rank))?;
        }
        Ok(root.present()?)
    })();
    result.expect(TO_STRING);
    svg
}

fn curve_points(precision: &[f64]) -> Vec<(f64, f64)> {
    let points = precision.iter().enumerate();
    points.map(|(point, value)| (point as f64 / (RECALL_POINTS - 1) as f64, *value)).collect()
}

fn class_color(rank: usize) -> RGBAColor {
    Palette99::pick(rank).mix(0.9)
}

/// Draws row `row` of the legend: a stroke and a name.
fn draw_legend(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    row: usize,
    name: &str,
    color: &RGBAColor,
) -> Result<(), Box<dyn Error>> {
    let y = 60 + 24 * row as i32;
    area.draw(&PathElement::new([(0, y), (22, y)], color.stroke_width(3)))?;
    let style = ("sans-serif", 14).into_font().color(&BLACK).pos(Pos::new(HPos::Left, VPos::Center));
    area.draw(&Text::new(name.to_owned(), (30, y), style))?;
    Ok(())
}

/// Returns the mean precision of all classes with objects.
fn mean_curve(report: &Report) -> Vec<f64> {
    let curves: Vec<&Vec<f64>> =
        report.classes.iter().map(|class| &class.precision).filter(|curve| !curve.is_empty()).collect();
    let mean = |point: usize| curves.iter().map(|curve| curve[point]).sum::<f64>() / curves.len() as f64;
    if curves.is_empty() { Vec::new() } else { (0..RECALL_POINTS).map(mean).collect() }
}

/// Draws a confusion matrix: shades for the shares of each row, and counts in cells that are large enough. `labels` are
/// the names of the classes; a row and a column beyond them are called "nothing".
pub fn confusion(matrix: &Confusion, labels: &[String]) -> String {
    let mut shown: Vec<usize> =
        (0..matrix.classes()).filter(|class| matrix.row(*class) + matrix.column(*class) > 0).collect();
    shown.sort_by_key(|class| std::cmp::Reverse(matrix.row(*class)));
    shown.truncate(MATRIX_MAX);
    shown.sort_unstable();
    let name = |class: usize| labels.get(class).map_or("nothing", String::as_str);
    let cell = if shown.len() > NUMBERED_MAX { 20 } else { 44 };
    let (left, top, side) = (150, 40, cell * shown.len() as i32);
    let size = ((left + side + 20) as u32, (top + side + 110) as u32);
    let mut svg = String::new();
    let result = (|| -> Result<(), Box<dyn Error>> {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE)?;
        let style = ("sans-serif", 13).into_font().color(&BLACK);
        root.draw(&Text::new("rows: labelled, columns: found", (left, 12), style.clone()))?;
        for (row, labelled) in shown.iter().enumerate() {
            let y = top + row as i32 * cell;
            let right = style.clone().pos(Pos::new(HPos::Right, VPos::Center));
            root.draw(&Text::new(name(*labelled).to_owned(), (left - 6, y + cell / 2), right))?;
            for (column, found) in shown.iter().enumerate() {
                draw_cell(&root, matrix, (*labelled, *found), (left + column as i32 * cell, y), cell)?;
            }
        }
        for (column, found) in shown.iter().enumerate() {
            let turned = ("sans-serif", 13).into_font().transform(FontTransform::Rotate90).color(&BLACK);
            let x = left + column as i32 * cell + cell / 2 + 6;
            root.draw(&Text::new(name(*found).to_owned(), (x, top + side + 6), turned))?;
        }
        Ok(root.present()?)
    })();
    result.expect(TO_STRING);
    svg
}

/// Draws one cell: its shade is its share of the row; its count is written if it is large enough.
fn draw_cell(
    root: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    matrix: &Confusion,
    (labelled, found): (usize, usize),
    (x, y): (i32, i32),
    cell: i32,
) -> Result<(), Box<dyn Error>> {
    let count = matrix.at(labelled, found);
    let share = count as f64 / matrix.row(labelled).max(1) as f64;
    // White to blue for correct cells, white to orange for wrong ones.
    let full = if labelled == found { (31, 119, 180) } else { (214, 90, 14) };
    let shade = |channel: u8| (255.0 - share.sqrt() * f64::from(255 - channel)) as u8;
    let color = RGBColor(shade(full.0), shade(full.1), shade(full.2));
    root.draw(&Rectangle::new([(x, y), (x + cell, y + cell)], color.filled()))?;
    root.draw(&Rectangle::new([(x, y), (x + cell, y + cell)], RGBColor(225, 225, 225)))?;
    if cell > 30 && count > 0 {
        let ink = if share > 0.6 { &WHITE } else { &BLACK };
        let middle = ("sans-serif", 12).into_font().color(ink).pos(Pos::new(HPos::Center, VPos::Center));
        root.draw(&Text::new(count.to_string(), (x + cell / 2, y + cell / 2), middle))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coco::{FoundBox, Truth, evaluate};

    #[test]
    fn images_name_their_classes() {
        let bounds = [0.0, 0.0, 10.0, 10.0];
        let truth = [Truth { image: 0, class: 1, bounds, area: 100.0, crowd: false }];
        let found = [FoundBox { image: 0, class: 1, score: 0.9, bounds }];
        let labels = ["car".to_owned(), "zebra <&>".to_owned()];
        let svg = precision_recall(&evaluate(&truth, &found, 2), &labels);
        assert!(svg.starts_with("<svg") && svg.contains("zebra &lt;&amp;&gt; 1.000") && !svg.contains("car"));
        let mut matrix = Confusion::new(3);
        matrix.count(1, 2);
        let svg = confusion(&matrix, &labels);
        assert!(svg.contains("zebra") && svg.contains("nothing") && svg.trim_end().ends_with("</svg>"));
        assert!(confusion(&Confusion::new(2), &labels).contains("labelled"), "an empty one is drawn, too");
    }
}
