//! Edited MP4 files whose last frames `qtdemux` would lose.
//!
//! An edit list says which part of a track is shown (ISO/IEC 14496-12, section 8.6.6). `qtdemux` (GStreamer 1.22) ends a
//! film at the first key frame whose media time, counted from the track's first sample, is behind the film's duration,
//! counted from where the edit begins. So the frames after a key frame are lost if it lies closer to the end than the
//! edit begins behind the first sample. The demuxer is therefore given a duration that reaches to the end of the edits in
//! media time; where the edits end, it still learns from the edit list itself.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use gstreamer as gst;
use gstreamer::prelude::*;

/// Boxes that are looked at in one file. A film has a few for each track, and some carry tags.
const BOXES_MAX: u32 = 10_000;
/// Boxes in one another that are looked into: the film, its track, the track's edits or media.
const DEPTH_MAX: u32 = 3;
/// Edits of one track that are looked at.
const EDITS_MAX: u64 = 100_000;

/// GStreamer's `GST_BUFFER_OFFSET_NONE`: where a buffer lay is not known.
const OFFSET_NONE: u64 = u64::MAX;

/// Bytes that take the place of a file's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Patch {
    /// Position in the file.
    at: u64,
    bytes: Vec<u8>,
}

/// Returns the duration that `qtdemux` must be given for the file at `path`; `None` where its own serves, or where the
/// file is no MP4.
pub(super) fn longer_duration(path: &Path) -> Option<Patch> {
    let mut film = Movie { boxes_left: BOXES_MAX, ..Movie::default() };
    let mut file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    // What was understood before a fault counts: a damaged file is reported when it is read.
    let _ = film.read(&mut file, 0, length, 0);
    film.patch()
}

/// Puts the patch into what `source` reads.
pub(super) fn apply(patch: Patch, source: &gst::Element) {
    let pad = source.static_pad("src").expect("a file source has one");
    let types = gst::PadProbeType::PULL | gst::PadProbeType::PUSH | gst::PadProbeType::BUFFER;
    pad.add_probe(types, move |_, info| {
        if let Some(gst::PadProbeData::Buffer(buffer)) = &mut info.data {
            patch_buffer(&patch, buffer);
        }
        gst::PadProbeReturn::Ok
    });
}

fn patch_buffer(patch: &Patch, buffer: &mut gst::Buffer) {
    let begin = buffer.offset();
    if begin == OFFSET_NONE || !patch.meets(begin, buffer.size() as u64) {
        return;
    }
    // A buffer of the file that somebody else holds as well is copied.
    if let Ok(mut bytes) = buffer.make_mut().map_writable() {
        patch.put(begin, &mut bytes);
    }
}

impl Patch {
    fn meets(&self, begin: u64, length: u64) -> bool {
        begin < self.at + self.bytes.len() as u64 && self.at < begin.saturating_add(length)
    }

    /// Overwrites what of `target`, which lies at `begin` in the file, is to be replaced.
    fn put(&self, begin: u64, target: &mut [u8]) {
        for (at, byte) in (self.at..).zip(&self.bytes) {
            let place = at.checked_sub(begin).and_then(|place| target.get_mut(usize::try_from(place).ok()?));
            if let Some(place) = place {
                *place = *byte;
            }
        }
    }
}

/// What is read of a film.
#[derive(Debug, Default)]
struct Movie {
    boxes_left: u32,
    /// Units a second of the film's duration, and of its edits'.
    timescale: u32,
    duration: u64,
    /// Position of the duration in the file, and its bytes.
    duration_at: Option<(u64, u64)>,
    tracks: Vec<Track>,
}

#[derive(Debug, Default)]
struct Track {
    /// Units a second of the edits' media times.
    timescale: u32,
    /// Duration in units of the film, and media time, of each edit that shows something.
    edits: Vec<(u64, u64)>,
}

impl Movie {
    /// Reads the boxes from `at` to `end` (ISO/IEC 14496-12, section 4.2).
    fn read(&mut self, file: &mut File, mut at: u64, end: u64, depth: u32) -> io::Result<()> {
        while at + 8 <= end && self.boxes_left > 0 {
            self.boxes_left -= 1;
            file.seek(SeekFrom::Start(at))?;
            let (short, kind) = (number(file, 4)?, number(file, 4)? as u32);
            let (body, length) = match short {
                0 => (at + 8, end - at),
                1 => (at + 16, number(file, 8)?),
                length => (at + 8, length),
            };
            let box_end = at.checked_add(length).filter(|box_end| (body..=end).contains(box_end));
            let box_end = box_end.ok_or(io::ErrorKind::InvalidData)?;
            match &kind.to_be_bytes() {
                b"trak" => {
                    self.tracks.push(Track::default());
                    self.read(file, body, box_end, depth + 1)?;
                }
                b"moov" | b"edts" | b"mdia" if depth < DEPTH_MAX => {
                    self.read(file, body, box_end, depth + 1)?;
                }
                b"mvhd" => self.film_header(file, body)?,
                b"mdhd" => {
                    let (timescale, ..) = header(file, body)?;
                    self.tracks.last_mut().ok_or(io::ErrorKind::InvalidData)?.timescale = timescale;
                }
                b"elst" => {
                    let edits = edits(file)?;
                    self.tracks.last_mut().ok_or(io::ErrorKind::InvalidData)?.edits = edits;
                }
                _ => {}
            }
            at = box_end;
        }
        Ok(())
    }

    fn film_header(&mut self, file: &mut File, body: u64) -> io::Result<()> {
        let place;
        (self.timescale, self.duration, place) = header(file, body)?;
        self.duration_at = Some(place);
        Ok(())
    }

