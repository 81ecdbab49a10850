//! `orinoco bench streams`: several streams at once, beside what the processor time of their stages lets the cores do.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use orinoco_board::{Board, BoardModel, BoardStream, Inference};
use orinoco_config::Faults;
use orinoco_core::{Clock, Diagnosis, Exit, Findings};
use orinoco_infer::Repository;
use orinoco_media::SourceUri;
use orinoco_pipeline::{Executor, Frame, MonotonicClock, Poll, Slot, SlotPool, Stop};
use orinoco_runtime::{Earlier, LoadedModel, Quiet, Runtime, Summary, bind_plan, load_model, repository};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use super::{frames_measured, median, no_frames};
use crate::args::BenchStreamsArgs;
use crate::commands::{RECONNECT_ATTEMPTS, board_model, inference};
use crate::output;

/// Frames that the model is measured on, in turn: so many that caches hold them no more than in a run.
const FRAMES_HELD: usize = 32;
/// Longest wait for one of them.
const FRAME_WAIT: Duration = Duration::from_secs(10);

#[derive(Serialize)]
struct Report {
    schema: &'static str,
    model: String,
    engine: String,
    cores: usize,
    lanes: usize,
    streams: usize,
    batch: usize,
    frames: u64,
    rounds: u16,
    /// Frames of all streams a second.
    fps: f64,
    /// What the cores could do if they did nothing but these stages.
    bound_fps: f64,
    /// Processor time of one frame, each stage by itself on all cores at once: cores share units and caches.
    decode_cpu_us: f64,
    model_cpu_us: f64,
    ratios: Ratios,
}

#[derive(Serialize)]
struct Ratios {
    /// `fps` over `bound_fps`; the median of the rounds' ratios.
    to_bound: f64,
    /// Processor time over what the cores had, while all streams ran.
    busy: f64,
}

/// One round's figures.
struct Round {
    fps: f64,
    bound_fps: f64,
    decode: Duration,
    model: Duration,
    busy: f64,
}

pub(crate) fn run(args: &BenchStreamsArgs, json: bool) -> Result<Exit, Faults> {
    let place = repository(args.place.models.as_deref(), args.place.data.as_deref());
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let bench = Bench {
        lanes: args.lanes.map_or(cores, usize::from),
        cores,
        streams: usize::from(args.streams),
        frames: args.frames,
        inference: inference(&args.engine)?,
        model: board_model(&args.model, usize::from(args.batch), None),
        source: args.source.clone(),
        place,
    };
    let mut loaded = load_model(&bench.model, &bench.inference, &bench.place, &Quiet)?;
    let mut rounds = Vec::new();
    for round in 1..=args.rounds {
        output::note(&format!("round {round} of {}", args.rounds));
        rounds.push(bench.round(&mut loaded)?);
    }
    let middle = |figure: fn(&Round) -> f64| median(rounds.iter().map(figure).collect());
    let report = Report {
        schema: "orinoco.bench/1",
        model: loaded.name.clone(),
        engine: format!("{} {}", loaded.chosen.name, loaded.chosen.version),
        cores,
        lanes: bench.lanes,
        streams: bench.streams,
        batch: bench.model.batch,
        frames: args.frames,
        rounds: args.rounds,
        fps: middle(|round| round.fps),
        bound_fps: middle(|round| round.bound_fps),
        decode_cpu_us: middle(|round| round.decode.as_secs_f64() * 1e6),
        model_cpu_us: middle(|round| round.model.as_secs_f64() * 1e6),
        ratios: Ratios {
            to_bound: middle(|round| round.fps / round.bound_fps),
            busy: middle(|round| round.busy),
        },
    };
    if json {
        output::print_json(&report)
    } else {
        output::print(&text(&report))
    }
    Ok(Exit::Done)
}

struct Bench {
    cores: usize,
    lanes: usize,
    streams: usize,
    frames: u64,
    inference: Inference,
    model: BoardModel,
    source: String,
    place: Repository,
}

impl Bench {
    fn round(&self, loaded: &mut LoadedModel) -> Result<Round, Faults> {
        let (decoded, _, decode) = self.pipeline(self.cores, false)?;
        let decode = decode.div_f64(frames_measured(&decoded)?);
        let model = self.model_cpu(loaded)?;
        let (summary, wall, cpu) = self.pipeline(self.streams, true)?;
        let each = (decode + model).as_secs_f64();
        // Decoders use any core, models the lanes.
        let bound_fps = (self.cores as f64 / each).min(self.lanes as f64 / model.as_secs_f64());
        let fps = frames_measured(&summary)? / wall.as_secs_f64();
        let busy = cpu.as_secs_f64() / (wall.as_secs_f64() * self.cores as f64);
        Ok(Round { fps, bound_fps, decode, model, busy })
    }

