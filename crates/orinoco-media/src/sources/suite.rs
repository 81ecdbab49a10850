//! The suite that every source passes. A source joins by being in the list, with its samples.
#![expect(clippy::disallowed_methods, reason = "the suite waits for the threads of real sources")]

use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, Instant};

use orinoco_core::{Clock, DropPolicy, StreamId};
use orinoco_pipeline::{
    Frame, MonotonicClock, Mux, Next, Poll, Reconnect, Source, SourceEnd, SourceError, SourceRunner, Stop,
    StreamQueue,
};
use orinoco_telemetry::{Event, EventSink, Telemetry};
use orinoco_uri::SourceUri;

use super::{
    ALL, MakeSource, SourceDescriptor, SourceSettings, check_source, find, source_files, source_needs,
    source_schemes,
};
use crate::FrameMemory;

/// Bound on whatever a source does: a machine that is busy with other tests delays it.
const BOUND: Duration = Duration::from_secs(20);
/// Time that a look may take in addition to its wait. A frame that is being decoded is waited for.
const LOOK_SLACK: Duration = Duration::from_secs(5);
/// Time without a frame after which a source is taken to wait for its slots.
const HELD_WAIT: Duration = Duration::from_secs(2);
const WAIT: Duration = Duration::from_millis(20);
/// Frames of the ring that a board has unless its file gives another number.
const RING_FRAMES: usize = 4;

/// Samples of a source.
pub(crate) enum Samples {
    /// Sources that can be read on any machine.
    Here(Vec<Sample>),
    /// None, for want of this.
    Lacking(&'static str),
}

/// Effect of opening a source again once it has given frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reopened {
    /// It starts from its beginning.
    Begins,
    /// It goes on: no frame is lost, and none comes twice.
    Continues,
    /// It fails for good: it cannot go on, and its first frames would come twice.
    Fails,
}

/// A source that can be read on any machine.
pub(crate) struct Sample {
    /// URI that leads to it.
    pub(crate) uri: String,
    /// Frames that it delivers to its end.
    pub(crate) frames: usize,
    /// Effect of opening it again once it has given frames.
    pub(crate) reopened: Reopened,
    /// Makes the source, where what the URI leads to is not the test's to read.
    pub(crate) make: Option<MakeSource>,
}

impl Sample {
    /// A source of so many frames, read from its URI.
    pub(crate) fn new(uri: impl Display, frames: usize) -> Self {
        Self { uri: uri.to_string(), frames, reopened: Reopened::Begins, make: None }
    }

    fn uri(&self) -> SourceUri {
        SourceUri::parse_with(&self.uri, &source_schemes()).unwrap_or_else(|why| panic!("{why}"))
    }

    fn source(&self, of: &SourceDescriptor) -> Box<dyn Source> {
        let settings = SourceSettings {
            stream_name: "suite",
            memory: FrameMemory::Host,
            queue_frames: RING_FRAMES,
            clock: Arc::new(MonotonicClock::default()),
        };
        let source = self.make.unwrap_or(of.make)(&self.uri(), settings);
        source.unwrap_or_else(|why| panic!("{why}"))
    }
}

/// Calls `check` for each sample of each source.
fn each(check: impl Fn(&SourceDescriptor, &Sample)) {
    for source in ALL {
        let folder = tempfile::tempdir().expect("a temporary folder");
        match (source.samples)(folder.path()) {
            Samples::Here(samples) => {
                assert!(!samples.is_empty(), "a source has samples, or says what it lacks");
                samples.iter().for_each(|sample| check(source, sample));
            }
            Samples::Lacking(what) => assert!(!what.is_empty(), "what a source lacks has a name"),
        }
    }
}

/// Looks once, for a bounded time.
fn look(source: &mut dyn Source, what: &str) -> Poll {
    let begin = Instant::now();
    let poll = source.next(WAIT).unwrap_or_else(|why| panic!("{what}: {}", why.diagnosis()));
    assert!(begin.elapsed() < WAIT + LOOK_SLACK, "{what}: it looked for {:?}", begin.elapsed());
    poll
}

