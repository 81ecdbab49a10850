//! What a source is, read from text once. After [`SourceUri::parse`] nothing about it can be misspelt any more.

use std::cmp::Ordering;
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::ops::RangeInclusive;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use orinoco_core::{ColorMatrix, ColorRange, Diagnosis, FrameDesc, PixelFormat, codes};

/// Extensions taken as still images; everything else is given to GStreamer.
const IMAGE_EXTENSIONS: [&str; 4] = ["jpg", "jpeg", "png", "webp"];
/// Extensions by which an HTTP address is a video file; everything else is taken as a camera's MJPEG stream, whose
/// addresses follow no rule (`/mjpg/video.cgi`, `/stream`, `/?action=stream`).
const HTTP_VIDEO_EXTENSIONS: [&str; 14] =
    ["mp4", "m4v", "mov", "mkv", "webm", "avi", "ts", "mts", "m2ts", "mpg", "mpeg", "flv", "ogv", "3gp"];
/// Sides of the test pattern: the ball must fit, and a frame must stay within what a board can hold.
const TEST_SIDE: RangeInclusive<u32> = 16..=8192;
/// Frame rates of the test pattern.
const TEST_FPS: RangeInclusive<u32> = 1..=1000;
/// Sides of raw video.
const RAW_SIDE: RangeInclusive<u32> = 1..=8192;
/// Sensors of a Jetson: six connectors with two each at most.
const CSI_SENSORS_MAX: u32 = 16;
/// Buffers of a camera: the driver fills one while another is on its way; V4L2 allows 32.
const CAMERA_BUFFERS: RangeInclusive<u32> = 2..=32;
/// Both terms of a raw video's frame rate: exact for NTSC's 30000/1001, and their product with a second fits 64 bits.
pub(crate) const RATE_TERM: RangeInclusive<u32> = 1..=1_000_000;
/// Images a folder may have. Their names are held in memory, about 100 bytes each.
const FOLDER_IMAGES_MAX: usize = 1_000_000;

/// A source that can be opened: the checked form of what a user wrote.
///
/// It shows itself without passwords, so it may go into any message.
#[derive(Clone, PartialEq, Eq)]
pub struct SourceUri {
    kind: SourceKind,
    shown: String,
}

/// The kinds of source.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
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

/// How fast a source that is not live delivers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// As fast as frames are taken.
    #[default]
    Free,
    /// In real time: each frame when its presentation time has come.
    Pts,
}

/// One image, or as many as there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImagePaths {
    /// One image.
    One(PathBuf),
    /// Images numbered without a gap, from 0 or 1.
    Numbered(NumberedPath),
    /// All images of a folder, in the natural order of their names.
    Folder(PathBuf),
}

/// A path with a number in it, as `img_%04i.jpg`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberedPath {
    before: OsString,
    digits: usize,
    after: OsString,
}

/// A camera that NVIDIA's image processor reads, and what it is asked for; what is `None` is the sensor's own choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CsiAddress {
    /// The sensor's number.
    pub sensor: u32,
    /// Width in pixels.
    pub width: Option<u32>,
    /// Height in pixels.
    pub height: Option<u32>,
    /// Frames a second.
    pub rate: Option<Rate>,
}

/// A Video4Linux2 device and how it is set; what is `None` stays as the driver has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct V4l2Address {
    /// Its device node: `/dev/video0`, or a lasting name below `/dev/v4l`.
    pub path: PathBuf,
    /// The four characters of its format: `NV12`, `YUYV`, `MJPG`.
    pub format: Option<[u8; 4]>,
    /// Width in pixels.
    pub width: Option<u32>,
    /// Height in pixels.
    pub height: Option<u32>,
    /// Frames a second.
    pub rate: Option<Rate>,
    /// Buffers that the driver fills in turn.
    pub buffers: u32,
    /// Controls by name with their values.
    pub controls: Vec<(String, i32)>,
}

impl Default for V4l2Address {
    fn default() -> Self {
        /// A ring, a batch and the sinks hold 6; two more stay with the driver.
        const BUFFERS: u32 = 8;
        Self {
            path: PathBuf::new(),
            format: None,
            width: None,
            height: None,
            rate: None,
            buffers: BUFFERS,
            controls: Vec::new(),
        }
    }
}

/// Where an RTSP stream is and how to reach it. Its debug form hides the password.
#[derive(Clone, PartialEq, Eq)]
pub struct RtspAddress {
    /// The URI without user name and password.
    pub location: String,
    /// The user name, decoded.
    pub user: Option<String>,
    /// The password, decoded.
    pub password: Option<String>,
    /// What carries the video.
    pub transport: Transport,
}

/// Where an HTTP stream is. Its debug form hides the password.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpAddress {
    /// The URI without user name and password.
    pub location: String,
    /// The user name, decoded.
    pub user: Option<String>,
    /// The password, decoded.
    pub password: Option<String>,
}

/// Uncompressed video, picture after picture, without padding between rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawVideo {
    /// What the bytes are.
    pub layout: RawLayout,
    /// How fast it is read.
    pub pace: Pace,
}

/// What the bytes of raw video are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawLayout {
    /// YUV4MPEG2, which describes itself.
    Y4m,
    /// Nothing but pictures.
    Frames(RawFrames),
}

/// Raw pictures, as whoever pipes them describes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawFrames {
    /// How pixels lie in memory.
    pub format: PixelFormat,
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// Pictures a second.
    pub rate: Rate,
    /// Coefficients of luma and chroma.
    pub matrix: ColorMatrix,
    /// Range of the samples.
    pub range: ColorRange,
}

/// A frame rate: frames in seconds. Neither is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Frames.
    pub frames: u32,
    /// Seconds that they take.
    pub seconds: u32,
}

/// What carries an RTSP stream's video.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// The RTSP connection itself: nothing is lost, firewalls agree.
    #[default]
    Tcp,
    /// UDP: no waiting for lost packets.
    Udp,
}

/// A ball that moves over a plain ground.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TestPattern {
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// Frames a second.
    pub fps: u32,
    /// Frames until the end; `None` never ends.
    pub frames: Option<u64>,
    /// How fast it delivers.
    pub pace: Pace,
}

/// Where the test pattern's ball is, in pixels: what a detector should find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ball {
    /// Column of its centre.
    pub x: u32,
    /// Row of its centre.
    pub y: u32,
    /// Its radius.
    pub radius: u32,
}

impl SourceUri {
    /// Reads `file://PATH?loop=1&pace=pts`, a plain path, `rtsp://HOST/PATH?transport=udp`, `http://HOST/PATH`,
    /// `csi://0?width=1920&height=1080&fps=30`,
    /// `v4l2:///dev/video0?format=NV12&width=640&height=360&fps=30&control.brightness=100`,
    /// `stdin://?format=i420&width=640&height=480&fps=30` or
    /// `test://ball?width=640&height=480&fps=30&frames=100&pace=pts`.
    ///
    /// Paths of `file://` are percent-decoded; plain paths are taken as they are, but may have settings after a `?`.
    /// A path that ends in `/` is a folder of images; [`crate::open`] takes any other path that is a folder as one too.
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
            "" => read_file(rest, Escapes::Literal),
            "file" => read_file(rest, Escapes::Percent),
            "rtsp" | "rtsps" => read_rtsp(&scheme, rest).map(SourceKind::Rtsp),
            "http" | "https" => read_http(&scheme, rest),
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

