//! Paths that the server answers.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State};
use axum::http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::sse::{KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use orinoco_api::Health;
use orinoco_core::Diagnosis;

use crate::answers::{Answers, NoAnswer};
use crate::counters::{Counters, Refusal, Way};
use crate::end::End;
use crate::event_log::EventLog;
use crate::gate::{Gate, pass};
use crate::limits::Limits;
use crate::monitored::ModelPart;
use crate::prometheus_text::PROMETHEUS_CONTENT_TYPE;
use crate::refusal::{JSON, faulty, refused, unavailable};

/// Path that the server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The path.
    pub path: &'static str,
    /// Methods on the Unix socket. Over TCP they are GET and HEAD.
    pub methods: &'static [&'static str],
    /// Whether it is served over TCP.
    pub over_tcp: bool,
}

/// All paths that the server answers.
pub const ROUTES: [Route; 8] = [
    Route { path: "/healthz", methods: &["GET", "HEAD"], over_tcp: true },
    Route { path: "/readyz", methods: &["GET", "HEAD"], over_tcp: true },
    Route { path: "/metrics", methods: &["GET", "HEAD"], over_tcp: true },
    Route { path: "/v1/status", methods: &["GET", "HEAD"], over_tcp: true },
    Route { path: "/v1/events", methods: &["GET", "HEAD"], over_tcp: true },
    Route { path: "/v1/dump", methods: &["GET", "HEAD", "POST"], over_tcp: false },
    Route { path: "/v1/cluster/models", methods: &["GET", "HEAD"], over_tcp: false },
    Route { path: "/v1/cluster/model-data", methods: &["GET", "HEAD"], over_tcp: false },
];

/// Number of the last event that a client of an event stream has.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Parts that answer requests.
#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) answers: Arc<Answers>,
    pub(crate) events: Arc<EventLog>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) limits: Limits,
    pub(crate) end: End,
}

/// Part of one listener that answers requests.
#[derive(Clone)]
struct Entry {
    service: Service,
    way: Way,
}

/// Creates the router of one listener, behind its gate.
pub(crate) fn router(service: Service, gate: Gate) -> Router {
    let entry = Entry { service, way: gate.way() };
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/v1/status", get(status))
        .route("/v1/events", get(events))
        .route("/v1/dump", get(dump).post(dump))
        .route("/v1/cluster/models", get(cluster_models))
        .route("/v1/cluster/model-data", get(model_data))
        .method_not_allowed_fallback(method_not_allowed)
        .fallback(not_found)
        .with_state(entry.clone())
        .layer(from_fn_with_state(entry, refuse_over_tcp))
        .layer(from_fn_with_state(Arc::new(gate), pass))
}

async fn healthz(State(entry): State<Entry>) -> Response {
    let health = entry.service.answers.health().await;
    health_answer(&health, health.healthy)
}

async fn readyz(State(entry): State<Entry>) -> Response {
    let health = entry.service.answers.health().await;
    health_answer(&health, health.ready)
}

fn health_answer(health: &Health, is_well: bool) -> Response {
    let status = if is_well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let json = serde_json::to_string(health).expect("a health has only text keys");
    (status, [(CONTENT_TYPE, JSON)], json).into_response()
}

async fn metrics(State(entry): State<Entry>, uri: Uri) -> Response {
    const TEXT: HeaderValue = HeaderValue::from_static(PROMETHEUS_CONTENT_TYPE);
    answer(entry.service.answers.metrics().await, TEXT, &uri)
}

async fn status(State(entry): State<Entry>, uri: Uri) -> Response {
    answer(entry.service.answers.status().await, JSON, &uri)
}

async fn dump(State(entry): State<Entry>, uri: Uri) -> Response {
    answer(entry.service.answers.dump().await, JSON, &uri)
}

async fn cluster_models(State(entry): State<Entry>, uri: Uri) -> Response {
    cluster_answer(entry.service.answers.cluster_models().await, JSON, &uri)
}

async fn model_data(
    State(entry): State<Entry>,
    uri: Uri,
    part: Result<Query<ModelPart>, QueryRejection>,
) -> Response {
    const BYTES: HeaderValue = HeaderValue::from_static("application/octet-stream");
    match part {
        Ok(Query(part)) => cluster_answer(entry.service.answers.model_data(part).await, BYTES, &uri),
        Err(why) => {
            entry.service.counters.count_refusal(entry.way, Refusal::Request);
            let next = "give the query seat, model, file and offset, as in ?seat=east&model=person&file=1/model.onnx&offset=0, and a length of 1 or more, if any";
            refused(StatusCode::BAD_REQUEST, uri.path(), &why.body_text(), next)
        }
    }
}

/// The answer of another board, or the reason why there is none.
fn cluster_answer(
    asked: Result<Result<Bytes, Diagnosis>, NoAnswer>,
    content_type: HeaderValue,
    uri: &Uri,
) -> Response {
    match asked {
        Ok(Err(why)) => faulty(StatusCode::BAD_GATEWAY, &why),
        Ok(Ok(bytes)) => answer(Ok(bytes), content_type, uri),
        Err(why) => answer(Err(why), content_type, uri),
    }
}

/// Refuses requests over TCP for paths that are served on the Unix socket only.
async fn refuse_over_tcp(State(entry): State<Entry>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    if entry.way == Way::Tcp && ROUTES.iter().any(|route| route.path == path && !route.over_tcp) {
        entry.service.counters.count_refusal(entry.way, Refusal::Request);
        let (cause, next) = ("it is served on the Unix socket only", "use `curl --unix-socket`");
        return refused(StatusCode::FORBIDDEN, path, cause, next);
    }
    next.run(request).await
}

fn answer(answer: Result<Bytes, NoAnswer>, content_type: HeaderValue, uri: &Uri) -> Response {
    match answer {
        Ok(bytes) => ([(CONTENT_TYPE, content_type)], bytes).into_response(),
        Err(why) => unavailable(uri.path(), &why.to_string()),
    }
}

async fn events(State(entry): State<Entry>, uri: Uri, headers: HeaderMap) -> Response {
    let Service { events, counters, limits, end, .. } = entry.service;
    // An id that is not a number is none of ours.
    let last = headers.get(LAST_EVENT_ID).and_then(|id| id.to_str().ok()?.parse().ok());
    match events.stream(last.unwrap_or(0), end) {
        Some(stream) => {
            let keep_alive = KeepAlive::new().interval(limits.keep_alive_every);
            Sse::new(stream).keep_alive(keep_alive).into_response()
        }
        None => {
            counters.count_refusal(entry.way, Refusal::EventStreams);
            let cause = format!("{} event streams are open, the maximum", limits.event_streams_max);
            unavailable(uri.path(), &cause)
        }
    }
}

async fn method_not_allowed(State(entry): State<Entry>, method: Method, uri: Uri) -> Response {
    entry.service.counters.count_refusal(entry.way, Refusal::Request);
    let cause = format!("it is not served with {method}");
    let known = ROUTES.iter().find(|route| route.path == uri.path());
    let methods = known.map_or_else(String::new, |route| route.methods.join(", "));
    refused(StatusCode::METHOD_NOT_ALLOWED, uri.path(), &cause, &format!("use one of {methods}"))
}

async fn not_found(State(entry): State<Entry>, request: Request) -> Response {
    entry.service.counters.count_refusal(entry.way, Refusal::Request);
    let next = format!("use one of {}", ROUTES.map(|route| route.path).join(", "));
    refused(StatusCode::NOT_FOUND, request.uri().path(), "there is no such path", &next)
}
