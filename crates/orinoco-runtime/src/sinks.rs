//! A board's sinks.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use orinoco_api::ResultLine;
use orinoco_board::{SinkKind, SinkSpec};
use orinoco_core::{Diagnosis, WithSubject, codes};
use orinoco_media::{Codec, FrameMd5Sink};
use orinoco_pipeline::{Outcome, Sink};

/// What sinks need to know of a model to name what it found.
#[derive(Debug)]
pub(crate) struct ModelNames {
    pub(crate) name: String,
    pub(crate) engine: &'static str,
    pub(crate) labels: Vec<String>,
}

/// Opens one output of one stream.
pub(crate) fn open(
    spec: &SinkSpec,
    stream: &str,
    models: &Arc<[ModelNames]>,
) -> Result<Box<dyn Sink>, Diagnosis> {
    let models = Arc::clone(models);
    match spec.kind {
        SinkKind::Jsonl => Ok(Box::new(JsonlSink {
            output: output(&spec.path)?,
            path: spec.path.clone(),
            stream: stream.to_owned(),
            models,
        })),
        SinkKind::FrameMd5 if spec.path == Path::new("-") => {
            Ok(Box::new(FrameMd5Sink::to_writer(Box::new(io::stdout()), "standard output")))
        }
        SinkKind::FrameMd5 => {
            make_parent(&spec.path)?;
            Ok(Box::new(FrameMd5Sink::create(&spec.path)?))
        }
        SinkKind::Mp4 => mp4(&spec.path, Codec::H264, models),
        SinkKind::Mp4H265 => mp4(&spec.path, Codec::H265, models),
        other => {
            let cause = format!("this binary has no sink of kind {other:?}");
            Err(Diagnosis::new(
                &codes::FEATURE_MISSING,
                spec.path.display(),
                cause,
                "use another kind of sink",
            ))
        }
    }
}

#[cfg(feature = "gstreamer")]
fn mp4(path: &Path, codec: Codec, models: Arc<[ModelNames]>) -> Result<Box<dyn Sink>, Diagnosis> {
    use orinoco_vision::{Canvas, draw};
    make_parent(path)?;
    let paint = Box::new(move |picture: &mut [u8], width: u32, height: u32, outcome: &Outcome| {
        let Some(mut canvas) = Canvas::new(picture, width, height) else { return };
        for (model, findings) in &outcome.findings {
            let names = &models[*model];
            let found = match findings.detections.len() {
                0 => String::new(),
                n => format!(": {n}"),
            };
            let caption = format!("{} on {}{found}", names.name, names.engine);
            draw(&mut canvas, findings, &names.labels, &caption);
        }
    });
    Ok(Box::new(orinoco_media::Mp4Sink::create(path, codec, paint)?))
}

#[cfg(not(feature = "gstreamer"))]
fn mp4(path: &Path, _: Codec, _: Arc<[ModelNames]>) -> Result<Box<dyn Sink>, Diagnosis> {
    let next = "build with the feature gstreamer, or write jsonl";
    Err(Diagnosis::new(
        &codes::FEATURE_MISSING,
        path.display(),
        "this binary was built without GStreamer",
        next,
    ))
}

const SINK_NEXT: &str = "check that its folder can be written";

fn make_parent(path: &Path) -> Result<(), Diagnosis> {
    match path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
        Some(dir) => std::fs::create_dir_all(dir).about(&codes::SINK_OPEN, path.display(), SINK_NEXT),
        None => Ok(()),
    }
}

fn output(path: &Path) -> Result<Box<dyn Write + Send>, Diagnosis> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdout()));
    }
    make_parent(path)?;
    let file = File::create(path).about(&codes::SINK_OPEN, path.display(), SINK_NEXT)?;
    Ok(Box::new(BufWriter::new(file)))
}

/// One `orinoco.result/1` object a line, one line for each frame and model.
struct JsonlSink {
    output: Box<dyn Write + Send>,
    path: PathBuf,
    stream: String,
    models: Arc<[ModelNames]>,
}

impl Sink for JsonlSink {
    fn write(&mut self, outcome: &Outcome) -> Result<(), Diagnosis> {
        let desc = &outcome.frame.desc;
        for (model, findings) in &outcome.findings {
            let names = &self.models[*model];
            let line = ResultLine {
                stream: Some(self.stream.clone()),
                seq: desc.seq,
                pts_ns: desc.pts.0,
                ..ResultLine::new(&names.name, names.engine, findings, &names.labels)
            };
            let mut text =
                serde_json::to_string(&line).expect("a result has only text keys and plain numbers");
            text.push('\n');
            self.output.write_all(text.as_bytes()).about(
                &codes::SINK_WRITE,
                self.path.display(),
                "free space, or choose another path",
            )?;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<Option<PathBuf>, Diagnosis> {
        self.output.flush().about(
            &codes::SINK_WRITE,
            self.path.display(),
            "free space, or choose another path",
        )?;
        Ok((self.path != Path::new("-")).then(|| self.path.clone()))
    }
}
