//! Executor of a model that another seat executes.

use std::sync::Arc;
use std::time::Duration;

use orinoco_board::{SeatFallback, SeatSpec};
use orinoco_core::{Diagnosis, InferenceResult, ModelId, Nanos, codes};
use orinoco_pipeline::{
    Executed, Executor, Frame, Request, StageSetter, StageTimes, Suspender, SuspensionError,
};
use orinoco_telemetry::{Event, MissCause, ModelCounter};

use super::{ModelIdentity, SeatBatch};
use crate::shared::Shared;

/// Time that a seat has for an answer. A lane waits for at most two seconds, all models of a frame together.
const ANSWER_MAX: Duration = Duration::from_millis(1500);
/// Shortest time that a seat is given for an answer. Where less is left of the time for which frames wait, it is not asked: it might
/// count as late although it is not slow.
const ANSWER_MIN: Duration = Duration::from_millis(750);
/// Time for which the seat is not asked again after it refused images, failed, or was late: frames would wait in vain.
const RETRY: Duration = Duration::from_secs(1);

/// Model of a board as another seat executes it.
pub(crate) struct SeatModel {
    /// Name of the model on the board.
    pub(crate) name: Arc<str>,
    pub(crate) id: ModelId,
    pub(crate) spec: SeatSpec,
    pub(crate) identity: ModelIdentity,
    /// Maximum number of images that are sent together.
    pub(crate) batch: usize,
}

/// Sends images to the seat, and falls back where it does not infer them.
pub(crate) struct SeatExecutor {
    model: SeatModel,
    /// The model on this board, if it is loaded.
    local: Option<Box<dyn Executor>>,
    shared: Shared,
    /// Images that the seat had inferred when it went offline, while that is so.
    offline_since: Option<u64>,
    /// Time until which the seat is not asked, and the cause.
    retry: Option<(Nanos, MissCause)>,
    /// Fault of the seat that was reported last.
    reported: Option<String>,
    /// Causes that are reported once, and were.
    reported_once: Vec<(MissCause, bool)>,
}

/// Reason why a seat does not infer images.
enum Miss<'a> {
    /// It is not asked: it is offline, or left alone for a while.
    NotAsked(MissCause),
    /// It is not asked: since they first waited, the frames have too little time left.
    NoTime,
    /// It was asked, and has not inferred them.
    Fault(&'a SuspensionError),
}

impl Miss<'_> {
    fn cause(&self) -> MissCause {
        match self {
            Self::NotAsked(cause) => *cause,
            Self::NoTime => MissCause::Late,
            Self::Fault(why) => why.cause(),
        }
    }
}

impl SeatExecutor {
    pub(crate) fn new(model: SeatModel, local: Option<Box<dyn Executor>>, shared: &Shared) -> Self {
        let (offline_since, retry, reported, reported_once) = (None, None, None, Vec::new());
        Self { model, local, shared: shared.clone(), offline_since, retry, reported, reported_once }
    }