    fn patch(&self) -> Option<Patch> {
        let (at, bytes) = self.duration_at.filter(|_| self.timescale > 0)?;
        let ends = self.tracks.iter().filter(|track| track.timescale > 0).flat_map(|track| {
            let in_film = |time: u64| {
                let time = u128::from(time) * u128::from(self.timescale);
                u64::try_from(time.div_ceil(u128::from(track.timescale))).ok()
            };
            track.edits.iter().filter_map(move |(duration, time)| in_film(*time)?.checked_add(*duration))
        });
        let end = ends.max().filter(|end| *end > self.duration)?;
        let bytes = match bytes {
            // All bits set mean that it is not known.
            4 => u32::try_from(end).ok().filter(|end| *end < u32::MAX)?.to_be_bytes().to_vec(),
            _ => end.to_be_bytes().to_vec(),
        };
        Some(Patch { at, bytes })
    }
}

/// Reads the head of `mvhd` and `mdhd`: units a second, duration, and where in the file the duration is, with its bytes.
fn header(file: &mut File, body: u64) -> io::Result<(u32, u64, (u64, u64))> {
    let version = number(file, 4)? >> 24;
    let time_bytes = if version == 0 { 4 } else { 8 };
    // When it was made, and when it was changed.
    number(file, time_bytes)?;
    number(file, time_bytes)?;
    let timescale = number(file, 4)? as u32;
    let duration = number(file, time_bytes)?;
    Ok((timescale, duration, (body + 4 + 2 * time_bytes + 4, time_bytes)))
}

/// Reads an edit list: the duration and the media time of each edit that shows something.
fn edits(file: &mut File) -> io::Result<Vec<(u64, u64)>> {
    let version = number(file, 4)? >> 24;
    let time_bytes = if version == 0 { 4 } else { 8 };
    let count = number(file, 4)?.min(EDITS_MAX);
    let mut edits = Vec::new();
    for _ in 0..count {
        let (duration, time) = (number(file, time_bytes)?, number(file, time_bytes)?);
        // The rate.
        number(file, 4)?;
        // A media time of -1 is an empty edit: nothing is shown.
        if time != u64::MAX >> (64 - 8 * time_bytes) {
            edits.push((duration, time));
        }
    }
    Ok(edits)
}

/// Reads a number of up to eight bytes, the most significant first.
fn number(file: &mut File, bytes: u64) -> io::Result<u64> {
    let mut read = [0; 8];
    file.read_exact(&mut read[8 - bytes as usize..])?;
    Ok(u64::from_be_bytes(read))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a_box(kind: &[u8; 4], body: &[u8]) -> Vec<u8> {
        [&(body.len() as u32 + 8).to_be_bytes()[..], kind, body].concat()
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    /// A film of 1000 units a second and a track of 12800, with these edits: duration, media time.
    fn film(duration: u32, edits: &[(u32, u32)]) -> Vec<u8> {
        let list: Vec<u32> = edits.iter().flat_map(|edit| [edit.0, edit.1, 1 << 16]).collect();
        let list = [words(&[0, edits.len() as u32]), words(&list)].concat();
        let media = a_box(b"mdia", &a_box(b"mdhd", &words(&[0, 1, 2, 12800, 99, 0])));
        let track = a_box(b"trak", &[a_box(b"edts", &a_box(b"elst", &list)), media].concat());
        let header = a_box(b"mvhd", &words(&[0, 1, 2, 1000, duration, 0]));
        [a_box(b"ftyp", b"isomiso2"), a_box(b"moov", &[header, track].concat())].concat()
    }

    fn check(film: &[u8], expected: Option<u64>) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("film.mp4");
        std::fs::write(&path, film).expect("written");
        let patch = longer_duration(&path);
        let duration = patch.as_ref().map(|patch| patch.bytes.iter().fold(0, |n, b| n << 8 | u64::from(*b)));
        assert_eq!(duration, expected);
        let Some(patch) = patch else { return };
        // In whatever pieces the file is read.
        for piece in [1, 3, 7, film.len()] {
            let mut read = film.to_vec();
            for (index, piece_bytes) in read.chunks_mut(piece).enumerate() {
                let begin = (index * piece) as u64;
                if patch.meets(begin, piece_bytes.len() as u64) {
                    patch.put(begin, piece_bytes);
                }
            }
            std::fs::write(&path, &read).expect("written");
            assert_eq!(longer_duration(&path), None, "it is long enough now");
            let same = read.iter().zip(film).filter(|(a, b)| a == b).count();
            assert!(film.len() - same <= patch.bytes.len(), "nothing else has changed");
        }
    }

    #[test]
    fn the_duration_reaches_to_the_end_of_the_edits_in_media_time() {
        check(&film(680, &[(680, 5120)]), Some(1080));
        check(&film(680, &[(680, 5121)]), Some(1081));
        check(&film(680, &[(200, u32::MAX), (480, 12800)]), Some(1480));
    }

    #[test]
    fn films_that_need_none_stay() {
        check(&film(680, &[(680, 0)]), None);
        check(&film(680, &[]), None);
        check(&film(680, &[(100, u32::MAX)]), None);
        check(b"RIFF\0\0\0\0AVI LIST", None);
        check(b"", None);
    }

    #[test]
    fn damaged_films_are_left_to_the_demuxer() {
        let whole = film(680, &[(680, 5120)]);
        for length in 0..whole.len() {
            check(&whole[..length], None);
        }
        let mut random = 7u32;
        for _ in 0..2000 {
            let mut damaged = whole.clone();
            for _ in 0..3 {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let at = random as usize % damaged.len();
                damaged[at] ^= (random >> 24) as u8;
            }
            let folder = tempfile::tempdir().expect("a temporary folder");
            let path = folder.path().join("film.mp4");
            std::fs::write(&path, &damaged).expect("written");
            longer_duration(&path);
        }
    }
}
