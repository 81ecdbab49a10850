//! Meaning of a collector's answer.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper::StatusCode;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use orinoco_core::WallTime;
use prost::Message;

use crate::notice::OtlpSignal;
use crate::outbox::Answer;

/// Maximum length of a collector's message in a notice, in bytes.
const MESSAGE_BYTES_MAX: usize = 200;

/// Answer of a collector, as it came.
pub(crate) struct RawAnswer<'a> {
    pub(crate) status: StatusCode,
    /// Value of the header `Retry-After`.
    pub(crate) retry_after: Option<&'a str>,
    pub(crate) body: &'a [u8],
}

/// Body of a refusal (`google.rpc.Status`), of which only the message is read.
#[derive(Clone, PartialEq, Message)]
struct RpcStatus {
    #[prost(string, tag = "2")]
    message: String,
}

/// Returns what an answer means. Only these are repeated: 429, 502, 503 and 504 (OTLP 1.x, "Retryable Response Codes").
pub(crate) fn answer(signal: OtlpSignal, raw: &RawAnswer<'_>, now: WallTime) -> Answer {
    match raw.status.as_u16() {
        200..=299 => accepted(signal, raw.body),
        429 | 502 | 503 | 504 => {
            let after = raw.retry_after.and_then(|text| retry_after(text, now));
            Answer::Retry { after, why: refusal(raw) }
        }
        _ => Answer::Refused { why: refusal(raw) },
    }
}

/// Returns what a body says about rejected data. One that cannot be read says nothing: the status is that of success.
fn accepted(signal: OtlpSignal, body: &[u8]) -> Answer {
    let partial = match signal {
        OtlpSignal::Metrics => ExportMetricsServiceResponse::decode(body)
            .ok()
            .and_then(|answer| answer.partial_success)
            .map(|partial| (partial.rejected_data_points, partial.error_message)),
        OtlpSignal::Traces => ExportTraceServiceResponse::decode(body)
            .ok()
            .and_then(|answer| answer.partial_success)
            .map(|partial| (partial.rejected_spans, partial.error_message)),
    };
    match partial {
        None => Answer::Accepted,
        // The field may be there without saying anything.
        Some((0, message)) if message.is_empty() => Answer::Accepted,
        Some((rejected, message)) => {
            Answer::Partly { rejected: u64::try_from(rejected).unwrap_or_default(), message: shown(&message) }
        }
    }
}

/// Returns the status of a refusal with the collector's message.
fn refusal(raw: &RawAnswer<'_>) -> String {
    let message = RpcStatus::decode(raw.body).map(|status| shown(&status.message)).unwrap_or_default();
    match message.as_str() {
        "" => format!("HTTP {}", raw.status),
        message => format!("HTTP {}: {message}", raw.status),
    }
}

/// Returns a message of another program on one line and within a bound.
fn shown(message: &str) -> String {
    let line = message.replace(char::is_control, " ");
    let line = line.trim();
    line[..line.floor_char_boundary(MESSAGE_BYTES_MAX)].to_owned()
}

/// Returns the time of the header `Retry-After`: seconds, or a time of day (RFC 9110, section 10.2.3).
fn retry_after(text: &str, now: WallTime) -> Option<Duration> {
    if let Ok(seconds) = text.trim().parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at: SystemTime = httpdate::parse_http_date(text).ok()?;
    let now = Duration::from_nanos(now.unix_nanos());
    Some(at.duration_since(UNIX_EPOCH).ok()?.saturating_sub(now))
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};
    use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsPartialSuccess;

    fn check(status: u16, retry_after: Option<&str>, body: &[u8], expected: Expect) {
        let status = StatusCode::from_u16(status).expect("a status");
        let now = WallTime::from_unix_nanos(1_700_000_000 * 1_000_000_000);
        let answer = answer(OtlpSignal::Metrics, &RawAnswer { status, retry_after, body }, now);
        expected.assert_eq(&format!("{answer:?}"));
    }

    #[test]
    fn success_may_be_partial() {
        let partly = |rejected_data_points, error_message: &str| {
            let error_message = error_message.to_owned();
            let partial_success = Some(ExportMetricsPartialSuccess { rejected_data_points, error_message });
            ExportMetricsServiceResponse { partial_success }.encode_to_vec()
        };
        check(200, None, &[], expect!["Accepted"]);
        check(200, None, b"<html>", expect!["Accepted"]);
        check(200, None, &partly(0, ""), expect!["Accepted"]);
        check(200, None, &partly(4, "too\nold"), expect![[r#"Partly { rejected: 4, message: "too old" }"#]]);
        check(
            200,
            None,
            &partly(0, "deprecated"),
            expect![[r#"Partly { rejected: 0, message: "deprecated" }"#]],
        );
    }

    #[test]
    fn four_codes_are_repeated() {
        check(
            429,
            Some("7"),
            &[],
            expect![[r#"Retry { after: Some(7s), why: "HTTP 429 Too Many Requests" }"#]],
        );
        // Ten seconds after the test's present.
        check(
            503,
            Some("Tue, 14 Nov 2023 22:13:30 GMT"),
            &[],
            expect![[r#"Retry { after: Some(10s), why: "HTTP 503 Service Unavailable" }"#]],
        );
        check(
            503,
            Some("Tue, 14 Nov 2023 22:13:10 GMT"),
            &[],
            expect![[r#"Retry { after: Some(0ns), why: "HTTP 503 Service Unavailable" }"#]],
        );
        check(502, Some("soon"), &[], expect![[r#"Retry { after: None, why: "HTTP 502 Bad Gateway" }"#]]);
        check(504, None, &[], expect![[r#"Retry { after: None, why: "HTTP 504 Gateway Timeout" }"#]]);
    }

    #[test]
    fn other_codes_are_final() {
        let status = RpcStatus { message: format!("bad {}", "x".repeat(500)) };
        check(
            400,
            None,
            &status.encode_to_vec(),
            expect![[
                r#"Refused { why: "HTTP 400 Bad Request: bad xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx" }"#
            ]],
        );
        check(404, None, b"not protobuf", expect![[r#"Refused { why: "HTTP 404 Not Found" }"#]]);
        check(301, Some("5"), &[], expect![[r#"Refused { why: "HTTP 301 Moved Permanently" }"#]]);
        check(500, None, &[], expect![[r#"Refused { why: "HTTP 500 Internal Server Error" }"#]]);
    }
}
