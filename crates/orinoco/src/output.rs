//! Output for people: tables, progress, events, errors.

use std::io::{ErrorKind, IsTerminal, Write};
use std::sync::OnceLock;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use orinoco_api::{
    EndState, ErrorReport, Fault, PlannedMemory, RemoteSummary, StreamSummary, Summary, TrackedSummary,
};
pub(crate) use orinoco_core::text::{count, mebibytes};
use orinoco_core::{Diagnosis, Exit, codes};
use orinoco_runtime::{Progress, SlidingRate, reader_is_gone};
use orinoco_telemetry::{Event, EventSink, SourceState};
use serde::Serialize;

const BOLD: &str = "\x1b[1m";
pub(crate) const RED: &str = "\x1b[1;31m";
pub(crate) const YELLOW: &str = "\x1b[1;33m";
pub(crate) const GREEN: &str = "\x1b[1;32m";
pub(crate) const RESET: &str = "\x1b[0m";

/// Prints one JSON object on one line of standard output.
pub(crate) fn print_json(value: &impl Serialize) {
    print(&serde_json::to_string(value).expect("contracts have only text keys and plain numbers"));
}

/// Reason for which text for standard output was lost.
static LOST: OnceLock<String> = OnceLock::new();

/// Prints one JSON object with the keys of every object in alphabetical order: version 1 of the lists has them so.
pub(crate) fn print_json_sorted(value: &impl Serialize) {
    let mut value = serde_json::to_value(value).expect("contracts have only text keys and plain numbers");
    value.sort_all_objects();
    print_json(&value);
}

/// Prints text on standard output. A reader that went away has seen enough, and the run goes on.
pub(crate) fn print(text: &str) {
    if let Err(why) = writeln!(anstream::stdout(), "{text}")
        && why.kind() != ErrorKind::BrokenPipe
        && !is_unread()
    {
        let _ = LOST.set(why.to_string());
    }
}

/// Whether nobody reads standard output any more.
pub(crate) fn is_unread() -> bool {
    reader_is_gone(std::io::stdout())
}

/// Fails a command that has done its work, but whose text did not reach standard output: the disk is full, perhaps.
pub(crate) fn check_printed(exit: Exit) -> Exit {
    let Some(why) = LOST.get() else { return exit };
    let next = "free space, or send the output elsewhere";
    error(&Fault::from(&Diagnosis::new(&codes::SINK_WRITE, "standard output", why, next)));
    if exit == Exit::Done { Exit::RunFailed } else { exit }
}

/// Prints a line for people on standard error, where somebody reads it.
pub(crate) fn note(text: &str) {
    let _ = writeln!(anstream::stderr(), "{text}");
}

/// Prints a warning on standard error.
pub(crate) fn warn(text: &str) {
    note(&format!("{YELLOW}warning{RESET}: {text}"));
}

/// Prints an error of a finished run on standard error.
pub(crate) fn error(fault: &Fault) {
    note(&format!("{RED}error[{}]{RESET}: {}: {}; {}", fault.code, fault.subject, fault.cause, fault.next));
}

/// Prints faults and returns the exit code of the first.
pub(crate) fn report_faults(faults: &[Diagnosis], json: bool) -> Exit {
    if json {
        print_json(&ErrorReport::new(faults));
    } else {
        for fault in faults {
            error(&Fault::from(fault));
        }
    }
    faults.first().map_or(Exit::RunFailed, |fault| fault.code.exit)
}

