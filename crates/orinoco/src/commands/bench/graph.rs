//! `orinoco bench graph`: host time of a captured CUDA graph, compared with separate launches, and throughput of
//! preprocessing compared with a memory copy, on this machine's GPU.

use orinoco_api::{GRAPH_BENCH_SCHEMA, GraphBench, GraphRatios};
use orinoco_config::Faults;
use orinoco_core::{ColorOrder, Diagnosis, Exit, FrameView, Layout, Resize, codes};
use orinoco_cuda::bench::{self, BenchError};
use orinoco_vision::{Align, Fit, InputSpec, Mapping, Preprocessor, Rounding};

use crate::args::BenchGraphArgs;
use crate::output;

pub(crate) fn run(args: &BenchGraphArgs, json: bool) -> Result<Exit, Faults> {
    let mut preprocessor = Preprocessor::new(twin());
    let twin = |frame: &FrameView<'_>, out: &mut [f32]| {
        preprocessor.run(frame, &Mapping::default(), out);
    };
    let measured = bench::graph(args.gpu, twin).map_err(|error| fault(args.gpu, &error))?;
    let report = report_of(measured);
    if json {
        output::print_json(&report);
    } else {
        output::print(&text(&report));
    }
    Ok(Exit::Done)
}

/// Input spec of the CPU implementation that corresponds to the kernels' settings.
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

fn report_of(measured: bench::GraphBench) -> GraphBench {
    let (gain, share) = (measured.replay_gain(), measured.preprocess_share());
    GraphBench {
        schema: GRAPH_BENCH_SCHEMA.to_owned(),
        device: measured.device.name,
        steps: measured.steps,
        cpu_replay_us: measured.cpu_replay.as_secs_f64() * 1e6,
        cpu_direct_us: measured.cpu_direct.as_secs_f64() * 1e6,
        preprocess_gigabytes_per_s: measured.preprocess_bytes_per_s / 1e9,
        copy_gigabytes_per_s: measured.copy_bytes_per_s / 1e9,
        difference_max: measured.difference_max,
        replays: measured.counters.replays,
        fallbacks: measured.counters.fallbacks,
        ratios: GraphRatios { replay_to_direct: 1.0 / gain, preprocess_to_copy: share },
    }
}

fn text(report: &GraphBench) -> String {
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
