//! A board in a directory.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use orinoco_sysroot::{FILE_BYTES_MAX, ReadErrorKind, Sysroot};
use proptest::prelude::*;
use tempfile::TempDir;

fn board() -> (TempDir, Sysroot) {
    let dir = TempDir::new().expect("a folder");
    let sysroot = Sysroot::at(dir.path());
    (dir, sysroot)
}

fn write(root: &Path, path: &str, bytes: impl AsRef<[u8]>) {
    let path = root.join(path.trim_start_matches('/'));
    fs::create_dir_all(path.parent().expect("a parent")).expect("the folder is made");
    fs::write(path, bytes).expect("the file is written");
}

#[test]
fn values_come_without_their_ends() {
    let (dir, board) = board();
    write(dir.path(), "/sys/class/thermal/thermal_zone0/temp", "45500\n");
    write(dir.path(), "/proc/device-tree/model", "NVIDIA Jetson AGX Orin\0");
    write(dir.path(), "/proc/device-tree/compatible", "nvidia,p3737-0000+p3701-0005\0nvidia,tegra234\0");
    assert_eq!(board.number::<i32>("/sys/class/thermal/thermal_zone0/temp"), Ok(45500));
    assert_eq!(board.text("/proc/device-tree/model").as_deref(), Ok("NVIDIA Jetson AGX Orin"));
    let compatible = board.texts("/proc/device-tree/compatible").expect("two texts");
    assert_eq!(compatible, ["nvidia,p3737-0000+p3701-0005", "nvidia,tegra234"]);
    assert_eq!(board.entries("/sys/class").as_deref(), Ok(&["thermal".to_owned()][..]));
}

#[test]
fn a_file_that_gives_no_value_says_why() {
    let (dir, board) = board();
    let kind = |path: &str| board.number::<i64>(path).expect_err("no value").kind;
    assert_eq!(kind("/sys/none"), ReadErrorKind::Absent);
    write(dir.path(), "/sys/word", "MAXN\n");
    assert_eq!(kind("/sys/word"), ReadErrorKind::NotANumber("MAXN".into()));
    write(dir.path(), "/sys/latin1", [0xe9, 0x0a]);
    assert_eq!(kind("/sys/latin1"), ReadErrorKind::NotText);
    write(dir.path(), "/sys/long", vec![b'1'; FILE_BYTES_MAX as usize + 1]);
    assert_eq!(kind("/sys/long"), ReadErrorKind::TooLarge);
    assert_eq!(kind("/sys"), ReadErrorKind::WrongType);
    assert_eq!(kind("/sys/word/more"), ReadErrorKind::WrongType);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        dir.path().join("sys/fifo"),
        rustix::fs::FileType::Fifo,
        0o600.into(),
        0,
    )
    .expect("a FIFO");
    assert_eq!(kind("/sys/fifo"), ReadErrorKind::NotAFile);
    let error = board.text("/sys/none").expect_err("no value").to_string();
    assert_eq!(error, "/sys/none: does not exist");
}

#[test]
fn links_stay_inside_the_root() {
    let (dir, board) = board();
    write(dir.path(), "/sys/devices/i2c/1-0040/hwmon/hwmon3/name", "ina3221\n");
    fs::create_dir_all(dir.path().join("sys/class/hwmon")).expect("a folder");
    symlink("../../devices/i2c/1-0040/hwmon/hwmon3", dir.path().join("sys/class/hwmon/hwmon3"))
        .expect("a link");
    symlink("/sys/devices/i2c", dir.path().join("bus")).expect("a link");
    symlink("../../../../../../../etc/hostname", dir.path().join("sys/escape")).expect("a link");
    symlink("/etc/hostname", dir.path().join("sys/absolute")).expect("a link");
    symlink("loop", dir.path().join("loop")).expect("a link");
    assert_eq!(board.text("/sys/class/hwmon/hwmon3/name").as_deref(), Ok("ina3221"));
    assert_eq!(board.text("/bus/1-0040/hwmon/hwmon3/name").as_deref(), Ok("ina3221"));
    assert_eq!(board.link("/sys/class/hwmon/hwmon3").as_deref(), Ok("../../devices/i2c/1-0040/hwmon/hwmon3"));
    assert_eq!(board.link("/sys/devices").expect_err("no link").kind, ReadErrorKind::WrongType);
    for path in ["/sys/escape", "/sys/absolute", "/../../../../etc/hostname"] {
        assert_eq!(
            board.text(path).expect_err("no such file in the root").kind,
            ReadErrorKind::Absent,
            "{path}"
        );
    }
    assert_eq!(board.text("/loop").expect_err("no file").kind, ReadErrorKind::LinkLoop);
}

#[test]
fn this_machine_is_a_root() {
    let host = Sysroot::host();
    let pid: u32 = host
        .text("/proc/self/stat")
        .expect("Linux")
        .split(' ')
        .next()
        .expect("a pid")
        .parse()
        .expect("a pid");
    assert_eq!(pid, std::process::id());
}

proptest! {
    /// Whatever a link says, a read stays inside the root.
    #[test]
    fn no_link_leads_out(targets in proptest::collection::vec("(/|\\.\\./|a/|b/|c/){0,5}(a|b|c|\\.\\.)", 3)) {
        let outer = TempDir::new().expect("a folder");
        let root = outer.path().join("x/root");
        fs::create_dir_all(&root).expect("a folder");
        for name in ["a", "b", "c"] {
            fs::write(outer.path().join(name), "outside").expect("a file");
            fs::write(outer.path().join("x").join(name), "outside").expect("a file");
        }
        for (name, target) in ["a", "b", "c"].iter().zip(&targets) {
            symlink(target, root.join(name)).expect("a link");
        }
        let board = Sysroot::at(&root);
        for name in ["/a", "/b", "/c", "/a/b", "/b/../c", "/../a", "/../../b"] {
            prop_assert!(board.text(name).is_err(), "{} of {:?}", name, targets);
        }
    }
}
