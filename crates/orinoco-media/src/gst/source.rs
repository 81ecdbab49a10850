use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gstreamer as gst;
use orinoco_core::{Clock, Diagnosis, Nanos, Pts, PtsClock, codes};
use orinoco_pipeline::{Frame, Poll, Source, SourceError};
use orinoco_uri::{CsiAddress, HttpAddress, Pace, RtspAddress, SourceKind, SourceUri};

use super::GstError;
use super::facts::{PipelineFacts, Progress};
use super::faults::{CsiFault, FileFault, Protocol, ServerFault, is_network};
use super::frames::{FrameBuilder, FrameError};
use super::session::{Caller, PipelineState, Session};
use crate::FrameMemory;
use crate::container::{self, Wholeness};
use crate::local_file::check_file;
use crate::pace::Pacer;

/// Maximum time in which a file must give its first frame. Local disks need milliseconds; this allows for a network.
const FILE_OPEN_MAX: Duration = Duration::from_secs(10);
/// Maximum time in which a truncated file must give its first frame. `decodebin` loses the error of a demuxer that
/// gives up while it is still being connected, so such a file may give neither a frame nor an error.
const CUT_OPEN_MAX: Duration = Duration::from_secs(5);
/// Maximum time in which a camera must answer and send its first packet.
const LIVE_OPEN_MAX: Duration = Duration::from_secs(5);
/// Maximum time for which damaged frames at the start of a live stream are dropped: more than the interval between key
/// frames of most cameras.
const DAMAGED_MAX: Duration = Duration::from_secs(5);
/// Time that a camera has for one answer. It is longer than the time for opening, so that only the latter limit applies
/// and is reported.
const LIVE_ANSWER_MAX: Duration = Duration::from_secs(6);
const _: () = assert!(LIVE_ANSWER_MAX.as_secs() > LIVE_OPEN_MAX.as_secs());
/// Time that a web server has for one answer; also longer than the time for opening.
const FILE_ANSWER_MAX: Duration = Duration::from_secs(11);
const _: () = assert!(FILE_ANSWER_MAX.as_secs() > FILE_OPEN_MAX.as_secs());
/// Duration of a pass's last frame if it is unknown: 40 ms, in nanoseconds.
const INTERVAL_DEFAULT_NANOS: u64 = 40_000_000;
/// Maximum time of one wait while the source opens.
const OPEN_STEP: Duration = Duration::from_millis(100);

/// Source of video files, live streams and CSI cameras, through GStreamer. Frames are lent: they borrow the decoder's
/// own buffers.
///
/// Frames are upright: where the container has a rotation, it has been applied. The PTS of a file is that of its
/// container, with edit lists applied; containers that start at an arbitrary time (MPEG-TS and MPEG-PS) are counted
/// from their first frame. The PTS of a live stream is counted from its opening.
///
/// A file that stops after its first frames is not opened again, because these would come twice; but a file on a disk
/// that repeats is. While frames are lent, a file does not count as stopped, because its decoder may have no free
/// buffer.
///
/// A live stream that is joined between two key frames begins with frames of which most is missing. Those that its
/// decoder marks as damaged are counted as lost, until a good one comes or 5 s have passed: a stream with gradual
/// refresh may have no good one.
///
/// Consumers that hold frames in a Jetson's video memory hold output buffers of its converter, which has few. Frames of
/// a live stream that would take its last buffers are lost.
///
/// For a file, [`Source::open`] returns within 10 s, after the first frame; for a camera within 5 s, after the first
/// packet.
pub struct GstSource {
    input: Input,
    shown: String,
    name: String,
    clock: Arc<dyn Clock>,
    memory: FrameMemory,
    lent: Arc<AtomicUsize>,
    /// Whether it has given a frame, after this opening or an earlier one.
    given: bool,
    run: Option<Run>,
}

