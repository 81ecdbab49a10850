//! Rails, temperatures and clocks, side by side.

use orinoco_api::{ClockStatus, SensorsStatus, Status};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{RenderDirection, Sparkline};

use super::parts::{BAD, DIM, TITLE, WARNING, elide, is_gpu};
use crate::commands::top::state::State;
use crate::figures::{percent, value};

/// Width from which the clocks have a column of their own.
const THREE_COLUMNS: u16 = 75;

/// Width of a column from which rails have voltage and current.
const WIDE_RAILS: u16 = 50;

/// Headings of the columns, and the widths of their figures with the space before each.
const RAIL: &[(&str, usize)] = &[("rail", 0), ("W", 7)];
const RAIL_WIDE: &[(&str, usize)] = &[("rail", 0), ("W", 8), ("V", 8), ("A", 8)];
const TEMPERATURE: &[(&str, usize)] = &[("temperature", 0), ("°C", 6), ("limit", 6)];
const CLOCK: &[(&str, usize)] = &[("clock", 0), ("MHz", 5), ("max", 6), ("load", 6)];

/// Longest name of a rail that is shown in full; Jetsons have `VDD_CPU_GPU_CV`.
const RAIL_NAME_MAX: usize = 16;

/// Groups of cores that are listed one by one. A Jetson has at most 4; hosts with more often have one for each core.
const GROUPS_MAX: usize = 4;

/// Distance to its limit from which a temperature is shown as a warning, in degrees.
const NEAR: f64 = 10.0;

/// Row of a column: name, figures, and how it is shown.
struct Row {
    name: String,
    figures: Vec<String>,
    style: Style,
}

/// Returns the number of rows that the longest column has.
pub(super) fn rows(status: &Status) -> usize {
    let sensors = &status.sensors;
    sensors.rails.len().max(sensors.temperatures.len()).max(clocks(sensors).len()).max(1)
}

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, state: &State, status: &Status) {
    let sensors = &status.sensors;
    if area.width < THREE_COLUMNS {
        let columns = Layout::horizontal([Constraint::Fill(4), Constraint::Fill(3)]).spacing(2);
        let [left, right] = columns.areas(area);
        draw_rails(frame, left, state, sensors);
        draw_column(frame, right, TEMPERATURE, &temperatures(sensors));
        return;
    }
    // On 80 columns `soc0-thermal` and `VDD_CPU_GPU_CV` are shown in full.
    let columns = [Constraint::Fill(28), Constraint::Fill(24), Constraint::Fill(26)];
    let [left, middle, right] = Layout::horizontal(columns).spacing(1).areas(area);
    draw_rails(frame, left, state, sensors);
    draw_column(frame, middle, TEMPERATURE, &temperatures(sensors));
    draw_column(frame, right, CLOCK, &clocks(sensors));
}

/// Draws the rails, each with its power over the last minutes.
fn draw_rails(frame: &mut Frame<'_>, area: Rect, state: &State, sensors: &SensorsStatus) {
    let is_wide = area.width >= WIDE_RAILS;
    let headings = if is_wide { RAIL_WIDE } else { RAIL };
    let rows: Vec<Row> = sensors
        .rails
        .iter()
        .map(|rail| {
            let mut figures = vec![value(rail.watts, 2)];
            if is_wide {
                figures.extend([value(rail.volts, 2), value(rail.amperes, 2)]);
            }
            Row { name: rail.name.clone(), figures, style: Style::new() }
        })
        .collect();
    let longest = sensors.rails.iter().map(|rail| rail.name.chars().count()).max().unwrap_or(0);
    let name_width = longest.clamp("rail".len(), RAIL_NAME_MAX);
    let text_width = (name_width + figures_width(headings)) as u16;
    let text_width = if rows.is_empty() { area.width } else { text_width.min(area.width) };
    let text_area = Rect { width: text_width, ..area };
    draw_column(frame, text_area, headings, &rows);
    let left = text_area.right() + 1;
    let shown = visible(rows.len(), area.height);
    for (index, rail) in sensors.rails.iter().take(shown).enumerate() {
        let line = Rect::new(left, area.y + 1 + index as u16, area.right().saturating_sub(left), 1);
        let history = state.history(&rail.name).take(usize::from(line.width));
        let sparkline = Sparkline::default().direction(RenderDirection::RightToLeft).style(DIM);
        frame.render_widget(sparkline.data(history.collect::<Vec<_>>()), line);
    }
}

