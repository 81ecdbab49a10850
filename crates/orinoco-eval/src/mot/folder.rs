//! Sequences in MOTChallenge's layout: `seqinfo.ini`, `img1/000001.jpg` and so on, `gt/gt.txt`.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use ini::Ini;
use orinoco_core::{Diagnosis, codes};

use super::errors::{OpenError, RowsError};
use super::{PEDESTRIAN, Report, Row, Rules, Sequence, evaluate, text};
use crate::dataset::{TABLES, list_images};

/// Description, images and labels of a sequence.
const INFO: &str = "seqinfo.ini";
const IMAGES: &str = "img1";
const TRUTH: &str = "gt/gt.txt";
/// Default frame rate, in frames per second: that of most sequences of the challenge.
const FRAME_RATE: f64 = 30.0;

/// One sequence on disk. Frames are numbered from 1, and every label is in one of them.
#[derive(Clone, Debug)]
pub struct Folder {
    dir: PathBuf,
    name: String,
    frame_rate: f64,
    frames: u32,
    images: Vec<PathBuf>,
    truth: Option<Sequence>,
    rules: Rules,
}

impl Folder {
    /// Finds the sequences in `dir`, which is one or holds some; sorted by name. The list is empty where `dir` has
    /// another layout.
    pub fn find(dir: &Path) -> Result<Vec<Self>, Diagnosis> {
        if is_sequence(dir) {
            return Ok(vec![Self::open(dir)?]);
        }
        let entries = std::fs::read_dir(dir).map_err(|error| OpenError::NotFound(dir.to_owned(), error))?;
        let mut dirs: Vec<PathBuf> =
            entries.flatten().map(|entry| entry.path()).filter(|path| is_sequence(path)).collect();
        dirs.sort();
        dirs.iter().map(|dir| Self::open(dir)).collect()
    }

    /// Reads the sequence in `dir`. Its images or its labels may be missing: that is a fault only where they are
    /// needed.
    pub fn open(dir: &Path) -> Result<Self, Diagnosis> {
        Ok(Self::read(dir)?)
    }

    fn read(dir: &Path) -> Result<Self, OpenError> {
        let info = Info::read(&dir.join(INFO))?;
        let folder = dir.join(info.images.as_deref().unwrap_or(IMAGES));
        let images = numbered(&folder)?;
        let frames = count(dir, &folder, images.len(), info.frames)?;
        let file = dir.join(TRUTH);
        let truth = match file.is_file() {
            true => Some(read_truth(&file, frames).map_err(|error| OpenError::Labels(file, error))?),
            false => None,
        };
        // `.` has no name, but its full path does.
        let named = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
        let name = named.file_name().unwrap_or(named.as_os_str()).to_string_lossy().into_owned();
        let rules = Rules::of(info.name.as_deref().unwrap_or(&name));
        let frame_rate = info.frame_rate.unwrap_or(FRAME_RATE);
        Ok(Self { dir: dir.to_owned(), name, frame_rate, frames, images, truth, rules })
    }

    /// Returns the name of its folder.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the frame rate, in frames per second.
    pub fn frame_rate(&self) -> f64 {
        self.frame_rate
    }

    /// Returns the number of frames.
    pub fn frames(&self) -> u32 {
        self.frames
    }

    /// Returns its images, one for each frame; a fault if they are missing.
    pub fn images(&self) -> Result<&[PathBuf], Diagnosis> {
        if self.images.is_empty() {
            let next = "fetch the sequence with its images, or evaluate a tracker's results (--results)";
            let cause = format!("it has no images in {IMAGES}");
            return Err(Diagnosis::new(&codes::DATASET, self.dir.display(), cause, next));
        }
        Ok(&self.images)
    }

    /// Checks that the sequence is labelled.
    pub fn check_labelled(&self) -> Result<(), Diagnosis> {
        let next = "name a sequence with labels; a challenge's test sequences have none, their results can only be saved";
        match self.truth {
            Some(_) => Ok(()),
            None => {
                let file = self.dir.join(TRUTH);
                Err(Diagnosis::new(&codes::FILE_MISSING, file.display(), "the labels are not there", next))
            }
        }
    }

    /// Reads the results of a tracker for this sequence. All rows are pedestrians, as in the challenge.
    pub fn read_results(&self, file: &Path) -> Result<Sequence, Diagnosis> {
        read_results(file, self.frames).map_err(|error| error.about(file))
    }

    /// Evaluates the tracks `found` in the frames up to `last` by the challenge's rules; `None` where nothing is
    /// labelled.
    pub fn judge(&self, found: &Sequence, last: u32) -> Option<Report> {
        let truth = self.truth.as_ref()?.until(last);
        let (truth, found) = self.rules.apply(&truth, &found.until(last));
        Some(evaluate(&truth, &found))
    }
}

fn is_sequence(dir: &Path) -> bool {
    dir.join(INFO).is_file() || dir.join(TRUTH).is_file() || dir.join(IMAGES).is_dir()
}

