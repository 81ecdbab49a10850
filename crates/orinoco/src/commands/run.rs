//! `orinoco run`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use orinoco_api::{EndState, Fault, Summary};
use orinoco_board::{
    Board, BoardError, BoardStream, ControlSpec, SensorsSpec, SinkKind, SinkSpec, SourceFault,
    StandardOutput, TrackSpec,
};
use orinoco_config::Faults;
use orinoco_core::{Diagnosis, Exit, WithSubject, codes};
use orinoco_model::Repository;
use orinoco_runtime::{
    JSONL, MP4, OutputFile, RunOptions, SINKS, TakenFiles, capabilities, faults_of, open_own_file,
    repository, start, vars,
};
use orinoco_uri::SourceUri;

use crate::args::RunArgs;
use crate::commands::{RECONNECT_ATTEMPTS, board_model, inference};
use crate::output::{self, EventLines, ProgressLine};
use crate::signals::stop_on_signals;

pub(crate) fn run(args: &RunArgs, json: bool) -> Result<Exit, Faults> {
    let place = repository(args.place.models.as_deref(), args.place.data.as_deref());
    let board = board(args, json, &place)?;
    let to_stdout = board.streams.iter().flat_map(|s| &s.sinks).any(|sink| sink.path == Path::new("-"));
    let mut options = RunOptions::new(&place, Arc::new(EventLines));
    stop_on_signals(options.control.clone())?;
    let frames_max = board.streams.iter().map(|stream| stream.frames_max).sum::<Option<u64>>();
    // Hours of work should not end without it; a run that was refused leaves nothing behind.
    let own = args
        .summary
        .as_ref()
        .map(|path| open_own_file(&board, &place, path, "the run's summary is written to this file"));
    let (file, own) = own.transpose()?.map_or((None, TakenFiles::default()), |(file, own)| (Some(file), own));
    options.own = own;
    let running = start(board, options)?;
    let mut progress = ProgressLine::new(frames_max);
    let summary = running.wait(|now| progress.show(&now));
    progress.clear();
    let written = file.map_or(Ok(()), |file| write_summary(file, &summary));
    match (json, to_stdout) {
        (true, _) => output::print_json(&summary),
        // Standard output belongs to a sink: people read the summary on the other one.
        (false, true) => output::note(&output::summary_text(&summary)),
        (false, false) => output::print(&output::summary_text(&summary)),
    }
    let exit = exit_of(&summary, json);
    let Err(why) = written else { return Ok(exit) };
    output::error(&Fault::from(&why));
    Ok(if exit == Exit::Done { why.code.exit } else { exit })
}

fn exit_of(summary: &Summary, json: bool) -> Exit {
    if !json {
        for fault in &summary.faults {
            output::error(fault);
        }
    }
    match summary.end {
        EndState::Complete => Exit::Done,
        EndState::Interrupted => Exit::Interrupted,
        EndState::Failed => {
            let code =
                summary.faults.first().and_then(|fault| codes::ALL.iter().find(|code| code.id == fault.code));
            code.map_or(Exit::RunFailed, |code| code.exit)
        }
    }
}

fn board(args: &RunArgs, json: bool, place: &Repository) -> Result<Board, Faults> {
    let board = match (&args.board, &args.source) {
        (Some(path), _) => orinoco_board::load(path, &capabilities(), &vars()),
        (None, Some(source)) => foreground(args, source, json),
        (None, None) => unreachable!("the command line requires one of them"),
    };
    let mut board = board.map_err(|error| faults_of(error, place))?;
    let engines = inference(&args.engine)?;
    if !args.engine.engine.is_empty() {
        board.inference.engines = engines.engines;
    }
    if args.engine.threads.is_some() {
        board.inference.threads = engines.threads;
    }
    for stream in &mut board.streams {
        stream.frames_max = args.frames.or(stream.frames_max);
        stream.reconnect_attempts = args.reconnect_attempts.or(stream.reconnect_attempts);
    }
    Ok(board)
}

/// A board of one stream, from the command line alone.
fn foreground(args: &RunArgs, source: &str, json: bool) -> Result<Board, BoardError> {
    let batch = args.batch.map_or(1, usize::from);
    let models: Vec<_> = args.model.iter().map(|model| board_model(model, batch, Some(&args.tune))).collect();
    let mut sinks = args.sinks.iter().map(|text| sink(text)).collect::<Result<Vec<_>, _>>()?;
    let file = |kind, path: &Option<PathBuf>| path.clone().map(|path| SinkSpec { kind, path });
    sinks.extend(file(MP4, &args.output));
    sinks.extend(file(JSONL, &args.results));
    if json && !models.is_empty() && !sinks.iter().any(|sink| sink.path == Path::new("-")) {
        sinks.push(SinkSpec { kind: JSONL, path: PathBuf::from("-") });
    }
    let inference = inference(&args.engine)?;
    let (name, track) = ("0".to_owned(), args.track.then(TrackSpec::default));
    let source = match SourceUri::parse_with(source, capabilities().schemes) {
        Ok(source) => source,
        Err(fault) => {
            let streams = vec![Err(SourceFault { stream: name, track, fault })];
            return Err(BoardError::Sources { models, streams });
        }
    };
    let stream = BoardStream {
        reconnect_attempts: Some(RECONNECT_ATTEMPTS),
        track,
        sinks,
        ..BoardStream::new(name, source, (0..models.len()).collect())
    };
    Ok(Board {
        name: "foreground".to_owned(),
        inference,
        memory: None,
        control: ControlSpec::default(),
        sensors: SensorsSpec::default(),
        otlp: None,
        cluster: None,
        governor: None,
        lanes: 1,
        models,
        streams: vec![stream],
        files: Vec::new(),
    })
}

/// `KIND` or `KIND=PATH`.
fn sink(text: &str) -> Result<SinkSpec, Diagnosis> {
    let (kind, path) = text.split_once('=').unwrap_or((text, "-"));
    let kind = SinkKind::find(SINKS, kind).ok_or_else(|| {
        let names: Vec<&str> = SINKS.iter().map(|kind| kind.name).collect();
        let cause = format!("`{kind}` is not a kind of sink");
        Diagnosis::new(
            &codes::KEY_RANGE,
            format!("--sink {text}"),
            cause,
            format!("use one of {}", names.join(", ")),
        )
    })?;
    if let (StandardOutput::Refused { cause, example }, "-") = (kind.standard_output, path) {
        let next = format!("write --sink {example}");
        return Err(Diagnosis::new(&codes::SINK_OPEN, format!("--sink {text}"), cause, next));
    }
    Ok(SinkSpec { kind, path: PathBuf::from(path) })
}

fn write_summary(file: OutputFile, summary: &Summary) -> Result<(), Diagnosis> {
    let text = serde_json::to_string_pretty(summary).expect("a summary has only text keys and plain numbers");
    let path = file.path().display().to_string();
    let written = file.write_whole((text + "\n").as_bytes());
    written.about(&codes::SINK_OPEN, path, "check that its folder can be written")
}
