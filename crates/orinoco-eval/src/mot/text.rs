//! MOTChallenge's text format: `frame,id,left,top,width,height,confidence,class,visibility`, a row for each object.

use std::fmt::{self, Write as _};
use std::path::Path;

use orinoco_config::{Existing, ReadError, write_whole};
use orinoco_core::{Diagnosis, WithSubject, codes};

use super::{PEDESTRIAN, RepeatedId, Row, Sequence};
use crate::dataset::TABLES;

/// Class of rows without one: MOTChallenge's results are of pedestrians.
const CLASS_UNSAID: u32 = PEDESTRIAN;
/// Minimum number of columns in a row, up to the confidence.
const COLUMNS_MIN: usize = 7;
/// Next step where an id is twice in a frame.
pub(super) const REPEATED_NEXT: &str = "give each object of a frame its own id";

impl Sequence {
    /// Reads `file`: a `gt.txt`, or the results of a tracker.
    pub fn read(file: &Path) -> Result<Self, Diagnosis> {
        read(file).map_err(|error| error.about(&file.display().to_string()))
    }

    /// Parses `text`, called `name` in faults. Columns from the eighth on may be missing or -1, as in results.
    pub fn parse(text: &str, name: &str) -> Result<Self, Diagnosis> {
        parse(text).map_err(|error| error.about(name))
    }

    /// Formats the text that [`Self::parse`] reads, with rows in the order of their frames and ids.
    pub fn to_text(&self) -> String {
        self.lines(|row| format!("{},{}", row.class, row.visibility))
    }

    /// Formats the text for MOTChallenge's server: as [`Self::to_text`], but with -1 for a point in space instead of
    /// class and visibility.
    pub fn to_results(&self) -> String {
        self.lines(|_| "-1,-1,-1".to_owned())
    }

    /// Formats a line for each row; `rest` returns the columns after the confidence.
    fn lines(&self, rest: impl Fn(&Row) -> String) -> String {
        let mut rows: Vec<&Row> = self.rows().iter().collect();
        rows.sort_by_key(|row| (row.frame, row.id, row.class));
        let mut text = String::new();
        for row in rows {
            let Row { frame, id, bounds: [x, y, w, h], confidence, .. } = row;
            let written = writeln!(text, "{frame},{id},{x},{y},{w},{h},{confidence},{}", rest(row));
            written.expect("a string takes all that is written to it");
        }
        text
    }

    /// Writes [`Self::to_text`] to `file`.
    pub fn write(&self, file: &Path) -> Result<(), Diagnosis> {
        write(file, &self.to_text())
    }

    /// Writes [`Self::to_results`] to `file`.
    pub fn write_results(&self, file: &Path) -> Result<(), Diagnosis> {
        write(file, &self.to_results())
    }
}

fn write(file: &Path, text: &str) -> Result<(), Diagnosis> {
    let next = "name a file in a folder that exists and may be written to";
    write_whole(file, text.as_bytes(), Existing::Replace).about(&codes::SINK_OPEN, file.display(), next)
}

/// Reason why a text has no rows of tracks. Lines are counted from 1.
#[derive(Debug)]
pub(super) enum TextError {
    /// The file cannot be read.
    File(ReadError),
    /// A line is not a row.
    Row { line: usize, error: RowError },
    /// The id in a line is in an earlier line of the same frame and class.
    Repeated { line: usize, again: RepeatedId },
}

/// Reason why a line is not a row.
#[derive(Debug)]
pub(super) enum RowError {
    /// The line has this number of columns, fewer than [`COLUMNS_MIN`].
    Columns(usize),
    /// The column `name` is not a number.
    Number { name: &'static str, text: String },
    /// The column `name` is not a whole number from 0 to `most`.
    Whole { name: &'static str, text: String, most: u64 },
    /// The width or the height is negative.
    NegativeSize,
}

impl TextError {
    /// Converts the error to a fault of the text that is called `shown` in messages.
    pub(super) fn about(self, shown: &str) -> Diagnosis {
        let fault = |line: usize, cause: String, next: &str| {
            Diagnosis::new(&codes::DATASET, format!("{shown}:{line}"), cause, next)
        };
        match self {
            Self::File(error) => error.into(),
            Self::Row { line, error } => fault(line, error.to_string(), error.next()),
            Self::Repeated { line, again } => fault(line, again.to_string(), REPEATED_NEXT),
        }
    }
}

impl fmt::Display for RowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Columns(columns) => {
                write!(f, "it has {columns} columns; at least {COLUMNS_MIN} are needed")
            }
            Self::Number { name, text } => write!(f, "{name} `{text}` is not a number"),
            Self::Whole { name, text, most } => {
                write!(f, "{name} `{text}` is not a whole number from 0 to {most}")
            }
            Self::NegativeSize => f.write_str("its width or height is negative"),
        }
    }
}

