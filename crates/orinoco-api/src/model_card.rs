//! Model card: the figures of one model on one engine and one board, and the comparison of several cards.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ClockStatus, EvalFigures, StageSummary, TemperatureStatus, UnknownValue};

/// Schema name of [`ModelCard`].
pub const MODEL_CARD_SCHEMA: &str = "orinoco.model-card/1";
/// Schema name of [`ModelComparison`].
pub const MODEL_COMPARISON_SCHEMA: &str = "orinoco.model-comparison/1";

/// Figures of one model on one engine and one board: accuracy, latency, memory, and power with energy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelCard {
    /// Name and version of this contract.
    #[schemars(extend("const" = MODEL_CARD_SCHEMA))]
    pub schema: String,
    /// Name of the model.
    pub model: String,
    /// SHA-256 of the ONNX file, in hex.
    pub sha256: String,
    /// Name of the engine.
    pub engine: String,
    /// Precision of the graph: `fp32`, `fp16`, `bf16` or `int8`; absent where the graph does not show it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub precision: Option<String>,
    /// Threads that one inference may use.
    pub threads: usize,
    /// Board on which the figures were measured.
    pub board: CardBoard,
    /// Versions of the software.
    pub versions: CardVersions,
    /// Time of day at which the measurement began, in UTC: `2026-11-23T02:10:00Z`.
    pub measured_at: String,
    /// Duration of each measurement, in seconds.
    pub seconds: f64,
    /// Input on which latency, throughput and energy were measured.
    pub input: String,
    /// Accuracy on a labelled dataset, or agreement with reference outputs.
    pub accuracy: Measured<Accuracy>,
    /// Latency of one inference at the smallest batch size.
    pub latency_us: Measured<Latency>,
    /// Throughput by batch size.
    pub throughput: Vec<BatchThroughput>,
    /// Reason why larger batch sizes are missing; absent where none is.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub throughput_limit: Option<String>,
    /// Resident memory of a separate process that runs the model alone, at the smallest batch size.
    pub memory_bytes: Measured<CardMemory>,
    /// Power of the board while it is idle, and while the model runs.
    pub power_w: Measured<CardPower>,
    /// Energy of one inference above the idle power.
    pub energy_mj: Measured<CardEnergy>,
    /// Runs before the measurements.
    pub warm_up: WarmUp,
    /// Clocks and temperatures before the measurements.
    pub before: Conditions,
    /// Clocks and temperatures after the measurements.
    pub after: Conditions,
}

/// A measured value, or the reason why it is not measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Measured<T> {
    /// The value.
    Value(T),
    /// There is no value.
    NotMeasured(NotMeasuredReason),
}

/// Reason why a value is not measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotMeasuredReason {
    /// The reason, as a sentence.
    pub not_measured: String,
}

impl<T> Measured<T> {
    /// Creates a value that is not measured, with the reason.
    pub fn missing(reason: impl Into<String>) -> Self {
        Self::NotMeasured(NotMeasuredReason { not_measured: reason.into() })
    }

    /// Returns the value, if it was measured.
    pub fn value(&self) -> Option<&T> {
        match self {
            Self::Value(value) => Some(value),
            Self::NotMeasured(_) => None,
        }
    }

    /// Returns the reason why it is not measured.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Value(_) => None,
            Self::NotMeasured(reason) => Some(&reason.not_measured),
        }
    }
}

/// Board of a model card.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CardBoard {
    /// Name: the module of a Jetson, else the name that the firmware gives the machine, else that of its profile.
    pub name: String,
    /// Profile of this kind of board; absent where it is not known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub profile: Option<String>,
    /// Power mode; absent where there is none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub power_mode: Option<String>,
    /// Name of the processor; absent where the kernel gives none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub processor: Option<String>,
    /// Processor cores that this process may use.
    pub cores: usize,
}

/// Versions of the software of a model card.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CardVersions {
    /// Orinoco.
    pub orinoco: String,
    /// The engine.
    pub engine: String,
    /// The kernel; absent where it is not known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub kernel: Option<String>,
    /// Jetson Linux; absent on other machines.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub l4t: Option<String>,
    /// JetPack; absent on other machines.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub jetpack: Option<String>,
}

/// Accuracy of a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Accuracy {
    /// Metric of `value`: `AP`, `top-1` or `mIoU` on a dataset; `agreement` with reference outputs.
    pub metric: String,
    /// Value of the metric, from 0 to 1; higher is better.
    pub value: f64,
    /// Folder of the dataset or of the reference outputs.
    pub source: String,
    /// Number of images, or of reference inputs.
    pub images: usize,
    /// All figures on a dataset, as `orinoco eval` computes them; absent for reference outputs.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub figures: Option<EvalFigures>,
    /// Differences from reference outputs; absent for a dataset.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub differences: Option<OutputDifferences>,
}

/// Differences of a model's raw outputs from reference outputs, the worst of all inputs and outputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OutputDifferences {
    /// Greatest absolute difference of two values.
    pub max: f64,
    /// Root mean square of the differences, divided by that of the reference values.
    pub relative: f64,
}

