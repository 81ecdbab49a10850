//! Files of lines, such as results.

use std::fs::File;
use std::io::{self, ErrorKind, Write};

/// Bytes that wait for a flush, at most: one write for many lines.
const WAITING_MAX: usize = 1 << 16;

/// Writes whole lines. Where the disk takes no more, the file ends with the last line that there was room for.
#[derive(Debug)]
pub struct LineFile {
    file: File,
    /// Bytes in the file, all of them whole lines.
    written: u64,
    waiting: Vec<u8>,
}

impl LineFile {
    /// Writes to an empty file, a pipe or a device.
    pub fn new(file: File) -> Self {
        Self { file, written: 0, waiting: Vec::new() }
    }

    fn write_whole_lines(&mut self) -> io::Result<()> {
        let whole = end_of_lines(&self.waiting);
        let mut done = 0;
        let failed = loop {
            if done == whole {
                break None;
            }
            match self.file.write(&self.waiting[done..whole]) {
                Ok(0) => break Some(ErrorKind::WriteZero.into()),
                Ok(bytes) => done += bytes,
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                Err(why) => break Some(why),
            }
        };
        let kept = end_of_lines(&self.waiting[..done]);
        self.written += kept as u64;
        self.waiting.drain(..kept);
        if kept < done && self.file.metadata().is_ok_and(|there| there.is_file()) {
            // If this fails too, the file ends with a part of a line.
            let _ = self.file.set_len(self.written);
        }
        failed.map_or(Ok(()), Err)
    }
}

/// Where the last line of `text` ends that has an end.
fn end_of_lines(text: &[u8]) -> usize {
    text.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1)
}

impl Write for LineFile {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.waiting.extend_from_slice(text);
        if self.waiting.len() >= WAITING_MAX {
            self.write_whole_lines()?;
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.write_whole_lines()
    }
}

impl Drop for LineFile {
    fn drop(&mut self) {
        // Who wants to know of a failure flushes before.
        let _ = self.write_whole_lines();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