    /// Returns whether the seat is to be asked at `now` about frames that can wait for `time_left`, or why it is not.
    fn readiness(&self, now: Nanos, time_left: Duration) -> Result<(), Miss<'static>> {
        if let Some((until, cause)) = self.retry
            && now < until
        {
            return Err(Miss::NotAsked(cause));
        }
        self.shared.seats.readiness(&self.model.spec.name).map_err(Miss::NotAsked)?;
        if time_left < ANSWER_MIN { Err(Miss::NoTime) } else { Ok(()) }
    }

    /// Counts images that the seat does not infer, and does with them what the board file says.
    fn miss(
        &mut self,
        miss: &Miss<'_>,
        frames: &[Frame],
        results: &mut [InferenceResult],
    ) -> Result<Executed, Diagnosis> {
        let (cause, now) = (miss.cause(), self.shared.clock.now());
        let telemetry = self.shared.telemetry.model(self.model.id);
        telemetry.count(ModelCounter::Missed(cause), frames.len() as u64, now);
        let fault = match miss {
            Miss::NotAsked(_) => None,
            Miss::NoTime => Some(self.no_time()),
            Miss::Fault(why) => Some(why.diagnosis(&self.model.name)),
        };
        if self.is_news(miss, fault.as_ref()) {
            let (model, seat) = (self.model.name.to_string(), self.model.spec.name.clone());
            let why = self.report(fault.as_ref());
            self.shared.events.emit(Event::SeatMissed { model, seat, why });
        }
        match &mut self.local {
            Some(local) => local.execute(frames, results).map(Executed::Done),
            None => Ok(Executed::Skipped),
        }
    }

    /// Whether a miss is to be reported: when the seat goes offline, for another fault than the last, else for each cause once.
    fn is_news(&mut self, miss: &Miss<'_>, fault: Option<&Diagnosis>) -> bool {
        match (miss.cause(), fault) {
            (MissCause::Offline, _) => {
                let telemetry = self.shared.telemetry.model(self.model.id);
                let inferred = telemetry.read(|fold| fold.remote.images);
                self.offline_since.replace(inferred).is_none()
            }
            (_, None) => false,
            (MissCause::Failed, Some(fault)) => {
                let fault = Some(fault.cause.clone());
                std::mem::replace(&mut self.reported, fault.clone()) != fault
            }
            (cause, Some(_)) => {
                let kind = (cause, matches!(miss, Miss::Fault(_)));
                let is_first = !self.reported_once.contains(&kind);
                if is_first {
                    self.reported_once.push(kind);
                }
                is_first
            }
        }
    }

    /// Makes the fault of images that are not sent because no time is left.
    fn no_time(&self) -> Diagnosis {
        let cause = "it is not asked, because other models of the same frames have taken too much of the 2 s that a frame waits";
        let next = "see in `orinoco status` which of the stream's models is slow, here or on another board";
        Diagnosis::new(&codes::REQUEST_EXPIRED, format!("seat {}", self.model.spec.name), cause, next)
    }

    /// Reports that the seat infers images again after it was offline, once it has.
    fn recover(&mut self) {
        let Some(before) = self.offline_since else { return };
        let telemetry = self.shared.telemetry.model(self.model.id);
        if telemetry.read(|fold| fold.remote.images) > before {
            self.offline_since = None;
            let (model, seat) = (self.model.name.to_string(), self.model.spec.name.clone());
            self.shared.events.emit(Event::SeatRecovered { model, seat });
        }
    }

    /// Makes the report of a miss: the seat's own fault, or that it is offline.
    fn report(&self, why: Option<&Diagnosis>) -> Diagnosis {
        let then = match self.model.spec.fallback {
            SeatFallback::Skip => "frames go on without this model",
            SeatFallback::Local => "this board executes the model",
        };
        let subject = format!("model {}", self.model.name);
        let (code, seat, cause, next) = match why {
            Some(why) => (why.code, &*why.subject, &*why.cause, &*why.next),
            None => {
                let next = "see `orinoco status`, and the journal of that board";
                (&codes::SEAT_OFFLINE, &*format!("seat {}", self.model.spec.name), "it is offline", next)
            }
        };
        Diagnosis::new(code, subject, format!("{seat}: {cause}; {then}"), next)
    }
}

impl Executor for SeatExecutor {
    fn batch_max(&self) -> usize {
        self.model.batch
    }

    fn execute(
        &mut self,
        frames: &[Frame],
        results: &mut [InferenceResult],
    ) -> Result<StageTimes, Diagnosis> {
        match &mut self.local {
            Some(local) => local.execute(frames, results),
            None => Err(self.report(None)),
        }
    }

    fn begin(
        &mut self,
        frames: &[Frame],
        results: &mut [InferenceResult],
        suspender: &mut Suspender<'_>,
    ) -> Result<Executed, Diagnosis> {
        let now = self.shared.clock.now();
        let time_left = suspender.time_left(now);
        if let Err(miss) = self.readiness(now, time_left) {
            return self.miss(&miss, frames, results);
        }
        self.recover();
        let batch = SeatBatch {
            model: Arc::clone(&self.model.name),
            identity: self.model.identity,
            images: frames.iter().map(Frame::share).collect(),
            deadline: now + ANSWER_MAX.min(time_left),
            clock: Arc::clone(&self.shared.clock),
            answer: suspender.suspend(),
        };
        self.shared.seats.infer(&self.model.spec.name, batch);
        // The seat answers in time, also that it could not. The lane's own limit is for a connection that hangs, or where less
        // time is left.
        Ok(Executed::Suspended(2 * ANSWER_MAX))
    }

    fn fall_back(
        &mut self,
        frames: &[Frame],
        results: &mut [InferenceResult],
        why: &SuspensionError,
    ) -> Option<Result<Executed, Diagnosis>> {
        let cause = why.cause();
        if matches!(cause, MissCause::Failed | MissCause::Late) {
            self.retry = Some((self.shared.clock.now() + RETRY, cause));
        }
        Some(self.miss(&Miss::Fault(why), frames, results))
    }

