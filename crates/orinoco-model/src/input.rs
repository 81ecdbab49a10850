//! Inputs of a model: `[input]`, `[[constant]]` and `[[state]]`.

use orinoco_config::TableReader;
use orinoco_core::text::count;
use orinoco_core::{Choice, ColorOrder, ElementType, Layout, Resize, codes};
use orinoco_vision::{Align, Fit, InputSpec, Rounding};

/// Maximum width and height of an image input: a larger number is a typing error.
pub(crate) const SIDE_MAX: i64 = 8192;
/// Maximum sample rate, in hertz: no audio is recorded with more.
const SAMPLE_RATE_MAX: i64 = 192_000;
/// Maximum window, in samples: a minute at 16 kHz; a longer one is a typing error.
pub(crate) const WINDOW_MAX: i64 = 960_000;

/// Main input of a model.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelInput {
    /// Image.
    Image(InputSpec),
    /// Window of sound.
    Audio(AudioSpec),
}

impl ModelInput {
    /// Returns the image format, if the input is an image.
    pub fn image(&self) -> Option<&InputSpec> {
        match self {
            Self::Image(spec) => Some(spec),
            Self::Audio(_) => None,
        }
    }
}

/// Values of `kind` in `[input]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InputKind {
    Image,
    Audio,
}

impl Choice for InputKind {
    const ALL: &'static [Self] = &[Self::Image, Self::Audio];

    fn name(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Audio => "audio",
        }
    }
}

/// Format of sound that a model takes.
#[derive(Clone, Debug, PartialEq)]
pub struct AudioSpec {
    /// Sample rate in hertz, of one channel.
    pub sample_rate: u32,
    /// Features that are computed from the samples.
    pub features: AudioFeatures,
}

/// Features of sound that a model takes. Samples are from -1 to 1.
#[derive(Clone, Debug, PartialEq)]
pub enum AudioFeatures {
    /// The samples themselves: `window` new ones after the last `context` of those before (zeros at the start).
    Samples {
        /// New samples of each inference.
        window: usize,
        /// Samples of the previous window that are repeated.
        context: usize,
    },
    /// Mel-frequency cepstral coefficients (MFCC).
    Mfcc(Mfcc),
}

/// Values of `features` in `[input]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FeatureKind {
    Samples,
    Mfcc,
}

impl Choice for FeatureKind {
    const ALL: &'static [Self] = &[Self::Samples, Self::Mfcc];

    fn name(self) -> &'static str {
        match self {
            Self::Samples => "samples",
            Self::Mfcc => "mfcc",
        }
    }
}

/// Settings of mel-frequency cepstral coefficients, computed as in TensorFlow's `tf.signal` and MLPerf Tiny's keyword
/// spotting.
#[derive(Clone, Debug, PartialEq)]
pub struct Mfcc {
    /// Frames in a window.
    pub frames: usize,
    /// Samples in a frame.
    pub frame_samples: usize,
    /// Samples from the start of one frame to the start of the next.
    pub step_samples: usize,
    /// Number of mel bands.
    pub mel_bands: usize,
    /// Lower edge of the first and upper edge of the last band, in hertz.
    pub edges_hz: (f64, f64),
    /// Number of coefficients that are kept.
    pub coefficients: usize,
}

impl Mfcc {
    /// Returns the samples in a window.
    pub fn window(&self) -> usize {
        self.frame_samples + (self.frames - 1) * self.step_samples
    }
}

/// Quantization: an affine map between integers and real numbers, `real = (integer - zero_point) * scale`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantization {
    /// Difference between the real numbers of neighbouring integers.
    pub scale: f32,
    /// Integer of the real number 0.
    pub zero_point: f32,
}

/// Value for an input other than the main one.
#[derive(Clone, Debug, PartialEq)]
pub struct ExtraInput {
    /// Name of the input.
    pub input: String,
    /// Shape of the input, where the graph leaves it open.
    pub shape: Vec<usize>,
    /// Value that is written into it.
    pub value: ExtraInputValue,
}

