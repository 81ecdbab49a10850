//! Reports of `orinoco bench`. Figures are medians over the rounds.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Schema name of [`PipelineBench`] and [`StreamsBench`].
pub const BENCH_SCHEMA: &str = "orinoco.bench/1";
/// Schema name of [`PreprocessBench`].
pub const PREPROCESS_BENCH_SCHEMA: &str = "orinoco.bench-preprocess/1";
/// Schema name of [`MemoryBench`].
pub const MEMORY_BENCH_SCHEMA: &str = "orinoco.bench-memory/1";
/// Schema name of [`GraphBench`].
pub const GRAPH_BENCH_SCHEMA: &str = "orinoco.bench-graph/1";

/// Report of `orinoco bench pipeline` or `orinoco bench streams`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum BenchReport {
    /// One pipeline compared with its engine.
    Pipeline(PipelineBench),
    /// Several streams at the same time.
    Streams(StreamsBench),
}

/// Throughput of a pipeline compared with that of its engine alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PipelineBench {
    /// Name and version of this contract.
    #[schemars(extend("const" = BENCH_SCHEMA))]
    pub schema: String,
    /// Name of the model.
    pub model: String,
    /// Name and version of the engine.
    pub engine: String,
    /// Threads that the engine uses for one inference.
    pub threads: usize,
    /// Frames in each round.
    pub frames: u64,
    /// Number of rounds.
    pub rounds: u16,
    /// Throughput of the engine alone, in frames per second.
    pub engine_fps: f64,
    /// Throughput of the pipeline, in frames per second.
    pub pipeline_fps: f64,
    /// Median time of each stage in the last round, as `[stage, microseconds]`.
    pub stages_p50_us: Vec<(String, f64)>,
    /// Peak resident memory of the process since its start, read after the last round, in bytes.
    pub peak_bytes: u64,
    /// Ratios of the figures above.
    pub ratios: PipelineRatios,
}

/// Ratios of `PipelineBench`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PipelineRatios {
    /// Throughput of the pipeline divided by that of the engine alone: the median of the rounds' ratios.
    pub pipeline_to_engine: f64,
}

/// Throughput of several streams at the same time, compared with a bound that follows from the processor time of their
/// stages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StreamsBench {
    /// Name and version of this contract.
    #[schemars(extend("const" = BENCH_SCHEMA))]
    pub schema: String,
    /// Name of the model.
    pub model: String,
    /// Name and version of the engine.
    pub engine: String,
    /// Processor cores that this process may use.
    pub cores: usize,
    /// Number of lanes (threads that execute models).
    pub lanes: usize,
    /// Number of streams.
    pub streams: usize,
    /// Batch size of one inference, in frames.
    pub batch: usize,
    /// Frames of each stream in each round.
    pub frames: u64,
    /// Number of rounds.
    pub rounds: u16,
    /// Throughput of all streams together, in frames per second.
    pub fps: f64,
    /// Upper bound of `fps` if the cores and lanes spent all of their time on decoding and the model, in frames per
    /// second.
    pub bound_fps: f64,
    /// Upper bound of `fps` from stages that were measured at the same time, in frames per second. Lower than
    /// `bound_fps` where cores share caches.
    pub bound_beside_fps: f64,
    /// Processor time of decoding one frame, measured alone, in microseconds.
    pub decode_cpu_us: f64,
    /// Processor time of the model for one frame, measured alone, in microseconds.
    pub model_cpu_us: f64,
    /// Processor time of decoding one frame while the model runs, in microseconds. The two exchange no frames.
    pub decode_beside_cpu_us: f64,
    /// Processor time of the model for one frame while decoders run, in microseconds. The two exchange no frames.
    pub model_beside_cpu_us: f64,
    /// Ratios of the figures above.
    pub ratios: StreamsRatios,
}

/// Ratios of `StreamsBench`, each the median of the rounds' ratios.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StreamsRatios {
    /// `fps` divided by `bound_fps`.
    pub to_bound: f64,
    /// `fps` divided by `bound_beside_fps`.
    pub to_bound_beside: f64,
    /// Share of the cores' time that was used while all streams ran, 0 to 1.
    pub busy: f64,
}

/// Throughput of preprocessing on one thread, compared with copying memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PreprocessBench {
    /// Name and version of this contract.
    #[schemars(extend("const" = PREPROCESS_BENCH_SCHEMA))]
    pub schema: String,
    /// Pixel format of the frames: `NV12`, `I420` or `RGB`.
    pub format: String,
    /// `[width, height]` of the frames, in pixels.
    pub from: (u32, u32),
    /// `[width, height]` of the model's input, in pixels.
    pub to: (u32, u32),
    /// Placement of the frame in the model's input: `letterbox` or `stretch`.
    pub fit: String,
    /// Resize filter: `bilinear` or `bilinear-antialias`.
    pub resize: String,
    /// Number of rounds.
    pub rounds: u16,
    /// Frames in each round.
    pub frames: u64,
    /// Time of one frame, in milliseconds.
    pub ms_per_frame: f64,
    /// Memory traffic of preprocessing: frames read and tensors written, in 10^9 bytes per second.
    pub gigabytes_per_s: f64,
    /// Memory traffic of copying memory: bytes read and written, in 10^9 bytes per second.
    pub copy_gigabytes_per_s: f64,
    /// Ratios of the figures above.
    pub ratios: PreprocessRatios,
}

/// Ratios of `PreprocessBench`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PreprocessRatios {
    /// Memory traffic of preprocessing divided by that of copying memory: the median of the rounds' ratios.
    pub preprocess_to_copy: f64,
}

