//! Connections of a listener: how many there are, and how long each may wait.

#![expect(clippy::disallowed_methods, reason = "the time-outs of connections are I/O")]

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use orinoco_core::codes;
use tokio::io::AsyncWrite;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

use crate::counters::{Counters, Refusal, Way};
use crate::end::End;
use crate::limits::Limits;
use crate::listeners::Accept;
use crate::refusal::report;
use crate::stall::StallBound;

/// Maximum size of a request's head, in bytes: many times that of any client.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Maximum number of a request's headers.
const HEADERS_MAX: usize = 64;
/// Time until the next attempt where the system refuses a connection, as it does when the process has no file descriptors
/// left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Maximum number of connections that are refused between two looks for a free place: as many as the kernel keeps.
const REFUSED_AT_ONCE_MAX: usize = 128;
/// Maximum time for which the refusal of a connection is written. It fits into the connection's empty buffer at once.
const REFUSAL_WAIT_MAX: Duration = Duration::from_millis(100);

/// Connections of one listener.
pub(crate) struct Connections {
    pub(crate) router: Router,
    pub(crate) way: Way,
    pub(crate) counters: Arc<Counters>,
    pub(crate) limits: Limits,
    pub(crate) end: End,
}

impl Connections {
    /// Accepts and serves connections until the server ends, and then waits for requests in progress.
    pub(crate) async fn serve(self, listener: impl Accept) {
        let places = Arc::new(Semaphore::new(self.limits.connections_max));
        let mut end = self.end.clone();
        loop {
            tokio::select! {
                () = end.wait() => break,
                next = self.next(&listener, &places) => match next {
                    Ok(Some((connection, place))) => {
                        self.counters.count_connection(self.way);
                        tokio::spawn(self.serve_one(connection, place));
                    }
                    Ok(None) => self.refuse_waiting(&listener).await,
                    Err(_) => sleep(ACCEPT_PAUSE).await,
                },
            }
        }
        drop(listener);
        let all = u32::try_from(self.limits.connections_max).unwrap_or(u32::MAX);
        // What is not complete by then is cut off with the runtime.
        let _ = timeout(self.limits.end_wait_max, places.acquire_many(all)).await;
    }

    /// Waits for a place and a connection; `None` if no place got free in time.
    async fn next<L: Accept>(
        &self,
        listener: &L,
        places: &Arc<Semaphore>,
    ) -> io::Result<Option<(L::Connection, OwnedSemaphorePermit)>> {
        let place = timeout(self.limits.place_wait_max, Arc::clone(places).acquire_owned()).await;
        let Ok(place) = place else { return Ok(None) };
        let place = place.expect("the places are never closed");
        let connection = poll_fn(|cx| listener.poll_accept(cx)).await?;
        Ok(Some((connection, place)))
    }

    /// Refuses the connections that wait: no place got free in time, so their clients hear that now.
    async fn refuse_waiting(&self, listener: &impl Accept) {
        let waiting = poll_fn(|cx| {
            let mut refused = Vec::new();
            while refused.len() < REFUSED_AT_ONCE_MAX
                && let Poll::Ready(Ok(connection)) = listener.poll_accept(cx)
            {
                refused.push(connection);
            }
            Poll::Ready(refused)
        });
        for mut connection in waiting.await {
            self.counters.count_refusal(self.way, Refusal::Connections);
            let answer = full_answer(self.limits.connections_max);
            let written = poll_fn(|cx| Pin::new(&mut connection).poll_write(cx, answer.as_bytes()));
            // A client that is gone by now needs no answer.
            let _ = timeout(REFUSAL_WAIT_MAX, written).await;
        }
    }

    /// Serves one connection, until its client leaves, takes too long, or the server ends.
    fn serve_one<C>(&self, connection: C, place: OwnedSemaphorePermit) -> impl Future<Output = ()> + use<C>
    where
        C: tokio::io::AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let io = TokioIo::new(StallBound::new(connection, self.limits.write_stall_max));
        let served = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.request_wait_max)
            .max_buf_size(HEAD_BYTES_MAX)
            .max_headers(HEADERS_MAX)
            .serve_connection(io, TowerToHyperService::new(self.router.clone()));
        let mut end = self.end.clone();
        async move {
            let _place = place;
            let mut served = pin!(served);
            // A connection that fails has lost its client, which nobody else needs to know.
            tokio::select! {
                _ = served.as_mut() => {}
                () = end.wait() => {
                    served.as_mut().graceful_shutdown();
                    let _ = served.await;
                }
            }
        }
    }
}

/// Returns the whole answer to a client that has no place.
fn full_answer(connections_max: usize) -> String {
    let cause = format!("{connections_max} connections are open, the maximum");
    let body = report(&codes::CONTROL_UNAVAILABLE, "connection", &cause, "close some clients, and try again");
    format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         cache-control: no-store\r\nretry-after: 1\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}