/// Value of a [`ExtraInput`].
#[derive(Clone, Debug, PartialEq)]
pub enum ExtraInputValue {
    /// Same numbers in every inference. A single number fills the whole tensor.
    Constant(Vec<f32>),
    /// Implicit state: the previous value of this output; zeros at the start.
    State(String),
}

/// Values of `[input]`.
pub(crate) struct InputTable {
    pub name: Option<String>,
    pub element: Option<ElementType>,
    pub input: ModelInput,
    /// Whether `rounding` is given; if it is not, the head decides.
    pub is_rounding_given: bool,
    pub quantization: Option<Quantization>,
}

/// Element types that a main input may have.
const ELEMENTS: [ElementType; 6] = [
    ElementType::F32,
    ElementType::F16,
    ElementType::U8,
    ElementType::I8,
    ElementType::I32,
    ElementType::I64,
];

/// Reads `[input]`.
pub(crate) fn read_input(table: TableReader<'_>) -> InputTable {
    let name = table.text("name");
    let quantization = read_quantization(&table);
    let element = table.choice("dtype", &ELEMENTS.map(|element| (element.name(), element)));
    let input = match table.choice_of("kind").unwrap_or(InputKind::Image) {
        InputKind::Image => ModelInput::Image(read_image(&table)),
        InputKind::Audio => ModelInput::Audio(read_audio(&table)),
    };
    let is_rounding_given = table.has("rounding");
    table.finish();
    InputTable { name, element, input, is_rounding_given, quantization }
}

/// Reads `quant_scale` and `quant_zero_point`.
pub(crate) fn read_quantization(table: &TableReader<'_>) -> Option<Quantization> {
    let scale = table.float("quant_scale", f64::from(f32::MIN_POSITIVE)..=f64::from(f32::MAX));
    let zero_point = table.integer("quant_zero_point", -128..=255);
    if zero_point.is_some() && !table.has("quant_scale") {
        table.missing("quant_scale", "add quant_scale: quant_zero_point needs it");
    }
    scale.map(|scale| Quantization { scale: scale as f32, zero_point: zero_point.unwrap_or(0) as f32 })
}

/// Reads every `[[constant]]` and `[[state]]`.
pub(crate) fn read_extra_inputs(top: &TableReader<'_>) -> Vec<ExtraInput> {
    let shape = |table: &TableReader<'_>| table.counts("shape").iter().map(|n| *n as usize).collect();
    let constants = top.tables("constant").into_iter().map(|table| {
        let values: Vec<f32> = table.floats("value").iter().map(|value| *value as f32).collect();
        if values.is_empty() {
            table.missing("value", "list the numbers that go into the input, as value = [16000]");
        }
        let extra_input = ExtraInput {
            input: table.text_required("input"),
            shape: shape(&table),
            value: ExtraInputValue::Constant(values),
        };
        table.finish();
        extra_input
    });
    let states = top.tables("state").into_iter().map(|table| {
        let extra_input = ExtraInput {
            input: table.text_required("input"),
            shape: shape(&table),
            value: ExtraInputValue::State(table.text_required("output")),
        };
        table.finish();
        extra_input
    });
    constants.chain(states).collect()
}

fn read_image(table: &TableReader<'_>) -> InputSpec {
    let side = |key| match table.integer(key, 1..=SIDE_MAX) {
        Some(n) => u32::try_from(n).unwrap_or(1),
        None => {
            if !table.has(key) {
                table.missing(key, "give the model's input size in pixels");
            }
            1
        }
    };
    let (width, height) = (side("width"), side("height"));
    let shorter = table.integer("crop_from", 1..=SIDE_MAX).and_then(|n| u32::try_from(n).ok());
    let fits = Fit::all(shorter.unwrap_or(width.min(height)));
    let fit = table.choice("fit", &fits.map(|fit| (fit.name(), fit)));
    if shorter.is_some() && !matches!(fit, Some(Fit::Crop { .. })) {
        table.fault("crop_from", &codes::KEY_RANGE, "it needs fit = \"crop\"", "set fit, or remove it");
    }
    InputSpec {
        layout: table.choice_of("layout").unwrap_or(Layout::Nchw),
        width,
        height,
        color: table.choice_of("color").unwrap_or(ColorOrder::Rgb),
        resize: table.choice_of("resize").unwrap_or(Resize::Bilinear),
        fit: fit.unwrap_or(Fit::Stretch),
        align: table.choice_of("align").unwrap_or(Align::TopLeft),
        rounding: table.choice_of("rounding").unwrap_or(Rounding::Down),
        fill: table.integer("fill", 0..=255).and_then(|n| u8::try_from(n).ok()).unwrap_or(114),
        mean: per_channel(table, "mean", 0.0),
        scale: read_scale(table),
    }
}

