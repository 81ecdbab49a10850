//! Commands that correct what is missing. Each one was checked for the systems for which it is given; elsewhere there are words
//! only.

use std::path::{Path, PathBuf};

use orinoco_sysroot::Sysroot;
use rustix::process::{getegid, geteuid};

use super::check::Fix;

/// Version of ONNX Runtime that is installed: the one that the tests run with (cross/onnxruntime.sh).
const ONNX_RUNTIME: &str = "1.31.1";

/// Tag of the Python wheel whose library is taken: it needs no more than glibc 2.28, and no Python (cross/onnxruntime.sh).
const WHEEL: &str = "--platform manylinux_2_28_{arch} --implementation cp --python-version 3.12 --abi cp312";

/// Systems for which the commands were checked: their packages by `apt-cache policy` of Debian 12 (bookworm) and of Ubuntu 20.04,
/// 22.04 and 24.04 (focal, jammy, noble), on which JetPack 5, 6 and 7 are based.
const CHECKED: [(&str, &str); 4] =
    [("debian", "12"), ("ubuntu", "20.04"), ("ubuntu", "22.04"), ("ubuntu", "24.04")];

/// User of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct User {
    pub(super) name: String,
    pub(super) is_root: bool,
    /// Name of the user's group.
    pub(super) group: String,
}

/// Operating system, as far as advice depends on it.
#[derive(Clone, Debug)]
pub(super) struct System {
    /// Name, such as `Debian GNU/Linux 12 (bookworm)`.
    pub(super) name: Option<String>,
    /// Whether the commands were checked for it.
    is_checked: bool,
    pub(super) user: User,
    /// Folder in which the files of the board are, `/` for this machine; `None` for a recording.
    folder: Option<PathBuf>,
}

impl System {
    /// Reads the system of a board from `/etc/os-release` (os-release(5)), and the user of this process.
    pub(super) fn read(sysroot: &Sysroot) -> Self {
        let release = sysroot.text("/etc/os-release").unwrap_or_default();
        let value = |key: &str| {
            let mut lines = release.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
            lines.next().map(|text| text.trim_matches(['"', '\'']).to_owned())
        };
        let (id, version) = (value("ID").unwrap_or_default(), value("VERSION_ID").unwrap_or_default());
        Self {
            name: value("PRETTY_NAME").or_else(|| value("NAME")),
            is_checked: CHECKED.contains(&(id.as_str(), version.as_str())),
            user: User::of_process(sysroot),
            folder: sysroot.directory().map(Path::to_owned),
        }
    }

    /// Returns the path on this machine of a file of the board; `None` for a recording, whose files are not on this machine.
    pub(super) fn real(&self, path: &str) -> Option<PathBuf> {
        Some(self.folder.as_ref()?.join(path.trim_start_matches('/')))
    }

    /// Returns the command with `sudo`, if it is needed.
    pub(super) fn as_root(&self, command: &str) -> String {
        if self.user.is_root { command.to_owned() } else { format!("sudo {command}") }
    }

    /// Returns the correction for packages that are not installed.
    pub(super) fn install(&self, packages: &[&str]) -> Fix {
        let packages = packages.join(" ");
        match self.is_checked {
            true => Fix::commands([self.as_root(&format!("apt-get install -y {packages}"))]),
            false => Fix::words(format!(
                "install what Debian calls {packages}; no command is known for this system"
            )),
        }
    }

    /// Returns the correction for a library of ONNX Runtime that is missing or cannot be used. It goes into the user's `cache`.
    pub(super) fn onnx_runtime(&self, cache: Option<&Path>) -> Fix {
        let mut commands = Vec::new();
        if std::env::var_os("ORT_DYLIB_PATH").is_some_and(|path| !path.is_empty()) {
            commands.push("unset ORT_DYLIB_PATH".to_owned());
        }
        let Some(cache) = cache else {
            return Fix::words(
                "set HOME, or XDG_CACHE_HOME to an absolute path, for the cache that holds it",
            );
        };
        let arch = std::env::consts::ARCH;
        let folder = cache.join(format!("onnxruntime/{ONNX_RUNTIME}/{arch}"));
        let library = format!("libonnxruntime.so.{ONNX_RUNTIME}");
        if folder.join(&library).is_file() {
            return Fix::commands(commands);
        }
        if !self.is_checked || !["x86_64", "aarch64"].contains(&arch) {
            let folder = folder.display();
            return Fix::words(format!(
                "copy {library} of ONNX Runtime {ONNX_RUNTIME} to {folder}; no command is known for this system"
            ));
        }
        if !has_pip() {
            commands.push(self.as_root("apt-get install -y python3-pip"));
        }
        let wheel = WHEEL.replace("{arch}", arch);
        commands.push(format!(
            "(cd \"$(mktemp -d)\" && python3 -m pip download --no-deps --only-binary=:all: {wheel} \
             onnxruntime=={ONNX_RUNTIME} && python3 -m zipfile -e onnxruntime-*.whl . && install -D -m 644 -t {} \
             onnxruntime/capi/{library})",
            quoted(&folder)
        ));
        Fix::commands(commands)
    }