/// A table without frames, headings in bold on a terminal, columns from `right_from` on aligned right.
pub(crate) fn table(headings: &[&str], right_from: usize, rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(headings.iter().map(|heading| heading.to_string()));
    for row in rows {
        table.add_row(row);
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if index >= right_from {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let text: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
    let (head, body) = text.split_first().expect("a table has its headings");
    let head = format!("{BOLD}{head}{RESET}");
    std::iter::once(head.as_str()).chain(body.iter().map(String::as_str)).collect::<Vec<_>>().join("\n")
}

/// Events as lines on standard error.
#[derive(Debug)]
pub(crate) struct EventLines;

impl EventSink for EventLines {
    fn emit(&self, event: Event) {
        match event {
            Event::EngineRefused { model, engine, why } => {
                warn(&format!("model {model}: {engine} refused: {why}"))
            }
            Event::EngineChosen { model, engine, version } => {
                note(&format!("model {model}: {engine} {version}"))
            }
            Event::Source {
                stream,
                state: SourceState::Stalled | SourceState::BackingOff,
                why: Some(why),
            } => {
                warn(&format!("stream {stream}: {why}"));
            }
            Event::SourceRetry { stream, attempt, wait } => {
                note(&format!("stream {stream}: attempt {} in {:.1} s", attempt + 1, wait.as_secs_f64()));
            }
            Event::SourceRecovered { stream, after } => {
                note(&format!("stream {stream}: reconnected after {:.1} s", after.as_secs_f64()));
            }
            Event::ModelReplaced { model, lane } => {
                note(&format!("model {model}: new version now runs on lane {lane}"));
            }
            Event::SeatMissed { why, .. } => warn(&why.to_string()),
            Event::SeatRecovered { model, seat } => {
                note(&format!("model {model}: seat {seat} executes it again"));
            }
            Event::IntervalChanged { model, interval } => {
                note(&format!("model {model}: inference interval {interval}"));
            }
            Event::CacheRefused { why } => note(&why),
            Event::MemoryRefused { refused, .. } => note(&refused.to_string()),
            Event::ExecutionFailed { model, why } => warn(&format!("model {model}: {why}")),
            Event::OutputNotFinite { why, .. } => warn(&why.to_string()),
            Event::LaneFailed { lane, why } => warn(&format!("lane {lane}: {why}: the run ends")),
            Event::LaneRestarted { lane, why, restarts_left } => {
                let left = count(restarts_left as u64, "restart");
                warn(&format!("lane {lane}: {why}: restarting ({left} left)"));
            }
            Event::RestartFailed { why } => {
                warn(&format!("failed lanes cannot be restarted before the reload: {why}"));
            }
            Event::SensorsFailed { why } => warn(&format!("the sensors are no longer read: {why}")),
            Event::SinkFailed { stream, why } => warn(&format!("stream {stream}: {why}")),
            Event::SinkUnread { stream, output } => {
                note(&format!("stream {stream}: {output} has no reader any more and is closed"));
            }
            _ => {}
        }
    }
}

/// A bar over `length` things called `unit`, on a terminal only. It fills what the terminal leaves, so that the line stays one.
pub(crate) fn bar(length: u64, unit: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let template = format!("{{wide_bar}} {{pos}}/{{len}} {unit}  {{eta}} left");
    ProgressBar::new(length).with_style(ProgressStyle::with_template(&template).expect("constant template"))
}

/// A bar over `bytes` that are copied, on a terminal only.
pub(crate) fn bytes_bar(bytes: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let template = "{wide_bar} {binary_bytes}/{binary_total_bytes}  {binary_bytes_per_sec}  {eta} left";
    ProgressBar::new(bytes).with_style(ProgressStyle::with_template(template).expect("constant template"))
}

/// A line that shows how far a run is, on a terminal only.
pub(crate) struct ProgressLine {
    bar: ProgressBar,
    frames_max: Option<u64>,
    rate: SlidingRate,
}

impl ProgressLine {
    /// With a bar when the number of frames is known.
    pub(crate) fn new(frames_max: Option<u64>) -> Self {
        let rate = SlidingRate::default();
        if !std::io::stderr().is_terminal() {
            return Self { bar: ProgressBar::hidden(), frames_max, rate };
        }
        let bar = frames_max.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
        // What is wide is cut to the terminal, so that the line stays one.
        let template = if frames_max.is_some() { "{bar:10} {wide_msg}" } else { "{spinner} {wide_msg}" };
        bar.set_style(ProgressStyle::with_template(template).expect("constant template"));
        Self { bar, frames_max, rate }
    }

    /// Shows where the run is.
    pub(crate) fn show(&mut self, progress: &Progress) {
        let fps = self.rate.add(progress);
        self.bar.set_position(progress.frames_out);
        self.bar.set_message(progress_text(progress, self.frames_max, fps));
    }

    /// Removes the line.
    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

/// Progress as one line, most important first, because narrow terminals cut off the rest.
fn progress_text(progress: &Progress, frames_max: Option<u64>, fps: f64) -> String {
    let away = progress.away_text();
    let mut parts: Vec<String> = Some(away).filter(|away| !away.is_empty()).into_iter().collect();
    let frames = progress.frames_out;
    match frames_max {
        Some(max) => parts.push(format!("{frames}/{}", count(max, "frame"))),
        None => parts.push(count(frames, "frame")),
    }
    parts.push(format!("{fps:.1} fps"));
    let left = frames_max.filter(|_| fps > 0.0).map(|max| max.saturating_sub(frames) as f64 / fps);
    match left {
        Some(seconds) => parts.push(format!("{seconds:.0} s left")),
        None => parts.push(format!("{} s", progress.elapsed.as_secs())),
    }
    parts.join("  ")
}

/// Returns who inferred the images of a model that another seat executes.
pub(crate) fn remote_text(remote: &RemoteSummary) -> String {
    let RemoteSummary { seat, fallback, images, missed } = remote;
    let mut line = format!("seat {seat} inferred {}", count(*images, "image"));
    if !missed.is_empty() {
        let causes = missed.iter().map(|missed| format!("{} {}", missed.images, missed.cause));
        let causes = causes.collect::<Vec<_>>().join(", ");
        let then = if fallback == "local" { "this board inferred them" } else { "skipped" };
        line.push_str(&format!("; not {causes} ({then})"));
    }
    line
}

/// The summary for people.
pub(crate) fn summary_text(summary: &Summary) -> String {
    let mut parts = Vec::new();
    for model in &summary.models {
        let mut line = format!("model    {}  {} {}", model.name, model.engine, model.engine_version);
        if model.batch > 1 {
            line.push_str(&format!("  batch {}", model.batch));
        }
        if let Some(infer) = model.stages.iter().find(|stage| stage.stage == "infer") {
            let (p50, p99) = (infer.p50_us / 1e3, infer.p99_us / 1e3);
            let each = if model.batch > 1 {
                format!(" in {}", count(model.inferences, "inference"))
            } else {
                String::new()
            };
            let images = count(model.images, "image");
            line.push_str(&format!("  {images}{each}, p50 {p50:.2} ms, p99 {p99:.2} ms"));
        }
        if model.graph_fallbacks > 0 {
            line.push_str(&format!(
                "  {} not captured: kernels launched separately",
                count(model.graph_fallbacks, "CUDA graph")
            ));
        }
        if model.not_finite > 0 {
            line.push_str(&format!(
                "  {} NaN or infinite (orinoco explain E0208)",
                count(model.not_finite, "value")
            ));
        }
        if let Some(remote) = &model.remote {
            line.push_str(&format!("\n         {}", remote_text(remote)));
        }
        for refused in &model.refused {
            line.push_str(&format!("\n         {} refused: {}", refused.engine, refused.why));
        }
        parts.push(line);
    }
    parts.extend(summary.streams.iter().map(stream_text));
    let memory = &summary.memory;
    let mut line = format!("memory   peak {}", mebibytes(memory.peak_bytes));
    if let Some(warm) = memory.warm_bytes {
        let grown = memory.end_bytes as f64 - warm as f64;
        line.push_str(&format!("  {:+.2} MiB since frame 500", grown / (1024.0 * 1024.0)));
    }
    parts.push(line);
    if let Some(planned) = &summary.memory.planned {
        parts.push(planned_text(planned));
    }
    parts.push(match summary.power.watts {
        Some(watts) => format!("power    {watts:.1} W  {}", summary.power.source),
        None => format!("power    {}", summary.power.source),
    });
    parts.extend(summary.files.iter().map(|file| format!("wrote    {file}")));
    parts.extend(summary.incomplete.iter().map(|file| format!("partial  {file} (its end is missing)")));
    let end = match summary.end {
        EndState::Complete => "complete",
        EndState::Interrupted => "interrupted",
        EndState::Failed => "failed",
    };
    parts.push(format!("{end} after {:.1} s", summary.wall_s));
    parts.join("\n")
}

/// The line on an engine's allocations that a lane's scratch area had no room for.
pub(crate) fn no_room(allocations: u64) -> String {
    format!("{} did not fit in the scratch area", count(allocations, "allocation"))
}

fn planned_text(planned: &PlannedMemory) -> String {
    let mut text =
        format!("planned  {} of {}", mebibytes(planned.total_bytes), mebibytes(planned.budget_bytes));
    for (index, lane) in planned.lanes.iter().enumerate() {
        let (used, size) = (mebibytes(lane.used_bytes), mebibytes(lane.scratch_bytes));
        text.push_str(&format!("\n         lane {index}: {used} of {size} of scratch used"));
        if lane.outside > 0 {
            text.push_str(&format!(", {}", no_room(lane.outside)));
        }
        let models = lane.models.iter().map(|m| format!("{} {}", m.model, mebibytes(m.used_bytes)));
        text.push_str(&format!(" ({})", models.collect::<Vec<_>>().join(", ")));
    }
    text
}

fn stream_text(stream: &StreamSummary) -> String {
    let dropped: u64 = stream.dropped.iter().map(|d| d.frames).sum();
    let causes: Vec<String> = stream.dropped.iter().map(|d| format!("{} {}", d.frames, d.cause)).collect();
    let causes = if causes.is_empty() { String::new() } else { format!(" ({})", causes.join(", ")) };
    let decoder =
        stream.decoder.as_ref().map_or_else(String::new, |decoder| format!("  decoded by {decoder}"));
    let mut text = format!(
        "stream   {}  {}{decoder}\nframes   {} in, {} out, {dropped} dropped{causes}  {:.1} fps  {}",
        stream.name,
        stream.source,
        stream.frames_in,
        stream.frames_out,
        stream.fps,
        count(stream.detections, "detection")
    );
    if stream.reconnects > 0 {
        text.push_str(&format!("  {}", count(stream.reconnects, "reconnect")));
    }
    if stream.late > 0 {
        text.push_str(&format!("  {} late", stream.late));
    }
    if let Some(recovery) = &stream.recovery {
        let seconds = |us: f64| us / 1e6;
        text.push_str(&format!(
            "\noutages  {}, median {:.2} s, longest {:.2} s",
            recovery.count,
            seconds(recovery.p50_us),
            seconds(recovery.max_us)
        ));
    }
    if let Some(tracked) = &stream.tracked {
        text.push_str(&tracked_text(tracked));
    }
    let ms = |us: f64| format!("{:.2}", us / 1000.0);
    let rows = stream
        .stages
        .iter()
        .map(|s| vec![s.stage.clone(), ms(s.p50_us), ms(s.p90_us), ms(s.p99_us), ms(s.max_us)]);
    let table = table(&["stage, ms", "p50", "p90", "p99", "max"], 1, rows.collect());
    text.push_str(&format!("\n{}", indent(&table)));
    text
}

fn tracked_text(tracked: &TrackedSummary) -> String {
    let mut text = format!("\ntracked  {}", count(tracked.objects, "object"));
    for zone in &tracked.zones {
        text.push_str(&format!(
            "\n         zone {}: {} inside, {} appeared, {} entered, {} left, {} vanished",
            zone.name, zone.inside, zone.appeared, zone.entered, zone.left, zone.vanished
        ));
    }
    for line in &tracked.lines {
        text.push_str(&format!(
            "\n         line {}: {} from A to B, {} from B to A",
            line.name, line.a_to_b, line.b_to_a
        ));
    }
    text
}

fn indent(text: &str) -> String {
    text.lines().map(|line| format!("         {line}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use orinoco_api::LaneMemory;
    use std::time::Duration;

    #[test]
    fn the_line_of_a_run_begins_with_what_is_wrong() {
        let elapsed = Duration::from_millis(61_900);
        let mut progress = Progress { frames_out: 120, elapsed, ..Progress::default() };
        let check = |progress: &Progress, frames_max, fps, expected: &str| {
            assert_eq!(progress_text(progress, frames_max, fps), expected);
        };
        check(&progress, None, 24.96, "120 frames  25.0 fps  61 s");
        check(&progress, Some(300), 20.0, "120/300 frames  20.0 fps  9 s left");
        check(&progress, Some(300), 0.0, "120/300 frames  0.0 fps  61 s");
        let silence = Duration::from_secs(12);
        progress.away.push(orinoco_runtime::OfflineStream { stream: "cam1".into(), was_live: true, silence });
        progress.frames_out = 1;
        check(&progress, None, 0.0, "cam1 offline 12 s  1 frame  0.0 fps  61 s");
    }

    #[test]
    fn a_lane_reports_allocations_that_did_not_fit() {
        let check = |outside, expected: &str| {
            let lane =
                LaneMemory { scratch_bytes: 2 << 20, used_bytes: 1 << 20, outside, ..Default::default() };
            let planned = PlannedMemory { budget_bytes: 8 << 20, total_bytes: 4 << 20, lanes: vec![lane] };
            let area = "planned  4.0 MiB of 8.0 MiB\n         lane 0: 1.0 MiB of 2.0 MiB of scratch used";
            assert_eq!(planned_text(&planned), format!("{area}{expected} ()"));
        };
        check(0, "");
        check(1, ", 1 allocation did not fit in the scratch area");
        check(3, ", 3 allocations did not fit in the scratch area");
    }
}
