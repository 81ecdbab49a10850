use std::ops::RangeInclusive;

use orinoco_sysroot::{Attribute, ReadErrorKind, Sysroot};

use super::reading::Unknown;

/// Greatest number of files that the readers keep open. A process may open 1024 by default, and cameras, sockets and models
/// need theirs; a Jetson has about 120 such files.
const OPEN_FILES_MAX: usize = 256;

/// Greatest number of sensors of one kind that are looked at, so that a directory with any number of entries is not walked.
const SENSORS_MAX: usize = 512;

/// Something on a board that cannot be read, or that is not what it seems, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Path on the board.
    pub path: String,
    /// Reason, as a sentence without its full stop.
    pub reason: String,
}

/// Search for sensors: the root, the files that are going to be read, and what could not be.
#[derive(Debug)]
pub(crate) struct Probe<'s> {
    pub(crate) sysroot: &'s Sysroot,
    pub(crate) gaps: Vec<Gap>,
    open_files: usize,
}

impl<'s> Probe<'s> {
    pub(crate) fn new(sysroot: &'s Sysroot) -> Self {
        Self { sysroot, gaps: Vec::new(), open_files: 0 }
    }

    /// Returns the names in a folder that begin with `prefix`, those with numbers in order of the numbers. A folder that cannot
    /// be read is a gap and gives none.
    pub(crate) fn names(&mut self, folder: &str, prefix: &str) -> Vec<String> {
        let names = match self.sysroot.entries(folder) {
            Ok(names) => names,
            Err(error) => {
                self.gap(folder, error.kind.to_string());
                return Vec::new();
            }
        };
        let mut names: Vec<String> = names.into_iter().filter(|name| name.starts_with(prefix)).collect();
        names.sort_by_key(|name| (number_after(name, prefix).unwrap_or(u32::MAX), name.clone()));
        if names.len() > SENSORS_MAX {
            let reason = format!("has {} entries, of which the first {SENSORS_MAX} are read", names.len());
            self.gap(folder, reason);
            names.truncate(SENSORS_MAX);
        }
        names
    }

    /// Returns the text of a file; `None` if it cannot be read, which is a gap unless the file does not exist.
    pub(crate) fn text(&mut self, path: &str) -> Option<String> {
        let text = self.sysroot.text(path);
        self.value(path, text)
    }

    /// Returns the number in a file, as [`text`](Self::text) does.
    pub(crate) fn number(&mut self, path: &str) -> Option<i64> {
        // Drivers of R32 write a unit after some numbers, which an attribute ignores.
        match Attribute::new(self.sysroot, path).opened_for_each_read().number() {
            Ok(number) => Some(number),
            Err(ReadErrorKind::Absent) => None,
            Err(kind) => {
                self.gap(path, kind.to_string());
                None
            }
        }
    }

    fn value(&mut self, path: &str, read: Result<String, orinoco_sysroot::ReadError>) -> Option<String> {
        match read {
            Ok(text) => Some(text),
            Err(error) if error.kind == ReadErrorKind::Absent => None,
            Err(error) => {
                self.gap(path, error.kind.to_string());
                None
            }
        }
    }

    /// Returns a file to read again and again, if its folder has it.
    pub(crate) fn attribute(&mut self, folder: &str, names: &[String], name: &str) -> Source {
        names.iter().any(|known| known == name).then(|| self.file(&format!("{folder}/{name}"))).into()
    }

    /// Returns a file to read again and again, whether or not it exists.
    pub(crate) fn file(&mut self, path: &str) -> Attribute {
        let attribute = Attribute::new(self.sysroot, path);
        self.open_files += 1;
        if self.open_files > OPEN_FILES_MAX { attribute.opened_for_each_read() } else { attribute }
    }

    /// Adds something that cannot be read.
    pub(crate) fn gap(&mut self, path: &str, reason: impl Into<String>) {
        self.gaps.push(Gap { path: path.to_owned(), reason: reason.into() });
    }
}

/// File of a value, if the driver has one.
#[derive(Debug)]
pub(crate) struct Source(Option<Attribute>);

impl Source {
    /// A value that the driver does not have.
    pub(crate) const NONE: Self = Self(None);

    /// Reads the number.
    pub(crate) fn number(&mut self) -> Result<i64, Unknown> {
        Ok(self.0.as_mut().ok_or(Unknown::NotOffered)?.number()?)
    }

    /// Reads the number, and returns it as a quantity.
    pub(crate) fn quantity<T>(&mut self, unit: impl FnOnce(i64) -> T) -> Result<T, Unknown> {
        self.number().map(unit)
    }

    /// Reads the number, and returns it as a quantity if that is one that the sensor can measure.
    pub(crate) fn quantity_within<T: PartialOrd>(
        &mut self,
        unit: impl FnOnce(i64) -> T,
        range: &RangeInclusive<T>,
    ) -> Result<T, Unknown> {
        let number = self.number()?;
        let quantity = unit(number);
        if range.contains(&quantity) { Ok(quantity) } else { Err(Unknown::OutOfRange(number)) }
    }

    /// Reads the text.
    pub(crate) fn text<'b>(&mut self, buffer: &'b mut Vec<u8>) -> Result<&'b str, Unknown> {
        Ok(self.0.as_mut().ok_or(Unknown::NotOffered)?.text(buffer)?)
    }

    pub(crate) fn is_some(&self) -> bool {
        self.0.is_some()
    }
}

impl From<Option<Attribute>> for Source {
    fn from(attribute: Option<Attribute>) -> Self {
        Self(attribute)
    }
}

impl From<Attribute> for Source {
    fn from(attribute: Attribute) -> Self {
        Self(Some(attribute))
    }
}

/// Returns the number of a name such as `hwmon3`, with the prefix `hwmon`.
pub(crate) fn number_after(name: &str, prefix: &str) -> Option<u32> {
    name.strip_prefix(prefix)?.parse().ok()
}

/// Returns the number between a prefix and a suffix, as in `in1_input`.
pub(crate) fn number_between(name: &str, prefix: &str, suffix: &str) -> Option<u32> {
    number_after(name.strip_suffix(suffix)?, prefix)
}

/// Greatest number of cores that Linux can be built for (`CONFIG_NR_CPUS`).
const CORES_MAX: u32 = 8192;

/// Returns the numbers of a list of cores such as `0-3,5`; `None` for a text that is none.
pub(crate) fn list_of_cores(text: &str) -> Option<Vec<u32>> {
    let mut numbers = Vec::new();
    for range in text.trim().split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if last < first || last >= CORES_MAX || numbers.len() >= CORES_MAX as usize {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cores_are_read() {
        assert_eq!(list_of_cores("0-3,5\n"), Some(vec![0, 1, 2, 3, 5]));
        assert_eq!(list_of_cores(""), Some(vec![]));
        assert_eq!(list_of_cores("7"), Some(vec![7]));
        for wrong in ["a", "3-1", "0-99999999", "4294967295", "1-", "-1"] {
            assert_eq!(list_of_cores(wrong), None, "{wrong}");
        }
    }
}
