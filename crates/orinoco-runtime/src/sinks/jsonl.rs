//! Sink `jsonl`: one `orinoco.result/1` object per line.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use orinoco_api::{DetectionJson, LineEventJson, ObjectJson, ResultLine, TrackJson, ZoneEventJson};
use orinoco_board::{Endings, SinkDescriptor, SinkKind, StandardOutput};
use orinoco_core::{Diagnosis, WallTime, codes};
use orinoco_pipeline::{Crossing, CrossingKind, FrameResult, Object, Sink};

use super::factory::{SinkFactory, SinkStart};
use super::names::{ModelNames, NamesOfModels};

static DESCRIPTOR: SinkDescriptor = SinkDescriptor {
    name: "jsonl",
    content: "JSON lines",
    endings: Endings::OfText("jsonl"),
    standard_output: StandardOutput::Allowed,
    reads_pixels: false,
};

pub(super) const JSONL: SinkFactory = SinkFactory { kind: SinkKind::new(&DESCRIPTOR), begin, repair: |_| {} };

fn begin(mut start: SinkStart<'_>) -> Result<Box<dyn Sink>, Diagnosis> {
    Ok(Box::new(JsonlSink {
        output: start.text(),
        path: start.path.to_owned(),
        stream: start.stream.to_owned(),
        models: start.models,
    }))
}

/// Sink that writes one `orinoco.result/1` object per line, for each frame and model, or for each object and model.
struct JsonlSink {
    output: Box<dyn Write + Send>,
    path: PathBuf,
    stream: String,
    models: NamesOfModels,
}

