//! Answers that are faults.

use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use axum::response::{IntoResponse, Response};
use orinoco_api::ErrorReport;
use orinoco_core::{Code, Diagnosis, codes};

/// Content type of every JSON answer.
pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Returns the answer to a request that failed with `why`.
pub(crate) fn faulty(status: StatusCode, why: &Diagnosis) -> Response {
    answer(status, why.code, &why.subject, &why.cause, &why.next)
}

/// Returns the answer to a request that is refused for what it is.
pub(crate) fn refused(status: StatusCode, subject: &str, cause: &str, next: &str) -> Response {
    answer(status, &codes::CONTROL_REQUEST, subject, cause, next)
}

/// Returns the answer to a request that may succeed later.
pub(crate) fn unavailable(subject: &str, cause: &str) -> Response {
    let next = "try again; the daemon's log says what it does (journalctl -u orinocod)";
    let status = StatusCode::SERVICE_UNAVAILABLE;
    let mut answer = answer(status, &codes::CONTROL_UNAVAILABLE, subject, cause, next);
    answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    answer
}

fn answer(status: StatusCode, code: &'static Code, subject: &str, cause: &str, next: &str) -> Response {
    (status, [(CONTENT_TYPE, JSON)], report(code, subject, cause, next)).into_response()
}

/// Returns an error report as JSON.
pub(crate) fn report(code: &'static Code, subject: &str, cause: &str, next: &str) -> String {
    let report = ErrorReport::new(&[Diagnosis::new(code, subject, cause, next)]);
    serde_json::to_string(&report).expect("a report has only text")
}
