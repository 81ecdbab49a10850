//! Archive form of a recording: a tar file, plain or compressed with gzip.
//!
//! `tree/` holds the files, links and folders as they were at the start, so that an unpacked archive is a root by itself.
//! `index.jsonl` holds what tar cannot say (names of files that were not recorded, reasons why a path gave nothing),
//! `timeline.jsonl` each later content of a file with its time, and `recording.json` is the last entry, so that an archive
//! without it is known to be cut off.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::time::Duration;

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use orinoco_api::{RECORDING_SCHEMA, RecordingIndexEntry, RecordingManifest, RecordingTimelineEntry};
use serde::Serialize;
use tar::{EntryType, Header};

use crate::error::{FILE_BYTES_MAX, ReadErrorKind};
use crate::recording::{AddError, Change, Node, PATH_BYTES_MAX, RECORDING_BYTES_MAX, Recording};

/// Greatest length of an unpacked archive that is read: contents take two hexadecimal digits a byte, and tar adds headers.
const ARCHIVE_BYTES_MAX: u64 = 4 * RECORDING_BYTES_MAX as u64;

/// Greatest length of one line of the index and the time line: a content in hexadecimal digits, a path, the keys.
const LINE_BYTES_MAX: u64 = 2 * FILE_BYTES_MAX + 4 * PATH_BYTES_MAX as u64;

/// Greatest length of a text entry (`left-out.txt`, `recording.json`), in bytes.
const TEXT_BYTES_MAX: u64 = 8 << 20;

const TREE: &str = "tree";
const README: &str = "README.txt";
const LEFT_OUT: &str = "left-out.txt";
const INDEX: &str = "index.jsonl";
const TIMELINE: &str = "timeline.jsonl";
const MANIFEST: &str = "recording.json";

/// Text that tells a person what an archive holds.
const README_TEXT: &str = "\
This archive describes one board: what its Linux said about its hardware, and how the values of its sensors changed.

tree/            copies of files of /proc, /sys, /etc and /var/lib, as they were when the recording started
timeline.jsonl   later contents of these files, with the time since the start in nanoseconds
index.jsonl      names in folders, and the reasons why files gave no value
left-out.txt     files that were left out, and texts that were replaced, because they could identify a person or a board
recording.json   format, duration and counts

Serial numbers, MAC addresses, UUIDs, host names, values of the kernel's command line that are not about hardware, and
everything about wireless networks are left out. Of the installed packages, only names and versions of those of Jetson Linux and of
NVIDIA's libraries are recorded. The names of running programs and of users are not recorded; the path of
the control group in which the recorder ran is. Look through the files before you send them: they are plain text.
";

/// Archive that is no recording, with the entry that is wrong.
#[derive(Debug, thiserror::Error)]
#[error("entry `{entry}` of the recording: {kind}")]
pub struct ArchiveError {
    /// Name of the entry in the archive, with the line where it has lines.
    pub entry: String,
    /// Reason.
    pub kind: ArchiveErrorKind,
}

/// Reason why an archive is no recording.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveErrorKind {
    /// The archive could not be read, or ends early, or is no tar file.
    #[error("cannot be read ({0}); the archive may be cut off or damaged")]
    Read(#[from] io::Error),
    /// The entry cannot be part of a recording.
    #[error("{0}")]
    Add(#[from] AddError),
    /// The name is not UTF-8, absolute, or has `.`, `..` or an empty name in it.
    #[error("has a name that leads out of the archive, or that is not UTF-8")]
    Name,
    /// The type is not that of a file, a folder or a symbolic link.
    #[error("is neither a file nor a folder nor a symbolic link, but of tar's type '{0}'")]
    Type(char),
    /// The entry is longer than any of its kind.
    #[error("is {0} bytes long, which no recording needs")]
    TooLarge(u64),
    /// A line is not as this format has it.
    #[error("is not as the format {RECORDING_SCHEMA} has it: {0}")]
    Format(String),
    /// The archive ends without its last entry.
    #[error("is missing: the archive is cut off, or it is no recording")]
    Missing,
    /// The archive has another number of contents than it had when it was written.
    #[error("gives {expected} contents, and the archive has {found}")]
    Count {
        /// Number in `recording.json`.
        expected: usize,
        /// Number in the archive.
        found: usize,
    },
}

/// Compression of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// None: `.tar`.
    Plain,
    /// gzip: `.tar.gz`.
    Gzip,
}