/// Takes frames until `frames_max` of them are there or the source ends; returns them with whether it ended.
fn take(source: &mut dyn Source, frames_max: usize, what: &str) -> (Vec<Frame>, bool) {
    let (begin, mut frames) = (Instant::now(), Vec::new());
    while frames.len() < frames_max {
        assert!(begin.elapsed() < BOUND, "{what}: {} of {frames_max} frames in {BOUND:?}", frames.len());
        match look(source, what) {
            Poll::Frame(frame) => frames.push(frame),
            Poll::Pending | Poll::Waiting => {}
            Poll::End => return (frames, true),
        }
    }
    (frames, false)
}

fn open(source: &mut dyn Source, what: &str) {
    source.open().unwrap_or_else(|why| panic!("{what}: {}", why.diagnosis()));
}

/// PTS of all frames to the end, in nanoseconds. No frame is held.
fn read_to_end(source: &mut dyn Source, frames_max: usize, what: &str) -> Vec<u64> {
    let mut times = Vec::new();
    loop {
        let (frames, ended) = take(source, 1, what);
        times.extend(frames.iter().map(|frame| frame.desc.pts.0));
        if ended {
            return times;
        }
        assert!(times.len() <= frames_max, "{what}: more than its {frames_max} frames");
    }
}

#[test]
fn the_first_that_opens_a_sample_is_its_own() {
    each(|source, sample| {
        let found = find(&sample.uri()).unwrap_or_else(|why| panic!("{why}"));
        assert!(std::ptr::eq(found, source), "{}: another source opens it", sample.uri);
        if sample.make.is_none() {
            check_source(&sample.uri()).unwrap_or_else(|why| panic!("{why}"));
            let missing: Vec<_> =
                source_files(&sample.uri()).into_iter().filter(|path| !path.exists()).collect();
            assert!(missing.is_empty(), "{}: {missing:?} are not there", sample.uri);
        }
    });
}

#[test]
fn schemes_are_new_and_written_in_lower_case() {
    let schemes = source_schemes();
    for (index, scheme) in schemes.iter().enumerate() {
        assert_eq!(scheme.name, scheme.name.to_ascii_lowercase());
        assert!(!schemes[..index].iter().any(|other| other.name == scheme.name), "{} twice", scheme.name);
        let known = SourceUri::parse(&format!("{}://x", scheme.name));
        let cause = known.expect_err("it is not one of orinoco-uri's").cause;
        assert!(cause.contains("is not a kind of source"), "{cause}");
    }
}

#[test]
fn every_frame_comes_once_in_order_and_then_the_end() {
    each(|descriptor, sample| {
        let mut source = sample.source(descriptor);
        open(&mut *source, &sample.uri);
        let times = read_to_end(&mut *source, sample.frames, &sample.uri);
        assert_eq!(times.len(), sample.frames, "{}", sample.uri);
        assert!(times.is_sorted_by(|a, b| a < b), "{}: {times:?}", sample.uri);
        // The end stays the end.
        for _ in 0..2 {
            assert!(matches!(look(&mut *source, &sample.uri), Poll::End), "{}", sample.uri);
        }
        source.close();
    });
}

#[test]
fn frames_describe_their_bytes() {
    each(|descriptor, sample| {
        let mut source = sample.source(descriptor);
        open(&mut *source, &sample.uri);
        let (frames, _) = take(&mut *source, 1, &sample.uri);
        let frame = frames.first().expect("there is one");
        assert!(frame.desc.width > 0 && frame.desc.height > 0, "{:?}", frame.desc);
        assert!(frame.view().packed_rows().count() > 0, "{:?}", frame.desc);
        source.close();
    });
}

#[test]
fn closing_is_allowed_at_any_time_and_opening_again_does_what_it_says() {
    each(|descriptor, sample| {
        let mut source = sample.source(descriptor);
        source.close();
        open(&mut *source, &sample.uri);
        let (frames, _) = take(&mut *source, 1, &sample.uri);
        assert_eq!(frames.len(), 1, "{}", sample.uri);
        let begin = Instant::now();
        source.close();
        source.close();
        assert!(begin.elapsed() < BOUND, "{}: closing took {:?}", sample.uri, begin.elapsed());
        // A frame outlives the source that lent it.
        assert!(frames.iter().all(|frame| frame.view().packed_rows().count() > 0));
        let expected = match sample.reopened {
            Reopened::Begins => sample.frames,
            Reopened::Continues => sample.frames - 1,
            Reopened::Fails => {
                let failed = source.open();
                assert!(matches!(failed, Err(SourceError::Permanent(_))), "{}: {failed:?}", sample.uri);
                return source.close();
            }
        };
        open(&mut *source, &sample.uri);
        assert_eq!(read_to_end(&mut *source, sample.frames, &sample.uri).len(), expected, "{}", sample.uri);
        // Dropping it closes it.
    });
}

