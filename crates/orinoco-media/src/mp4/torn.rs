//! Removes the torn end of a recording that a crash of the system or a power loss has cut short.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::boxes::HANDLER;

/// Maximum size of a box's header: its size and its name, and a size of 64 bits if that is used.
const HEADER_BYTES: usize = 16;
/// Maximum size of the start of a file: that of this sink is smaller.
const HEAD_BYTES_MAX: u64 = 1 << 16;
/// Maximum number of boxes that are read in one file: those of a month.
const BOXES_MAX: usize = 1 << 23;

/// Top-level box of the file.
struct TopLevelBox {
    name: [u8; 4],
    end: u64,
}

/// Removes the last fragment of an MP4 that [`Mp4Sink`](super::Mp4Sink) wrote, if it is torn, because strict players
/// reject the file. Returns the number of removed bytes. Files of other programs, files that are being written and
/// whole files stay unchanged; so do recordings that another program has rewritten, which have boxes that
/// [`Mp4Sink`](super::Mp4Sink) never writes.
pub fn cut_torn_mp4(path: &Path) -> io::Result<u64> {
    if !path.metadata()?.is_file() {
        return Ok(0);
    }
    let file = File::options().read(true).write(true).open(path)?;
    // A recorder holds the lock until its end.
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

/// Returns the end of the last whole fragment; `None` for files of other programs.
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
            // The frames follow; without them the fragment is incomplete.
            Some(fragment) if &fragment.name == b"moof" => (at, is_in_fragment) = (fragment.end, true),
            // Frames outside of a fragment: another program has rewritten the file, and kept the name of the track.
            Some(media) if &media.name == b"mdat" && !is_in_fragment => return Ok(None),
            Some(last) if matches!(&last.name, b"mdat" | b"mfra") && last.end <= length => {
                (at, whole, is_in_fragment) = (last.end, last.end, false);
            }
            // A whole box that this sink never writes, such as `free`: another program has rewritten the file, too.
            Some(other) if other.end <= length => return Ok(None),
            // A truncated box, or no box at all.
            _ => return Ok(Some(whole)),
        }
    }
    // The file has too many boxes to read, so it stays unchanged.
    Ok(None)
}

/// Reads the box at `at`; `None` where none begins. Its end may lie beyond that of the file.
fn outer(file: &File, at: u64, length: u64) -> io::Result<Option<TopLevelBox>> {
    let mut header = [0; HEADER_BYTES];
    let there =
        usize::try_from(length.saturating_sub(at)).map_or(HEADER_BYTES, |left| left.min(HEADER_BYTES));
    file.read_exact_at(&mut header[..there], at)?;
    let word = |from: usize| u32::from_be_bytes(header[from..from + 4].try_into().expect("four bytes"));
    let (size, smallest) = match word(0) {
        1 => (u64::from(word(8)) << 32 | u64::from(word(12)), HEADER_BYTES as u64),
        // Extends to the end of the file. Without a name, the disk has stored the length but not the bytes.
        0 if word(4) != 0 => (length.saturating_sub(at), 8),
        size => (u64::from(size), 8),
    };
    let fits = there as u64 >= smallest && size >= smallest;
    let end = at.checked_add(size).filter(|_| fits);
    Ok(end.map(|end| TopLevelBox { name: header[4..8].try_into().expect("four bytes"), end }))
}
