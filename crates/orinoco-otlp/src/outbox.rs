//! Requests that wait for the collector, and the decision when the next one is sent. No I/O, no clock: time and chance are
//! arguments.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Bytes;
use orinoco_core::{Nanos, Rng};

use crate::counts::{Counts, RequestOutcome};
use crate::notice::{NoticeKind, OtlpSignal};

/// Maximum number of requests that wait, with the one that is being sent. Traces wait for 80 s at least, and a request of 512 spans
/// has 0.2 MiB; metrics of a minute each wait for a quarter of an hour, and those of a large board have 0.2 MiB. The oldest are
/// dropped first.
pub(crate) const REQUESTS_MAX: usize = 16;
/// Back-off after the first failure; it doubles with each further one.
const BACK_OFF_MIN: Duration = Duration::from_secs(1);
/// Longest back-off that the exporter chooses.
const BACK_OFF_MAX: Duration = Duration::from_secs(60);
/// Longest wait that a collector may ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);

/// Answer to a request, or its failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The collector has all of it.
    Accepted,
    /// The collector has it, except `rejected` items; or has a warning.
    Partly { rejected: u64, message: String },
    /// It shall be sent again, after a time that the collector may name.
    Retry { after: Option<Duration>, why: String },
    /// It shall not be sent again.
    Refused { why: String },
}

/// Next step of the task that sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// This request is to be sent, and its answer reported.
    Send(Bytes),
    /// The next request is sent at this time.
    WaitUntil(Nanos),
    /// Nothing waits.
    Idle,
}

/// Requests of one signal.
pub(crate) struct Outbox {
    signal: OtlpSignal,
    counts: Arc<Counts>,
    /// Chance for the jitter.
    rng: Rng,
    waiting: VecDeque<Bytes>,
    in_flight: Option<Bytes>,
    /// Number of failures in a row.
    failures: u32,
    /// Time before which nothing is sent.
    not_before: Nanos,
    /// Whether requests fail or are refused, which was reported.
    is_failing: bool,
    /// Whether a partial rejection was reported.
    has_reported_partial: bool,
    /// Whether the run has ended.
    is_closing: bool,
}

impl Outbox {
    /// Creates an empty outbox. `seed` is that of the jitter.
    pub(crate) fn new(signal: OtlpSignal, counts: Arc<Counts>, seed: u64) -> Self {
        Self {
            signal,
            counts,
            rng: Rng::with_seed(seed),
            waiting: VecDeque::with_capacity(REQUESTS_MAX),
            in_flight: None,
            failures: 0,
            not_before: Nanos(0),
            is_failing: false,
            has_reported_partial: false,
            is_closing: false,
        }
    }

    /// Adds a request. If the outbox is full, the oldest that waits is dropped.
    pub(crate) fn push(&mut self, request: Bytes) {
        self.waiting.push_back(request);
        if self.len() > REQUESTS_MAX {
            self.waiting.pop_front();
            self.count(RequestOutcome::Dropped, 1);
        }
    }

    /// Returns what comes next at `now`.
    pub(crate) fn next(&mut self, now: Nanos) -> Next {
        assert!(self.in_flight.is_none(), "one request is sent at a time");
        if self.waiting.is_empty() {
            return Next::Idle;
        }
        if now < self.not_before {
            return Next::WaitUntil(self.not_before);
        }
        let request = self.waiting.pop_front().expect("one waits");
        self.in_flight = Some(request.clone());
        Next::Send(request)
    }

    /// Reports the answer to the request that was sent. Returns what an operator should know.
    pub(crate) fn answered(&mut self, answer: Answer, now: Nanos) -> Option<NoticeKind> {
        let request = self.in_flight.take().expect("a request was sent");
        match answer {
            Answer::Accepted => self.accepted(),
            Answer::Partly { rejected, message } => {
                self.counts.add_rejected(self.signal, rejected);
                let recovered = self.accepted();
                let is_news = !std::mem::replace(&mut self.has_reported_partial, true);
                is_news.then_some(NoticeKind::PartlyRejected { rejected, message }).or(recovered)
            }
            Answer::Retry { after, why } => {
                self.count(RequestOutcome::Failed, 1);
                self.not_before = now + self.back_off(after);
                self.failures = self.failures.saturating_add(1);
                // It is the oldest.
                self.waiting.push_front(request);
                if self.len() > REQUESTS_MAX {
                    self.waiting.pop_front();
                    self.count(RequestOutcome::Dropped, 1);
                }
                self.report_failure(NoticeKind::Failing { why })
            }
            Answer::Refused { why } => {
                self.count(RequestOutcome::Refused, 1);
                self.failures = 0;
                self.report_failure(NoticeKind::Refused { why })
            }
        }
    }