#[test]
fn slots_are_as_many_as_it_needs_and_come_back() {
    each(|descriptor, sample| {
        let needs = source_needs(&sample.uri(), RING_FRAMES);
        let mut source = sample.source(descriptor);
        open(&mut *source, &sample.uri);
        let mut held = Vec::new();
        // One that has fewer slots than the sample has frames gives no more until one is returned.
        let mut latest = Instant::now();
        while held.len() < sample.frames && latest.elapsed() < HELD_WAIT {
            match look(&mut *source, &sample.uri) {
                Poll::Frame(frame) => {
                    held.push(frame);
                    latest = Instant::now();
                }
                Poll::Waiting if source.frames_max() == Some(held.len()) => break,
                Poll::Waiting | Poll::Pending => {}
                Poll::End => break,
            }
        }
        assert!(!held.is_empty(), "{}", sample.uri);
        if needs.slots > 0 {
            assert_eq!(source.frames_max(), Some(needs.slots), "{}", sample.uri);
            assert!(held.len() <= needs.slots, "{}: {} of {needs:?}", sample.uri, held.len());
            let largest = held.iter().map(|frame| frame.desc.bytes_needed() as u64).max();
            assert_eq!(largest, Some(needs.frame_bytes), "{}", sample.uri);
        }
        let delivered = held.len();
        held.clear();
        let rest = read_to_end(&mut *source, sample.frames, &sample.uri);
        assert_eq!(delivered + rest.len(), sample.frames, "{}: no frame is lost to a wait", sample.uri);
        source.close();
    });
}

/// Nobody is told what a source does.
struct Quiet;

impl EventSink for Quiet {
    fn emit(&self, _: Event) {}
}

#[test]
fn a_runner_numbers_its_frames_and_stops_it_within_a_bound() {
    each(|descriptor, sample| {
        let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::default());
        let (telemetry, stop) = (Telemetry::new(1).stream(StreamId(0)), Stop::default());
        let mux = Mux::new(clock.clone());
        let (policy, batch_wait) = (DropPolicy::Block, Duration::ZERO);
        let queue = StreamQueue { group: 0, frames_max: RING_FRAMES, policy, batch_wait };
        let runner = SourceRunner {
            shown: sample.uri.clone(),
            source: sample.source(descriptor),
            frame_sender: mux.add(telemetry.clone(), queue, 1).expect("open"),
            reconnect: Reconnect { attempts_max: None, stall: BOUND },
            frames_max: None,
            clock,
            seed: 1,
            events: Arc::new(Quiet),
            telemetry,
            stop: stop.clone(),
        };
        let runner = std::thread::spawn(move || runner.run());
        // Half of them, so that most samples are stopped before their end.
        let mut batch = Vec::new();
        for number in 0..sample.frames.div_ceil(2) as u64 {
            // A stream that joins is news without a frame.
            while batch.is_empty() {
                assert!(mux.next(&mut batch).is_some(), "{}: {number} frames", sample.uri);
            }
            let numbers: Vec<u64> = batch.drain(..).map(|frame| frame.desc.seq).collect();
            assert_eq!(numbers, [number], "{}", sample.uri);
        }
        let begin = Instant::now();
        stop.request();
        // The lane goes on until the stream has left: a source that waits for room is not asked.
        while !matches!(mux.next(&mut batch), Some((Next::Left(_), _)) | None) {}
        let end = runner.join().expect("it does not panic");
        assert!(begin.elapsed() < BOUND, "{}: it stopped after {:?}", sample.uri, begin.elapsed());
        // A short one has ended by itself.
        assert!(matches!(end, SourceEnd::Stopped | SourceEnd::Complete), "{}: {end:?}", sample.uri);
    });
}
