//! Mel-frequency cepstral coefficients (MFCC) of sound.

use std::sync::Arc;

use orinoco_model::Mfcc;
use rustfft::num_complex::Complex;
use rustfft::{Fft, FftPlanner};

/// Value that is added to a band's energy before its logarithm, as MLPerf Tiny does.
const LOG_FLOOR: f64 = 1e-6;

/// Computes mel-frequency cepstral coefficients.
pub(crate) struct Cepstra {
    spec: Mfcc,
    fft: Arc<dyn Fft<f64>>,
    window: Vec<f64>,
    /// Weight of each bin of the spectrum, for each mel band.
    bands: Vec<Vec<f64>>,
    spectrum: Vec<Complex<f64>>,
}

impl Cepstra {
    pub(crate) fn new(spec: &Mfcc, sample_rate: u32) -> Self {
        // The sizes are those of `tf.signal.stft`: an FFT of the next power of two, and a periodic Hann window.
        let length = spec.frame_samples.next_power_of_two();
        let turn = |n: usize| std::f64::consts::TAU * n as f64 / spec.frame_samples as f64;
        Self {
            spec: spec.clone(),
            fft: FftPlanner::new().plan_fft_forward(length),
            window: (0..spec.frame_samples).map(|n| 0.5 - 0.5 * turn(n).cos()).collect(),
            bands: mel_bands(spec, length, f64::from(sample_rate)),
            spectrum: vec![Complex::default(); length],
        }
    }

    /// Fills `out`, `[frames, coefficients]`, from the samples of one window. Missing samples count as zeros. The
    /// window is first scaled to a maximum of 1.
    pub(crate) fn compute(&mut self, samples: &[f32], out: &mut [f32]) {
        let samples = &samples[..samples.len().min(self.spec.window())];
        let top = samples.iter().copied().fold(0.0, f32::max);
        let gain = if top > 0.0 { 1.0 / f64::from(top) } else { 1.0 };
        for (frame, row) in out.chunks_exact_mut(self.spec.coefficients).enumerate() {
            let first = frame * self.spec.step_samples;
            self.spectrum.fill(Complex::default());
            for (index, (bin, weight)) in self.spectrum.iter_mut().zip(&self.window).enumerate() {
                let sample = samples.get(first + index).copied().unwrap_or(0.0);
                bin.re = f64::from(sample) * gain * weight;
            }
            self.fft.process(&mut self.spectrum);
            let magnitudes: Vec<f64> =
                self.spectrum[..self.spectrum.len() / 2 + 1].iter().map(|bin| bin.norm()).collect();
            let band = |weights: &Vec<f64>| weights.iter().zip(&magnitudes).map(|(w, m)| w * m).sum::<f64>();
            let logs: Vec<f64> = self.bands.iter().map(|weights| (band(weights) + LOG_FLOOR).ln()).collect();
            cosine_transform(&logs, row);
        }
    }
}

/// Computes the first coefficients of the DCT-II, scaled by sqrt(2 / bands) like
/// `tf.signal.mfccs_from_log_mel_spectrograms`.
fn cosine_transform(logs: &[f64], row: &mut [f32]) {
    let bands = logs.len() as f64;
    for (index, value) in row.iter_mut().enumerate() {
        let angle = |band: usize| std::f64::consts::PI * index as f64 * (band as f64 + 0.5) / bands;
        let sum: f64 = logs.iter().enumerate().map(|(band, log)| log * angle(band).cos()).sum();
        *value = (sum * (2.0 / bands).sqrt()) as f32;
    }
}

/// Returns the weights of triangular bands, evenly spaced on HTK's mel scale and linear in mel, like
/// `tf.signal.linear_to_mel_weight_matrix`. The bin of 0 Hz belongs to no band.
fn mel_bands(spec: &Mfcc, length: usize, sample_rate: f64) -> Vec<Vec<f64>> {
    let mel = |hz: f64| 1127.0 * (hz / 700.0).ln_1p();
    let (low, high) = (mel(spec.edges_hz.0), mel(spec.edges_hz.1));
    let edge = |index: usize| low + (high - low) * index as f64 / (spec.mel_bands + 1) as f64;
    let weight = |band: usize, bin: usize| {
        let at = mel(bin as f64 * sample_rate / length as f64);
        let (left, middle, right) = (edge(band), edge(band + 1), edge(band + 2));
        let rising = (at - left) / (middle - left);
        let falling = (right - at) / (right - middle);
        if bin == 0 { 0.0 } else { rising.min(falling).max(0.0) }
    };
    (0..spec.mel_bands).map(|band| (0..=length / 2).map(|bin| weight(band, bin)).collect()).collect()
}
