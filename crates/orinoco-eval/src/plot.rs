//! Pictures of a model's accuracy, as SVG.

use std::error::Error;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::Confusion;
use crate::coco::{RECALL_POINTS, Report};

/// Curves named in the legend: the best and the worst classes.
const NAMED_MAX: usize = 10;
/// Pictures are this wide and high, in pixels.
const SIDE: (u32, u32) = (960, 640);
/// A confusion matrix of more classes than this shows those that are labelled most.
const MATRIX_MAX: usize = 40;
/// Numbers are written into cells up to this many.
const NUMBERED_MAX: usize = 20;

/// Why drawing cannot fail.
const TO_STRING: &str = "an SVG is drawn into a String";

/// Precision over recall at IoU 0.5, a line for each class and a bold one for their mean. `labels` name the classes.
pub fn precision_recall(report: &Report, labels: &[String]) -> String {
    let mut known: Vec<(usize, f64)> =
        report.classes.iter().enumerate().filter_map(|(class, found)| Some((class, found.ap50?))).collect();
    known.sort_by(|a, b| b.1.total_cmp(&a.1));
    let named =
        |rank: usize| known.len() <= NAMED_MAX || rank < NAMED_MAX / 2 || rank + NAMED_MAX / 2 >= known.len();
    let mut svg = String::new();
    let result = (|| -> Result<(), Box<dyn Error>> {
        let root = SVGBackend::with_string(&mut svg, SIDE).into_drawing_area();
        root.fill(&WHITE)?;
        let caption = match report.ap50 {
            Some(ap50) => format!("Precision and recall at IoU 0.5, AP50 {ap50:.3}"),
            None => "Precision and recall at IoU 0.5".to_owned(),
        };
        let mut chart = ChartBuilder::on(&root)
            .caption(caption, ("sans-serif", 22))
            .margin(12)
            .margin_right(220)
            .x_label_area_size(42)
            .y_label_area_size(52)
            .build_cartesian_2d(0.0..1.0, 0.0..1.0)?;
        chart
            .configure_mesh()
            .x_desc("recall")
            .y_desc("precision")
            .label_style(("sans-serif", 14))
            .light_line_style(WHITE)
            .draw()?;
        let line = |precision: &[f64]| {
            let points = precision.iter().enumerate();
            points
                .map(|(point, value)| (point as f64 / (RECALL_POINTS - 1) as f64, *value))
                .collect::<Vec<_>>()
        };
        for (rank, (class, ap50)) in known.iter().enumerate() {
            let color = Palette99::pick(rank).mix(if named(rank) { 0.9 } else { 0.15 });
            let series = LineSeries::new(line(&report.classes[*class].precision), color);
            let drawn = chart.draw_series(series)?;
            if named(rank) {
                let name = labels.get(*class).map_or("?", String::as_str);
                drawn
                    .label(format!("{name} {ap50:.3}"))
                    .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], color.stroke_width(2)));
            }
        }
        let mean = mean_curve(report);
        chart
            .draw_series(LineSeries::new(line(&mean), BLACK.stroke_width(3)))?
            .label("all classes")
            .legend(|(x, y)| PathElement::new([(x, y), (x + 16, y)], BLACK.stroke_width(3)));
        // Beside the chart, where no curve runs.
        let beside = SeriesLabelPosition::Coordinate(SIDE.0 as i32 - 285, 0);
        chart.configure_series_labels().position(beside).label_font(("sans-serif", 14)).draw()?;
        Ok(root.present()?)
    })();
    result.expect(TO_STRING);
    svg
}

/// The mean precision of all classes that have objects.
fn mean_curve(report: &Report) -> Vec<f64> {
    let curves: Vec<&Vec<f64>> =
        report.classes.iter().map(|class| &class.precision).filter(|curve| !curve.is_empty()).collect();
    let mean = |point: usize| curves.iter().map(|curve| curve[point]).sum::<f64>() / curves.len() as f64;
    if curves.is_empty() { Vec::new() } else { (0..RECALL_POINTS).map(mean).collect() }
}

/// A confusion matrix: each row's shares as shades, and counts where there is room. `labels` name the classes; a row and
/// a column beyond them are called "nothing".
pub fn confusion(matrix: &Confusion, labels: &[String]) -> String {
    let mut shown: Vec<usize> =
        (0..matrix.classes()).filter(|class| matrix.row(*class) + matrix.column(*class) > 0).collect();
    shown.sort_by_key(|class| std::cmp::Reverse(matrix.row(*class)));
    shown.truncate(MATRIX_MAX);
    shown.sort_unstable();
    let name = |class: usize| labels.get(class).map_or("nothing", String::as_str);
    let cell = if shown.len() > NUMBERED_MAX { 20 } else { 44 };
    let (left, top, side) = (150, 40, cell * shown.len() as i32);
    let size = ((left + side + 20) as u32, (top + side + 150) as u32);
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

/// One cell: as dark as its share of the row, and its count where there is room.
fn draw_cell(
    root: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    matrix: &Confusion,
    (labelled, found): (usize, usize),
    (x, y): (i32, i32),
    cell: i32,
) -> Result<(), Box<dyn Error>> {
    let count = matrix.at(labelled, found);
    let share = count as f64 / matrix.row(labelled).max(1) as f64;
    // White to blue where it is right, white to orange where it is not.
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
    use crate::coco::{Found, Truth, evaluate};

    #[test]
    fn pictures_name_their_classes() {
        let bounds = [0.0, 0.0, 10.0, 10.0];
        let truth = [Truth { image: 0, class: 1, bounds, area: 100.0, crowd: false }];
        let found = [Found { image: 0, class: 1, score: 0.9, bounds }];
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
