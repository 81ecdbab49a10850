//! Answers about the board, each computed once for all who ask together.

#![expect(clippy::disallowed_methods, reason = "how long a client waits for an answer is I/O")]

use std::sync::{Arc, OnceLock};

use axum::body::Bytes;
use orinoco_api::{HEALTH_SCHEMA, Health, LaneStatus, Status, StreamStatus};
use orinoco_core::{Clock, Diagnosis};
use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::cached::{Cached, Unanswered};
use crate::counters::Counters;
use crate::limits::Limits;
use crate::monitored::{ModelPart, Monitored};
use crate::prometheus_text::prometheus_text;

/// State of a source that delivers frames, as a status names it.
const LIVE: &str = "live";

/// Answers about a board that may not run yet.
pub(crate) struct Answers {
    running: OnceLock<Running>,
    counters: Arc<Counters>,
    clock: Arc<dyn Clock>,
    limits: Limits,
}

/// Reason why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoAnswer {
    /// The board does not run yet.
    #[error("the board is starting")]
    Starting,
    /// It runs, and gave no answer.
    #[error(transparent)]
    Unanswered(#[from] Unanswered),
}

/// Answers about a board that runs.
struct Running {
    monitored: Arc<dyn Monitored>,
    status: Cached<StatusAnswer>,
    metrics: Cached<Bytes>,
    dump: Cached<Bytes>,
    cluster_models: Cached<Result<Bytes, Diagnosis>>,
    /// One question for data of a model at a time.
    model_data: Arc<Semaphore>,
}

/// Status as JSON, with the health that follows from it.
struct StatusAnswer {
    json: Bytes,
    health: Health,
}

impl Answers {
    /// Creates the answers about a board that starts.
    pub(crate) fn new(counters: Arc<Counters>, clock: Arc<dyn Clock>, limits: Limits) -> Self {
        Self { running: OnceLock::new(), counters, clock, limits }
    }

    /// Sets the board, when it runs.
    ///
    /// # Panics
    ///
    /// If a board was set before.
    pub(crate) fn attach(&self, monitored: Arc<dyn Monitored>) {
        let running = Running::new(monitored, &self.counters, &self.clock, &self.limits);
        assert!(self.running.set(running).is_ok(), "a server reports on one board");
    }

    /// Returns the board, once it runs.
    pub(crate) fn monitored(&self) -> Option<&Arc<dyn Monitored>> {
        self.running.get().map(|running| &running.monitored)
    }

    /// Returns the status as JSON.
    pub(crate) async fn status(&self) -> Result<Bytes, NoAnswer> {
        Ok(self.running()?.status.get(self.limits.answer_wait_max).await?.json.clone())
    }

    /// Returns the metrics in the text format of Prometheus. Before the board runs, they are those of the server.
    pub(crate) async fn metrics(&self) -> Result<Bytes, NoAnswer> {
        let Some(running) = self.running.get() else {
            return Ok(prometheus_text(&self.counters.metrics()).into());
        };
        Ok(running.metrics.get(self.limits.answer_wait_max).await?.as_ref().clone())
    }

    /// Returns the post-mortem dump as JSON.
    pub(crate) async fn dump(&self) -> Result<Bytes, NoAnswer> {
        Ok(self.running()?.dump.get(self.limits.answer_wait_max).await?.as_ref().clone())
    }

    /// Returns the models of other boards as JSON.
    pub(crate) async fn cluster_models(&self) -> Result<Result<Bytes, Diagnosis>, NoAnswer> {
        let models = &self.running()?.cluster_models;
        Ok(models.get(self.limits.answer_wait_max).await?.as_ref().clone())
    }

