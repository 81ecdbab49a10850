//! WAV files into samples.

use std::path::Path;

use hound::{SampleFormat, WavReader};
use orinoco_core::{Diagnosis, WithSubject, codes};

/// Sound of one channel.
#[derive(Clone, Debug, PartialEq)]
pub struct Sound {
    /// Samples a second.
    pub sample_rate: u32,
    /// Samples from -1 to 1.
    pub samples: Vec<f32>,
}

/// Reads a WAV file (PCM of 8 to 32 bits, or 32-bit float). Of several channels it takes the first, as recorders put the
/// microphone that is nearest there.
pub fn read_wav(path: &Path) -> Result<Sound, Diagnosis> {
    let next = "check that it is a whole WAV file (`ffmpeg -i FILE out.wav` converts others)";
    let mut reader = WavReader::open(path).about(&codes::SOURCE_OPEN, path.display(), next)?;
    let spec = reader.spec();
    let channels = usize::from(spec.channels.max(1));
    let read: Result<Vec<f32>, hound::Error> = match spec.sample_format {
        SampleFormat::Float => reader.samples::<f32>().step_by(channels).collect(),
        SampleFormat::Int => {
            let full = 2.0f32.powi(i32::from(spec.bits_per_sample) - 1);
            let samples = reader.samples::<i32>().step_by(channels);
            samples.map(|sample| sample.map(|sample| sample as f32 / full)).collect()
        }
    };
    let samples = read.about(&codes::SOURCE_TRUNCATED, path.display(), next)?;
    Ok(Sound { sample_rate: spec.sample_rate, samples })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_channel_is_read() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("two.wav");
        let spec = hound::WavSpec {
            channels: 2,
            sample_rate: 16_000,
            bits_per_sample: 16,
            sample_format: SampleFormat::Int,
        };
        let mut writer = hound::WavWriter::create(&path, spec).expect("writable");
        for sample in [16_384i16, 0, -32_768, 7] {
            writer.write_sample(sample).expect("writable");
        }
        writer.finalize().expect("writable");
        let sound = read_wav(&path).expect("a WAV file");
        assert_eq!(sound, Sound { sample_rate: 16_000, samples: vec![0.5, -1.0] });
        let whole = std::fs::read(&path).expect("readable");
        for length in [0, 3, 20, 44, 46] {
            std::fs::write(&path, &whole[..length]).expect("writable");
            let fault =
                read_wav(&path).map(|sound| sound.samples.len()).map_err(|fault| fault.code.exit as u8);
            assert!(fault != Ok(2), "{length} bytes are not the whole file");
        }
    }
}