/// Content of `seqinfo.ini`; empty where there is none.
#[derive(Default)]
struct Info {
    name: Option<String>,
    images: Option<String>,
    frame_rate: Option<f64>,
    frames: Option<u32>,
}

impl Info {
    fn read(file: &Path) -> Result<Self, OpenError> {
        if !file.is_file() {
            return Ok(Self::default());
        }
        let text = TABLES.read_text(file).map_err(OpenError::File)?;
        let read =
            Ini::load_from_str_noescape(&text).map_err(|error| OpenError::Ini(file.to_owned(), error))?;
        let value = |key: &str| {
            let mut values = read.iter().flat_map(|(_, keys)| keys.iter());
            values
                .find(|(known, _)| known.trim().eq_ignore_ascii_case(key))
                .map(|(_, value)| value.trim().to_owned())
        };
        Ok(Self {
            name: value("name"),
            images: value("imDir"),
            frame_rate: number(file, "frameRate", value("frameRate"), |rate: &f64| {
                *rate > 0.0 && rate.is_finite()
            })?,
            frames: number(file, "seqLength", value("seqLength"), |frames| *frames > 0)?,
        })
    }
}

/// Parses the number in `value`, if there is one.
fn number<T: FromStr>(
    file: &Path,
    key: &'static str,
    value: Option<String>,
    fits: impl Fn(&T) -> bool,
) -> Result<Option<T>, OpenError> {
    let Some(text) = value else { return Ok(None) };
    match text.parse().ok().filter(fits) {
        Some(number) => Ok(Some(number)),
        None => Err(OpenError::Number { file: file.to_owned(), key, text }),
    }
}

/// Lists the images in `dir`, one for each frame from 1 on; none where there is no such folder.
fn numbered(dir: &Path) -> Result<Vec<PathBuf>, OpenError> {
    if !dir.is_dir() {
        return Ok(Vec::new());
    }
    let named = |path: PathBuf| {
        let frame = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse::<u32>().ok());
        match frame {
            Some(frame) => Ok((frame, path)),
            None => Err(OpenError::NotNumbered(path)),
        }
    };
    let images = list_images(dir).map_err(OpenError::Images)?;
    let mut frames = images.into_iter().map(named).collect::<Result<Vec<_>, OpenError>>()?;
    frames.sort();
    for ((frame, path), wanted) in frames.iter().zip(1..) {
        match *frame {
            0 => return Err(OpenError::FrameZero(path.clone())),
            frame if frame < wanted => return Err(OpenError::TwoImages { path: path.clone(), frame }),
            frame if frame > wanted => {
                return Err(OpenError::MissingImage { dir: dir.to_owned(), frame: wanted });
            }
            _ => {}
        }
    }
    Ok(frames.into_iter().map(|(_, path)| path).collect())
}

/// Returns the number of frames of the sequence in `dir`: the number of images and the one in `seqinfo.ini`, which must
/// agree where both exist.
fn count(dir: &Path, folder: &Path, images: usize, said: Option<u32>) -> Result<u32, OpenError> {
    match (u32::try_from(images).unwrap_or(u32::MAX), said) {
        (0, Some(said)) => Ok(said),
        (0, None) => Err(OpenError::NoLength(dir.to_owned())),
        (seen, Some(said)) if seen != said => {
            Err(OpenError::OtherLength { dir: folder.to_owned(), seen, said })
        }
        (seen, _) => Ok(seen),
    }
}

fn read_truth(file: &Path, frames: u32) -> Result<Sequence, RowsError> {
    let truth = text::read(file)?;
    check_frames(&truth, frames)?;
    if !truth.rows().iter().any(Rules::judges) {
        return Err(RowsError::NothingLabelled(truth.rows().len()));
    }
    Ok(truth)
}

fn read_results(file: &Path, frames: u32) -> Result<Sequence, RowsError> {
    let read = text::read(file)?;
    if read.rows().is_empty() {
        return Err(RowsError::NoResults);
    }
    check_frames(&read, frames)?;
    // TrackEval also takes class 0 and those below as pedestrians.
    if let Some(&Row { id, frame, class, .. }) = read.rows().iter().find(|row| row.class > PEDESTRIAN) {
        return Err(RowsError::OtherClass { id, frame, class });
    }
    let rows = read.rows().iter().map(|row| Row { class: PEDESTRIAN, ..*row }).collect();
    Sequence::new(rows).map_err(RowsError::Repeated)
}

