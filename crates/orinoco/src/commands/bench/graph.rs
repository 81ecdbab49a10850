//! `orinoco bench graph`: what a captured plan costs the host beside the same launches one by one, and how close
//! preprocessing comes to copying memory, on this machine's GPU.

use orinoco_config::Faults;
use orinoco_core::{ColorOrder, Diagnosis, Exit, FrameView, Layout, Resize, codes};
use orinoco_cuda::bench::{self, BenchError, GraphBench};
use orinoco_vision::{Align, Fit, InputSpec, Mapping, Preprocessor, Rounding};
use serde::Serialize;

use crate::args::BenchGraphArgs;
use crate::output;

#[derive(Serialize)]
struct Report {
    schema: &'static str,
    device: String,
    steps: u32,
    cpu_replay_us: f64,
    cpu_direct_us: f64,
    preprocess_gigabytes_per_s: f64,
    copy_gigabytes_per_s: f64,
    /// Of a preprocessed value, 0 to 1, from its twin on the CPU.
    difference_max: f32,
    replays: u64,
    fallbacks: u64,
    ratios: Ratios,
}

#[derive(Serialize)]
struct Ratios {
    /// The host's time for a replay over that for its launches.
    replay_to_direct: f64,
    /// Bytes of frames and tensors a second, over those of a copy within the GPU's memory.
    preprocess_to_copy: f64,
}

pub(crate) fn run(args: &BenchGraphArgs, json: bool) -> Result<Exit, Faults> {
    let mut preprocessor = Preprocessor::new(twin());
    let twin = |frame: &FrameView<'_>, out: &mut [f32]| {
        preprocessor.run(frame, &Mapping::default(), out);
    };
    let measured = bench::graph(args.gpu, twin).map_err(|error| fault(args.gpu, &error))?;
    let report = Report::from(measured);
    if json {
        output::print_json(&report);
    } else {
        output::print(&text(&report));
    }
    Ok(Exit::Done)
}

/// What the kernels make of a frame, for the CPU.
fn twin() -> InputSpec {
    InputSpec {
        layout: Layout::Nchw,
        width: bench::TENSOR.width,
        height: bench::TENSOR.height,
        color: ColorOrder::Rgb,
        resize: Resize::Bilinear,
        fit: Fit::Letterbox,
        align: Align::Center,
        rounding: Rounding::Down,
        fill: bench::TENSOR.fill,
        mean: bench::TENSOR.mean,
        scale: bench::TENSOR.scale,
    }
}

fn fault(gpu: u32, error: &BenchError) -> Diagnosis {
    let subject = format!("GPU {gpu}");
    match error {
        BenchError::Unavailable(why) => {
            let next = "run it on a machine with an NVIDIA GPU and its driver";
            Diagnosis::new(&codes::ENGINE_UNAVAILABLE, subject, why, next)
        }
        BenchError::Cuda(why) => {
            let cause = format!("{why}: {}", why.source);
            Diagnosis::new(
                &codes::ENGINE_RUN,
                subject,
                cause,
                "see whether `nvidia-smi` or the kernel's log says more",
            )
        }
    }
}

impl From<GraphBench> for Report {
    fn from(measured: GraphBench) -> Self {
        let (gain, share) = (measured.replay_gain(), measured.preprocess_share());
        Self {
            schema: "orinoco.bench-graph/1",
            device: measured.device.name,
            steps: measured.steps,
            cpu_replay_us: measured.cpu_replay.as_secs_f64() * 1e6,
            cpu_direct_us: measured.cpu_direct.as_secs_f64() * 1e6,
            preprocess_gigabytes_per_s: measured.preprocess_bytes_per_s / 1e9,
            copy_gigabytes_per_s: measured.copy_bytes_per_s / 1e9,
            difference_max: measured.difference_max,
            replays: measured.counters.replays,
            fallbacks: measured.counters.fallbacks,
            ratios: Ratios { replay_to_direct: 1.0 / gain, preprocess_to_copy: share },
        }
    }
}

fn text(report: &Report) -> String {
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    let rows = vec![
        row("steps of a replay", report.steps.to_string()),
        row("host time of a replay", format!("{:.1} us", report.cpu_replay_us)),
        row("host time of its launches", format!("{:.1} us", report.cpu_direct_us)),
        row("ratio", format!("{:.3}", report.ratios.replay_to_direct)),
        row("preprocessing", format!("{:.1} GB/s", report.preprocess_gigabytes_per_s)),
        row("copying memory", format!("{:.1} GB/s", report.copy_gigabytes_per_s)),
        row("share", format!("{:.3}", report.ratios.preprocess_to_copy)),
        row("largest difference from the CPU", format!("{:.6}", report.difference_max)),
        row("replays, fallbacks", format!("{}, {}", report.replays, report.fallbacks)),
    ];
    format!("{}\n{}", report.device, output::table(&["", ""], 1, rows))
}