impl Recording {
    /// Writes the recording as an archive. The same recording gives the same bytes.
    ///
    /// # Errors
    /// Returns the error of the writer.
    pub fn save(&self, out: impl Write, packing: Packing) -> io::Result<()> {
        match packing {
            Packing::Plain => drop(self.save_tar(out)?),
            Packing::Gzip => drop(self.save_tar(GzEncoder::new(out, Compression::default()))?.finish()?),
        }
        Ok(())
    }

    fn save_tar<W: Write>(&self, out: W) -> io::Result<W> {
        let mut tar = tar::Builder::new(out);
        append(&mut tar, README, README_TEXT.as_bytes())?;
        append(&mut tar, LEFT_OUT, lines(self.left_out()).as_bytes())?;
        for (path, node) in self.nodes() {
            append_node(&mut tar, &format!("{TREE}{path}"), node)?;
        }
        append(&mut tar, INDEX, &self.index())?;
        append(&mut tar, TIMELINE, &self.timeline())?;
        let manifest = RecordingManifest {
            schema: RECORDING_SCHEMA.to_owned(),
            complete: self.is_complete(),
            duration_ns: nanos(self.duration()),
            contents: self.changes(),
        };
        append(&mut tar, MANIFEST, &json_line(&manifest))?;
        tar.into_inner()
    }

    fn index(&self) -> Vec<u8> {
        let entry = |(path, node): (&String, &Node)| {
            let line = RecordingIndexEntry { path: path.clone(), names: None, error: None, folder: false };
            match node {
                Node::Directory(Some(Ok(names))) => {
                    Some(RecordingIndexEntry { names: Some(names.clone()), ..line })
                }
                Node::Directory(Some(Err(kind))) => {
                    Some(RecordingIndexEntry { error: Some(name_of(kind)), folder: true, ..line })
                }
                Node::Unreadable(kind) => Some(RecordingIndexEntry { error: Some(name_of(kind)), ..line }),
                Node::Directory(None) | Node::File(_) | Node::Link(_) => None,
            }
        };
        self.nodes().iter().filter_map(entry).flat_map(|line| json_line(&line)).collect()
    }

    /// Returns every content that is not in the tree, in order of time, so that a person can read it from top to bottom.
    fn timeline(&self) -> Vec<u8> {
        let mut changes: Vec<(Duration, &String, &Change)> = Vec::new();
        for (path, node) in self.nodes() {
            let Node::File(contents) = node else { continue };
            let in_tree = usize::from(contents[0].content.is_ok());
            changes.extend(contents[in_tree..].iter().map(|change| (change.at, path, change)));
        }
        changes.sort_by_key(|(at, _, _)| *at);
        let line =
            |(at, path, change): &(Duration, &String, &Change)| json_line(&time_line(*at, path, change));
        changes.iter().flat_map(line).collect()
    }

    /// Reads an archive, plain or compressed. Memory stays bounded whatever it says: at most [`RECORDING_BYTES_MAX`] bytes
    /// are kept, and no link is followed.
    ///
    /// # Errors
    /// Names the entry that is wrong.
    pub fn load(archive: impl Read) -> Result<Self, ArchiveError> {
        let mut archive = BufReader::new(archive);
        let start = archive.fill_buf().map_err(|error| at("(start)", error))?;
        if start.starts_with(&[0x1f, 0x8b]) {
            load_tar(MultiGzDecoder::new(archive))
        } else {
            load_tar(archive)
        }
    }
}

/// Parts of an archive that are read so far.
struct Loader {
    recording: Recording,
    manifest: Option<RecordingManifest>,
    /// Name and link target that GNU's entries give to the entry after them.
    long_name: Option<Vec<u8>>,
    long_target: Option<Vec<u8>>,
    /// Name of the last entry, for an error between two entries.
    last: String,
}

fn load_tar(archive: impl Read) -> Result<Recording, ArchiveError> {
    let mut tar = tar::Archive::new(archive.take(ARCHIVE_BYTES_MAX));
    let (recording, manifest) = (Recording::default(), None);
    let mut loader =
        Loader { recording, manifest, long_name: None, long_target: None, last: "(start)".to_owned() };
    // Raw entries, because tar would keep a long name in memory however long it is.
    let entries = tar.entries().map_err(|error| at("(start)", error))?.raw(true);
    for entry in entries {
        let mut entry = entry.map_err(|error| at(&format!("after {}", loader.last), error))?;
        loader.read(&mut entry)?;
    }
    // What follows the last entry is not looked at, but a compressed archive that is cut off there has lost its checksum.
    io::copy(&mut tar.into_inner(), &mut io::sink()).map_err(|error| at("(end)", error))?;
    loader.finish()
}

