//! `orinoco bench streams`: frame rate of several streams, compared with the upper bound from the CPU time of their stages.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use orinoco_api::{BENCH_SCHEMA, StreamsBench, StreamsRatios};
use orinoco_board::{Board, BoardModel, BoardStream, ControlSpec, Inference, SensorsSpec};
use orinoco_config::Faults;
use orinoco_core::{Clock, Diagnosis, Exit, InferenceResult};
use orinoco_media::FrameMemory;
use orinoco_model::Repository;
use orinoco_pipeline::{Executor, Frame, MonotonicClock, Poll, Slot, SlotPool, Source};
use orinoco_runtime::{
    BoardEngines, LoadedModel, Quiet, RunOptions, bind_plan, capabilities, load_model, repository, start,
};
use orinoco_uri::SourceUri;
use rustix::time::{ClockId, clock_gettime};

use super::{frames_measured, median, no_frames};
use crate::args::BenchStreamsArgs;
use crate::commands::{RECONNECT_ATTEMPTS, board_model, inference};
use crate::output;

/// Number of frames that the model is measured on, one after another: so many that they do not stay in the caches, as in a
/// run.
const FRAMES_HELD: usize = 32;
/// Maximum wait for one of these frames.
const FRAME_WAIT: Duration = Duration::from_secs(10);
/// Number of frames that a decoder decodes in a row while the models run, as many as a ring holds.
const IN_A_ROW: u64 = 4;
/// Interval between checks that the models have caught up.
const STEP_WAIT: Duration = Duration::from_millis(5);
/// Sampling interval of the figures.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Results of one round.
struct Round {
    fps: f64,
    busy: f64,
    alone: Stages,
    together: Stages,
}

/// Processor time of one frame.
struct Stages {
    decode: Duration,
    model: Duration,
}

