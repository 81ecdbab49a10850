//! Errors of cameras, and how they become faults.

use std::fmt;
use std::io;
use std::time::Duration;

use image::ImageError;
use orinoco_core::{Diagnosis, codes};
use orinoco_pipeline::SourceError;
use orinoco_uri::Rate;

use super::cameras::size_text;
use super::formats::{FORMATS, Payload, name};
use super::kernel::{EACCES, EBUSY, EINVAL, ENODEV, ENOTTY, ERANGE, FourCc, Sizes};

/// Maximum time for which a device may refuse this user. The node of a camera that was just connected belongs to root
/// until udev gives it to its group: tens of milliseconds later, and more on a busy machine.
const PERMISSION_WAIT_MAX: Duration = Duration::from_secs(5);

/// Reason why a camera gives no frames.
#[derive(Debug)]
pub(super) enum CameraError {
    /// The kernel did not do what was asked for.
    Kernel(Operation, io::Error),
    /// The camera has other formats than the one in the URI.
    NoFormat { wanted: FourCc, offered: Vec<FourCc> },
    /// Orinoco cannot read the format in the URI, which the camera has.
    UnsupportedFormat(FourCc),
    /// Orinoco can read none of the camera's formats, which are these.
    NoSupportedFormat(Vec<FourCc>),
    /// The driver set another format or size. `sizes` are those that the camera has in the wanted format.
    OtherFormat { wanted: (FourCc, (u32, u32)), made: (FourCc, (u32, u32)), sizes: Sizes },
    /// The driver set another frame rate. `rates` are those that the camera has.
    OtherRate { wanted: Rate, made: Rate, rates: Vec<Rate> },
    /// The camera has no control of this name, but the `known` ones.
    NoControl { name: String, known: Vec<String> },
    /// The value is beyond the range of the control.
    ControlRange { name: String, value: i32, range: (i64, i64) },
    /// The driver stores frames of this format in another number of memory planes.
    OtherPlanes { fourcc: FourCc, planes: usize, wanted: usize },
    /// Too many frames in a row are unusable, the last one for this reason.
    Unusable(Payload, BadFrame),
}

impl CameraError {
    /// Converts the error to a fault of the source that is called `shown` in messages.
    pub(super) fn about(&self, shown: &str) -> SourceError {
        let passing = |cause: &str, next: &str| {
            SourceError::Transient(Diagnosis::new(&codes::SOURCE_UNREACHABLE, shown, cause, next))
        };
        let lasting = |cause: String, next: String| {
            SourceError::Permanent(Diagnosis::new(&codes::SOURCE_OPEN, shown, cause, next))
        };
        match self {
            Self::Kernel(doing, error) => match meaning(doing, error) {
                ErrorMeaning::Passing(cause, next) => passing(&cause, next),
                ErrorMeaning::Lasting(cause, next) => lasting(cause, next.to_owned()),
            },
            Self::Unusable(payload, why) => {
                let next = match payload {
                    Payload::Jpeg => "write format=YUYV, or look at the kernel's log (`dmesg`)",
                    Payload::Raw(_) | Payload::Planes(_) => "look at the kernel's log (`dmesg`)",
                };
                passing(&format!("its frames cannot be used: {why}"), next)
            }
            Self::NoFormat { wanted, offered } => lasting(
                format!("the camera has no format {}", name(*wanted)),
                format!("write format= one of {}", names(offered)),
            ),
            Self::UnsupportedFormat(wanted) => {
                let known: Vec<FourCc> = FORMATS.iter().map(|(fourcc, _)| **fourcc).collect();
                lasting(
                    format!("the pixel format {} is not supported", name(*wanted)),
                    format!("write format= one of {}", names(&known)),
                )
            }
            Self::NoSupportedFormat(offered) => lasting(
                format!("none of its pixel formats is supported: {}", names(offered)),
                "use another camera, or a mode of it that gives NV12, YUYV or MJPG".to_owned(),
            ),
            Self::OtherFormat { wanted, made, sizes } => {
                let mode = |(fourcc, size): &(FourCc, _)| format!("{} {}", name(*fourcc), size_text(*size));
                let sizes = match sizes {
                    Sizes::Listed(sizes) if sizes.is_empty() => size_text(made.1),
                    Sizes::Listed(sizes) => list(sizes.iter().map(|size| size_text(*size))),
                    Sizes::Range(least, most, _) => format!("{} to {}", size_text(*least), size_text(*most)),
                };
                lasting(
                    format!("the camera set {} instead of {}", mode(made), mode(wanted)),
                    format!("write width= and height= of one of {sizes}"),
                )
            }
            Self::OtherRate { wanted, made, rates } => lasting(
                format!("the camera set {made} frames per second instead of {wanted}"),
                format!("write fps= one of {}", list(rates.iter().map(Rate::to_string))),
            ),
            Self::NoControl { name, known } => lasting(
                format!("the camera has no control {name}"),
                format!("use one of {}", known.join(", ")),
            ),
            Self::ControlRange { name, value, range: (least, most) } => lasting(
                format!("the control {name} cannot be {value}"),
                format!("write a number from {least} to {most}"),
            ),
            Self::OtherPlanes { fourcc, planes, wanted } => lasting(
                format!("the number of planes of {} is {planes}, not {wanted}", name(*fourcc)),
                "write another format=; `orinoco cameras` lists them".to_owned(),
            ),
        }
    }
}

