//! The antialiased resize: a triangle filter as wide as the scale, in fixed point, columns before rows.
//!
//! It equals Pillow's `BILINEAR` bit for bit (Pillow `Resample.c`: 22-bit weights, each pass rounded to 8 bits), because
//! models are trained and judged with it, and a difference of one level already moves boxes between cells.

use std::ops::Range;

/// Bits of a weight's fraction: 32, less 8 of the sample and 2 against overflow.
const WEIGHT_BITS: u32 = 22;

/// Resizes packed 8-bit RGB. Keeps its weights while the sizes stay the same.
#[derive(Default)]
pub(crate) struct Antialias {
    sizes: [usize; 4],
    columns: Filter,
    rows: Filter,
    between: Vec<u8>,
}

/// The weights of every output sample of one axis.
#[derive(Default)]
struct Filter {
    taps: Vec<Taps>,
    weights: Vec<i32>,
}

/// Consecutive input samples with their weights.
#[derive(Clone)]
struct Taps {
    first: usize,
    weights: Range<usize>,
}

impl Antialias {
    /// Resizes `source`, `from` (width, height), into `target`, `to` (width, height).
    #[inline(always)]
    pub(crate) fn resize(
        &mut self,
        source: &[u8],
        from: (usize, usize),
        target: &mut [u8],
        to: (usize, usize),
    ) {
        let sizes = [from.0, from.1, to.0, to.1];
        if self.sizes != sizes {
            self.columns = Filter::triangle(from.0, to.0);
            self.rows = Filter::triangle(from.1, to.1);
            self.between = vec![0; to.0 * from.1 * 3];
            self.sizes = sizes;
        }
        for (line, out) in source.chunks_exact(from.0 * 3).zip(self.between.chunks_exact_mut(to.0 * 3)) {
            self.columns.along(line, out);
        }
        for (taps, out) in self.rows.taps.iter().zip(target.chunks_exact_mut(to.0 * 3)) {
            let lines = &self.between[taps.first * to.0 * 3..];
            weigh_lines(lines, &self.rows.weights[taps.weights.clone()], out);
        }
    }
}

impl Filter {
    fn triangle(inputs: usize, outputs: usize) -> Self {
        let scale = inputs as f64 / outputs as f64;
        let width = scale.max(1.0);
        let mut filter = Self::default();
        for index in 0..outputs {
            let center = (index as f64 + 0.5) * scale;
            // Truncated after adding a half, as the original rounds; negative bounds become zero.
            let first = (center - width + 0.5).max(0.0) as usize;
            let end = ((center + width + 0.5) as usize).min(inputs);
            let raw = (first..end).map(|x| (1.0 - ((x as f64 - center + 0.5) / width).abs()).max(0.0));
            let sum: f64 = raw.clone().sum();
            let start = filter.weights.len();
            filter
                .weights
                .extend(raw.map(|weight| (0.5 + weight / sum * f64::from(1 << WEIGHT_BITS)) as i32));
            filter.taps.push(Taps { first, weights: start..filter.weights.len() });
        }
        filter
    }

    #[inline(always)]
    fn along(&self, line: &[u8], out: &mut [u8]) {
        for (taps, pixel) in self.taps.iter().zip(out.chunks_exact_mut(3)) {
            let mut sums = [1 << (WEIGHT_BITS - 1); 3];
            let samples = line[taps.first * 3..].chunks_exact(3);
            for (sample, weight) in samples.zip(&self.weights[taps.weights.clone()]) {
                for (sum, value) in sums.iter_mut().zip(sample) {
                    *sum += i32::from(*value) * weight;
                }
            }
            pixel.iter_mut().zip(sums).for_each(|(out, sum)| *out = to_sample(sum));
        }
    }
}

/// One output line from the lines below one another in `lines`, one for each weight.
#[inline(always)]
fn weigh_lines(lines: &[u8], weights: &[i32], out: &mut [u8]) {
    /// Values summed at once: their sums stay in registers.
    const BLOCK: usize = 16;
    let width = out.len();
    for (block, out) in out.chunks_mut(BLOCK).enumerate() {
        let mut sums = [1 << (WEIGHT_BITS - 1); BLOCK];
        for (line, weight) in lines.chunks(width).zip(weights) {
            let values = &line[block * BLOCK..][..out.len()];
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += i32::from(*value) * weight);
        }
        out.iter_mut().zip(sums).for_each(|(out, sum)| *out = to_sample(sum));
    }
}

#[inline(always)]
fn to_sample(sum: i32) -> u8 {
    (sum >> WEIGHT_BITS).clamp(0, 255) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(from: (usize, usize), to: (usize, usize), source: &[u8], wanted: &[u8]) {
        let rgb: Vec<u8> = source.iter().flat_map(|value| [*value; 3]).collect();
        let mut out = vec![0; to.0 * to.1 * 3];
        Antialias::default().resize(&rgb, from, &mut out, to);
        assert_eq!(out.chunks_exact(3).map(|pixel| pixel[1]).collect::<Vec<_>>(), wanted);
    }

    /// What `Image.fromarray(a).resize(to, Image.BILINEAR)` of Pillow 13 gives.
    #[test]
    fn it_equals_pillow() {
        check((8, 1), (3, 1), &[0, 10, 50, 200, 255, 3, 90, 17], &[32, 152, 61]);
        check(
            (3, 2),
            (5, 4),
            &[0, 128, 255, 77, 3, 200],
            &[0, 51, 128, 204, 255, 19, 50, 97, 183, 241, 58, 48, 34, 142, 214, 77, 47, 3, 121, 200],
        );
        check((5, 5), (2, 2), &(0..25).map(|i| i * 10).collect::<Vec<u8>>(), &[60, 80, 160, 180]);
        check((2, 2), (2, 2), &[1, 2, 3, 4], &[1, 2, 3, 4]);
    }
}
