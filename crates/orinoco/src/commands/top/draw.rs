//! Drawing: a pure function of the state and the size of the terminal.

mod compact;
mod heights;
mod help;
mod parts;
mod sensors;
mod tables;

use orinoco_api::Status;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Wrap};

use super::state::State;
use crate::figures;
use heights::SectionRows;
use parts::{BOLD, DIM, GOOD, HEIGHT_MIN, TITLE, WARNING, WIDTH_MIN, elide, gpu, health, memory, note};

/// Line with the keys.
const KEYS: &str = "q quit  p pause  ↑↓ streams  ? help";

/// Draws the screen.
pub(crate) fn draw(frame: &mut Frame<'_>, state: &State) {
    let area = frame.area();
    let is_small = area.width < WIDTH_MIN || area.height < HEIGHT_MIN;
    match &state.latest {
        None => draw_waiting(frame, state),
        Some(answer) if is_small => compact::draw(frame, state, &answer.status),
        Some(answer) => draw_all(frame, state, &answer.status),
    }
    if state.is_help_shown {
        help::draw(frame, state);
    }
}

/// Draws what is known before the first status.
fn draw_waiting(frame: &mut Frame<'_>, state: &State) {
    let mut lines = vec![Line::from(format!("waiting for an answer from {}", state.name))];
    if let Some(outage) = &state.outage {
        lines.push(Line::styled(outage.fault.to_string(), WARNING));
    }
    lines.push(Line::styled("q quit", DIM));
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: true }), frame.area());
}

fn draw_all(frame: &mut Frame<'_>, state: &State, status: &Status) {
    let note = note(state);
    let fixed = 3 + u16::from(note.is_some());
    let wanted = SectionRows {
        sensors: sensors::rows(status),
        streams: if state.is_local() { None } else { Some(status.streams.len().max(1)) },
        models: Some(status.models.len()).filter(|models| *models > 0),
        events: Some(status.events.len()).filter(|events| *events > 0),
    };
    let heights = wanted.share(frame.area().height - fixed);
    let rows =
        [1, u16::from(note.is_some()), 1, heights.sensors, heights.streams, heights.models, heights.events];
    let rows = rows.map(Constraint::Length).into_iter().chain([Constraint::Fill(1), Constraint::Length(1)]);
    let areas = Layout::vertical(rows).split(frame.area());
    frame.render_widget(header(state, status, areas[0].width), areas[0]);
    if let Some(note) = note {
        frame.render_widget(note, areas[1]);
    }
    draw_gauges(frame, areas[2], status);
    sensors::draw(frame, areas[3], state, status);
    if heights.streams > 0 {
        tables::draw_streams(frame, areas[4], state, status);
    }
    if heights.models > 0 {
        tables::draw_models(frame, areas[5], status);
    }
    if heights.events > 0 {
        tables::draw_events(frame, areas[6], status);
    }
    frame.render_widget(footer(state, areas[8].width), areas[8]);
}

/// Returns the first line: name and health on the left, power and energy on the right.
fn header(state: &State, status: &Status, width: u16) -> Line<'static> {
    let mut left = health(state, status);
    let mut right = Vec::new();
    if let Some(watts) = figures::total_watts(status) {
        right.push(format!("{watts:.2} W"));
    }
    if let Some(joules) = status.energy.joules {
        right.push(figures::joules(joules));
    }
    let name_max = usize::from(width) / 3;
    left.insert(0, Span::styled(elide(&status.board, name_max) + "  ", BOLD));
    spread(left, right.join("  "), width)
}

/// Draws the load of the processor and the GPU, and the memory of the machine, as bars.
fn draw_gauges(frame: &mut Frame<'_>, area: Rect, status: &Status) {
    let gpu = gpu(status);
    let (share, text) = memory(status);
    // The size of the memory is long: it is shown in full, and has half of the line where there is room.
    let memory_width = (text.len() as u16 + 8).max(area.width / 2);
    let gpu_width = gpu.map_or(Constraint::Length(0), |_| Constraint::Fill(1));
    let columns = [Constraint::Fill(1), gpu_width, Constraint::Length(memory_width)];
    let [cpu_area, gpu_area, memory_area] = Layout::horizontal(columns).spacing(1).areas(area);
    let cpu = status.sensors.cpu_load;
    frame.render_widget(gauge("cpu", cpu, figures::percent(cpu), cpu_area.width), cpu_area);
    if let Some(gpu) = gpu {
        frame.render_widget(gauge("gpu", gpu.load, figures::percent(gpu.load), gpu_area.width), gpu_area);
    }
    frame.render_widget(gauge("memory", share, text, memory_area.width), memory_area);
}

/// Returns a bar with its name and value. Without a share there is no bar.
fn gauge(name: &str, share: Option<f64>, text: String, width: u16) -> Line<'static> {
    let taken = name.chars().count() + text.chars().count() + 2;
    let room = usize::from(width).saturating_sub(taken);
    let mut spans = vec![Span::styled(format!("{name} "), TITLE)];
    if let Some(share) = share {
        let filled = (share.clamp(0.0, 1.0) * room as f64).round() as usize;
        let style = if share >= 0.95 { WARNING } else { GOOD };
        spans.push(Span::styled("█".repeat(filled), style));
        spans.push(Span::styled("░".repeat(room - filled), DIM));
        spans.push(Span::raw(" "));
    }
    spans.push(Span::raw(text));
    Line::from(spans)
}

/// Returns the last line: keys on the left, what is shown on the right.
fn footer(state: &State, width: u16) -> Line<'static> {
    let room = usize::from(width).saturating_sub(KEYS.chars().count() + 2);
    spread(vec![Span::raw(KEYS)], elide(&state.name, room), width).style(DIM)
}

/// Returns a line with one part at its left end and one at its right, which is left out where it does not fit.
fn spread(mut left: Vec<Span<'static>>, right: String, width: u16) -> Line<'static> {
    let taken: usize = left.iter().map(Span::width).sum();
    let right = Span::raw(right);
    if let Some(gap) = usize::from(width).checked_sub(taken + right.width()) {
        left.push(Span::raw(" ".repeat(gap)));
        left.push(right);
    }
    Line::from(left)
}

#[cfg(test)]
mod tests;
