//! The state file: what was set before the first change.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};

use orinoco_api::helper::SavedState;
use orinoco_sysroot::{ReadErrorKind, Sysroot};

/// Folder of the file. It is a folder of the unit (`RuntimeDirectory`), which only root can write.
const FOLDER: &str = "/run/orinoco-helper";
const FILE: &str = "/run/orinoco-helper/saved.json";
const NEW_FILE: &str = "/run/orinoco-helper/saved.json.new";

/// Reads the file; `None` if there is none: nothing is changed.
///
/// # Errors
/// Says why it cannot be read, or that it is no such file.
pub(crate) fn read(sysroot: &Sysroot) -> Result<Option<SavedState>, String> {
    match sysroot.text(FILE) {
        Ok(text) => serde_json::from_str(&text).map(Some).map_err(|why| format!("{FILE}: {why}")),
        Err(why) if why.kind == ReadErrorKind::Absent => Ok(None),
        Err(why) => Err(why.to_string()),
    }
}

/// Writes the file, as a whole or not at all.
pub(crate) fn write(state: &SavedState, sysroot: &Sysroot) -> Result<(), String> {
    let real = |path| sysroot.real_path(path).map_err(|why| why.to_string());
    let (folder, new, file) = (real(FOLDER)?, real(NEW_FILE)?, real(FILE)?);
    let text = serde_json::to_string(state).expect("a state has only texts and whole numbers");
    let write = || -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let mut options = OpenOptions::new();
        let mut written = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        written.write_all(text.as_bytes())?;
        fs::rename(&new, &file)
    };
    write().map_err(|why| format!("{FILE}: {why}"))
}

/// Removes the file: everything is as it was.
pub(crate) fn remove(sysroot: &Sysroot) -> Result<(), String> {
    let file = sysroot.real_path(FILE).map_err(|why| why.to_string())?;
    match fs::remove_file(file) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => Err(format!("{FILE}: {why}")),
        _ => Ok(()),
    }
}