    /// Says that the run has ended: what waits is tried once more, without waiting.
    pub(crate) fn close(&mut self) {
        self.is_closing = true;
        self.not_before = Nanos(0);
    }

    /// Whether the run has ended.
    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing
    }

    /// Drops what is left at the end. Returns what an operator should know.
    pub(crate) fn abandon(&mut self) -> Option<NoticeKind> {
        let requests = self.len() as u64;
        self.waiting.clear();
        self.in_flight = None;
        self.count(RequestOutcome::Dropped, requests);
        (requests > 0).then_some(NoticeKind::Unsent { requests })
    }

    /// Returns the number of requests that are not answered.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len() + usize::from(self.in_flight.is_some())
    }

    fn accepted(&mut self) -> Option<NoticeKind> {
        self.count(RequestOutcome::Accepted, 1);
        self.failures = 0;
        std::mem::take(&mut self.is_failing).then_some(NoticeKind::Recovered)
    }

    fn report_failure(&mut self, notice: NoticeKind) -> Option<NoticeKind> {
        (!std::mem::replace(&mut self.is_failing, true)).then_some(notice)
    }

    /// Returns the time until the next attempt: what the collector asks for and up to a tenth more, else between half and all of
    /// a time that doubles with each failure. So boards that lost their collector together do not come back together.
    fn back_off(&mut self, asked: Option<Duration>) -> Duration {
        if let Some(asked) = asked {
            return asked.min(RETRY_AFTER_MAX).mul_f64(1.0 + 0.1 * self.rng.f64());
        }
        let doubled = BACK_OFF_MIN.saturating_mul(1_u32.checked_shl(self.failures).unwrap_or(u32::MAX));
        doubled.min(BACK_OFF_MAX).mul_f64(0.5 + 0.5 * self.rng.f64())
    }

    fn count(&self, outcome: RequestOutcome, requests: u64) {
        self.counts.add_requests(self.signal, outcome, requests);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn outbox() -> (Outbox, Arc<Counts>) {
        let counts = Arc::new(Counts::default());
        (Outbox::new(OtlpSignal::Traces, Arc::clone(&counts), 7), counts)
    }

    fn request(number: u8) -> Bytes {
        Bytes::copy_from_slice(&[number])
    }

    fn retry(after: Option<u64>) -> Answer {
        Answer::Retry { after: after.map(Duration::from_secs), why: "HTTP 503".to_owned() }
    }

    /// Sends the next request at `now`, which must be due, and reports the answer.
    fn send(outbox: &mut Outbox, answer: Answer, now: u64) -> (u8, Option<NoticeKind>) {
        let Next::Send(request) = outbox.next(Nanos(now)) else { panic!("nothing is due at {now}") };
        (request[0], outbox.answered(answer, Nanos(now)))
    }

    #[test]
    fn requests_are_sent_in_order() {
        let (mut outbox, counts) = outbox();
        assert_eq!(outbox.next(Nanos(0)), Next::Idle);
        (1..=2).for_each(|number| outbox.push(request(number)));
        assert_eq!(send(&mut outbox, Answer::Accepted, 5), (1, None));
        assert_eq!(send(&mut outbox, Answer::Accepted, 5), (2, None));
        assert_eq!(
            (outbox.next(Nanos(5)), counts.requests(OtlpSignal::Traces, RequestOutcome::Accepted)),
            (Next::Idle, 2)
        );
    }

    #[test]
    fn failures_wait_longer_each_time_and_are_reported_once() {
        let (mut outbox, _) = outbox();
        outbox.push(request(1));
        let mut now = 0;
        for (failure, longest) in [1, 2, 4, 8, 16, 32, 60, 60].into_iter().enumerate() {
            let (sent, notice) = send(&mut outbox, retry(None), now);
            assert_eq!((sent, notice.is_some()), (1, failure == 0));
            let Next::WaitUntil(until) = outbox.next(Nanos(now)) else { panic!("it waits") };
            let wait = until.0 - now;
            assert!((longest * SECOND / 2..=longest * SECOND).contains(&wait), "{wait} of {longest} s");
            now = until.0;
        }
        assert_eq!(send(&mut outbox, Answer::Accepted, now), (1, Some(NoticeKind::Recovered)));
        outbox.push(request(2));
        let (_, notice) = send(&mut outbox, retry(None), now);
        assert_eq!(notice, Some(NoticeKind::Failing { why: "HTTP 503".to_owned() }));
        let Next::WaitUntil(until) = outbox.next(Nanos(now)) else { panic!("it waits") };
        assert!(until.0 - now <= SECOND, "the back-off begins again");
    }

    #[test]
    fn a_collector_names_the_wait_within_a_bound() {
        let (mut outbox, _) = outbox();
        outbox.push(request(1));
        for (asked, expected) in [(20, 20), (100_000, 300)] {
            send(&mut outbox, retry(Some(asked)), 0);
            let Next::WaitUntil(until) = outbox.next(Nanos(0)) else { panic!("it waits") };
            assert!((expected * SECOND..=expected * SECOND * 11 / 10).contains(&until.0), "{until:?}");
            outbox.not_before = Nanos(0);
        }
    }

    #[test]
    fn the_oldest_are_dropped_and_counted() {
        let (mut outbox, counts) = outbox();
        (0..100).for_each(|number| outbox.push(request(number)));
        assert_eq!(outbox.len(), REQUESTS_MAX);
        // The one in flight is the oldest; when it comes back to a full outbox, it is dropped.
        assert!(matches!(outbox.next(Nanos(0)), Next::Send(request) if request[0] == 84));
        outbox.push(request(100));
        assert_eq!(outbox.len(), REQUESTS_MAX);
        outbox.push(request(101));
        outbox.answered(retry(None), Nanos(0));
        assert_eq!(outbox.len(), REQUESTS_MAX);
        let dropped = counts.requests(OtlpSignal::Traces, RequestOutcome::Dropped);
        assert_eq!(dropped as usize, 102 - REQUESTS_MAX);
    }

    #[test]
    fn a_refused_request_is_lost_and_the_next_is_sent_at_once() {
        let (mut outbox, counts) = outbox();
        (1..=3).for_each(|number| outbox.push(request(number)));
        let refused = || Answer::Refused { why: "HTTP 400".to_owned() };
        let notice = NoticeKind::Refused { why: "HTTP 400".to_owned() };
        assert_eq!(send(&mut outbox, refused(), 0), (1, Some(notice)));
        assert_eq!(send(&mut outbox, refused(), 0), (2, None));
        assert_eq!(send(&mut outbox, Answer::Accepted, 0), (3, Some(NoticeKind::Recovered)));
        assert_eq!(counts.requests(OtlpSignal::Traces, RequestOutcome::Refused), 2);
    }

    #[test]
    fn a_partial_rejection_is_reported_once_and_not_repeated() {
        let (mut outbox, _) = outbox();
        (1..=2).for_each(|number| outbox.push(request(number)));
        let partly = || Answer::Partly { rejected: 3, message: "too old".to_owned() };
        let notice = NoticeKind::PartlyRejected { rejected: 3, message: "too old".to_owned() };
        assert_eq!(send(&mut outbox, partly(), 0), (1, Some(notice)));
        assert_eq!(send(&mut outbox, partly(), 0), (2, None));
        assert_eq!(outbox.next(Nanos(0)), Next::Idle);
    }

    #[test]
    fn the_end_tries_once_more_and_counts_what_is_left() {
        let (mut outbox, counts) = outbox();
        (1..=2).for_each(|number| outbox.push(request(number)));
        send(&mut outbox, retry(Some(50)), 0);
        outbox.close();
        assert_eq!(send(&mut outbox, retry(None), 1).0, 1);
        assert!(matches!(outbox.next(Nanos(1)), Next::WaitUntil(_)));
        assert_eq!(outbox.abandon(), Some(NoticeKind::Unsent { requests: 2 }));
        assert_eq!(
            (outbox.abandon(), counts.requests(OtlpSignal::Traces, RequestOutcome::Dropped)),
            (None, 2)
        );
    }
}
