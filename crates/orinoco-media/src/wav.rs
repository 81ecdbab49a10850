//! Reads WAV files as samples.

use std::path::Path;

use hound::{SampleFormat, WavReader};
use orinoco_core::{Diagnosis, codes};

use crate::local_file::{FileError, check_file};

/// Maximum size of a WAV file, in bytes: all of it is held in memory, as samples of 4 bytes. It is more than an hour at
/// 48 kHz in stereo.
const WAV_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// Sound of one channel.
#[derive(Clone, Debug, PartialEq)]
pub struct Sound {
    /// Sample rate, in hertz.
    pub sample_rate: u32,
    /// Samples from -1 to 1.
    pub samples: Vec<f32>,
}

/// Reads a WAV file (PCM of 8 to 32 bits, or 32-bit float). Of several channels it uses the first, in which recorders
/// put the nearest microphone.
pub fn read_wav(path: &Path) -> Result<Sound, Diagnosis> {
    read(path).map_err(|error| error.about(&path.display().to_string()))
}

/// Reason why a WAV file is not read.
#[derive(Debug)]
enum WavError {
    /// The file cannot be read.
    File(FileError),
    /// The file is larger than [`WAV_BYTES_MAX`].
    TooLarge,
    /// The header is not that of a WAV file that can be read.
    Header(hound::Error),
    /// A sample cannot be read, as in a file that was cut off.
    Sample(hound::Error),
}

fn read(path: &Path) -> Result<Sound, WavError> {
    check_file(path).map_err(WavError::File)?;
    if path.metadata().is_ok_and(|metadata| metadata.len() > WAV_BYTES_MAX) {
        return Err(WavError::TooLarge);
    }
    let mut reader = WavReader::open(path).map_err(WavError::Header)?;
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
    Ok(Sound { sample_rate: spec.sample_rate, samples: read.map_err(WavError::Sample)? })
}

impl WavError {
    /// Converts the error to a fault of the file that is called `shown` in messages.
    fn about(&self, shown: &str) -> Diagnosis {
        let next = "check that it is a whole WAV file (`ffmpeg -i FILE out.wav` converts others)";
        match self {
            Self::File(error) => error.about(shown),
            Self::TooLarge => {
                let cause = format!("it is larger than {} MiB", WAV_BYTES_MAX >> 20);
                Diagnosis::new(&codes::SOURCE_OPEN, shown, cause, "cut it into parts")
            }
            Self::Header(error) => Diagnosis::new(&codes::SOURCE_OPEN, shown, error, next),
            Self::Sample(error) => Diagnosis::new(&codes::SOURCE_TRUNCATED, shown, error, next),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipes_devices_and_huge_files_are_refused() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let huge = folder.path().join("huge.wav");
        let file = std::fs::File::create(&huge).expect("writable");
        file.set_len(WAV_BYTES_MAX + 1).expect("it is sparse");
        assert!(matches!(read(&huge), Err(WavError::TooLarge)));
        assert!(read_wav(&huge).expect_err("it is too large").cause.contains("larger than 1024 MiB"));
        let pipe = folder.path().join("pipe.wav");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).expect("writable");
        for path in [pipe.as_path(), Path::new("/dev/zero")] {
            let error = read(path).expect_err("it is no file");
            assert!(matches!(error, WavError::File(FileError::Special)), "{error:?}");
        }
    }

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
