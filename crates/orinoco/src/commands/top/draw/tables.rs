//! Streams, models and events.

use orinoco_api::{ModelStatus, Status, StreamStatus};
use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Text};
use ratatui::widgets::{Cell, Row, Table};

use super::parts::{BAD, DIM, GOOD, TITLE, WARNING, elide};
use crate::commands::top::state::State;
use crate::figures::{self, milliseconds, stage};

/// Column of a table of `T`s.
struct Column<T> {
    heading: &'static str,
    width: Constraint,
    /// Width of the terminal from which it is shown.
    from: u16,
    is_number: bool,
    text: fn(&T) -> String,
}

const fn text<T>(heading: &'static str, width: u16, from: u16, text: fn(&T) -> String) -> Column<T> {
    Column { heading, width: Constraint::Length(width), from, is_number: false, text }
}

const fn number<T>(heading: &'static str, width: u16, from: u16, text: fn(&T) -> String) -> Column<T> {
    Column { heading, width: Constraint::Length(width), from, is_number: true, text }
}

/// Columns of streams after the name.
const STREAM: [Column<StreamStatus>; 12] = [
    text("state", 11, 0, |stream| stream.state.clone()),
    number("fps", 6, 0, |stream| format!("{:.1}", stream.fps)),
    number("p50 ms", 8, 80, |stream| milliseconds(stage(&stream.window, "total"), |total| total.p50_us)),
    number("p99 ms", 8, 0, |stream| milliseconds(stage(&stream.window, "total"), |total| total.p99_us)),
    number("dropped", 8, 0, |stream| figures::dropped(stream).to_string()),
    number("late", 6, 0, |stream| stream.late.to_string()),
    number("mJ/frame", 13, 100, |stream| figures::millijoules(stream.energy_per_frame.as_ref())),
    number("reconnects", 10, 120, |stream| stream.reconnects.to_string()),
    number("frames out", 11, 120, |stream| stream.frames_out.to_string()),
    number("last frame", 12, 140, |stream| {
        stream
            .silence_ms
            .map_or_else(|| "none".to_owned(), |ms| format!("{} ago", figures::duration(ms / 1e3)))
    }),
    number("lane", 5, 140, |stream| stream.lane.to_string()),
    text("source", 40, 180, |stream| elide(&stream.source, 40)),
];

/// Columns of models after the name.
const MODEL: [Column<ModelStatus>; 7] = [
    text("engine", 10, 0, |model| model.engine.clone()),
    number("batch", 6, 80, |model| model.batch.to_string()),
    number("images", 11, 80, |model| model.images.to_string()),
    number("p50 ms", 8, 80, |model| milliseconds(stage(&model.window, "infer"), |infer| infer.p50_us)),
    number("p99 ms", 8, 0, |model| milliseconds(stage(&model.window, "infer"), |infer| infer.p99_us)),
    number("mJ/image", 13, 0, |model| figures::millijoules(model.energy_per_image.as_ref())),
    text("version", 14, 120, |model| model.engine_version.clone()),
];

pub(super) fn draw_streams(frame: &mut Frame<'_>, area: Rect, state: &State, status: &Status) {
    let streams = &status.streams;
    if streams.is_empty() {
        let ended = match status.streams_ended {
            0 => "no streams".to_owned(),
            ended => format!("no streams; {} ended", orinoco_core::text::count(ended, "stream")),
        };
        let lines = vec![Line::styled("streams", TITLE), Line::styled(ended, DIM)];
        return frame.render_widget(Text::from(lines), area);
    }
    let room = usize::from(area.height).saturating_sub(1).max(1);
    // The last page stays full.
    let first = state.scrolled.min(streams.len().saturating_sub(room));
    let shown = &streams[first..streams.len().min(first + room)];
    let table = table(&STREAM, &streams_title(status, first, shown.len()), area.width, shown, |stream| {
        (stream.name.clone(), state_style(stream))
    });
    frame.render_widget(table, area);
}

/// Returns the heading of the streams: which of them are shown, and how many deliver nothing.
fn streams_title(status: &Status, first: usize, shown: usize) -> String {
    let streams = &status.streams;
    let mut title = "streams".to_owned();
    if shown < streams.len() {
        title = format!("streams {}-{}/{}", first + 1, first + shown, streams.len());
    }
    match streams.iter().filter(|stream| !figures::delivers(stream)).count() {
        0 => title,
        silent => format!("{title}, {silent} not live"),
    }
}

fn state_style(stream: &StreamStatus) -> Style {
    match stream.state.as_str() {
        "live" => GOOD,
        "ended" => DIM,
        "stalled" | "backing-off" => BAD,
        _ => WARNING,
    }
}

pub(super) fn draw_models(frame: &mut Frame<'_>, area: Rect, status: &Status) {
    let room = usize::from(area.height).saturating_sub(1);
    let models = &status.models;
    let shown = &models[..models.len().min(room)];
    let title = match shown.len() < models.len() {
        true => format!("models 1-{}/{}", shown.len(), models.len()),
        false => "models".to_owned(),
    };
    let table = table(&MODEL, &title, area.width, shown, |model| (model.name.clone(), Style::new()));
    frame.render_widget(table, area);
}

/// Returns a table with those columns for which the terminal is wide enough. `named` gives the name of an item and the style of
/// the column after it.
fn table<T>(
    columns: &[Column<T>],
    title: &str,
    width: u16,
    items: &[T],
    named: fn(&T) -> (String, Style),
) -> Table<'static> {
    let shown: Vec<&Column<T>> = columns.iter().filter(|column| column.from <= width).collect();
    let aligned = |column: &Column<T>, text: String| match column.is_number {
        true => Cell::from(Line::from(text).right_aligned()),
        false => Cell::from(Line::from(text)),
    };
    let used: u16 = shown.iter().map(|column| constant(column.width) + 1).sum();
    let name_width = usize::from(width.saturating_sub(used));
    let heads = shown.iter().map(|column| aligned(column, column.heading.to_owned()));
    let head = Row::new(std::iter::once(Cell::from(elide(title, name_width))).chain(heads)).style(TITLE);
    let rows = items.iter().map(|item| {
        let (name, style) = named(item);
        let cells = shown.iter().enumerate().map(|(index, column)| {
            let cell = aligned(column, (column.text)(item));
            if index == 0 { cell.style(style) } else { cell }
        });
        Row::new(std::iter::once(Cell::from(elide(&name, name_width))).chain(cells))
    });
    let widths = std::iter::once(Constraint::Fill(1)).chain(shown.iter().map(|column| column.width));
    Table::new(rows.collect::<Vec<_>>(), widths.collect::<Vec<_>>()).header(head).column_spacing(1)
}

fn constant(width: Constraint) -> u16 {
    match width {
        Constraint::Length(width) => width,
        _ => 0,
    }
}

/// Draws the latest events, the newest at the bottom.
pub(super) fn draw_events(frame: &mut Frame<'_>, area: Rect, status: &Status) {
    let room = usize::from(area.height).saturating_sub(1);
    let first = status.events.len().saturating_sub(room);
    let mut lines = vec![Line::styled("events", TITLE)];
    for event in &status.events[first..] {
        let (age, text) = figures::event(event, status);
        let style = match event.level.as_str() {
            "error" => BAD,
            "warning" => WARNING,
            _ => Style::new(),
        };
        lines.push(Line::styled(elide(&format!("{age:>16}  {text}"), usize::from(area.width)), style));
    }
    frame.render_widget(Text::from(lines), area);
}