enum Input {
    File { path: PathBuf, repeat: bool, pace: Pace },
    HttpFile { address: HttpAddress, repeat: bool, pace: Pace },
    Rtsp(RtspAddress),
    HttpCamera(HttpAddress),
    Csi(CsiAddress),
}

impl Input {
    fn is_live(&self) -> bool {
        matches!(self, Self::Rtsp(_) | Self::HttpCamera(_) | Self::Csi(_))
    }

    fn repeats(&self) -> bool {
        matches!(self, Self::File { repeat: true, .. } | Self::HttpFile { repeat: true, .. })
    }

    fn pace(&self) -> Pace {
        match self {
            Self::File { pace, .. } | Self::HttpFile { pace, .. } => *pace,
            Self::Rtsp(_) | Self::HttpCamera(_) | Self::Csi(_) => Pace::Free,
        }
    }

    fn protocol(&self) -> Protocol {
        if let Self::Rtsp(_) = self { Protocol::Rtsp } else { Protocol::Http }
    }
}

/// State from one opening to the next closing.
struct Run {
    session: Session,
    builder: FrameBuilder,
    timeline: Timeline,
    wholeness: Wholeness,
    pacer: Pacer,
    /// Frame that is already decoded, but was not requested yet or is not due.
    early: Option<Frame>,
    /// Number of all frames.
    frames: u64,
    /// Number of frames since the last start from the beginning of the file.
    pass_frames: u64,
    /// Time until which damaged frames at the start are dropped.
    good_by: Nanos,
    /// Number of damaged frames that were dropped since the last frame.
    lost: u64,
}

/// Converts the media time of each pass to one that never goes back.
#[derive(Clone, Copy, Default)]
struct Timeline {
    base: u64,
    /// Media time of the start of the pass.
    zero: u64,
    end: u64,
    last: u64,
}

impl Timeline {
    fn place(&self, media: Option<u64>) -> Pts {
        Pts(media.map_or(self.end, |time| self.base.saturating_add(time.saturating_sub(self.zero))))
    }

    fn advance(&mut self, pts: Pts, interval: Option<u64>) {
        let interval = interval.unwrap_or(pts.0.saturating_sub(self.last));
        self.last = pts.0;
        self.end = self.end.max(pts.0.saturating_add(interval));
    }

    fn start_again(&mut self) {
        if self.end <= self.last {
            self.end = self.last.saturating_add(INTERVAL_DEFAULT_NANOS);
        }
        self.base = self.end;
    }
}

impl GstSource {
    /// Creates the source at `uri`, a video file, RTSP, HTTP or a CSI camera. Nothing is opened yet.
    pub fn new(uri: &SourceUri, stream_name: &str, clock: Arc<dyn Clock>) -> Result<Self, Diagnosis> {
        let shown = uri.to_string();
        let input = match uri.kind().clone() {
            SourceKind::Video { path, repeat, pace } => Input::File { path, repeat, pace },
            SourceKind::HttpVideo { address, repeat, pace } => Input::HttpFile { address, repeat, pace },
            SourceKind::Rtsp(address) => Input::Rtsp(address),
            SourceKind::HttpCamera(address) => Input::HttpCamera(address),
            SourceKind::Csi(address) => Input::Csi(address),
            SourceKind::Images { .. }
            | SourceKind::Camera(_)
            | SourceKind::Stdin(_)
            | SourceKind::Test(_)
            | SourceKind::Cluster
            | SourceKind::Other(_) => {
                let next = "name a video file, csi://, rtsp:// or http://";
                return Err(Diagnosis::new(&codes::SOURCE_URI, shown, "it is not for GStreamer", next));
            }
        };
        super::init().map_err(|error| error.about(&codes::SOURCE_OPEN, &shown))?;
        Ok(Self {
            input,
            shown,
            name: stream_name.to_owned(),
            clock,
            memory: FrameMemory::Host,
            lent: Arc::default(),
            given: false,
            run: None,
        })
    }