    fn show_stage(&mut self, stage: StageSetter) {
        if let Some(local) = &mut self.local {
            local.show_stage(stage);
        }
    }

    fn answer(&mut self, request: Request) {
        match &mut self.local {
            Some(local) => local.answer(request),
            None => {
                let seat = &self.model.spec.name;
                let next = format!("send the request to the board of seat {seat}");
                request.fail(&codes::REQUEST_INVALID, format!("seat {seat} executes this model"), next);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::seats::Seats;
    use crate::testing;
    use orinoco_core::{ClassScore, FrameDesc, PixelFormat};
    use orinoco_pipeline::{Mux, SUSPENSION_MAX, Slot, SlotPool};
    use orinoco_telemetry::EventSink;

    /// Codes of the images that were missed, and `recovered`.
    #[derive(Default)]
    struct Codes(Mutex<Vec<&'static str>>);

    impl EventSink for Codes {
        fn emit(&self, event: Event) {
            let code = match event {
                Event::SeatMissed { why, .. } => why.code.id,
                Event::SeatRecovered { .. } => "recovered",
                _ => return,
            };
            self.0.lock().expect("not poisoned").push(code);
        }
    }

    /// Seats that take images, and note the time that they have.
    #[derive(Default)]
    struct Ready(Mutex<Option<Duration>>);

    impl Seats for Ready {
        fn readiness(&self, _: &str) -> Result<(), MissCause> {
            Ok(())
        }

        fn infer(&self, _: &str, batch: SeatBatch) {
            *self.0.lock().expect("not poisoned") = Some(batch.rest());
        }
    }

    /// A local model that finds one class.
    struct Local;

    impl Executor for Local {
        fn batch_max(&self) -> usize {
            1
        }

        fn execute(&mut self, _: &[Frame], results: &mut [InferenceResult]) -> Result<StageTimes, Diagnosis> {
            results.iter_mut().for_each(|result| result.classes = vec![ClassScore::default()]);
            Ok(StageTimes::default())
        }
    }

    fn executor(fallback: SeatFallback) -> (SeatExecutor, Arc<Codes>) {
        let events = Arc::new(Codes::default());
        let shared = Shared { events: Arc::<Codes>::clone(&events), ..testing::shared() };
        let model = SeatModel {
            name: "m".into(),
            id: shared.telemetry.add_model(),
            spec: SeatSpec { name: "b".to_owned(), fallback },
            identity: ModelIdentity([0; 32]),
            batch: 4,
        };
        let local: Option<Box<dyn Executor>> = match fallback {
            SeatFallback::Local => Some(Box::new(Local)),
            SeatFallback::Skip => None,
        };
        (SeatExecutor::new(model, local, &shared), events)
    }

    fn frames(count: usize) -> Vec<Frame> {
        let frame = |_| {
            let slot = SlotPool::new(1, 1).try_take().expect("it is free");
            let desc = FrameDesc::packed(PixelFormat::Gray8, 1, 1);
            Frame::new(desc, Slot::Owned(slot), Nanos(0)).expect("it fits")
        };
        (0..count).map(frame).collect()
    }

    fn failed(cause: MissCause, text: &str) -> SuspensionError {
        let code = match cause {
            MissCause::Offline => &codes::SEAT_OFFLINE,
            MissCause::Overloaded => &codes::REQUEST_OVERLOAD,
            MissCause::Late => &codes::REQUEST_EXPIRED,
            MissCause::Failed => &codes::SEAT_FAILED,
        };
        SuspensionError::Remote { cause, why: Diagnosis::new(code, "seat b", text, "look") }
    }

    fn fails(executor: &mut SeatExecutor, cause: MissCause, count: usize) -> (Executed, usize) {
        fails_by(executor, &failed(cause, "it failed"), count)
    }

    fn fails_by(executor: &mut SeatExecutor, why: &SuspensionError, count: usize) -> (Executed, usize) {
        let mut results = vec![InferenceResult::default(); count];
        let done = executor.fall_back(&frames(count), &mut results, why);
        let done = done.expect("it has another way").expect("frames go on");
        (done, results.iter().filter(|result| !result.classes.is_empty()).count())
    }

    fn missed(executor: &SeatExecutor) -> [u64; 4] {
        let model = executor.shared.telemetry.model(executor.model.id);
        model.read(|fold| MissCause::ALL.map(|cause| fold.remote.missed(cause)))
    }

    #[test]
    fn images_that_the_seat_does_not_infer_are_counted_by_cause_and_reported_once() {
        let (mut executor, events) = executor(SeatFallback::Skip);
        for why in [
            failed(MissCause::Offline, "it failed"),
            failed(MissCause::Offline, "it failed"),
            failed(MissCause::Late, "it failed"),
            failed(MissCause::Overloaded, "it failed"),
            // The lane's limit on the time counts as the seat's.
            SuspensionError::TimedOut { waited: ANSWER_MAX },
            failed(MissCause::Failed, "it failed"),
        ] {
            let (done, results) = fails_by(&mut executor, &why, 3);
            assert!(matches!(done, Executed::Skipped) && results == 0, "{done:?}");
        }
        assert_eq!(missed(&executor), [6, 3, 6, 3]);
        let reported = events.0.lock().expect("not poisoned").clone();
        assert_eq!(reported, ["E1005", "E0803", "E0802", "E1006"]);
    }

    #[test]
    fn a_local_model_infers_what_the_seat_does_not() {
        let (mut executor, _) = executor(SeatFallback::Local);
        let (done, results) = fails(&mut executor, MissCause::Offline, 4);
        assert!(matches!(done, Executed::Done(_)) && results == 4, "{done:?}");
        assert_eq!(missed(&executor), [4, 0, 0, 0]);
    }

    #[test]
    fn another_fault_of_the_seat_is_reported_too() {
        let (mut executor, events) = executor(SeatFallback::Skip);
        let mut fail = |cause: &str| {
            let why = failed(MissCause::Failed, cause);
            executor.fall_back(&frames(1), &mut [InferenceResult::default()], &why)
        };
        for cause in ["no such model", "no such model", "other labels"] {
            assert!(matches!(fail(cause), Some(Ok(Executed::Skipped))));
        }
        assert_eq!(*events.0.lock().expect("not poisoned"), ["E1006", "E1006"]);
    }

    #[test]
    fn a_seat_that_failed_is_left_alone_for_a_while() {
        let (mut executor, _) = executor(SeatFallback::Skip);
        executor.shared.seats = Arc::new(Ready::default());
        let refusal = |executor: &SeatExecutor, now| {
            executor.readiness(now, SUSPENSION_MAX).err().map(|miss| miss.cause())
        };
        assert_eq!(refusal(&executor, Nanos(0)), None);
        fails(&mut executor, MissCause::Failed, 1);
        let now = executor.shared.clock.now();
        assert_eq!(refusal(&executor, now), Some(MissCause::Failed));
        assert_eq!(refusal(&executor, now + RETRY), None, "it is asked again");
        fails(&mut executor, MissCause::Late, 1);
        assert_eq!(refusal(&executor, now), Some(MissCause::Late));
    }

    /// Has the executor begin a step that can wait for so long. Returns the time that the seat is given, if it is asked.
    fn begins(executor: &mut SeatExecutor, seats: &Ready, time_left: Duration) -> Option<Duration> {
        let mux = Mux::new(Arc::clone(&executor.shared.clock));
        let until = executor.shared.clock.now() + time_left;
        let mut suspender = Suspender::new(&mux, Some(until));
        let mut results = [InferenceResult::default(), InferenceResult::default()];
        let begun = executor.begin(&frames(2), &mut results, &mut suspender).expect("its engine is sound");
        let given = seats.0.lock().expect("not poisoned").take();
        assert_eq!(given.is_some(), matches!(begun, Executed::Suspended(_)), "{begun:?}");
        given
    }

    #[test]
    fn a_seat_that_has_too_little_time_is_not_asked_and_not_left_alone() {
        let (mut executor, events) = executor(SeatFallback::Skip);
        let seats = Arc::new(Ready::default());
        executor.shared.seats = Arc::<Ready>::clone(&seats);
        for _ in 0..2 {
            assert_eq!(begins(&mut executor, &seats, ANSWER_MIN), None, "some of it has passed");
        }
        assert_eq!(missed(&executor), [0, 0, 4, 0]);
        let given = begins(&mut executor, &seats, ANSWER_MAX).expect("other frames have the time");
        assert!(given <= ANSWER_MAX && given > ANSWER_MIN, "{given:?}: some of it has passed");
        let given = begins(&mut executor, &seats, 2 * ANSWER_MAX).expect("it is asked");
        assert!(given <= ANSWER_MAX, "{given:?}");
        // A seat that is late is reported, too.
        (0..2)
            .for_each(|_| _ = fails_by(&mut executor, &SuspensionError::TimedOut { waited: ANSWER_MAX }, 1));
        assert_eq!(*events.0.lock().expect("not poisoned"), ["E0803", "E0304"]);
    }
}
