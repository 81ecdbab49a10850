use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use orinoco_core::{ComputeUnit, LaneId, ModelId, Nanos, StreamId, TimeSpan};
use parking_lot::{Mutex, MutexGuard};

use crate::fold::{LaneFold, ModelFold, StreamFold};
use crate::record::{
    ArrivalRecord, BatchRecord, CountRecord, DecoderCpuRecord, DropCause, DropRecord, FrameRecord,
    LaneRecord, LaneStep, LaneWork, ModelCounter, Queue, QueueRecord, QueueStep, Record, RequestRecord,
    ResultRecord, Stage, StateRecord,
};
use crate::registry::Registry;
use crate::stage_fold::StageFold;
use crate::trace::{Trace, TraceFeed, TraceRing};
use crate::window::WindowReader;
use crate::work::{BatchStreams, Work, WorkFeed, WorkQueue};
use crate::{CurrentStage, Histogram, SourceState};

/// Telemetry of a run: the folds of every stream, model and lane, and the latest records. Code that emits looks up its
/// handle once, when a stream joins or a thread starts; emitting then takes the short lock of one fold.
#[derive(Clone, Debug, Default)]
pub struct Telemetry {
    folds: Arc<Folds>,
    trace: Arc<TraceRing>,
    work: Arc<WorkQueue>,
}

#[derive(Debug, Default)]
struct Folds {
    streams: Registry<StreamFold>,
    models: Registry<ModelFold>,
    lanes: Registry<LaneFold>,
}

impl Telemetry {
    /// Creates telemetry with empty folds for `streams` streams, whose names are their numbers.
    pub fn new(streams: usize) -> Self {
        let telemetry = Self::default();
        for index in 0..streams {
            telemetry.add_stream(&index.to_string());
        }
        telemetry
    }

    /// Creates telemetry without streams, with a trace of `records_max` records.
    pub fn with_trace(records_max: usize) -> Self {
        Self { trace: Arc::new(TraceRing::new(records_max)), ..Self::default() }
    }

    /// Adds an empty fold for a new stream, and returns the stream's id.
    pub fn add_stream(&self, name: &str) -> StreamId {
        let id = self.folds.streams.next_id();
        self.folds.streams.insert(id, StreamFold::new(name));
        StreamId(id)
    }

    /// Adds an empty fold for a new model, and returns the model's id.
    pub fn add_model(&self) -> ModelId {
        let id = self.next_model();
        self.insert_model(id);
        id
    }

    /// Returns the id of a new model, which has no fold until [`Telemetry::insert_model`].
    pub fn next_model(&self) -> ModelId {
        ModelId(self.folds.models.next_id())
    }

    /// Adds an empty fold for a model.
    pub fn insert_model(&self, model: ModelId) {
        self.folds.models.insert(model.0, ModelFold::default());
    }

    /// Returns the handle of a stream. Figures that are emitted for a removed stream are not counted.
    pub fn stream(&self, stream: StreamId) -> StreamTelemetry {
        let fold = self.folds.streams.get(stream.0);
        let name = Arc::clone(&fold.lock().name);
        let (trace, work) = (Arc::clone(&self.trace), Arc::clone(&self.work));
        StreamTelemetry { id: stream, name, fold, trace, work }
    }

    /// Returns the handle of a model. Figures that are emitted for a removed model are not counted.
    pub fn model(&self, model: ModelId) -> ModelTelemetry {
        let (trace, work) = (Arc::clone(&self.trace), Arc::clone(&self.work));
        ModelTelemetry { id: model, fold: self.folds.models.get(model.0), trace, work }
    }

    /// Returns the handle of a lane. A lane that is restarted continues its counters.
    pub fn lane(&self, lane: LaneId) -> LaneTelemetry {
        let fold = self.folds.lanes.get_or_insert(lane.0);
        LaneTelemetry { id: lane, fold, telemetry: self.clone() }
    }

