use orinoco_core::{ColorMatrix, ColorRange, FrameDesc, PixelFormat};

use crate::fault::Fault;
use crate::rate::{Rate, read_rate};
use crate::settings::{Pace, SIDE, read_number, read_pace, settings, unknown_setting};

/// Uncompressed video: one frame after another, without padding between rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawVideo {
    /// Layout of the bytes.
    pub layout: RawLayout,
    /// Pace at which it is read.
    pub pace: Pace,
}

/// Layout of the bytes of raw video.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawLayout {
    /// YUV4MPEG2, whose header describes the frames.
    Y4m,
    /// Frames without any header.
    Frames(RawFrames),
}

/// Raw frames as the program that pipes them describes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawFrames {
    /// Layout of pixels in memory.
    pub format: PixelFormat,
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// Frame rate.
    pub rate: Rate,
    /// Coefficients that convert luma and chroma to RGB.
    pub matrix: ColorMatrix,
    /// Range of the samples.
    pub range: ColorRange,
}

impl RawFrames {
    /// Returns the descriptor of the first frame.
    pub fn desc(&self) -> FrameDesc {
        let packed = FrameDesc::packed(self.format, self.width, self.height);
        FrameDesc { matrix: self.matrix, range: self.range, ..packed }
    }
}

/// Parses the text after `stdin://`.
pub(crate) fn read_stdin(rest: &str) -> Result<RawVideo, Fault> {
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
            "loop" => return Err(Fault::new("standard input cannot start again", "remove loop")),
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
                    Err(Fault::new(format!("`{key}` is given by the Y4M header"), format!("remove {key}")))
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
        Some(value) => read_number(key, value, SIDE),
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
        return Err(Fault::new("matrix and range are for i420 and nv12 only", "remove them"));
    }
    let matrix = if format.is_yuv() { matrix } else { desc.matrix };
    Ok(RawVideo { layout: RawLayout::Frames(RawFrames { format, width, height, rate, matrix, range }), pace })
}
