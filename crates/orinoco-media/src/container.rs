//! Checks whether a media file has all the bytes that its container declares.
//!
//! Demuxers end a truncated file as quietly as a whole one. The container's own lengths tell them apart exactly; a
//! comparison of durations would have to guess, because audio is often longer than video.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

/// Maximum number of top-level boxes that are read; a fragmented recording has two for about every second.
const BOXES_MAX: u32 = 200_000;

/// Result of comparing a file with the lengths in its container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wholeness {
    /// All declared bytes are there, or the container declares no length.
    Whole,
    /// The file is empty.
    Empty,
    /// The file is truncated.
    Cut {
        /// Minimum size that the container declares, in bytes.
        promised: u64,
        /// Size of the file, in bytes.
        held: u64,
    },
    /// The index of the MP4 is missing or truncated: nothing in it can be decoded.
    NoIndex,
}

/// Compares the file at `path` with the lengths in its container.
pub(crate) fn inspect(path: &Path) -> io::Result<Wholeness> {
    let mut file = File::open(path)?;
    let held = file.metadata()?.len();
    let mut head = [0; 12];
    let read = read_up_to(&mut file, &mut head)?;
    let head = &head[..read];
    if head.is_empty() {
        return Ok(Wholeness::Empty);
    }
    match head {
        [0x1a, 0x45, 0xdf, 0xa3, ..] => inspect_matroska(&mut file, held),
        [b'R', b'I', b'F', b'F', size @ .., b'A', b'V', b'I', b' '] => {
            let size: [u8; 4] = size.try_into().expect("twelve bytes less eight");
            Ok(compare(u64::from(u32::from_le_bytes(size)).saturating_add(8), held))
        }
        [_, _, _, _, kind @ ..] if kind.len() >= 4 && is_mp4_start(&kind[..4]) => {
            inspect_mp4(&mut file, held)
        }
        _ => Ok(Wholeness::Whole),
    }
}

fn compare(promised: u64, held: u64) -> Wholeness {
    if promised > held { Wholeness::Cut { promised, held } } else { Wholeness::Whole }
}