impl Loader {
    fn read(&mut self, entry: &mut tar::Entry<'_, impl Read>) -> Result<(), ArchiveError> {
        let kind = entry.header().entry_type();
        if matches!(kind, EntryType::GNULongName | EntryType::GNULongLink) {
            let bytes = whole(entry, PATH_BYTES_MAX as u64).map_err(|kind| at("(long name)", kind))?;
            let slot =
                if kind == EntryType::GNULongName { &mut self.long_name } else { &mut self.long_target };
            *slot = Some(bytes);
            return Ok(());
        }
        let name = self.long_name.take().unwrap_or_else(|| entry.path_bytes().into_owned());
        let target =
            self.long_target.take().or_else(|| entry.link_name_bytes().map(|bytes| bytes.into_owned()));
        let shown = String::from_utf8_lossy(&name).chars().take(200).collect::<String>();
        self.last.clone_from(&shown);
        self.read_named(entry, kind, name, target).map_err(|error| error.or_at(&shown))
    }

    fn read_named(
        &mut self,
        entry: &mut tar::Entry<'_, impl Read>,
        kind: EntryType,
        name: Vec<u8>,
        target: Option<Vec<u8>>,
    ) -> Result<(), Fault> {
        let name = plain(name)?;
        let recording = &mut self.recording;
        let path = name.strip_prefix(TREE).filter(|path| path.is_empty() || path.starts_with('/'));
        match (kind, path) {
            (EntryType::Directory, Some("")) => {}
            (EntryType::Directory, Some(path)) => recording.add_directory(path)?,
            (EntryType::Symlink, Some(path)) if !path.is_empty() => {
                recording.add_link(path, &text(target.unwrap_or_default())?)?;
            }
            (EntryType::Regular | EntryType::Continuous, Some(path)) if !path.is_empty() => {
                if recording.nodes().contains_key(path) {
                    return Err(AddError::Twice.into());
                }
                recording.add_file(path, whole(entry, FILE_BYTES_MAX)?)?;
            }
            (EntryType::Regular | EntryType::Continuous, None) => self.read_top(entry, &name)?,
            (EntryType::Directory, None) => {}
            _ => return Err(ArchiveErrorKind::Type(shown_type(kind)).into()),
        }
        Ok(())
    }

