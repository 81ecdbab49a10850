//! What `orinoco bench` prints. Figures are medians over the rounds.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The schema name of [`PipelineBench`] and [`StreamsBench`].
pub const BENCH_SCHEMA: &str = "orinoco.bench/1";
/// The schema name of [`PreprocessBench`].
pub const PREPROCESS_BENCH_SCHEMA: &str = "orinoco.bench-preprocess/1";
/// The schema name of [`MemoryBench`].
pub const MEMORY_BENCH_SCHEMA: &str = "orinoco.bench-memory/1";
/// The schema name of [`GraphBench`].
pub const GRAPH_BENCH_SCHEMA: &str = "orinoco.bench-graph/1";

/// What `orinoco bench pipeline` or `orinoco bench streams` measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum BenchReport {
    /// One pipeline.
    Pipeline(PipelineBench),
    /// Several streams at once.
    Streams(StreamsBench),
}

/// A pipeline compared with its engine alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PipelineBench {
    /// Name and version of this contract.
    #[schemars(extend("const" = BENCH_SCHEMA))]
    pub schema: String,
    /// The model's name.
    pub model: String,
    /// Name and version of the engine.
    pub engine: String,
    /// Threads of one inference.
    pub threads: usize,
    /// Frames of each round.
    pub frames: u64,
    /// Rounds.
    pub rounds: u16,
    /// Frames a second of the engine alone.
    pub engine_fps: f64,
    /// Frames a second of the pipeline.
    pub pipeline_fps: f64,
    /// `[stage, microseconds]`: the median time of each stage in the last round.
    pub stages_p50_us: Vec<(String, f64)>,
    /// The most that was resident in the last round, in bytes.
    pub peak_bytes: u64,
    /// Ratios.
    pub ratios: PipelineRatios,
}

/// Ratios of `PipelineBench`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PipelineRatios {
    /// Pipeline over engine alone, the median of the rounds' ratios.
    pub pipeline_to_engine: f64,
}

/// Several streams at once, compared with what the processor time of their stages lets the cores do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StreamsBench {
    /// Name and version of this contract.
    #[schemars(extend("const" = BENCH_SCHEMA))]
    pub schema: String,
    /// The model's name.
    pub model: String,
    /// Name and version of the engine.
    pub engine: String,
    /// Cores of this machine that the process may use.
    pub cores: usize,
    /// Lanes: executing threads.
    pub lanes: usize,
    /// Streams.
    pub streams: usize,
    /// Frames of one inference.
    pub batch: usize,
    /// Frames of each stream and round.
    pub frames: u64,
    /// Rounds.
    pub rounds: u16,
    /// Frames of all streams a second.
    pub fps: f64,
    /// Frames a second that the cores could do if they did nothing but these stages.
    pub bound_fps: f64,
    /// The same bound from stages measured at the same time: cores share their caches.
    pub bound_beside_fps: f64,
    /// Processor time of decoding one frame, measured alone, in microseconds.
    pub decode_cpu_us: f64,
    /// Processor time of the model for one frame, measured alone, in microseconds.
    pub model_cpu_us: f64,
    /// Processor time of decoding one frame while the model runs, in microseconds; no frame goes from one to the other.
    pub decode_beside_cpu_us: f64,
    /// Processor time of the model for one frame during decoding, in microseconds; no frame goes from one to the other.
    pub model_beside_cpu_us: f64,
    /// Ratios.
    pub ratios: StreamsRatios,
}

/// Ratios of `StreamsBench`, each the median of the rounds' ratios.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StreamsRatios {
    /// `fps` over `bound_fps`.
    pub to_bound: f64,
    /// `fps` over `bound_beside_fps`.
    pub to_bound_beside: f64,
    /// Processor time used over what the cores had, while all streams ran.
    pub busy: f64,
}

/// Preprocessing on one thread, compared with copying memory.
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
    /// How the shape is fitted: `letterbox` or `stretch`.
    pub fit: String,
    /// The filter: `bilinear` or `bilinear-antialias`.
    pub resize: String,
    /// Rounds.
    pub rounds: u16,
    /// Frames of each round.
    pub frames: u64,
    /// Time of one frame, in milliseconds.
    pub ms_per_frame: f64,
    /// 10^9 bytes of frames and tensors, read and written a second.
    pub gigabytes_per_s: f64,
    /// 10^9 bytes read and written a second by a copy of memory.
    pub copy_gigabytes_per_s: f64,
    /// Ratios.
    pub ratios: PreprocessRatios,
}

/// Ratios of `PreprocessBench`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PreprocessRatios {
    /// Bytes read and written a second over those of a copy of memory, the median of the rounds' ratios.
    pub preprocess_to_copy: f64,
}

/// Models that share one scratch area, compared with the same models in memory of their own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryBench {
    /// Name and version of this contract.
    #[schemars(extend("const" = MEMORY_BENCH_SCHEMA))]
    pub schema: String,
    /// Rounds.
    pub rounds: u16,
    /// What each model needs alone.
    pub models: Vec<ModelScratch>,
    /// Size of the shared area, in bytes: what the largest model needs.
    pub scratch_bytes: u64,
    /// How far the shared area was used, in bytes.
    pub scratch_used_bytes: u64,
    /// Growth of resident memory from load to steady state with memory of their own, in bytes.
    pub separate_growth_bytes: u64,
    /// Growth of resident memory from load to steady state with the shared area, in bytes.
    pub shared_growth_bytes: u64,
    /// Whether both ways gave the same outputs, bit for bit.
    pub outputs_equal: bool,
    /// Requests of the engine that did not fit in the shared area, or that came from an unknown thread.
    pub requests_outside: u64,
    /// Ratios.
    pub ratios: MemoryRatios,
}

/// The scratch memory of one model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ModelScratch {
    /// The model's name.
    pub model: String,
    /// What it needs, in bytes.
    pub scratch_bytes: u64,
}

/// Ratios of `MemoryBench`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryRatios {
    /// Growth with the shared area over growth without; null where there is no growth without.
    pub activation_ratio: Option<f64>,
    /// What was used of the area over what the largest model needs.
    pub scratch_to_largest: f64,
}

/// Captured CUDA graphs compared with the same launches one by one, and preprocessing on the GPU with copying memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GraphBench {
    /// Name and version of this contract.
    #[schemars(extend("const" = GRAPH_BENCH_SCHEMA))]
    pub schema: String,
    /// The GPU's name.
    pub device: String,
    /// Launches of one replay.
    pub steps: u32,
    /// Time of the host for a replay, in microseconds.
    pub cpu_replay_us: f64,
    /// Time of the host for the same launches one by one, in microseconds.
    pub cpu_direct_us: f64,
    /// 10^9 bytes of frames and tensors that preprocessing reads and writes a second.
    pub preprocess_gigabytes_per_s: f64,
    /// 10^9 bytes that a copy within the GPU's memory reads and writes a second.
    pub copy_gigabytes_per_s: f64,
    /// Largest difference of a preprocessed value, 0 to 1, from the CPU's.
    pub difference_max: f32,
    /// Graphs that were replayed.
    pub replays: u64,
    /// Graphs that could not be captured, and were launched one by one.
    pub fallbacks: u64,
    /// Ratios.
    pub ratios: GraphRatios,
}

/// Ratios of `GraphBench`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GraphRatios {
    /// The host's time for a replay over that for its launches.
    pub replay_to_direct: f64,
    /// Bytes of frames and tensors a second over those of a copy within the GPU's memory.
    pub preprocess_to_copy: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This benchmark runs only where there is a GPU.
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

    /// Both benchmarks have one schema name.
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
