use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::escapes::escape_at;
use crate::fault::Fault;
use crate::names::is_image_name;
use crate::settings::{Playback, read_pace, read_switch, settings, unknown_setting};

/// Paths of one or more images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImagePaths {
    /// One image.
    One(PathBuf),
    /// Numbered images without a gap, starting at 0 or 1.
    Numbered(NumberedPath),
    /// All images of a folder, in the natural order of their names.
    Folder(PathBuf),
}

/// Path with a number in it, written as `img_%04i.jpg`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberedPath {
    before: OsString,
    digits: usize,
    after: OsString,
}

impl NumberedPath {
    /// Returns the path with `number` in it.
    pub fn path(&self, number: u32) -> PathBuf {
        let mut path = self.before.clone();
        path.push(format!("{number:0width$}", width = self.digits));
        path.push(&self.after);
        PathBuf::from(path)
    }
}

impl fmt::Display for NumberedPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = if self.digits == 0 { "%i".to_owned() } else { format!("%0{}i", self.digits) };
        write!(f, "{}{number}{}", Path::new(&self.before).display(), Path::new(&self.after).display())
    }
}

/// Paths of a file source.
pub(crate) enum FilePaths {
    Video(PathBuf),
    Images(ImagePaths),
}

/// Meaning of `%` in a path.
#[derive(Clone, Copy)]
pub(crate) enum Escapes {
    Percent,
    Literal,
}

/// Parses the text after `file://`, or a plain path.
pub(crate) fn read_file(rest: &str, escapes: Escapes) -> Result<(FilePaths, Playback), Fault> {
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    if path.is_empty() {
        return Err(Fault::new("it names no file", "write the path after file://"));
    }
    let mut playback = Playback::default();
    for (key, value) in settings(query) {
        match key {
            "loop" => playback.repeat = read_switch(key, value)?,
            "pace" => playback.pace = read_pace(value)?,
            _ => {
                let fault = unknown_setting(key, "a file", "loop and pace");
                let next =
                    format!("{}; if `?` is part of the file name, write file://PATH with %3F", fault.next);
                return Err(Fault { next, ..fault });
            }
        }
    }
    let paths = match read_path(path, escapes)? {
        PathPieces::Numbered(numbered) if is_image_name(&numbered.path(0)) => {
            FilePaths::Images(ImagePaths::Numbered(numbered))
        }
        PathPieces::Numbered(_) => {
            let cause = "numbers in a file name are for images only";
            return Err(Fault::new(cause, "end the name in .jpg, .png or .webp, or name one file"));
        }
        PathPieces::Plain(path) if path.as_os_str().as_bytes().ends_with(b"/") => {
            FilePaths::Images(ImagePaths::Folder(path))
        }
        PathPieces::Plain(path) if is_image_name(&path) => FilePaths::Images(ImagePaths::One(path)),
        PathPieces::Plain(path) => FilePaths::Video(path),
    };
    Ok((paths, playback))
}

enum PathPieces {
    Plain(PathBuf),
    Numbered(NumberedPath),
}

/// Splits a path at its number, if it has one, and decodes its escapes.
fn read_path(text: &str, escapes: Escapes) -> Result<PathPieces, Fault> {
    let mut before: Option<(Vec<u8>, usize)> = None;
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'%' {
            bytes.push(byte);
        } else if let Some((digits, length)) = number_at(tail) {
            rest = &tail[length..];
            if before.replace((std::mem::take(&mut bytes), digits)).is_some() {
                return Err(Fault::new("it has more than one number", "keep one %i or %04i"));
            }
        } else if let Escapes::Literal = escapes {
            bytes.push(byte);
        } else {
            bytes.push(escape_at(tail)?);
            rest = &tail[2..];
        }
    }
    let text = OsString::from_vec(bytes);
    Ok(match before {
        None => PathPieces::Plain(PathBuf::from(text)),
        Some((before, digits)) => {
            PathPieces::Numbered(NumberedPath { before: OsString::from_vec(before), digits, after: text })
        }
    })
}

/// Reads `i`, `d`, `04i` or `04d` after a `%`. Returns the number of digits to pad to, and the length read.
///
/// Escapes look alike: `%20d` is a space and a `d`, `%d0` is one byte. Only forms that no sensible escape has count as
/// numbers: zero-padded widths (`%04` would be a control character), and a bare letter that no hex digit follows.
fn number_at(tail: &[u8]) -> Option<(usize, usize)> {
    match *tail {
        [b'0', width @ b'1'..=b'9', b'i' | b'd', ..] => Some((usize::from(width - b'0'), 3)),
        [b'i', ..] => Some((0, 1)),
        [b'd', next, ..] if next.is_ascii_hexdigit() => None,
        [b'd', ..] => Some((0, 1)),
        _ => None,
    }
}
