//! Outbox between the task that collects and the task that sends.

#![expect(clippy::disallowed_methods, reason = "pauses between exports, on threads of their own, are I/O")]

use std::time::Duration;

use hyper::body::Bytes;
use orinoco_core::Clock;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::client;
use crate::notice::{Notice, NoticeKind, OtlpSignal};
use crate::outbox::{Next, Outbox};
use crate::settings::Target;

/// Receiver of notices.
pub(crate) type OnNotice = dyn Fn(Notice) + Send + Sync;

/// Outbox of one signal with its collector.
pub(crate) struct Mailbox {
    signal: OtlpSignal,
    target: Target,
    outbox: Mutex<Outbox>,
    /// Notified when a request came or the run has ended.
    changed: Notify,
}

impl Mailbox {
    pub(crate) fn new(signal: OtlpSignal, target: Target, outbox: Outbox) -> Self {
        Self { signal, target, outbox: Mutex::new(outbox), changed: Notify::new() }
    }

    /// Adds a request. It never waits.
    pub(crate) fn push(&self, request: Bytes) {
        self.outbox.lock().push(request);
        self.changed.notify_one();
    }

    /// Says that no request follows.
    pub(crate) fn close(&self) {
        self.outbox.lock().close();
        self.changed.notify_one();
    }

    /// Sends what comes, until the mailbox is closed and empty, or a request fails after that.
    pub(crate) async fn deliver(&self, clock: &dyn Clock, notify: &OnNotice) {
        loop {
            let (next, is_closing) = {
                let mut outbox = self.outbox.lock();
                (outbox.next(clock.now()), outbox.is_closing())
            };
            match next {
                Next::Send(request) => {
                    let answer = client::send(self.signal, &self.target, request, clock).await;
                    let notice = self.outbox.lock().answered(answer, clock.now());
                    self.report(notice, notify);
                }
                Next::Idle | Next::WaitUntil(_) if is_closing => return,
                Next::Idle => self.changed.notified().await,
                Next::WaitUntil(until) => self.wait(until.since(clock.now())).await,
            }
        }
    }

    /// Drops what was not sent.
    pub(crate) fn abandon(&self, notify: &OnNotice) {
        let notice = self.outbox.lock().abandon();
        self.report(notice, notify);
    }

    /// Waits for a time, or for the end of the run.
    async fn wait(&self, time: Duration) {
        tokio::select! {
            () = tokio::time::sleep(time) => {}
            () = self.changed.notified() => {}
        }
    }

    fn report(&self, notice: Option<NoticeKind>, notify: &OnNotice) {
        notice.into_iter().for_each(|kind| notify(Notice { signal: self.signal, kind }));
    }
}