    /// Removes a stream whose threads have ended, and returns its fold; `None` if there is no such stream.
    pub fn remove_stream(&self, stream: StreamId) -> Option<StreamFold> {
        self.folds.streams.remove(stream.0)
    }

    /// Removes a model that no stream uses any more, and returns its fold; `None` if there is no such model.
    pub fn remove_model(&self, model: ModelId) -> Option<ModelFold> {
        self.folds.models.remove(model.0)
    }

    /// Returns the number of streams.
    pub fn streams(&self) -> usize {
        self.folds.streams.len()
    }

    /// Returns the number of models.
    pub fn models(&self) -> usize {
        self.folds.models.len()
    }

    /// Subscribes to the work of all models and streams from now on; `None` if there is a subscriber. It allocates the queue of
    /// the feed at the first call. Work that is done during this call may be missing.
    pub fn subscribe_work(&self) -> Option<WorkFeed> {
        WorkFeed::start(&self.work)
    }

    /// Returns the latest records.
    pub fn trace(&self) -> Trace {
        self.trace.latest()
    }

    /// Subscribes to the trace from now on; `None` if there is a subscriber. Emitting costs the same with one.
    pub fn subscribe_trace(&self) -> Option<TraceFeed> {
        self.trace.subscribe()
    }
}

/// Handle that emits the records of one stream.
#[derive(Clone)]
pub struct StreamTelemetry {
    id: StreamId,
    name: Arc<str>,
    fold: Arc<Mutex<StreamFold>>,
    trace: Arc<TraceRing>,
    work: Arc<WorkQueue>,
}

impl StreamTelemetry {
    /// Returns the id of the stream.
    pub fn id(&self) -> StreamId {
        self.id
    }

    /// Returns the name of the stream on this board.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Reads the figures so far, under the lock of the fold. Whoever emits for the stream meanwhile waits, so `read` must take
    /// only a few instructions or one [`Histogram::copy_from`] of 41 KB, and neither emit nor allocate.
    pub fn read<R>(&self, read: impl FnOnce(&StreamFold) -> R) -> R {
        read(&self.fold.lock())
    }

    /// Returns the durations of a stage in the window at `now`. See [`WINDOW`](crate::WINDOW) for what that covers. The fold is
    /// locked only while 7 KB are copied: whoever emits waits for that copy at most, unless the reader is preempted in it.
    pub fn window(&self, stage: Stage, now: Nanos, reader: &mut WindowReader) -> Histogram {
        reader.read(&self.fold, now, |fold| &fold.stages[stage as usize].window)
    }

    /// Locks the fold for several records. The caller holds the result only while it emits them.
    pub fn emitter(&self) -> StreamEmitter<'_> {
        StreamEmitter { id: self.id, fold: self.fold.lock(), trace: &self.trace, work: &self.work }
    }

    /// Emits that the source entered a state.
    pub fn state(&self, state: SourceState, at: Nanos) {
        self.emitter().state(state, at);
    }

    /// Emits that a frame was dropped.
    pub fn drop_frame(&self, seq: u64, cause: DropCause, at: Nanos) {
        self.emitter().drop_frames(seq, cause, 1, at);
    }

    /// Emits an event in a queue. It counts in no figure, and takes no lock.
    pub fn queue(&self, seq: u64, queue: Queue, step: QueueStep, at: Nanos) {
        self.trace.push(Record::Queue(QueueRecord { stream: self.id, seq, queue, step, at }));
    }

    /// Sets the name of the stream's decoder; `None` where none was chosen.
    pub fn set_decoder(&self, decoder: Option<String>) {
        let mut decoder = decoder;
        std::mem::swap(&mut self.fold.lock().decoder, &mut decoder);
    }
}

impl fmt::Debug for StreamTelemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StreamTelemetry({} {})", self.id, self.name)
    }
}

/// Lock of one stream's fold, under which several records are emitted.
pub struct StreamEmitter<'a> {
    id: StreamId,
    fold: MutexGuard<'a, StreamFold>,
    trace: &'a TraceRing,
    work: &'a WorkQueue,
}

