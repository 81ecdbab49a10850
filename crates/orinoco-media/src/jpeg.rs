//! Checks whether a JPEG image is complete. Decoders fill missing parts with grey, and report nothing.

use image::ImageFormat;

/// Number of bytes that replace missing ones: enough to change the image.
const FILLER_BYTES: usize = 1024;

/// Whether the image in `bytes` is complete. Bytes after its end do not count: some cameras pad, and phones append a
/// second image.
///
/// An image without an end-of-image marker is complete if its decoder needs no further byte: early webcams left the
/// marker out. To find out, it is decoded twice with different bytes after it. For a progressive image without the
/// marker it is unknown how many scans are missing, so it is not complete. Data that is not JPEG is left to the
/// decoder.
pub(crate) fn is_whole(bytes: &[u8]) -> bool {
    match walk(bytes) {
        End::Marker | End::NotJpeg => true,
        End::Header | End::Scans => false,
        End::OneScan => needs_no_more(bytes),
    }
}

/// Check of a live source's images, with the result of [`is_whole`].
///
/// To decode every image three times is too slow for a camera that leaves the marker out. So after one complete image
/// without the marker, later ones are accepted without a check, until one has the marker: images of a camera that
/// writes it are always checked.
#[derive(Debug, Default)]
pub(crate) struct LiveCheck {
    leaves_marker_out: bool,
}

impl LiveCheck {
    pub(crate) fn is_whole(&mut self, bytes: &[u8]) -> bool {
        match walk(bytes) {
            End::Marker => {
                self.leaves_marker_out = false;
                true
            }
            End::NotJpeg => true,
            End::Header | End::Scans => false,
            End::OneScan => {
                self.leaves_marker_out = self.leaves_marker_out || needs_no_more(bytes);
                self.leaves_marker_out
            }
        }
    }
}

/// Whether an image without its end is decoded to the same pixels, whatever bytes follow.
fn needs_no_more(bytes: &[u8]) -> bool {
    let decode = |filler: u8| {
        let mut filled = bytes.to_vec();
        // The last byte may be half of a marker.
        while filled.last() == Some(&0xff) {
            filled.pop();
        }
        filled.resize(filled.len() + FILLER_BYTES, filler);
        filled.extend([0xff, 0xd9]);
        image::load_from_memory_with_format(&filled, ImageFormat::Jpeg).ok()
    };
    let (zeros, stripes) = (decode(0), decode(0xaa));
    zeros.is_some() && zeros == stripes
}

/// Position at which the bytes of an image end.
enum End {
    /// After the end-of-image marker.
    Marker,
    /// Before the first scan.
    Header,
    /// Inside the only scan of an image that needs no other.
    OneScan,
    /// Inside or between scans of an image that may need more.
    Scans,
    NotJpeg,
}

/// Reads the markers (ITU-T T.81, annex B).
fn walk(bytes: &[u8]) -> End {
    let Some(mut rest) = bytes.strip_prefix(&[0xff, 0xd8]) else { return End::NotJpeg };
    let (mut scans, mut is_progressive, mut components) = (0u32, false, 0);
    loop {
        let cut = match (scans, is_progressive) {
            (0, _) => End::Header,
            (1, false) => End::OneScan,
            _ => End::Scans,
        };
        // Fill bytes, and other bytes that some writers leave between segments.
        let Some(place) = rest.iter().position(|&byte| byte == 0xff) else { return cut };
        rest = &rest[place..];
        let Some(place) = rest.iter().position(|&byte| byte != 0xff) else { return cut };
        let marker = rest[place];
        rest = &rest[place + 1..];
        match marker {
            0xd9 => return End::Marker,
            // Stuffed bytes, restart markers, and others without a length.
            0x00 | 0x01 | 0xd0..=0xd8 => continue,
            _ => {}
        }
        let Some(length) = rest.first_chunk::<2>().map(|length| usize::from(u16::from_be_bytes(*length)))
        else {
            return cut;
        };
        let Some(segment) = rest.get(..length) else { return cut };
        match marker {
            // Start of a frame. SOF2 and related types are progressive: they send coefficients bit by bit.
            0xc0..=0xcf if ![0xc4, 0xc8, 0xcc].contains(&marker) => {
                is_progressive = [0xc2, 0xc6, 0xca, 0xce].contains(&marker);
                components = segment.get(7).copied().unwrap_or(0);
            }
            0xda => {
                scans += 1;
                // A sequential image may have a scan for each component.
                let of_scan = segment.get(2).copied().unwrap_or(0);
                is_progressive |= of_scan < components;
            }
            _ => {}
        }
        rest = &rest[length..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use image::codecs::jpeg::JpegEncoder;
    use image::{Rgb, RgbImage};

    fn image() -> Vec<u8> {
        let image =
            RgbImage::from_fn(96, 80, |x, y| Rgb([(x * 2) as u8, (y * 3) as u8, ((x * y) % 251) as u8]));
        let mut bytes = Vec::new();
        image.write_with_encoder(JpegEncoder::new_with_quality(&mut bytes, 80)).expect("memory has room");
        bytes
    }

    #[test]
    fn an_image_is_whole_up_to_its_marker_and_not_before() {
        let whole = image();
        assert!(is_whole(&whole));
        assert!(
            is_whole(&[&whole[..], b"camera padding \xff\xff\0"].concat()),
            "what follows does not count"
        );
        assert!(is_whole(&whole[..whole.len() - 1]), "half of the marker is missing");
        assert!(is_whole(&whole[..whole.len() - 2]), "the marker alone is missing");
        for length in (2..whole.len() - 6).step_by(7) {
            assert!(!is_whole(&whole[..length]), "{length} of {}", whole.len());
        }
    }

    #[test]
    fn a_camera_without_markers_is_believed_after_its_first_whole_image() {
        let whole = image();
        let (unmarked, cut) = (&whole[..whole.len() - 2], &whole[..whole.len() - 200]);
        let mut check = LiveCheck::default();
        // The last truncated image is accepted: only a second decoding could tell it from the camera's complete ones.
        for (bytes, expected) in [
            (cut, false),
            (&whole[..], true),
            (cut, false),
            (unmarked, true),
            (&whole[..], true),
            (cut, false),
            (&whole[..40], false),
            (unmarked, true),
            (cut, true),
        ] {
            assert_eq!(check.is_whole(bytes), expected, "{} of {}", bytes.len(), whole.len());
        }
    }

    #[test]
    fn a_thumbnail_does_not_end_an_image() {
        let (whole, thumbnail) = (image(), image());
        let length = u16::try_from(thumbnail.len() + 2).expect("small").to_be_bytes();
        let with = [&whole[..2], &[0xff, 0xe1], &length, &thumbnail, &whole[2..]].concat();
        assert!(is_whole(&with));
        assert!(!is_whole(&with[..with.len() / 2 + thumbnail.len() / 2]));
        assert!(!is_whole(&with[..40]));
    }

    #[test]
    fn what_is_no_jpeg_is_left_to_the_decoder() {
        assert!(is_whole(b""));
        assert!(is_whole(b"RIFF"));
    }
}
