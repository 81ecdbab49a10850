//! `orinoco bench preprocess`: throughput of preprocessing (frame to tensor, one thread), compared with a memory copy.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]

use std::hint::black_box;
use std::time::Instant;

use orinoco_api::{PREPROCESS_BENCH_SCHEMA, PreprocessBench, PreprocessRatios};
use orinoco_config::Faults;
use orinoco_core::{Choice, ColorOrder, Exit, FrameDesc, FrameView, Layout, PixelFormat};
use orinoco_vision::{Align, InputSpec, Mapping, Preprocessor, Rounding};

use super::{median, noise};
use crate::args::BenchPreprocessArgs;
use crate::output;

/// Number of frames that are used alternately, so that each is read from memory and not from the cache, as for a camera.
const FRAMES: usize = 8;
/// Size of one copy that measures the machine, in bytes: much larger than its caches.
const COPY_BYTES: usize = 256 << 20;

pub(crate) fn run(args: &BenchPreprocessArgs, json: bool) -> Result<Exit, Faults> {
    let format = match args.format.as_str() {
        "i420" => PixelFormat::I420,
        "rgb" => PixelFormat::Rgb,
        _ => PixelFormat::Nv12,
    };
    let desc = FrameDesc::packed(format, args.from.0, args.from.1);
    let frames: Vec<Vec<u8>> = (0..FRAMES)
        .map(|frame| (0..desc.bytes_needed()).map(|i| noise(i + frame * 7919)).collect())
        .collect();
    let spec = InputSpec {
        layout: Layout::Nchw,
        width: args.to.0,
        height: args.to.1,
        color: ColorOrder::Rgb,
        resize: args.resize,
        fit: args.fit,
        align: Align::Center,
        rounding: Rounding::Down,
        fill: 114,
        mean: [0.0; 3],
        scale: [1.0 / 255.0; 3],
    };
    let bytes = (desc.bytes_needed() + 4 * spec.elements()) as f64;
    let mut bench = Bench::new(spec, desc, frames);
    let (mut seconds, mut copies, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..args.rounds {
        let per_frame = bench.seconds_per_frame(args.frames);
        let copy = copy_bytes_per_second();
        seconds.push(per_frame);
        copies.push(copy);
        ratios.push(bytes / per_frame / copy);
    }
    let per_frame = median(seconds);
    let report = PreprocessBench {
        schema: PREPROCESS_BENCH_SCHEMA.to_owned(),
        format: format.name().to_owned(),
        from: args.from,
        to: args.to,
        fit: args.fit.name().to_owned(),
        resize: args.resize.name().to_owned(),
        rounds: args.rounds,
        frames: args.frames,
        ms_per_frame: per_frame * 1e3,
        gigabytes_per_s: bytes / per_frame / 1e9,
        copy_gigabytes_per_s: median(copies) / 1e9,
        ratios: PreprocessRatios { preprocess_to_copy: median(ratios) },
    };
    if json {
        output::print_json(&report);
    } else {
        output::print(&text(&report));
    }
    Ok(Exit::Done)
}

struct Bench {
    preprocessor: Preprocessor,
    desc: FrameDesc,
    frames: Vec<Vec<u8>>,
    tensor: Vec<f32>,
    mapping: Mapping,
}

impl Bench {
    fn new(spec: InputSpec, desc: FrameDesc, frames: Vec<Vec<u8>>) -> Self {
        let tensor = vec![0.0; spec.elements()];
        Self { preprocessor: Preprocessor::new(spec), desc, frames, tensor, mapping: Mapping::default() }
    }

    fn seconds_per_frame(&mut self, count: u64) -> f64 {
        let start = Instant::now();
        for (_, frame) in (0..count).zip(self.frames.iter().cycle()) {
            let view = FrameView::new(&self.desc, frame).expect("the frame has all its bytes");
            self.mapping = self.preprocessor.run(&view, &self.mapping, &mut self.tensor);
            black_box(&self.tensor);
        }
        start.elapsed().as_secs_f64() / count as f64
    }
}

/// Returns the bytes read plus the bytes written per second by a memory copy.
fn copy_bytes_per_second() -> f64 {
    let source = vec![1u8; COPY_BYTES];
    // Write once, so that its pages are mapped.
    let mut target = vec![2u8; COPY_BYTES];
    let start = Instant::now();
    target.copy_from_slice(black_box(&source));
    black_box(&target);
    2.0 * COPY_BYTES as f64 / start.elapsed().as_secs_f64()
}

fn text(report: &PreprocessBench) -> String {
    let rows = vec![
        vec!["a frame".to_owned(), format!("{:.3} ms", report.ms_per_frame)],
        vec!["read and written".to_owned(), format!("{:.2} GB/s", report.gigabytes_per_s)],
        vec!["copying memory".to_owned(), format!("{:.2} GB/s", report.copy_gigabytes_per_s)],
        vec!["share".to_owned(), format!("{:.3}", report.ratios.preprocess_to_copy)],
    ];
    let heading = format!(
        "{} {}x{} to {}x{} f32, {}, {}, 1 thread, {} x {}, medians",
        report.format,
        report.from.0,
        report.from.1,
        report.to.0,
        report.to.1,
        report.fit,
        report.resize,
        report.rounds,
        output::count(report.frames, "frame")
    );
    format!("{heading}\n{}", output::table(&["", ""], 1, rows))
}
