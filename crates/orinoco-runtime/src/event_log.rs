//! Log of a run's latest events, for the control socket and the post-mortem.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use orinoco_api::{EVENT_SCHEMA, EventJson, Fault};
use orinoco_core::text::{count, mebibytes};
use orinoco_core::{Clock, Diagnosis, Nanos};
use orinoco_telemetry::{Event, EventSink};

/// Maximum number of events that are kept: an hour of a camera that is lost every ten seconds.
const EVENTS_MAX: usize = 512;

type OnEvent = Box<dyn Fn() + Send + Sync>;

/// Sink of events that keeps the latest ones and passes all of them on.
pub(crate) struct EventLog {
    next: Arc<dyn EventSink>,
    clock: Arc<dyn Clock>,
    log: Mutex<Log>,
    on_event: Mutex<Vec<OnEvent>>,
}

#[derive(Default)]
struct Log {
    events: VecDeque<EventJson>,
    /// Number of events so far.
    count: u64,
}

impl EventLog {
    /// Creates a log that passes events on to `next`. Times are those of `clock`, from its beginning.
    pub(crate) fn new(next: Arc<dyn EventSink>, clock: Arc<dyn Clock>) -> Self {
        Self { next, clock, log: Mutex::default(), on_event: Mutex::default() }
    }

    /// Returns the kept events whose number is greater than `number`, oldest first.
    pub(crate) fn after(&self, number: u64) -> Vec<EventJson> {
        self.lock().events.iter().filter(|event| event.number > number).cloned().collect()
    }

    /// Calls `on_event` after each event. It is called on threads of the data plane, and must not block.
    pub(crate) fn notify(&self, on_event: OnEvent) {
        self.on_event.lock().unwrap_or_else(PoisonError::into_inner).push(on_event);
    }

