//! Simulated GStreamer elements.

#![expect(clippy::disallowed_methods, reason = "the test waits for real threads or processes")]

use std::sync::{LazyLock, Mutex, PoisonError};

use gstreamer as gst;
use gstreamer::glib;
use gstreamer::prelude::*;
use gstreamer_base as base;
use gstreamer_base::prelude::*;
use gstreamer_base::subclass::prelude::*;

use super::{NVMM, luma_of, luma_of_number, nvmm_buffer, script};

/// Registers all simulated elements.
pub(super) fn register() {
    let rank = gst::Rank::PRIMARY + 100;
    let of = |name, rank, kind| gst::Element::register(None, name, rank, kind).expect("the name is free");
    of("nvv4l2decoder", rank, Decoder::static_type());
    of("nvvidconv", gst::Rank::NONE, Converter::static_type());
    of("nvarguscamerasrc", gst::Rank::NONE, Camera::static_type());
    of("nvv4l2h264enc", rank, Encoder::static_type());
    of("nvv4l2h265enc", rank, Broken::static_type());
}

fn nvmm_caps() -> gst::Caps {
    gst::Caps::builder("video/x-raw").features([NVMM]).field("format", "NV12").build()
}

fn host_caps() -> gst::Caps {
    gst::Caps::builder("video/x-raw").field("format", gst::List::new(["NV12", "I420"])).build()
}

fn any_raw_caps() -> gst::Caps {
    let mut caps = nvmm_caps();
    caps.merge(host_caps());
    caps
}

fn h264_caps() -> gst::Caps {
    gst::Caps::builder("video/x-h264").field("stream-format", "byte-stream").field("alignment", "au").build()
}

fn template(name: &str, direction: gst::PadDirection, caps: &gst::Caps) -> gst::PadTemplate {
    gst::PadTemplate::new(name, direction, gst::PadPresence::Always, caps).expect("it is right")
}

fn metadata(class: &str) -> gst::subclass::ElementMetadata {
    gst::subclass::ElementMetadata::new(
        "stand-in",
        class,
        "SIMULATED hardware of a Jetson",
        "Orinoco's tests",
    )
}