    /// What it is.
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

    /// Whether a local file is there and may be read. Asks nothing of the network.
    pub fn check(&self) -> Result<(), Diagnosis> {
        if let Some(folder) = self.folder() {
            return list_images(folder, &self.shown).map(|_| ());
        }
        match &self.kind {
            SourceKind::Video { path, .. } => check_file(path, &self.shown),
            SourceKind::Images { paths, .. } => check_file(&paths.first().path, &self.shown),
            SourceKind::Camera(_)
            | SourceKind::Csi(_)
            | SourceKind::Rtsp(_)
            | SourceKind::HttpCamera(_)
            | SourceKind::HttpVideo { .. }
            | SourceKind::Stdin(_)
            | SourceKind::Test(_) => Ok(()),
        }
    }

    /// The folder of images that it is, whether the text says so with a `/` at its end or only the file system knows.
    pub(crate) fn folder(&self) -> Option<&Path> {
        match &self.kind {
            SourceKind::Images { paths: ImagePaths::Folder(path), .. } => Some(path),
            SourceKind::Video { path, .. } | SourceKind::Images { paths: ImagePaths::One(path), .. } => {
                path.is_dir().then_some(path)
            }
            _ => None,
        }
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

impl fmt::Debug for RtspAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RtspAddress({}, {:?})", without_secrets(&self.location), self.transport)
    }
}

impl fmt::Debug for HttpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HttpAddress({})", without_secrets(&self.location))
    }
}

impl SourceKind {
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

/// An image's place in its sequence.
#[derive(Clone, Debug)]
pub(crate) struct ImageStart {
    pub(crate) path: PathBuf,
    pub(crate) number: u32,
}

impl ImagePaths {
    /// The first image: number 0 where there is one, else 1; of a folder, the folder itself.
    pub(crate) fn first(&self) -> ImageStart {
        match self {
            Self::One(path) | Self::Folder(path) => ImageStart { path: path.clone(), number: 0 },
            Self::Numbered(numbered) => {
                let number = if numbered.path(0).exists() { 0 } else { 1 };
                ImageStart { path: numbered.path(number), number }
            }
        }
    }
}

impl SourceUri {
    /// The files that the source reads and that are there now; none for cameras and streams.
    pub fn files(&self) -> Vec<PathBuf> {
        match self.kind() {
            SourceKind::Video { path, .. } | SourceKind::Images { paths: ImagePaths::One(path), .. } => {
                vec![path.clone()]
            }
            SourceKind::Images { paths: paths @ ImagePaths::Numbered(numbered), .. } => {
                let numbers = (paths.first().number..).take(FOLDER_IMAGES_MAX);
                numbers.map(|number| numbered.path(number)).take_while(|path| path.exists()).collect()
            }
            SourceKind::Images { paths: ImagePaths::Folder(folder), .. } => {
                // A folder that cannot be read is a fault of the source.
                list_images(folder, &self.to_string()).unwrap_or_default()
            }
            _ => Vec::new(),
        }
    }
}

impl NumberedPath {
    /// The path with `number` in it.
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

impl Rate {
    /// The time of frame `number`, in nanoseconds, when frame 0 is at zero.
    pub fn nanos(self, number: u64) -> u64 {
        let nanos = u128::from(number) * u128::from(self.seconds) * 1_000_000_000 / u128::from(self.frames);
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }
}

impl RawFrames {
    /// The first picture's descriptor.
    pub fn desc(&self) -> FrameDesc {
        let packed = FrameDesc::packed(self.format, self.width, self.height);
        FrameDesc { matrix: self.matrix, range: self.range, ..packed }
    }
}

impl TestPattern {
    /// Where the ball is in frame `number`.
    pub fn ball(&self, number: u64) -> Ball {
        let radius = (self.width.min(self.height) / 8).max(1);
        // Different speeds across and down, so that the path is long before it repeats.
        let x = bounce(number.wrapping_mul(5), self.width - 2 * radius);
        let y = bounce(number.wrapping_mul(3), self.height - 2 * radius);
        Ball { x: radius + x, y: radius + y, radius }
    }
}

/// A position that runs from 0 to below `span` and back.
fn bounce(travelled: u64, span: u32) -> u32 {
    let turn = u64::from(span.max(2) - 1);
    let place = travelled % (2 * turn);
    let place = if place <= turn { place } else { 2 * turn - place };
    u32::try_from(place).expect("it is below the span")
}

/// Why a text is no source, and what to write instead.
struct Fault {
    cause: String,
    next: String,
}

impl Fault {
    fn new(cause: impl Into<String>, next: impl Into<String>) -> Self {
        Self { cause: cause.into(), next: next.into() }
    }
}

fn is_scheme(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
}

/// How `%` is read in a path.
#[derive(Clone, Copy)]
enum Escapes {
    Percent,
    Literal,
}

fn read_file(rest: &str, escapes: Escapes) -> Result<SourceKind, Fault> {
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    if path.is_empty() {
        return Err(Fault::new("it names no file", "write the path after file://"));
    }
    let mut repeat = false;
    let mut pace = Pace::Free;
    for (key, value) in settings(query) {
        match key {
            "loop" => repeat = read_switch(key, value)?,
            "pace" => pace = read_pace(value)?,
            _ => {
                let fault = unknown_setting(key, "a file", "loop and pace");
                let next =
                    format!("{}; if `?` is part of the file name, write file://PATH with %3F", fault.next);
                return Err(Fault { next, ..fault });
            }
        }
    }
    let pieces = read_path(path, escapes)?;
    let path = match pieces {
        PathPieces::Plain(path) => path,
        PathPieces::Numbered(numbered) => {
            if !is_image(Path::new(&numbered.path(0))) {
                let cause = "numbers in a file name are for images only";
                return Err(Fault::new(cause, "end the name in .jpg, .png or .webp, or name one file"));
            }
            return Ok(SourceKind::Images { paths: ImagePaths::Numbered(numbered), repeat, pace });
        }
    };
    if path.as_os_str().as_bytes().ends_with(b"/") {
        return Ok(SourceKind::Images { paths: ImagePaths::Folder(path), repeat, pace });
    }
    Ok(match is_image(&path) {
        true => SourceKind::Images { paths: ImagePaths::One(path), repeat, pace },
        false => SourceKind::Video { path, repeat, pace },
    })
}

fn is_image(path: &Path) -> bool {
    has_extension(path, &IMAGE_EXTENSIONS)
}

/// Whether a path ends like a video's.
pub(crate) fn is_video_name(path: &Path) -> bool {
    has_extension(path, &HTTP_VIDEO_EXTENSIONS) || has_extension(path, &["gif", "vob", "wmv", "h264", "h265"])
}

fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    let extension = path.extension().and_then(|text| text.to_str()).map(str::to_ascii_lowercase);
    extension.is_some_and(|text| extensions.contains(&text.as_str()))
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

/// Reads `i`, `d`, `04i` or `04d` after a `%`: the digits to pad to, and the length read.
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

fn escape_at(tail: &[u8]) -> Result<u8, Fault> {
    let hex = tail.get(..2).and_then(|pair| std::str::from_utf8(pair).ok());
    match hex.and_then(|pair| u8::from_str_radix(pair, 16).ok()) {
        Some(0) => Err(Fault::new("it contains a NUL character", "remove %00")),
        Some(byte) => Ok(byte),
        None => Err(Fault::new("a `%` is not followed by two hex digits", "write % itself as %25")),
    }
}

fn read_rtsp(scheme: &str, rest: &str) -> Result<RtspAddress, Fault> {
    let server = read_server(rest)?;
    let (path, transport) = split_transport(server.path)?;
    let location = read_location(scheme, server.host, &path)?;
    Ok(RtspAddress { location, user: server.user, password: server.password, transport })
}

fn read_http(scheme: &str, rest: &str) -> Result<SourceKind, Fault> {
    let server = read_server(rest)?;
    let place = server.path.split(['?', '#']).next().unwrap_or_default();
    let is_video = has_extension(Path::new(place), &HTTP_VIDEO_EXTENSIONS);
    let (path, repeat, pace) = if is_video {
        split_file_settings(server.path)?
    } else {
        (server.path.to_owned(), false, Pace::Free)
    };
    let location = read_location(scheme, server.host, &path)?;
    let address = HttpAddress { location, user: server.user, password: server.password };
    Ok(match is_video {
        true => SourceKind::HttpVideo { address, repeat, pace },
        false => SourceKind::HttpCamera(address),
    })
}

/// The parts of `USER:PASSWORD@HOST:PORT/PATH`.
struct Server<'a> {
    user: Option<String>,
    password: Option<String>,
    host: &'a str,
    path: &'a str,
}

fn read_server(rest: &str) -> Result<Server<'_>, Fault> {
    let authority_end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(authority_end);
    let (login, host) = match authority.rsplit_once('@') {
        Some((login, host)) => (Some(login), host),
        None => (None, authority),
    };
    let (user, password) = match login.map(|login| login.split_once(':').unwrap_or((login, ""))) {
        Some((user, password)) => (read_login(user)?, read_login(password)?),
        None => (None, None),
    };
    Ok(Server { user, password, host, path })
}

