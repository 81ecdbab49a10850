//! Files that are read again and again.

use std::fs;
use std::time::Duration;

use orinoco_sysroot::{Attribute, FILE_BYTES_MAX, ReadErrorKind, Recording, Sysroot};
use tempfile::TempDir;

fn board() -> (TempDir, Sysroot) {
    let dir = TempDir::new().expect("a folder");
    let sysroot = Sysroot::at(dir.path());
    (dir, sysroot)
}

#[test]
fn a_value_is_read_anew_each_time() {
    let (dir, board) = board();
    let path = dir.path().join("temp");
    for mut attribute in
        [Attribute::new(&board, "/temp"), Attribute::new(&board, "/temp").opened_for_each_read()]
    {
        fs::write(&path, "45500\n").expect("a file");
        assert_eq!(attribute.number::<i64>(), Ok(45_500));
        fs::write(&path, "-1\n").expect("a file");
        assert_eq!(attribute.number::<i64>(), Ok(-1));
        assert_eq!(attribute.text(&mut Vec::new()), Ok("-1"));
    }
}

#[test]
fn a_file_that_comes_back_is_found_again() {
    let (dir, board) = board();
    let path = dir.path().join("temp");
    let mut attribute = Attribute::new(&board, "/temp");
    assert_eq!(attribute.number::<i64>(), Err(ReadErrorKind::Absent));
    fs::write(&path, "1").expect("a file");
    assert_eq!(attribute.number::<i64>(), Ok(1));
    fs::remove_file(&path).expect("the file goes");
    assert_eq!(attribute.number::<i64>(), Err(ReadErrorKind::Absent), "and not its last value");
    fs::write(&path, "2").expect("a file");
    assert_eq!(attribute.number::<i64>(), Ok(2));
    fs::write(dir.path().join("new"), "3").expect("a file");
    fs::rename(dir.path().join("new"), &path).expect("the file is replaced");
    assert_eq!(attribute.number::<i64>(), Ok(3));
}

#[test]
fn texts_that_are_no_numbers_say_so() {
    let (dir, board) = board();
    let check = |text: &[u8]| {
        fs::write(dir.path().join("value"), text).expect("a file");
        Attribute::new(&board, "/value").number::<u32>()
    };
    assert_eq!(check(b"32760 ma\n"), Ok(32_760), "drivers of R32 write a unit");
    assert_eq!(check(b"\n"), Err(ReadErrorKind::NotANumber(String::new())));
    assert_eq!(check(b"MAXN"), Err(ReadErrorKind::NotANumber("MAXN".into())));
    assert_eq!(check(b"-1"), Err(ReadErrorKind::NotANumber("-1".into())));
    assert_eq!(check(&[0xe9]), Err(ReadErrorKind::NotText));
    let long = check(&[b'1'; 100]).expect_err("cut off");
    assert_eq!(long, ReadErrorKind::NotANumber("1".repeat(40)));
}

#[test]
fn files_are_read_whole_up_to_the_bound() {
    let (dir, board) = board();
    let mut buffer = Vec::new();
    for length in [0, 1, 4095, 4096, 4097, 70_000, FILE_BYTES_MAX as usize] {
        let bytes: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
        fs::write(dir.path().join("file"), &bytes).expect("a file");
        let mut attribute = Attribute::new(&board, "/file");
        assert_eq!(attribute.bytes(&mut buffer), Ok(&bytes[..]), "{length}");
        assert_eq!(attribute.bytes(&mut buffer), Ok(&bytes[..]), "{length} again");
    }
    fs::write(dir.path().join("file"), vec![0; FILE_BYTES_MAX as usize + 1]).expect("a file");
    assert_eq!(Attribute::new(&board, "/file").bytes(&mut buffer), Err(ReadErrorKind::TooLarge));
    assert_eq!(Attribute::new(&board, "/").bytes(&mut buffer), Err(ReadErrorKind::WrongType));
}

#[test]
fn files_of_this_machine_are_read_at_their_start() {
    let mut uptime = Attribute::new(&Sysroot::host(), "/proc/self/stat");
    let mut buffer = Vec::new();
    let pid = std::process::id().to_string();
    for _ in 0..2 {
        let text = uptime.text(&mut buffer).expect("Linux");
        assert_eq!(text.split(' ').next(), Some(&pid[..]));
    }
}

#[test]
fn a_recorded_value_is_that_of_the_time() {
    let mut recording = Recording::synthetic();
    let seconds = Duration::from_secs;
    recording.add_value("/temp", seconds(0), Ok(b"1\n")).expect("a value");
    recording.add_value("/temp", seconds(1), Err(ReadErrorKind::Unavailable)).expect("a value");
    let at = std::sync::Arc::new(std::sync::Mutex::new(seconds(0)));
    let clock = at.clone();
    let board = Sysroot::replay(recording, move || *clock.lock().expect("no panic"));
    let mut attribute = Attribute::new(&board, "/temp");
    assert_eq!(attribute.number::<i64>(), Ok(1));
    *at.lock().expect("no panic") = seconds(1);
    assert_eq!(attribute.number::<i64>(), Err(ReadErrorKind::Unavailable));
    assert_eq!(attribute.bytes(&mut Vec::new()), Err(ReadErrorKind::Unavailable));
}