    /// Leaves frames in `memory`, if the elements that produce them can. NVMM is for consumers that read it without the
    /// host: such frames have no bytes, but a dma-buf.
    pub fn in_memory(self, memory: FrameMemory) -> Self {
        Self { memory, ..self }
    }

    /// Returns the number of frames that have not been dropped yet. Each holds a decoder's buffer, also after
    /// [`Source::close`].
    pub fn frames_lent(&self) -> usize {
        self.lent.load(Ordering::Relaxed)
    }

    /// Starts the session without waiting.
    fn start(&self) -> Result<Session, SourceError> {
        let started = self.session();
        started.map_err(|error| SourceError::Permanent(error.about(&codes::SOURCE_OPEN, &self.shown)))
    }

    fn session(&self) -> Result<Session, GstError> {
        let clock = Arc::clone(&self.clock);
        let caller = Caller { name: &self.name, clock, memory: self.memory };
        match &self.input {
            Input::File { path, .. } => Session::file(path, &caller),
            Input::HttpFile { address, .. } => Session::http_file(address, FILE_ANSWER_MAX, &caller),
            Input::Rtsp(address) => Session::rtsp(address, LIVE_ANSWER_MAX, &caller),
            Input::HttpCamera(address) => Session::http_camera(address, LIVE_ANSWER_MAX, &caller),
            Input::Csi(address) => Session::csi(address, &caller),
        }
    }

    fn inspect(&self) -> Result<Wholeness, FileFault> {
        let Input::File { path, .. } = &self.input else { return Ok(Wholeness::Whole) };
        check_file(path).map_err(FileFault::File)?;
        let wholeness = container::inspect(path).map_err(FileFault::Uninspected)?;
        FileFault::of_lengths(wholeness).map_or(Ok(wholeness), Err)
    }

    fn pts_clock(&self) -> PtsClock {
        if self.input.is_live() { PtsClock::Arrival } else { PtsClock::Media }
    }

    /// Waits for the first frame of a file, or the first packet of a camera.
    fn wait_for_start(&mut self) -> Result<(), SourceError> {
        let wholeness = self.run.as_ref().map_or(Wholeness::Whole, |run| run.wholeness);
        let bound = match (self.input.is_live(), wholeness) {
            (true, _) => LIVE_OPEN_MAX,
            (false, Wholeness::Cut { .. }) => CUT_OPEN_MAX,
            (false, _) => FILE_OPEN_MAX,
        };
        let deadline = self.clock.now() + bound;
        loop {
            match self.poll(OPEN_STEP)? {
                Poll::Frame(frame) => {
                    self.run.as_mut().expect("it is open").early = Some(frame);
                    return Ok(());
                }
                // Damaged frames show that the camera sends, too.
                Poll::Waiting if self.input.is_live() => return Ok(()),
                Poll::Pending | Poll::Waiting => {}
                Poll::End => return Ok(()),
            }
            if self.run.as_ref().is_some_and(|run| run.session.watch.heard.load(Ordering::Relaxed)) {
                return Ok(());
            }
            if self.clock.now() >= deadline {
                let seconds = bound.as_secs();
                return Err(match (&self.input, wholeness) {
                    (Input::File { .. }, Wholeness::Cut { promised, held }) => {
                        FileFault::CutOff { promised, held }.about(&self.shown)
                    }
                    (Input::File { .. }, _) => FileFault::Silent { seconds }.about(&self.shown),
                    (Input::Csi(_), _) => CsiFault::Silent { seconds }.about(&self.shown),
                    _ => ServerFault::Silent { seconds }.about(&self.shown),
                });
            }
        }
    }

    fn poll(&mut self, wait: Duration) -> Result<Poll, SourceError> {
        let Some(run) = &mut self.run else { return Ok(Poll::Pending) };
        let error = match run.session.look(wait) {
            PipelineState::Frame(sample) => return self.deliver(&sample),
            PipelineState::Nothing if !self.input.is_live() && self.frames_lent() > 0 => {
                return Ok(Poll::Waiting);
            }
            PipelineState::Nothing => return Ok(Poll::Pending),
            PipelineState::End => None,
            PipelineState::Failed(message) => Some(message),
        };
        self.end(error)
    }