/// Checks that every row is in a frame of the sequence.
fn check_frames(rows: &Sequence, frames: u32) -> Result<(), RowsError> {
    match rows.rows().iter().find(|row| !(1..=frames).contains(&row.frame)) {
        Some(&Row { id, frame, .. }) => Err(RowsError::BeyondEnd { id, frame, frames }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares a sequence of these files with `expected`, as [`Folder::open`] reads it.
    fn check(files: &[(&str, &str)], expected: &str) {
        let dir = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            let file = dir.path().join(name);
            std::fs::create_dir_all(file.parent().expect("in the folder")).expect("made");
            std::fs::write(file, text).expect("written");
        }
        let seen = match Folder::open(dir.path()) {
            Ok(folder) => {
                let (frames, rate, images) = (folder.frames, folder.frame_rate, folder.images.len());
                format!("{frames} frames at {rate}, {images} images, labelled {}", folder.truth.is_some())
            }
            Err(fault) => fault.to_string().replace(&format!("{}", dir.path().display()), "seq"),
        };
        assert_eq!(seen, expected);
    }

    const ROW: &str = "1,1,0,0,5,5,1,1,1\n";
    const LABELLED: (&str, &str) = ("gt/gt.txt", ROW);

    #[test]
    fn sequences_are_read_with_and_without_a_description() {
        let two = [("img1/000001.jpg", ""), ("img1/000002.jpg", ""), LABELLED];
        check(&two, "2 frames at 30, 2 images, labelled true");
        let elsewhere = [("seqinfo.ini", "[Sequence]\nframeRate=12.5\nimDir = a\n"), ("a/1.png", "")];
        check(&elsewhere, "1 frames at 12.5, 1 images, labelled false");
        let no_images =
            [("seqinfo.ini", "[Sequence]\r\nname=S\r\nseqLength=7\r\nframerate=25\r\n"), LABELLED];
        check(&no_images, "7 frames at 25, 0 images, labelled true");
    }

    #[test]
    fn frames_that_do_not_follow_one_another_are_told() {
        check(
            &[("img1/000001.jpg", ""), ("img1/000003.jpg", "")],
            "seq/img1: the image of frame 2 is missing; fetch it",
        );
        check(
            &[("img1/000001.jpg", ""), ("img1/000001.png", "")],
            "seq/img1/000001.png: frame 1 has two images; take one of them away",
        );
        check(
            &[("img1/000000.jpg", "")],
            "seq/img1/000000.jpg: frames are counted from 1; number the images from 000001 on",
        );
        check(
            &[("img1/first.jpg", "")],
            "seq/img1/first.jpg: its name is not a frame number; name images by their frames, from 000001.jpg on",
        );
        check(
            &[("img1/000001.jpg", ""), ("seqinfo.ini", "[Sequence]\nseqLength=2\n")],
            "seq/img1: it has frames 1 to 1, but seqLength in seqinfo.ini is 2; fetch the images that are missing, \
             or correct seqLength",
        );
        check(
            &[LABELLED],
            "seq: it has neither images in img1 nor a seqinfo.ini with seqLength; fetch the sequence with its \
             images, or write seqLength",
        );
    }

    #[test]
    fn faults_of_files_are_told() {
        for value in ["0", "-5", "x", "nan", "inf", ""] {
            let info = format!("[Sequence]\nframeRate={value}\n");
            let fault =
                format!("seq/seqinfo.ini: frameRate `{value}` is not a number above 0; correct frameRate");
            check(&[("seqinfo.ini", &info)], &fault);
        }
        let one = ("img1/000001.jpg", "");
        let next = "label pedestrians, as class 1 with a confidence that is not 0";
        check(&[one, ("gt/gt.txt", "")], &format!("seq/gt/gt.txt: it has no rows; {next}"));
        let others = "1,1,0,0,5,5,0,1,1\n1,2,0,0,5,5,1,3,1\n";
        check(
            &[one, ("gt/gt.txt", others)],
            &format!("seq/gt/gt.txt: none of its 2 rows is evaluated; {next}"),
        );
        check(
            &[one, ("gt/gt.txt", "1,1,0,0,5,5,1,1,1\n9,4,0,0,5,5,1,1,1\n")],
            "seq/gt/gt.txt: object 4 is in frame 9, but the sequence has frames 1 to 1; correct that row, or fetch the rest \
             of the sequence",
        );
    }

    #[test]
    fn results_are_of_pedestrians() {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::write(dir.path().join("seqinfo.ini"), "[Sequence]\nseqLength=3\n").expect("written");
        let folder = Folder::open(dir.path()).expect("a sequence");
        let file = dir.path().join("found.txt");
        let read = |text: &str| {
            std::fs::write(&file, text).expect("written");
            match folder.read_results(&file) {
                Ok(read) => read.to_text(),
                Err(fault) => fault.cause,
            }
        };
        assert_eq!(read("1,7,0,0,5,5,0.9,-1,-1,-1\n2,7,0,0,5,5,0.9,0\n").lines().count(), 2);
        assert_eq!(read(""), "it has no rows");
        assert_eq!(read("4,7,0,0,5,5,0.9\n"), "object 7 is in frame 4, but the sequence has frames 1 to 3");
        assert_eq!(read("1,7,0,0,5,5,0.9,3\n"), "object 7 of frame 1 is of class 3");
        assert_eq!(read("1,7,0,0,5,5,0.9,1\n1,7,9,0,5,5,0.9,0\n"), "id 7 is twice in frame 1");
        assert!(folder.judge(&Sequence::default(), 3).is_none());
        assert!(folder.check_labelled().is_err() && folder.images().is_err());
    }
}