    /// Runs streams to their end: the summary, and how long it took by the wall and by the processor.
    fn pipeline(&self, streams: usize, with_model: bool) -> Result<(Summary, Duration, Duration), Faults> {
        let stream = |index: usize| BoardStream {
            frames_max: Some(self.frames),
            reconnect_attempts: Some(RECONNECT_ATTEMPTS),
            ..BoardStream::new(
                index.to_string(),
                &*self.source,
                if with_model { vec![0] } else { Vec::new() },
            )
        };
        let board = Board {
            name: "bench".into(),
            inference: self.inference.clone(),
            memory: None,
            lanes: self.lanes,
            models: if with_model { vec![self.model.clone()] } else { Vec::new() },
            streams: (0..streams).map(stream).collect(),
        };
        let runtime =
            Runtime::prepare(board, &self.place, Arc::new(Quiet), Stop::default(), Earlier::Overwritten)?;
        let (start, cpu) = (Instant::now(), processor_time());
        let summary = runtime.start()?.wait(|_| {});
        Ok((summary, start.elapsed(), processor_time().saturating_sub(cpu)))
    }

    /// Processor time that the model takes for one frame of the source: preprocessing, engine and head, in full batches, on
    /// all cores at once.
    fn model_cpu(&self, loaded: &mut LoadedModel) -> Result<Duration, Faults> {
        let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::default());
        let held = frames_of(&self.source, &clock)?;
        let plans = (0..self.cores).map(|_| bind_plan(loaded, Arc::clone(&clock), None));
        let mut plans = plans.collect::<Result<Vec<_>, _>>()?;
        let cpu = processor_time();
        let replays = thread::scope(|scope| {
            let each: Vec<_> = plans
                .iter_mut()
                .map(|plan| scope.spawn(|| replay_all(plan.as_mut(), &held, self.frames)))
                .collect();
            each.into_iter().map(|core| core.join().expect("a replay does not panic")).sum::<Result<u64, _>>()
        })?;
        Ok(processor_time().saturating_sub(cpu).div_f64(replays as f64))
    }
}

/// Runs a plan on `count` frames or a few more, of those that are `held`; returns how many it were.
fn replay_all(plan: &mut dyn Executor, held: &[Frame], count: u64) -> Result<u64, Diagnosis> {
    let mut findings = vec![Findings::default(); plan.batch_max()];
    let mut frames = held.iter().cycle().map(Frame::share);
    let mut done = 0;
    while done < count {
        let batch: Vec<Frame> = frames.by_ref().take(findings.len()).collect();
        plan.replay(&batch, &mut findings)?;
        done += batch.len() as u64;
    }
    Ok(done)
}

/// The first frames of a source.
fn frames_of(source: &str, clock: &Arc<dyn Clock>) -> Result<Vec<Frame>, Diagnosis> {
    let uri = SourceUri::parse(source)?;
    let mut source = orinoco_media::open(&uri, "bench", Arc::clone(clock))?;
    source.open().map_err(|error| error.diagnosis().clone())?;
    let mut frames = Vec::new();
    while frames.len() < FRAMES_HELD {
        match source.next(FRAME_WAIT).map_err(|error| error.diagnosis().clone())? {
            Poll::Frame(frame) => frames.push(copied(&frame)),
            Poll::Pending | Poll::Waiting | Poll::End => break,
        }
    }
    if frames.is_empty() {
        return Err(no_frames(&uri.to_string()));
    }
    Ok(frames)
}

/// The frame in memory of its own: a decoder lends few at a time.
fn copied(frame: &Frame) -> Frame {
    let desc = frame.desc.repacked();
    let mut slot = SlotPool::new(1, desc.bytes_needed()).take(Duration::ZERO).expect("it is free");
    let rows = frame.view().packed_rows().flatten();
    slot.bytes.iter_mut().zip(rows).for_each(|(target, byte)| *target = *byte);
    Frame::new(desc, Slot::Owned(slot), frame.arrived).expect("it has room")
}

/// Of all threads of this process.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn text(report: &Report) -> String {
    let rows = [
        ("decoding, processor time of a frame", format!("{:.2} ms", report.decode_cpu_us / 1e3)),
        ("model, processor time of a frame", format!("{:.2} ms", report.model_cpu_us / 1e3)),
        ("bound", format!("{:.1} fps", report.bound_fps)),
        ("all streams", format!("{:.1} fps", report.fps)),
        ("of the bound", format!("{:.3}", report.ratios.to_bound)),
        ("processor time used, of all cores", format!("{:.3}", report.ratios.busy)),
    ];
    let rows = rows.into_iter().map(|(name, figure)| vec![name.to_owned(), figure]).collect();
    let heading = format!(
        "{} on {}, {} streams, batch {}, {} lanes, {} cores, {} x {} frames each, medians",
        report.model,
        report.engine,
        report.streams,
        report.batch,
        report.lanes,
        report.cores,
        report.rounds,
        report.frames
    );
    format!("{heading}\n{}", output::table(&["", ""], 1, rows))
}
