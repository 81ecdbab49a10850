//! The torn end of a recording that the system's end cut short, power loss above all.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::boxes::HANDLER;

/// Bytes of a box's header: its size and its name, and a size of 64 bits where that is used.
const HEADER_BYTES: usize = 16;
/// A head of ours is shorter.
const HEAD_BYTES_MAX: u64 = 1 << 16;
/// Boxes that one file is looked through for: those of a month.
const BOXES_MAX: usize = 1 << 23;

/// A box at the top of the file.
struct TopLevelBox {
    name: [u8; 4],
    end: u64,
}

/// Cuts the last fragment of an MP4 off that [`Mp4Sink`](super::Mp4Sink) wrote, where it is torn: strict players refuse
/// it. Returns the bytes that are gone. Files of others, files that are being written and whole files stay as they are; so
/// do recordings that another program has written anew, which have boxes that [`Mp4Sink`](super::Mp4Sink) never writes.
pub fn cut_torn_mp4(path: &Path) -> io::Result<u64> {
    if !path.metadata()?.is_file() {
        return Ok(0);
    }
    let file = File::options().read(true).write(true).open(path)?;
    // Who records holds the lock until the end.
    if file.try_lock().is_err() {
        return Ok(0);
    }
    let length = file.metadata()?.len();
    let Some(whole) = whole_end(&file, length)? else { return Ok(0) };
    if whole < length {
        file.set_len(whole)?;
        file.sync_data()?;
    }
    Ok(length - whole)
}

/// Where the last whole fragment ends; `None` for files that are not ours.
fn whole_end(file: &File, length: u64) -> io::Result<Option<u64>> {
    let Some(ftyp) = outer(file, 0, length)?.filter(|first| &first.name == b"ftyp") else { return Ok(None) };
    let Some(moov) = outer(file, ftyp.end, length)?.filter(|second| &second.name == b"moov") else {
        return Ok(None);
    };
    if moov.end > HEAD_BYTES_MAX.min(length) {
        return Ok(None);
    }
    let mut head = Vec::new();
    file.take(moov.end).read_to_end(&mut head)?;
    if !head.windows(HANDLER.len()).any(|name| name == HANDLER) {
        return Ok(None);
    }
    let (mut at, mut whole) = (moov.end, moov.end);
    let mut is_in_fragment = false;
    for _ in 0..BOXES_MAX {
        match outer(file, at, length)? {
            // Its pictures follow; without them it is nothing.
            Some(fragment) if &fragment.name == b"moof" => (at, is_in_fragment) = (fragment.end, true),
            // Pictures outside a fragment: another program has written the file anew, and kept the name of the track.
            Some(pictures) if &pictures.name == b"mdat" && !is_in_fragment => return Ok(None),
            Some(last) if matches!(&last.name, b"mdat" | b"mfra") && last.end <= length => {
                (at, whole, is_in_fragment) = (last.end, last.end, false);
            }
            // A whole box that we never write, `free` say: the file is another program's work, too.
            Some(other) if other.end <= length => return Ok(None),
            // A box that is cut off, or no box at all.
            _ => return Ok(Some(whole)),
        }
    }
    // Too many to look through: it stays as it is.
    Ok(None)
}

/// The box at `at`; `None` where none begins. Its end may lie behind that of the file.
fn outer(file: &File, at: u64, length: u64) -> io::Result<Option<TopLevelBox>> {
    let mut header = [0; HEADER_BYTES];
    let there =
        usize::try_from(length.saturating_sub(at)).map_or(HEADER_BYTES, |left| left.min(HEADER_BYTES));
    file.read_exact_at(&mut header[..there], at)?;
    let word = |from: usize| u32::from_be_bytes(header[from..from + 4].try_into().expect("four bytes"));
    let (size, smallest) = match word(0) {
        1 => (u64::from(word(8)) << 32 | u64::from(word(12)), HEADER_BYTES as u64),
        // To the end of the file. Without a name it is a disk that had the length but not yet the bytes.
        0 if word(4) != 0 => (length.saturating_sub(at), 8),
        size => (u64::from(size), 8),
    };
    let fits = there as u64 >= smallest && size >= smallest;
    let end = at.checked_add(size).filter(|_| fits);
    Ok(end.map(|end| TopLevelBox { name: header[4..8].try_into().expect("four bytes"), end }))
}
