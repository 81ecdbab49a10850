//! `orinoco bench pipeline`: frame rate of a pipeline, compared with its engine alone in the same run.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]

use std::sync::Arc;
use std::time::Instant;

use orinoco_api::{BENCH_SCHEMA, PipelineBench, PipelineRatios};
use orinoco_board::{Board, BoardStream, ControlSpec, SensorsSpec};
use orinoco_config::Faults;
use orinoco_core::Exit;
use orinoco_infer::{EngineError, TensorMemory};
use orinoco_runtime::{
    BoardEngines, LoadedModel, Quiet, RunOptions, capabilities, load_model, repository, session_for, start,
};
use orinoco_uri::SourceUri;

use super::{frames_measured, median, noise};
use crate::args::BenchPipelineArgs;
use crate::commands::{RECONNECT_ATTEMPTS, board_model, inference};
use crate::output;

pub(crate) fn run(args: &BenchPipelineArgs, json: bool) -> Result<Exit, Faults> {
    let place = repository(args.place.models.as_deref(), args.place.data.as_deref());
    let inference = inference(&args.engine)?;
    let model = board_model(&args.model, 1, None);
    let mut loaded = load_model(&model, &BoardEngines::new(&inference)?, &place, &Quiet)?;
    let mut stream =
        BoardStream::new("0", SourceUri::parse_with(&args.source, capabilities().schemes)?, vec![0]);
    stream.frames_max = Some(args.frames);
    stream.reconnect_attempts = Some(RECONNECT_ATTEMPTS);
    let board = Board {
        name: "bench".into(),
        inference,
        memory: None,
        control: ControlSpec::default(),
        sensors: SensorsSpec::default(),
        otlp: None,
        cluster: None,
        governor: None,
        lanes: 1,
        models: vec![model],
        streams: vec![stream],
        files: Vec::new(),
    };

    let (mut engine, mut pipeline, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let mut stages = Vec::new();
    let mut peak_bytes = 0;
    for round in 1..=args.rounds {
        output::note(&format!("round {round} of {}", args.rounds));
        let alone = engine_fps(&mut loaded, args.frames)?;
        let summary = start(board.clone(), RunOptions::new(&place, Arc::new(Quiet)))?.wait(|_| {});
        frames_measured(&summary)?;
        let stream = &summary.streams[0];
        engine.push(alone);
        pipeline.push(stream.fps);
        ratios.push(stream.fps / alone);
        stages = stream.stages.iter().map(|stage| (stage.stage.clone(), stage.p50_us)).collect();
        peak_bytes = summary.memory.peak_bytes;
    }
    let report = PipelineBench {
        schema: BENCH_SCHEMA.to_owned(),
        model: loaded.name.clone(),
        engine: format!("{} {}", loaded.chosen.name, loaded.chosen.version),
        threads: board.inference.threads,
        frames: args.frames,
        rounds: args.rounds,
        engine_fps: median(engine),
        pipeline_fps: median(pipeline),
        stages_p50_us: stages,
        peak_bytes,
        ratios: PipelineRatios { pipeline_to_engine: median(ratios) },
    };
    if json {
        output::print_json(&report)
    } else {
        output::print(&text(&report))
    }
    Ok(Exit::Done)
}

/// Runs the engine without pauses, with its tensors in the memory where a pipeline has them. On the host its input is a
/// noise image: values like those of a frame. On a GPU it stays zeros, for which the kernels of a network take the same time,
/// unless the GPU is at its power limit.
fn engine_fps(loaded: &mut LoadedModel, frames: u64) -> Result<f64, Faults> {
    /// Number of warm-up runs, which are not timed.
    const WARM_UP: u64 = 10;
    let mut session = session_for(loaded, None)?;
    let failed = |why: EngineError| why.diagnosis(&loaded.model.file);
    if session.memory() == TensorMemory::Host {
        let mut input = session.input(loaded.binding.input).host().data;
        let (scale, mean) =
            loaded.model.input.image().map_or((1.0, 0.0), |image| (image.scale[0], image.mean[0]));
        let elements = input.len();
        let samples: Vec<f32> = (0..elements).map(|index| (f32::from(noise(index)) - mean) * scale).collect();
        input.copy_from_f32(&samples);
    }
    for _ in 0..WARM_UP {
        session.run().map_err(failed)?;
    }
    let start = Instant::now();
    for _ in 0..frames {
        session.run().map_err(failed)?;
    }
    Ok((frames * loaded.binding.batch as u64) as f64 / start.elapsed().as_secs_f64())
}

fn text(report: &PipelineBench) -> String {
    let rows = vec![
        vec!["engine alone".to_owned(), format!("{:.1} fps", report.engine_fps)],
        vec!["pipeline".to_owned(), format!("{:.1} fps", report.pipeline_fps)],
        vec!["ratio".to_owned(), format!("{:.3}", report.ratios.pipeline_to_engine)],
    ];
    let heading = format!(
        "{} on {}, {}, {} x {}, medians",
        report.model,
        report.engine,
        output::count(report.threads as u64, "thread"),
        report.rounds,
        output::count(report.frames, "frame")
    );
    format!("{heading}\n{}", output::table(&["", ""], 1, rows))
}
