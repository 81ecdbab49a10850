//! The weights of the antialiased resize, made on the host: they change only when a frame's size does, and are float64,
//! which Jetson's GPUs compute 32 times slower.

use std::ops::Range;

/// Bits of a weight's fraction, as in `kernels/preprocess.cu`.
const WEIGHT_BITS: u32 = 22;

/// One axis: from how many samples to how many, and which of those the model sees: of a thin object that fills a square,
/// few of very many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Axis {
    pub(crate) inputs: u32,
    pub(crate) outputs: u32,
    pub(crate) seen_first: u32,
    pub(crate) seen: u32,
}

impl Axis {
    fn scale(self) -> f64 {
        f64::from(self.inputs) / f64::from(self.outputs)
    }

    /// The first input sample of an output, and the one after the last.
    fn bounds(self, index: u32) -> (u32, u32) {
        let width = self.scale().max(1.0);
        let center = (f64::from(index) + 0.5) * self.scale();
        // Truncated after adding a half, as the original rounds; negative bounds become zero.
        let first = (center - width + 0.5).max(0.0) as u32;
        (first, ((center + width + 0.5) as u32).min(self.inputs))
    }

    fn outputs_seen(self) -> Range<u32> {
        self.seen_first..self.seen_first + self.seen
    }

    /// The most taps of one output.
    pub(crate) fn taps_max(self) -> u32 {
        let taps = self.outputs_seen().map(|index| self.bounds(index)).map(|(first, end)| end - first);
        taps.max().unwrap_or(0)
    }

    /// Words that [`Axis::write`] fills.
    pub(crate) fn words(self) -> usize {
        self.seen as usize * (2 + self.taps_max() as usize)
    }

    /// An upper bound of [`Axis::words`] for up to `inputs_max` samples and up to `seen_max` that are seen: a filter is at
    /// most 2 * max(scale, 1) + 1 wide, and `scale * seen` is at most `inputs`.
    pub(crate) const fn words_max(inputs_max: u32, seen_max: u32) -> usize {
        2 * inputs_max as usize + 6 * seen_max as usize
    }

    /// Writes for each output that is seen: its first input sample, the number of taps, and the weights, in records of one
    /// length.
    pub(crate) fn write(self, words: &mut [i32]) {
        assert_eq!(words.len(), self.words(), "the words of {self:?}");
        let (scale, taps_max) = (self.scale(), self.taps_max() as usize);
        let width = scale.max(1.0);
        for (index, record) in self.outputs_seen().zip(words.chunks_exact_mut(2 + taps_max)) {
            let center = (f64::from(index) + 0.5) * scale;
            let (first, end) = self.bounds(index);
            let raw = |x: u32| (1.0 - ((f64::from(x) - center + 0.5) / width).abs()).max(0.0);
            let sum: f64 = (first..end).map(raw).sum();
            record[0] = first as i32;
            record[1] = (end - first) as i32;
            record[2..].fill(0);
            for (word, x) in record[2..].iter_mut().zip(first..end) {
                *word = (0.5 + raw(x) / sum * f64::from(1 << WEIGHT_BITS)) as i32;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(axis: Axis) -> Vec<i32> {
        let mut words = vec![0; axis.words()];
        axis.write(&mut words);
        words
    }

    #[test]
    fn weights_sum_to_one_and_fit_their_bound() {
        for (inputs, outputs) in [(1920, 640), (640, 1920), (1080, 416), (7, 7), (1, 9), (9, 1), (4096, 33)] {
            let axis = Axis { inputs, outputs, seen_first: 0, seen: outputs };
            let words = written(axis);
            assert!(axis.words() <= Axis::words_max(inputs, outputs), "{axis:?}: {} words", axis.words());
            for record in words.chunks_exact(2 + axis.taps_max() as usize) {
                let (first, count) = (record[0] as u32, record[1] as u32);
                assert!(count > 0 && first + count <= inputs, "{axis:?}");
                let sum: i32 = record[2..].iter().sum();
                assert!((sum - (1 << WEIGHT_BITS)).unsigned_abs() <= count, "{axis:?}: {sum}");
            }
        }
    }

    #[test]
    fn what_is_seen_has_the_weights_of_the_whole_and_little_room() {
        let whole = Axis { inputs: 12, outputs: 40, seen_first: 0, seen: 40 };
        let part = Axis { seen_first: 15, seen: 9, ..whole };
        let each = 2 + whole.taps_max() as usize;
        assert_eq!(part.taps_max(), whole.taps_max());
        assert_eq!(written(part), written(whole)[15 * each..24 * each]);
        // One column of a frame that fills 256 pixels.
        let thin = Axis { inputs: 1080, outputs: 276_480, seen_first: 138_112, seen: 256 };
        assert!(thin.words() <= Axis::words_max(1080, 256), "{} words", thin.words());
    }
}