/// Waits until an element with few output buffers has a free one; real elements wait without end.
fn wait_for_buffer(element: &'static str, to_nvmm: bool) -> Result<(), String> {
    let Some(buffers) = script().converter_buffers.filter(|_| to_nvmm) else { return Ok(()) };
    let begin = std::time::Instant::now();
    loop {
        let count = super::count(element);
        if count.made - count.released < buffers {
            return Ok(());
        }
        if begin.elapsed() > std::time::Duration::from_secs(2) {
            return Err(format!("all {buffers} output buffers are held"));
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// Behaviour of an element with one sink pad and one source pad.
trait Behaviour: Default + Send + 'static {
    const CLASS: &'static str;
    fn sink_caps() -> gst::Caps;
    fn src_caps() -> gst::Caps;
    /// Returns the caps of its output, for the caps of its input.
    fn negotiate(&mut self, caps: &gst::Caps, src: &gst::Pad) -> Option<gst::Caps>;
    /// Converts a buffer.
    fn take(&mut self, buffer: gst::Buffer) -> Result<gst::Buffer, String>;
    /// Whether it can open its device.
    fn works() -> bool {
        true
    }
}

/// Defines a GStreamer element with a [`Behaviour`].
macro_rules! element {
    ($element:ident, $module:ident, $behaviour:ty, $name:literal) => {
        mod $module {
            use super::*;

            pub struct Imp {
                sink: gst::Pad,
                src: gst::Pad,
                state: Mutex<$behaviour>,
            }

            impl Imp {
                fn event(&self, event: gst::Event) -> bool {
                    let event = match event.view() {
                        gst::EventView::Caps(told) => {
                            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                            match state.negotiate(&told.caps_owned(), &self.src) {
                                Some(caps) => gst::event::Caps::new(&caps),
                                None => return false,
                            }
                        }
                        _ => event,
                    };
                    self.src.push_event(event)
                }

                fn take(&self, buffer: gst::Buffer) -> Result<gst::FlowSuccess, gst::FlowError> {
                    let made = self.state.lock().unwrap_or_else(PoisonError::into_inner).take(buffer);
                    match made {
                        Ok(made) => self.src.push(made),
                        Err(why) => {
                            gst::element_imp_error!(self, gst::StreamError::Failed, ("{why}"));
                            Err(gst::FlowError::Error)
                        }
                    }
                }
            }

            #[glib::object_subclass]
            impl ObjectSubclass for Imp {
                const NAME: &'static str = $name;
                type Type = super::$element;
                type ParentType = gst::Element;

                fn with_class(class: &Self::Class) -> Self {
                    let sink = class.pad_template("sink").expect("it was declared");
                    let src = class.pad_template("src").expect("it was declared");
                    let sink = gst::Pad::builder_from_template(&sink)
                        .chain_function(|_, parent, buffer| {
                            Self::catch_panic_pad_function(
                                parent,
                                || Err(gst::FlowError::Error),
                                |this| this.take(buffer),
                            )
                        })
                        .event_function(|_, parent, event| {
                            Self::catch_panic_pad_function(parent, || false, |this| this.event(event))
                        })
                        .build();
                    Self { sink, src: gst::Pad::from_template(&src), state: Mutex::default() }
                }
            }

            impl ObjectImpl for Imp {
                fn constructed(&self) {
                    self.parent_constructed();
                    let element = self.obj();
                    element.add_pad(&self.sink).expect("it is new");
                    element.add_pad(&self.src).expect("it is new");
                }

                fn properties() -> &'static [glib::ParamSpec] {
                    static PROPERTIES: LazyLock<Vec<glib::ParamSpec>> = LazyLock::new(|| {
                        vec![
                            glib::ParamSpecUInt::builder("bitrate").build(),
                            glib::ParamSpecString::builder("flip-method").build(),
                        ]
                    });
                    &PROPERTIES
                }

                fn set_property(&self, _: usize, _: &glib::Value, _: &glib::ParamSpec) {}

                fn property(&self, _: usize, spec: &glib::ParamSpec) -> glib::Value {
                    spec.default_value().clone()
                }
            }

            impl GstObjectImpl for Imp {}

            impl ElementImpl for Imp {
                fn metadata() -> Option<&'static gst::subclass::ElementMetadata> {
                    static METADATA: LazyLock<gst::subclass::ElementMetadata> =
                        LazyLock::new(|| metadata(<$behaviour>::CLASS));
                    Some(&METADATA)
                }

                fn pad_templates() -> &'static [gst::PadTemplate] {
                    static TEMPLATES: LazyLock<[gst::PadTemplate; 2]> = LazyLock::new(|| {
                        [
                            template("sink", gst::PadDirection::Sink, &<$behaviour>::sink_caps()),
                            template("src", gst::PadDirection::Src, &<$behaviour>::src_caps()),
                        ]
                    });
                    &*TEMPLATES
                }

                fn change_state(
                    &self,
                    change: gst::StateChange,
                ) -> Result<gst::StateChangeSuccess, gst::StateChangeError> {
                    if change == gst::StateChange::NullToReady && !<$behaviour>::works() {
                        gst::element_imp_error!(self, gst::ResourceError::NotFound, ("no such device"));
                        return Err(gst::StateChangeError);
                    }
                    self.parent_change_state(change)
                }
            }
        }

        glib::wrapper! {
            pub struct $element(ObjectSubclass<$module::Imp>) @extends gst::Element, gst::Object;
        }
    };
}

// --- nvv4l2decoder -----------------------------------------------------------------------------------------------------

/// Makes a flat frame of each coded one.
#[derive(Default)]
struct Decoding {
    size: (usize, usize),
    made: u64,
}

