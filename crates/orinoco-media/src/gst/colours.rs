//! Colour matrix and range of caps, each read independently.
//!
//! `gst_video_info_from_caps` ignores both where one is unknown ("1:0:0:0" is full range and nothing else), and uses
//! the default of its format.

use gstreamer as gst;
use gstreamer_video as video;
use orinoco_core::{ColorMatrix, ColorRange};

/// Field of caps with matrix and range.
pub(super) const COLORIMETRY: &str = "colorimetry";

/// Reads the colorimetry of caps; `None` where they have none.
pub(super) fn of_caps(caps: &gst::StructureRef) -> Option<video::VideoColorimetry> {
    caps.get::<&str>(COLORIMETRY).ok()?.parse().ok()
}

/// Returns the matrix of video with `lines` lines (before any rotation): that of its colorimetry, or the most likely
/// one.
pub(super) fn matrix(told: Option<&video::VideoColorimetry>, lines: u32) -> ColorMatrix {
    match told.map(video::VideoColorimetry::matrix) {
        Some(video::VideoColorMatrix::Bt601) => ColorMatrix::Bt601,
        Some(video::VideoColorMatrix::Bt2020) => ColorMatrix::Bt2020,
        // SMPTE 240M is much closer to BT.709 than to BT.601, and FCC's matrix is BT.601 rounded to two digits.
        Some(video::VideoColorMatrix::Bt709 | video::VideoColorMatrix::Smpte240m) => ColorMatrix::Bt709,
        Some(video::VideoColorMatrix::Fcc) => ColorMatrix::Bt601,
        _ => ColorMatrix::of_untagged(lines),
    }
}

/// Returns the range of luma and chroma: that of the colorimetry, or limited.
pub(super) fn range(told: Option<&video::VideoColorimetry>) -> ColorRange {
    match told.map(video::VideoColorimetry::range) {
        Some(video::VideoColorRange::Range0_255) => ColorRange::Full,
        _ => ColorRange::Limited,
    }
}

/// Colorimetry of a stream from other sources than its decoder's caps.
#[derive(Clone, Debug, Default)]
pub(super) struct StreamColours {
    /// Colorimetry in the container.
    pub(super) container: Option<video::VideoColorimetry>,
    /// Range in the coded stream, for parsers that drop it.
    pub(super) range: Option<ColorRange>,
}

/// Writes matrix and range into the caps of YUV video, so that later elements see both. Both are those before any
/// rotation, which exchanges lines and columns.
pub(super) fn complete(caps: &mut gst::StructureRef, known: &StreamColours) {
    let format = caps.get::<&str>("format").map(video::VideoFormat::from_string);
    let lines = caps.get::<i32>("height").ok().and_then(|lines| u32::try_from(lines).ok());
    let (Ok(format), Some(lines)) = (format, lines) else { return };
    if format == video::VideoFormat::Unknown || !video::VideoFormatInfo::from_format(format).is_yuv() {
        return;
    }
    let told = merge(of_caps(caps), known.container);
    let matrix = match matrix(told.as_ref(), lines) {
        ColorMatrix::Bt709 => video::VideoColorMatrix::Bt709,
        ColorMatrix::Bt2020 => video::VideoColorMatrix::Bt2020,
        _ => video::VideoColorMatrix::Bt601,
    };
    let range = match known.range.unwrap_or_else(|| range(told.as_ref())) {
        ColorRange::Full => video::VideoColorRange::Range0_255,
        ColorRange::Limited => video::VideoColorRange::Range16_235,
    };
    let (transfer, primaries) = told
        .map_or((video::VideoTransferFunction::Unknown, video::VideoColorPrimaries::Unknown), |told| {
            (told.transfer(), told.primaries())
        });
    write(caps, &video::VideoColorimetry::new(range, matrix, transfer, primaries));
}

/// Writes a colorimetry into caps. If all of it is unknown the caps stay without one, because GStreamer has no string
/// for it.
pub(super) fn write(caps: &mut gst::StructureRef, colorimetry: &video::VideoColorimetry) {
    let is_known = colorimetry.range() != video::VideoColorRange::Unknown
        || colorimetry.matrix() != video::VideoColorMatrix::Unknown
        || colorimetry.transfer() != video::VideoTransferFunction::Unknown
        || colorimetry.primaries() != video::VideoColorPrimaries::Unknown;
    if is_known {
        caps.set(COLORIMETRY, colorimetry.to_string());
    }
}

/// Merges two colorimetries: values of `first`, and of `second` where those are unknown.
pub(super) fn merge(
    first: Option<video::VideoColorimetry>,
    second: Option<video::VideoColorimetry>,
) -> Option<video::VideoColorimetry> {
    let (Some(first), Some(second)) = (&first, &second) else { return first.or(second) };
    let range = match first.range() {
        video::VideoColorRange::Unknown => second.range(),
        range => range,
    };
    let matrix = match first.matrix() {
        video::VideoColorMatrix::Unknown => second.matrix(),
        matrix => matrix,
    };
    let transfer = match first.transfer() {
        video::VideoTransferFunction::Unknown => second.transfer(),
        transfer => transfer,
    };
    let primaries = match first.primaries() {
        video::VideoColorPrimaries::Unknown => second.primaries(),
        primaries => primaries,
    };
    Some(video::VideoColorimetry::new(range, matrix, transfer, primaries))
}

