//! Pixel formats of cameras, and the layout of their bytes.

use orinoco_core::{ColorMatrix, ColorRange, FrameDesc, PixelFormat, Plane};

use super::kernel::{FourCc, Geometry};

/// Conversion of a format's buffers to frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Payload {
    /// Buffer of the driver, used as it is.
    Raw(PixelFormat),
    /// Memory planes, one for each plane of the image, which are copied into one buffer.
    Planes(PixelFormat),
    /// JPEG image in each buffer, which is decoded.
    Jpeg,
}

impl Payload {
    /// Returns the pixel format of the frames. JPEG is decoded to RGB.
    pub(super) fn frame_format(self) -> PixelFormat {
        match self {
            Self::Raw(format) | Self::Planes(format) => format,
            Self::Jpeg => PixelFormat::Rgb,
        }
    }
}

/// Supported formats, best first: those that need no copy and have colour at the least bandwidth come before those that
/// must be decoded.
pub(super) const FORMATS: &[(&FourCc, Payload)] = &[
    (b"NV12", Payload::Raw(PixelFormat::Nv12)),
    (b"YU12", Payload::Raw(PixelFormat::I420)),
    (b"YUYV", Payload::Raw(PixelFormat::Yuy2)),
    (b"UYVY", Payload::Raw(PixelFormat::Uyvy)),
    (b"NM12", Payload::Planes(PixelFormat::Nv12)),
    (b"YM12", Payload::Planes(PixelFormat::I420)),
    (b"MJPG", Payload::Jpeg),
    (b"JPEG", Payload::Jpeg),
    (b"RGB3", Payload::Raw(PixelFormat::Rgb)),
    (b"BGR3", Payload::Raw(PixelFormat::Bgr)),
    (b"GREY", Payload::Raw(PixelFormat::Gray8)),
];

/// Returns the conversion of `fourcc`, if it is supported.
pub(super) fn payload(fourcc: FourCc) -> Option<Payload> {
    FORMATS.iter().find(|(known, _)| **known == fourcc).map(|(_, payload)| *payload)
}

/// Returns a format's name: its characters, without spaces at the end.
pub(super) fn name(fourcc: FourCc) -> String {
    String::from_utf8_lossy(&fourcc).trim_end().to_owned()
}

/// Returns the descriptor of frames in the driver's single memory plane.
pub(super) fn raw_desc(format: PixelFormat, geometry: &Geometry) -> FrameDesc {
    let mut desc = FrameDesc::packed(format, geometry.width, geometry.height);
    let (matrix, range) = colour(geometry, format.is_yuv());
    (desc.matrix, desc.range) = (matrix, range);
    let stride = geometry.planes.first().map_or(0, |(row, _)| *row);
    // A driver that gives no row length packs its rows.
    if stride == 0 {
        return desc;
    }
    let mut offset = 0;
    for index in 0..format.planes() {
        let (row, rows) = format.plane_size(index, geometry.width, geometry.height);
        // "Chroma planes have half as many pad bytes" (planar YUV formats); those of NV12 have as many as luma.
        let stride = if format == PixelFormat::I420 && index > 0 { stride.div_ceil(2) } else { stride };
        desc.planes[index] = Plane { offset, stride: stride.max(row) };
        offset += desc.planes[index].stride * rows;
    }
    desc
}

/// Returns the descriptor of packed frames, which are copied from several memory planes.
pub(super) fn packed_desc(format: PixelFormat, geometry: &Geometry) -> FrameDesc {
    let (matrix, range) = colour(geometry, format.is_yuv());
    FrameDesc { matrix, range, ..FrameDesc::packed(format, geometry.width, geometry.height) }
}

/// Returns the bytes from one row to the next for each memory plane of such frames; `None` if the driver has another number
/// of planes than `format`.
pub(super) fn strides(format: PixelFormat, geometry: &Geometry) -> Option<Vec<usize>> {
    if geometry.planes.len() != format.planes() {
        return None;
    }
    let stride = |(index, (stride, _)): (usize, &(usize, usize))| {
        // A driver that gives no row length packs its rows.
        let (row, _) = format.plane_size(index, geometry.width, geometry.height);
        row.max(*stride)
    };
    Some(geometry.planes.iter().enumerate().map(stride).collect())
}

