//! GStreamer pipeline of one source, from its creation to its end.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use gstreamer as gst;
use gstreamer::glib;
use gstreamer::prelude::*;
use gstreamer_app as app;
use gstreamer_video as video;
use orinoco_core::Clock;
use orinoco_uri::{CsiAddress, HttpAddress, RtspAddress, Transport};

use super::colours::{self, COLORIMETRY, StreamColours};
use super::edits;
use super::facts::PipelineFacts;
use super::frames::Turn;
use super::hardware::{self, CONVERTER, NVMM};
use super::presentation::{FrameTimes, PacketTimes, PresentationTimes};
use super::timing::{DecodeTimes, ThreadHold};
use super::{GstError, chain, make};
use crate::FrameMemory;
use crate::cpu_time::DecoderCpu;
use crate::jpeg::{self, LiveCheck};

/// Maximum number of decoded frames that wait in the sink: one to take, one in production.
const FRAMES_MAX: u32 = 2;
/// Maximum number of frames in NVMM that wait in the sink; buffers are few there.
const SURFACES_WAITING: u32 = 1;
const _: () = assert!(SURFACES_ON_THE_WAY == SURFACES_WAITING + 2);
/// Threads of one software decoder. Frame threads would delay every frame by as many frames, and the cores are better
/// used for more streams and for inference.
const DECODER_THREADS: i32 = 1;
/// Time for which RTSP waits for packets that arrive out of order, in milliseconds.
const JITTER_MS: u32 = 200;
/// Maximum size of one part of an HTTP camera's answer, in bytes: an 8K JPEG at the best quality has half of it.
const PART_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Time for which a file's error waits for frames that are still in the pipeline. Most errors bring an end of stream,
/// which ends the wait. For a camera there is no such wait, because its loss should be reported at once.
const DRAIN_WAIT: Duration = Duration::from_millis(500);
/// Maximum time of one wait for the pipeline, so that an error is seen soon.
const LOOK_WAIT: Duration = Duration::from_millis(20);

/// Number of output buffers that NVIDIA's converter is asked for: those that a ring, a batch and the sinks hold, and
/// [`SURFACES_ON_THE_WAY`].
const SURFACES: u32 = 16;
/// Number of output buffers that NVIDIA's converter has by default (`output-buffers`, Jetson Linux), also where it
/// cannot be set.
const SURFACES_DEFAULT: u32 = 4;
const SURFACES_PROPERTY: &str = "output-buffers";
/// Number of output buffers that cannot be lent: those that wait in the sink, the one being filled, and the one being
/// taken.
const SURFACES_ON_THE_WAY: u32 = 3;
const _: () = assert!(SURFACES_DEFAULT > SURFACES_ON_THE_WAY);

/// State that the pipeline's own threads update.
pub(super) struct Watch {
    clock: Arc<dyn Clock>,
    times: Mutex<DecodeTimes>,
    seen: Mutex<PipelineFacts>,
    /// Whether the first packet has come from the network.
    pub(super) heard: AtomicBool,
    /// Name of the element that decodes or captures.
    decoder: Mutex<Option<String>>,
    /// Whether NVIDIA's converter rotates by a quarter turn, which turns lines into columns.
    quarter_turn: AtomicBool,
    colours: Mutex<StreamColours>,
    /// Number of truncated packets since the last frame.
    cut_off: AtomicU64,
    /// Number of output buffers of NVIDIA's converter.
    surfaces: AtomicU32,
    /// Processor time of the decoder since the last frame, where it is known.
    decoder_cpu: Mutex<Option<Duration>>,
}

