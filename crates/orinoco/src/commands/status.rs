//! `orinoco status`: the state of a running daemon.

use orinoco_api::{
    ClusterStatus, EnergyFigure, EnergyStatus, GovernorStatus, MemoryStatus, SeatAnswers, SensorsStatus,
    Status, StreamStatus,
};
use orinoco_config::Faults;
use orinoco_core::Exit;

use crate::client::{Client, DaemonArgs};
use crate::commands::links::used_link;
use crate::figures::{self, UNKNOWN, milliseconds, percent, stage, value};
use crate::output::{self, GREEN, RED, RESET, YELLOW, count, mebibytes};

/// Events that are shown, the latest.
const EVENTS_MAX: usize = 10;

/// Prints the status. A board that is not healthy is a check that failed.
pub(crate) fn run(args: &DaemonArgs, json: bool) -> Result<Exit, Faults> {
    let status = Client::new(args)?.status()?;
    match json {
        true => output::print_json(&status),
        false => output::print(&text(&status)),
    }
    Ok(if status.healthy { Exit::Done } else { Exit::CheckFailed })
}

/// Returns the status for people, with colours.
fn text(status: &Status) -> String {
    let parts = [
        board_line(status),
        streams(status),
        models(status),
        lanes(status),
        format!("{}\n{}", memory_line(&status.memory), energy_line(&status.energy)),
        status.governor.as_ref().map(governor).unwrap_or_default(),
        status.cluster.as_ref().map(cluster).unwrap_or_default(),
        rails(&status.sensors),
        temperatures(&status.sensors),
        clocks(status),
        unknown(&status.sensors),
        events(status),
    ];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n\n")
}

fn governor(governor: &GovernorStatus) -> String {
    let levels =
        governor.actuators.iter().map(|actuator| format!("  {} at {}", actuator.name, actuator.level));
    let mut lines = vec![format!("governor {}{}", governor.state, levels.collect::<String>())];
    lines.extend(governor.last_step.as_ref().map(|step| format!("         last step: {step}")));
    lines.extend(
        governor
            .fault
            .as_ref()
            .map(|fault| format!("         {}: {}; {}", fault.code, fault.cause, fault.next)),
    );
    lines.join("\n")
}

fn cluster(cluster: &ClusterStatus) -> String {
    let epoch = match (cluster.epoch, &cluster.fault) {
        (Some(epoch), _) if cluster.transport.as_deref() == Some("rdma") => {
            format!("epoch {epoch} over RDMA")
        }
        (Some(epoch), _) if cluster.fallback.is_some() => {
            format!("{YELLOW}epoch {epoch} over TCP instead of RDMA (see `orinoco links`){RESET}")
        }
        (Some(epoch), _) if cluster.transport.as_deref() == Some("tcp-plaintext") => {
            format!("epoch {epoch} over TCP without encryption")
        }
        (Some(epoch), _) => format!("epoch {epoch}"),
        (None, Some(fault)) => format!("{YELLOW}no epoch: {fault}{RESET}"),
        (None, None) => "no epoch yet".to_owned(),
    };
    let rows = cluster.seats.iter().map(|seat| {
        let own = if seat.name == cluster.seat { "  (this board)" } else { "" };
        let note = seat.fault.as_ref().map_or_else(|| own.to_owned(), |fault| format!("  {fault}"));
        vec![seat.name.clone(), seat.address.clone(), used_link(seat), format!("{}{note}", seat.state)]
    });
    let table = output::table(&["seat", "address", "link", "state"], 4, rows.collect());
    let answers = cluster.seats.iter().filter_map(|seat| Some(answers(&seat.name, seat.answers.as_ref()?)));
    let lines = std::iter::once(table).chain(answers).collect::<Vec<_>>().join("\n");
    format!("cluster {}, list {}: {epoch}\n{lines}", cluster.name, cluster.serial)
}

/// Returns the waits for a seat that executes models for this board, as one line.
fn answers(seat: &str, answers: &SeatAnswers) -> String {
    let times = match (answers.mean_ms, answers.longest_ms) {
        (Some(mean), Some(longest)) => format!(", {mean:.1} ms on average, {longest:.1} ms at most"),
        _ => String::new(),
    };
    let lost = match answers.lost_connections {
        0 => String::new(),
        lost => format!("; {}", count(lost, "lost connection")),
    };
    format!("  {seat}: {}{times}{lost}", count(answers.count, "answer"))
}

fn board_line(status: &Status) -> String {
    let healthy = match status.healthy {
        true => format!("{GREEN}healthy{RESET}"),
        false => format!("{RED}not healthy{RESET}"),
    };
    let ready = match status.ready {
        true => "ready".to_owned(),
        false => format!("{YELLOW}not ready{RESET}"),
    };
    let uptime = figures::duration(status.uptime_s);
    format!("{}  {healthy}, {ready}  up {uptime}  orinoco {}", status.board, status.version)
}