impl Behaviour for Decoding {
    const CLASS: &'static str = "Codec/Decoder/Video";

    fn sink_caps() -> gst::Caps {
        h264_caps()
    }

    fn src_caps() -> gst::Caps {
        nvmm_caps()
    }

    fn negotiate(&mut self, caps: &gst::Caps, _: &gst::Pad) -> Option<gst::Caps> {
        let told = caps.structure(0)?;
        let (width, height) = (told.get::<i32>("width").ok()?, told.get::<i32>("height").ok()?);
        self.size = (width as usize, height as usize);
        let mut made = nvmm_caps();
        let fields = made.make_mut().structure_mut(0)?;
        fields.set("width", width);
        fields.set("height", height);
        fields.set("framerate", told.get::<gst::Fraction>("framerate").ok()?);
        Some(made)
    }

    fn take(&mut self, buffer: gst::Buffer) -> Result<gst::Buffer, String> {
        if script().fail_after.is_some_and(|after| self.made >= after) {
            return Err("the simulated decoder was told to fail".to_owned());
        }
        let mut made = nvmm_buffer("nvv4l2decoder", self.size.0, self.size.1, luma_of_number(self.made));
        copy_marks(&buffer, &mut made);
        self.made += 1;
        Ok(made)
    }
}

/// Copies the times of a frame to the one made of it, and whether it is damaged.
fn copy_marks(from: &gst::BufferRef, to: &mut gst::Buffer) {
    let to = to.get_mut().expect("it is new");
    to.set_flags(from.flags() & gst::BufferFlags::CORRUPTED);
    to.set_pts(from.pts());
    to.set_duration(from.duration());
}

element!(Decoder, decoder, Decoding, "OrinocoStandInDecoder");

// --- nvvidconv ---------------------------------------------------------------------------------------------------------

/// Copies flat frames into NVMM, out of it, or from one buffer in it to another.
#[derive(Default)]
struct Converting {
    size: (usize, usize),
    from_nvmm: bool,
    to_nvmm: bool,
}

impl Behaviour for Converting {
    const CLASS: &'static str = "Filter/Converter/Video/Scaler";

    fn sink_caps() -> gst::Caps {
        any_raw_caps()
    }

    fn src_caps() -> gst::Caps {
        any_raw_caps()
    }

    fn negotiate(&mut self, caps: &gst::Caps, src: &gst::Pad) -> Option<gst::Caps> {
        let is_nvmm = |caps: &gst::CapsRef| caps.features(0).is_some_and(|features| features.contains(NVMM));
        let wanted = src.peer_query_caps(Some(&any_raw_caps()));
        let told = caps.structure(0)?;
        let (width, height) = (told.get::<i32>("width").ok()?, told.get::<i32>("height").ok()?);
        self.size = (width as usize, height as usize);
        self.from_nvmm = is_nvmm(caps);
        self.to_nvmm = wanted.can_intersect(&nvmm_caps());
        let mut made = if self.to_nvmm { nvmm_caps() } else { host_caps() };
        let fields = made.make_mut().structure_mut(0)?;
        fields.set("format", "NV12");
        fields.set("width", width);
        fields.set("height", height);
        fields.set("framerate", told.get::<gst::Fraction>("framerate").ok()?);
        Some(made)
    }

    fn take(&mut self, buffer: gst::Buffer) -> Result<gst::Buffer, String> {
        let luma = match self.from_nvmm {
            true => luma_of(&buffer),
            false => buffer.map_readable().map_err(|error| error.to_string())?[0],
        };
        let (width, height) = self.size;
        wait_for_buffer("nvvidconv", self.to_nvmm)?;
        let mut made = match self.to_nvmm {
            true => nvmm_buffer("nvvidconv", width, height, luma),
            false => {
                let mut pixels = vec![luma; width * height];
                pixels.resize(width * height * 3 / 2, 128);
                gst::Buffer::from_slice(pixels)
            }
        };
        copy_marks(&buffer, &mut made);
        Ok(made)
    }
}