/// Returns matrix and range, with the kernel's defaults for values that the driver leaves open
/// (`V4L2_MAP_YCBCR_ENC_DEFAULT`, `V4L2_MAP_QUANTIZATION_DEFAULT` of videodev2.h).
fn colour(geometry: &Geometry, yuv: bool) -> (ColorMatrix, ColorRange) {
    // Values of `enum v4l2_colorspace`.
    const REC709: u32 = 3;
    const JPEG: u32 = 7;
    const BT2020: u32 = 10;
    const DCI_P3: u32 = 12;
    let matrix = match geometry.ycbcr_enc {
        // Encodings 709 and xv709.
        2 | 4 => ColorMatrix::Bt709,
        // Encodings BT.2020, and its constant luminance, for which there is no matrix.
        6 | 7 => ColorMatrix::Bt2020,
        0 if [REC709, DCI_P3].contains(&geometry.colorspace) => ColorMatrix::Bt709,
        0 if geometry.colorspace == BT2020 => ColorMatrix::Bt2020,
        _ => ColorMatrix::Bt601,
    };
    let range = match geometry.quantization {
        1 => ColorRange::Full,
        2 => ColorRange::Limited,
        _ if !yuv || geometry.colorspace == JPEG => ColorRange::Full,
        _ => ColorRange::Limited,
    };
    (matrix, range)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry(fourcc: &FourCc, row: usize) -> Geometry {
        let (colorspace, ycbcr_enc, quantization) = (0, 0, 0);
        Geometry {
            fourcc: *fourcc,
            width: 6,
            height: 4,
            planes: vec![(row, 0)],
            colorspace,
            ycbcr_enc,
            quantization,
        }
    }

    #[test]
    fn planes_follow_the_padded_rows() {
        let desc = raw_desc(PixelFormat::Nv12, &geometry(b"NV12", 8));
        assert_eq!(desc.planes[..2], [Plane { offset: 0, stride: 8 }, Plane { offset: 32, stride: 8 }]);
        let desc = raw_desc(PixelFormat::I420, &geometry(b"YU12", 8));
        assert_eq!(desc.planes[1..3], [Plane { offset: 32, stride: 4 }, Plane { offset: 40, stride: 4 }]);
        let desc = raw_desc(PixelFormat::Yuy2, &geometry(b"YUYV", 0));
        assert_eq!(desc.planes[0], Plane { offset: 0, stride: 12 });
    }

    #[test]
    fn planes_that_are_put_together_keep_the_drivers_rows() {
        let check = |planes: &[(usize, usize)], expected: Option<&[usize]>| {
            let geometry = Geometry { planes: planes.to_vec(), ..geometry(b"NM12", 0) };
            let found = strides(PixelFormat::Nv12, &geometry);
            assert_eq!(found.as_deref(), expected, "{planes:?}");
        };
        check(&[(8, 132), (8, 116)], Some(&[8, 8]));
        check(&[(0, 24), (0, 12)], Some(&[6, 6]));
        check(&[(8, 48)], None);
        check(&[(8, 32), (4, 8), (4, 8)], None);
    }

    #[test]
    fn colour_is_what_the_driver_says_or_the_kernels_default() {
        let check = |colorspace, ycbcr_enc, quantization, yuv, expected| {
            let geometry = Geometry { colorspace, ycbcr_enc, quantization, ..geometry(b"NV12", 8) };
            assert_eq!(colour(&geometry, yuv), expected, "{colorspace} {ycbcr_enc} {quantization} {yuv}");
        };
        check(1, 0, 0, true, (ColorMatrix::Bt601, ColorRange::Limited));
        check(3, 0, 0, true, (ColorMatrix::Bt709, ColorRange::Limited));
        check(3, 1, 1, true, (ColorMatrix::Bt601, ColorRange::Full));
        check(7, 0, 0, true, (ColorMatrix::Bt601, ColorRange::Full));
        check(8, 0, 0, false, (ColorMatrix::Bt601, ColorRange::Full));
        check(10, 0, 2, true, (ColorMatrix::Bt2020, ColorRange::Limited));
    }
}