    /// Returns a part of a file of another board's model.
    pub(crate) async fn model_data(&self, part: ModelPart) -> Result<Result<Bytes, Diagnosis>, NoAnswer> {
        let running = self.running()?;
        let (places, monitored) = (Arc::clone(&running.model_data), Arc::clone(&running.monitored));
        let wait_max = self.limits.answer_wait_max;
        let asked = async move {
            let place = places.acquire_owned().await.expect("the semaphore is never closed");
            // The place is free when the question is answered, also if nobody waits for the answer any more.
            let ask = move || (monitored.model_data(&part), drop(place)).0;
            tokio::task::spawn_blocking(ask).await
        };
        match timeout(wait_max, asked).await {
            Ok(Ok(answer)) => Ok(answer.map(Bytes::from)),
            Ok(Err(_)) => Err(Unanswered::Panicked.into()),
            Err(_) => Err(Unanswered::TimedOut(wait_max).into()),
        }
    }

    /// Returns the health. A board that starts is healthy and not ready; one that does not answer is neither.
    pub(crate) async fn health(&self) -> Health {
        let Ok(running) = self.running() else {
            return health("starting", true, false, vec![NoAnswer::Starting.to_string()]);
        };
        match running.status.get(self.limits.answer_wait_max).await {
            Ok(answer) => answer.health.clone(),
            Err(why) => health("unresponsive", false, false, vec![why.to_string()]),
        }
    }

    fn running(&self) -> Result<&Running, NoAnswer> {
        self.running.get().ok_or(NoAnswer::Starting)
    }
}

impl Running {
    fn new(
        monitored: Arc<dyn Monitored>,
        counters: &Arc<Counters>,
        clock: &Arc<dyn Clock>,
        limits: &Limits,
    ) -> Self {
        let [of_status, of_metrics, of_dump, of_models] = std::array::from_fn(|_| Arc::clone(&monitored));
        let (counters, shared_for) = (Arc::clone(counters), limits.shared_for);
        let metrics = move || {
            let mut metrics = of_metrics.metrics();
            metrics.extend(counters.metrics());
            Bytes::from(prometheus_text(&metrics))
        };
        Self {
            monitored,
            status: Cached::new(Arc::clone(clock), shared_for, move || {
                StatusAnswer::new(&of_status.status())
            }),
            metrics: Cached::new(Arc::clone(clock), shared_for, metrics),
            dump: Cached::new(Arc::clone(clock), shared_for, move || as_json(&of_dump.dump())),
            cluster_models: Cached::new(Arc::clone(clock), shared_for, move || {
                of_models.cluster_models().map(|models| as_json(&models))
            }),
            model_data: Arc::new(Semaphore::new(1)),
        }
    }
}

impl StatusAnswer {
    fn new(status: &Status) -> Self {
        Self { json: as_json(status), health: health_of(status) }
    }
}

fn as_json(contract: &impl Serialize) -> Bytes {
    serde_json::to_vec(contract).expect("a contract has only text keys and plain numbers").into()
}

/// Returns the health of a board that runs. One that hangs is not ready, whatever its streams last did.
fn health_of(status: &Status) -> Health {
    let Status { healthy, ready, .. } = *status;
    let mut reasons = Vec::new();
    if !healthy {
        let stuck = status.lanes.iter().filter(|lane| lane.stuck).map(lane_reason);
        reasons.extend(stuck);
        if reasons.is_empty() {
            reasons.push("a lane makes no progress".to_owned());
        }
    }
    if !ready {
        let (known, waiting) = (reasons.len(), status.streams.iter().filter(|stream| stream.state != LIVE));
        reasons.extend(waiting.map(stream_reason));
        if reasons.len() == known {
            reasons.push("not every stream delivers frames".to_owned());
        }
    }
    health("running", healthy, healthy && ready, reasons)
}

fn lane_reason(lane: &LaneStatus) -> String {
    match lane.executing_ms {
        Some(ms) => format!("lane {} has executed one batch for {:.1} s", lane.lane, ms / 1000.0),
        None => format!("lane {} makes no progress", lane.lane),
    }
}

fn stream_reason(stream: &StreamStatus) -> String {
    format!("stream `{}` delivers no frames: {}", stream.name, stream.state)
}

fn health(state: &str, healthy: bool, ready: bool, reasons: Vec<String>) -> Health {
    Health { schema: HEALTH_SCHEMA.to_owned(), state: state.to_owned(), healthy, ready, reasons }
}
