//! Latest events, read from the board once for all event streams.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::response::sse;
use futures_util::stream::{Stream, unfold};
use orinoco_api::EventJson;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};

use crate::answers::Answers;
use crate::end::End;

/// Maximum number of events that are kept. A client that reads more slowly finds a gap in the numbers.
const EVENTS_MAX: usize = 1024;

/// Latest events. Each is read from the board once, and made JSON once, however many streams send it.
pub(crate) struct EventLog {
    events: Mutex<VecDeque<Arc<LoggedEvent>>>,
    /// Number of the latest event.
    latest: watch::Sender<u64>,
    /// Places for event streams.
    places: Arc<Semaphore>,
}

struct LoggedEvent {
    number: u64,
    json: String,
}

impl EventLog {
    /// Creates a log without events, for `streams_max` event streams at a time.
    pub(crate) fn new(streams_max: usize) -> Self {
        Self {
            events: Mutex::default(),
            latest: watch::Sender::new(0),
            places: Arc::new(Semaphore::new(streams_max)),
        }
    }

    /// Reads new events whenever `wake` says that there are any, without end.
    pub(crate) async fn read_from(&self, answers: &Answers, wake: &Notify) {
        loop {
            wake.notified().await;
            let Some(monitored) = answers.monitored().map(Arc::clone) else { continue };
            let after = *self.latest.borrow();
            // If the board panics, its next event has another try.
            if let Ok(events) = tokio::task::spawn_blocking(move || monitored.events_after(after)).await {
                self.add(events);
            }
        }
    }

    /// Returns the stream of the events after number `after`, until `end` holds; `None` if there are too many streams. A
    /// number that no event has had yet is that of an earlier run: then the stream begins with the oldest event.
    pub(crate) fn stream(
        self: &Arc<Self>,
        after: u64,
        end: End,
    ) -> Option<impl Stream<Item = Result<sse::Event, Infallible>> + Send + 'static> {
        let place = Arc::clone(&self.places).try_acquire_owned().ok()?;
        let latest = self.latest.subscribe();
        let sent = if after > *latest.borrow() { 0 } else { after };
        let reader = EventReader { log: Arc::clone(self), sent, latest, end, _place: place };
        Some(unfold(reader, |mut reader| async {
            let event = reader.next().await?;
            let event = sse::Event::default().id(event.number.to_string()).data(&event.json);
            Some((Ok(event), reader))
        }))
    }

    fn add(&self, new: Vec<EventJson>) {
        let Some(latest) = new.last().map(|event| event.number) else { return };
        let json =
            |event| serde_json::to_string(event).expect("an event has only text keys and plain numbers");
        let new = new.iter().map(|event| Arc::new(LoggedEvent { number: event.number, json: json(event) }));
        let mut events = self.lock();
        events.extend(new);
        let excess = events.len().saturating_sub(EVENTS_MAX);
        events.drain(..excess);
        drop(events);
        self.latest.send_replace(latest);
    }

    /// Returns the first event with a number greater than `number`.
    fn after(&self, number: u64) -> Option<Arc<LoggedEvent>> {
        let events = self.lock();
        let index = events.partition_point(|event| event.number <= number);
        events.get(index).map(Arc::clone)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<LoggedEvent>>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reader of one event stream.
struct EventReader {
    log: Arc<EventLog>,
    /// Number of the latest event that was sent.
    sent: u64,
    latest: watch::Receiver<u64>,
    end: End,
    _place: OwnedSemaphorePermit,
}

impl EventReader {
    /// Waits for the next event; `None` when the server ends.
    async fn next(&mut self) -> Option<Arc<LoggedEvent>> {
        loop {
            if let Some(event) = self.log.after(self.sent) {
                self.sent = event.number;
                return Some(event);
            }
            tokio::select! {
                changed = self.latest.changed() => changed.ok()?,
                () = self.end.wait() => return None,
            }
        }
    }
}
