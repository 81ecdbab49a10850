use std::fmt;

use orinoco_sysroot::ReadErrorKind;

/// Value of a sensor, or the reason why it is not known.
pub type Reading<T> = Result<T, Unknown>;

/// Reason why a value is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unknown {
    /// Its file gave no value.
    #[error("its file {0}")]
    File(#[from] ReadErrorKind),
    /// The driver, or this version of it, has no such value.
    #[error("the driver does not offer it")]
    NotOffered,
    /// It is the difference of two readings, and this is the first one, or no time has passed since.
    #[error("it needs a second reading")]
    NeedsSecondReading,
    /// The text in the file is not in the format that the kernel documents.
    #[error("the content of its file is not in the format that the kernel documents")]
    Malformed,
    /// The number in its file is none that the sensor can measure.
    #[error("the value {0} in its file is outside what this sensor can measure")]
    OutOfRange(i64),
    /// The sensor does not measure: it only reports an alarm.
    #[error("the sensor only reports alarms, and no alarm is active")]
    AlarmOnly,
    /// The core is switched off.
    #[error("the core is offline")]
    Offline,
    /// The driver of a device refused, with its message.
    #[error("{0}")]
    Device(String),
}

/// Frequency in hertz.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hertz(pub u64);

impl fmt::Display for Hertz {
    /// Writes the frequency in MHz.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} MHz", (self.0 + 500_000) / 1_000_000)
    }
}

/// Share of a whole, from 0 to 1, held in millionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Utilization(u32);

impl Utilization {
    /// Creates the share `part` of `whole`, at most 1; `None` if there is no whole.
    pub fn of(part: u64, whole: u64) -> Option<Self> {
        let millionths = u128::from(part.min(whole)) * 1_000_000;
        let share = millionths.checked_div(u128::from(whole))?;
        Some(Self(u32::try_from(share).expect("a share is at most 1")))
    }

    /// Returns the share in millionths.
    pub fn millionths(self) -> u32 {
        self.0
    }

    /// Returns the share in percent, for figures and displays.
    pub fn percent(self) -> f64 {
        f64::from(self.0) / 10_000.0
    }
}

impl fmt::Display for Utilization {
    /// Writes the share in percent, with one decimal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} %", self.percent())
    }
}

/// Name of a governor of clocks. The kernel bounds it to 16 bytes (`CPUFREQ_NAME_LEN`, `DEVFREQ_NAME_LEN`), so reading one
/// allocates nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Governor {
    bytes: [u8; 16],
    length: u8,
}

impl Governor {
    /// Creates the name of a governor; `None` for a text that is none.
    pub(crate) fn new(name: &str) -> Option<Self> {
        let mut bytes = [0; 16];
        bytes.get_mut(..name.len())?.copy_from_slice(name.as_bytes());
        (!name.is_empty()).then_some(Self { bytes, length: name.len() as u8 })
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.length)]).expect("made from a text")
    }
}

impl fmt::Debug for Governor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

/// Writes `reading` over the old value of `slots[index]`, or adds it. The vectors of a snapshot keep their memory this way.
pub(crate) fn put<T>(slots: &mut Vec<T>, index: usize, reading: T) {
    match slots.get_mut(index) {
        Some(slot) => *slot = reading,
        None => slots.push(reading),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_frequencies_are_shown_in_usual_units() {
        let share = Utilization::of(305, 1000).expect("a share");
        assert_eq!((share.to_string(), share.millionths()), ("30.5 %".to_owned(), 305_000));
        assert_eq!(Utilization::of(7, 5).map(Utilization::millionths), Some(1_000_000));
        assert_eq!(Utilization::of(0, 0), None);
        assert_eq!(Utilization::of(u64::MAX, u64::MAX).map(Utilization::percent), Some(100.0));
        assert_eq!(Hertz(1_300_500_000).to_string(), "1301 MHz");
    }

    #[test]
    fn a_governor_has_a_short_name() {
        assert_eq!(Governor::new("nvhost_podgov").expect("a name").as_str(), "nvhost_podgov");
        assert_eq!(Governor::new(""), None);
        assert_eq!(Governor::new("a name of 17 byte"), None);
    }
}