pub(crate) fn run(args: &BenchStreamsArgs, json: bool) -> Result<Exit, Faults> {
    let place = repository(args.place.models.as_deref(), args.place.data.as_deref());
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let bench = Bench {
        // A stream keeps to its lane.
        lanes: args.lanes.map_or(cores, usize::from).min(usize::from(args.streams)),
        cores,
        streams: usize::from(args.streams),
        frames: args.frames,
        inference: inference(&args.engine)?,
        model: board_model(&args.model, usize::from(args.batch), None),
        source: SourceUri::parse_with(&args.source, capabilities().schemes)?,
        place,
    };
    let engines = BoardEngines::new(&bench.inference)?;
    let mut loaded = load_model(&bench.model, &engines, &bench.place, &Quiet)?;
    let mut rounds = Vec::new();
    for round in 1..=args.rounds {
        output::note(&format!("round {round} of {}", args.rounds));
        rounds.push(bench.round(&mut loaded)?);
    }
    let middle = |figure: &dyn Fn(&Round) -> f64| median(rounds.iter().map(figure).collect());
    let micros = |figure: fn(&Round) -> Duration| middle(&|round| figure(round).as_secs_f64() * 1e6);
    let report = StreamsBench {
        schema: BENCH_SCHEMA.to_owned(),
        model: loaded.name.clone(),
        engine: format!("{} {}", loaded.chosen.name, loaded.chosen.version),
        cores,
        lanes: bench.lanes,
        streams: bench.streams,
        batch: bench.model.batch,
        frames: args.frames,
        rounds: args.rounds,
        fps: middle(&|round| round.fps),
        bound_fps: middle(&|round| bench.bound_fps(&round.alone)),
        bound_beside_fps: middle(&|round| bench.bound_fps(&round.together)),
        decode_cpu_us: micros(|round| round.alone.decode),
        model_cpu_us: micros(|round| round.alone.model),
        decode_beside_cpu_us: micros(|round| round.together.decode),
        model_beside_cpu_us: micros(|round| round.together.model),
        ratios: StreamsRatios {
            to_bound: middle(&|round| round.fps / bench.bound_fps(&round.alone)),
            to_bound_beside: middle(&|round| round.fps / bench.bound_fps(&round.together)),
            busy: middle(&|round| round.busy),
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
    source: SourceUri,
    place: Repository,
}

impl Bench {
    /// Measures each stage alone (the decoders of all streams, the model on every lane), then both at the same time, and then
    /// the run.
    fn round(&self, loaded: &mut LoadedModel) -> Result<Round, Faults> {
        let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::default());
        let held = frames_of(&self.source, &clock)?;
        let plans = (0..self.lanes).map(|_| bind_plan(loaded, Arc::clone(&clock), None));
        let mut plans = plans.collect::<Result<Vec<_>, _>>()?;

        // Warms up caches and memory.
        ModelRunners::default().run_during(&mut plans, &held, held.len() as u64, || Ok(()))?;
        let runners = ModelRunners::default();
        runners.run_during(&mut plans, &held, self.frames, || Ok(()))?;
        let decoding = self.pipeline(false)?;
        let alone =
            Stages { decode: decoding.streams.cpu_of_frame(), model: runners.so_far().cpu_of_frame() };

        let runners = ModelRunners::default();
        let both = runners.run_during(&mut plans, &held, 0, || self.decode(&runners))?;
        let together = Stages { decode: both.streams.cpu_of_frame(), model: both.models.cpu_of_frame() };
        drop(plans);

        let run = self.pipeline(true)?;
        let wall = run.wall.as_secs_f64();
        let busy = run.streams.cpu.as_secs_f64() / (wall * self.cores as f64);
        Ok(Round { fps: run.streams.frames as f64 / wall, busy, alone, together })
    }

    /// Decoders use any core, models the lanes.
    fn bound_fps(&self, stages: &Stages) -> f64 {
        let each = (stages.decode + stages.model).as_secs_f64();
        (self.cores as f64 / each).min(self.lanes as f64 / stages.model.as_secs_f64())
    }

    /// Runs all streams to their end, and returns what came of it while all of them ran.
    fn pipeline(&self, with_model: bool) -> Result<Progress, Faults> {
        let stream = |index: usize| BoardStream {
            frames_max: Some(self.frames),
            reconnect_attempts: Some(RECONNECT_ATTEMPTS),
            ..BoardStream::new(
                index.to_string(),
                self.source.clone(),
                if with_model { vec![0] } else { Vec::new() },
            )
        };
        let board = Board {
            name: "bench".into(),
            inference: self.inference.clone(),
            memory: None,
            control: ControlSpec::default(),
            sensors: SensorsSpec::default(),
            otlp: None,
            cluster: None,
            governor: None,
            lanes: self.lanes,
            models: if with_model { vec![self.model.clone()] } else { Vec::new() },
            streams: (0..self.streams).map(stream).collect(),
            files: Vec::new(),
        };
        let running = start(board, RunOptions::new(&self.place, Arc::new(Quiet)))?;
        let look = |wall, frames| Progress::now(wall, frames, Work::default());
        let mut looks = vec![look(Duration::ZERO, 0)];
        let summary = running.wait(|progress| looks.push(look(progress.elapsed, progress.frames_out)));
        frames_measured(&summary)?;
        Ok(middle_of(&looks))
    }

    /// Decodes all streams and drops the frames, in step with models that run at the same time.
    fn decode(&self, runners: &ModelRunners) -> Result<Progress, Faults> {
        let (start, decoded) = (Instant::now(), AtomicU64::new(0));
        let look = || Progress::now(start.elapsed(), decoded.load(Ordering::Relaxed), runners.so_far());
        let mut looks = vec![look()];
        thread::scope(|scope| {
            let decode = |_| scope.spawn(|| self.decode_one(&decoded, runners));
            let threads: Vec<_> = (0..self.streams).map(decode).collect();
            while !threads.iter().all(ScopedJoinHandle::is_finished) {
                thread::sleep(LOOK_EVERY);
                looks.push(look());
            }
            threads.into_iter().try_for_each(|thread| thread.join().expect("a decoder does not panic"))
        })?;
        Ok(middle_of(&looks))
    }

    fn decode_one(&self, decoded: &AtomicU64, runners: &ModelRunners) -> Result<(), Diagnosis> {
        let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::default());
        let mut source = opened(&self.source, &clock)?;
        let mut own = 0;
        while own < self.frames && !runners.over.load(Ordering::Relaxed) {
            let ahead = own * self.streams as u64 > runners.so_far().frames;
            if ahead && own.is_multiple_of(IN_A_ROW) {
                thread::sleep(STEP_WAIT);
                continue;
            }
            match source.next(FRAME_WAIT).map_err(|error| error.diagnosis().clone())? {
                Poll::Frame(_) => {
                    own += 1;
                    decoded.fetch_add(1, Ordering::Relaxed);
                }
                Poll::Waiting => {}
                Poll::Pending | Poll::End => break,
            }
        }
        Ok(())
    }
}