    fn lock(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EventLog {
    /// Keeps an event, and passes it on to nobody.
    pub(crate) fn keep(&self, event: &Event) {
        let mut json = as_json(event, self.clock.now());
        let mut log = self.lock();
        log.count += 1;
        json.number = log.count;
        log.events.push_back(json);
        if log.events.len() > EVENTS_MAX {
            log.events.pop_front();
        }
        drop(log);
        self.on_event.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|on_event| on_event());
    }
}

impl EventSink for EventLog {
    fn emit(&self, event: Event) {
        self.keep(&event);
        self.next.emit(event);
    }
}

/// Severity of an event.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Info,
    Warning,
    Error,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// Parts of an event.
struct Parts {
    level: Level,
    kind: &'static str,
    subject: Option<String>,
    text: String,
    why: Option<Diagnosis>,
}

fn as_json(event: &Event, at: Nanos) -> EventJson {
    let Parts { level, kind, subject, text, why } = parts(event);
    EventJson {
        schema: EVENT_SCHEMA.to_owned(),
        number: 0,
        at_s: at.since(Nanos(0)).as_secs_f64(),
        level: level.name().to_owned(),
        kind: kind.to_owned(),
        subject,
        text,
        fault: why.as_ref().map(Fault::from),
    }
}

fn parts(event: &Event) -> Parts {
    use Level::{Error, Info, Warning};
    match event {
        Event::Source { stream, state, why } => {
            let level = if why.is_some() { Warning } else { Info };
            let text = with_cause(format!("stream {stream} is {}", state.name()), why.as_ref());
            Parts { level, kind: "source-state", subject: Some(stream.to_string()), text, why: why.clone() }
        }
        Event::SourceRetry { stream, attempt, wait } => {
            let text = format!("stream {stream}: attempt {} in {:.1} s", attempt + 1, wait.as_secs_f64());
            info("source-retry", stream, text)
        }
        Event::SourceRecovered { stream, after } => {
            let text = format!("stream {stream} delivers frames again, after {:.1} s", after.as_secs_f64());
            info("source-recovered", stream, text)
        }
        Event::CacheRefused { why } => {
            Parts { level: Warning, kind: "cache-refused", subject: None, text: why.clone(), why: None }
        }
        Event::EngineRefused { model, engine, why } => {
            let text = format!("model {model}: {engine} refused: {why}");
            Parts { level: Warning, ..info("engine-refused", model, text) }
        }
        Event::EngineChosen { model, engine, version } => {
            info("engine-chosen", model, format!("model {model}: {engine} {version}"))
        }
        Event::ModelReplaced { model, lane } => {
            info("model-replaced", model, format!("model {model}: new version now runs on lane {lane}"))
        }
        Event::SeatMissed { model, why, .. } => fault(Warning, "seat-missed", "model", model, why),
        Event::SeatRecovered { model, seat } => {
            info("seat-recovered", model, format!("model {model}: seat {seat} executes it again"))
        }
        Event::EpochBegan { epoch, members, transport, fallback } => {
            let text = format!("epoch {epoch} of the cluster began over {transport}, with seats {members}");
            let (level, text) = match fallback {
                Some(why) => (Warning, format!("{text}; RDMA is not used: {why}")),
                None => (Info, text),
            };
            Parts { level, kind: "epoch-began", subject: None, text, why: None }
        }
        Event::EpochEnded { epoch, why, has_failed } => {
            let level = if *has_failed { Warning } else { Info };
            let text = format!("epoch {epoch} of the cluster is over: {why}");
            Parts { level, kind: "epoch-ended", subject: None, text, why: None }
        }
        Event::ClusterFault { why } => {
            Parts { level: Warning, kind: "cluster-fault", subject: None, text: why.clone(), why: None }
        }
        Event::IntervalChanged { model, interval } => {
            let text = format!("model {model}: inference interval {interval}");
            info("interval-changed", model, text)
        }
        Event::MemoryRefused { needed_bytes, budget_bytes, .. } => {
            let (needed, budget) = (mebibytes(*needed_bytes), mebibytes(*budget_bytes));
            let text = format!("the board needs {needed} of memory, and its budget is {budget}");
            Parts { level: Warning, kind: "memory-refused", subject: None, text, why: None }
        }
        Event::ExecutionFailed { model, why } => fault(Error, "execution-failed", "model", model, why),
        Event::OutputNotFinite { model, why } => fault(Warning, "output-not-finite", "model", model, why),
        Event::LaneFailed { lane, why } => fault(Error, "lane-failed", "lane", &lane.to_string(), why),
        Event::LaneRestarted { lane, why, restarts_left } => {
            let left = count(*restarts_left as u64, "restart");
            let parts = fault(Warning, "lane-restarted", "lane", &lane.to_string(), why);
            Parts { text: format!("{}: restarting ({left} left)", parts.text), ..parts }
        }
        Event::RestartFailed { why } => {
            let text = "failed lanes cannot be restarted before the reload".to_owned();
            let text = with_cause(text, Some(why));
            Parts { level: Warning, kind: "restart-failed", subject: None, text, why: Some(why.clone()) }
        }
        Event::SinkUnread { stream, output } => {
            let text = format!("stream {stream}: {output} has no reader any more and is closed");
            Parts { level: Warning, ..info("sink-unread", stream, text) }
        }
        Event::GovernorReady { actuators } => {
            let text = format!("the governor is ready: {actuators}");
            Parts { level: Info, kind: "governor-ready", subject: None, text, why: None }
        }
        Event::GovernorStep { actuator, from, to, direction, why } => {
            let text =
                format!("the governor steps {direction}: {actuator} from {from} to {to}, because {why}");
            info("governor-step", actuator, text)
        }
        Event::GovernorFault { why } => {
            let text = with_cause("the governor cannot work".to_owned(), Some(why));
            Parts { level: Warning, kind: "governor-fault", subject: None, text, why: Some(why.clone()) }
        }
        Event::SensorsFailed { why } => {
            let text = with_cause("the sensors are no longer read".to_owned(), Some(why));
            Parts { level: Error, kind: "sensors-failed", subject: None, text, why: Some(why.clone()) }
        }
        Event::SinkFailed { stream, why } => fault(Error, "sink-failed", "stream", stream, why),
        other => Parts { level: Info, kind: "other", subject: None, text: format!("{other:?}"), why: None },
    }
}

fn info(kind: &'static str, subject: &str, text: String) -> Parts {
    Parts { level: Level::Info, kind, subject: Some(subject.to_owned()), text, why: None }
}

fn fault(level: Level, kind: &'static str, what: &str, subject: &str, why: &Diagnosis) -> Parts {
    let text = with_cause(format!("{what} {subject}"), Some(why));
    Parts { level, kind, subject: Some(subject.to_owned()), text, why: Some(why.clone()) }
}

fn with_cause(text: String, why: Option<&Diagnosis>) -> String {
    match why {
        Some(why) => format!("{text}: {why}"),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Quiet;
    use orinoco_core::{WithSubject, codes};
    use orinoco_pipeline::MonotonicClock;
    use orinoco_telemetry::SourceState;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    fn log() -> EventLog {
        EventLog::new(Arc::new(Quiet), Arc::new(MonotonicClock::default()))
    }

    #[test]
    fn the_latest_events_are_kept_and_numbered() {
        let log = log();
        let seen = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&seen);
        log.notify(Box::new(move || {
            counter.fetch_add(1, Ordering::Relaxed);
        }));
        for attempt in 0..EVENTS_MAX as u32 + 3 {
            log.emit(Event::SourceRetry { stream: "gate".into(), attempt, wait: Duration::from_secs(2) });
        }
        let kept = log.after(0);
        assert_eq!((kept.len(), kept[0].number, seen.load(Ordering::Relaxed)), (EVENTS_MAX, 4, 515));
        assert_eq!(kept[0].text, "stream gate: attempt 4 in 2.0 s");
        assert_eq!(log.after(514).len(), 1);
        assert!(log.after(515).is_empty());
    }

    #[test]
    fn an_event_tells_what_it_is_about_and_why() {
        let log = log();
        let why = Err::<(), _>("no signal").about(&codes::SOURCE_OPEN, "/dev/video0", "plug the camera in");
        let why = why.expect_err("made as one");
        log.emit(Event::Source { stream: "gate".into(), state: SourceState::Live, why: None });
        log.emit(Event::Source {
            stream: "gate".into(),
            state: SourceState::BackingOff,
            why: Some(why.clone()),
        });
        log.emit(Event::LaneRestarted { lane: 2, why, restarts_left: 1 });
        let events = log.after(0);
        let shown = |event: &EventJson| (event.level.clone(), event.kind.clone(), event.subject.clone());
        let expected = [("info", "source-state", "gate"), ("warning", "source-state", "gate")];
        for (event, (level, kind, subject)) in events.iter().zip(expected) {
            assert_eq!(shown(event), (level.into(), kind.into(), Some(subject.into())));
        }
        assert_eq!(events[0].text, "stream gate is live");
        assert!(
            events[0].fault.is_none() && events[1].fault.as_ref().is_some_and(|f| f.cause == "no signal")
        );
        assert!(
            events[2].text.starts_with("lane 2: ") && events[2].text.ends_with("restarting (1 restart left)")
        );
    }
}
