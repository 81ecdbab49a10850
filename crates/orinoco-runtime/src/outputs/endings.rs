//! What an output's name promises. A player goes by the ending of a name, and so do people.

use std::path::Path;

use orinoco_board::SinkKind;
use orinoco_core::{Diagnosis, codes};

/// What an MP4 may be called.
const MP4: &[&str] = &["mp4", "m4v"];
/// Endings of pictures and videos, which no text may have.
const PICTURES: &[&str] =
    &["avi", "gif", "jpeg", "jpg", "m4v", "mkv", "mov", "mp4", "mpeg", "mpg", "png", "ts", "webm", "webp"];

/// Refuses a name that promises another format than the one that is written. A name without an ending promises none.
pub(crate) fn check_ending(kind: SinkKind, path: &Path) -> Result<(), Diagnosis> {
    let Some(ending) = path.extension() else { return Ok(()) };
    let ending = ending.to_string_lossy().to_lowercase();
    let (is_right, what, next) = match kind {
        SinkKind::Mp4(_) => (MP4.contains(&ending.as_str()), "an MP4 video", "end the name in .mp4 or .m4v"),
        SinkKind::Jsonl => (!PICTURES.contains(&ending.as_str()), "JSON lines", "end the name in .jsonl"),
        SinkKind::FrameMd5 => {
            (!PICTURES.contains(&ending.as_str()), "frame checksums", "end the name in .md5")
        }
    };
    if is_right {
        return Ok(());
    }
    let cause = format!("{what} would be written into a file that ends in .{ending}");
    Err(Diagnosis::new(&codes::SINK_OPEN, path.display(), cause, next))
}

#[cfg(test)]
mod tests {
    use super::*;
    use orinoco_core::Codec;

    #[test]
    fn names_that_promise_another_format_are_refused() {
        let check = |kind, path: &str| check_ending(kind, Path::new(path)).map_err(|why| why.next);
        for kind in [Codec::H264, Codec::H265].map(SinkKind::Mp4) {
            for path in ["a.mp4", "out/A.MP4", "a.m4v", "video", "a.b/video", ".hidden", "/dev/null"] {
                assert_eq!(check(kind, path), Ok(()), "{path}");
            }
            for path in ["a.jpg", "a.avi", "a.mkv", "a.mov", "a.mp4.part", "a.jsonl"] {
                let next = "end the name in .mp4 or .m4v".to_owned();
                assert_eq!(check(kind, path), Err(next), "{path}");
            }
        }
        for kind in [SinkKind::Jsonl, SinkKind::FrameMd5] {
            for path in ["a.jsonl", "a.json", "a.txt", "a.md5", "results", "-"] {
                assert_eq!(check(kind, path), Ok(()), "{path}");
            }
            for path in ["a.mp4", "a.JPG", "a.mkv"] {
                assert!(check(kind, path).is_err(), "{path}");
            }
        }
    }
}