fn streams(status: &Status) -> String {
    let ended = match status.streams_ended {
        0 => String::new(),
        ended => format!("\n{} ended", count(ended, "stream")),
    };
    if status.streams.is_empty() {
        return format!("no streams{ended}");
    }
    let headings =
        ["stream", "state", "fps", "p50 ms", "p99 ms", "in", "out", "dropped", "late", "reconnects"];
    let row = |stream: &StreamStatus| {
        let total = stage(&stream.window, "total");
        vec![
            stream.name.clone(),
            stream.state.clone(),
            format!("{:.1}", stream.fps),
            milliseconds(total, |total| total.p50_us),
            milliseconds(total, |total| total.p99_us),
            stream.frames_in.to_string(),
            stream.frames_out.to_string(),
            figures::dropped(stream).to_string(),
            stream.late.to_string(),
            stream.reconnects.to_string(),
        ]
    };
    let table = output::table(&headings, 2, status.streams.iter().map(row).collect());
    let mut lines: Vec<String> = table.lines().map(str::to_owned).collect();
    for (line, stream) in lines.iter_mut().skip(1).zip(&status.streams) {
        if !figures::delivers(stream) {
            *line = format!("{YELLOW}{line}{RESET}");
        }
    }
    lines.extend(status.streams.iter().filter_map(losses));
    lines.join("\n") + &ended
}

/// Returns the causes of a stream's dropped and late frames, as one line.
fn losses(stream: &StreamStatus) -> Option<String> {
    let dropped = stream.dropped.iter().map(|dropped| format!("{} {}", dropped.frames, dropped.cause));
    let late = stream.late_in.iter().map(|late| format!("{} late in {}", late.frames, late.stage));
    let causes: Vec<String> = dropped.chain(late).collect();
    (!causes.is_empty()).then(|| format!("  {}: {}", stream.name, causes.join(", ")))
}

fn models(status: &Status) -> String {
    if status.models.is_empty() {
        return String::new();
    }
    let headings = ["model", "engine", "batch", "images", "p50 ms", "p99 ms", "mJ per image"];
    let rows = status.models.iter().map(|model| {
        let infer = stage(&model.window, "infer");
        vec![
            model.name.clone(),
            format!("{} {}", model.engine, model.engine_version),
            model.batch.to_string(),
            model.images.to_string(),
            milliseconds(infer, |infer| infer.p50_us),
            milliseconds(infer, |infer| infer.p99_us),
            figures::millijoules(model.energy_per_image.as_ref()),
        ]
    });
    let table = output::table(&headings, 2, rows.collect());
    let notes = status.models.iter().flat_map(|model| {
        let energy = model.energy_per_image.as_ref().and_then(energy_note);
        let remote = model.remote.as_ref().map(output::remote_text);
        remote.into_iter().chain(energy).map(|note| format!("  {}: {note}", model.name))
    });
    std::iter::once(table).chain(notes).collect::<Vec<_>>().join("\n")
}

/// Returns what has to be said about an energy besides its value.
fn energy_note(figure: &EnergyFigure) -> Option<String> {
    if let Some(why) = &figure.not_measured {
        return Some(format!("energy not measured: {why}"));
    }
    let shared = figure.shared.filter(|shared| *shared >= 0.005)?;
    Some(format!(
        "{:.0} % of the energy is split by busy time, because models ran at the same time",
        shared * 100.0
    ))
}

fn lanes(status: &Status) -> String {
    if status.lanes.is_empty() {
        return String::new();
    }
    let share = |busy_s: f64| percent((status.uptime_s > 0.0).then(|| busy_s / status.uptime_s));
    let rows = status.lanes.iter().map(|lane| {
        let state = match (lane.executing_ms, lane.stuck) {
            (Some(ms), true) => format!("stuck for {}", figures::duration(ms / 1e3)),
            (None, true) => "stuck".to_owned(),
            (Some(ms), false) => format!("executing for {ms:.0} ms"),
            (None, false) => "waiting".to_owned(),
        };
        vec![
            lane.lane.to_string(),
            state,
            lane.batches.to_string(),
            lane.frames.to_string(),
            lane.requests.to_string(),
            share(lane.busy_s),
            share(lane.gpu_busy_s),
        ]
    });
    let headings = ["lane", "state", "batches", "frames", "requests", "busy", "GPU busy"];
    let table = output::table(&headings, 2, rows.collect());
    let mut lines: Vec<String> = table.lines().map(str::to_owned).collect();
    for (line, lane) in lines.iter_mut().skip(1).zip(&status.lanes) {
        if lane.stuck {
            *line = format!("{RED}{line}{RESET}");
        }
    }
    lines.join("\n")
}

