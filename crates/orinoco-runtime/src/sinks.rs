//! A board's sinks.

use std::fs::File;
use std::io::{self, LineWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use orinoco_api::{DetectionJson, ObjectJson, ResultLine};
use orinoco_board::{SinkKind, SinkSpec};
use orinoco_core::{Diagnosis, WithSubject, codes};
use orinoco_media::{Codec, FrameMd5Sink, LineFile};
use orinoco_pipeline::{Object, Outcome, Sink};
#[cfg(feature = "gstreamer")]
use {
    orinoco_media::Shown,
    orinoco_vision::{Canvas, draw, draw_card, draw_within},
};

use crate::outputs::OutputFile;
use crate::readers::{Reader, ReaderOutput};

/// What sinks need to know of a model to name what it found.
#[derive(Clone, Debug)]
pub(crate) struct ModelNames {
    pub(crate) name: String,
    pub(crate) engine: &'static str,
    pub(crate) labels: Vec<String>,
}

/// Begins one output of one stream in `file`; `None` is standard output. Adds its reader to `readers` where it may lose that.
pub(crate) fn open(
    spec: &SinkSpec,
    file: Option<OutputFile>,
    stream: &str,
    models: &Arc<[ModelNames]>,
    readers: &mut Vec<Reader>,
) -> Result<Box<dyn Sink>, Diagnosis> {
    let models = Arc::clone(models);
    let begin = |file: OutputFile| file.begin().about(&codes::SINK_OPEN, spec.path.display(), SINK_NEXT);
    let file = file.map(begin).transpose()?;
    match (spec.kind, file) {
        (SinkKind::Jsonl, file) => Ok(Box::new(JsonlSink {
            output: output(file, &spec.path, readers),
            path: spec.path.clone(),
            stream: stream.to_owned(),
            models,
        })),
        (SinkKind::FrameMd5, None) => {
            Ok(Box::new(FrameMd5Sink::to_writer(output(None, &spec.path, readers), "standard output")))
        }
        (SinkKind::FrameMd5, Some(file)) => {
            let name = spec.path.display().to_string();
            let output = output(Some(file), &spec.path, readers);
            Ok(Box::new(FrameMd5Sink::to_writer(output, &name).at(&spec.path)))
        }
        (SinkKind::Mp4, Some(file)) => mp4(file, &spec.path, Codec::H264, stream, models),
        (SinkKind::Mp4H265, Some(file)) => mp4(file, &spec.path, Codec::H265, stream, models),
        (other, _) => {
            let cause = format!("this binary has no sink of kind {other:?} for it");
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
fn mp4(
    file: File,
    path: &Path,
    codec: Codec,
    stream: &str,
    models: Arc<[ModelNames]>,
) -> Result<Box<dyn Sink>, Diagnosis> {
    let stream = stream.to_owned();
    let paint = Box::new(move |picture: &mut [u8], width: u32, height: u32, shown: Shown<'_>| {
        let Some(mut canvas) = Canvas::new(picture, width, height) else { return };
        match shown {
            Shown::Outcome(outcome) => paint_outcome(&mut canvas, outcome, &models),
            Shown::Offline(silence) => {
                let text = format!("{stream}: no picture for {:.0} s", silence.as_secs_f64());
                draw_card(&mut canvas, &text);
            }
        }
    });
    Ok(Box::new(orinoco_media::Mp4Sink::to_file(file, path, codec, paint)?))
}

#[cfg(feature = "gstreamer")]
fn paint_outcome(canvas: &mut Canvas<'_>, outcome: &Outcome, models: &[ModelNames]) {
    for found in &outcome.found {
        let names = &models[found.model];
        match found.object.map(|object| outcome.detection(object)) {
            None => {
                let count = found.findings.detections.len();
                let count = if count == 0 { String::new() } else { format!(": {count}") };
                let caption = format!("{} on {}{count}", names.name, names.engine);
                draw(canvas, &found.findings, &names.labels, &caption);
            }
            Some(Some(holder)) => draw_within(canvas, &found.findings, &names.labels, holder),
            Some(None) => {}
        }
    }
}

#[cfg(not(feature = "gstreamer"))]
fn mp4(_: File, path: &Path, _: Codec, _: &str, _: Arc<[ModelNames]>) -> Result<Box<dyn Sink>, Diagnosis> {
    let next = "build with the feature gstreamer, or write jsonl";
    Err(Diagnosis::new(
        &codes::FEATURE_MISSING,
        path.display(),
        "this binary was built without GStreamer",
        next,
    ))
}

const SINK_NEXT: &str = "check that its folder can be written";

/// Standard output or `file`, which is at `path`.
fn output(file: Option<File>, path: &Path, readers: &mut Vec<Reader>) -> Box<dyn Write + Send> {
    let Some(file) = file else {
        let (output, reader) = ReaderOutput::stdout();
        readers.push(reader);
        return Box::new(output);
    };
    if file.metadata().is_ok_and(|there| there.is_file()) {
        return Box::new(LineFile::new(file));
    }
    let (output, reader) = ReaderOutput::file(file, path);
    readers.push(reader);
    // Whoever reads it sees each line at once, as on standard output.
    Box::new(LineWriter::new(output))
}

/// One `orinoco.result/1` object a line, one line for each frame and model, or object and model.
struct JsonlSink {
    output: Box<dyn Write + Send>,
    path: PathBuf,
    stream: String,
    models: Arc<[ModelNames]>,
}

impl JsonlSink {
    fn object(&self, outcome: &Outcome, object: Object) -> Option<ObjectJson> {
        let (names, found) = (&self.models[object.model], outcome.detection(object)?);
        let label = names.labels.get(found.class_id as usize).map_or("?", String::as_str);
        let track_id = outcome.track(object).map(|track| track.0);
        Some(ObjectJson {
            model: names.name.clone(),
            index: object.detection,
            detection: DetectionJson { track_id, ..DetectionJson::new(found, label) },
        })
    }
}

impl JsonlSink {
    fn fault(&self, error: &io::Error) -> Diagnosis {
        let next = "free space, or choose another path";
        Diagnosis::new(&codes::SINK_WRITE, self.path.display(), error, next)
    }
}

impl Sink for JsonlSink {
    fn write(&mut self, outcome: &Outcome) -> Result<(), Diagnosis> {
        let desc = &outcome.frame.desc;
        for found in &outcome.found {
            let names = &self.models[found.model];
            let line = ResultLine {
                stream: Some(self.stream.clone()),
                seq: desc.seq,
                pts_ns: desc.pts.0,
                object: found.object.and_then(|object| self.object(outcome, object)),
                predicted: found.predicted,
                ..ResultLine::new(&names.name, names.engine, &found.findings, &names.labels)
            };
            let mut text =
                serde_json::to_string(&line).expect("a result has only text keys and plain numbers");
            text.push('\n');
            self.output.write_all(text.as_bytes()).map_err(|error| self.fault(&error))?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Diagnosis> {
        self.output.flush().map_err(|error| self.fault(&error))
    }

    fn file(&self) -> Option<&Path> {
        (self.path != Path::new("-")).then_some(&*self.path)
    }

    fn finish(&mut self) -> Result<Option<PathBuf>, Diagnosis> {
        self.flush()?;
        Ok(self.file().map(Path::to_owned))
    }
}
