use std::fmt;
use std::path::PathBuf;

use orinoco_core::{Diagnosis, codes};

use crate::cameras::{CsiAddress, V4l2Address, read_csi, read_v4l2};
use crate::fault::Fault;
use crate::files::{Escapes, FilePaths, ImagePaths, read_file};
use crate::network::{HttpAddress, HttpSource, RtspAddress, read_http, read_rtsp};
use crate::pattern::{TestPattern, read_test};
use crate::raw::{RawVideo, read_stdin};
use crate::scheme::{has_scheme, is_mistyped, is_scheme};
use crate::secrets::{without_login, without_secrets};
use crate::settings::{Pace, Playback};

/// A source as a user wrote it, read once. Nothing about it can be misspelt any more; whether it is there is another
/// question.
///
/// Its display form and its debug form hide passwords, so they may go into any message.
#[derive(Clone, PartialEq, Eq)]
pub struct SourceUri {
    kind: SourceKind,
    shown: String,
}

/// The kinds of source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceKind {
    /// A video file.
    Video {
        /// Where it is.
        path: PathBuf,
        /// Whether it starts again at its end, for ever.
        repeat: bool,
        /// How fast it is read.
        pace: Pace,
    },
    /// An image, numbered images, or a folder of images.
    Images {
        /// Where they are.
        paths: ImagePaths,
        /// Whether they start again after the last one, for ever.
        repeat: bool,
        /// How fast they are read.
        pace: Pace,
    },
    /// A camera of the kernel.
    Camera(V4l2Address),
    /// A camera at a Jetson's CSI connector.
    Csi(CsiAddress),
    /// A camera or server that speaks RTSP.
    Rtsp(RtspAddress),
    /// A camera that sends JPEG pictures over HTTP without end (`multipart/x-mixed-replace`).
    HttpCamera(HttpAddress),
    /// A video file on a web server.
    HttpVideo {
        /// Where it is.
        address: HttpAddress,
        /// Whether it starts again at its end, for ever.
        repeat: bool,
        /// How fast it is read.
        pace: Pace,
    },
    /// Uncompressed video from standard input.
    Stdin(RawVideo),
    /// Pictures made here.
    Test(TestPattern),
}

impl SourceUri {
    /// Reads `file://PATH?loop=1&pace=pts`, a plain path, `rtsp://HOST/PATH?transport=udp`, `http://HOST/PATH`,
    /// `csi://0?width=1920&height=1080&fps=30`,
    /// `v4l2:///dev/video0?format=NV12&width=640&height=360&fps=30&control.brightness=100`,
    /// `stdin://?format=i420&width=640&height=480&fps=30` or
    /// `test://ball?width=640&height=480&fps=30&frames=100&pace=pts`.
    ///
    /// Paths of `file://` are percent-decoded; plain paths are taken as they are, but may have settings after a `?`.
    /// A path that ends in `/` is a folder of images. Whether any other path is a folder, the file system knows: whoever
    /// opens the source asks it.
    pub fn parse(text: &str) -> Result<Self, Diagnosis> {
        // Nobody's file is called ` rtsp://...`: somebody typed a space.
        let trimmed = text.trim_start();
        let text = if has_scheme(trimmed) { trimmed } else { text };
        let shown = without_secrets(text);
        let fault = |Fault { cause, next }: Fault| Diagnosis::new(&codes::SOURCE_URI, &shown, cause, next);
        if text.trim().is_empty() {
            return Err(Diagnosis::new(
                &codes::SOURCE_URI,
                "source",
                "it is empty",
                "name a file, a folder of images, csi://, v4l2://, rtsp://, http://, stdin:// or test://ball",
            ));
        }
        if text.contains('\0') {
            return Err(fault(Fault::new("it contains a NUL character", "remove it")));
        }
        let (scheme, rest) = match text.split_once("://") {
            Some((scheme, rest)) if is_scheme(scheme) => (scheme.to_ascii_lowercase(), rest),
            _ => (String::new(), text),
        };
        let kind = match scheme.as_str() {
            "" if is_mistyped(rest) => Err(Fault::new(
                "the scheme is not followed by `://`",
                "write rtsp://HOST/PATH or http://HOST/PATH",
            )),
            "" => read_file(rest, Escapes::Literal).map(SourceKind::of_files),
            "file" => read_file(rest, Escapes::Percent).map(SourceKind::of_files),
            "rtsp" | "rtsps" => read_rtsp(&scheme, rest).map(SourceKind::Rtsp),
            "http" | "https" => read_http(&scheme, rest).map(SourceKind::of_http),
            "csi" => read_csi(rest).map(SourceKind::Csi),
            "v4l2" => read_v4l2(rest).map(SourceKind::Camera),
            "stdin" => read_stdin(rest).map(SourceKind::Stdin),
            "test" => read_test(rest).map(SourceKind::Test),
            _ => Err(Fault::new(
                format!("`{scheme}://` is not a kind of source"),
                "use file://, csi://, v4l2://, rtsp://, http://, stdin:// or test://ball, or a plain path",
            )),
        };
        let kind = kind.map_err(fault)?;
        // A plain path may still be an address that lost its scheme.
        let path_shown = |path: String| if scheme.is_empty() { without_login(&path) } else { path };
        let shown = kind.path_shown().map_or(shown, path_shown);
        Ok(Self { kind, shown })
    }

    /// Returns what it is, with its settings.
    pub fn kind(&self) -> &SourceKind {
        &self.kind
    }

    /// Whether it runs whether or not anybody takes its frames.
    pub fn is_live(&self) -> bool {
        matches!(
            self.kind,
            SourceKind::Camera(_) | SourceKind::Csi(_) | SourceKind::Rtsp(_) | SourceKind::HttpCamera(_)
        )
    }
}

impl fmt::Display for SourceUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for SourceUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SourceUri({})", self.shown)
    }
}

impl SourceKind {
    fn of_files((paths, Playback { repeat, pace }): (FilePaths, Playback)) -> Self {
        match paths {
            FilePaths::Video(path) => Self::Video { path, repeat, pace },
            FilePaths::Images(paths) => Self::Images { paths, repeat, pace },
        }
    }

    fn of_http(source: HttpSource) -> Self {
        match source {
            HttpSource::Camera(address) => Self::HttpCamera(address),
            HttpSource::Video(address, Playback { repeat, pace }) => {
                Self::HttpVideo { address, repeat, pace }
            }
        }
    }

    fn path_shown(&self) -> Option<String> {
        match self {
            Self::Video { path, .. }
            | Self::Images { paths: ImagePaths::One(path) | ImagePaths::Folder(path), .. } => {
                Some(path.display().to_string())
            }
            Self::Images { paths: ImagePaths::Numbered(numbered), .. } => Some(numbered.to_string()),
            Self::Camera(_)
            | Self::Csi(_)
            | Self::Rtsp(_)
            | Self::HttpCamera(_)
            | Self::HttpVideo { .. }
            | Self::Stdin(_)
            | Self::Test(_) => None,
        }
    }
}
