//! What the name of a file says of it.

use std::path::Path;

/// Extensions taken as still images; everything else is given to GStreamer.
const IMAGE_EXTENSIONS: [&str; 4] = ["jpg", "jpeg", "png", "webp"];

/// Extensions by which an HTTP address is a video file; everything else is taken as a camera's MJPEG stream, whose
/// addresses follow no rule (`/mjpg/video.cgi`, `/stream`, `/?action=stream`).
const HTTP_VIDEO_EXTENSIONS: [&str; 14] =
    ["mp4", "m4v", "mov", "mkv", "webm", "avi", "ts", "mts", "m2ts", "mpg", "mpeg", "flv", "ogv", "3gp"];

/// Whether a path ends like a still image's that is read.
pub fn is_image_name(path: &Path) -> bool {
    has_extension(path, &IMAGE_EXTENSIONS)
}

/// Whether a path ends like a video's.
pub fn is_video_name(path: &Path) -> bool {
    has_extension(path, &HTTP_VIDEO_EXTENSIONS) || has_extension(path, &["gif", "vob", "wmv", "h264", "h265"])
}

/// Whether the path of an HTTP address ends like a video file's.
pub(crate) fn is_http_video_name(path: &str) -> bool {
    has_extension(Path::new(path), &HTTP_VIDEO_EXTENSIONS)
}

fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    let extension = path.extension().and_then(|text| text.to_str()).map(str::to_ascii_lowercase);
    extension.is_some_and(|text| extensions.contains(&text.as_str()))
}
