use std::fmt;
use std::path::PathBuf;

use orinoco_core::Diagnosis;

use crate::cameras::{CsiAddress, V4l2Address, read_csi, read_v4l2};
use crate::fault::Fault;
use crate::files::{Escapes, FilePaths, ImagePaths, read_file};
use crate::network::{HttpAddress, HttpSource, RtspAddress, read_http, read_rtsp};
use crate::other::{OtherAddress, Scheme, read_other, unknown_scheme};
use crate::pattern::{TestPattern, read_test};
use crate::raw::{RawVideo, read_stdin};
use crate::scheme::{has_scheme, is_mistyped, is_scheme};
use crate::secrets::{without_login, without_secrets};
use crate::settings::{Pace, Playback};

/// Parsed source URI. Its syntax is valid; whether the source exists is checked elsewhere.
///
/// The display form and the debug form hide passwords, so both may appear in any message.
#[derive(Clone, PartialEq, Eq)]
pub struct SourceUri {
    kind: SourceKind,
    shown: String,
}

/// Kind of source, with its settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceKind {
    /// A video file.
    Video {
        /// Its path.
        path: PathBuf,
        /// Whether the file starts again at its end, without limit.
        repeat: bool,
        /// Pace at which it is read.
        pace: Pace,
    },
    /// An image, numbered images, or a folder of images.
    Images {
        /// Their paths.
        paths: ImagePaths,
        /// Whether the images start again after the last one, without limit.
        repeat: bool,
        /// Pace at which they are read.
        pace: Pace,
    },
    /// V4L2 camera.
    Camera(V4l2Address),
    /// Camera at a CSI connector of a Jetson.
    Csi(CsiAddress),
    /// RTSP camera or server.
    Rtsp(RtspAddress),
    /// MJPEG camera: sends JPEG images over HTTP without end (`multipart/x-mixed-replace`).
    HttpCamera(HttpAddress),
    /// A video file on a web server.
    HttpVideo {
        /// Its address.
        address: HttpAddress,
        /// Whether the file starts again at its end, without limit.
        repeat: bool,
        /// Pace at which it is read.
        pace: Pace,
    },
    /// Uncompressed video from standard input.
    Stdin(RawVideo),
    /// Generated test pattern.
    Test(TestPattern),
    /// No frames of its own: the stream's models infer images of other boards of the cluster.
    Cluster,
    /// A source of another scheme, one of those that [`SourceUri::parse_with`] was given.
    Other(OtherAddress),
}

impl SourceUri {
    /// Parses `file://PATH?loop=1&pace=pts`, a plain path, `rtsp://HOST/PATH?transport=udp`, `http://HOST/PATH`,
    /// `csi://0?width=1920&height=1080&fps=30`,
    /// `v4l2:///dev/video0?format=NV12&width=640&height=360&fps=30&control.brightness=100`,
    /// `stdin://?format=i420&width=640&height=480&fps=30`, `test://ball?width=640&height=480&fps=30&frames=100&pace=pts` or
    /// `cluster://`.
    ///
    /// Paths of `file://` are percent-decoded; plain paths are used as written, but may have settings after a `?`. A
    /// path that ends in `/` is a folder of images. For any other path, the code that opens the source asks the file
    /// system whether it is a folder.
    pub fn parse(text: &str) -> Result<Self, Diagnosis> {
        Self::parse_with(text, &[])
    }

    /// Reads what [`SourceUri::parse`] reads, and addresses of the schemes `others`: those of sources that have no variant
    /// of [`SourceKind`]. Any other scheme is refused here, so that a typing error is found where a text is read.
    pub fn parse_with(text: &str, others: &[Scheme]) -> Result<Self, Diagnosis> {
        // A leading space is a typing error: no file is called ` rtsp://...`.
        let trimmed = text.trim_start();
        let text = if has_scheme(trimmed) { trimmed } else { text };
        let shown = without_secrets(text);
        if text.trim().is_empty() {
            let next =
                "name a file, a folder of images, csi://, v4l2://, rtsp://, http://, stdin:// or test://ball";
            return Err(Fault::new("it is empty", next).about("source"));
        }
        if text.contains('\0') {
            return Err(Fault::new("it contains a NUL character", "remove it").about(&shown));
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
            "cluster" if rest.is_empty() => Ok(SourceKind::Cluster),
            "cluster" => Err(Fault::new(
                "nothing follows `cluster://`",
                "write source = \"cluster://\": it serves all seats",
            )),
            _ => match others.iter().find(|other| other.name == scheme) {
                Some(other) => Ok(SourceKind::Other(read_other(*other, rest))),
                None => Err(unknown_scheme(&scheme, others)),
            },
        };
        let kind = kind.map_err(|fault| fault.about(&shown))?;
        // A plain path may still be an address that lost its scheme.
        let path_shown = |path: String| if scheme.is_empty() { without_login(&path) } else { path };
        let shown = kind.path_shown().map_or(shown, path_shown);
        Ok(Self { kind, shown })
    }

    /// Returns the kind of source with its settings.
    pub fn kind(&self) -> &SourceKind {
        &self.kind
    }

    /// Whether the source produces frames even when nobody takes them.
    pub fn is_live(&self) -> bool {
        match &self.kind {
            SourceKind::Camera(_) | SourceKind::Csi(_) | SourceKind::Rtsp(_) | SourceKind::HttpCamera(_) => {
                true
            }
            SourceKind::Other(address) => address.scheme().is_live,
            SourceKind::Video { .. }
            | SourceKind::Images { .. }
            | SourceKind::HttpVideo { .. }
            | SourceKind::Stdin(_)
            | SourceKind::Test(_)
            | SourceKind::Cluster => false,
        }
    }

    /// Returns the fault of a source that nobody opens: its scheme was accepted when it was read, and is that of no source
    /// here.
    pub fn unknown_scheme(&self) -> Diagnosis {
        let scheme = self.shown.split_once("://").map_or("", |(scheme, _)| scheme);
        unknown_scheme(scheme, &[]).about(&self.shown)
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
            | Self::Test(_)
            | Self::Cluster
            | Self::Other(_) => None,
        }
    }
}
