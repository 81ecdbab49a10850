//! Checksums of frames as text, in the form of FFmpeg's `framemd5`, so that decoders can be compared by `diff`.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use md5::{Digest, Md5};
use orinoco_core::{Diagnosis, FrameDesc, codes};
use orinoco_pipeline::{Frame, FrameResult, Sink};

use crate::LineFile;

/// Writes one line per frame: stream, DTS, PTS, duration, size and MD5 of the tightly packed picture in its own pixel
/// format. Times are in nanoseconds.
///
/// A frame's duration is the time to the next one, so each line is written when its successor is known, and is in the file
/// within a second of that.
pub struct FrameMd5Sink {
    output: Box<dyn Write + Send>,
    name: String,
    path: Option<PathBuf>,
    waiting: Option<Row>,
    last_duration: u64,
}

struct Row {
    pts: u64,
    size: usize,
    md5: String,
}

impl FrameMd5Sink {
    /// Writes to a new file at `path`.
    pub fn create(path: &Path) -> Result<Self, Diagnosis> {
        let file = File::create(path).map_err(|error| {
            let next = "check that the folder exists and that this user may write in it";
            Diagnosis::new(&codes::SINK_OPEN, path.display(), error, next)
        })?;
        Ok(Self::to_file(file, path))
    }

    /// Writes to `file`, an empty one at `path`.
    pub fn to_file(file: File, path: &Path) -> Self {
        let output = Box::new(LineFile::new(file));
        let (name, path) = (path.display().to_string(), Some(path.to_owned()));
        Self { output, name, path, waiting: None, last_duration: 0 }
    }

    /// Writes to `output`, which messages call `name`.
    pub fn to_writer(output: Box<dyn Write + Send>, name: &str) -> Self {
        let output = Box::new(BufWriter::new(output));
        Self { output, name: name.to_owned(), path: None, waiting: None, last_duration: 0 }
    }

    /// The same, whose output is the file at `path`.
    pub fn at(self, path: &Path) -> Self {
        Self { path: Some(path.to_owned()), ..self }
    }

    /// Takes one frame.
    pub fn write_frame(&mut self, frame: &Frame) -> Result<(), Diagnosis> {
        let row = Row { pts: frame.desc.pts.0, size: frame.desc.bytes_packed(), md5: checksum(frame) };
        let written = match self.waiting.replace(row) {
            None => write_header(&mut self.output, &frame.desc),
            Some(before) => {
                self.last_duration = frame.desc.pts.0.saturating_sub(before.pts);
                write_row(&mut self.output, &before, self.last_duration)
            }
        };
        written.map_err(|error| self.fault(&error))
    }

    fn complete(&mut self) -> io::Result<()> {
        if let Some(last) = self.waiting.take() {
            write_row(&mut self.output, &last, self.last_duration)?;
        }
        self.output.flush()
    }

    fn fault(&self, error: &io::Error) -> Diagnosis {
        let next = "check the free space, and that nothing closed the output";
        Diagnosis::new(&codes::SINK_WRITE, &self.name, error, next)
    }
}

impl Sink for FrameMd5Sink {
    fn write(&mut self, frame_result: &FrameResult) -> Result<(), Diagnosis> {
        self.write_frame(&frame_result.frame)
    }

    fn flush(&mut self) -> Result<(), Diagnosis> {
        self.output.flush().map_err(|error| self.fault(&error))
    }

    fn file(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    fn finish(&mut self) -> Result<Option<PathBuf>, Diagnosis> {
        self.complete().map_err(|error| self.fault(&error))?;
        Ok(self.path.clone())
    }
}

fn checksum(frame: &Frame) -> String {
    let mut md5 = Md5::new();
    for row in frame.view().packed_rows() {
        md5.update(row);
    }
    let mut text = String::with_capacity(32);
    for byte in md5.finalize() {
        write!(text, "{byte:02x}").expect("writing to a string does not fail");
    }
    text
}

fn write_header(output: &mut impl Write, desc: &FrameDesc) -> io::Result<()> {
    writeln!(output, "#format: frame checksums")?;
    writeln!(output, "#version: 2")?;
    writeln!(output, "#hash: MD5")?;
    writeln!(output, "#software: orinoco")?;
    writeln!(output, "#tb 0: 1/1000000000")?;
    writeln!(output, "#media_type 0: video")?;
    writeln!(output, "#dimensions 0: {}x{}", desc.width, desc.height)?;
    writeln!(output, "#stream#, dts, pts, duration, size, hash")
}

fn write_row(output: &mut impl Write, row: &Row, duration: u64) -> io::Result<()> {
    // In one piece: an output that refuses it has not got a part of it.
    let line = format!("0, {pts}, {pts}, {duration}, {}, {}\n", row.size, row.md5, pts = row.pts);
    output.write_all(line.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};
    use orinoco_core::{Nanos, PixelFormat, Pts};
    use orinoco_pipeline::{Slot, SlotPool};

    fn frame(pts: u64) -> Frame {
        let mut desc = FrameDesc::packed(PixelFormat::Gray8, 4, 2);
        desc.pts = Pts(pts);
        let slot = SlotPool::new(1, 8).try_take().expect("free");
        Frame::new(desc, Slot::Owned(slot), Nanos(0)).expect("it fits")
    }

    fn check(frames: &[u64], expect: Expect) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("out.framemd5");
        let mut sink = FrameMd5Sink::create(&path).expect("the folder is writable");
        for &pts in frames {
            sink.write_frame(&frame(pts)).expect("the disk has room");
        }
        assert_eq!(sink.finish().expect("the disk has room"), Some(path.clone()));
        expect.assert_eq(&std::fs::read_to_string(&path).expect("just written"));
    }

    #[test]
    fn text_is_as_ffmpeg_writes_it() {
        let text = expect![[r#"
            #format: frame checksums
            #version: 2
            #hash: MD5
            #software: orinoco
            #tb 0: 1/1000000000
            #media_type 0: video
            #dimensions 0: 4x2
            #stream#, dts, pts, duration, size, hash
            0, 0, 0, 40, 8, 7dea362b3fac8e00956a4952a3d4f474
            0, 40, 40, 50, 8, 7dea362b3fac8e00956a4952a3d4f474
            0, 90, 90, 50, 8, 7dea362b3fac8e00956a4952a3d4f474
        "#]];
        check(&[0, 40, 90], text);
    }

    #[test]
    fn no_frames_no_text() {
        check(&[], expect![""]);
    }

    #[test]
    fn what_cannot_be_written_is_told() {
        let fault =
            FrameMd5Sink::create(Path::new("/nowhere/at/all.md5")).map(|_| ()).expect_err("no such folder");
        assert_eq!(fault.code.id, codes::SINK_OPEN.id);
        let mut full = FrameMd5Sink::create(Path::new("/dev/full")).expect("it opens");
        full.write_frame(&frame(0)).expect("it is still buffered");
        assert_eq!(full.finish().expect_err("there is no room").code.id, codes::SINK_WRITE.id);
    }
}