/// Memory of models that share one scratch area, compared with the same models with memory of their own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryBench {
    /// Name and version of this contract.
    #[schemars(extend("const" = MEMORY_BENCH_SCHEMA))]
    pub schema: String,
    /// Number of rounds.
    pub rounds: u16,
    /// Scratch size of each model when it runs alone.
    pub models: Vec<ModelScratch>,
    /// Size of the shared area: the scratch size of the largest model, in bytes.
    pub scratch_bytes: u64,
    /// Part of the shared area that was used, from its start to the last byte used, in bytes.
    pub scratch_used_bytes: u64,
    /// Growth of resident memory from load to steady state with memory of their own, in bytes.
    pub separate_growth_bytes: u64,
    /// Growth of resident memory from load to steady state with the shared area, in bytes.
    pub shared_growth_bytes: u64,
    /// Whether both ways computed the same outputs, bit for bit.
    pub outputs_equal: bool,
    /// Allocation requests of the engine that were served outside the shared area: those that did not fit, and those
    /// from an unknown thread.
    pub requests_outside: u64,
    /// Ratios of the figures above.
    pub ratios: MemoryRatios,
}

/// Scratch memory of one model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ModelScratch {
    /// Name of the model.
    pub model: String,
    /// Scratch memory that the model needs, in bytes.
    pub scratch_bytes: u64,
}

/// Ratios of `MemoryBench`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryRatios {
    /// Growth with the shared area divided by growth without it; null where memory does not grow without it.
    pub activation_ratio: Option<f64>,
    /// Used part of the shared area divided by the scratch size of the largest model.
    pub scratch_to_largest: f64,
}

/// Captured CUDA graphs compared with the same kernel launches one by one, and preprocessing on the GPU compared with
/// copying memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GraphBench {
    /// Name and version of this contract.
    #[schemars(extend("const" = GRAPH_BENCH_SCHEMA))]
    pub schema: String,
    /// Name of the GPU.
    pub device: String,
    /// Launches that one replay of the graph contains.
    pub steps: u32,
    /// Host time to launch the captured graph, in microseconds.
    pub cpu_replay_us: f64,
    /// Host time to launch the same kernels one by one, in microseconds.
    pub cpu_direct_us: f64,
    /// Memory traffic of preprocessing on the GPU: frames read and tensors written, in 10^9 bytes per second.
    pub preprocess_gigabytes_per_s: f64,
    /// Memory traffic of a copy within the GPU's memory: bytes read and written, in 10^9 bytes per second.
    pub copy_gigabytes_per_s: f64,
    /// Largest difference between a value that the GPU preprocessed and the CPU's; values are from 0 to 1.
    pub difference_max: f32,
    /// Launches of captured graphs.
    pub replays: u64,
    /// Launch sequences that could not be captured, so their kernels were launched one by one.
    pub fallbacks: u64,
    /// Ratios of the figures above.
    pub ratios: GraphRatios,
}

/// Ratios of `GraphBench`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GraphRatios {
    /// Host time to launch the graph divided by host time to launch its kernels one by one.
    pub replay_to_direct: f64,
    /// Memory traffic of preprocessing divided by that of a copy within the GPU's memory.
    pub preprocess_to_copy: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pins the field order here, because the benchmark itself runs only on a machine with a GPU.
    #[test]
    fn the_order_of_a_graph_bench() {
        let bench = GraphBench {
            schema: GRAPH_BENCH_SCHEMA.to_owned(),
            device: "gpu".to_owned(),
            steps: 7,
            cpu_replay_us: 5.5,
            cpu_direct_us: 11.0,
            preprocess_gigabytes_per_s: 40.0,
            copy_gigabytes_per_s: 80.0,
            difference_max: 0.0,
            replays: 3,
            fallbacks: 0,
            ratios: GraphRatios { replay_to_direct: 0.5, preprocess_to_copy: 0.5 },
        };
        assert_eq!(
            serde_json::to_string(&bench).expect("serialises"),
            r#"{"schema":"orinoco.bench-graph/1","device":"gpu","steps":7,"cpu_replay_us":5.5,"cpu_direct_us":11.0,"preprocess_gigabytes_per_s":40.0,"copy_gigabytes_per_s":80.0,"difference_max":0.0,"replays":3,"fallbacks":0,"ratios":{"replay_to_direct":0.5,"preprocess_to_copy":0.5}}"#
        );
    }

    /// Two reports share one schema name, so fields must tell them apart.
    #[test]
    fn a_report_is_read_as_what_it_is() {
        let pipeline = r#"{"schema":"orinoco.bench/1","model":"m","engine":"tract 1","threads":1,"frames":2,"rounds":1,"engine_fps":4.0,"pipeline_fps":2.0,"stages_p50_us":[["infer",250.0]],"peak_bytes":9,"ratios":{"pipeline_to_engine":0.5}}"#;
        let read: BenchReport = serde_json::from_str(pipeline).expect("it is one");
        assert!(matches!(&read, BenchReport::Pipeline(bench) if bench.threads == 1), "{read:?}");
        assert_eq!(serde_json::to_string(&read).expect("serialises"), pipeline);
        let streams = r#"{"schema":"orinoco.bench/1","model":"m","engine":"tract 1","cores":2,"lanes":2,"streams":4,"batch":1,"frames":2,"rounds":1,"fps":8.0,"bound_fps":10.0,"bound_beside_fps":9.0,"decode_cpu_us":1.0,"model_cpu_us":2.0,"decode_beside_cpu_us":1.5,"model_beside_cpu_us":2.5,"ratios":{"to_bound":0.5,"to_bound_beside":0.75,"busy":0.25}}"#;
        let read: BenchReport = serde_json::from_str(streams).expect("it is one");
        assert!(matches!(&read, BenchReport::Streams(bench) if bench.cores == 2), "{read:?}");
        assert_eq!(serde_json::to_string(&read).expect("serialises"), streams);
    }
}