impl StreamEmitter<'_> {
    /// Emits that the source delivered a frame.
    pub fn arrival(&mut self, seq: u64, at: Nanos) {
        let record = ArrivalRecord { stream: self.id, seq, at };
        self.fold.add_arrival(&record);
        self.trace.push(Record::Arrival(record));
    }

    /// Emits a frame's time in a stage.
    pub fn stage(&mut self, seq: u64, stage: Stage, span: TimeSpan) {
        let record = FrameRecord { stream: self.id, seq, stage, span };
        self.fold.add_frame(&record);
        self.trace.push(Record::Frame(record));
    }

    /// Emits the processor time that a decoder used for a frame, and for earlier frames that left the decoder and went no
    /// further.
    pub fn decoder_cpu(&mut self, seq: u64, took: Duration, at: Nanos) {
        let record = DecoderCpuRecord { stream: self.id, seq, took, at };
        self.fold.add_decoder_cpu(&record);
        self.trace.push(Record::DecoderCpu(record));
    }

    /// Emits a drop of `frames` frames, of which number `seq` is the first. Without frames, no record is emitted.
    pub fn drop_frames(&mut self, seq: u64, cause: DropCause, frames: u64, at: Nanos) {
        if frames > 0 {
            let record = DropRecord { stream: self.id, seq, cause, frames, at };
            self.fold.add_drop(&record);
            self.trace.push(Record::Drop(record));
        }
    }

    /// Emits that a frame has gone through every model and sink, with the number of objects found in it. `late_in` is the stage
    /// that took the largest part of a late frame's time.
    pub fn result(&mut self, seq: u64, detections: u64, late_in: Option<Stage>, at: Nanos) {
        let record = ResultRecord { stream: self.id, seq, detections, late_in, at };
        self.fold.add_result(&record);
        self.trace.push(Record::Result(record));
        if self.work.is_read() {
            self.work.push(Work::Frame(record));
        }
    }

    /// Emits that the source entered a state.
    pub fn state(&mut self, state: SourceState, at: Nanos) {
        let record = StateRecord { stream: self.id, state, at };
        self.fold.add_state(&record);
        self.trace.push(Record::State(record));
    }
}

impl fmt::Debug for StreamEmitter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StreamEmitter({})", self.id)
    }
}

/// Handle that emits the records of one model.
#[derive(Clone)]
pub struct ModelTelemetry {
    id: ModelId,
    fold: Arc<Mutex<ModelFold>>,
    trace: Arc<TraceRing>,
    work: Arc<WorkQueue>,
}

impl ModelTelemetry {
    /// Returns the id of the model.
    pub fn id(&self) -> ModelId {
        self.id
    }

    /// Reads the figures so far, under the lock of the fold. Whoever emits for the model meanwhile waits, so `read` must take
    /// only a few instructions or one [`Histogram::copy_from`] of 41 KB, and neither emit nor allocate.
    pub fn read<R>(&self, read: impl FnOnce(&ModelFold) -> R) -> R {
        read(&self.fold.lock())
    }

    /// Returns the durations of a stage in the window at `now`, for example of `|fold| &fold.infer`. See
    /// [`WINDOW`](crate::WINDOW) for what that covers. The fold is locked only while 7 KB are copied, as for a
    /// stream.
    pub fn window(
        &self,
        stage: impl Fn(&ModelFold) -> &StageFold,
        now: Nanos,
        reader: &mut WindowReader,
    ) -> Histogram {
        reader.read(&self.fold, now, |fold| &stage(fold).window)
    }

    /// Emits that a lane executed a batch, stage by stage, with the spans of one unit. `images` has the stream of each image.
    /// Each execution has spans of [`ComputeUnit::Cpu`], from which the model's times are counted; spans of other units are
    /// emitted in addition.
    pub fn batch(
        &self,
        lane: &LaneTelemetry,
        unit: ComputeUnit,
        images: impl ExactSizeIterator<Item = StreamId>,
        stages: &[(Stage, TimeSpan)],
    ) {
        self.emit_batch(lane, unit, images, stages, false);
    }