    /// Returns the correction for a device node that the user may not open, which belongs to `group`.
    pub(super) fn join_group(&self, group: &str) -> Fix {
        let user = &self.user.name;
        let next = format!("log out and in again, then `id` shows the group {group}");
        let command = self.as_root(&format!("usermod -aG {group} {user}"));
        Fix { next: Some(next), ..Fix::commands([command]) }
    }

    /// Returns the correction for files of the board that the user may not read: the user's group may.
    pub(super) fn allow_reading(&self, files: &[String]) -> Fix {
        let Some(paths) = files.iter().map(|file| self.real(file)).collect::<Option<Vec<_>>>() else {
            return Fix::words(
                "a recording cannot be corrected: run `orinoco doctor` on the board, as the user who recorded it, for the commands",
            );
        };
        let files = paths.iter().map(|path| quoted(path)).collect::<Vec<_>>().join(" ");
        let group = &self.user.group;
        let commands = [format!("chgrp {group} {files}"), format!("chmod g+rX {files}")];
        let next = "this lasts until the next start; a udev rule keeps it".to_owned();
        Fix { next: Some(next), ..Fix::commands(commands.map(|command| self.as_root(&command))) }
    }
}

impl User {
    fn of_process(sysroot: &Sysroot) -> Self {
        let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
        let name = name_of(&sysroot.text("/etc/passwd").unwrap_or_default(), uid);
        let group = name_of(&sysroot.text("/etc/group").unwrap_or_default(), gid);
        Self {
            name: name.unwrap_or_else(|| uid.to_string()),
            is_root: uid == 0,
            group: group.unwrap_or_else(|| gid.to_string()),
        }
    }
}

/// Returns the name with this number in a text of the form of passwd(5) or group(5).
pub(super) fn name_of(text: &str, number: u32) -> Option<String> {
    let entry = text.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let mut entry = entry.filter(|fields| fields.get(2) == Some(&number.to_string().as_str()));
    entry.next().map(|fields| fields[0].to_owned())
}

/// Returns whether `python3 -m pip` works.
fn has_pip() -> bool {
    let pip = std::process::Command::new("python3").args(["-m", "pip", "--version"]).output();
    pip.is_ok_and(|output| output.status.success())
}

/// Returns a path as a word for a shell.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:,@%".contains(c);
    if text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn system(release: &str) -> System {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(dir.path().join("etc")).expect("made");
        std::fs::write(dir.path().join("etc/os-release"), release).expect("written");
        let system = System::read(&Sysroot::at(dir.path()));
        System { user: User { name: "ada".into(), is_root: false, group: "ada".into() }, ..system }
    }

    #[test]
    fn commands_are_for_systems_that_were_checked() {
        let debian = system("PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nID=debian\nVERSION_ID=\"12\"\n");
        assert_eq!(debian.name.as_deref(), Some("Debian GNU/Linux 12 (bookworm)"));
        let fix = debian.install(&["gstreamer1.0-libav"]);
        assert_eq!(fix.commands, ["sudo apt-get install -y gstreamer1.0-libav"]);
        let jetpack = system("ID=ubuntu\nVERSION_ID='22.04'\n");
        assert_eq!(jetpack.install(&["i2c-tools"]).commands, ["sudo apt-get install -y i2c-tools"]);
        for other in ["ID=fedora\nVERSION_ID=41\n", "ID=debian\nVERSION_ID=\"13\"\n", ""] {
            let other = system(other);
            assert!(other.install(&["i2c-tools"]).commands.is_empty());
            assert!(
                other.onnx_runtime(Some(Path::new("/cache"))).commands.iter().all(|c| c.starts_with("unset"))
            );
        }
    }

    #[test]
    fn the_version_of_onnx_runtime_is_the_one_that_is_tested() {
        let script = include_str!("../../../../../cross/onnxruntime.sh");
        assert!(script.contains(&format!("\nversion={ONNX_RUNTIME}\n")));
        assert!(script.contains("--implementation cp --python-version 3.12 --abi cp312"));
        let debian = system("ID=debian\nVERSION_ID=12\n");
        let fix = debian.onnx_runtime(Some(Path::new("/home/a da/.cache/orinoco")));
        let last = fix.commands.last().expect("a command");
        assert!(
            last.contains(&format!("-t '/home/a da/.cache/orinoco/onnxruntime/{ONNX_RUNTIME}/")),
            "{last}"
        );
    }

    #[test]
    fn users_and_groups_have_names() {
        let text = "root:x:0:\nvideo:x:44:ada,bob\nbroken\n";
        assert_eq!(name_of(text, 44).as_deref(), Some("video"));
        assert_eq!(name_of(text, 4), None);
        let system = system("ID=debian\nVERSION_ID=12\n");
        assert_eq!(system.join_group("video").commands, ["sudo usermod -aG video ada"]);
        let host = System { folder: Some(PathBuf::from("/")), ..system };
        let fix = host.allow_reading(&["/sys/class/it's".to_owned()]);
        assert_eq!(fix.commands[1], r"sudo chmod g+rX '/sys/class/it'\''s'");
    }
}
