//! Antialiased resize: a triangle filter as wide as the scale, in fixed point, columns before rows.
//!
//! It equals Pillow's `BILINEAR` bit for bit (Pillow `Resample.c`: 22-bit weights, each pass rounded to 8 bits),
//! because models are trained and evaluated with it, and a difference of one level already moves boxes between cells.

use std::ops::Range;

/// Bits of a weight's fraction: 32, minus 8 for the sample and 2 against overflow.
const WEIGHT_BITS: u32 = 22;

/// Resize along one axis: the size before and after, and the part of the result that is needed.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Axis {
    pub(crate) inputs: usize,
    pub(crate) outputs: usize,
    /// Output samples that are computed: few of very many for a thin object that fills a square.
    pub(crate) seen: Range<usize>,
}

/// Resizes packed 8-bit RGB. Keeps its weights as long as the axes stay the same.
#[derive(Default)]
pub(crate) struct Antialias {
    axes: [Axis; 2],
    columns: Filter,
    rows: Filter,
    between: Vec<u8>,
}

/// Filter of one axis: the weights of every output sample.
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
    /// Resizes `source` along both axes, and writes the needed part into `target`.
    #[inline(always)]
    pub(crate) fn resize(&mut self, source: &[u8], axes: [Axis; 2], target: &mut [u8]) {
        if self.axes != axes {
            let [across, down] = &axes;
            self.columns = Filter::triangle(across);
            self.rows = Filter::triangle(down);
            self.between = vec![0; across.seen.len() * down.inputs * 3];
            self.axes = axes;
        }
        let (width_in, width_out) = (self.axes[0].inputs, self.axes[0].seen.len());
        for (line, out) in source.chunks_exact(width_in * 3).zip(self.between.chunks_exact_mut(width_out * 3))
        {
            self.columns.along(line, out);
        }
        for (taps, out) in self.rows.taps.iter().zip(target.chunks_exact_mut(width_out * 3)) {
            let lines = &self.between[taps.first * width_out * 3..];
            weigh_lines(lines, &self.rows.weights[taps.weights.clone()], out);
        }
    }
}

impl Filter {
    fn triangle(axis: &Axis) -> Self {
        let scale = axis.inputs as f64 / axis.outputs as f64;
        let width = scale.max(1.0);
        let mut filter = Self::default();
        for index in axis.seen.clone() {
            let center = (index as f64 + 0.5) * scale;
            // Truncated after adding one half, which is how Pillow rounds; negative bounds become zero.
            let first = (center - width + 0.5).max(0.0) as usize;
            let end = ((center + width + 0.5) as usize).min(axis.inputs);
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

/// Computes one output line as the weighted sum of consecutive lines in `lines`, one for each weight.
#[inline(always)]
fn weigh_lines(lines: &[u8], weights: &[i32], out: &mut [u8]) {
    /// Number of values that are summed at once, so that their sums stay in registers.
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

    fn resize(source: &[u8], axes: [Axis; 2]) -> Vec<u8> {
        let rgb: Vec<u8> = source.iter().flat_map(|value| [*value; 3]).collect();
        let mut out = vec![0; axes[0].seen.len() * axes[1].seen.len() * 3];
        Antialias::default().resize(&rgb, axes, &mut out);
        out.chunks_exact(3).map(|pixel| pixel[1]).collect()
    }

    fn check(from: (usize, usize), to: (usize, usize), source: &[u8], wanted: &[u8]) {
        let axis = |inputs, outputs| Axis { inputs, outputs, seen: 0..outputs };
        assert_eq!(resize(source, [axis(from.0, to.0), axis(from.1, to.1)]), wanted);
    }

    #[test]
    fn what_is_seen_of_a_large_result_is_a_part_of_it() {
        let source: Vec<u8> = (0..4 * 6).map(|i| (i * 37 % 251) as u8).collect();
        let axes = |across, down| {
            [Axis { inputs: 4, outputs: 9, seen: across }, Axis { inputs: 6, outputs: 5, seen: down }]
        };
        let whole = resize(&source, axes(0..9, 0..5));
        let part: Vec<u8> = whole.chunks(9).skip(1).take(3).flat_map(|row| row[2..7].to_vec()).collect();
        assert_eq!(resize(&source, axes(2..7, 1..4)), part);
        // 1 x 1080 pixels that fill 256 x 256.
        let thin = Axis { inputs: 1080, outputs: 276_480, seen: 138_112..138_368 };
        let across = Axis { inputs: 1, outputs: 256, seen: 0..256 };
        assert_eq!(resize(&[9; 1080], [across, thin]), vec![9; 256 * 256]);
    }

    /// Expected values are those of `Image.fromarray(a).resize(to, Image.BILINEAR)` in Pillow 13.
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
