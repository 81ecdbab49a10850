//! Image of a model's card: its figures as text, and bar charts.

use std::error::Error;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::TO_STRING;

/// Width and height of the image, in pixels.
const SIZE: (u32, u32) = (960, 620);
/// Left and top of the first figure, and the distance to the next, in pixels.
const TILES: (i32, i32) = (28, 104);
const TILE_STEP: i32 = 126;
/// Maximum length of a line of a figure's note, in characters.
const NOTE_CHARS: usize = 62;
/// Maximum number of lines of a note.
const NOTE_LINES: usize = 3;
/// Left edge, width of the names, and right edge of the longest bar of the charts, in pixels.
const CHART_LEFT: i32 = 500;
const NAME_WIDTH: i32 = 70;
const BAR_RIGHT: i32 = 850;
/// Height of a bar with its gap, in pixels.
const BAR_STEP: i32 = 26;

const INK: RGBColor = RGBColor(30, 30, 30);
const FAINT: RGBColor = RGBColor(110, 110, 110);
const BAR: RGBColor = RGBColor(31, 119, 180);

/// Content of a card's image.
#[derive(Clone, Debug, PartialEq)]
pub struct CardImage {
    /// Heading.
    pub title: String,
    /// Line below the heading.
    pub subtitle: String,
    /// Figures, at most four.
    pub figures: Vec<CardFigure>,
    /// Bar charts, at most two, with about 8 bars each.
    pub charts: Vec<BarChart>,
}

/// Figure of a card.
#[derive(Clone, Debug, PartialEq)]
pub struct CardFigure {
    /// Name of the figure.
    pub name: String,
    /// Value with its unit.
    pub value: String,
    /// Small text below, such as the reason why there is no value.
    pub note: String,
}

/// Bars with names and values.
#[derive(Clone, Debug, PartialEq)]
pub struct BarChart {
    /// Heading, with the unit.
    pub title: String,
    /// Name, length and text of each bar.
    pub bars: Vec<(String, f64, String)>,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn Error>>;

/// Draws a card as SVG.
pub fn card(image: &CardImage) -> String {
    let mut svg = String::new();
    let result = (|| -> Drawn {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        write(&root, &image.title, (28, 22), 24, &INK)?;
        write(&root, &image.subtitle, (28, 56), 14, &FAINT)?;
        for (figure, index) in image.figures.iter().zip(0..) {
            draw_figure(&root, figure, (TILES.0, TILES.1 + index * TILE_STEP))?;
        }
        let mut top = TILES.1;
        for chart in &image.charts {
            top = draw_chart(&root, chart, top)?;
        }
        Ok(root.present()?)
    })();
    result.expect(TO_STRING);
    svg
}

fn write(area: &Area<'_>, text: &str, place: (i32, i32), size: i32, color: &RGBColor) -> Drawn {
    let style = ("sans-serif", size).into_font().color(color).pos(Pos::new(HPos::Left, VPos::Top));
    Ok(area.draw(&Text::new(text.to_owned(), place, style))?)
}

fn draw_figure(area: &Area<'_>, figure: &CardFigure, (left, top): (i32, i32)) -> Drawn {
    write(area, &figure.name, (left, top), 15, &FAINT)?;
    write(area, &figure.value, (left, top + 20), 26, &INK)?;
    for (line, index) in wrap(&figure.note, NOTE_CHARS, NOTE_LINES).iter().zip(0..) {
        write(area, line, (left, top + 54 + 18 * index), 13, &FAINT)?;
    }
    Ok(())
}

/// Draws a chart from `top` down, and returns the top of the next one.
fn draw_chart(area: &Area<'_>, chart: &BarChart, top: i32) -> Result<i32, Box<dyn Error>> {
    write(area, &chart.title, (CHART_LEFT, top), 15, &FAINT)?;
    let longest = chart.bars.iter().map(|(_, length, _)| *length).fold(0.0, f64::max);
    let middle = Pos::new(HPos::Left, VPos::Center);
    let style = ("sans-serif", 13).into_font().color(&INK).pos(middle);
    let mut y = top + 28;
    for (name, length, text) in &chart.bars {
        let left = CHART_LEFT + NAME_WIDTH;
        let right = left + bar_pixels(*length, longest, BAR_RIGHT - left);
        area.draw(&Text::new(name.clone(), (CHART_LEFT, y + 9), style.clone()))?;
        area.draw(&Rectangle::new([(left, y), (right, y + 18)], BAR.filled()))?;
        area.draw(&Text::new(text.clone(), (right + 6, y + 9), style.clone()))?;
        y += BAR_STEP;
    }
    Ok(y + 22)
}

/// Returns the length of a bar in pixels; at least one, so that it is seen.
fn bar_pixels(length: f64, longest: f64, pixels: i32) -> i32 {
    if longest <= 0.0 { 1 } else { ((length / longest * f64::from(pixels)).round() as i32).clamp(1, pixels) }
}

/// Breaks a text into lines of at most `chars` characters, where there are spaces. What is beyond `lines` is cut.
fn wrap(text: &str, chars: usize, lines: usize) -> Vec<String> {
    let mut wrapped: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match wrapped.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= chars => {
                line.push(' ');
                line.push_str(word);
            }
            _ => wrapped.push(word.to_owned()),
        }
    }
    if wrapped.len() > lines {
        wrapped.truncate(lines);
        wrapped[lines - 1].push('…');
    }
    wrapped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_shows_its_figures_and_bars() {
        let figure =
            |name: &str| CardFigure { name: name.into(), value: "5.7 ms".into(), note: "p99 <9> ms".into() };
        let bars = vec![("1".to_owned(), 10.0, "10.0".to_owned()), ("2".to_owned(), 20.0, "20.0".to_owned())];
        let svg = card(&CardImage {
            title: "person-nano & more".into(),
            subtitle: "a board".into(),
            figures: vec![figure("latency")],
            charts: vec![BarChart { title: "images per second".into(), bars }],
        });
        for part in ["person-nano &amp; more", "5.7 ms", "p99 &lt;9&gt; ms", "images per second", "20.0"] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
    }

    #[test]
    fn bars_are_in_proportion() {
        assert_eq!([20.0, 10.0, 0.01, 0.0].map(|length| bar_pixels(length, 20.0, 300)), [300, 150, 1, 1]);
        assert_eq!(bar_pixels(0.0, 0.0, 300), 1);
    }

    #[test]
    fn notes_are_broken_at_spaces_and_cut() {
        assert_eq!(wrap("", 10, 2), Vec::<String>::new());
        assert_eq!(wrap("one two three", 7, 3), ["one two", "three"]);
        assert_eq!(wrap("one two three four five", 7, 2), ["one two", "three…"]);
        assert_eq!(wrap("unbreakable", 4, 2), ["unbreakable"]);
    }
}
