//! Files of text lines, such as results.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::FileExt;

/// Maximum number of bytes that wait for a flush, unless a single text has more: one write serves many lines.
const WAITING_MAX: usize = 1 << 16;

/// Writer of whole lines. If the disk is full, the file ends with the last line that fits.
#[derive(Debug)]
pub struct LineFile {
    file: File,
    /// Whether `file` is a regular file. Pipes and devices have neither positions nor a length.
    is_regular: bool,
    /// Number of bytes in the file, all of them whole lines.
    written: u64,
    waiting: Vec<u8>,
}

impl LineFile {
    /// Creates a writer to an empty file, a pipe or a device.
    pub fn new(file: File) -> Self {
        let is_regular = file.metadata().is_ok_and(|there| there.is_file());
        Self { file, is_regular, written: 0, waiting: Vec::new() }
    }

    fn write_whole_lines(&mut self) -> io::Result<()> {
        let whole = end_of_lines(&self.waiting);
        let mut done = 0;
        let failed = loop {
            if done == whole {
                break None;
            }
            let rest = &self.waiting[done..whole];
            let taken = match self.is_regular {
                // Not at the file's cursor, which a removed part of a line has moved.
                true => self.file.write_at(rest, self.written + done as u64),
                false => self.file.write(rest),
            };
            match taken {
                Ok(0) => break Some(ErrorKind::WriteZero.into()),
                Ok(bytes) => done += bytes,
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                Err(why) => break Some(why),
            }
        };
        // Bytes that a pipe has taken cannot be removed.
        let kept = if self.is_regular { end_of_lines(&self.waiting[..done]) } else { done };
        self.written += kept as u64;
        self.waiting.drain(..kept);
        if kept < done {
            // If this fails too, the file ends with a part of a line.
            let _ = self.file.set_len(self.written);
        }
        failed.map_or(Ok(()), Err)
    }
}

/// Returns the end of the last complete line in `text`.
fn end_of_lines(text: &[u8]) -> usize {
    text.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1)
}

impl Write for LineFile {
    /// Takes all of `text`, or nothing if the waiting bytes cannot be written.
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        if self.waiting.len() + text.len() > WAITING_MAX {
            self.write_whole_lines()?;
        }
        self.waiting.extend_from_slice(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.write_whole_lines()
    }
}

impl Drop for LineFile {
    fn drop(&mut self) {
        // A caller that needs to know about a failure flushes before.
        let _ = self.write_whole_lines();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek, SeekFrom};

    #[test]
    fn lines_are_there_after_a_flush_and_only_whole_ones() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("lines");
        let mut lines = LineFile::new(File::create(&path).expect("writable"));
        let there = || std::fs::read_to_string(&path).expect("readable");
        lines.write_all(b"one\ntw").expect("there is room");
        assert_eq!(there(), "");
        lines.flush().expect("there is room");
        assert_eq!(there(), "one\n");
        lines.write_all(b"o\n").expect("there is room");
        drop(lines);
        assert_eq!(there(), "one\ntwo\n");
    }

    #[test]
    fn many_lines_do_not_wait_for_a_flush() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("lines");
        let mut lines = LineFile::new(File::create(&path).expect("writable"));
        for _ in 0..WAITING_MAX {
            lines.write_all(b"a line\n").expect("there is room");
        }
        let length = path.metadata().expect("it is there").len();
        assert!(length > 6 * WAITING_MAX as u64 && length.is_multiple_of(7), "{length}");
    }

    #[test]
    fn a_part_that_was_taken_back_leaves_no_hole() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("lines");
        let file = File::create(&path).expect("writable");
        // A write that fails in the middle of a line leaves the cursor there.
        let mut cursor = file.try_clone().expect("a file can be opened twice");
        let mut lines = LineFile::new(file);
        lines.write_all(b"one\n").expect("there is room");
        lines.flush().expect("there is room");
        cursor.seek(SeekFrom::Start(20)).expect("a file has places");
        lines.write_all(b"two\n").expect("there is room");
        drop(lines);
        assert_eq!(std::fs::read_to_string(&path).expect("readable"), "one\ntwo\n");
    }

    #[test]
    fn a_text_is_either_taken_or_refused() {
        let mut lines = LineFile::new(File::options().write(true).open("/dev/full").expect("it opens"));
        let mut taken = 0;
        while lines.write(b"a line\n").is_ok() {
            taken += 1;
            assert!(taken < WAITING_MAX, "there is no room");
        }
        assert_eq!(lines.waiting, b"a line\n".repeat(taken));
        // A caller that retries the last line writes it once.
        lines.file = File::create("/dev/null").expect("it opens");
        lines.write_all(b"a line\n").expect("there is room");
        assert_eq!((lines.written, lines.waiting.as_slice()), (7 * taken as u64, &b"a line\n"[..]));
    }
}