    /// Emits that a batch was executed elsewhere while the lane had suspended it. `images` has the stream of each image. It
    /// counts as one of the model's executions, and not for the lane's busy time.
    pub fn late_batch(
        &self,
        lane: &LaneTelemetry,
        images: impl ExactSizeIterator<Item = StreamId>,
        stages: &[(Stage, TimeSpan)],
    ) {
        self.emit_batch(lane, ComputeUnit::Cpu, images, stages, true);
    }

    /// Emits that a lane executed a client's request of this model. The lane's thread was busy for `span`.
    pub fn request(&self, lane: &LaneTelemetry, span: TimeSpan) {
        let record = RequestRecord { lane: lane.id, model: self.id, span };
        self.fold.lock().add_request(&record);
        lane.fold.lock().add_request(&record);
        self.trace.push(Record::Request(record));
        if self.work.is_read() {
            let record = BatchRecord {
                lane: lane.id,
                model: self.id,
                stage: Stage::Infer,
                unit: ComputeUnit::Cpu,
                span,
                items: 1,
                was_suspended: false,
            };
            self.work.push(Work::Batch { record, streams: BatchStreams::default() });
        }
    }

    fn emit_batch(
        &self,
        lane: &LaneTelemetry,
        unit: ComputeUnit,
        images: impl ExactSizeIterator<Item = StreamId>,
        stages: &[(Stage, TimeSpan)],
        was_suspended: bool,
    ) {
        let items = u32::try_from(images.len()).expect("a batch is small");
        let (lane_id, model) = (lane.id, self.id);
        let records = stages.iter().map(|&(stage, span)| BatchRecord {
            lane: lane_id,
            model,
            stage,
            unit,
            span,
            items,
            was_suspended,
        });
        let (mut of_model, mut of_lane) = (self.fold.lock(), lane.fold.lock());
        for record in records.clone() {
            of_model.add_batch(&record);
            of_lane.add_batch(&record);
            self.trace.push(Record::Batch(record));
        }
        drop((of_model, of_lane));
        if self.work.is_read() {
            let streams = BatchStreams::count(images);
            records.for_each(|record| self.work.push(Work::Batch { record, streams }));
        }
    }

    /// Raises a counter, and returns its value before. If `count` is 0, no record is emitted.
    pub fn count(&self, counter: ModelCounter, count: u64, at: Nanos) -> u64 {
        let mut fold = self.fold.lock();
        let before = fold.counter(counter);
        if count > 0 {
            let record = CountRecord { model: self.id, counter, count, at };
            fold.add_count(&record);
            self.trace.push(Record::Count(record));
        }
        before
    }
}

impl fmt::Debug for ModelTelemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ModelTelemetry({})", self.id)
    }
}

/// Handle that emits the progress of one lane, and that gives access to the telemetry of its run.
#[derive(Clone)]
pub struct LaneTelemetry {
    id: LaneId,
    fold: Arc<Mutex<LaneFold>>,
    telemetry: Telemetry,
}

impl LaneTelemetry {
    /// Returns the id of the lane.
    pub fn id(&self) -> LaneId {
        self.id
    }

    /// Returns the telemetry of the run.
    pub fn run(&self) -> &Telemetry {
        &self.telemetry
    }

    /// Reads the figures so far, under the lock of the fold. The lane's thread waits meanwhile, so `read` must take only a few
    /// instructions, and neither emit nor allocate.
    pub fn read<R>(&self, read: impl FnOnce(&LaneFold) -> R) -> R {
        read(&self.fold.lock())
    }

    /// Returns the place in which the lane's models say which stage they are in.
    pub fn current_stage(&self) -> CurrentStage {
        self.fold.lock().current.clone()
    }