fn read_location(scheme: &str, host: &str, path: &str) -> Result<String, Fault> {
    let location = format!("{scheme}://{host}{path}");
    // An empty host would let an HTTP path slip into its place.
    let valid = !host.is_empty()
        && url::Url::parse(&location).is_ok_and(|url| url.host_str().is_some_and(|host| !host.is_empty()));
    if !valid {
        let next = format!(
            "write {scheme}://USER:PASSWORD@HOST:PORT/PATH, and special characters of the password as %XX"
        );
        return Err(Fault::new("it has no valid host and port", next));
    }
    Ok(location)
}

fn read_login(text: &str) -> Result<Option<String>, Fault> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let escaped = byte == b'%';
        bytes.push(if escaped { escape_at(tail)? } else { byte });
        rest = if escaped { &tail[2..] } else { tail };
    }
    let fault =
        || Fault::new("user name or password is not UTF-8", "write special characters as %XX of UTF-8");
    let text = String::from_utf8(bytes).map_err(|_| fault())?;
    Ok((!text.is_empty()).then_some(text))
}

/// Takes our `transport` out of the query; everything else in it is the camera's.
fn split_transport(path: &str) -> Result<(String, Transport), Fault> {
    let Some((path, query)) = path.split_once('?') else { return Ok((path.to_owned(), Transport::Tcp)) };
    let mut transport = Transport::Tcp;
    let mut kept = Vec::new();
    for setting in query.split('&') {
        match setting.split_once('=') {
            Some(("transport", "tcp")) => transport = Transport::Tcp,
            Some(("transport", "udp")) => transport = Transport::Udp,
            Some(("transport", _)) => {
                return Err(Fault::new("its transport is not known", "write transport=tcp or transport=udp"));
            }
            _ => kept.push(setting),
        }
    }
    let query = kept.join("&");
    let path = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
    Ok((path, transport))
}

/// Takes our `loop` and `pace` out of the query; everything else in it is the server's.
fn split_file_settings(path: &str) -> Result<(String, bool, Pace), Fault> {
    let (mut repeat, mut pace) = (false, Pace::Free);
    let Some((path, query)) = path.split_once('?') else { return Ok((path.to_owned(), repeat, pace)) };
    let mut kept = Vec::new();
    for setting in query.split('&') {
        match setting.split_once('=') {
            Some(("loop", value)) => repeat = read_switch("loop", value)?,
            Some(("pace", value)) => pace = read_pace(value)?,
            _ => kept.push(setting),
        }
    }
    let query = kept.join("&");
    let path = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
    Ok((path, repeat, pace))
}

fn read_stdin(rest: &str) -> Result<RawVideo, Fault> {
    const KNOWN: &str = "format, width, height, fps, matrix, range and pace";
    let (name, query) = rest.split_once('?').unwrap_or((rest, ""));
    if !matches!(name, "" | "/") {
        let next = "write stdin://?format=FORMAT, and the other settings after it";
        return Err(Fault::new("standard input has no path", next));
    }
    let value_of = |wanted| settings(query).filter(|(key, _)| *key == wanted).last().map(|(_, value)| value);
    let mut pace = Pace::Free;
    for (key, value) in settings(query) {
        match key {
            "pace" => pace = read_pace(value)?,
            "format" | "width" | "height" | "fps" | "matrix" | "range" => {}
            "loop" => return Err(Fault::new("standard input cannot start again", "leave loop out")),
            _ => return Err(unknown_setting(key, "raw video", KNOWN)),
        }
    }
    let format = match value_of("format") {
        Some("i420" | "yuv420p") => PixelFormat::I420,
        Some("nv12") => PixelFormat::Nv12,
        Some("yuy2" | "yuyv" | "yuyv422") => PixelFormat::Yuy2,
        Some("uyvy" | "uyvy422") => PixelFormat::Uyvy,
        Some("rgb" | "rgb24") => PixelFormat::Rgb,
        Some("bgr" | "bgr24") => PixelFormat::Bgr,
        Some("gray8" | "gray") => PixelFormat::Gray8,
        Some("y4m") => {
            let told = ["width", "height", "fps", "matrix", "range"].map(|key| value_of(key).and(Some(key)));
            return match told.into_iter().flatten().next() {
                None => Ok(RawVideo { layout: RawLayout::Y4m, pace }),
                Some(key) => {
                    Err(Fault::new(format!("`{key}` is told by y4m itself"), format!("leave {key} out")))
                }
            };
        }
        Some(other) => {
            let next = "write format=i420, nv12, yuy2, uyvy, rgb, bgr, gray8 or y4m";
            return Err(Fault::new(format!("`format={other}` is not known"), next));
        }
        None => {
            let next = "write stdin://?format=i420&width=640&height=480&fps=30, or stdin://?format=y4m";
            return Err(Fault::new("it does not say what the bytes are", next));
        }
    };
    let side = |key| match value_of(key) {
        Some(value) => read_number(key, value, RAW_SIDE),
        None => Err(Fault::new(format!("it has no {key}"), format!("add {key}= and the pixels"))),
    };
    let (width, height) = (side("width")?, side("height")?);
    let rate = read_rate(value_of("fps").unwrap_or("30"))?;
    let desc = FrameDesc::packed(format, width, height);
    let matrix = match value_of("matrix") {
        None => ColorMatrix::of_untagged(height),
        Some("bt601") => ColorMatrix::Bt601,
        Some("bt709") => ColorMatrix::Bt709,
        Some("bt2020") => ColorMatrix::Bt2020,
        Some(other) => {
            let next = "write matrix=bt601, bt709 or bt2020";
            return Err(Fault::new(format!("`matrix={other}` is not known"), next));
        }
    };
    let range = match value_of("range") {
        None => desc.range,
        Some("limited") => ColorRange::Limited,
        Some("full") => ColorRange::Full,
        Some(other) => {
            let next = "write range=limited or range=full";
            return Err(Fault::new(format!("`range={other}` is not known"), next));
        }
    };
    if !format.is_yuv() && (value_of("matrix").is_some() || value_of("range").is_some()) {
        return Err(Fault::new("matrix and range are for i420 and nv12 only", "leave them out"));
    }
    let matrix = if format.is_yuv() { matrix } else { desc.matrix };
    Ok(RawVideo { layout: RawLayout::Frames(RawFrames { format, width, height, rate, matrix, range }), pace })
}

