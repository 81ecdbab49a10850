//! Exporter with its thread.

#![expect(clippy::disallowed_methods, reason = "pauses between exports, on threads of their own, are I/O")]

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use orinoco_core::{Clock, Diagnosis, Signal, WithSubject, codes};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

use crate::counts::Counts;
use crate::exported::Run;
use crate::mailbox::{Mailbox, OnNotice};
use crate::notice::{Notice, OtlpSignal};
use crate::outbox::Outbox;
use crate::run_reader::{Requests, RunReader};
use crate::settings::{Settings, Target};

/// Longest time that the end of a run waits for the last requests. An output that nobody reads may hold up the end for 50 s before,
/// and systemd ends the daemon after 60 s.
const FLUSH_MAX: Duration = Duration::from_secs(4);
/// Time beyond [`FLUSH_MAX`] until the thread is left alone: it may hang in the run's own locks.
const END_MARGIN: Duration = Duration::from_secs(1);
/// Next step where the system refuses a thread.
const NEXT_THREAD: &str = "raise the limits on threads and open files (ulimit -u, ulimit -n)";

/// Running exporter. Dropping it ends it as [`Exporter::stop`] does.
pub struct Exporter {
    counts: Arc<Counts>,
    clock: Arc<dyn Clock>,
    /// Says that the run has ended.
    end: watch::Sender<bool>,
    ended: Arc<Ended>,
}

/// End of the exporter's thread.
struct Ended {
    is_over: AtomicBool,
    signal: Arc<dyn Signal>,
}

impl Exporter {
    /// Starts the export of a run. `notify` is called on the exporter's thread, and must not block.
    ///
    /// # Errors
    ///
    /// [`codes::OTLP_SETTINGS`], if the system refuses its thread.
    pub fn start(
        settings: &Settings,
        run: Run,
        notify: impl Fn(Notice) + Send + Sync + 'static,
    ) -> Result<Self, Diagnosis> {
        let runtime = Builder::new_current_thread().enable_io().enable_time().build();
        let runtime = runtime.about(&codes::OTLP_SETTINGS, "OTLP exporter", NEXT_THREAD)?;
        let (counts, clock) = (Arc::new(Counts::default()), Arc::clone(&run.clock));
        let seed = clock.wall().unix_nanos();
        let mailbox = |signal, target: &Target| {
            let seed = seed ^ signal as u64;
            Mailbox::new(signal, target.clone(), Outbox::new(signal, Arc::clone(&counts), seed))
        };
        let tasks = Tasks {
            metrics: settings.metrics.as_ref().map(|metrics| mailbox(OtlpSignal::Metrics, &metrics.target)),
            traces: settings.traces.as_ref().map(|traces| mailbox(OtlpSignal::Traces, &traces.target)),
            reader: RunReader::new(settings, run, Arc::clone(&counts)),
            clock: Arc::clone(&clock),
            notify: Box::new(notify),
        };
        let (end, ends) = watch::channel(false);
        let ended = Arc::new(Ended { is_over: AtomicBool::new(false), signal: clock.signal() });
        let over = OverOnDrop(Arc::clone(&ended));
        let thread = thread::Builder::new().name("otlp".to_owned());
        let thread = thread.spawn(move || {
            let _over = over;
            tasks.run(runtime, ends);
        });
        thread.about(&codes::OTLP_SETTINGS, "OTLP exporter", NEXT_THREAD)?;
        Ok(Self { counts, clock, end, ended })
    }

    /// Returns the counts of the exporter.
    pub fn counts(&self) -> Arc<Counts> {
        Arc::clone(&self.counts)
    }

    /// Sends what is left, and ends the exporter, within 5 s.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.end.send_replace(true);
        let until = self.clock.now() + FLUSH_MAX + END_MARGIN;
        while !self.ended.is_over.load(Ordering::Acquire) && self.clock.now() < until {
            self.ended.signal.wait(Some(until));
        }
    }
}

impl fmt::Debug for Exporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Exporter({:?})", self.counts)
    }
}

/// Reports the end of the thread, also after a panic.
struct OverOnDrop(Arc<Ended>);

impl Drop for OverOnDrop {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Release);
        self.0.signal.notify();
    }
}

/// Work of the exporter's thread.
struct Tasks {
    reader: RunReader,
    metrics: Option<Mailbox>,
    traces: Option<Mailbox>,
    clock: Arc<dyn Clock>,
    notify: Box<OnNotice>,
}

impl Tasks {
    fn run(self, runtime: Runtime, mut ends: watch::Receiver<bool>) {
        let Self { reader, metrics, traces, clock, notify } = self;
        let mailboxes = [&metrics, &traces];
        let (clock, notify) = (&*clock, &*notify);
        let mut flushed = ends.clone();
        runtime.block_on(async {
            let work = async {
                tokio::join!(
                    read(reader, metrics.as_ref(), traces.as_ref(), &mut ends),
                    deliver(metrics.as_ref(), clock, notify),
                    deliver(traces.as_ref(), clock, notify)
                );
            };
            let flush = async {
                wait_for_end(&mut flushed).await;
                tokio::time::sleep(FLUSH_MAX).await;
            };
            tokio::select! {
                () = work => {}
                () = flush => {}
            }
        });
        mailboxes.into_iter().flatten().for_each(|mailbox| mailbox.abandon(notify));
        // A lookup of a host name that never ends must not hold up the end.
        runtime.shutdown_background();
    }
}

/// Reads the run until it ends, and closes the mailboxes.
async fn read(
    mut reader: RunReader,
    metrics: Option<&Mailbox>,
    traces: Option<&Mailbox>,
    ends: &mut watch::Receiver<bool>,
) {
    let mut is_last = false;
    loop {
        let (requests, wait) = reader.read(is_last);
        let Requests { metrics: of_metrics, traces: of_traces } = requests;
        if let Some(mailbox) = metrics {
            of_metrics.into_iter().for_each(|request| mailbox.push(request));
        }
        if let Some(mailbox) = traces {
            of_traces.into_iter().for_each(|request| mailbox.push(request));
        }
        if is_last {
            break;
        }
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = wait_for_end(ends) => is_last = true,
        }
    }
    [metrics, traces].into_iter().flatten().for_each(Mailbox::close);
}

async fn deliver(mailbox: Option<&Mailbox>, clock: &dyn Clock, notify: &OnNotice) {
    if let Some(mailbox) = mailbox {
        mailbox.deliver(clock, notify).await;
    }
}

/// Waits for the end of the run.
async fn wait_for_end(ends: &mut watch::Receiver<bool>) {
    // An error says that the exporter is gone, which is the end, too.
    let _ = ends.wait_for(|ends| *ends).await;
}