    fn deliver(&mut self, sample: &gst::Sample) -> Result<Poll, SourceError> {
        let now = self.clock.now();
        let clock = self.pts_clock();
        let live = self.input.is_live();
        let run = self.run.as_mut().expect("a frame comes from an open session");
        if live && run.frames == 0 && now < run.good_by && is_damaged(sample) {
            run.lost += 1;
            return Ok(Poll::Waiting);
        }
        // Consumers hold all buffers that the converter can lend. A file waits for them; of a camera this frame is
        // lost, because otherwise all later ones would be.
        if live && run.builder.surfaces_lent() >= run.session.watch.surfaces_max() {
            run.lost += 1;
            return Ok(Poll::Waiting);
        }
        match run.frame(sample, clock, now) {
            Ok(frame) => Ok(Poll::Frame(frame)),
            Err(error) => Err(SourceError::Permanent(error.about(&self.shown))),
        }
    }

    /// Handles the end of the stream, with or without an error. All frames have been delivered.
    fn end(&mut self, message: Option<gst::Message>) -> Result<Poll, SourceError> {
        let run = self.run.as_mut().expect("only an open session ends");
        let seen: PipelineFacts = run.session.watch.seen().clone();
        let error = message.as_ref().and_then(|message| match message.view() {
            gst::MessageView::Error(error) => Some(error),
            _ => None,
        });
        let progress = if run.frames > 0 { Progress::Frames } else { Progress::Nothing };
        match (&self.input, error) {
            (Input::Rtsp(_) | Input::HttpCamera(_), error) => {
                let fault = ServerFault::of_end(self.input.protocol(), progress, &seen, error);
                return Err(fault.about(&self.shown));
            }
            (Input::HttpFile { .. }, Some(error)) if is_network(error) => {
                let fault = match progress {
                    Progress::Nothing => ServerFault::of_end(Protocol::Http, progress, &seen, Some(error)),
                    Progress::Frames => ServerFault::FileLost,
                };
                return Err(fault.about(&self.shown));
            }
            (Input::Csi(_), error) => return Err(CsiFault::of_end(error).about(&self.shown)),
            _ => {}
        }
        let error = error.map(|error| error.error());
        if let Some(fault) = FileFault::of_end(run.wholeness, progress, &seen, error.as_ref()) {
            return Err(fault.about(&self.shown));
        }
        // A pass without a frame would repeat at once, without end.
        if !self.input.repeats() || run.pass_frames == 0 {
            return Ok(Poll::End);
        }
        run.timeline.start_again();
        run.pass_frames = 0;
        // Seeking needs a server that serves parts of a file, and few report correctly whether they do.
        let exact = matches!(self.input, Input::File { .. });
        if !exact || !run.session.rewind() {
            let session = self.start()?;
            self.run.as_mut().expect("it is open").session = session;
        }
        Ok(Poll::Pending)
    }

    /// Delivers the frame if it is due within `wait`.
    fn at_its_time(&mut self, mut frame: Frame, wait: Duration) -> Poll {
        let run = self.run.as_mut().expect("a frame comes from an open session");
        if !run.pacer.wait(frame.desc.pts, wait) {
            run.early = Some(frame);
            return Poll::Waiting;
        }
        if self.input.pace() == Pace::Pts {
            // Until now it waited like the frames that are still in the file.
            frame.arrived = self.clock.now();
        }
        Poll::Frame(frame)
    }
}