/// Models that run on held frames, each on a separate thread, and their progress.
#[derive(Default)]
struct ModelRunners {
    frames: AtomicU64,
    cpu_nanos: AtomicU64,
    over: AtomicBool,
}

impl ModelRunners {
    /// Executes plans while `other` runs, and each for at least `frames_min` frames.
    fn run_during<T>(
        &self,
        plans: &mut [Box<dyn Executor>],
        held: &[Frame],
        frames_min: u64,
        other: impl FnOnce() -> Result<T, Faults>,
    ) -> Result<T, Faults> {
        thread::scope(|scope| {
            let execute = |plan| scope.spawn(|| self.execute(plan, held, frames_min));
            let threads: Vec<_> = plans.iter_mut().map(execute).collect();
            let outcome = other();
            self.over.store(true, Ordering::Relaxed);
            for thread in threads {
                thread.join().expect("an execution does not panic")?;
            }
            outcome
        })
    }

    fn execute(
        &self,
        plan: &mut Box<dyn Executor>,
        held: &[Frame],
        frames_min: u64,
    ) -> Result<(), Diagnosis> {
        let mut results = vec![InferenceResult::default(); plan.batch_max()];
        let mut frames = held.iter().cycle().map(Frame::share);
        let (mut done, mut cpu) = (0, processor_time(ClockId::ThreadCPUTime));
        while done < frames_min || !self.over.load(Ordering::Relaxed) {
            let batch: Vec<Frame> = frames.by_ref().take(results.len()).collect();
            if let Err(why) = plan.execute(&batch, &mut results) {
                // Decoders that keep in step would wait without end.
                self.over.store(true, Ordering::Relaxed);
                return Err(why);
            }
            let before = std::mem::replace(&mut cpu, processor_time(ClockId::ThreadCPUTime));
            let nanos = cpu.saturating_sub(before).as_nanos();
            self.cpu_nanos.fetch_add(u64::try_from(nanos).unwrap_or(u64::MAX), Ordering::Relaxed);
            self.frames.fetch_add(batch.len() as u64, Ordering::Relaxed);
            done += batch.len() as u64;
        }
        Ok(())
    }

    fn so_far(&self) -> Work {
        let cpu = Duration::from_nanos(self.cpu_nanos.load(Ordering::Relaxed));
        Work { frames: self.frames.load(Ordering::Relaxed), cpu }
    }
}

/// Number of frames, and their processor time.
#[derive(Clone, Copy, Default)]
struct Work {
    frames: u64,
    cpu: Duration,
}

impl Work {
    fn cpu_of_frame(self) -> Duration {
        self.cpu.div_f64(self.frames.max(1) as f64)
    }

    fn since(self, before: Self) -> Self {
        Self { frames: self.frames - before.frames, cpu: self.cpu.saturating_sub(before.cpu) }
    }
}

/// State of all counts at one time, or their growth within a period.
#[derive(Clone, Copy)]
struct Progress {
    wall: Duration,
    /// The streams, and everything else in this process except the models.
    streams: Work,
    models: Work,
}

impl Progress {
    fn now(wall: Duration, frames: u64, models: Work) -> Self {
        let cpu = processor_time(ClockId::ProcessCPUTime).saturating_sub(models.cpu);
        Self { wall, streams: Work { frames, cpu }, models }
    }

    fn since(self, before: Self) -> Self {
        Self {
            wall: self.wall.saturating_sub(before.wall),
            streams: self.streams.since(before.streams),
            models: self.models.since(before.models),
        }
    }
}

/// Growth between the first and the last tenth of the frames; of the whole run, if it was too short for that.
fn middle_of(looks: &[Progress]) -> Progress {
    let (first, last) = (looks[0], looks[looks.len() - 1]);
    let all = last.streams.frames;
    let begin = looks.iter().find(|look| look.streams.frames * 10 >= all);
    let end = looks.iter().rfind(|look| look.streams.frames * 10 <= all * 9);
    match (begin, end) {
        (Some(begin), Some(end)) if end.streams.frames > begin.streams.frames => end.since(*begin),
        _ => last.since(first),
    }
}

