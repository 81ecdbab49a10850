//! Suite of tests that every sink of the list passes. If this build lacks a part of a sink, or this machine its encoder,
//! the sink refuses to begin, and its tests are skipped.

#![expect(clippy::print_stdout, reason = "sinks that cannot run here are named, with --nocapture")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use orinoco_board::{BoardStream, SinkKind, SinkSpec, StandardOutput};
use orinoco_core::{
    BoxF, Clock, Detection, Diagnosis, FrameDesc, InferenceResult, ModelId, Nanos, PixelFormat, Pts, codes,
};
use orinoco_pipeline::{Frame, FrameResult, ModelResult, MonotonicClock, Sink, Slot, SlotPool, Stop};

use super::{ALL, ModelNames, SINKS, SinkFactory, open, repair};
use crate::outputs::{ExistingOutputs, ReaderWait, TakenFiles, open_sinks};

/// Number of frames of a run: more than an encoder holds back.
const FRAMES: u64 = 12;
/// Maximum number of frames until a full disk is noticed, with flushes: their results are larger than the buffers.
const FRAMES_FULL_MAX: u64 = 2000;

fn frame_result(seq: u64) -> FrameResult {
    let mut desc = FrameDesc::packed(PixelFormat::I420, 64, 48);
    (desc.seq, desc.pts) = (seq, Pts(seq * 40_000_000));
    let slot = SlotPool::new(1, desc.bytes_needed()).try_take().expect("free");
    let frame = Frame::new(desc, Slot::Owned(slot), Nanos(seq)).expect("it fits");
    let bounds = BoxF { x1: 1.0, y1: 2.0, x2: 30.0, y2: 40.0 };
    let detections = vec![Detection { class_id: 0, score: 0.5, bounds }];
    let found = ModelResult {
        inference: InferenceResult { detections, ..InferenceResult::default() },
        ..ModelResult::default()
    };
    FrameResult { frame, found: vec![found], finished: Nanos(seq) }
}

/// Begins a sink at `path` as a run does; `None` if this build or this machine lacks a part of it.
fn begin(factory: &SinkFactory, path: &Path) -> Option<Box<dyn Sink>> {
    let spec = SinkSpec { kind: factory.kind, path: path.to_owned() };
    let file = TakenFiles::default().open(path, "the suite writes it").expect("writable");
    let names = ModelNames { name: "m".to_owned(), engine: "none", labels: vec!["person".to_owned()] };
    let names = Arc::new(BTreeMap::from([(ModelId(0), Arc::new(names))]));
    let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::default());
    match open(&spec, Some(file), "s", &names, &clock, &mut Vec::new()) {
        Ok(sink) => Some(sink),
        Err(why) => {
            let lacks = [codes::FEATURE_MISSING.id, codes::SINK_OPEN.id].contains(&why.code.id);
            assert!(lacks && why.subject.contains(&path.display().to_string()), "{why}");
            println!("skipped: {:?} ({why})", factory.kind);
            None
        }
    }
}

/// Calls `check` for each sink of the list, with the path of a new file that has the sink's usual ending.
fn each(check: impl Fn(&SinkFactory, &Path)) {
    for factory in ALL {
        let folder = tempfile::tempdir().expect("temporary folder");
        check(factory, &folder.path().join("out").with_extension(factory.kind.endings.usual()));
    }
}

fn write(sink: &mut dyn Sink, frames: std::ops::Range<u64>) -> Result<(), Diagnosis> {
    for seq in frames {
        sink.write(&frame_result(seq))?;
        if seq % 4 == 3 {
            sink.flush()?;
        }
    }
    Ok(())
}

#[test]
fn names_are_distinct_and_declared() {
    for (index, kind) in SINKS.iter().enumerate() {
        assert_eq!(SinkKind::find(SINKS, kind.name), Some(*kind));
        assert_eq!(SINKS.iter().position(|other| other.name == kind.name), Some(index), "{kind:?}");
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        assert!(!kind.name.is_empty() && kind.name.chars().all(is_plain), "{kind:?}");
        assert!(!kind.content.is_empty() && !kind.endings.usual().is_empty(), "{kind:?}");
    }
    assert_eq!(SINKS.len(), ALL.len());
}