impl RowError {
    fn next(&self) -> &'static str {
        match self {
            Self::Columns(_) => "write frame,id,left,top,width,height,confidence,class,visibility",
            Self::Whole { .. } => "give results of a tracker, where every row has an id",
            Self::Number { .. } | Self::NegativeSize => "correct that line",
        }
    }
}

/// Reads `file` as [`Sequence::read`] does.
pub(super) fn read(file: &Path) -> Result<Sequence, TextError> {
    parse(&TABLES.read_text(file).map_err(TextError::File)?)
}

fn parse(text: &str) -> Result<Sequence, TextError> {
    let (mut rows, mut lines) = (Vec::new(), Vec::new());
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        rows.push(read_row(line).map_err(|error| TextError::Row { line: index + 1, error })?);
        lines.push(index + 1);
    }
    Sequence::new(rows).map_err(|again| TextError::Repeated { line: lines[again.row], again })
}

fn read_row(line: &str) -> Result<Row, RowError> {
    let columns: Vec<&str> = line.split(',').map(str::trim).collect();
    if columns.len() < COLUMNS_MIN {
        return Err(RowError::Columns(columns.len()));
    }
    let text = |column: usize| columns[column].to_owned();
    let number = |column: usize, name: &'static str| match columns[column].parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(value),
        _ => Err(RowError::Number { name, text: text(column) }),
    };
    // Some tools write integers as `3.0`.
    let whole = |column: usize, name: &'static str, most: u64| {
        let value = number(column, name)?;
        if value.fract() != 0.0 || value < 0.0 || value > most as f64 {
            return Err(RowError::Whole { name, text: text(column), most });
        }
        Ok(value as u64)
    };
    let optional = |column: usize| columns.get(column).is_some_and(|text| !text.starts_with('-'));
    let bounds = [number(2, "left")?, number(3, "top")?, number(4, "width")?, number(5, "height")?];
    if bounds[2] < 0.0 || bounds[3] < 0.0 {
        return Err(RowError::NegativeSize);
    }
    // Integers that a float represents exactly.
    const ID_MAX: u64 = 1 << 53;
    Ok(Row {
        frame: whole(0, "frame", u32::MAX.into())? as u32,
        id: whole(1, "id", ID_MAX)?,
        bounds,
        confidence: number(6, "confidence")?,
        class: if optional(7) { whole(7, "class", u32::MAX.into())? as u32 } else { CLASS_UNSAID },
        visibility: if optional(8) { number(8, "visibility")? } else { 1.0 },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let read = match Sequence::parse(text, "gt.txt") {
            Ok(sequence) => sequence.to_text(),
            Err(fault) => fault.to_string(),
        };
        assert_eq!(read, expected);
    }

    #[test]
    fn rows_are_read_and_written() {
        check(
            "2,1,10,20.5,3,4,1,1,0.25\n\n1, 7, -3, 0, 3, 4, 0.5\n",
            "1,7,-3,0,3,4,0.5,1,1\n2,1,10,20.5,3,4,1,1,0.25\n",
        );
        check("1.0,3.0,1,2,3,4,0.9,-1,-1,-1\r\n", "1,3,1,2,3,4,0.9,1,1\n");
        check("", "");
    }

    #[test]
    fn results_name_no_class() {
        let sequence = Sequence::parse("2,1,10,20.5,3,4,0.5,1,0.25\n", "text").expect("well formed");
        assert_eq!(sequence.to_results(), "2,1,10,20.5,3,4,0.5,-1,-1,-1\n");
    }

    #[test]
    fn faults_name_their_line() {
        check(
            "1,1,0,0,1\n",
            "gt.txt:1: it has 5 columns; at least 7 are needed; write \
             frame,id,left,top,width,height,confidence,class,visibility",
        );
        check("1,1,0,0,1,1,1\n\n1,x,0,0,1,1,1\n", "gt.txt:3: id `x` is not a number; correct that line");
        check(
            "1,-1,0,0,1,1,1\n",
            "gt.txt:1: id `-1` is not a whole number from 0 to 9007199254740992; give results of a tracker, where \
             every row has an id",
        );
        check("1,1,0,0,1,-1,1\n", "gt.txt:1: its width or height is negative; correct that line");
        check("1,1,nan,0,1,1,1\n", "gt.txt:1: left `nan` is not a number; correct that line");
        check(
            "1,1,0,0,1,1,1\n1,1,5,0,1,1,1\n",
            "gt.txt:2: id 1 is twice in frame 1; give each object of a frame its own id",
        );
    }

    #[test]
    fn a_file_comes_back_as_it_was_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("gt.txt");
        let sequence = Sequence::parse("1,1,0.1,0.2,3,4,1,2,0.5\n", "text").expect("well formed");
        sequence.write(&file).expect("written");
        assert_eq!(Sequence::read(&file).expect("as written"), sequence);
        assert!(Sequence::read(&folder.path().join("none.txt")).is_err());
    }
}
