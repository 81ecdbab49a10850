//! Small terminals: the most important figures, one a line.

use orinoco_api::Status;
use ratatui::Frame;
use ratatui::text::{Line, Span, Text};

use super::parts::{BOLD, DIM, HEIGHT_MIN, WIDTH_MIN, elide, gpu, health, memory, note};
use crate::commands::top::state::State;
use crate::figures::{self, percent, stage};

pub(super) fn draw(frame: &mut Frame<'_>, state: &State, status: &Status) {
    let width = usize::from(frame.area().width);
    let mut lines =
        vec![Line::from(Span::styled(elide(&status.board, width), BOLD)), Line::from(health(state, status))];
    lines.extend(note(state));
    lines.push(Line::from(loads(status)));
    lines.push(Line::from(format!("memory {}", memory(status).1)));
    lines.extend(hottest(status).map(Line::from));
    if !state.is_local() {
        lines.push(Line::from(streams(status)));
    }
    lines.extend(slowest(status).map(Line::from));
    // The last line says how to leave, whatever else fits.
    let room = usize::from(frame.area().height).saturating_sub(1);
    lines.truncate(room);
    lines.push(Line::styled(format!("q quit; {WIDTH_MIN}x{HEIGHT_MIN} shows all"), DIM));
    frame.render_widget(Text::from(lines), frame.area());
}

fn loads(status: &Status) -> String {
    let watts = figures::total_watts(status).map(|watts| format!("{watts:.2} W"));
    let cpu = format!("cpu {}", percent(status.sensors.cpu_load));
    let gpu = gpu(status).map(|gpu| format!("gpu {}", percent(gpu.load)));
    watts.into_iter().chain([cpu]).chain(gpu).collect::<Vec<_>>().join("  ")
}

fn hottest(status: &Status) -> Option<String> {
    let known = status
        .sensors
        .temperatures
        .iter()
        .filter_map(|temperature| Some((temperature, temperature.celsius?)));
    let (hottest, celsius) = known.max_by(|one, other| one.1.total_cmp(&other.1))?;
    let limit = hottest.limit_celsius.map(|limit| format!(" of {limit:.0}"));
    Some(format!("{celsius:.1}{} °C {}", limit.unwrap_or_default(), hottest.name))
}

fn streams(status: &Status) -> String {
    let live = status.streams.iter().filter(|stream| figures::delivers(stream)).count();
    let fps: f64 = status.streams.iter().map(|stream| stream.fps).sum();
    format!("streams {live} of {} live, {fps:.1} fps", status.streams.len())
}

/// Returns the stream with the longest latency.
fn slowest(status: &Status) -> Option<String> {
    let total =
        status.streams.iter().filter_map(|stream| Some((stream, stage(&stream.window, "total")?.p99_us)));
    let (stream, p99_us) = total.max_by(|one, other| one.1.total_cmp(&other.1))?;
    Some(format!("p99 {:.2} ms {}", p99_us / 1e3, stream.name))
}