/// Reads `30` or `30000/1001`.
fn read_rate(text: &str) -> Result<Rate, Fault> {
    let (frames, seconds) = text.split_once('/').unwrap_or((text, "1"));
    let term = |text: &str| text.parse().ok().filter(|number| RATE_TERM.contains(number));
    match (term(frames), term(seconds)) {
        (Some(frames), Some(seconds)) => Ok(Rate { frames, seconds }),
        _ => Err(Fault::new(
            format!("`fps={text}` is not possible"),
            "write frames a second as fps=30 or fps=30000/1001",
        )),
    }
}

fn read_v4l2(rest: &str) -> Result<V4l2Address, Fault> {
    const KNOWN: &str = "format, width, height, fps, buffers and control.NAME";
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    if !path.starts_with('/') {
        let next = "write v4l2:///dev/video0; `orinoco cameras` lists what there is";
        return Err(Fault::new("it does not name a device node", next));
    }
    let mut address = V4l2Address { path: PathBuf::from(path), ..V4l2Address::default() };
    for (key, value) in settings(query) {
        match key {
            "format" => address.format = Some(read_fourcc(value)?),
            "width" => address.width = Some(read_number(key, value, RAW_SIDE)?),
            "height" => address.height = Some(read_number(key, value, RAW_SIDE)?),
            "fps" => address.rate = Some(read_rate(value)?),
            "buffers" => address.buffers = read_number(key, value, CAMERA_BUFFERS)?,
            _ => match key.strip_prefix("control.") {
                Some(name) => {
                    let next = "write a whole number, as control.brightness=100";
                    let fault = || Fault::new(format!("`{key}={value}` is not possible"), next);
                    address.controls.push((name.to_owned(), value.parse().map_err(|_| fault())?));
                }
                None => return Err(unknown_setting(key, "a camera", KNOWN)),
            },
        }
    }
    Ok(address)
}

fn read_csi(rest: &str) -> Result<CsiAddress, Fault> {
    let (sensor, query) = rest.split_once('?').unwrap_or((rest, ""));
    let sensor = sensor.parse().ok().filter(|sensor| *sensor < CSI_SENSORS_MAX);
    let Some(sensor) = sensor else {
        return Err(Fault::new("it does not number a sensor", "write csi://0 for the first camera"));
    };
    let mut address = CsiAddress { sensor, ..CsiAddress::default() };
    for (key, value) in settings(query) {
        match key {
            "width" => address.width = Some(read_number(key, value, RAW_SIDE)?),
            "height" => address.height = Some(read_number(key, value, RAW_SIDE)?),
            "fps" => address.rate = Some(read_rate(value)?),
            _ => return Err(unknown_setting(key, "a CSI camera", "width, height and fps")),
        }
    }
    Ok(address)
}

/// V4L2's four characters; shorter names end in spaces.
fn read_fourcc(value: &str) -> Result<[u8; 4], Fault> {
    let fits = (1..=4).contains(&value.len()) && value.bytes().all(|byte| byte.is_ascii_graphic());
    let next = "write the four characters that `orinoco cameras` shows, as format=NV12";
    let mut fourcc = [b' '; 4];
    match fits {
        true => fourcc[..value.len()].copy_from_slice(value.as_bytes()),
        false => return Err(Fault::new(format!("`format={value}` is not a format of V4L2"), next)),
    }
    Ok(fourcc)
}

fn read_test(rest: &str) -> Result<TestPattern, Fault> {
    let (name, query) = rest.split_once('?').unwrap_or((rest, ""));
    if name != "ball" {
        return Err(Fault::new(format!("there is no test pattern `{name}`"), "use test://ball"));
    }
    let mut pattern = TestPattern { width: 640, height: 480, fps: 30, frames: None, pace: Pace::Free };
    for (key, value) in settings(query) {
        match key {
            "width" => pattern.width = read_number(key, value, TEST_SIDE)?,
            "height" => pattern.height = read_number(key, value, TEST_SIDE)?,
            "fps" => pattern.fps = read_number(key, value, TEST_FPS)?,
            "frames" => pattern.frames = Some(read_number(key, value, 1..=u32::MAX)?.into()),
            "pace" => pattern.pace = read_pace(value)?,
            _ => return Err(unknown_setting(key, "a test pattern", "width, height, fps, frames and pace")),
        }
    }
    Ok(pattern)
}

/// The `key=value` pairs of a query; a key without a value has an empty one.
fn settings(query: &str) -> impl Iterator<Item = (&str, &str)> {
    query.split('&').filter(|pair| !pair.is_empty()).map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

fn unknown_setting(key: &str, of: &str, known: &str) -> Fault {
    Fault::new(format!("`{key}` is not a setting of {of}"), format!("the settings are {known}"))
}

fn read_switch(key: &str, value: &str) -> Result<bool, Fault> {
    match value {
        "1" => Ok(true),
        "0" => Ok(false),
        _ => Err(Fault::new(
            format!("`{key}={value}` is neither on nor off"),
            format!("write {key}=1 or {key}=0"),
        )),
    }
}

fn read_pace(value: &str) -> Result<Pace, Fault> {
    match value {
        "pts" => Ok(Pace::Pts),
        "none" => Ok(Pace::Free),
        _ => Err(Fault::new(format!("`pace={value}` is not a pace"), "write pace=pts or pace=none")),
    }
}

fn read_number(key: &str, value: &str, range: RangeInclusive<u32>) -> Result<u32, Fault> {
    let number = value.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| {
        let next = format!("write a whole number from {} to {}", range.start(), range.end());
        Fault::new(format!("`{key}={value}` is not possible"), next)
    })
}

/// Settings whose values may be shown: those of Orinoco, and those of cameras that say which picture is sent and how.
/// Any other value in a network address may be a key to it, whatever its name (`psw=`, `sig=`, `k=`).
const SHOWN_SETTINGS: [&str; 40] = [
    "action",
    "audio",
    "bitrate",
    "camera",
    "channel",
    "channelno",
    "codec",
    "compression",
    "format",
    "fps",
    "framerate",
    "h",
    "height",
    "input",
    "loop",
    "mode",
    "pace",
    "profile",
    "quality",
    "rate",
    "res",
    "resolution",
    "rotation",
    "size",
    "snapshot",
    "source",
    "stream",
    "streamid",
    "streamno",
    "streamtype",
    "subtype",
    "track",
    "transport",
    "transportmode",
    "trackid",
    "unicast",
    "user",
    "video",
    "videocodec",
    "width",
];