fn memory_line(memory: &MemoryStatus) -> String {
    let mut parts = vec![format!("{} resident", mebibytes(memory.resident_bytes))];
    match (memory.planned_bytes, memory.budget_bytes) {
        (Some(planned), Some(budget)) => {
            parts.push(format!("{} planned of {}", mebibytes(planned), mebibytes(budget)));
        }
        (Some(planned), None) => parts.push(format!("{} planned", mebibytes(planned))),
        (None, _) => {}
    }
    if let (Some(available), Some(machine)) = (memory.available_bytes, memory.machine_bytes) {
        parts.push(format!("{} of the machine's {} available", mebibytes(available), mebibytes(machine)));
    }
    format!("memory  {}", parts.join(", "))
}

fn energy_line(energy: &EnergyStatus) -> String {
    let mut parts = Vec::new();
    if let Some(joules) = energy.joules {
        let of = match energy.covers.as_deref() {
            Some("input") => ", the whole board",
            Some("named-rails") => ", these rails only",
            _ => "",
        };
        parts.push(format!("{joules:.1} J ({}{of})", energy.rails.join(" + ")));
    }
    if let Some(idle) = energy.idle_watts {
        parts.push(format!("{idle:.2} W while idle"));
    }
    if energy.unmeasured_s > 0.0 && energy.joules.is_some() {
        parts
            .push(format!("{} without power readings, not included", figures::duration(energy.unmeasured_s)));
    }
    if let Some(why) = &energy.not_measured {
        parts.push(format!("not measured: {why}"));
    }
    if parts.is_empty() {
        parts.push("not measured".to_owned());
    }
    format!("energy  {}", parts.join(", "))
}

fn rails(sensors: &SensorsStatus) -> String {
    let rows = sensors.rails.iter().map(|rail| {
        vec![
            rail.name.clone(),
            value(rail.watts, 2),
            value(rail.volts, 2),
            value(rail.amperes, 2),
            value(rail.joules, 1),
        ]
    });
    table_or_nothing(&["rail", "W", "V", "A", "J"], rows.collect())
}

fn temperatures(sensors: &SensorsStatus) -> String {
    let rows = sensors.temperatures.iter().map(|temperature| {
        vec![temperature.name.clone(), value(temperature.celsius, 1), value(temperature.limit_celsius, 0)]
    });
    table_or_nothing(&["temperature", "°C", "limit"], rows.collect())
}

fn clocks(status: &Status) -> String {
    let clocks = status.sensors.clocks.iter().map(|clock| {
        vec![clock.name.clone(), value(clock.mhz, 0), value(clock.max_mhz, 0), percent(clock.load)]
    });
    let mut rows: Vec<Vec<String>> = clocks.collect();
    if let Some(load) = status.sensors.cpu_load {
        let load = percent(Some(load));
        rows.push(vec!["all cores".to_owned(), UNKNOWN.to_owned(), UNKNOWN.to_owned(), load]);
    }
    let clocks = table_or_nothing(&["clock", "MHz", "allowed", "load"], rows);
    let fans =
        status.sensors.fans.iter().map(|fan| vec![fan.name.clone(), value(fan.rpm, 0), percent(fan.duty)]);
    let fans = table_or_nothing(&["fan", "rpm", "power"], fans.collect());
    [clocks, fans].into_iter().filter(|table| !table.is_empty()).collect::<Vec<_>>().join("\n\n")
}

fn table_or_nothing(headings: &[&str], rows: Vec<Vec<String>>) -> String {
    if rows.is_empty() { String::new() } else { output::table(headings, 1, rows) }
}

fn unknown(sensors: &SensorsStatus) -> String {
    match sensors.unknown.len() {
        0 => String::new(),
        number => format!(
            "{} not known; the reasons: orinoco status --json, sensors.unknown",
            count(number as u64, "sensor value")
        ),
    }
}

fn events(status: &Status) -> String {
    let first = status.events.len().saturating_sub(EVENTS_MAX);
    let rows = status.events[first..].iter().map(|event| {
        let (age, text) = figures::event(event, status);
        vec![age, event.level.clone(), text]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    if rows.is_empty() {
        return "no events yet".to_owned();
    }
    let table = output::table(&["event", "level", "what happened"], 3, rows);
    let mut lines: Vec<String> = table.lines().map(str::to_owned).collect();
    for (line, event) in lines.iter_mut().skip(1).zip(&status.events[first..]) {
        match event.level.as_str() {
            "error" => *line = format!("{RED}{line}{RESET}"),
            "warning" => *line = format!("{YELLOW}{line}{RESET}"),
            _ => {}
        }
    }
    lines.join("\n")
}
