//! Parts that the screen has in every size: styles, health, and the figures of a machine.

use orinoco_api::{ClockStatus, Status};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use crate::commands::top::feed::Origin;
use crate::commands::top::state::State;
use crate::figures;

/// Smallest terminal on which everything has its place.
pub(super) const WIDTH_MIN: u16 = 60;
pub(super) const HEIGHT_MIN: u16 = 16;

pub(super) const TITLE: Style = Style::new().fg(Color::Cyan).add_modifier(Modifier::BOLD);
pub(super) const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
pub(super) const DIM: Style = Style::new().add_modifier(Modifier::DIM);
pub(super) const GOOD: Style = Style::new().fg(Color::Green);
pub(super) const WARNING: Style = Style::new().fg(Color::Yellow);
pub(super) const BAD: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);

/// Returns the health of a board and its time since the start.
pub(super) fn health(state: &State, status: &Status) -> Vec<Span<'static>> {
    let mut spans = Vec::new();
    if state.is_paused {
        spans.push(Span::styled("paused", WARNING.add_modifier(Modifier::REVERSED)));
        spans.push(Span::raw("  "));
    }
    if state.is_local() {
        spans.push(Span::raw("sensors of this machine only"));
        return spans;
    }
    if state.outage.is_some() {
        spans.push(Span::styled("no answer", BAD));
        return spans;
    }
    spans.push(match status.healthy {
        true => Span::styled("healthy", GOOD),
        false => Span::styled("not healthy", BAD),
    });
    spans.push(Span::raw(", "));
    spans.push(match status.ready {
        true => Span::styled("ready", GOOD),
        false => Span::styled("not ready", WARNING),
    });
    spans.push(Span::raw(format!("  up {}", figures::duration(status.uptime_s))));
    spans
}

/// Returns the line about an outage of the daemon, or on why this machine is shown alone.
pub(super) fn note(state: &State) -> Option<Line<'static>> {
    if let Some(outage) = &state.outage {
        let age = outage.for_s.map(|seconds| format!(" for {}", figures::duration(seconds)));
        let text = format!("no answer{}, last state shown: {}", age.unwrap_or_default(), outage.fault.cause);
        return Some(Line::styled(text, BAD));
    }
    match &state.latest.as_ref()?.origin {
        Origin::Local { no_daemon: Some(fault) } => {
            Some(Line::styled(format!("{}; {}", fault.cause, fault.next), WARNING))
        }
        _ => None,
    }
}

/// Returns the share and the size of the memory in use: of the machine, or of the process where that is not known.
pub(super) fn memory(status: &Status) -> (Option<f64>, String) {
    let memory = &status.memory;
    match (memory.machine_bytes, memory.available_bytes) {
        (Some(machine), Some(available)) if machine > 0 => {
            let used = machine.saturating_sub(available);
            let mebi = |bytes: u64| bytes as f64 / f64::from(1 << 20);
            let text = format!("{:.1} of {:.1} MiB", mebi(used), mebi(machine));
            (Some(used as f64 / machine as f64), text)
        }
        _ => (None, format!("{} resident", orinoco_core::text::mebibytes(memory.resident_bytes))),
    }
}

/// Returns the GPU among the devices with clocks: first one whose load is known.
pub(super) fn gpu(status: &Status) -> Option<&ClockStatus> {
    let gpus = || status.sensors.clocks.iter().filter(|clock| is_gpu(&clock.name));
    gpus().find(|clock| clock.load.is_some()).or_else(|| gpus().next())
}

/// Whether a device is a GPU: by the names of the integrated ones (devfreq), and by ours for NVML's.
pub(super) fn is_gpu(name: &str) -> bool {
    const NAMES: [&str; 6] = ["gpu", "GPU", "gm20b", "gp10b", "gv11b", "ga10b"];
    NAMES.iter().any(|part| name.contains(part))
}

/// Shortens a text to this number of characters, with an ellipsis in place of what is missing.
pub(super) fn elide(text: &str, max: usize) -> String {
    if text.chars().count() <= max {
        return text.to_owned();
    }
    let kept: String = text.chars().take(max.saturating_sub(1)).collect();
    if max == 0 { kept } else { kept + "…" }
}