element!(Converter, converter, Converting, "OrinocoStandInConverter");

// --- nvv4l2h264enc -----------------------------------------------------------------------------------------------------

/// Returns frames that x264 encoded before, one for each that it takes.
#[derive(Default)]
struct Encoding {
    coded: std::collections::VecDeque<gst::Buffer>,
}

/// Maximum number of frames that the simulated encoder can "encode".
pub(super) const CODED_MAX: usize = 30;

impl Behaviour for Encoding {
    const CLASS: &'static str = "Codec/Encoder/Video";

    fn sink_caps() -> gst::Caps {
        nvmm_caps()
    }

    fn src_caps() -> gst::Caps {
        h264_caps()
    }

    fn negotiate(&mut self, caps: &gst::Caps, _: &gst::Pad) -> Option<gst::Caps> {
        let told = caps.structure(0)?;
        let (width, height) = (told.get::<i32>("width").ok()?, told.get::<i32>("height").ok()?);
        let (coded, caps) = encode(width, height);
        self.coded = coded.into();
        Some(caps)
    }

    fn take(&mut self, buffer: gst::Buffer) -> Result<gst::Buffer, String> {
        let mut coded = self.coded.pop_front().ok_or("the simulated encoder has no more frames")?;
        let times = coded.make_mut();
        times.set_pts(buffer.pts());
        times.set_dts(gst::ClockTime::NONE);
        times.set_duration(buffer.duration());
        Ok(coded)
    }
}

/// Encodes a test pattern. Returns its frames and their caps.
fn encode(width: i32, height: i32) -> (Vec<gst::Buffer>, gst::Caps) {
    let pipeline = gst::parse::launch(&format!(
        "videotestsrc num-buffers={CODED_MAX} ! video/x-raw,format=I420,width={width},height={height} ! \
         x264enc bframes=0 ! video/x-h264,stream-format=byte-stream ! appsink name=sink sync=false"
    ));
    let pipeline = pipeline.expect("the pipeline is right").downcast::<gst::Pipeline>().expect("it is one");
    let sink = pipeline.by_name("sink").expect("it has one");
    let sink = sink.downcast::<gstreamer_app::AppSink>().expect("it is one");
    pipeline.set_state(gst::State::Playing).expect("it plays");
    let samples: Vec<gst::Sample> = std::iter::from_fn(|| sink.pull_sample().ok()).collect();
    pipeline.set_state(gst::State::Null).expect("it stops");
    let caps = samples[0].caps_owned().expect("it has caps");
    (samples.iter().map(|sample| sample.buffer_owned().expect("it has one")).collect(), caps)
}

element!(Encoder, encoder, Encoding, "OrinocoStandInEncoder");

// --- nvv4l2h265enc -----------------------------------------------------------------------------------------------------

/// Exists, but cannot open its device.
#[derive(Default)]
struct Failing;

impl Behaviour for Failing {
    const CLASS: &'static str = "Codec/Encoder/Video";

    fn sink_caps() -> gst::Caps {
        nvmm_caps()
    }

    fn src_caps() -> gst::Caps {
        gst::Caps::builder("video/x-h265").build()
    }

    fn negotiate(&mut self, _: &gst::Caps, _: &gst::Pad) -> Option<gst::Caps> {
        None
    }

    fn take(&mut self, _: gst::Buffer) -> Result<gst::Buffer, String> {
        Err("it does not work".to_owned())
    }

    fn works() -> bool {
        false
    }
}

element!(Broken, broken, Failing, "OrinocoStandInBroken");

// --- nvarguscamerasrc --------------------------------------------------------------------------------------------------

mod camera {
    use super::*;

    /// Makes flat frames at the rate in its caps.
    #[derive(Default)]
    pub struct Imp(Mutex<State>);

