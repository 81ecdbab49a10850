//! Outputs of streams: their kinds, as each declares itself, and what a board file says of one.

use std::fmt;
use std::ops::Deref;
use std::path::PathBuf;

/// Declaration of a kind of sink, which stands in its own file.
#[derive(Debug)]
pub struct SinkDescriptor {
    /// Name in board files and on the command line.
    pub name: &'static str,
    /// Content of its files, as messages call it: `an MP4 video`.
    pub content: &'static str,
    /// Endings that its files may have.
    pub endings: Endings,
    /// Whether it may write to standard output.
    pub standard_output: StandardOutput,
    /// Whether it reads the pixels of frames, which then have to be in the host's memory.
    pub reads_pixels: bool,
}

/// Endings that the files of a sink may have, without the dot and in lower case.
#[derive(Clone, Copy, Debug)]
pub enum Endings {
    /// One of these. The first is the usual one.
    OneOf(&'static [&'static str]),
    /// Any but those of images and videos, because it is text; this is the usual one.
    OfText(&'static str),
}

impl Endings {
    /// Returns the usual ending.
    pub fn usual(&self) -> &'static str {
        match self {
            Self::OneOf(endings) => endings[0],
            Self::OfText(usual) => usual,
        }
    }
}

/// Whether a sink may write to standard output.
#[derive(Clone, Copy, Debug)]
pub enum StandardOutput {
    /// It may.
    Allowed,
    /// It may not.
    Refused {
        /// Reason, in one sentence.
        cause: &'static str,
        /// Text to write after `--sink` instead.
        example: &'static str,
    },
}

/// A kind of sink: a handle to what its file declares. Kinds of one name are equal.
#[derive(Clone, Copy)]
pub struct SinkKind(&'static SinkDescriptor);

impl SinkKind {
    /// The kind that `descriptor` declares.
    pub const fn new(descriptor: &'static SinkDescriptor) -> Self {
        Self(descriptor)
    }

    /// Returns the one of `kinds` that is called `name`.
    pub fn find(kinds: &[Self], name: &str) -> Option<Self> {
        kinds.iter().copied().find(|kind| kind.name == name)
    }

    /// Returns the names of `kinds` as a choice: `jsonl, mp4 or framemd5`.
    pub fn names_of(kinds: &[Self]) -> String {
        let names: Vec<&str> = kinds.iter().map(|kind| kind.name).collect();
        match names.as_slice() {
            [names @ .., last] if !names.is_empty() => format!("{} or {last}", names.join(", ")),
            names => names.concat(),
        }
    }
}

impl Deref for SinkKind {
    type Target = SinkDescriptor;

    fn deref(&self) -> &SinkDescriptor {
        self.0
    }
}

impl PartialEq for SinkKind {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for SinkKind {}

impl fmt::Debug for SinkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// One output of one stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkSpec {
    /// Kind of output.
    pub kind: SinkKind,
    /// Path of the file; `-` is standard output.
    pub path: PathBuf,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_a_choice() {
        static DESCRIPTORS: [SinkDescriptor; 3] = [descriptor("a"), descriptor("b"), descriptor("c")];
        const fn descriptor(name: &'static str) -> SinkDescriptor {
            SinkDescriptor {
                name,
                content: "text",
                endings: Endings::OfText("txt"),
                standard_output: StandardOutput::Allowed,
                reads_pixels: false,
            }
        }
        let kinds = DESCRIPTORS.each_ref().map(SinkKind::new);
        let names = |count: usize| SinkKind::names_of(&kinds[..count]);
        assert_eq!([names(0), names(1), names(2), names(3)], ["", "a", "a or b", "a, b or c"]);
        assert_eq!((SinkKind::find(&kinds, "b"), SinkKind::find(&kinds, "d")), (Some(kinds[1]), None));
    }
}
