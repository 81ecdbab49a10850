//! Converts frames of any format to tightly packed I420, which encoders and the overlay need.

use orinoco_core::{ColorMatrix, ColorRange, FrameView, PixelFormat};

/// Colour matrix and range of the I420 samples after [`pack`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Colour {
    pub(crate) matrix: ColorMatrix,
    pub(crate) range: ColorRange,
}

/// Returns the matrix and range after [`pack`]: the frame's own if it is YUV already, else BT.601 limited, which
/// players assume for untagged video.
pub(crate) fn colour_of(view: &FrameView<'_>) -> Colour {
    if view.desc().format.is_yuv() {
        Colour { matrix: view.desc().matrix, range: view.desc().range }
    } else {
        Colour { matrix: ColorMatrix::Bt601, range: ColorRange::Limited }
    }
}

/// Copies the upper left `width` by `height` pixels (both even) of a frame into `out` as packed I420. Returns whether
/// its format is supported.
pub(crate) fn pack(view: &FrameView<'_>, width: usize, height: usize, out: &mut [u8]) -> bool {
    assert!(width.is_multiple_of(2) && height.is_multiple_of(2), "{width}x{height}");
    let (luma, chroma) = out.split_at_mut(width * height);
    let (u, v) = chroma.split_at_mut(width * height / 4);
    match view.desc().format {
        PixelFormat::I420 => {
            copy_plane(view, 0, luma, width);
            copy_plane(view, 1, u, width / 2);
            copy_plane(view, 2, v, width / 2);
        }
        PixelFormat::Nv12 => {
            copy_plane(view, 0, luma, width);
            split_chroma(view, u, v, width / 2);
        }
        PixelFormat::Yuy2 => unpack(view, [0, 1, 3], width, luma, u, v),
        PixelFormat::Uyvy => unpack(view, [1, 0, 2], width, luma, u, v),
        PixelFormat::Gray8 => {
            copy_plane(view, 0, luma, width);
            luma.iter_mut().for_each(|y| *y = limited(*y));
            u.fill(128);
            v.fill(128);
        }
        PixelFormat::Rgb => convert(view, [0, 1, 2], width, luma, u, v),
        PixelFormat::Bgr => convert(view, [2, 1, 0], width, luma, u, v),
        _ => return false,
    }
    true
}

/// Makes a packed I420 image black.
pub(crate) fn blacken(out: &mut [u8], width: usize, height: usize) {
    let (luma, chroma) = out.split_at_mut(width * height);
    luma.fill(16);
    chroma.fill(128);
}

fn copy_plane(view: &FrameView<'_>, plane: usize, out: &mut [u8], row: usize) {
    let plane = view.plane(plane);
    for (y, out) in out.chunks_exact_mut(row).enumerate() {
        out.copy_from_slice(&plane.row(y)[..row]);
    }
}

fn split_chroma(view: &FrameView<'_>, u: &mut [u8], v: &mut [u8], row: usize) {
    let plane = view.plane(1);
    for (y, (u, v)) in u.chunks_exact_mut(row).zip(v.chunks_exact_mut(row)).enumerate() {
        for (pair, (u, v)) in plane.row(y).chunks_exact(2).zip(u.iter_mut().zip(v)) {
            (*u, *v) = (pair[0], pair[1]);
        }
    }
}

/// Converts packed 4:2:2 with luma, U and V at the offsets `places`; the chroma of two rows is averaged.
fn unpack(
    view: &FrameView<'_>,
    places: [usize; 3],
    width: usize,
    luma: &mut [u8],
    u: &mut [u8],
    v: &mut [u8],
) {
    let plane = view.plane(0);
    let [y_at, u_at, v_at] = places;
    for (y, out) in luma.chunks_exact_mut(width).enumerate() {
        let pairs = plane.row(y).chunks_exact(2);
        out.iter_mut().zip(pairs).for_each(|(out, pair)| *out = pair[y_at]);
    }
    let rows = u.chunks_exact_mut(width / 2).zip(v.chunks_exact_mut(width / 2));
    for (pair, (u, v)) in rows.enumerate() {
        let lines = plane.row(2 * pair).chunks_exact(4).zip(plane.row(2 * pair + 1).chunks_exact(4));
        for ((upper, lower), (u, v)) in lines.zip(u.iter_mut().zip(v)) {
            *u = upper[u_at].midpoint(lower[u_at]);
            *v = upper[v_at].midpoint(lower[v_at]);
        }
    }
}

