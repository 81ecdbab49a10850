use std::path::Path;
use std::sync::Arc;

use zeroize::Zeroizing;

use super::ShmGroup;
use super::heartbeat::Watch;
use super::join::{self, Meeting};
use crate::clock::Ticks;
use crate::split::{Part, divide};
use crate::{CollectiveError, JoinError, KeyError};

/// Bytes of a file's name. Nobody can guess it, so nobody can be there first.
const NAME_BYTES: usize = 16;

impl ShmGroup {
    /// Makes groups of this group's ranks, as `MPI_Comm_split` does. Ranks that name the same colour form one, in the order of
    /// their keys and then of their ranks here; a rank without a colour belongs to none, and gets `None`. All ranks must call it.
    ///
    /// The new group has the settings of this one. The two are independent: a failure of one does not end the other, and each names
    /// ranks by its own numbers. Making a group takes about as long as joining one, some milliseconds, and each has memory and a
    /// thread of its own: make it once, and use it again and again.
    ///
    /// # Errors
    /// If this group has failed, if a rank of the new group is gone before all have joined it, or if they cannot join it (see
    /// [`ShmGroup::join`]).
    pub fn split(&mut self, color: Option<u32>, key: i32) -> Result<Option<Self>, JoinError> {
        let name = || {
            let mut name = Zeroizing::new([0; NAME_BYTES]);
            getrandom::fill(&mut *name).map_err(|error| KeyError::Randomness(error.to_string()))?;
            Ok(((), name))
        };
        let Some(((), part)) = divide(self, color, key, name)? else { return Ok(None) };
        let name = u128::from_le_bytes(*part.members[0].offer);
        let path = self.path.with_file_name(format!("orinoco-{name:032x}"));
        let Meeting { segment, processes, file } = self.meet(&path, &part)?;
        // All have mapped it, so nobody comes any more. Nobody else would remove the file of a rank that is killed later: no other group
        // meets at this name.
        drop(file);
        Self::of(Arc::new(segment), processes, path, part.rank, self.waiting.settings()).map(Some)
    }

    /// Meets the other ranks of the new group, unless one of them is gone.
    fn meet(&self, path: &Path, part: &Part<NAME_BYTES>) -> Result<Meeting, JoinError> {
        let (settings, now) = (self.waiting.settings(), Ticks::now());
        let others = part.members.iter().map(|member| member.rank).filter(|rank| *rank != self.rank);
        let mut watches: Vec<(usize, Watch)> =
            others.map(|rank| (rank, self.waiting.watch(&self.segment, rank, now))).collect();
        let mut gone = None;
        let met = join::join_unless(path, part.rank, part.members.len(), settings.deadline, || {
            let now = Ticks::now();
            gone = watches.iter_mut().find_map(|(rank, watch)| {
                Some((*rank, watch.absence(self.segment.pulse(*rank), now, settings.silence)?))
            });
            gone.is_some()
        });
        match (met, gone) {
            (Err(JoinError::Missing { .. }), Some((rank, cause))) => {
                // They wait for one another, as at a barrier.
                let call = self.caller().barrier();
                Err(JoinError::Split(CollectiveError::EpochFailed { epoch: 0, rank, cause, call }))
            }
            (met, _) => met,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::process::Command;
    use std::time::Duration;

    use rustix::process::{Signal, getpid, kill_process};

    use super::*;
    use crate::{FailureCause, Settings};

    /// Variable of the environment for the second rank: the file, and its key.
    const SECOND_RANK: &str = "ORINOCO_TEST_RANK_THAT_DIVIDES";
    /// No rank becomes silent or late within the test: the cause would be another one.
    const LONG: Duration = Duration::from_secs(60);
    const SETTINGS: Settings = Settings { deadline: LONG, silence: LONG, single_copy: true };

    /// Rank 1 of the next test in a process of its own, if it is one: it is killed when the new group is agreed upon.
    #[test]
    fn second_rank() {
        let Some(text) = std::env::var_os(SECOND_RANK).and_then(|text| text.into_string().ok()) else {
            return;
        };
        let (path, key) = text.split_once('=').expect("a file and a key");
        let mut group = ShmGroup::join(Path::new(path), 1, 2, SETTINGS).expect("both join");
        let name = || Ok(((), Zeroizing::new([0; NAME_BYTES])));
        divide(&mut group, Some(0), key.parse().expect("a key"), name).expect("both choose");
        kill_process(getpid(), Signal::KILL).expect("a process may kill itself");
    }

    #[test]
    fn a_rank_that_ends_before_it_has_joined_the_new_group_is_not_waited_for() {
        // The new group is made by the rank with the lower key.
        for key in [-1, 1] {
            let path = format!("/dev/shm/orinoco-test-split-{}-{key}", std::process::id());
            let mut second = Command::new(std::env::current_exe().expect("this program"));
            second.args(["--exact", "shm::split::tests::second_rank"]);
            second.env(SECOND_RANK, OsString::from(format!("{path}={key}")));
            let mut second = second.stdout(std::process::Stdio::null()).spawn().expect("it starts");
            let mut group = ShmGroup::join(Path::new(&path), 0, 2, SETTINGS).expect("both join");
            let error = group.split(Some(0), 0).err().expect("the other rank has ended");
            second.wait().expect("it has ended");
            let JoinError::Split(CollectiveError::EpochFailed { rank, cause, .. }) = error else {
                panic!("{error}")
            };
            assert_eq!((rank, cause), (1, FailureCause::Ended));
        }
    }
}