    /// Reads an entry next to the tree. An entry that this version does not know is of a later one, and is skipped.
    fn read_top(&mut self, entry: &mut tar::Entry<'_, impl Read>, name: &str) -> Result<(), Fault> {
        let recording = &mut self.recording;
        match name {
            LEFT_OUT => {
                let text = text(whole(entry, TEXT_BYTES_MAX)?)?;
                text.lines().for_each(|line| recording.add_left_out(line.to_owned()));
            }
            INDEX => each_line(entry, name, |line| add_index_line(recording, line))?,
            TIMELINE => each_line(entry, name, |line| add_time_line(recording, line))?,
            MANIFEST => {
                let bytes = whole(entry, TEXT_BYTES_MAX)?;
                let manifest: RecordingManifest = serde_json::from_slice(&bytes).map_err(format)?;
                if manifest.schema != RECORDING_SCHEMA {
                    let other: String = manifest.schema.chars().take(40).collect();
                    return Err(ArchiveErrorKind::Format(format!("its schema is '{other}'")).into());
                }
                self.manifest = Some(manifest);
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Recording, ArchiveError> {
        let manifest = self.manifest.ok_or_else(|| at(MANIFEST, ArchiveErrorKind::Missing))?;
        let found = self.recording.changes();
        if manifest.contents != found {
            let kind = ArchiveErrorKind::Count { expected: manifest.contents, found };
            return Err(at(MANIFEST, kind));
        }
        self.recording.set_complete(manifest.complete);
        self.recording.extend_to(Duration::from_nanos(manifest.duration_ns));
        Ok(self.recording)
    }
}

/// Fault of an entry: of the entry as a whole, or of a line in it.
enum Fault {
    Entry(ArchiveErrorKind),
    Line(ArchiveError),
}

impl Fault {
    fn or_at(self, entry: &str) -> ArchiveError {
        match self {
            Self::Entry(kind) => at(entry, kind),
            Self::Line(error) => error,
        }
    }
}

impl<E: Into<ArchiveErrorKind>> From<E> for Fault {
    fn from(error: E) -> Self {
        Self::Entry(error.into())
    }
}

fn at(entry: &str, kind: impl Into<ArchiveErrorKind>) -> ArchiveError {
    ArchiveError { entry: entry.to_owned(), kind: kind.into() }
}

fn format(error: serde_json::Error) -> ArchiveErrorKind {
    ArchiveErrorKind::Format(error.to_string())
}

/// Reads an entry to its end.
fn whole(entry: &mut tar::Entry<'_, impl Read>, bytes_max: u64) -> Result<Vec<u8>, ArchiveErrorKind> {
    let size = entry.size();
    if size > bytes_max {
        return Err(ArchiveErrorKind::TooLarge(size));
    }
    let mut bytes = Vec::new();
    entry.take(bytes_max).read_to_end(&mut bytes)?;
    // tar gives a short read for an archive that ends in the middle of an entry.
    if (bytes.len() as u64) < size {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    Ok(bytes)
}

/// Calls `add` with each line of an entry. An error of a line names its number.
fn each_line(
    entry: &mut tar::Entry<'_, impl Read>,
    name: &str,
    mut add: impl FnMut(&[u8]) -> Result<(), ArchiveErrorKind>,
) -> Result<(), Fault> {
    let size = entry.size();
    let mut reader = BufReader::new(entry);
    let (mut line, mut total) = (Vec::new(), 0);
    for number in 1.. {
        line.clear();
        let read = (&mut reader).take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
        total += read as u64;
        if read == 0 {
            break;
        }
        let fault = |kind| Fault::Line(at(&format!("{name}, line {number}"), kind));
        if line.last() != Some(&b'\n') && read as u64 == LINE_BYTES_MAX {
            return Err(fault(ArchiveErrorKind::TooLarge(read as u64)));
        }
        add(&line).map_err(fault)?;
    }
    if total < size {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    Ok(())
}

fn add_index_line(recording: &mut Recording, line: &[u8]) -> Result<(), ArchiveErrorKind> {
    let RecordingIndexEntry { path, names, error, folder } = serde_json::from_slice(line).map_err(format)?;
    match (names, error) {
        (Some(names), None) => recording.add_listing(&path, Ok(names))?,
        (None, Some(error)) if folder => recording.add_listing(&path, Err(kind_of(&error)))?,
        (None, Some(error)) => recording.add_unreadable(&path, kind_of(&error))?,
        _ => return Err(ArchiveErrorKind::Format("expected `names` or `error`".to_owned())),
    }
    Ok(())
}

fn add_time_line(recording: &mut Recording, line: &[u8]) -> Result<(), ArchiveErrorKind> {
    let RecordingTimelineEntry { t, path, text, hex, error } =
        serde_json::from_slice(line).map_err(format)?;
    let at = Duration::from_nanos(t);
    match (text, hex, error) {
        (Some(text), None, None) => recording.add_value(&path, at, Ok(text.as_bytes()))?,
        (None, Some(hex), None) => recording.add_value(&path, at, Ok(&bytes_of(&hex)?))?,
        (None, None, Some(error)) => recording.add_value(&path, at, Err(kind_of(&error)))?,
        _ => return Err(ArchiveErrorKind::Format("expected one of `text`, `hex` and `error`".to_owned())),
    }
    Ok(())
}

fn time_line(at: Duration, path: &str, change: &Change) -> RecordingTimelineEntry {
    let line =
        RecordingTimelineEntry { t: nanos(at), path: path.to_owned(), text: None, hex: None, error: None };
    match &change.content {
        Err(kind) => RecordingTimelineEntry { error: Some(name_of(kind)), ..line },
        Ok(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) if !text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\t')) => {
                RecordingTimelineEntry { text: Some(text.to_owned()), ..line }
            }
            _ => RecordingTimelineEntry {
                hex: Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
                ..line
            },
        },
    }
}

fn append_node(tar: &mut tar::Builder<impl Write>, name: &str, node: &Node) -> io::Result<()> {
    match node {
        Node::Directory(_) => {
            let mut header = header(EntryType::Directory, 0o755, 0);
            tar.append_data(&mut header, format!("{name}/"), io::empty())
        }
        Node::File(changes) => match &changes[0].content {
            Ok(bytes) => append(tar, name, bytes),
            Err(_) => Ok(()),
        },
        Node::Link(target) => append_link(tar, name, target),
        Node::Unreadable(_) => Ok(()),
    }
}

fn append(tar: &mut tar::Builder<impl Write>, name: &str, bytes: &[u8]) -> io::Result<()> {
    let mut header = header(EntryType::Regular, 0o644, bytes.len() as u64);
    tar.append_data(&mut header, name, bytes)
}

/// Writes a link with its target as it is. tar's own function would write `a//b` as `a/b`.
fn append_link(tar: &mut tar::Builder<impl Write>, name: &str, target: &str) -> io::Result<()> {
    let mut link = header(EntryType::Symlink, 0o777, 0);
    if link.set_link_name_literal(target).is_err() {
        let long = format!("{target}\0");
        let mut before = header(EntryType::GNULongLink, 0o644, long.len() as u64);
        tar.append_data(&mut before, "././@LongLink", long.as_bytes())?;
    }
    tar.append_data(&mut link, name, io::empty())
}

/// Returns a header without a time, a user or a group: they would say more about a person than about a board.
fn header(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}

/// Returns the name of an entry without the `/` at its end, or an error for one that leads out of the archive.
fn plain(name: Vec<u8>) -> Result<String, ArchiveErrorKind> {
    let name = String::from_utf8(name).map_err(|_| ArchiveErrorKind::Name)?;
    let name = name.trim_end_matches('\0');
    let name = name.strip_prefix("./").unwrap_or(name);
    let name = name.strip_suffix('/').unwrap_or(name);
    match super::is_plain(&format!("/{name}")) {
        true => Ok(name.to_owned()),
        false if matches!(name, "" | ".") => Ok(String::new()),
        false => Err(ArchiveErrorKind::Name),
    }
}

fn text(bytes: Vec<u8>) -> Result<String, ArchiveErrorKind> {
    let text =
        String::from_utf8(bytes).map_err(|_| ArchiveErrorKind::Format("its text is not UTF-8".to_owned()))?;
    Ok(text.trim_end_matches('\0').to_owned())
}

fn shown_type(kind: EntryType) -> char {
    let byte = kind.as_byte();
    if byte.is_ascii_graphic() { char::from(byte) } else { '?' }
}

fn lines(lines: &[String]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn json_line(value: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(value).expect("plain structures have a JSON form");
    line.push(b'\n');
    line
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn bytes_of(hex: &str) -> Result<Vec<u8>, ArchiveErrorKind> {
    let wrong = || ArchiveErrorKind::Format("`hex` is not an even number of hexadecimal digits".to_owned());
    let digits: Option<Vec<u8>> =
        hex.chars().map(|digit| digit.to_digit(16).map(|digit| digit as u8)).collect();
    let digits = digits.filter(|digits| digits.len().is_multiple_of(2)).ok_or_else(wrong)?;
    Ok(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// Reasons with a name of their own; another one is written as the operating system's text.
const NAMED: [(&str, ReadErrorKind); 9] = [
    ("absent", ReadErrorKind::Absent),
    ("denied", ReadErrorKind::Denied),
    ("unavailable", ReadErrorKind::Unavailable),
    ("too-large", ReadErrorKind::TooLarge),
    ("not-a-file", ReadErrorKind::NotAFile),
    ("wrong-type", ReadErrorKind::WrongType),
    ("link-loop", ReadErrorKind::LinkLoop),
    ("not-text", ReadErrorKind::NotText),
    ("not-recorded", ReadErrorKind::NotRecorded),
];

fn name_of(kind: &ReadErrorKind) -> String {
    let named = NAMED.iter().find(|(_, named)| named == kind);
    named.map_or_else(|| kind.to_string(), |(name, _)| (*name).to_owned())
}

fn kind_of(name: &str) -> ReadErrorKind {
    let named = NAMED.iter().find(|(known, _)| *known == name);
    named.map_or_else(|| ReadErrorKind::Other(name.to_owned()), |(_, kind)| kind.clone())
}