fn names(formats: &[FourCc]) -> String {
    list(formats.iter().map(|fourcc| name(*fourcc)))
}

fn list(names: impl Iterator<Item = String>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

/// Reason why the bytes in a buffer are not a frame.
#[derive(Debug)]
pub(super) enum BadFrame {
    /// The driver has flagged the buffer as corrupt.
    Flagged,
    /// The buffer has fewer bytes than the format needs.
    Short { bytes: usize, needed: usize },
    /// The JPEG image ends early.
    JpegCutOff,
    /// The JPEG image cannot be decoded.
    JpegCorrupt(ImageError),
    /// The JPEG image has another size than the format.
    JpegSize { made: (u32, u32), wanted: (u32, u32) },
    /// A memory plane has this many bytes, fewer than its rows need.
    ShortPlane { bytes: usize },
    /// The bytes do not fit the description of the frames.
    Misfit,
}

impl fmt::Display for BadFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flagged => f.write_str("the driver flags them as corrupt (V4L2_BUF_FLAG_ERROR)"),
            Self::Short { bytes, needed } => write!(f, "it sent {bytes} bytes, not {needed}"),
            Self::JpegCutOff => f.write_str("it sent a JPEG that was cut off"),
            Self::JpegCorrupt(error) => write!(f, "it sent a JPEG that cannot be decoded: {error}"),
            Self::JpegSize { made, wanted } => {
                write!(f, "it sent a JPEG of {}, not {}", size_text(*made), size_text(*wanted))
            }
            Self::ShortPlane { bytes } => write!(f, "it sent a plane of {bytes} bytes, which are too few"),
            Self::Misfit => f.write_str("they do not fit their format"),
        }
    }
}

