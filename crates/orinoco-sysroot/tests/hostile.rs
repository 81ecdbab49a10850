//! Archives that are no recordings: each gives an error that names its entry.

use std::io::{Read, Write};
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use orinoco_sysroot::{Packing, ReadErrorKind, Recording, Sysroot};
use proptest::prelude::*;
use tar::{EntryType, Header};

const MANIFEST: &str = r#"{"schema":"orinoco.recording/1","complete":false,"duration_ns":0,"contents":N}"#;

/// Entry of a tar file, written as it is: tar's own functions refuse such names.
fn entry(kind: EntryType, name: &str, target: &str, size: u64, body: &[u8]) -> Vec<u8> {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.set_link_name_literal(target).expect("a short target");
    header.set_size(size);
    header.set_mode(0o644);
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend(body);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

fn file(name: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    entry(EntryType::Regular, name, "", body.as_ref().len() as u64, body.as_ref())
}

/// Returns what loading an archive of these entries and a manifest with `contents` contents says.
fn load(entries: &[Vec<u8>], contents: usize) -> String {
    let manifest = file("recording.json", MANIFEST.replace('N', &contents.to_string()));
    let archive = [entries.concat(), manifest, vec![0; 1024]].concat();
    match Recording::load(&archive[..]) {
        Ok(recording) => format!("{} files", recording.files()),
        Err(error) => error.to_string(),
    }
}

#[test]
fn names_that_lead_out_are_refused() {
    let out = "has a name that leads out of the archive, or that is not UTF-8";
    for name in ["tree/../etc/passwd", "/etc/passwd", "../x", "tree//x", "tree/./x", "tree/a/.."] {
        assert_eq!(load(&[file(name, "x")], 1), format!("entry `{name}` of the recording: {out}"));
    }
    assert_eq!(load(&[file("tree/etc/passwd", "x")], 1), "1 files");
    assert_eq!(load(&[file("./tree/etc/passwd", "x")], 1), "1 files");
}

#[test]
fn entries_that_are_no_part_of_a_recording_are_refused() {
    let twice = [file("tree/a", "1"), file("tree/a", "2")];
    assert_eq!(load(&twice, 1), "entry `tree/a` of the recording: is in the recording already");
    let below_link = [entry(EntryType::Symlink, "tree/a", "/etc", 0, b""), file("tree/a/b", "x")];
    let below = "lies below `/a`, which is not a folder";
    assert_eq!(load(&below_link, 1), format!("entry `tree/a/b` of the recording: {below}"));
    let below_file = [file("tree/a", "x"), file("tree/a/b", "x")];
    assert_eq!(load(&below_file, 2), format!("entry `tree/a/b` of the recording: {below}"));
    for (kind, shown) in [
        (EntryType::Link, '1'),
        (EntryType::Char, '3'),
        (EntryType::Fifo, '6'),
        (EntryType::GNUSparse, 'S'),
        (EntryType::XHeader, 'x'),
    ] {
        let wrong =
            format!("is neither a file nor a folder nor a symbolic link, but of tar's type '{shown}'");
        assert_eq!(
            load(&[entry(kind, "tree/a", "b", 0, b"")], 0),
            format!("entry `tree/a` of the recording: {wrong}")
        );
    }
    let link = entry(EntryType::Symlink, "top", "/etc", 0, b"");
    assert!(load(&[link], 0).starts_with("entry `top` of the recording: is neither"));
}

#[test]
fn links_that_form_a_loop_answer_as_on_a_board() {
    let manifest = file("recording.json", MANIFEST.replace('N', "0"));
    let links = [("tree/a", "b"), ("tree/b", "a"), ("tree/c", "../../../c")];
    let links = links.map(|(name, target)| entry(EntryType::Symlink, name, target, 0, b""));
    let archive = [links.concat(), manifest].concat();
    let recording = Recording::load(&archive[..]).expect("a loop is a fact about a board");
    let board = Sysroot::replay(recording, || Duration::ZERO);
    for path in ["/a", "/b/x", "/c"] {
        let error = board.bytes(path).expect_err("a loop");
        assert_eq!((error.path.as_str(), error.kind), (path, ReadErrorKind::LinkLoop));
    }
}

#[test]
fn sizes_are_bounded() {
    let huge = entry(EntryType::Regular, "tree/a", "", 1 << 40, b"x");
    let size = 1_u64 << 40;
    let expected = format!("entry `tree/a` of the recording: is {size} bytes long, which no recording needs");
    assert_eq!(load(&[huge], 1), expected);
    let long_name = entry(EntryType::GNULongName, "././@LongLink", "", 1 << 30, b"x");
    assert!(
        load(&[long_name], 0).starts_with("entry `(long name)` of the recording: is 1073741824 bytes long")
    );
    let many: String =
        (0..70_000).map(|at| format!("{{\"path\":\"/{at}\",\"error\":\"absent\"}}\n")).collect();
    let full = "exceeds the limits of a recording: 65536 files, 1048576 changes of values, 128 MiB";
    let expected = format!("entry `index.jsonl, line 65537` of the recording: {full}");
    assert_eq!(load(&[file("index.jsonl", many)], 0), expected);
}

#[test]
fn a_bomb_ends_at_the_bound() {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    let size = 4_u64 << 30;
    gzip.write_all(&entry(EntryType::Regular, "ignored", "", size, b"")).expect("memory takes it");
    std::io::copy(&mut std::io::repeat(0).take(600 << 20), &mut gzip).expect("memory takes it");
    let bomb = gzip.finish().expect("memory takes it");
    assert!(bomb.len() < 4 << 20, "{} bytes", bomb.len());
    let error = Recording::load(&bomb[..]).expect_err("no recording").to_string();
    assert!(error.contains("`after ignored`") || error.contains("recording.json"), "{error}");
    let line = [b"{\"path\":\"".to_vec(), vec![b'a'; 9 << 20], b"\"}\n".to_vec()].concat();
    let error = load(&[file("timeline.jsonl", line)], 0);
    assert!(error.starts_with("entry `timeline.jsonl, line 1` of the recording: is "), "{error}");
}

#[test]
fn lines_that_are_wrong_are_named() {
    let line = |text: &str| load(&[file("timeline.jsonl", text)], 1);
    for (text, expected) in [
        ("{}\n", "missing field `t`"),
        ("not json\n", "expected ident"),
        (r#"{"t":1,"path":"/a"}"#, "expected one of `text`, `hex` and `error`"),
        (r#"{"t":1,"path":"/a","hex":"abc"}"#, "is not an even number of hexadecimal digits"),
        (r#"{"t":1,"path":"/a/../b","text":"x"}"#, "is not an absolute path"),
        (r#"{"t":-1,"path":"/a","text":"x"}"#, "invalid value"),
    ] {
        let error = line(text);
        assert!(error.starts_with("entry `timeline.jsonl, line 1` of the recording: "), "{error}");
        assert!(error.contains(expected), "{error}");
    }
    let older = "{\"t\":5,\"path\":\"/a\",\"text\":\"x\"}\n{\"t\":9,\"path\":\"/a\",\"text\":\"y\"}\n{\"t\":7,\"path\":\"/a\",\"text\":\"z\"}\n";
    assert!(
        line(older).starts_with("entry `timeline.jsonl, line 3` of the recording: has a value that is older")
    );
    let folder =
        load(&[file("tree/a/b", "x"), file("timeline.jsonl", r#"{"t":1,"path":"/a","text":"x"}"#)], 1);
    assert!(
        folder.starts_with("entry `timeline.jsonl, line 1` of the recording: is in the recording already")
    );
}

#[test]
fn an_archive_of_another_version_or_count_is_refused() {
    let other = file("recording.json", MANIFEST.replace("recording/1", "recording/2").replace('N', "0"));
    let error = load(&[other], 0);
    assert!(error.contains("its schema is 'orinoco.recording/2'"), "{error}");
    let expected = "entry `recording.json` of the recording: gives 3 contents, and the archive has 1";
    assert_eq!(load(&[file("tree/a", "x")], 3), expected);
    let none = Recording::load(&file("tree/a", "x")[..]).expect_err("cut off").to_string();
    assert_eq!(
        none,
        "entry `recording.json` of the recording: is missing: the archive is cut off, or it is no recording"
    );
    assert!(Recording::load(&b""[..]).is_err());
    assert!(Recording::load(&b"PK\x03\x04 a zip file"[..]).is_err());
}

fn small() -> Recording {
    let mut board = Recording::synthetic();
    board.add_value("/sys/a/temp", Duration::ZERO, Ok(b"1\n")).expect("a value");
    board
        .add_value("/sys/a/temp", Duration::from_millis(5), Err(ReadErrorKind::Unavailable))
        .expect("a value");
    board.add_link("/sys/b", "a").expect("a link");
    board
}

#[test]
fn an_archive_that_is_cut_off_anywhere_is_refused() {
    for packing in [Packing::Plain, Packing::Gzip] {
        let mut archive = Vec::new();
        small().save(&mut archive, packing).expect("memory takes it");
        // Two blocks of zeros end a tar file, and hold nothing.
        let end = if packing == Packing::Plain { archive.len() - 1024 } else { archive.len() };
        for length in 0..end {
            assert!(Recording::load(&archive[..length]).is_err(), "{packing:?}, {length} of {end} bytes");
        }
        assert_eq!(Recording::load(&archive[..]).expect("whole"), small());
    }
}

proptest! {
    /// No archive makes the loader panic; one with a changed byte is refused, or is a recording.
    #[test]
    fn damaged_archives_do_not_panic(at in 0_usize..8192, byte: u8) {
        let mut archive = Vec::new();
        small().save(&mut archive, Packing::Plain).unwrap();
        let at = at % archive.len();
        archive[at] = byte;
        if let Ok(recording) = Recording::load(&archive[..]) {
            let board = Sysroot::replay(recording, || Duration::ZERO);
            let _ = (board.bytes("/sys/a/temp"), board.entries("/sys"), board.link("/sys/b"));
        }
    }

    /// Nor do bytes that nobody wrote as an archive.
    #[test]
    fn any_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        prop_assert!(Recording::load(&bytes[..]).is_err());
    }
}
