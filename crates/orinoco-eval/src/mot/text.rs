//! MOTChallenge's text format: `frame,id,left,top,width,height,confidence,class,visibility`, a row for each object.

use std::fmt::Write as _;
use std::path::Path;

use orinoco_config::{Existing, write_whole};
use orinoco_core::{Diagnosis, WithSubject, codes};

use super::{PEDESTRIAN, Row, Sequence};
use crate::dataset::TABLES;

/// Class of rows without one: MOTChallenge's results are of pedestrians.
const CLASS_UNSAID: u32 = PEDESTRIAN;
/// Minimum number of columns in a row, up to the confidence.
const COLUMNS_MIN: usize = 7;

impl Sequence {
    /// Reads `file`: a `gt.txt`, or the results of a tracker.
    pub fn read(file: &Path) -> Result<Self, Diagnosis> {
        let text = TABLES.read_text(file)?;
        Self::parse(&text, &file.display().to_string())
    }

    /// Parses `text`, called `name` in faults. Columns from the eighth on may be missing or -1, as in results.
    pub fn parse(text: &str, name: &str) -> Result<Self, Diagnosis> {
        let fault = |line: usize, (cause, next): Fault| {
            Diagnosis::new(&codes::DATASET, format!("{name}:{line}"), cause, next)
        };
        let (mut rows, mut lines) = (Vec::new(), Vec::new());
        for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            rows.push(read_row(line).map_err(|cause| fault(index + 1, cause))?);
            lines.push(index + 1);
        }
        Self::new(rows).map_err(|again| {
            fault(lines[again.row], (again.to_string(), "give each object of a frame its own id"))
        })
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

/// Cause of a fault in a row, and the next step.
type Fault = (String, &'static str);

fn read_row(line: &str) -> Result<Row, Fault> {
    let columns: Vec<&str> = line.split(',').map(str::trim).collect();
    if columns.len() < COLUMNS_MIN {
        let cause = format!("it has {} columns; at least {COLUMNS_MIN} are needed", columns.len());
        return Err((cause, "write frame,id,left,top,width,height,confidence,class,visibility"));
    }
    let number = |column: usize, what: &str| match columns[column].parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(value),
        _ => Err((format!("{what} `{}` is not a number", columns[column]), "correct that line")),
    };
    // Some tools write integers as `3.0`.
    let whole = |column: usize, what: &str, most: u64| {
        let value = number(column, what)?;
        if value.fract() != 0.0 || value < 0.0 || value > most as f64 {
            let cause = format!("{what} `{}` is not a whole number from 0 to {most}", columns[column]);
            return Err((cause, "give results of a tracker, where every row has an id"));
        }
        Ok(value as u64)
    };
    let optional = |column: usize| columns.get(column).is_some_and(|text| !text.starts_with('-'));
    let bounds = [number(2, "left")?, number(3, "top")?, number(4, "width")?, number(5, "height")?];
    if bounds[2] < 0.0 || bounds[3] < 0.0 {
        return Err(("its width or height is negative".to_owned(), "correct that line"));
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