    /// Emits that the lane took a batch.
    pub fn took(&self, frames: usize, at: Nanos) {
        self.step(LaneStep::Took, frames, at);
    }

    /// Emits that the lane has finished its batch.
    pub fn finished(&self, frames: usize, at: Nanos) {
        self.step(LaneStep::Finished, frames, at);
    }

    /// Emits that the lane put its batch aside, until an answer from elsewhere comes.
    pub fn suspended(&self, frames: usize, at: Nanos) {
        self.step(LaneStep::Suspended, frames, at);
    }

    /// Emits that the lane goes on with a batch that was suspended.
    pub fn resumed(&self, frames: usize, at: Nanos) {
        self.step(LaneStep::Resumed, frames, at);
    }

    /// Emits that the lane took a client's request.
    pub fn took_request(&self, at: Nanos) {
        self.step(LaneStep::TookRequest, 0, at);
    }

    /// Says that the lane does other work than executing, until the guard is dropped, so that a lane that hangs in it is seen.
    pub fn works(&self, work: LaneWork, since: Nanos) -> LaneWorkGuard {
        self.fold.lock().begin(work, since);
        LaneWorkGuard(Arc::clone(&self.fold))
    }

    /// Says that the lane's thread has ended, be it by a panic: it is at no work any more.
    pub fn ended(&self) {
        let mut fold = self.fold.lock();
        (fold.executing_since, fold.other_work) = (None, None);
        fold.current.clear();
    }

    fn step(&self, step: LaneStep, frames: usize, at: Nanos) {
        let frames = u32::try_from(frames).expect("a batch is small");
        let record = LaneRecord { lane: self.id, step, frames, at };
        self.fold.lock().add_lane(&record);
        self.telemetry.trace.push(Record::Lane(record));
    }
}

/// Other work of a lane than executing, which ends when this is dropped, be it by a panic.
pub struct LaneWorkGuard(Arc<Mutex<LaneFold>>);

impl Drop for LaneWorkGuard {
    fn drop(&mut self) {
        self.0.lock().other_work = None;
    }
}

impl fmt::Debug for LaneWorkGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LaneWorkGuard")
    }
}