#[test]
fn outcomes_are_taken_flushed_and_completed() {
    each(|factory, path| {
        fs::write(path, "of an earlier run".repeat(1000)).expect("writable");
        let Some(mut sink) = begin(factory, path) else { return };
        assert_eq!(fs::metadata(path).expect("it is there").len(), 0, "{:?} empties its file", factory.kind);
        write(&mut *sink, 0..FRAMES).expect("there is room");
        sink.offline(Duration::from_secs(1)).expect("there is room");
        write(&mut *sink, FRAMES..2 * FRAMES).expect("there is room");
        assert_eq!(sink.file(), Some(path), "{:?}", factory.kind);
        sink.flush().and_then(|()| sink.flush()).expect("there is room");
        assert_eq!(sink.finish().expect("there is room"), Some(path.to_owned()), "{:?}", factory.kind);
        drop(sink);
        let written = fs::read(path).expect("it is there");
        assert!(!written.is_empty() && !written.starts_with(b"of an earlier run"), "{:?}", factory.kind);
        // A complete file needs no repair, so that repairing changes nothing.
        repair(factory.kind, path);
        assert_eq!(fs::read(path).expect("it is there"), written, "{:?}", factory.kind);
    });
}

#[test]
fn a_stream_without_a_frame_is_complete_too() {
    each(|factory, path| {
        let Some(mut sink) = begin(factory, path) else { return };
        sink.flush().expect("there is room");
        sink.finish().expect("there is room");
    });
}

#[test]
fn a_full_disk_is_a_fault_that_names_the_file() {
    each(|factory, folder| {
        // The disk is reached by a link, so that the name has an ending that the kind accepts.
        std::os::unix::fs::symlink("/dev/full", folder).expect("linked");
        let Some(mut sink) = begin(factory, folder) else { return };
        let failed = (0..FRAMES_FULL_MAX)
            .step_by(8)
            .find_map(|seq| write(&mut *sink, seq..seq + 8).and_then(|()| sink.flush()).err());
        // Completing succeeds all the same, or reports the fault again.
        let last = sink.finish();
        let why = failed.or(last.err()).unwrap_or_else(|| panic!("{:?} noticed nothing", factory.kind));
        assert_eq!(why.code.id, codes::SINK_WRITE.id, "{why}");
        assert!(why.subject.contains(&folder.display().to_string()), "{why}");
        assert!(!why.cause.is_empty() && !why.next.is_empty(), "{why}");
    });
}

#[test]
fn a_name_is_taken_or_refused_as_it_declares() {
    each(|factory, path| {
        let open_at = |path: PathBuf| {
            let sinks = vec![SinkSpec { kind: factory.kind, path }];
            let stream = BoardStream {
                sinks,
                ..BoardStream::new("s", crate::testing::uri("test://ball"), Vec::new())
            };
            let mut taken = TakenFiles::default();
            let (clock, stop) = (MonotonicClock::default(), Stop::default());
            let readers = ReaderWait::new(&clock, &stop);
            open_sinks([&stream], &mut taken, &TakenFiles::default(), ExistingOutputs::Overwritten, &readers)
                .map(|_| ())
                .map_err(Diagnosis::from)
        };
        open_at(path.to_owned()).unwrap_or_else(|why| panic!("{why}"));
        let why = open_at(path.with_extension("webm")).expect_err("it promises another format");
        assert!(
            why.cause.contains(factory.kind.content) && why.next.contains(factory.kind.endings.usual()),
            "{why}"
        );
        let to_standard_output = open_at(PathBuf::from("-"));
        match factory.kind.standard_output {
            StandardOutput::Allowed => assert!(to_standard_output.is_ok(), "{:?}", factory.kind),
            StandardOutput::Refused { cause, example } => {
                assert_eq!(to_standard_output.expect_err("it declares so").cause, cause);
                assert!(example.contains(factory.kind.endings.usual()), "{example}");
            }
        }
        // Nothing was begun, so no file is left.
        assert!(!path.exists());
    });
}

#[test]
fn a_run_that_was_killed_leaves_what_it_can_repair() {
    each(|factory, path| {
        // A file of another program is not changed, whatever its name.
        File::create(path)
            .and_then(|mut file| std::io::Write::write_all(&mut file, b"other"))
            .expect("writable");
        repair(factory.kind, path);
        assert_eq!(fs::read(path).expect("it is there"), b"other", "{:?}", factory.kind);
    });
}