impl Watch {
    /// Returns the element that decodes or captures, once it is known.
    pub(super) fn decoder(&self) -> Option<String> {
        self.decoder.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records a decoder. If several were tried, the last one is in use.
    fn note_decoder(&self, element: &gst::Element) {
        let name = element.factory().map(|factory| factory.name().to_string());
        *self.decoder.lock().unwrap_or_else(PoisonError::into_inner) = name;
    }

    /// Returns the rotation that NVIDIA's converter applies to frames that stay in NVMM.
    pub(super) fn turn(&self) -> Turn {
        if self.quarter_turn.load(Ordering::Relaxed) { Turn::Quarter } else { Turn::Lines }
    }

    /// Returns the number of truncated packets that were dropped, and resets it.
    pub(super) fn take_cut_off(&self) -> u64 {
        self.cut_off.swap(0, Ordering::Relaxed)
    }

    /// Takes the decoder's processor time since this was taken last; `None` where it is not known.
    pub(super) fn take_decoder_cpu(&self) -> Option<Duration> {
        self.decoder_cpu.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn add_decoder_cpu(&self, took: Duration) {
        let mut total = self.decoder_cpu.lock().unwrap_or_else(PoisonError::into_inner);
        *total = Some(total.unwrap_or_default() + took);
    }

    /// Returns the maximum number of frames that may be lent from NVIDIA's converter. With one more it would stop, and
    /// the camera before it.
    pub(super) fn surfaces_max(&self) -> usize {
        (self.surfaces.load(Ordering::Relaxed) - SURFACES_ON_THE_WAY) as usize
    }

    fn colours(&self) -> MutexGuard<'_, StreamColours> {
        self.colours.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn times(&self) -> MutexGuard<'_, DecodeTimes> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn seen(&self) -> MutexGuard<'_, PipelineFacts> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Running pipeline. Dropping it stops its threads.
pub(super) struct Session {
    pipeline: gst::Pipeline,
    sink: app::AppSink,
    bus: gst::Bus,
    /// State that its threads update.
    pub(super) watch: Arc<Watch>,
    failure: Option<gst::Message>,
    drain_wait: Duration,
    quiet: Duration,
    memory: FrameMemory,
    clocks: FrameClock,
}

/// Result of waiting for the pipeline.
pub(super) enum PipelineState {
    /// Decoded frame.
    Frame(gst::Sample),
    /// Nothing arrived within the time.
    Nothing,
    /// End of the stream, after the last frame.
    End,
    /// Error, after the last frame.
    Failed(gst::Message),
}

/// Settings that a session takes from its caller.
pub(super) struct Caller<'a> {
    /// Name of the stream, for debuggers.
    pub(super) name: &'a str,
    /// Source of time.
    pub(super) clock: Arc<dyn Clock>,
    /// Memory in which frames should be.
    pub(super) memory: FrameMemory,
}

impl Session {
    /// Starts to read a file.
    pub(super) fn file(path: &Path, caller: &Caller<'_>) -> Result<Self, GstError> {
        let mut session = Self::new(caller, ThreadHold::Subtracted, FrameClock::Container)?;
        session.drain_wait = DRAIN_WAIT;
        let source = make("filesrc", "gstreamer1.0-plugins-base")?;
        source.set_property("location", path);
        if let Some(patch) = edits::longer_duration(path) {
            edits::apply(patch, &source);
        }
        let decode = session.add_decoder()?;
        chain(&session.pipeline, &[&source, &decode]);
        Ok(session.started())
    }

    /// Starts to receive an RTSP stream. The server has `answer_max` for each answer.
    pub(super) fn rtsp(
        address: &RtspAddress,
        answer_max: Duration,
        caller: &Caller<'_>,
    ) -> Result<Self, GstError> {
        let session = Self::new(caller, ThreadHold::Counted, FrameClock::Arrival)?;
        let source = make("rtspsrc", "gstreamer1.0-plugins-good")?;
        let answer_max = u64::try_from(answer_max.as_micros()).unwrap_or(u64::MAX);
        source.set_property("location", &address.location);
        source.set_property("user-id", &address.user);
        source.set_property("user-pw", &address.password);
        source.set_property("latency", JITTER_MS);
        source.set_property("drop-on-latency", true);
        source.set_property("tcp-timeout", answer_max);
        source.set_property("timeout", answer_max);
        let transport = match address.transport {
            Transport::Tcp => "tcp",
            Transport::Udp => "udp",
        };
        source.set_property_from_str("protocols", transport);
        let decode = session.add_decoder()?;
        session.pipeline.add_many([&source, &decode]).expect("new elements are in no other pipeline");
        take_first_video(&source, &decode, &session.watch);
        Ok(session.started())
    }

    /// Starts to read a video file from a web server, which has `answer_max` for each answer.
    pub(super) fn http_file(
        address: &HttpAddress,
        answer_max: Duration,
        caller: &Caller<'_>,
    ) -> Result<Self, GstError> {
        let mut session = Self::new(caller, ThreadHold::Subtracted, FrameClock::Container)?;
        session.drain_wait = DRAIN_WAIT;
        let source = make_http(address, answer_max)?;
        let decode = session.add_decoder()?;
        chain(&session.pipeline, &[&source, &decode]);
        Ok(session.started())
    }

    /// Starts to receive a camera's JPEG images over HTTP. The camera has `answer_max` for each answer.
    pub(super) fn http_camera(
        address: &HttpAddress,
        answer_max: Duration,
        caller: &Caller<'_>,
    ) -> Result<Self, GstError> {
        let session = Self::new(caller, ThreadHold::Counted, FrameClock::Arrival)?;
        let source = make_http(address, answer_max)?;
        source.set_property("is-live", true);
        let parts = make("multipartdemux", "gstreamer1.0-plugins-good")?;
        let decode = session.add_decoder()?;
        chain(&session.pipeline, &[&source, &parts]);
        session.pipeline.add(&decode).expect("a new element is in no other pipeline");
        bound_parts(&source, &parts);
        take_frames(&session.pipeline, &parts, &decode, &session.watch);
        Ok(session.started())
    }

    /// Starts to capture from a CSI camera, with NVIDIA's own element.
    pub(super) fn csi(address: &CsiAddress, caller: &Caller<'_>) -> Result<Self, GstError> {
        let session = Self::new(caller, ThreadHold::Subtracted, FrameClock::Arrival)?;
        if let Some(why) = hardware::refusal(hardware::CAMERA) {
            return Err(GstError::NoCamera(why));
        }
        let source = make(hardware::CAMERA, "nvidia-l4t-gstreamer")?;
        source.set_property_from_str("sensor-id", &address.sensor.to_string());
        let only = make("capsfilter", "gstreamer1.0-plugins-base")?;
        only.set_property("caps", csi_caps(address));
        let entry = session.add_way_in()?;
        chain(&session.pipeline, &[&source, &only]);
        session.watch.note_decoder(&source);
        let heard = Arc::clone(&session.watch);
        let pad = only.static_pad("src").expect("a capsfilter has a source pad");
        pad.add_probe(gst::PadProbeType::BUFFER, move |_, _| {
            heard.heard.store(true, Ordering::Relaxed);
            gst::PadProbeReturn::Remove
        });
        let features = gst::CapsFeatures::new([NVMM]);
        link_to(&session.pipeline, &pad, Some(&features), &entry, session.memory, &session.watch);
        Ok(session.started())
    }

    /// Creates a pipeline that contains only its sink.
    fn new(caller: &Caller<'_>, held: ThreadHold, clocks: FrameClock) -> Result<Self, GstError> {
        let (element, package) = ("appsink", "gstreamer1.0-plugins-base");
        let sink = make(element, package)?.downcast::<app::AppSink>();
        let sink = sink.map_err(|_| GstError::WrongType { element, package })?;
        let mut caps = raw_caps(&["I420", "NV12", "RGB", "BGR", "GRAY8"]);
        if caller.memory == FrameMemory::Nvmm {
            caps.merge(nvmm_caps());
        }
        sink.set_caps(Some(&caps));
        let is_nvmm = caller.memory == FrameMemory::Nvmm;
        sink.set_property("max-buffers", if is_nvmm { SURFACES_WAITING } else { FRAMES_MAX });
        sink.set_property("drop", false);
        // Pacing happens where frames are taken: a sink that waits would look like an input without data.
        sink.set_property("sync", false);
        sink.set_property("qos", false);
        // Otherwise the sink would keep a reference to the last buffer, which then could not return to its decoder.
        sink.set_property("enable-last-sample", false);
        accept_padded_frames(&sink.static_pad("sink").expect("a sink has a sink pad"));
        // GLib aborts on a name with a NUL.
        let pipeline = gst::Pipeline::with_name(&caller.name.replace('\0', ""));
        let bus = pipeline.bus().expect("a pipeline has a bus");
        let watch = Arc::new(Watch {
            clock: Arc::clone(&caller.clock),
            times: Mutex::new(DecodeTimes::new(held)),
            seen: Mutex::default(),
            heard: AtomicBool::new(false),
            decoder: Mutex::default(),
            quarter_turn: AtomicBool::new(false),
            colours: Mutex::default(),
            cut_off: AtomicU64::new(0),
            surfaces: AtomicU32::new(SURFACES_DEFAULT),
            decoder_cpu: Mutex::default(),
        });
        let (drain_wait, quiet) = (Duration::ZERO, Duration::ZERO);
        let memory = caller.memory;
        Ok(Self { pipeline, sink, bus, watch, failure: None, drain_wait, quiet, memory, clocks })
    }

    /// Adds the elements from raw video to the sink.
    fn add_way_in(&self) -> Result<SinkBranch, GstError> {
        let convert = make("videoconvert", "gstreamer1.0-plugins-base")?;
        let only = make("capsfilter", "gstreamer1.0-plugins-base")?;
        // It comes after the conversion, because it cannot rotate every format. Upright frames pass through.
        let turn = make("videoflip", "gstreamer1.0-plugins-good")?;
        turn.set_property_from_str("video-direction", "auto");
        self.pipeline.add(&self.sink).expect("a new element is in no other pipeline");
        Ok(SinkBranch { convert, only, turn, sink: self.sink.clone() })
    }

    /// Adds the decoder and connects it to the sink. Returns the element that takes the undecoded stream.
    fn add_decoder(&self) -> Result<gst::Element, GstError> {
        let decode = make("decodebin", "gstreamer1.0-plugins-base")?;
        let entry = self.add_way_in()?;
        // Streams that cannot become raw video are neither decoded nor exposed.
        decode.set_property("caps", gst::Caps::builder("video/x-raw").any_features().build());
        decode.set_property("expose-all-streams", false);
        let watch = Arc::clone(&self.watch);
        decode.connect("autoplug-continue", false, move |arguments| {
            if let Some(Ok(caps)) = arguments.get(2).map(|value| value.get::<gst::Caps>()) {
                watch.seen().note_stream(&caps);
            }
            Some(true.to_value())
        });
        let (pipeline, memory, watch) = (self.pipeline.downgrade(), self.memory, Arc::clone(&self.watch));
        decode.connect_pad_added(move |_, pad| {
            let Some(pipeline) = pipeline.upgrade() else { return };
            if entry.is_taken() {
                return;
            }
            let caps = pad.current_caps();
            entry.only.set_property("caps", caps.as_ref().map(|caps| formats_for(caps)));
            let features = caps.as_ref().and_then(|caps| caps.features(0));
            link_to(&pipeline, pad, features, &entry, memory, &watch);
        });
        let (watch, clocks) = (Arc::clone(&self.watch), self.clocks);
        self.pipeline.connect_deep_element_added(move |_, _, element| {
            if is_of_class(element, "Codec/Decoder") {
                let cpu = tune_decoder(element).then(DecoderCpu::default);
                let decoder = Arc::new(Mutex::new(DecoderClock::new(clocks, cpu)));
                watch_packets(element, &watch, &decoder);
                watch_frames(element, &watch, &decoder);
                watch.note_decoder(element);
            } else if is_of_class(element, "Codec/Parser") {
                read_stream_colours(element, &watch);
            }
        });
        Ok(decode)
    }

    /// Starts the pipeline. A failure arrives on the bus, like every other.
    fn started(self) -> Self {
        let _ = self.pipeline.set_state(gst::State::Playing);
        self
    }

    /// Waits at most `wait` for a frame.
    pub(super) fn look(&mut self, wait: Duration) -> PipelineState {
        let mut left = wait;
        loop {
            self.read_bus();
            let step = left.min(LOOK_WAIT);
            let time = gst::ClockTime::from_nseconds(u64::try_from(step.as_nanos()).unwrap_or(u64::MAX));
            if let Some(sample) = self.sink.try_pull_sample(time) {
                self.quiet = Duration::ZERO;
                return PipelineState::Frame(sample);
            }
            if self.sink.is_eos() {
                // An error that ends a stream comes before the end of stream, but perhaps after the bus was read above.
                self.read_bus();
                return self.failure.take().map_or(PipelineState::End, PipelineState::Failed);
            }
            if self.failure.is_some() {
                self.quiet += step.max(Duration::from_millis(1));
                if self.quiet >= self.drain_wait {
                    return self.failure.take().map_or(PipelineState::End, PipelineState::Failed);
                }
            }
            if left <= step {
                return PipelineState::Nothing;
            }
            left -= step;
        }
    }

    /// Seeks to the start. Returns whether the stream can seek.
    pub(super) fn rewind(&mut self) -> bool {
        let flags = gst::SeekFlags::FLUSH | gst::SeekFlags::ACCURATE;
        self.pipeline.seek_simple(flags, gst::ClockTime::ZERO).is_ok()
    }

    /// Reads all messages from the bus: unread ones would pile up, and keep elements alive.
    fn read_bus(&mut self) {
        while let Some(message) = self.bus.pop() {
            match message.view() {
                gst::MessageView::Error(_) => {
                    self.failure.get_or_insert(message);
                }
                gst::MessageView::Element(element) => {
                    if let Some(structure) = element.structure() {
                        self.watch.seen().note_message(structure);
                    }
                }
                _ => {}
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Stopping cannot fail, and an error would have no consequence here.
        let _ = self.pipeline.set_state(gst::State::Null);
    }
}

/// Tells upstream elements that frames may have padding, so that decoders pass their own buffers instead of tight
/// copies.
fn accept_padded_frames(pad: &gst::Pad) {
    pad.add_probe(gst::PadProbeType::QUERY_DOWNSTREAM, |_, info| {
        if let Some(query) = info.query_mut()
            && let gst::QueryViewMut::Allocation(allocation) = query.view_mut()
        {
            allocation.add_allocation_meta::<video::VideoMeta>(None);
            return gst::PadProbeReturn::Handled;
        }
        gst::PadProbeReturn::Ok
    });
}

fn raw_caps(formats: &[&str]) -> gst::Caps {
    gst::Caps::builder("video/x-raw").field("format", gst::List::new(formats.iter().copied())).build()
}

/// Returns the formats to which a decoded stream is converted. By itself, `videoconvert` would convert 4:2:2 to BGR,
/// which loses less, but is twice as large and has no matrix and range for a later encoder.
fn formats_for(decoded: &gst::CapsRef) -> gst::Caps {
    let info = video::VideoInfo::from_caps(decoded).ok();
    let full =
        info.as_ref().is_some_and(|info| info.colorimetry().range() == video::VideoColorRange::Range0_255);
    match info {
        Some(info) if info.is_yuv() => raw_caps(&["I420", "NV12"]),
        // Orinoco's grey format has full range.
        Some(info) if info.is_gray() && !full => raw_caps(&["I420"]),
        Some(info) if info.is_gray() => raw_caps(&["GRAY8"]),
        Some(_) => raw_caps(&["RGB", "BGR"]),
        // NVMM, whose frames are YUV.
        None => raw_caps(&["I420", "NV12"]),
    }
}

/// Elements from raw video to the sink. Frames in NVMM need none of the first three, which are added when they are
/// connected.
struct SinkBranch {
    convert: gst::Element,
    only: gst::Element,
    turn: gst::Element,
    sink: app::AppSink,
}

impl SinkBranch {
    fn is_taken(&self) -> bool {
        self.sink.static_pad("sink").is_some_and(|pad| pad.is_linked())
    }

    fn link(&self, pipeline: &gst::Pipeline, from: &gst::Pad, watch: &Arc<Watch>) {
        let elements = [&self.convert, &self.only, &self.turn];
        pipeline.add_many(elements).expect("new elements are in no other pipeline");
        let linked = gst::Element::link_many([&self.convert, &self.only, &self.turn, self.sink.upcast_ref()]);
        linked.expect("the elements were chosen to fit");
        for element in elements.into_iter().rev() {
            // A failure here is reported as an error of the pipeline, like a link that fails below.
            let _ = element.sync_state_with_parent();
        }
        if let Some(target) = self.convert.static_pad("sink") {
            let watch = Arc::clone(watch);
            change_caps(&target, move |caps| colours::complete(caps, &watch.colours()));
            let _ = from.link(&target);
        }
    }
}

/// Connects a stream of raw video. May run on GStreamer's thread.
///
/// NVIDIA's elements leave frames in NVMM, where they may be stored in blocks. The converter copies them to host
/// memory, or stores their rows one after another.
fn link_to(
    pipeline: &gst::Pipeline,
    pad: &gst::Pad,
    features: Option<&gst::CapsFeaturesRef>,
    entry: &SinkBranch,
    memory: FrameMemory,
    watch: &Arc<Watch>,
) {
    let is_nvmm = features.is_some_and(|features| features.contains(NVMM));
    let converter = gst::ElementFactory::make(CONVERTER).build();
    let (true, Ok(converter)) = (is_nvmm, converter) else { return entry.link(pipeline, pad, watch) };
    if pipeline.add(&converter).is_err() || converter.sync_state_with_parent().is_err() {
        return;
    }
    let (Some(sink), Some(src)) = (converter.static_pad("sink"), converter.static_pad("src")) else { return };
    match memory {
        FrameMemory::Host => entry.link(pipeline, &src, watch),
        FrameMemory::Nvmm => {
            let count = converter.find_property(SURFACES_PROPERTY);
            if count.is_some_and(|property| property.value_type() == glib::Type::U32) {
                converter.set_property(SURFACES_PROPERTY, SURFACES);
                watch.surfaces.store(SURFACES, Ordering::Relaxed);
            }
            turn_by_converter(&converter, &sink, watch);
            let target = entry.sink.static_pad("sink").expect("a sink has a sink pad");
            let _ = src.link(&target);
        }
    }
    // As above, a failed link is reported as an error of the pipeline.
    let _ = pad.link(&sink);
}

/// Lets the converter rotate frames upright as the stream's tags say, which `videoflip` does for frames in host memory.
fn turn_by_converter(converter: &gst::Element, sink: &gst::Pad, watch: &Arc<Watch>) {
    let (converter, watch) = (converter.downgrade(), Arc::clone(watch));
    sink.add_probe(gst::PadProbeType::EVENT_DOWNSTREAM, move |_, info| {
        let tags = info.event().and_then(|event| match event.view() {
            gst::EventView::Tag(event) => Some(event.tag_owned()),
            _ => None,
        });
        let turn =
            tags.and_then(|tags| tags.get::<gst::tags::ImageOrientation>().map(|turn| turn.get().to_owned()));
        // Values of `flip-method` (nvvidconv) that rotate the frame upright.
        let method = match turn.as_deref() {
            Some("rotate-90") => "clockwise",
            Some("rotate-180") => "rotate-180",
            Some("rotate-270") => "counterclockwise",
            _ => return gst::PadProbeReturn::Ok,
        };
        watch.quarter_turn.store(method != "rotate-180", Ordering::Relaxed);
        if let Some(converter) = converter.upgrade() {
            converter.set_property_from_str("flip-method", method);
        }
        gst::PadProbeReturn::Ok
    });
}

/// Returns the caps of frames in NVMM, as NVIDIA's converter makes them.
fn nvmm_caps() -> gst::Caps {
    gst::Caps::builder("video/x-raw").features([NVMM]).field("format", "NV12").build()
}

fn csi_caps(address: &CsiAddress) -> gst::Caps {
    let mut caps = nvmm_caps();
    let fields = caps.make_mut().structure_mut(0).expect("it has one structure");
    let side = |pixels: u32| i32::try_from(pixels).expect("a side fits");
    if let Some(width) = address.width {
        fields.set("width", side(width));
    }
    if let Some(height) = address.height {
        fields.set("height", side(height));
    }
    if let Some(rate) = address.rate {
        fields.set("framerate", gst::Fraction::new(side(rate.frames()), side(rate.seconds())));
    }
    caps
}

/// Selects the first video stream of an RTSP server, and connects it when it appears.
fn take_first_video(source: &gst::Element, decode: &gst::Element, watch: &Arc<Watch>) {
    let chosen = AtomicBool::new(false);
    let told = Arc::clone(watch);
    source.connect("select-stream", false, move |arguments| {
        let caps = arguments.get(2).and_then(|value| value.get::<gst::Caps>().ok());
        let Some(caps) = caps else { return Some(false.to_value()) };
        let kind = caps.structure(0).and_then(|structure| structure.get::<&str>("media").ok());
        let take = kind == Some("video") && !chosen.swap(true, Ordering::Relaxed);
        let mut seen = told.seen();
        seen.video |= kind == Some("video");
        seen.other |= kind != Some("video");
        Some(take.to_value())
    });
    let (decode, watch) = (decode.clone(), Arc::clone(watch));
    source.connect_pad_added(move |_, pad| {
        let Some(target) = decode.static_pad("sink").filter(|target| !target.is_linked()) else { return };
        let _ = pad.link(&target);
        let watch = Arc::clone(&watch);
        pad.add_probe(gst::PadProbeType::BUFFER | gst::PadProbeType::BUFFER_LIST, move |_, _| {
            watch.heard.store(true, Ordering::Relaxed);
            gst::PadProbeReturn::Remove
        });
    });
}

/// Creates the element for HTTP. It does not retry, because the source's runner does.
fn make_http(address: &HttpAddress, answer_max: Duration) -> Result<gst::Element, GstError> {
    let source = make("souphttpsrc", "gstreamer1.0-plugins-good")?;
    source.set_property("location", &address.location);
    source.set_property("user-id", &address.user);
    source.set_property("user-pw", &address.password);
    source.set_property("retries", 0i32);
    source.set_property("timeout", u32::try_from(answer_max.as_secs()).unwrap_or(u32::MAX));
    Ok(source)
}

/// Fails a camera whose part does not end, because the demuxer collects a whole part in memory, whatever its length.
fn bound_parts(source: &gst::Element, parts: &gst::Element) {
    let gathered = Arc::new(AtomicUsize::new(0));
    let fresh = Arc::clone(&gathered);
    parts.connect_pad_added(move |_, pad| {
        let fresh = Arc::clone(&fresh);
        pad.add_probe(gst::PadProbeType::BUFFER, move |_, _| {
            fresh.store(0, Ordering::Relaxed);
            gst::PadProbeReturn::Ok
        });
    });
    let (Some(entry), source) = (parts.static_pad("sink"), source.downgrade()) else { return };
    entry.add_probe(gst::PadProbeType::BUFFER, move |_, info| {
        let length = info.buffer().map_or(0, |buffer| buffer.size());
        if gathered.fetch_add(length, Ordering::Relaxed) + length <= PART_BYTES_MAX {
            return gst::PadProbeReturn::Ok;
        }
        if let Some(source) = source.upgrade() {
            gst::element_error!(
                source,
                gst::StreamError::Demux,
                ("a part of its multipart stream is too large")
            );
        }
        info.flow_res = Err(gst::FlowError::Error);
        gst::PadProbeReturn::Handled
    });
}

/// Connects the images among the parts of a camera's answer, and sets their time to when they were complete.
///
/// The demuxer knows the time of a network block at best, and none for the second image in it.
fn take_frames(pipeline: &gst::Pipeline, parts: &gst::Element, decode: &gst::Element, watch: &Arc<Watch>) {
    let (pipeline, decode, watch) = (pipeline.downgrade(), decode.downgrade(), Arc::clone(watch));
    parts.connect_pad_added(move |_, pad| {
        let Some(target) = decode.upgrade().and_then(|decode| decode.static_pad("sink")) else { return };
        let kind = pad.current_caps().and_then(|caps| caps.structure(0).map(|caps| caps.name().to_string()));
        if target.is_linked() || !kind.is_some_and(|kind| kind.starts_with("image/")) {
            return;
        }
        // Some cameras write image/jpg, which is not a registered type, so no decoder accepts it.
        change_caps(pad, |caps| caps.set_name("image/jpeg"));
        let (pipeline, watch) = (pipeline.clone(), Arc::clone(&watch));
        let last = AtomicU64::new(0);
        pad.add_probe(gst::PadProbeType::BUFFER, move |_, info| {
            watch.heard.store(true, Ordering::Relaxed);
            let now = pipeline.upgrade().and_then(|pipeline| running_time(&pipeline));
            if let (Some(now), Some(buffer)) = (now, info.buffer_mut()) {
                // Two images may arrive within the clock's resolution.
                let time = now.max(last.load(Ordering::Relaxed) + 1);
                last.store(time, Ordering::Relaxed);
                buffer.make_mut().set_pts(gst::ClockTime::from_nseconds(time));
            }
            gst::PadProbeReturn::Ok
        });
        // A failed link leaves the stream unlinked, which the pipeline reports as an error of its own.
        let _ = pad.link_full(&target, gst::PadLinkCheck::empty());
    });
}

/// Returns the nanoseconds since the pipeline began to play.
fn running_time(pipeline: &gst::Pipeline) -> Option<u64> {
    let now = pipeline.clock()?.time();
    Some(now.checked_sub(pipeline.base_time()?)?.nseconds())
}

/// Whether an element is of the `wanted` class (decoder or parser) for video or images.
fn is_of_class(element: &gst::Element, wanted: &str) -> bool {
    let class =
        element.factory().and_then(|factory| factory.metadata(gst::ELEMENT_METADATA_KLASS).map(String::from));
    class.is_some_and(|class| class.contains(wanted) && (class.contains("Video") || class.contains("Image")))
}

/// Gives the coded stream's own colorimetry precedence over the container's.
///
/// Parsers prefer the container's, and `qtdemux` takes every MP4 as limited range (seen in GStreamer 1.22; many phones
/// record full range). So it is hidden from the parser, and fills the values that the stream leaves open after it.
fn read_stream_colours(parser: &gst::Element, watch: &Arc<Watch>) {
    let (Some(sink), Some(src)) = (parser.static_pad("sink"), parser.static_pad("src")) else { return };
    let container = Arc::clone(watch);
    change_caps(&sink, move |caps| {
        container.colours().container = colours::of_caps(caps);
        caps.remove_field(COLORIMETRY);
    });
    let watch = Arc::clone(watch);
    change_caps(&src, move |caps| {
        let container = watch.colours().container;
        // `h265parse` drops a range without a matrix; the decoder reads it from the stream.
        let container = match caps.name().as_str() {
            "video/x-h265" => container.as_ref().map(colours::without_range),
            _ => container,
        };
        if let Some(merged) = colours::merge(colours::of_caps(caps), container) {
            colours::write(caps, &merged);
        }
    });
}

/// Changes the first structure of all caps that pass a pad.
fn change_caps(pad: &gst::Pad, change: impl Fn(&mut gst::StructureRef) + Send + Sync + 'static) {
    pad.add_probe(gst::PadProbeType::EVENT_DOWNSTREAM, move |_, info| {
        let Some(event) = info.event_mut() else { return gst::PadProbeReturn::Ok };
        let caps = match event.view() {
            gst::EventView::Caps(event) => Some(event.caps_owned()),
            _ => None,
        };
        if let Some(mut caps) = caps
            && let Some(structure) = caps.make_mut().structure_mut(0)
        {
            change(structure);
            *event = gst::event::Caps::new(&caps);
        }
        gst::PadProbeReturn::Ok
    });
}

/// Decoders without threads of their own, and without a property for that.
const WITHOUT_THREADS: [&str; 2] = ["jpegdec", "pngdec"];
const _: () = assert!(DECODER_THREADS == 1, "processor time is that of the thread which hands over packets");

/// Bounds a decoder's threads; returns whether it works on the thread that hands it packets. Of others nobody knows: threads
/// of their own, or hardware.
fn tune_decoder(element: &gst::Element) -> bool {
    let threads = element.find_property("max-threads");
    if threads.is_some_and(|property| property.value_type() == glib::Type::I32) {
        element.set_property("max-threads", DECODER_THREADS);
        return true;
    }
    element.factory().is_some_and(|factory| WITHOUT_THREADS.contains(&factory.name().as_str()))
}

/// Origin of the frames' times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FrameClock {
    /// Container; missing times are filled in.
    Container,
    /// Decoder, which passes on the arrival times of packets.
    Arrival,
}

/// Packets inside one decoder, and their times.
struct DecoderClock {
    clock: FrameClock,
    times: PresentationTimes,
    /// Kind of the metadata with a packet's number, which decoders copy to its frames.
    label: gst::Caps,
    /// Check of a live source's JPEG images.
    jpegs: LiveCheck,
    /// Its processor time, where that can be known.
    cpu: Option<DecoderCpu>,
}

impl DecoderClock {
    fn new(clock: FrameClock, cpu: Option<DecoderCpu>) -> Self {
        let label = gst::Caps::new_empty_simple("timestamp/x-orinoco-packet");
        Self { clock, times: PresentationTimes::default(), label, jpegs: LiveCheck::default(), cpu }
    }

    fn enter(&mut self, packet: &mut gst::BufferRef, decoding_order: bool) -> u64 {
        let nanos = |time: Option<gst::ClockTime>| time.map(gst::ClockTime::nseconds);
        let (pts, dts, duration) = (nanos(packet.pts()), nanos(packet.dts()), nanos(packet.duration()));
        let number = self.times.enter(PacketTimes { pts, dts, duration }, decoding_order);
        gst::ReferenceTimestampMeta::add(packet, &self.label, gst::ClockTime::from_nseconds(number), None);
        if self.clock == FrameClock::Container && self.times.is_decoding_order() {
            packet.set_pts(None);
        }
        number
    }

    /// Whether a JPEG is complete.
    fn is_whole(&mut self, jpeg: &[u8]) -> bool {
        match self.clock {
            FrameClock::Container => jpeg::is_whole(jpeg),
            FrameClock::Arrival => self.jpegs.is_whole(jpeg),
        }
    }

    /// Returns the number of the packet from which a frame was decoded. Decoders that drop the metadata keep the times.
    fn packet_of(&self, frame: &gst::BufferRef) -> Option<u64> {
        let mut labels = frame.iter_meta::<gst::ReferenceTimestampMeta>();
        let label = labels.find(|label| label.reference() == &*self.label);
        label
            .map(|label| label.timestamp().nseconds())
            .or_else(|| self.times.packet_at(frame.pts()?.nseconds()))
    }

    /// Sets the time of a frame.
    fn leave(&mut self, frame: &mut gst::BufferRef, packet: Option<u64>, segment_start: u64) {
        let nanos = |time: Option<gst::ClockTime>| time.map(gst::ClockTime::nseconds);
        let times = FrameTimes { packet, pts: nanos(frame.pts()), duration: nanos(frame.duration()) };
        if let (FrameClock::Container, Some(time)) = (self.clock, self.times.leave(times)) {
            // An edit may begin in the middle of a frame, which is then shown for the rest of its time.
            frame.set_pts(gst::ClockTime::from_nseconds(time.max(segment_start)));
        }
    }
}

/// Records when packets enter a decoder, and numbers them.
fn watch_packets(decoder: &gst::Element, watch: &Arc<Watch>, clock: &Arc<Mutex<DecoderClock>>) {
    let Some(pad) = decoder.static_pad("sink") else { return };
    let (watch, clock) = (Arc::clone(watch), Arc::clone(clock));
    let template = pad.pad_template_caps();
    let vp9 = gst::Caps::new_empty_simple("video/x-vp9");
    let is_vp9 = template.can_intersect(&vp9);
    let is_jpeg = template.can_intersect(&gst::Caps::new_empty_simple("image/jpeg"));
    let kinds = gst::PadProbeType::BUFFER | gst::PadProbeType::EVENT_FLUSH;
    pad.add_probe(kinds, move |_, info| {
        let mut clock = clock.lock().unwrap_or_else(PoisonError::into_inner);
        let flushed = info.event().is_some_and(|event| event.type_() == gst::EventType::FlushStop);
        if flushed {
            clock.times = PresentationTimes::default();
            watch.times().clear();
        }
        if let Some(packet) = info.buffer_mut() {
            // Decoders would decode the part that is there, and leave the rest grey.
            if is_jpeg && packet.map_readable().is_ok_and(|bytes| !clock.is_whole(&bytes)) {
                watch.cut_off.fetch_add(1, Ordering::Relaxed);
                return gst::PadProbeReturn::Drop;
            }
            if is_vp9
                && let Ok(bytes) = packet.map_readable()
                && let Some(range) = colours::vp9_range(&bytes)
            {
                watch.colours().range = Some(range);
            }
            let decoding_order = watch.seen().decoding_order;
            let number = clock.enter(packet.make_mut(), decoding_order);
            watch.times().enter(number, thread::current().id(), watch.clock.now());
            if let Some(cpu) = &mut clock.cpu {
                cpu.enter();
            }
        }
        gst::PadProbeReturn::Ok
    });
}

/// Records when frames leave a decoder, and sets their times.
fn watch_frames(decoder: &gst::Element, watch: &Arc<Watch>, clock: &Arc<Mutex<DecoderClock>>) {
    let Some(pad) = decoder.static_pad("src") else { return };
    let (watch, clock) = (Arc::clone(watch), Arc::clone(clock));
    pad.add_probe(gst::PadProbeType::BUFFER, move |pad, info| {
        let Some(frame) = info.buffer_mut() else { return gst::PadProbeReturn::Ok };
        let mut clock = clock.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(took) = clock.cpu.as_mut().and_then(DecoderCpu::leave) {
            watch.add_decoder_cpu(took);
        }
        let packet = clock.packet_of(frame);
        clock.leave(frame.make_mut(), packet, segment_start(pad));
        if let (Some(packet), Some(pts)) = (packet, frame.pts()) {
            watch.times().leave(packet, pts.nseconds(), thread::current().id(), watch.clock.now());
        }
        gst::PadProbeReturn::Ok
    });
}

/// Returns the start of the played part of a stream, in nanoseconds.
fn segment_start(pad: &gst::Pad) -> u64 {
    let event = pad.sticky_event::<gst::event::Segment>(0);
    let segment = event.and_then(|event| event.segment().downcast_ref::<gst::ClockTime>().cloned());
    segment.and_then(|segment| segment.start()).map_or(0, gst::ClockTime::nseconds)
}
