//! Kinds of file, recognised by name.

use std::path::Path;

/// Extensions of still images; all other files are given to GStreamer.
const IMAGE_EXTENSIONS: [&str; 4] = ["jpg", "jpeg", "png", "webp"];

/// Extensions that make an HTTP address a video file. Every other address is a camera's MJPEG stream, because those
/// follow no rule (`/mjpg/video.cgi`, `/stream`, `/?action=stream`).
const HTTP_VIDEO_EXTENSIONS: [&str; 14] =
    ["mp4", "m4v", "mov", "mkv", "webm", "avi", "ts", "mts", "m2ts", "mpg", "mpeg", "flv", "ogv", "3gp"];

/// Whether a path has the extension of a still image that Orinoco reads.
pub fn is_image_name(path: &Path) -> bool {
    has_extension(path, &IMAGE_EXTENSIONS)
}

/// Whether a path has the extension of a video.
pub fn is_video_name(path: &Path) -> bool {
    has_extension(path, &HTTP_VIDEO_EXTENSIONS) || has_extension(path, &["gif", "vob", "wmv", "h264", "h265"])
}

/// Whether the path of an HTTP address has the extension of a video file.
pub(crate) fn is_http_video_name(path: &str) -> bool {
    has_extension(Path::new(path), &HTTP_VIDEO_EXTENSIONS)
}

fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    let extension = path.extension().and_then(|text| text.to_str()).map(str::to_ascii_lowercase);
    extension.is_some_and(|text| extensions.contains(&text.as_str()))
}