fn is_mp4_start(kind: &[u8]) -> bool {
    [b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide", b"pnot", b"styp"]
        .iter()
        .any(|known| kind == *known)
}

/// Reads the top-level boxes (ISO/IEC 14496-12, section 4.2).
fn inspect_mp4(file: &mut File, held: u64) -> io::Result<Wholeness> {
    let mut offset = 0u64;
    let (mut index, mut media) = (false, false);
    for _ in 0..BOXES_MAX {
        file.seek(SeekFrom::Start(offset))?;
        let Some((kind, length)) = read_box(file)? else { break };
        // A length of zero means "to the end of the file".
        let end = if length == 0 { held } else { offset.saturating_add(length) };
        let is_media = matches!(&kind, b"mdat" | b"moof");
        if end > held {
            return Ok(match (index, media && !is_media) {
                (false, _) => Wholeness::NoIndex,
                (true, false) => Wholeness::Cut { promised: end, held },
                // After all its media, a file may end with anything.
                (true, true) => Wholeness::Whole,
            });
        }
        index |= &kind == b"moov";
        media |= is_media;
        offset = end;
    }
    Ok(match (index, media) {
        (false, _) => Wholeness::NoIndex,
        // At least the header of the media must follow.
        (true, false) => Wholeness::Cut { promised: held + 8, held },
        (true, true) => Wholeness::Whole,
    })
}

/// Reads a box's type and length; `None` where no further box can be read.
fn read_box(file: &mut File) -> io::Result<Option<([u8; 4], u64)>> {
    let mut head = [0; 16];
    let read = read_up_to(file, &mut head)?;
    let (Some(&short), Some(&kind)) = (head.first_chunk::<4>(), head[4..].first_chunk::<4>()) else {
        return Ok(None);
    };
    let length = match u32::from_be_bytes(short) {
        1 if read == 16 => u64::from_be_bytes(*head.last_chunk().expect("sixteen bytes")),
        short => u64::from(short),
    };
    let possible = read >= 8 && (length == 0 || length >= 8);
    Ok(possible.then_some((kind, length)))
}

/// Reads the length of the Segment after the EBML header (RFC 8794, section 6.2; RFC 9559, section 5.1).
fn inspect_matroska(file: &mut File, held: u64) -> io::Result<Wholeness> {
    let mut head = [0; 16];
    file.seek(SeekFrom::Start(4))?;
    let read = read_up_to(file, &mut head)?;
    let Some((header, bytes)) = read_vint(&head[..read]) else { return Ok(Wholeness::Whole) };
    let segment = header.saturating_add(4 + bytes);
    file.seek(SeekFrom::Start(segment))?;
    let read = read_up_to(file, &mut head)?;
    let [0x18, 0x53, 0x80, 0x67, length @ ..] = &head[..read] else { return Ok(Wholeness::Whole) };
    // A live recording does not know its length and declares none.
    let Some((length, bytes)) = read_vint(length) else { return Ok(Wholeness::Whole) };
    Ok(compare(segment.saturating_add(4 + bytes).saturating_add(length), held))
}

/// Reads a variable-length integer and its number of bytes; `None` for "unknown" and where bytes are missing.
fn read_vint(bytes: &[u8]) -> Option<(u64, u64)> {
    let first = *bytes.first()?;
    let length = first.leading_zeros() as usize + 1;
    let rest = bytes.get(1..length)?;
    let mark = 0x80u8.checked_shr(first.leading_zeros())?;
    let value = rest.iter().fold(u64::from(first ^ mark), |value, &byte| value << 8 | u64::from(byte));
    let unknown = (1u64 << (7 * length)) - 1;
    (value != unknown).then_some((value, length as u64))
}

/// Fills `buffer` with as many bytes as the file has.
fn read_up_to(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], expected: Wholeness) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("file");
        std::fs::write(&path, bytes).expect("the folder is writable");
        assert_eq!(inspect(&path).expect("it is readable"), expected, "{bytes:02x?}");
    }

    fn mp4(boxes: &[(&[u8; 4], u32)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (kind, length) in boxes {
            bytes.extend(length.to_be_bytes());
            bytes.extend(*kind);
            bytes.resize(bytes.len() + *length as usize - 8, 0x55);
        }
        bytes
    }

    #[test]
    fn whole_and_cut_mp4() {
        let first = mp4(&[(b"ftyp", 24), (b"moov", 40), (b"mdat", 64)]);
        let last = mp4(&[(b"ftyp", 24), (b"mdat", 64), (b"moov", 40)]);
        check(&first, Wholeness::Whole);
        check(&last, Wholeness::Whole);
        check(&first[..100], Wholeness::Cut { promised: 128, held: 100 });
        check(&first[..64], Wholeness::Cut { promised: 72, held: 64 });
        check(&first[..70], Wholeness::Cut { promised: 78, held: 70 });
        check(&first[..50], Wholeness::NoIndex);
        for held in 12..last.len() {
            check(&last[..held], Wholeness::NoIndex);
        }
        check(&[&first[..], &[0; 20]].concat(), Wholeness::Whole);
        check(&[&first[..], b"junk"].concat(), Wholeness::Whole);
    }

    #[test]
    fn lengths_of_64_bits_and_to_the_end() {
        let mut bytes = mp4(&[(b"ftyp", 24), (b"moov", 16)]);
        bytes.extend([0, 0, 0, 1, b'm', b'd', b'a', b't', 0, 0, 0, 1, 0, 0, 0, 0]);
        let held = bytes.len() as u64;
        check(&bytes, Wholeness::Cut { promised: 40 + (1 << 32), held });
        let end = bytes.len() - 16;
        bytes.truncate(end);
        bytes.extend([0, 0, 0, 0, b'm', b'd', b'a', b't', 1, 2, 3]);
        check(&bytes, Wholeness::Whole);
    }

    #[test]
    fn other_containers() {
        check(b"", Wholeness::Empty);
        check(b"x", Wholeness::Whole);
        check(b"plain text that is no video", Wholeness::Whole);
        check(b"RIFF\x08\0\0\0AVI LIST", Wholeness::Whole);
        check(b"RIFF\x80\0\0\0AVI LIST", Wholeness::Cut { promised: 136, held: 16 });
        let matroska =
            |length: &[u8]| [&b"\x1a\x45\xdf\xa3\x81\0\x18\x53\x80\x67"[..], length, &[0; 4]].concat();
        check(&matroska(&[0x84]), Wholeness::Whole);
        check(&matroska(&[0x85]), Wholeness::Cut { promised: 16, held: 15 });
        check(&matroska(&[0xff]), Wholeness::Whole);
        check(&matroska(&[0x01, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]), Wholeness::Whole);
        check(b"\x1a\x45\xdf\xa3", Wholeness::Whole);
    }
}