impl JsonlSink {
    fn object(&self, frame_result: &FrameResult, object: Object) -> Option<ObjectJson> {
        let (names, found) = (&self.models[&object.model], frame_result.detection(object)?);
        let label = names.labels.get(found.class_id as usize).map_or("?", String::as_str);
        let track_id = frame_result.track(object).map(|track| track.0);
        Some(ObjectJson {
            model: names.name.clone(),
            index: frame_result.reported_index(object)?,
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

fn zone_json(crossing: &Crossing, names: &ModelNames) -> Option<ZoneEventJson> {
    let event = match crossing.kind {
        CrossingKind::Entered => "entered",
        CrossingKind::Left => "left",
        CrossingKind::AToB | CrossingKind::BToA => return None,
    };
    Some(ZoneEventJson {
        name: crossing.name.to_string(),
        event: event.to_owned(),
        by: crossed_by(crossing, names),
    })
}

fn line_json(crossing: &Crossing, names: &ModelNames) -> Option<LineEventJson> {
    let direction = match crossing.kind {
        CrossingKind::AToB => "a_to_b",
        CrossingKind::BToA => "b_to_a",
        CrossingKind::Entered | CrossingKind::Left => return None,
    };
    let (name, direction) = (crossing.name.to_string(), direction.to_owned());
    Some(LineEventJson { name, direction, by: crossed_by(crossing, names) })
}

fn crossed_by(crossing: &Crossing, names: &ModelNames) -> TrackJson {
    let label = names.labels.get(crossing.class_id as usize).map_or("?", String::as_str);
    TrackJson { track_id: crossing.track.0, class_id: crossing.class_id, label: label.to_owned() }
}

impl Sink for JsonlSink {
    fn write(&mut self, frame_result: &FrameResult) -> Result<(), Diagnosis> {
        let desc = &frame_result.frame.desc;
        for found in frame_result.reported() {
            let names = &self.models[&found.model];
            let line = ResultLine {
                stream: Some(self.stream.clone()),
                seq: desc.seq,
                pts_ns: desc.pts.0,
                wall_ns: desc.wall.map(WallTime::unix_nanos),
                object: found.object.and_then(|object| self.object(frame_result, object)),
                predicted: found.predicted,
                zones: found.crossings.iter().filter_map(|crossing| zone_json(crossing, names)).collect(),
                lines: found.crossings.iter().filter_map(|crossing| line_json(crossing, names)).collect(),
                ..ResultLine::new(&names.name, names.engine, &found.reported(), &names.labels)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sinks::NamesOfModels;
    use orinoco_core::{
        BoxF, Clock, Detection, FrameDesc, InferenceResult, ModelId, Nanos, PixelFormat, TrackId,
    };
    use orinoco_pipeline::{Frame, ModelResult, MonotonicClock, Slot, SlotPool};
    use std::collections::BTreeMap;
    use std::fs::File;
    use std::sync::Arc;

    /// Returns the lines that are written for a frame, without the schema and the boxes.
    fn lines(found: Vec<ModelResult>) -> Vec<ResultLine> {
        let slot = SlotPool::new(1, 1).try_take().expect("free");
        let wall = Some(WallTime::from_unix_nanos(1_793_000_000_123_456_789));
        let desc = FrameDesc { wall, ..FrameDesc::packed(PixelFormat::Gray8, 1, 1) };
        let frame = Frame::new(desc, Slot::Owned(slot), Nanos(0)).expect("fits");
        let names = |name: &str| {
            let (name, labels) = (name.to_owned(), vec!["person".to_owned()]);
            Arc::new(ModelNames { name, engine: "none", labels })
        };
        let dir = tempfile::tempdir().expect("temporary folder");
        let path = dir.path().join("out.jsonl");
        let names = [(ModelId(0), names("primary")), (ModelId(1), names("second"))];
        let names: NamesOfModels = Arc::new(BTreeMap::from(names));
        let file = Some(File::create(&path).expect("writable"));
        let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::default());
        let start = SinkStart {
            path: &path,
            file,
            stream: "s",
            models: names,
            clock: &clock,
            readers: &mut Vec::new(),
        };
        let mut sink = begin(start).expect("begun");
        sink.write(&FrameResult { frame, found, finished: Nanos(0) }).expect("written");
        sink.finish().expect("complete");
        let text = std::fs::read_to_string(&path).expect("there");
        text.lines().map(|line| serde_json::from_str(line).expect("a result")).collect()
    }

    fn inference(scores: &[f32]) -> InferenceResult {
        let bounds = BoxF { x1: 0.0, y1: 0.0, x2: 1.0, y2: 1.0 };
        let detections = scores.iter().map(|&score| Detection { class_id: 0, score, bounds });
        InferenceResult { detections: detections.collect(), ..InferenceResult::default() }
    }

    #[test]
    fn an_object_names_its_row_among_the_detections_that_are_written() {
        let mut primary =
            ModelResult { inference: inference(&[0.9, 0.4, 0.3, 0.2]), ..ModelResult::default() };
        primary.inference.tracks = vec![Some(TrackId(1)), None, Some(TrackId(2)), None];
        primary.tracker_only = vec![false, true, false, true];
        let second = |detection| ModelResult {
            model: ModelId(1),
            object: Some(Object { model: ModelId(0), detection }),
            inference: inference(&[0.7]),
            ..ModelResult::default()
        };
        let written = lines(vec![primary, second(0), second(1), second(2), second(3)]);
        let tracks =
            |line: &ResultLine| -> Vec<_> { line.detections.iter().map(|found| found.track_id).collect() };
        assert_eq!(tracks(&written[0]), [Some(1), Some(2)]);
        let objects: Vec<_> =
            written[1..].iter().map(|line| line.object.clone().expect("of an object")).collect();
        let objects: Vec<_> =
            objects.iter().map(|object| (object.index, object.detection.track_id)).collect();
        assert_eq!(objects, [(0, Some(1)), (1, Some(2))], "what is for the tracker only is left out");
        for line in &written[1..] {
            let object = line.object.clone().expect("of an object");
            assert_eq!(written[0].detections[object.index], object.detection, "the index joins the lines");
        }
    }

    #[test]
    fn crossings_and_the_time_of_day_are_written() {
        let crossing =
            |name: &str, kind| Crossing { name: name.into(), kind, track: TrackId(4), class_id: 0 };
        let crossings = vec![
            crossing("yard", CrossingKind::Entered),
            crossing("gate", CrossingKind::BToA),
            crossing("road", CrossingKind::Left),
            crossing("gate", CrossingKind::AToB),
        ];
        let written = lines(vec![ModelResult { crossings, ..ModelResult::default() }]);
        assert_eq!(written[0].wall_ns, Some(1_793_000_000_123_456_789), "every digit is kept");
        let zones: Vec<_> = written[0].zones.iter().map(|zone| (&*zone.name, &*zone.event)).collect();
        assert_eq!(zones, [("yard", "entered"), ("road", "left")]);
        let crossed: Vec<_> = written[0].lines.iter().map(|line| (&*line.name, &*line.direction)).collect();
        assert_eq!(crossed, [("gate", "b_to_a"), ("gate", "a_to_b")]);
        let by = TrackJson { track_id: 4, class_id: 0, label: "person".to_owned() };
        assert!(written[0].zones.iter().map(|zone| &zone.by).all(|one| *one == by));
        assert!(written[0].lines.iter().map(|line| &line.by).all(|one| *one == by));
    }
}