/// The text with what may be a secret replaced by stars.
///
/// It also holds for texts that are no valid URI: whatever stands between the first colon and the last `@` may be a
/// password with unescaped characters in it, whether or not colon and slashes of the scheme are there.
pub(crate) fn without_secrets(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else {
        return match without_slashes(text) {
            Some(scheme) => format!("{scheme}:***"),
            None => without_login(text),
        };
    };
    let lower = scheme.to_ascii_lowercase();
    // A misspelt scheme may be followed by a password as well.
    if LOCAL_SCHEMES.contains(&lower.as_str()) {
        return text.to_owned();
    }
    // Settings first: an `@` in one of them ends no login.
    let settings = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let rest = format!("{}{}", &rest[..settings], without_secret_settings(&rest[settings..]));
    let rest = match rest.rsplit_once('@') {
        None => rest.clone(),
        Some((login, host)) => match login.split_once(':') {
            None => rest.clone(),
            Some((user, _)) => format!("{user}:***@{host}"),
        },
    };
    format!("{scheme}://{rest}")
}

/// Schemes whose addresses never leave this machine, and hold no password.
const LOCAL_SCHEMES: [&str; 5] = ["file", "v4l2", "csi", "stdin", "test"];

/// Hides a login in a text without a scheme, as in `rtsp//USER:PASSWORD@HOST`. Of a path only what is between a colon and
/// an `@` behind it is hidden.
fn without_login(text: &str) -> String {
    let hidden = text.split_once(':').and_then(|(user, rest)| Some((user, rest.rsplit_once('@')?.1)));
    hidden.map_or_else(
        || text.to_owned(),
        |(user, host)| format!("{user}:***@{}", without_secret_settings(host)),
    )
}

fn has_scheme(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, _)| is_scheme(scheme))
}

/// Whether a text is a network address whose scheme lacks its colon or slashes, or all of it.
fn is_mistyped(text: &str) -> bool {
    let text = text.trim_start();
    let schemes = ["rtsps", "rtsp", "https", "http"];
    let is_scheme =
        |scheme: &&str| text.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
    let behind = schemes.iter().find(|scheme| is_scheme(scheme)).map_or("", |scheme| &text[scheme.len()..]);
    let mut junk = behind.chars();
    let is_near = behind.starts_with("//") || (junk.next().is_some() && junk.as_str().starts_with("//"));
    without_slashes(text).is_some() || is_near || (text.starts_with("//") && text.contains('@'))
}

/// The scheme of a network address whose slashes were forgotten.
fn without_slashes(text: &str) -> Option<&str> {
    let (scheme, rest) = text.trim_start().split_once(':')?;
    let is_network = ["rtsp", "rtsps", "http", "https"].contains(&scheme.to_ascii_lowercase().as_str());
    (is_network && !rest.starts_with("//")).then_some(scheme)
}

/// Hides the values of settings behind a server's name. Cameras take passwords in the query, and some in the path:
/// `/user=admin&password=secret&channel=1`.
fn without_secret_settings(text: &str) -> String {
    const ENDS: [char; 5] = ['/', '?', '&', ';', '#'];
    let mut shown = String::with_capacity(text.len());
    let mut in_query = false;
    for piece in text.split_inclusive(ENDS) {
        let (setting, end) = match piece.strip_suffix(ENDS) {
            Some(setting) => (setting, piece.get(setting.len()..).unwrap_or_default()),
            None => (piece, ""),
        };
        match setting.split_once('=') {
            // A second sign is one of another setting: `user=admin_password=secret`.
            Some((key, value)) if is_shown_setting(key) && !value.contains('=') => shown.push_str(setting),
            Some((key, _)) => shown.extend([key, "=***"]),
            // A query may be nothing but a token.
            None if in_query && !setting.is_empty() && !is_shown_setting(setting) => {
                shown.push_str("***");
                // The end of a login, whose password has a `?` or `#` in it.
                shown.extend(setting.rsplit_once('@').into_iter().flat_map(|(_, host)| ["@", host]));
            }
            None => shown.push_str(setting),
        }
        shown.push_str(end);
        in_query |= matches!(end, "?" | "#");
    }
    shown
}

#[cfg(any(feature = "gstreamer", test))]
/// Hides what may be a secret in the addresses that a message quotes.
pub(crate) fn hide_secrets(message: &str) -> String {
    let words = message.split_inclusive(char::is_whitespace).map(|word| match word.contains("://") {
        true => without_secrets(word.trim_end()) + &word[word.trim_end().len()..],
        false => word.to_owned(),
    });
    words.collect()
}

fn is_shown_setting(key: &str) -> bool {
    SHOWN_SETTINGS.contains(&key.to_ascii_lowercase().as_str())
}

/// Whether `path` is a file that can be read now.
pub(crate) fn check_file(path: &Path, shown: &str) -> Result<(), Diagnosis> {
    let fault = |cause: &str, next: &str| Err(Diagnosis::new(&codes::FILE_MISSING, shown, cause, next));
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) => return fault(&file_cause(&error), file_next(path)),
    };
    if metadata.is_dir() {
        return fault("it is a folder, not a file", "name a file in it");
    }
    if !metadata.is_file() {
        return fault("it is a device or pipe, not a file", "name a video or image file");
    }
    match File::open(path) {
        Ok(_) => Ok(()),
        Err(error) => fault(&file_cause(&error), "allow this user to read it"),
    }
}

/// The images of a folder, in the natural order of their names. Hidden files, subfolders and other files are left out.
pub(crate) fn list_images(folder: &Path, shown: &str) -> Result<Vec<PathBuf>, Diagnosis> {
    let fault = |cause: String, next: &str| Diagnosis::new(&codes::FILE_MISSING, shown, cause, next);
    let entries = fs::read_dir(folder).map_err(|error| match error.kind() {
        io::ErrorKind::NotADirectory => {
            fault("it is no folder".to_owned(), "leave out the / at its end, or name a folder")
        }
        io::ErrorKind::NotFound => fault("there is no such folder".to_owned(), file_next(folder)),
        _ => fault(file_cause(&error), "allow this user to read it"),
    })?;
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.map_err(|error| fault(error.to_string(), "check the disk it is on"))?.file_name();
        if is_image(Path::new(&name)) && !name.as_bytes().starts_with(b".") {
            names.push(name);
        }
        if names.len() > FOLDER_IMAGES_MAX {
            let cause = format!("it has more than {FOLDER_IMAGES_MAX} images");
            return Err(fault(cause, "split it into several folders"));
        }
    }
    if names.is_empty() {
        return Err(fault(
            "the folder has no PNG, JPEG or WebP image".to_owned(),
            "name a video file, an image, or a folder of images",
        ));
    }
    names.sort_by(|left, right| natural_order(left.as_bytes(), right.as_bytes()));
    Ok(names.into_iter().map(|name| folder.join(name)).collect())
}

