//! Endings of output names. Players and people expect the format that an ending stands for.

use std::path::Path;

use orinoco_board::{Endings, SinkKind};

use super::error::OutputError;

/// Endings of images and videos, which no text output may have.
const IMAGES: &[&str] =
    &["avi", "gif", "jpeg", "jpg", "m4v", "mkv", "mov", "mp4", "mpeg", "mpg", "png", "ts", "webm", "webp"];

/// Refuses a name whose ending stands for another format than the one that is written. A name without an ending is
/// accepted.
pub(crate) fn check_ending(kind: SinkKind, path: &Path) -> Result<(), OutputError> {
    let Some(ending) = path.extension() else { return Ok(()) };
    let ending = ending.to_string_lossy().to_lowercase();
    let is_right = match kind.endings {
        Endings::OneOf(endings) => endings.contains(&ending.as_str()),
        Endings::OfText(_) => !IMAGES.contains(&ending.as_str()),
    };
    if is_right { Ok(()) } else { Err(OutputError::Ending { path: path.to_owned(), kind }) }
}

#[cfg(test)]
mod tests {
    use orinoco_core::Diagnosis;

    use super::*;
    use crate::sinks::{JSONL, MP4, SINKS};

    #[test]
    fn names_that_promise_another_format_are_refused() {
        let check =
            |kind, path: &str| check_ending(kind, Path::new(path)).map_err(|why| Diagnosis::from(why).next);
        let kind = |name| SinkKind::find(SINKS, name).expect("a sink has this name");
        for kind in [MP4, kind("mp4-h265")] {
            for path in ["a.mp4", "out/A.MP4", "a.m4v", "video", "a.b/video", ".hidden", "/dev/null"] {
                assert_eq!(check(kind, path), Ok(()), "{path}");
            }
            for path in ["a.jpg", "a.avi", "a.mkv", "a.mov", "a.mp4.part", "a.jsonl"] {
                let next = "end the name in .mp4 or .m4v".to_owned();
                assert_eq!(check(kind, path), Err(next), "{path}");
            }
        }
        for kind in [JSONL, kind("framemd5")] {
            for path in ["a.jsonl", "a.json", "a.txt", "a.md5", "results", "-"] {
                assert_eq!(check(kind, path), Ok(()), "{path}");
            }
            for path in ["a.mp4", "a.JPG", "a.mkv"] {
                assert!(check(kind, path).is_err(), "{path}");
            }
        }
    }
}
