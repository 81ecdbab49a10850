//! Highest serial numbers of the member lists that this board has used. An older list is refused: it may have the seat of a board that
//! was removed since, because it was stolen.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::fs;
use std::io;
use std::path::PathBuf;

use orinoco_collective::{MemberList, VerifyingKey};
use orinoco_config::{Existing, write_whole};

use crate::state::state_directory;

/// Name of the file in the daemon's state directory.
const FILE: &str = "cluster-serials.json";

/// Serial numbers that a board keeps.
pub(super) struct Serials {
    file: PathBuf,
    /// By operator key and name of the cluster.
    known: BTreeMap<String, u32>,
}

/// Reason for which a list is not used.
#[derive(Debug)]
pub(super) enum SerialError {
    /// The file cannot be read, or is something else.
    File { file: PathBuf, why: io::Error },
    /// The list is older than one that was used.
    Older { serial: u32, used: u32, file: PathBuf },
}

impl Serials {
    /// Reads the serial numbers. `None` without a state directory.
    pub(super) fn read() -> Result<Option<Self>, SerialError> {
        state_directory().map(|folder| Self::read_file(folder.join(FILE))).transpose()
    }

    fn read_file(file: PathBuf) -> Result<Self, SerialError> {
        let known = match fs::read(&file) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::from),
            Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(BTreeMap::new()),
            Err(why) => Err(why),
        };
        match known {
            Ok(known) => Ok(Self { file, known }),
            Err(why) => Err(SerialError::File { file, why }),
        }
    }

    /// Checks that a list is not older than one that this board has used.
    pub(super) fn check(&self, list: &MemberList, operator: &VerifyingKey) -> Result<(), SerialError> {
        match self.known.get(&name_of(list, operator)) {
            Some(&used) if used > list.serial => {
                Err(SerialError::Older { serial: list.serial, used, file: self.file.clone() })
            }
            _ => Ok(()),
        }
    }

    /// Notes that this board uses a list.
    pub(super) fn note(mut self, list: &MemberList, operator: &VerifyingKey) -> Result<(), SerialError> {
        let before = self.known.insert(name_of(list, operator), list.serial);
        if before == Some(list.serial) {
            return Ok(());
        }
        let text = serde_json::to_vec(&self.known).expect("a map of text has only text keys");
        let written = write_whole(&self.file, &text, Existing::Replace);
        written.map_err(|why| SerialError::File { file: self.file, why })
    }
}

fn name_of(list: &MemberList, operator: &VerifyingKey) -> String {
    format!("{operator} {}", list.name)
}

impl fmt::Display for SerialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { file, why } => write!(
                f,
                "{}: {why}; it has the highest serial numbers of the member lists that this board has used",
                file.display()
            ),
            Self::Older { serial, used, file } => write!(
                f,
                "this list has serial {serial}, but this board has used serial {used} of the same cluster: the list may have boards \
                 that were removed since; copy the current list here, or delete {} to use this one",
                file.display()
            ),
        }
    }
}

impl Error for SerialError {}

#[cfg(test)]
mod tests {
    use orinoco_collective::{KeyPair, Seat, SigningKey};

    use super::*;

    fn list(name: &str, serial: u32) -> MemberList {
        let key = KeyPair::generate().expect("a key").public();
        let seat = Seat { name: "a".to_owned(), addresses: vec![([127, 0, 0, 1], 4711).into()], key };
        MemberList { name: name.to_owned(), serial, witness: None, seats: vec![seat] }
    }

    #[test]
    fn an_older_list_is_refused_until_the_file_is_deleted() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let file = folder.path().join(FILE);
        let read = || Serials::read_file(file.clone()).expect("a file of serial numbers, or none");
        let operator = || SigningKey::generate().expect("a key").verifying_key();
        let (own, foreign) = (operator(), operator());
        let refused =
            |list: &MemberList, operator| read().check(list, operator).err().map(|why| why.to_string());

        assert_eq!(refused(&list("crossing", 3), &own), None, "nothing is known yet");
        read().note(&list("crossing", 3), &own).expect("written");
        read().note(&list("factory", 1), &own).expect("written");
        assert_eq!(refused(&list("crossing", 3), &own), None);
        assert_eq!(refused(&list("crossing", 2), &foreign), None, "another operator's");
        let why = refused(&list("crossing", 2), &own).expect("an older list");
        assert!(why.starts_with("this list has serial 2, but this board has used serial 3"), "{why}");
        read().note(&list("crossing", 4), &own).expect("written");
        assert!(refused(&list("crossing", 3), &own).is_some());

        fs::remove_file(&file).expect("removed");
        assert_eq!(refused(&list("crossing", 2), &own), None);
        fs::write(&file, "{\"crossing\":").expect("written");
        let why = Serials::read_file(file).err().expect("half a file").to_string();
        assert!(why.contains(FILE) && why.contains("EOF"), "{why}");
    }
}
