//! Conversion of luma and chroma to RGB.

use orinoco_core::{ColorMatrix, ColorRange, FrameDesc};

/// Linear map from Y, U, V samples to R, G, B samples, all 0 to 255. Coefficients follow from the luma weights Kr and
/// Kb of ITU-R BT.601-7, BT.709-6 and BT.2020-2.
#[derive(Clone, Copy, Debug)]
pub(crate) struct YuvToRgb {
    luma_offset: f32,
    luma_gain: f32,
    r_v: f32,
    g_u: f32,
    g_v: f32,
    b_u: f32,
}

impl YuvToRgb {
    pub(crate) fn of(desc: &FrameDesc) -> Self {
        let (kr, kb) = match desc.matrix {
            ColorMatrix::Bt709 => (0.2126, 0.0722),
            ColorMatrix::Bt2020 => (0.2627, 0.0593),
            _ => (0.299, 0.114),
        };
        let kg = 1.0 - kr - kb;
        let (luma_offset, luma_gain, chroma_gain) = match desc.range {
            ColorRange::Limited => (16.0, 255.0 / 219.0, 255.0 / 224.0),
            ColorRange::Full => (0.0, 1.0, 1.0),
        };
        Self {
            luma_offset,
            luma_gain,
            r_v: 2.0 * (1.0 - kr) * chroma_gain,
            g_u: -2.0 * kb * (1.0 - kb) / kg * chroma_gain,
            g_v: -2.0 * kr * (1.0 - kr) / kg * chroma_gain,
            b_u: 2.0 * (1.0 - kb) * chroma_gain,
        }
    }

    #[inline(always)]
    #[expect(clippy::manual_clamp, reason = "see below")]
    pub(crate) fn rgb(&self, y: f32, u: f32, v: f32) -> [f32; 3] {
        let (y, u, v) = ((y - self.luma_offset) * self.luma_gain, u - 128.0, v - 128.0);
        let r = y + self.r_v * v;
        let g = y + self.g_u * u + self.g_v * v;
        let b = y + self.b_u * u;
        // Not `clamp`: it keeps NaN, which cannot occur here, and costs twice as much.
        [r, g, b].map(|value| value.max(0.0).min(255.0))
    }

    /// Converts Y, U and V samples to R, G and B in place.
    #[inline(always)]
    pub(crate) fn convert_rows(&self, [y, u, v]: [&mut [f32]; 3]) {
        let (u, v) = (&mut u[..y.len()], &mut v[..y.len()]);
        for i in 0..y.len() {
            [y[i], u[i], v[i]] = self.rgb(y[i], u[i], v[i]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use orinoco_core::PixelFormat;

    #[test]
    fn known_colours() {
        let mut desc = FrameDesc::packed(PixelFormat::I420, 2, 2);
        let close =
            |seen: [f32; 3], exact: [f32; 3]| seen.iter().zip(exact).all(|(a, b)| (a - b).abs() < 1.5);
        let limited = YuvToRgb::of(&desc);
        assert!(close(limited.rgb(16.0, 128.0, 128.0), [0.0; 3]));
        assert!(close(limited.rgb(235.0, 128.0, 128.0), [255.0; 3]));
        // Pure red in BT.601 limited range is (81, 90, 240); in BT.709 it is (63, 102, 240).
        assert!(close(limited.rgb(81.0, 90.0, 240.0), [255.0, 0.0, 0.0]));
        desc.matrix = ColorMatrix::Bt709;
        assert!(close(YuvToRgb::of(&desc).rgb(63.0, 102.0, 240.0), [255.0, 0.0, 0.0]));
        // And (74, 97, 240) in BT.2020, whose green is (164, 47, 25).
        desc.matrix = ColorMatrix::Bt2020;
        assert!(close(YuvToRgb::of(&desc).rgb(74.0, 97.0, 240.0), [255.0, 0.0, 0.0]));
        assert!(close(YuvToRgb::of(&desc).rgb(164.5, 47.3, 25.0), [0.0, 255.0, 0.0]));
        desc.range = ColorRange::Full;
        assert!(close(YuvToRgb::of(&desc).rgb(128.0, 128.0, 128.0), [128.0; 3]));
    }
}
