//! Files through which the ranks of a group find one another.
//!
//! Rank 0 makes the file, and holds a lock on it until it removes it. The lock ends with its process, so a file without one is left over
//! from a rank 0 that was killed: others wait for the next, and the next rank 0 replaces it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::JoinError;
use crate::clock::pause;
use crate::publish::{fault, publish};

/// Bits of a file's mode with which others than its user can write to it.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Attempts to lock the folder of a file that may be left over, and the time between two. Others lock it for some microseconds.
const LOCK_ATTEMPTS: usize = 20;
const LOCK_RETRY: Duration = Duration::from_millis(5);

/// A file through which ranks meet, as rank 0 has it. It is removed when it is dropped.
pub(crate) struct MeetingFile {
    path: PathBuf,
    /// Holds the lock. `None` when the file is removed.
    locked: Option<File>,
}

impl MeetingFile {
    /// Makes a file, which `fill` writes. One that is left over and that `is_meeting` knows as such is replaced.
    pub(crate) fn publish<T>(
        path: &Path,
        is_meeting: impl Fn(&File) -> bool,
        fill: impl Fn(&File) -> io::Result<T>,
    ) -> Result<(Self, T), JoinError> {
        loop {
            let published = publish(path, |file| {
                // Where there are no locks, whoever looks for the file takes it as it is.
                let _ = file.try_lock();
                Ok((file.try_clone()?, fill(file)?))
            });
            match published {
                Ok((file, filled)) => {
                    return Ok((Self { path: path.to_owned(), locked: Some(file) }, filled));
                }
                Err(JoinError::File { source, path: taken, .. })
                    if source.kind() == ErrorKind::AlreadyExists && taken == path =>
                {
                    remove_left_over(path, &is_meeting)?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Removes the file: nobody comes any more.
    pub(crate) fn remove(mut self) -> Result<(), JoinError> {
        // The lock ends last: another rank 0 would take the file for one that is left over.
        let _locked = self.locked.take();
        fs::remove_file(&self.path).map_err(|source| fault("removing", &self.path, source))
    }
}

impl Drop for MeetingFile {
    fn drop(&mut self) {
        if self.locked.is_some() {
            // The error for which the join ends matters more.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Opens the file of a rank 0 that is there, to read and write; or one that is no meeting, which is to be refused. `None` if there is
/// none yet.
///
/// # Errors
/// The system's, or if another user may have made the file.
pub(crate) fn find(path: &Path, is_meeting: impl Fn(&File) -> bool) -> Result<Option<File>, JoinError> {
    match open(path) {
        Ok(file) if is_meeting(&file) && file.try_lock_shared().is_ok() => Ok(None),
        Ok(file) => Ok(Some(file)),
        Err(JoinError::File { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens a file that only this user can have made, to read and write. In a folder to which all can write, such as `/dev/shm`, another
/// user may be there first: with a file of his own, or with a link to one of this user's.
fn open(path: &Path) -> Result<File, JoinError> {
    let file = open_no_link(path)?;
    check_owner(&file, path)?;
    Ok(file)
}

/// Opens a file to read and write. A link is refused.
pub(crate) fn open_no_link(path: &Path) -> Result<File, JoinError> {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).custom_flags(libc::O_NOFOLLOW);
    options.open(path).map_err(|source| fault("opening", path, source))
}

/// Refuses a file that another user may have made, or can write to.
pub(crate) fn check_owner(file: &File, path: &Path) -> Result<(), JoinError> {
    let found = file.metadata().map_err(|source| fault("opening", path, source))?;
    let untrusted = |why: String| Err(JoinError::UntrustedFile { path: path.to_owned(), why });
    let user = rustix::process::geteuid().as_raw();
    if found.uid() != user {
        return untrusted(format!("it belongs to user {}, and this process is of user {user}", found.uid()));
    }
    if found.mode() & WRITABLE_BY_OTHERS != 0 {
        return untrusted(format!("other users can write to it (mode {:04o})", found.mode() & 0o7777));
    }
    Ok(())
}

/// Removes a file whose rank 0 was killed. The lock on its folder keeps others from doing the same meanwhile: they would remove the
/// file of the next rank 0. Ranks that look for the file do not take it for locked, since all lock it only as it is shared.
fn remove_left_over(path: &Path, is_meeting: impl Fn(&File) -> bool) -> Result<(), JoinError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let locked_folder = File::open(folder).map_err(|source| fault("opening", folder, source))?;
    let is_alone = (0..LOCK_ATTEMPTS).any(|attempt| {
        if attempt > 0 {
            pause(LOCK_RETRY);
        }
        locked_folder.try_lock().is_ok()
    });
    let file = match open(path) {
        Ok(file) => file,
        // It was removed meanwhile.
        Err(JoinError::File { source, .. }) if source.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !is_meeting(&file) {
        return Err(JoinError::Foreign { path: path.to_owned(), found: "another content".to_owned() });
    }
    if !is_alone || file.try_lock_shared().is_err() {
        return Err(JoinError::FileTaken { path: path.to_owned() });
    }
    // Another rank 0 may have made it since it was opened, when the one before had removed its own.
    let is_same = fs::metadata(path).is_ok_and(|now| {
        file.metadata().is_ok_and(|locked| (now.dev(), now.ino()) == (locked.dev(), locked.ino()))
    });
    match is_same {
        true => fs::remove_file(path).map_err(|source| fault("removing", path, source)),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::io::Write;
    use std::os::unix::fs::{FileExt, PermissionsExt};
    use std::thread;

    use super::*;

    const CONTENT: &str = "a meeting";

    fn is_meeting(file: &File) -> bool {
        let mut bytes = [0; CONTENT.len()];
        file.read_exact_at(&mut bytes, 0).is_ok() && bytes == *CONTENT.as_bytes()
    }

    fn meet(path: &Path) -> Result<MeetingFile, JoinError> {
        let fill = |mut file: &File| file.write_all(CONTENT.as_bytes());
        Ok(MeetingFile::publish(path, is_meeting, fill)?.0)
    }

    #[test]
    fn a_meeting_is_found_until_it_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("meeting");
        assert!(find(&path, is_meeting).unwrap().is_none());
        let meeting = meet(&path).unwrap();
        assert!(find(&path, is_meeting).unwrap().is_some_and(|file| is_meeting(&file)));
        let taken = meet(&path).err().unwrap();
        assert!(matches!(taken, JoinError::FileTaken { .. }), "{taken}");
        assert!(find(&path, is_meeting).unwrap().is_some(), "it is still there");
        meeting.remove().unwrap();
        assert!(find(&path, is_meeting).unwrap().is_none() && !path.exists());
        drop(meet(&path).unwrap());
        assert!(!path.exists(), "a join that ends with an error leaves no file");
    }

    #[test]
    fn a_file_of_a_rank_that_was_killed_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("meeting");
        fs::write(&path, CONTENT).unwrap();
        assert!(find(&path, is_meeting).unwrap().is_none(), "nobody waits at it");
        let meeting = meet(&path).unwrap();
        assert!(find(&path, is_meeting).unwrap().is_some());
        meeting.remove().unwrap();
    }

    #[test]
    fn of_several_that_replace_a_file_one_does() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("meeting");
        for _ in 0..50 {
            fs::write(&path, CONTENT).unwrap();
            let meetings: Vec<_> = thread::scope(|scope| {
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| meet(&path))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert!(find(&path, is_meeting).unwrap().is_some());
            let refused =
                meetings.iter().filter(|met| matches!(met, Err(JoinError::FileTaken { .. }))).count();
            let made = meetings.into_iter().filter_map(Result::ok).collect::<Vec<_>>();
            assert_eq!((made.len(), refused), (1, 3));
        }
    }

    #[test]
    fn a_link_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("meeting");
        for target in ["nothing", "another meeting"] {
            let target = folder.path().join(target);
            let _meeting = target.ends_with("another meeting").then(|| meet(&target).unwrap());
            std::os::unix::fs::symlink(&target, &path).unwrap();
            for error in [meet(&path).err().unwrap(), find(&path, is_meeting).unwrap_err()] {
                assert!(matches!(error, JoinError::File { action: "opening", .. }), "{error}");
            }
            fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn a_file_that_another_user_may_have_made_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("meeting");
        fs::write(&path, CONTENT).unwrap();
        let check = |expected: &str| {
            for error in [meet(&path).err().unwrap(), find(&path, is_meeting).unwrap_err()] {
                let is_right = matches!(&error, JoinError::UntrustedFile { why, .. } if why == expected);
                assert!(is_right && error.to_string().contains("meeting"), "{error}");
            }
            assert_eq!(fs::read_to_string(&path).unwrap(), CONTENT, "it stays");
        };
        for mode in [0o666, 0o660, 0o602] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            check(&format!("other users can write to it (mode {mode:04o})"));
        }
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        // Only root can give a file away; the tests of other users skip this part.
        match std::os::unix::fs::chown(&path, Some(1), None) {
            Ok(()) => check("it belongs to user 1, and this process is of user 0"),
            Err(why) => assert_eq!(why.kind(), ErrorKind::PermissionDenied),
        }
    }

    #[test]
    fn a_file_of_somebody_else_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes");
        fs::write(&path, "not to be lost").unwrap();
        let error = meet(&path).err().unwrap();
        assert!(matches!(error, JoinError::Foreign { .. }), "{error}");
        assert!(find(&path, is_meeting).unwrap().is_some(), "it is for the others to refuse");
        assert_eq!(fs::read_to_string(&path).unwrap(), "not to be lost");
    }
}