/// Latency of one inference, in microseconds: preprocessing, inference and postprocessing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Latency {
    /// Number of measured inferences.
    pub count: u64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile; the longest inference where there were fewer than 1,000.
    pub p999: f64,
    /// Longest inference.
    pub max: f64,
    /// Percentiles of the stages `preprocess`, `infer` and `postprocess`.
    pub stages: Vec<StageSummary>,
}

/// Throughput at one batch size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BatchThroughput {
    /// Batch size, in images.
    pub batch: usize,
    /// Number of measured inferences, each of one batch.
    pub inferences: u64,
    /// Throughput, in images per second.
    pub images_per_s: f64,
    /// Median latency of one batch, in microseconds.
    pub p50_us: f64,
}

/// Resident memory of a process that runs one model alone, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CardMemory {
    /// Greatest growth while the model was loaded and run, over the process with its engine loaded.
    pub peak: u64,
    /// Growth that stays after the model has run.
    pub steady: u64,
    /// Peak of the whole process, with the program and the engine's library.
    pub process_peak: u64,
    /// Greatest GPU memory that the process held for the model; absent without a GPU.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub device_peak: Option<u64>,
}

/// Power of a board, in watts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CardPower {
    /// Power while nothing runs.
    pub idle: Uncertain,
    /// Power while the model runs without pauses, with the idle power.
    pub busy: Measured<Uncertain>,
    /// Rails that are added up.
    pub rails: Vec<String>,
    /// Part of the board that these rails supply: `input` for the whole board or module, or `named-rails` for these rails
    /// only.
    pub covers: String,
    /// Greatest relative error of the sensors' gain that the error bars assume, as a ratio.
    pub gain_tolerance: f64,
    /// Number of readings.
    pub readings: u64,
}

/// A value with its error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Uncertain {
    /// The value.
    pub value: f64,
    /// Half-width of its 95 % interval.
    pub half_width: f64,
}

/// Energy of one inference above the idle power, in millijoules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CardEnergy {
    /// The energy.
    pub value: f64,
    /// Half-width of its 95 % interval.
    pub half_width: f64,
    /// Half-width of the part of the error that a longer measurement makes smaller.
    pub statistical: f64,
    /// Greatest error that all readings share: gain and resolution of the sensors.
    pub systematic: f64,
    /// Number of inferences.
    pub inferences: u64,
}

/// Runs before the measurements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WarmUp {
    /// Time to load the model, with the probe inference that proves the engine, in microseconds.
    pub load_us: f64,
    /// Time of the first inference of the loaded model, in microseconds.
    pub first_us: f64,
    /// Number of inferences that were discarded, with the first.
    pub discarded: u64,
}

/// Clocks and thermal state of a board. A value that cannot be read is absent, and its reason stands in `unknown`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Conditions {
    /// Groups of processor cores, and devices with clocks such as the GPU.
    pub clocks: Vec<ClockStatus>,
    /// Temperatures.
    pub temperatures: Vec<TemperatureStatus>,
    /// Counters of throttling.
    pub throttling: Vec<ThrottleStatus>,
    /// Values that cannot be read, with the reasons.
    pub unknown: Vec<UnknownValue>,
}

/// Number of times that hardware slowed itself down since it started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ThrottleStatus {
    /// Name of the counter.
    pub name: String,
    /// The number; absent where it cannot be read.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub count: Option<u64>,
}

/// Several cards, each compared with the first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelComparison {
    /// Name and version of this contract.
    #[schemars(extend("const" = MODEL_COMPARISON_SCHEMA))]
    pub schema: String,
    /// The cards.
    pub cards: Vec<ModelCard>,
    /// Ratios of each further card to the first, in the order of the cards.
    pub ratios: Vec<CardRatios>,
    /// Differences of model, input, dataset, board, threads or duration, which make the figures hard to compare.
    pub caveats: Vec<String>,
}

/// Figures of a card divided by those of the first card; a figure that one of both lacks is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CardRatios {
    /// Median latency.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub latency_p50: Option<f64>,
    /// 99th percentile of the latency.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub latency_p99: Option<f64>,
    /// Greatest throughput of all batch sizes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub throughput: Option<f64>,
    /// Peak memory.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub memory: Option<f64>,
    /// Energy of one inference.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub energy: Option<f64>,
    /// Difference of the accuracies, in units of the metric: only of the same metric.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub accuracy_difference: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_is_not_measured_has_a_reason() {
        let check = |value: Measured<CardMemory>, expected: &str| {
            let text = serde_json::to_string(&value).expect("serialises");
            assert_eq!(text, expected);
            assert_eq!(serde_json::from_str::<Measured<CardMemory>>(&text).expect("reads"), value);
        };
        check(Measured::missing("no power rail"), r#"{"not_measured":"no power rail"}"#);
        let memory = CardMemory { peak: 3, steady: 2, process_peak: 9, device_peak: None };
        check(Measured::Value(memory), r#"{"peak":3,"steady":2,"process_peak":9}"#);
    }
}