    #[derive(Default)]
    struct State {
        size: (usize, usize),
        interval: u64,
        made: u64,
    }

    #[glib::object_subclass]
    impl ObjectSubclass for Imp {
        const NAME: &'static str = "OrinocoStandInCamera";
        type Type = super::Camera;
        type ParentType = base::PushSrc;
    }

    impl ObjectImpl for Imp {
        fn constructed(&self) {
            self.parent_constructed();
            self.obj().set_live(true);
            self.obj().set_format(gst::Format::Time);
        }

        fn properties() -> &'static [glib::ParamSpec] {
            static PROPERTIES: LazyLock<Vec<glib::ParamSpec>> =
                LazyLock::new(|| vec![glib::ParamSpecInt::builder("sensor-id").build()]);
            &PROPERTIES
        }

        fn set_property(&self, _: usize, _: &glib::Value, _: &glib::ParamSpec) {}

        fn property(&self, _: usize, spec: &glib::ParamSpec) -> glib::Value {
            spec.default_value().clone()
        }
    }

    impl GstObjectImpl for Imp {}

    impl ElementImpl for Imp {
        fn metadata() -> Option<&'static gst::subclass::ElementMetadata> {
            static METADATA: LazyLock<gst::subclass::ElementMetadata> =
                LazyLock::new(|| metadata("Video/Capture"));
            Some(&METADATA)
        }

        fn pad_templates() -> &'static [gst::PadTemplate] {
            static TEMPLATES: LazyLock<[gst::PadTemplate; 1]> = LazyLock::new(|| {
                let mut caps = nvmm_caps();
                let fields = caps.make_mut().structure_mut(0).expect("it has one");
                fields.set("width", gst::IntRange::new(16, 4096));
                fields.set("height", gst::IntRange::new(16, 4096));
                fields.set(
                    "framerate",
                    gst::FractionRange::new(gst::Fraction::new(1, 1), gst::Fraction::new(120, 1)),
                );
                [template("src", gst::PadDirection::Src, &caps)]
            });
            &*TEMPLATES
        }
    }

    impl BaseSrcImpl for Imp {
        fn set_caps(&self, caps: &gst::Caps) -> Result<(), gst::LoggableError> {
            let told = caps.structure(0).expect("it has one");
            let number = |name| told.get::<i32>(name).expect("caps are fixed") as usize;
            let rate = told.get::<gst::Fraction>("framerate").expect("caps are fixed");
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            state.size = (number("width"), number("height"));
            state.interval = 1_000_000_000 * rate.denom() as u64 / rate.numer() as u64;
            Ok(())
        }
    }

    impl PushSrcImpl for Imp {
        fn create(
            &self,
            _: Option<&mut gst::BufferRef>,
        ) -> Result<base::subclass::base_src::CreateSuccess, gst::FlowError> {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if script().fail_after.is_some_and(|after| state.made >= after) {
                gst::element_imp_error!(
                    self,
                    gst::ResourceError::Read,
                    ("the simulated camera was told to fail")
                );
                return Err(gst::FlowError::Error);
            }
            let mut made =
                nvmm_buffer("nvarguscamerasrc", state.size.0, state.size.1, luma_of_number(state.made));
            let times = made.get_mut().expect("it is new");
            times.set_pts(gst::ClockTime::from_nseconds(state.made * state.interval));
            times.set_duration(gst::ClockTime::from_nseconds(state.interval));
            if state.made < script().damaged {
                times.set_flags(gst::BufferFlags::CORRUPTED);
            }
            std::thread::sleep(std::time::Duration::from_nanos(state.interval));
            state.made += 1;
            Ok(base::subclass::base_src::CreateSuccess::NewBuffer(made))
        }
    }
}

glib::wrapper! {
    pub struct Camera(ObjectSubclass<camera::Imp>) @extends base::PushSrc, base::BaseSrc, gst::Element, gst::Object;
}