/// Request to the kernel.
#[derive(Clone, Debug)]
pub(super) enum Operation {
    /// Opens the device, which has refused this user for the given time.
    Opening { refused: Duration },
    /// Sets the frame rate.
    SettingRate,
    /// Sets the control of this name to this value.
    SettingControl { name: String, value: i32 },
    /// Any other request, in words.
    Step(&'static str),
}

/// Meaning of an error of the kernel: its cause and the next step.
#[derive(Debug)]
enum ErrorMeaning {
    /// Another attempt may succeed.
    Passing(String, &'static str),
    /// Another attempt will fail too.
    Lasting(String, &'static str),
}

/// Returns the meaning of an error: for a device, `EACCES` concerns the user's permission; for a control, its mode.
fn meaning(doing: &Operation, error: &io::Error) -> ErrorMeaning {
    use ErrorMeaning::{Lasting, Passing};
    const OTHER: &str = "choose another device: `orinoco cameras` lists them";
    const LOG: &str = "look at the kernel's log (`dmesg`)";
    match (doing, error.raw_os_error(), error.kind()) {
        (_, Some(ENODEV), _) | (Operation::Opening { .. }, _, io::ErrorKind::NotFound) => {
            Passing("the camera is not there".to_owned(), "plug it in; `orinoco cameras` lists what there is")
        }
        (Operation::Opening { .. }, Some(ENOTTY), _) => Lasting("it is not a camera".to_owned(), OTHER),
        (Operation::Opening { refused }, _, io::ErrorKind::PermissionDenied) => {
            let (cause, next) = ("it may not be opened by this user", "add the user to the group video");
            match *refused < PERMISSION_WAIT_MAX {
                true => Passing(cause.to_owned(), next),
                false => Lasting(cause.to_owned(), next),
            }
        }
        (Operation::Opening { .. } | Operation::Step(_), _, io::ErrorKind::Unsupported) => {
            Lasting(error.to_string(), OTHER)
        }
        (Operation::SettingRate, Some(ENOTTY | EINVAL), _) => {
            Lasting("its frame rate cannot be set".to_owned(), "remove fps")
        }
        (Operation::SettingControl { name, value }, _, _) => control_meaning(name, *value, error),
        // Any program may open a camera; another program's use shows only when a format is set or buffers are
        // requested.
        (_, Some(EBUSY), _) => Passing("another program uses the camera".to_owned(), "end that program"),
        (Operation::Opening { .. }, ..) => Passing(format!("opening it failed: {error}"), LOG),
        (Operation::SettingRate, ..) => Passing(format!("setting the frame rate failed: {error}"), LOG),
        (Operation::Step(step), ..) => Passing(format!("{step} failed: {error}"), LOG),
    }
}

/// Returns the meaning of an error when a control did not accept `value`, while the camera is connected.
fn control_meaning(name: &str, value: i32, error: &io::Error) -> ErrorMeaning {
    let cause = format!("the control {name} cannot be set to {value} now: {error}");
    let next = "switch off its automatic mode in a setting before it, or remove this control";
    match error.raw_os_error() {
        Some(EACCES | EINVAL | ERANGE) => ErrorMeaning::Lasting(cause, next),
        // A USB camera also returns EBUSY while it still applies the last setting: a motor takes its time.
        Some(EBUSY) => ErrorMeaning::Passing(cause, next),
        _ => ErrorMeaning::Passing(cause, "look at the kernel's log (`dmesg`)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENOENT: i32 = 2;
    const EIO: i32 = 5;

    #[test]
    fn an_error_means_what_was_asked_for() {
        let opening = Operation::Opening { refused: Duration::ZERO };
        let refused = Operation::Opening { refused: PERMISSION_WAIT_MAX };
        let gain = Operation::SettingControl { name: "gain".to_owned(), value: 5 };
        let format = Operation::Step("setting the format");
        for (doing, errno, lasts, words) in [
            (&opening, ENODEV, false, "the camera is not there; plug it in"),
            (&opening, ENOENT, false, "the camera is not there; plug it in"),
            (&opening, ENOTTY, true, "it is not a camera; choose another device"),
            (&opening, EACCES, false, "it may not be opened by this user; add the user"),
            (&refused, EACCES, true, "it may not be opened by this user; add the user"),
            (&opening, EBUSY, false, "another program uses the camera; end that"),
            (&opening, EIO, false, "opening it failed: "),
            (&Operation::SettingRate, ENODEV, false, "the camera is not there; "),
            (&Operation::SettingRate, ENOTTY, true, "its frame rate cannot be set; remove fps"),
            (&Operation::SettingRate, EINVAL, true, "its frame rate cannot be set; remove fps"),
            (&Operation::SettingRate, EBUSY, false, "another program uses the camera; "),
            (&Operation::SettingRate, EIO, false, "setting the frame rate failed: "),
            (&gain, ENODEV, false, "the camera is not there; "),
            (&gain, EACCES, true, "the control gain cannot be set to 5 now: "),
            (&gain, EINVAL, true, "the control gain cannot be set to 5 now: "),
            (&gain, ERANGE, true, "the control gain cannot be set to 5 now: "),
            (&gain, EBUSY, false, "the control gain cannot be set to 5 now: "),
            (&gain, EIO, false, "the control gain cannot be set to 5 now: "),
            (&format, ENODEV, false, "the camera is not there; "),
            (&format, EBUSY, false, "another program uses the camera; "),
            (&format, EACCES, false, "setting the format failed: "),
            (&format, ENOTTY, false, "setting the format failed: "),
        ] {
            let (said_lasts, said) = match meaning(doing, &io::Error::from_raw_os_error(errno)) {
                ErrorMeaning::Passing(cause, next) => (false, format!("{cause}; {next}")),
                ErrorMeaning::Lasting(cause, next) => (true, format!("{cause}; {next}")),
            };
            assert!(said.starts_with(words), "{doing:?} {errno}: {said}");
            assert_eq!(said_lasts, lasts, "{doing:?} {errno}: {said}");
        }
    }
}