impl Run {
    fn frame(&mut self, sample: &gst::Sample, clock: PtsClock, now: Nanos) -> Result<Frame, FrameError> {
        let raw = sample.buffer().and_then(|buffer| buffer.pts());
        let segment = sample.segment().and_then(|segment| segment.downcast_ref::<gst::ClockTime>());
        let media = match (raw, segment, clock) {
            (Some(raw), Some(segment), PtsClock::Media) => segment.to_stream_time(raw),
            (Some(raw), Some(segment), _) => segment.to_running_time(raw),
            (raw, ..) => raw,
        };
        let media = media.map(|time| time.nseconds());
        if self.pass_frames == 0 && clock == PtsClock::Media && self.session.watch.seen().free_clock {
            self.timeline.zero = media.unwrap_or(0);
        }
        let pts = self.timeline.place(media);
        let (mut frame, interval) = self.builder.frame(sample, self.session.watch.turn(), pts, now)?;
        self.timeline.advance(pts, interval);
        frame.decode = raw.and_then(|raw| self.session.watch.times().take(raw.nseconds()));
        frame.decode_cpu = self.session.watch.take_decoder_cpu();
        frame.lost = std::mem::take(&mut self.lost) + self.session.watch.take_cut_off();
        self.frames += 1;
        self.pass_frames += 1;
        Ok(frame)
    }
}

/// Whether the decoder marks parts of a frame as missing, as before the first key frame of a stream that was joined
/// between two.
fn is_damaged(sample: &gst::Sample) -> bool {
    sample.buffer().is_some_and(|buffer| buffer.flags().contains(gst::BufferFlags::CORRUPTED))
}

impl Source for GstSource {
    fn open(&mut self) -> Result<(), SourceError> {
        self.close();
        match self.input {
            Input::HttpFile { .. } if self.given => {
                return Err(ServerFault::FileStalled.about(&self.shown));
            }
            Input::File { repeat: false, .. } if self.given => {
                return Err(FileFault::Stalled.about(&self.shown));
            }
            _ => {}
        }
        let wholeness = self.inspect().map_err(|fault| fault.about(&self.shown))?;
        let session = self.start()?;
        let builder = FrameBuilder::new(self.pts_clock(), Arc::clone(&self.lent));
        let timeline = Timeline::default();
        let pacer = Pacer::new(self.input.pace(), Arc::clone(&self.clock));
        self.run = Some(Run {
            session,
            builder,
            timeline,
            wholeness,
            pacer,
            early: None,
            frames: 0,
            pass_frames: 0,
            good_by: self.clock.now() + DAMAGED_MAX,
            lost: 0,
        });
        let started = self.wait_for_start();
        if started.is_err() {
            self.close();
        }
        started
    }

    fn next(&mut self, wait: Duration) -> Result<Poll, SourceError> {
        let begin = self.clock.now();
        let poll = match self.run.as_mut().and_then(|run| run.early.take()) {
            Some(frame) => Poll::Frame(frame),
            None => self.poll(wait)?,
        };
        let left = wait.saturating_sub(self.clock.now().since(begin));
        let poll = match poll {
            Poll::Frame(frame) => self.at_its_time(frame, left),
            other => other,
        };
        self.given |= matches!(poll, Poll::Frame(_));
        Ok(poll)
    }

    fn close(&mut self) {
        self.run = None;
    }

    fn decoder(&self) -> Option<String> {
        self.run.as_ref().and_then(|run| run.session.watch.decoder())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_follow_one_another() {
        let mut timeline = Timeline::default();
        let mut seen = Vec::new();
        for _ in 0..2 {
            for media in [0, 40, 80] {
                let pts = timeline.place(Some(media));
                timeline.advance(pts, Some(40));
                seen.push(pts.0);
            }
            timeline.start_again();
        }
        assert_eq!(seen, [0, 40, 80, 120, 160, 200]);
    }

    #[test]
    fn frames_without_times_follow_the_last_one() {
        let mut timeline = Timeline::default();
        for (media, expected) in [(Some(0), 0), (Some(40), 40), (None, 80), (None, 120)] {
            let pts = timeline.place(media);
            timeline.advance(pts, None);
            assert_eq!(pts, Pts(expected));
        }
    }
}