fn limited(full: u8) -> u8 {
    u8::try_from((u32::from(full) * 219 + 127) / 255 + 16).expect("219 + 16 fits")
}

/// Converts RGB with the 8-bit coefficients of BT.601 (ITU-R BT.601-7, section 2.5.3); chroma is the mean of two by two
/// pixels.
fn convert(
    view: &FrameView<'_>,
    order: [usize; 3],
    width: usize,
    luma: &mut [u8],
    u: &mut [u8],
    v: &mut [u8],
) {
    let plane = view.plane(0);
    let rows = luma
        .chunks_exact_mut(2 * width)
        .zip(u.chunks_exact_mut(width / 2).zip(v.chunks_exact_mut(width / 2)));
    for (pair, (luma, (u, v))) in rows.enumerate() {
        let (upper, lower) = (plane.row(2 * pair), plane.row(2 * pair + 1));
        for x in 0..width / 2 {
            let mut sum = [0i32; 3];
            for (row, line) in [upper, lower].into_iter().enumerate() {
                for column in 2 * x..2 * x + 2 {
                    let pixel = order.map(|channel| i32::from(line[3 * column + channel]));
                    let [r, g, b] = pixel;
                    luma[row * width + column] = byte((66 * r + 129 * g + 25 * b + 128 + (16 << 8)) >> 8);
                    sum = [sum[0] + r, sum[1] + g, sum[2] + b];
                }
            }
            let [r, g, b] = sum;
            u[x] = byte((-38 * r - 74 * g + 112 * b + 512 + (128 << 10)) >> 10);
            v[x] = byte((112 * r - 94 * g - 18 * b + 512 + (128 << 10)) >> 10);
        }
    }
}

fn byte(value: i32) -> u8 {
    u8::try_from(value.clamp(0, 255)).expect("it is clamped")
}

#[cfg(test)]
mod tests {
    use super::*;
    use orinoco_core::{FrameDesc, Plane};

    /// Packs an image of one colour, and checks its first Y, U and V.
    fn check(format: PixelFormat, pixel: &[u8], expected: [u8; 3]) {
        let desc = FrameDesc::packed(format, 5, 3);
        let bytes: Vec<u8> = pixel.iter().copied().cycle().take(desc.bytes_needed()).collect();
        let view = FrameView::new(&desc, &bytes).expect("it fits");
        let mut out = vec![0; 4 * 2 * 3 / 2];
        assert!(pack(&view, 4, 2, &mut out));
        assert_eq!([out[0], out[8], out[10]], expected, "{format:?} {pixel:?}");
        assert!(out[..8].iter().all(|&y| y == expected[0]) && out[8..10].iter().all(|&u| u == expected[1]));
    }

    #[test]
    fn primary_colours_are_those_of_bt601() {
        check(PixelFormat::Rgb, &[255, 255, 255], [235, 128, 128]);
        check(PixelFormat::Rgb, &[0, 0, 0], [16, 128, 128]);
        check(PixelFormat::Rgb, &[255, 0, 0], [82, 90, 240]);
        check(PixelFormat::Bgr, &[0, 0, 255], [82, 90, 240]);
        check(PixelFormat::Rgb, &[0, 0, 255], [41, 240, 110]);
        check(PixelFormat::Gray8, &[255], [235, 128, 128]);
        check(PixelFormat::Gray8, &[0], [16, 128, 128]);
        check(PixelFormat::Yuy2, &[60, 90, 60, 200], [60, 90, 200]);
        check(PixelFormat::Uyvy, &[90, 60, 200, 60], [60, 90, 200]);
    }

    #[test]
    fn padding_and_interleaving_are_taken_out() {
        let mut desc = FrameDesc::packed(PixelFormat::Nv12, 2, 2);
        desc.planes[0] = Plane { offset: 1, stride: 4 };
        desc.planes[1] = Plane { offset: 9, stride: 4 };
        let bytes = [0, 1, 2, 0, 0, 3, 4, 0, 0, 5, 6];
        let view = FrameView::new(&desc, &bytes).expect("it fits");
        let mut out = [0; 6];
        assert!(pack(&view, 2, 2, &mut out));
        assert_eq!(out, [1, 2, 3, 4, 5, 6]);
    }
}