/// The first frames of a source.
fn frames_of(source: &SourceUri, clock: &Arc<dyn Clock>) -> Result<Vec<Frame>, Diagnosis> {
    let mut opened = opened(source, clock)?;
    let mut frames = Vec::new();
    while frames.len() < FRAMES_HELD {
        match opened.next(FRAME_WAIT).map_err(|error| error.diagnosis().clone())? {
            Poll::Frame(frame) => frames.push(copied(&frame)),
            Poll::Waiting => {}
            Poll::Pending | Poll::End => break,
        }
    }
    if frames.is_empty() {
        return Err(no_frames(&source.to_string()));
    }
    Ok(frames)
}

fn opened(source: &SourceUri, clock: &Arc<dyn Clock>) -> Result<Box<dyn Source>, Diagnosis> {
    let mut source = orinoco_media::open(
        source,
        "bench",
        FrameMemory::Host,
        BoardStream::QUEUE_FRAMES,
        Arc::clone(clock),
    )?;
    source.open().map_err(|error| error.diagnosis().clone())?;
    Ok(source)
}

/// The frame in memory of its own: a decoder lends few at a time.
fn copied(frame: &Frame) -> Frame {
    let desc = frame.desc.repacked();
    let mut slot = SlotPool::new(1, desc.bytes_needed()).try_take().expect("it is free");
    let rows = frame.view().packed_rows().flatten();
    slot.bytes.iter_mut().zip(rows).for_each(|(target, byte)| *target = *byte);
    Frame::new(desc, Slot::Owned(slot), frame.arrived).expect("it has room")
}

/// Of all threads of this process, or of the calling one.
fn processor_time(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn text(report: &StreamsBench) -> String {
    let ms = |micros: f64| format!("{:.2} ms", micros / 1e3);
    let rows = [
        ("decoding, CPU time per frame", ms(report.decode_cpu_us)),
        ("  while the model runs", ms(report.decode_beside_cpu_us)),
        ("model, CPU time per frame", ms(report.model_cpu_us)),
        ("  while decoding runs", ms(report.model_beside_cpu_us)),
        ("upper bound", format!("{:.1} fps", report.bound_fps)),
        ("  with both running", format!("{:.1} fps", report.bound_beside_fps)),
        ("all streams", format!("{:.1} fps", report.fps)),
        ("  share of the upper bound", format!("{:.3}", report.ratios.to_bound)),
        ("  share of the bound with both running", format!("{:.3}", report.ratios.to_bound_beside)),
        ("CPU utilisation of all cores", format!("{:.3}", report.ratios.busy)),
    ];
    let rows = rows.into_iter().map(|(name, figure)| vec![name.to_owned(), figure]).collect();
    let heading = format!(
        "{} on {}: streams {}, batch {}, lanes {}, cores {}, {} x {} frames each, medians",
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

#[cfg(test)]
mod tests {
    use super::*;

    fn look(millis: u64, frames: u64) -> Progress {
        let work = |frames| Work { frames, cpu: Duration::from_millis(millis * 2) };
        Progress { wall: Duration::from_millis(millis), streams: work(frames), models: work(frames * 3) }
    }

    #[test]
    fn starting_and_ending_are_left_out() {
        let looks = [look(0, 0), look(50, 5), look(100, 20), look(150, 60), look(200, 90), look(900, 100)];
        let middle = middle_of(&looks);
        assert_eq!((middle.wall, middle.streams.frames), (Duration::from_millis(100), 70));
        assert_eq!(middle.streams.cpu, Duration::from_millis(200));
        assert_eq!(middle.models.frames, 210);
    }

    #[test]
    fn a_run_too_short_to_tell_counts_whole() {
        for looks in [vec![look(0, 0), look(50, 10)], vec![look(0, 0), look(40, 50), look(50, 60)]] {
            let last = looks[looks.len() - 1];
            let middle = middle_of(&looks);
            assert_eq!((middle.wall, middle.streams.frames), (last.wall, last.streams.frames));
        }
    }
}