/// Removes the range, so that the decoder reads it from the stream.
pub(super) fn without_range(colorimetry: &video::VideoColorimetry) -> video::VideoColorimetry {
    let (matrix, transfer, primaries) =
        (colorimetry.matrix(), colorimetry.transfer(), colorimetry.primaries());
    video::VideoColorimetry::new(video::VideoColorRange::Unknown, matrix, transfer, primaries)
}

/// Reads the range in a VP9 key frame's header (VP9 bitstream specification, section 6.2), which `vp9parse` drops where
/// the matrix is unknown. Returns `None` for other frames.
pub(super) fn vp9_range(frame: &[u8]) -> Option<ColorRange> {
    const SRGB: u32 = 7;
    let mut place = 0;
    let mut bits = |count: usize| {
        let value = (place..place + count).try_fold(0u32, |value, bit| {
            let byte = frame.get(bit / 8)?;
            Some(value << 1 | u32::from(byte >> (7 - bit % 8) & 1))
        });
        place += count;
        value
    };
    if bits(2)? != 0b10 {
        return None;
    }
    let profile = bits(1)? | bits(1)? << 1;
    if profile == 3 {
        bits(1)?;
    }
    let (shown_again, is_inter) = (bits(1)?, bits(1)?);
    bits(2)?;
    if shown_again == 1 || is_inter == 1 || bits(24)? != 0x49_83_42 {
        return None;
    }
    if profile >= 2 {
        bits(1)?;
    }
    let is_full = bits(3)? == SRGB || bits(1)? == 1;
    Some(if is_full { ColorRange::Full } else { ColorRange::Limited })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Completes caps of a format, a height and a colorimetry.
    fn check(format: &str, height: i32, told: Option<&str>, expected: Option<&str>) {
        gst::init().expect("GStreamer starts");
        let mut caps =
            gst::Structure::builder("video/x-raw").field("format", format).field("height", height).build();
        if let Some(told) = told {
            caps.set(COLORIMETRY, told);
        }
        complete(&mut caps, &StreamColours::default());
        let seen = of_caps(&caps);
        assert_eq!(
            seen,
            expected.map(|text| text.parse().expect("it is valid")),
            "{format} {height} {told:?}"
        );
    }

    #[test]
    fn only_what_is_unknown_gets_a_default() {
        check("I420", 576, None, Some("2:4:0:0"));
        check("NV12", 577, None, Some("2:3:0:0"));
        check("I420", 576, Some("1:0:0:0"), Some("1:4:0:0"));
        check("Y444", 720, Some("1:0:0:0"), Some("1:3:0:0"));
        check("I420", 120, Some("0:3:5:1"), Some("2:3:5:1"));
        check("I420", 120, Some("1:3:5:1"), Some("1:3:5:1"));
        check("I420_10LE", 120, Some("bt2020"), Some("bt2020"));
        check("RGB", 120, None, None);
        check("GRAY8", 120, Some("1:0:0:0"), Some("1:0:0:0"));
    }

    #[test]
    fn the_range_of_vp9_is_read_from_its_key_frames() {
        // Profile 0: marker, profile, a key frame that is shown, the sync code, then matrix and range.
        assert_eq!(vp9_range(&[0x82, 0x49, 0x83, 0x42, 0b0001_0000]), Some(ColorRange::Full));
        assert_eq!(vp9_range(&[0x82, 0x49, 0x83, 0x42, 0b0100_0000]), Some(ColorRange::Limited));
        // Profile 2 has a bit for the depth before them.
        assert_eq!(vp9_range(&[0x92, 0x49, 0x83, 0x42, 0b0000_1000]), Some(ColorRange::Full));
        for other in
            [&[0x86, 0x49, 0x83, 0x42, 0x10][..], &[0x82, 0, 0, 0, 0x10], &[0x82, 0x49], &[], &[0x42; 9]]
        {
            assert_eq!(vp9_range(other), None, "{other:02x?}");
        }
    }

    #[test]
    fn nothing_known_is_not_written() {
        gst::init().expect("GStreamer starts");
        let mut caps = gst::Structure::new_empty("video/x-h265");
        let told: video::VideoColorimetry = "2:0:0:0".parse().expect("it is valid");
        write(&mut caps, &without_range(&told));
        assert!(!caps.has_field(COLORIMETRY));
    }

    #[test]
    fn a_second_opinion_fills_gaps_only() {
        gst::init().expect("GStreamer starts");
        let parse = |text: &str| -> video::VideoColorimetry { text.parse().expect("it is valid") };
        let check = |first: Option<&str>, second: Option<&str>, expected: Option<&str>| {
            assert_eq!(merge(first.map(parse), second.map(parse)), expected.map(parse));
        };
        check(None, None, None);
        check(None, Some("bt709"), Some("bt709"));
        check(Some("1:0:0:0"), Some("2:3:5:1"), Some("1:3:5:1"));
        check(Some("1:4:0:0"), Some("2:3:5:1"), Some("1:4:5:1"));
        check(Some("0:4:0:0"), Some("2:3:0:0"), Some("2:4:0:0"));
    }
}