/// The order in which people count: `img2` before `img10`. Equal numbers with more zeros come later.
fn natural_order(left: &[u8], right: &[u8]) -> Ordering {
    let (mut a, mut b) = (left, right);
    while let (Some(x), Some(y)) = (a.first(), b.first()) {
        if x.is_ascii_digit() && y.is_ascii_digit() {
            let (number, other) = (take_number(&mut a), take_number(&mut b));
            let order = number.len().cmp(&other.len()).then_with(|| number.cmp(other));
            if order != Ordering::Equal {
                return order;
            }
        } else if x == y {
            (a, b) = (&a[1..], &b[1..]);
        } else {
            return x.cmp(y);
        }
    }
    // One is the other's beginning, or they differ in leading zeros only.
    a.len().cmp(&b.len()).then_with(|| left.len().cmp(&right.len())).then_with(|| left.cmp(right))
}

/// Takes the digits at the start of `text`, and returns them without leading zeros.
fn take_number<'a>(text: &mut &'a [u8]) -> &'a [u8] {
    let length = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = text.split_at(length);
    *text = rest;
    &digits[digits.iter().take_while(|byte| **byte == b'0').count()..]
}

fn file_cause(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such file".to_owned(),
        io::ErrorKind::PermissionDenied => "this user may not read it".to_owned(),
        _ => error.to_string(),
    }
}