fn temperatures(sensors: &SensorsStatus) -> Vec<Row> {
    let row = |temperature: &orinoco_api::TemperatureStatus| Row {
        name: temperature.name.clone(),
        figures: vec![value(temperature.celsius, 1), value(temperature.limit_celsius, 0)],
        style: match (temperature.celsius, temperature.limit_celsius) {
            (Some(celsius), Some(limit)) if celsius >= limit => BAD,
            (Some(celsius), Some(limit)) if celsius >= limit - NEAR => WARNING,
            _ => Style::new(),
        },
    };
    sensors.temperatures.iter().map(row).collect()
}

/// Returns the clocks: GPUs first, then cores, of many only the fastest, then the rest.
fn clocks(sensors: &SensorsStatus) -> Vec<Row> {
    let is_cores = |clock: &ClockStatus| clock.name.starts_with("cpu ");
    let (cores, others): (Vec<&ClockStatus>, Vec<&ClockStatus>) =
        sensors.clocks.iter().partition(|clock| is_cores(clock));
    let (gpus, others): (Vec<&ClockStatus>, Vec<&ClockStatus>) =
        others.into_iter().partition(|clock| is_gpu(&clock.name));
    let row = |clock: &ClockStatus| {
        let figures = vec![value(clock.mhz, 0), value(clock.max_mhz, 0), percent(clock.load)];
        Row { name: short_name(&clock.name).to_owned(), figures, style: Style::new() }
    };
    let mut rows: Vec<Row> = gpus.into_iter().map(row).collect();
    match cores.len() {
        0..=GROUPS_MAX => rows.extend(cores.into_iter().map(row)),
        number => {
            let fastest = cores.iter().filter(|clock| clock.mhz.is_some());
            let fastest = fastest.max_by(|one, other| one.mhz.partial_cmp(&other.mhz).expect("numbers"));
            let row = fastest.map(|clock| row(clock));
            rows.extend(row.map(|row| Row { name: format!("{number} cpus"), ..row }));
        }
    }
    rows.extend(others.into_iter().map(row));
    rows
}

/// Returns the name of a device without its address: `gpu` of `17000000.gpu`.
fn short_name(name: &str) -> &str {
    match name.split_once('.') {
        Some((address, rest)) if address.bytes().all(|byte| byte.is_ascii_hexdigit()) => rest,
        _ => name,
    }
}

/// Returns the number of rows of a column that are shown: the last line counts those that are not.
fn visible(rows: usize, height: u16) -> usize {
    let room = usize::from(height).saturating_sub(1);
    if rows > room { room.saturating_sub(1) } else { rows }
}

fn figures_width(headings: &[(&str, usize)]) -> usize {
    headings.iter().map(|(_, width)| width).sum()
}

/// Draws a column: headings, and rows of a name and figures.
fn draw_column(frame: &mut Frame<'_>, area: Rect, headings: &[(&str, usize)], rows: &[Row]) {
    let name_width = usize::from(area.width).saturating_sub(figures_width(headings));
    let line = |texts: &mut dyn Iterator<Item = &str>| {
        let mut line = format!("{:<name_width$}", elide(texts.next().unwrap_or_default(), name_width));
        for (text, (_, width)) in texts.zip(&headings[1..]) {
            line.push_str(&format!("{text:>width$}"));
        }
        line
    };
    let heading = line(&mut headings.iter().map(|(heading, _)| *heading));
    let mut lines = vec![Line::styled(heading, TITLE)];
    let shown = visible(rows.len(), area.height);
    for row in &rows[..shown] {
        let text = line(&mut std::iter::once(&row.name).chain(&row.figures).map(String::as_str));
        lines.push(Line::styled(text, row.style));
    }
    if rows.is_empty() {
        lines.push(Line::styled(format!("no {} known", headings[0].0), DIM));
    } else if shown < rows.len() {
        lines.push(Line::from(Span::styled(format!("… {} more", rows.len() - shown), DIM)));
    }
    frame.render_widget(ratatui::text::Text::from(lines), area);
}
