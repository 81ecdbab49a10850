//! One request to a collector: HTTP/1.1 over TCP, one connection each, with one time-out over everything.

#![expect(clippy::disallowed_methods, reason = "the time-out of a connection is I/O")]

use http_body_util::{BodyExt, Full, Limited};
use hyper::Request;
use hyper::body::Bytes;
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT};
use hyper_util::rt::TokioIo;
use orinoco_core::{Clock, WallTime};
use tokio::net::TcpStream;

use crate::answer::{RawAnswer, answer};
use crate::notice::OtlpSignal;
use crate::outbox::Answer;
use crate::settings::Target;

/// Maximum size of an answer. It is a few bytes, or a message.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Sends a request, and returns the answer. A connection that fails or does not answer in time is repeated.
pub(crate) async fn send(signal: OtlpSignal, target: &Target, body: Bytes, clock: &dyn Clock) -> Answer {
    let now = clock.wall();
    let answered = tokio::time::timeout(target.timeout, exchange(signal, target, body, now)).await;
    let at = |why: String| format!("{}: {why}", target.endpoint);
    match answered {
        Ok(Ok(Answer::Retry { after, why })) => Answer::Retry { after, why: at(why) },
        Ok(Ok(Answer::Refused { why })) => Answer::Refused { why: at(why) },
        Ok(Ok(answer)) => answer,
        Ok(Err(why)) => Answer::Retry { after: None, why: at(why.to_string()) },
        Err(_) => {
            let why = format!("no answer within {:.1} s", target.timeout.as_secs_f64());
            Answer::Retry { after: None, why: at(why) }
        }
    }
}

/// Reason why there is no answer.
type NoAnswer = Box<dyn std::error::Error + Send + Sync>;

async fn exchange(
    signal: OtlpSignal,
    target: &Target,
    body: Bytes,
    now: WallTime,
) -> Result<Answer, NoAnswer> {
    let stream = TcpStream::connect((target.endpoint.host(), target.endpoint.port())).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // The connection ends with the request: the task is dropped with what it still had to read.
    let connection = AbortOnDrop(tokio::spawn(connection));
    let mut request = Request::post(target.endpoint.path())
        .header(HOST, target.endpoint.authority())
        .header(CONTENT_TYPE, "application/x-protobuf")
        .header(CONNECTION, "close")
        .header(USER_AGENT, concat!("orinoco/", env!("CARGO_PKG_VERSION")))
        .body(Full::new(body))
        .expect("a checked path and plain headers");
    request.headers_mut().extend(target.headers.to_map());
    let answered = sender.send_request(request).await?;
    let (head, body) = answered.into_parts();
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await?.to_bytes();
    drop(connection);
    let retry_after = head.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    Ok(answer(signal, &RawAnswer { status: head.status, retry_after, body: &body }, now))
}

/// Task that ends when this is dropped, also by a time-out.
struct AbortOnDrop<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