impl fmt::Debug for LaneTelemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LaneTelemetry({})", self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Nanos = Nanos(5);

    #[test]
    fn what_was_removed_is_counted_nowhere_and_its_id_is_not_given_again() {
        let telemetry = Telemetry::default();
        let (a, b) = (telemetry.add_stream("a"), telemetry.add_stream("b"));
        let of_a = telemetry.stream(a);
        (0..3).for_each(|seq| of_a.emitter().arrival(seq, AT));
        let removed = telemetry.remove_stream(a).expect("it is there");
        assert_eq!((&*removed.name, removed.frames_in, telemetry.streams()), ("a", 3, 1));
        of_a.emitter().arrival(3, AT);
        telemetry.stream(a).emitter().arrival(4, AT);
        assert_eq!(telemetry.stream(b).read(|fold| fold.frames_in), 0);
        assert!(telemetry.remove_stream(a).is_none());
        assert_eq!(telemetry.add_stream("c"), StreamId(2));
        let model = telemetry.next_model();
        assert_eq!(telemetry.models(), 0);
        telemetry.insert_model(model);
        telemetry.model(model).count(ModelCounter::NotFinite, 5, AT);
        assert_eq!(telemetry.remove_model(model).expect("it is there").not_finite, 5);
    }

    #[test]
    fn lost_frames_came_in_too() {
        let telemetry = Telemetry::new(1);
        let stream = telemetry.stream(StreamId(0));
        let mut emitter = stream.emitter();
        emitter.drop_frames(0, DropCause::LostAtSource, 35, AT);
        emitter.drop_frames(35, DropCause::DropOldest, 0, AT);
        emitter.arrival(35, AT);
        drop(emitter);
        let counts = stream.read(|fold| (fold.frames_in, fold.dropped(DropCause::LostAtSource)));
        assert_eq!(counts, (36, 35));
        assert_eq!(telemetry.trace().records.len(), 2);
    }

    #[test]
    fn a_batch_counts_for_its_model_and_its_lane() {
        let telemetry = Telemetry::default();
        let (lane, model) = (telemetry.lane(LaneId(3)), telemetry.add_model());
        lane.took(4, Nanos(10));
        assert_eq!(lane.read(|fold| fold.executing_since), Some(Nanos(10)));
        let span = |start, end| TimeSpan::new(Nanos(start), Nanos(end));
        let stages = [
            (Stage::Preprocess, span(10, 110)),
            (Stage::Infer, span(110, 1110)),
            (Stage::Postprocess, span(1110, 1310)),
        ];
        let images = || [0, 1, 0, 0].into_iter().map(StreamId);
        telemetry.model(model).batch(&lane, ComputeUnit::Cpu, images(), &stages);
        telemetry.model(model).batch(&lane, ComputeUnit::Gpu, images(), &[(Stage::Infer, span(150, 1050))]);
        assert_eq!(lane.read(|fold| fold.progress), Some(Nanos(1310)));
        lane.finished(4, Nanos(1400));
        // A second handle of the same lane reads the same figures.
        let fold = telemetry.lane(LaneId(3)).read(LaneFold::clone);
        let busy = ComputeUnit::ALL.map(|unit| fold.busy(unit).as_nanos());
        assert_eq!((fold.batches, fold.frames, busy), (1, 4, [1300, 900]));
        assert_eq!((fold.executing_since, fold.progress), (None, Some(Nanos(1400))));
        let counts = telemetry.model(model).read(|fold| (fold.inferences, fold.items, fold.infer.count()));
        assert_eq!(counts, (1, 4, 1));
    }

    #[test]
    fn other_work_of_a_lane_is_seen_until_it_ends_or_panics() {
        let telemetry = Telemetry::default();
        let lane = telemetry.lane(LaneId(0));
        let read = || lane.read(|fold| (fold.other_work, fold.working_since(), fold.progress));
        let busy = lane.works(LaneWork::Change, Nanos(10));
        let since = Some(Nanos(10));
        assert_eq!(read(), (Some((LaneWork::Change, Nanos(10))), since, since));
        drop(busy);
        assert_eq!(read(), (None, None, since));
        let tracks = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _busy = lane.works(LaneWork::Track, Nanos(20));
            panic!("this test wants it");
        }));
        assert!(tracks.is_err() && lane.read(|fold| fold.working_since()).is_none());
        // A request in which the lane's thread panics.
        lane.took_request(Nanos(30));
        lane.ended();
        assert_eq!(lane.read(|fold| fold.working_since()), None);
    }

    #[test]
    fn a_suspended_batch_counts_for_its_model_and_does_not_keep_its_lane_busy() {
        let telemetry = Telemetry::default();
        let (lane, model) = (telemetry.lane(LaneId(0)), telemetry.add_model());
        let executing_since = || telemetry.lane(LaneId(0)).read(|fold| fold.executing_since);
        lane.took(2, Nanos(10));
        lane.suspended(2, Nanos(20));
        assert_eq!(executing_since(), None);
        lane.resumed(2, Nanos(90));
        assert_eq!(executing_since(), Some(Nanos(90)));
        let waited = TimeSpan::new(Nanos(20), Nanos(90));
        let images = [StreamId(0); 2].into_iter();
        telemetry.model(model).late_batch(&lane, images, &[(Stage::Infer, waited)]);
        lane.finished(2, Nanos(100));
        let of_lane = lane.read(|fold| (fold.batches, fold.frames, fold.busy(ComputeUnit::Cpu).as_nanos()));
        assert_eq!((of_lane, executing_since()), ((1, 2, 0), None));
        let of_model = telemetry.model(model).read(|fold| (fold.inferences, fold.items, fold.infer.count()));
        assert_eq!(of_model, (1, 2, 1));
    }
}
