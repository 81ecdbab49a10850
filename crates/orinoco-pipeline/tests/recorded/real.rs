//! The real run.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use orinoco_core::{
    Clock, Diagnosis, FrameDesc, InferenceResult, LaneId, ModelId, Nanos, PixelFormat, Rng, Signal, TimeSpan,
    codes,
};
use orinoco_pipeline::{
    BoundPlan, Executor, Frame, FrameResult, JoinRequest, Lane, Lease, MonotonicClock, Poll, Reconnect, Sink,
    SinkThread, Slot, Source, SourceError, SourceRunner, StageTimes, Step, Stop, StreamQueue,
};
use orinoco_telemetry::{Event, EventSink, Record, Telemetry};

/// Frames of each source.
const FRAMES: u64 = 250;
/// More than the run emits.
const RECORDS_MAX: usize = 1 << 17;

/// Memory of a frame of one pixel.
pub(crate) struct Pixel;
impl Lease for Pixel {
    fn bytes(&self) -> &[u8] {
        &[0]
    }
}

/// A frame of one pixel.
pub(crate) fn frame(arrived: Nanos) -> Frame {
    let desc = FrameDesc::packed(PixelFormat::Gray8, 1, 1);
    Frame::new(desc, Slot::Leased(Box::new(Pixel)), arrived).expect("it fits")
}

/// Waits for real, as hardware does.
fn work(clock: &dyn Clock, duration: Duration) {
    Stop::default().sleep(clock, duration);
}

fn millis(rng: &mut Rng, range: std::ops::Range<u64>) -> Duration {
    Duration::from_micros(rng.u64(range.start * 1000..range.end * 1000))
}

struct Quiet;
impl EventSink for Quiet {
    fn emit(&self, _: Event) {}
}

/// Frames in bursts, some of which it loses.
struct Bursts {
    rng: Rng,
    clock: Arc<dyn Clock>,
    signal: Arc<dyn Signal>,
    left: u64,
    in_burst: u32,
    due: Nanos,
}

impl Source for Bursts {
    fn open(&mut self) -> Result<(), SourceError> {
        self.due = self.clock.now();
        Ok(())
    }

    fn next(&mut self, wait: Duration) -> Result<Poll, SourceError> {
        if self.left == 0 {
            return Ok(Poll::End);
        }
        let until = self.due.min(self.clock.now() + wait);
        while self.clock.now() < until {
            self.signal.wait(Some(until));
        }
        let now = self.clock.now();
        if now < self.due {
            return Ok(Poll::Waiting);
        }
        self.left -= 1;
        let mut made = frame(now);
        if self.rng.u32(..20) == 0 {
            made.lost = self.rng.u64(1..4);
        }
        self.in_burst = self.in_burst.checked_sub(1).unwrap_or_else(|| self.rng.u32(1..8));
        let pause =
            if self.in_burst == 0 { millis(&mut self.rng, 5..30) } else { Duration::from_micros(300) };
        self.due = now + pause;
        Ok(Poll::Frame(made))
    }

    fn close(&mut self) {}
}

/// An engine that takes its time, and fails now and then.
struct Engine {
    rng: Rng,
    clock: Arc<dyn Clock>,
    batch_max: usize,
}

impl Executor for Engine {
    fn batch_max(&self) -> usize {
        self.batch_max
    }

    fn execute(&mut self, _: &[Frame], inference: &mut [InferenceResult]) -> Result<StageTimes, Diagnosis> {
        let start = self.clock.now();
        work(&*self.clock, millis(&mut self.rng, 1..4));
        if self.rng.u32(..25) == 0 {
            return Err(Diagnosis::new(&codes::ENGINE_RUN, "engine", "it fails now and then", "nothing"));
        }
        inference.iter_mut().for_each(InferenceResult::clear);
        let infer = TimeSpan::new(start, self.clock.now());
        Ok(StageTimes { infer, ..StageTimes::default() })
    }
}

/// An output that hangs from time to time, for long enough that its queue fills.
struct Slow {
    rng: Rng,
    clock: Arc<dyn Clock>,
}

impl Sink for Slow {
    fn write(&mut self, _: &FrameResult) -> Result<(), Diagnosis> {
        if self.rng.u32(..30) == 0 {
            work(&*self.clock, millis(&mut self.rng, 80..200));
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<Option<PathBuf>, Diagnosis> {
        Ok(None)
    }
}

/// Runs one lane with a stream for each of `queues` until the sources have ended; returns the whole trace.
pub(crate) fn run(queues: &[(StreamQueue, usize)], seed: u64) -> Vec<Record> {
    let mut rng = Rng::with_seed(seed);
    let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::default());
    let (telemetry, events) = (Telemetry::with_trace(RECORDS_MAX), Arc::new(Quiet));
    let (lane, entry) = Lane::new(Arc::clone(&clock), events.clone(), telemetry.lane(LaneId(0)));
    let models = queues.iter().map(|(queue, _)| queue.group).max().map_or(0, |group| group + 1);
    let mut models: Vec<(ModelId, bool)> = (0..models).map(|_| (telemetry.add_model(), false)).collect();
    let threads = Mutex::new(Vec::new());
    let spawn = |run: Box<dyn FnOnce() + Send>| threads.lock().expect("whole").push(thread::spawn(run));
    let mut sources = Vec::new();
    for (queue, batch_max) in queues {
        let stream = telemetry.stream(telemetry.add_stream("recorded"));
        let sink = Slow { rng: rng.fork(), clock: Arc::clone(&clock) };
        let (sinks, result_sender) = SinkThread::new(
            stream.clone(),
            vec![Box::new(sink)],
            queue.policy,
            None,
            Arc::clone(&clock),
            events.clone(),
        );
        let (model, is_bound) = &mut models[queue.group];
        let engine = Engine { rng: rng.fork(), clock: Arc::clone(&clock), batch_max: *batch_max };
        let plan = BoundPlan::new(*model, "engine", Box::new(engine));
        let frame_sender = entry.join(JoinRequest {
            stream: stream.id(),
            queue: *queue,
            steps: vec![Step { model: *model, on: None }],
            plans: if std::mem::replace(is_bound, true) { Vec::new() } else { vec![plan] },
            tracker: None,
            in_video_memory: false,
            result_sender,
            stop: Stop::default(),
        });
        let bursts = Bursts {
            rng: rng.fork(),
            clock: Arc::clone(&clock),
            signal: clock.signal(),
            left: FRAMES,
            in_burst: 0,
            due: Nanos(0),
        };
        sources.push(SourceRunner {
            shown: "bursts".to_owned(),
            source: Box::new(bursts),
            frame_sender: frame_sender.unwrap_or_else(|why| panic!("the lane is open: {why:?}")),
            reconnect: Reconnect { attempts_max: None, stall: Duration::from_secs(60) },
            frames_max: None,
            clock: Arc::clone(&clock),
            seed: rng.u64(..),
            events: events.clone(),
            telemetry: stream,
            stop: Stop::default(),
        });
        spawn(Box::new(move || drop(sinks.run())));
    }
    spawn(Box::new(move || lane.run().expect("its engine does not fail again and again")));
    sources.into_iter().for_each(|source| spawn(Box::new(move || drop(source.run()))));
    for thread in threads.into_inner().expect("whole") {
        thread.join().expect("it does not panic");
    }
    let trace = telemetry.trace();
    assert_eq!(trace.lost, 0, "the whole run is in the trace");
    trace.records
}