fn file_next(path: &Path) -> &'static str {
    if path.as_os_str().as_bytes().contains(&b'%') {
        "check the path; in file:// URIs %XX is an escape, in plain paths it is not"
    } else if path.is_relative() {
        "check the path, which is relative to the working folder"
    } else {
        "check the path"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    /// Parses each line of `texts`: what it is, or the fault.
    fn check(texts: &[&str], expect: Expect) {
        let mut seen = String::new();
        for text in texts {
            let line = match SourceUri::parse(text) {
                Ok(uri) => format!("{uri} -> {:?}", uri.kind()),
                Err(fault) => {
                    assert_eq!(fault.code.id, codes::SOURCE_URI.id);
                    fault.to_string()
                }
            };
            seen.push_str(&line);
            seen.push('\n');
        }
        expect.assert_eq(&seen);
    }

    #[test]
    fn files() {
        let texts = [
            "clip.mp4",
            "/a b/clip%20.mp4?loop=1&pace=pts",
            "file:///a%20b/%C3%A9.mp4?loop=0",
            "FILE://clip.mkv?pace=none",
            "photo.JPEG",
            "file://img_%04i.jpg",
            "img_%d.png?loop=1",
            "file://my%20dog%d0%b0.mp4",
            "file://what%3Fnow.mp4?loop=1",
            "file:///data/frames/?loop=1",
            "frames/",
        ];
        check(
            &texts,
            expect![[r#"
                clip.mp4 -> Video { path: "clip.mp4", repeat: false, pace: Free }
                /a b/clip%20.mp4 -> Video { path: "/a b/clip%20.mp4", repeat: true, pace: Pts }
                /a b/é.mp4 -> Video { path: "/a b/é.mp4", repeat: false, pace: Free }
                clip.mkv -> Video { path: "clip.mkv", repeat: false, pace: Free }
                photo.JPEG -> Images { paths: One("photo.JPEG"), repeat: false, pace: Free }
                img_%04i.jpg -> Images { paths: Numbered(NumberedPath { before: "img_", digits: 4, after: ".jpg" }), repeat: false, pace: Free }
                img_%i.png -> Images { paths: Numbered(NumberedPath { before: "img_", digits: 0, after: ".png" }), repeat: true, pace: Free }
                my dogа.mp4 -> Video { path: "my dogа.mp4", repeat: false, pace: Free }
                what?now.mp4 -> Video { path: "what?now.mp4", repeat: true, pace: Free }
                /data/frames/ -> Images { paths: Folder("/data/frames/"), repeat: true, pace: Free }
                frames/ -> Images { paths: Folder("frames/"), repeat: false, pace: Free }
            "#]],
        );
    }

    #[test]
    fn files_that_cannot_be() {
        let texts = [
            "",
            "file://",
            "file://a%zz.mp4",
            "file://a%00.mp4",
            "file://a_%i_%i.jpg",
            "file://clip_%02d.mp4",
            "clip.mp4?speed=2",
            "clip.mp4?loop=yes",
            "clip.mp4?pace=fast",
            "ftp://host/clip.mp4",
            "v4l2:///dev/video0",
        ];
        check(
            &texts,
            expect![[r#"
                source: it is empty; name a file, a folder of images, csi://, v4l2://, rtsp://, http://, stdin:// or test://ball
                file://: it names no file; write the path after file://
                file://a%zz.mp4: a `%` is not followed by two hex digits; write % itself as %25
                file://a%00.mp4: it contains a NUL character; remove %00
                file://a_%i_%i.jpg: it has more than one number; keep one %i or %04i
                file://clip_%02d.mp4: numbers in a file name are for images only; end the name in .jpg, .png or .webp, or name one file
                clip.mp4?speed=2: `speed` is not a setting of a file; the settings are loop and pace; if `?` is part of the file name, write file://PATH with %3F
                clip.mp4?loop=yes: `loop=yes` is neither on nor off; write loop=1 or loop=0
                clip.mp4?pace=fast: `pace=fast` is not a pace; write pace=pts or pace=none
                ftp://host/clip.mp4: `ftp://` is not a kind of source; use file://, csi://, v4l2://, rtsp://, http://, stdin:// or test://ball, or a plain path
                v4l2:///dev/video0 -> Camera(V4l2Address { path: "/dev/video0", format: None, width: None, height: None, rate: None, buffers: 8, controls: [] })
            "#]],
        );
    }

    #[test]
    fn rtsp() {
        let texts = [
            "rtsp://camera/stream",
            "rtsps://camera:8322/stream?transport=tcp",
            "rtsp://admin:secret@10.0.0.2:554/cam/real?channel=1&transport=udp&subtype=0",
            "rtsp://admin@camera",
            "rtsp://admin:se%40ret@camera/",
            "rtsp://admin:se@ret@camera/",
            "rtsp://[::1]:8554/x",
            "rtsp://camera/user=admin&password=secret&channel=1",
            "rtsp://",
            "rtsp://camera:port/x",
            "rtsp://camera/x?transport=pigeon",
            "rtsp://admin:se/secret@camera/x",
            "rtsp://admin:se#secret@camera/x",
            "rtsp://admin:%zzsecret@camera/x",
        ];
        check(
            &texts,
            expect![[r#"
                rtsp://camera/stream -> Rtsp(RtspAddress(rtsp://camera/stream, Tcp))
                rtsps://camera:8322/stream?transport=tcp -> Rtsp(RtspAddress(rtsps://camera:8322/stream, Tcp))
                rtsp://admin:***@10.0.0.2:554/cam/real?channel=1&transport=udp&subtype=0 -> Rtsp(RtspAddress(rtsp://10.0.0.2:554/cam/real?channel=1&subtype=0, Udp))
                rtsp://admin@camera -> Rtsp(RtspAddress(rtsp://camera, Tcp))
                rtsp://admin:***@camera/ -> Rtsp(RtspAddress(rtsp://camera/, Tcp))
                rtsp://admin:***@camera/ -> Rtsp(RtspAddress(rtsp://camera/, Tcp))
                rtsp://[::1]:8554/x -> Rtsp(RtspAddress(rtsp://[::1]:8554/x, Tcp))
                rtsp://camera/user=admin&password=***&channel=1 -> Rtsp(RtspAddress(rtsp://camera/user=admin&password=***&channel=1, Tcp))
                rtsp://: it has no valid host and port; write rtsp://USER:PASSWORD@HOST:PORT/PATH, and special characters of the password as %XX
                rtsp://camera:port/x: it has no valid host and port; write rtsp://USER:PASSWORD@HOST:PORT/PATH, and special characters of the password as %XX
                rtsp://camera/x?transport=pigeon: its transport is not known; write transport=tcp or transport=udp
                rtsp://admin:***@camera/x: it has no valid host and port; write rtsp://USER:PASSWORD@HOST:PORT/PATH, and special characters of the password as %XX
                rtsp://admin:***@camera/***: it has no valid host and port; write rtsp://USER:PASSWORD@HOST:PORT/PATH, and special characters of the password as %XX
                rtsp://admin:***@camera/x: a `%` is not followed by two hex digits; write % itself as %25
            "#]],
        );
    }

    #[test]
    fn test_patterns() {
        let texts = [
            "test://ball",
            "test://ball?width=320&height=240&fps=25&frames=100&pace=pts",
            "test://bars",
            "test://ball?width=8",
            "test://ball?width=-1",
            "test://ball?fps=0",
            "test://ball?colour=red",
        ];
        check(
            &texts,
            expect![[r#"
            test://ball -> Test(TestPattern { width: 640, height: 480, fps: 30, frames: None, pace: Free })
            test://ball?width=320&height=240&fps=25&frames=100&pace=pts -> Test(TestPattern { width: 320, height: 240, fps: 25, frames: Some(100), pace: Pts })
            test://bars: there is no test pattern `bars`; use test://ball
            test://ball?width=8: `width=8` is not possible; write a whole number from 16 to 8192
            test://ball?width=-1: `width=-1` is not possible; write a whole number from 16 to 8192
            test://ball?fps=0: `fps=0` is not possible; write a whole number from 1 to 1000
            test://ball?colour=red: `colour` is not a setting of a test pattern; the settings are width, height, fps, frames and pace
        "#]],
        );
    }

    #[test]
    fn http() {
        let texts = [
            "http://camera/stream.mjpg?fps=5&loop=1",
            "https://admin:se%40cret@camera:8443/cgi?user=a&pwd=secret",
            "HTTP://host/clips/a.MP4?loop=1&key=7&pace=pts",
            "http://host/a.mkv",
            "http:///x",
            "http://host:port/x",
            "http://host/a.mp4?loop=2",
        ];
        check(
            &texts,
            expect![[r#"
                http://camera/stream.mjpg?fps=5&loop=1 -> HttpCamera(HttpAddress(http://camera/stream.mjpg?fps=5&loop=1))
                https://admin:***@camera:8443/cgi?user=a&pwd=*** -> HttpCamera(HttpAddress(https://camera:8443/cgi?user=a&pwd=***))
                HTTP://host/clips/a.MP4?loop=1&key=***&pace=pts -> HttpVideo { address: HttpAddress(http://host/clips/a.MP4?key=***), repeat: true, pace: Pts }
                http://host/a.mkv -> HttpVideo { address: HttpAddress(http://host/a.mkv), repeat: false, pace: Free }
                http:///x: it has no valid host and port; write http://USER:PASSWORD@HOST:PORT/PATH, and special characters of the password as %XX
                http://host:port/x: it has no valid host and port; write http://USER:PASSWORD@HOST:PORT/PATH, and special characters of the password as %XX
                http://host/a.mp4?loop=2: `loop=2` is neither on nor off; write loop=1 or loop=0
            "#]],
        );
    }

    #[test]
    fn cameras() {
        let texts = [
            "v4l2:///dev/video0",
            "v4l2:///dev/video2?format=NV12&width=640&height=360&fps=30&buffers=4",
            "v4l2:///dev/video0?format=GREY&control.brightness=-5",
            "csi://0",
            "csi://1?width=1920&height=1080&fps=30",
            "csi://front",
            "csi://0?gain=2",
            "v4l2://video0",
            "v4l2:///dev/video0?format=RGB24",
            "v4l2:///dev/video0?buffers=1",
            "v4l2:///dev/video0?control.gain=high",
            "v4l2:///dev/video0?rate=30",
        ];
        check(
            &texts,
            expect![[r#"
                v4l2:///dev/video0 -> Camera(V4l2Address { path: "/dev/video0", format: None, width: None, height: None, rate: None, buffers: 8, controls: [] })
                v4l2:///dev/video2?format=NV12&width=640&height=360&fps=30&buffers=4 -> Camera(V4l2Address { path: "/dev/video2", format: Some([78, 86, 49, 50]), width: Some(640), height: Some(360), rate: Some(Rate { frames: 30, seconds: 1 }), buffers: 4, controls: [] })
                v4l2:///dev/video0?format=GREY&control.brightness=-5 -> Camera(V4l2Address { path: "/dev/video0", format: Some([71, 82, 69, 89]), width: None, height: None, rate: None, buffers: 8, controls: [("brightness", -5)] })
                csi://0 -> Csi(CsiAddress { sensor: 0, width: None, height: None, rate: None })
                csi://1?width=1920&height=1080&fps=30 -> Csi(CsiAddress { sensor: 1, width: Some(1920), height: Some(1080), rate: Some(Rate { frames: 30, seconds: 1 }) })
                csi://front: it does not number a sensor; write csi://0 for the first camera
                csi://0?gain=2: `gain` is not a setting of a CSI camera; the settings are width, height and fps
                v4l2://video0: it does not name a device node; write v4l2:///dev/video0; `orinoco cameras` lists what there is
                v4l2:///dev/video0?format=RGB24: `format=RGB24` is not a format of V4L2; write the four characters that `orinoco cameras` shows, as format=NV12
                v4l2:///dev/video0?buffers=1: `buffers=1` is not possible; write a whole number from 2 to 32
                v4l2:///dev/video0?control.gain=high: `control.gain=high` is not possible; write a whole number, as control.brightness=100
                v4l2:///dev/video0?rate=30: `rate` is not a setting of a camera; the settings are format, width, height, fps, buffers and control.NAME
            "#]],
        );
    }

    #[test]
    fn raw_video() {
        let texts = [
            "stdin://?format=i420&width=640&height=480&fps=30",
            "stdin://?format=nv12&width=1280&height=720&fps=30000/1001&pace=pts",
            "stdin://?format=rgb&width=5&height=3",
            "stdin://?format=i420&width=64&height=48&matrix=bt2020&range=full",
            "stdin://?format=y4m",
            "stdin://",
            "stdin://?format=yuv9&width=640&height=480",
            "stdin://?format=i420&width=640",
            "stdin://?format=i420&width=0&height=480",
            "stdin://?format=i420&width=640&height=480&fps=0",
            "stdin://?format=i420&width=640&height=480&fps=30/0",
            "stdin://?format=i420&width=640&height=480&loop=1",
            "stdin://?format=i420&width=640&height=480&size=7",
            "stdin://?format=rgb&width=640&height=480&matrix=bt709",
            "stdin://?format=i420&width=640&height=480&range=half",
            "stdin://?format=y4m&width=640",
            "stdin://clip.raw?format=y4m",
        ];
        check(
            &texts,
            expect![[r#"
            stdin://?format=i420&width=640&height=480&fps=30 -> Stdin(RawVideo { layout: Frames(RawFrames { format: I420, width: 640, height: 480, rate: Rate { frames: 30, seconds: 1 }, matrix: Bt601, range: Limited }), pace: Free })
            stdin://?format=nv12&width=1280&height=720&fps=30000/1001&pace=pts -> Stdin(RawVideo { layout: Frames(RawFrames { format: Nv12, width: 1280, height: 720, rate: Rate { frames: 30000, seconds: 1001 }, matrix: Bt709, range: Limited }), pace: Pts })
            stdin://?format=rgb&width=5&height=3 -> Stdin(RawVideo { layout: Frames(RawFrames { format: Rgb, width: 5, height: 3, rate: Rate { frames: 30, seconds: 1 }, matrix: Bt601, range: Full }), pace: Free })
            stdin://?format=i420&width=64&height=48&matrix=bt2020&range=full -> Stdin(RawVideo { layout: Frames(RawFrames { format: I420, width: 64, height: 48, rate: Rate { frames: 30, seconds: 1 }, matrix: Bt2020, range: Full }), pace: Free })
            stdin://?format=y4m -> Stdin(RawVideo { layout: Y4m, pace: Free })
            stdin://: it does not say what the bytes are; write stdin://?format=i420&width=640&height=480&fps=30, or stdin://?format=y4m
            stdin://?format=yuv9&width=640&height=480: `format=yuv9` is not known; write format=i420, nv12, yuy2, uyvy, rgb, bgr, gray8 or y4m
            stdin://?format=i420&width=640: it has no height; add height= and the pixels
            stdin://?format=i420&width=0&height=480: `width=0` is not possible; write a whole number from 1 to 8192
            stdin://?format=i420&width=640&height=480&fps=0: `fps=0` is not possible; write frames a second as fps=30 or fps=30000/1001
            stdin://?format=i420&width=640&height=480&fps=30/0: `fps=30/0` is not possible; write frames a second as fps=30 or fps=30000/1001
            stdin://?format=i420&width=640&height=480&loop=1: standard input cannot start again; leave loop out
            stdin://?format=i420&width=640&height=480&size=7: `size` is not a setting of raw video; the settings are format, width, height, fps, matrix, range and pace
            stdin://?format=rgb&width=640&height=480&matrix=bt709: matrix and range are for i420 and nv12 only; leave them out
            stdin://?format=i420&width=640&height=480&range=half: `range=half` is not known; write range=limited or range=full
            stdin://?format=y4m&width=640: `width` is told by y4m itself; leave width out
            stdin://clip.raw?format=y4m: standard input has no path; write stdin://?format=FORMAT, and the other settings after it
        "#]],
        );
    }

    #[test]
    fn names_are_ordered_as_people_count() {
        let mut names = [
            "b",
            "img10.png",
            "img2.png",
            "img02.png",
            "img2a.png",
            "a",
            "",
            "img002.png",
            "img99999999999999999999.png",
        ];
        names.sort_by(|a, b| natural_order(a.as_bytes(), b.as_bytes()));
        let ordered = [
            "",
            "a",
            "b",
            "img2.png",
            "img02.png",
            "img002.png",
            "img2a.png",
            "img10.png",
            "img99999999999999999999.png",
        ];
        assert_eq!(names, ordered);
    }

    #[test]
    fn no_form_shows_a_password() {
        let texts = [
            "rtsp://u:hunter2@h/x",
            "rtsp://u:hunter2/@h/x",
            "rtsp://u:a#hunter2@h/x",
            "rtsp://u:hunter2@h:bad/x",
            "rtsp://u:%hunter2@h/x",
            "rtsp://h/x?password=hunter2&a=b",
            "rtsp://h/user=u_password=hunter2/x",
            "rtsp://u:hunter2@h/x?transport=no",
            "RTSP://u:hunter2@h/x",
            "http://u:hunter2@h/x",
            "https://u:hunter2@h/clip.mp4?loop=7",
            "http://u:hunter2/@h/x",
            "http://h/x?user=a&password=hunter2",
            "http://h:bad@x:hunter2@h:bad/x",
            "http://h:80/x?user=a&password=a@hunter2",
            "rstp://u:hunter2@h/x",
            "rtmp://u:hunter2@h/x",
            " rtsp://u:hunter2@h/x",
            "rtsp:/u:hunter2@h/x",
            "rtsp//u:hunter2@h/x",
            "rtsp;//u:hunter2@h/x",
            "rtsp//u:hunter2@h/x?loop=1",
            "rtsp//u:hunter2@h/x?k=hunter2",
            "//u:hunter2@h/x",
            "rtsp:///u:hunter2@h/x",
            "rtsp://u:hunter2#x@h/x",
            "rtsp://u:hunter2?x@h/x?channel=1",
            "rtsp://h/x?key=hunter2",
            "rtsp://h/x?a=1&sig=hunter2#t",
            "rtsp://h/x?psw=hunter2&channel=1",
            "http://h/x.mp4?X-Amz-Signature=hunter2&loop=1",
            "http://h/x?usr=admin&k=hunter2",
            "http://h/x?k=1=hunter2",
            "http://h/x#access=hunter2",
            "http://h/x?hunter2",
            "http://h/x?action=stream&hunter2",
            " http:u:hunter2@h/x",
        ];
        for text in texts {
            let seen = match SourceUri::parse(text) {
                Ok(uri) => format!("{uri} {uri:?} {:?} {:?}", uri.kind(), uri.check()),
                Err(fault) => format!("{fault} {fault:?}"),
            };
            assert!(!seen.contains("hunter2"), "{seen}");
        }
        let uri = SourceUri::parse("u:hunter2@h:554/x").expect("it may be a path");
        let seen = format!("{uri} {uri:?} {:?}", uri.check());
        assert!(!seen.contains("hunter2"), "{seen}");
    }

    #[test]
    fn harmless_settings_stay_and_paths_too() {
        for text in [
            "rtsp://h/cam/realmonitor?channel=1&subtype=0",
            "http://h:8080/?action=stream",
            "http://h/mjpg/video.cgi?resolution=640x480&fps=15",
            "rtsp://admin@h/Streaming/Channels/101?transportmode=unicast",
            "rtsp://h/live/ch00_0",
            "mail@host/clip.mp4",
            "a//b/clip.mp4",
            "rtsp/clip.mp4",
            "http-log.mp4",
        ] {
            assert_eq!(SourceUri::parse(text).expect("it is valid").to_string(), text);
        }
    }

    #[test]
    fn addresses_in_messages_hide_their_secrets() {
        let message =
            "Could not open http://u:hunter2@h/x?key=hunter2 (rtsp://h/x?sig=hunter2): no route\nat all";
        let hidden = "Could not open http://u:***@h/x?key=*** (rtsp://h/x?sig=*** no route\nat all";
        assert_eq!(hide_secrets(message), hidden);
        assert_eq!(hide_secrets("Internal data stream error."), "Internal data stream error.");
    }

    #[test]
    fn what_is_not_there_is_told() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let empty = folder.path().to_str().expect("UTF-8");
        let slash = format!("{empty}/");
        for text in [
            "/nowhere/clip.mp4",
            "file:///nowhere/%03i.png",
            empty,
            &slash,
            "/nowhere/",
            "/dev/null",
            "/dev/null/",
        ] {
            let uri = SourceUri::parse(text).expect("it is valid");
            let fault = uri.check().expect_err("it is no file");
            assert_eq!(fault.code.id, codes::FILE_MISSING.id, "{fault}");
        }
    }
}