/// Reads `scale`, or its inverse `std`.
fn read_scale(table: &TableReader<'_>) -> [f32; 3] {
    let scale = per_channel(table, "scale", 1.0);
    let deviation = per_channel(table, "std", 1.0);
    if table.has("scale") && table.has("std") {
        let cause = "it says the same as scale";
        table.fault("std", &codes::KEY_RANGE, cause, "give one of the two: scale = 1 / std");
    }
    if deviation.iter().any(|value| !(1.0 / value).is_finite()) {
        table.fault("std", &codes::KEY_RANGE, "it has a 0; a divisor must not be 0", "give another");
        return scale;
    }
    if scale.contains(&0.0) {
        let cause = "it has a 0, which makes all samples the same";
        table.fault("scale", &codes::KEY_RANGE, cause, "give another; 1 leaves samples as they are");
    }
    if table.has("std") { deviation.map(|value| 1.0 / value) } else { scale }
}

fn per_channel(table: &TableReader<'_>, key: &'static str, default: f32) -> [f32; 3] {
    let values = table.floats(key);
    if values.iter().any(|value| !(*value as f32).is_finite()) {
        table.fault(key, &codes::KEY_RANGE, "it has a number that is not finite", "give finite numbers");
        return [default; 3];
    }
    match values[..] {
        [] => [default; 3],
        [one] => [one as f32; 3],
        [a, b, c] => [a as f32, b as f32, c as f32],
        _ => {
            table.fault(
                key,
                &codes::KEY_RANGE,
                format!("it has {}", count(values.len() as u64, "value")),
                "give 1 or 3, one per channel",
            );
            [default; 3]
        }
    }
}

fn read_audio(table: &TableReader<'_>) -> AudioSpec {
    let count = |key, default: usize, max: i64| {
        table.integer(key, 1..=max).and_then(|n| usize::try_from(n).ok()).unwrap_or(default)
    };
    let sample_rate = count("sample_rate", 16_000, SAMPLE_RATE_MAX);
    let kind = table.choice_of("features").unwrap_or(FeatureKind::Samples);
    let features = if kind == FeatureKind::Mfcc {
        let edges = [("low_hz", 20.0), ("high_hz", 4_000.0)];
        let [low, high] =
            edges.map(|(key, default)| table.float(key, 0.0..=SAMPLE_RATE_MAX as f64).unwrap_or(default));
        // Defaults are those of MLPerf Tiny: frames of 30 ms every 20 ms.
        AudioFeatures::Mfcc(Mfcc {
            frames: count("frames", 49, 10_000),
            frame_samples: count("frame_samples", sample_rate * 3 / 100, WINDOW_MAX),
            step_samples: count("step_samples", sample_rate / 50, WINDOW_MAX),
            mel_bands: count("mel_bands", 40, 1_000),
            edges_hz: (low, high.max(low + 1.0)),
            coefficients: count("coefficients", 10, 1_000),
        })
    } else {
        if !table.has("window") {
            table.missing("window", "set window to the number of new samples per inference");
        }
        let context = table.integer("context", 0..=WINDOW_MAX).and_then(|n| usize::try_from(n).ok());
        AudioFeatures::Samples { window: count("window", 1, WINDOW_MAX), context: context.unwrap_or(0) }
    };
    AudioSpec { sample_rate: u32::try_from(sample_rate).unwrap_or(16_000), features }
}
