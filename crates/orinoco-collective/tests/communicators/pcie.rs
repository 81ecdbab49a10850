//! PCI windows, over files: who is refused, and what others that write to a window can do.

#![expect(clippy::disallowed_methods, reason = "the test measures how soon real threads return")]

use std::fs::{OpenOptions, Permissions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use orinoco_collective::{
    Algorithm, CollectiveError, Communicator, FailureCause, GroupKey, JoinError, MessageSettings, PcieGroup,
    PcieSettings, ReduceOp, Security,
};

use crate::meeting::Meeting;
use crate::name;
use crate::tcp::{group_key, key_pairs};

/// Key of the suite's groups: the second rank of some is another process, which reads it from a file.
pub(crate) fn suite_key() -> Security {
    const TEXT: &str = "orinoco-group-key 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n";
    let path = name();
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).unwrap();
    file.write_all_at(TEXT.as_bytes(), 0).unwrap();
    let key = GroupKey::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    Security::GroupKey(key)
}

/// A window that is there before its group, and stays.
struct Window(PathBuf);

impl Window {
    /// A window of some bytes.
    fn new(bytes: u64) -> Self {
        let path = name();
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        file.expect("a new file").set_len(bytes).expect("a longer file");
        Self(path)
    }

    fn write(&self, bytes: &[u8], offset: u64) {
        OpenOptions::new().write(true).open(&self.0).unwrap().write_all_at(bytes, offset).unwrap();
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).unwrap();
    }
}

fn settings(security: Security, deadline: Duration) -> PcieSettings {
    let messages = MessageSettings { deadline, ..MessageSettings::default() };
    PcieSettings { security, messages }
}

/// Joins as each rank, on threads, and sums the ranks.
fn sums(path: &Path, of_ranks: &[Security]) -> Vec<u64> {
    thread::scope(|scope| {
        let join = |rank: usize| {
            let settings = settings(of_ranks[rank].clone(), Duration::from_secs(20));
            let mut group = PcieGroup::join(path, rank, of_ranks.len(), settings).expect("all join");
            let mut vector = vec![rank as u64; 100_000];
            group.all_reduce(ReduceOp::Sum, &mut vector).unwrap();
            assert!(vector.iter().all(|sum| *sum == vector[0]));
            vector[0]
        };
        let threads: Vec<_> = (0..of_ranks.len()).map(|rank| scope.spawn(move || join(rank))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Joins as each rank of a number, with its own settings. Returns their errors.
fn errors(path: &Path, of_ranks: Vec<(usize, PcieSettings)>) -> Vec<String> {
    thread::scope(|scope| {
        let join =
            |rank, ranks, settings| PcieGroup::join(path, rank, ranks, settings).err().expect("an error");
        let threads: Vec<_> = of_ranks
            .into_iter()
            .enumerate()
            .map(|(rank, (ranks, settings))| scope.spawn(move || join(rank, ranks, settings)))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap().to_string()).collect()
    })
}

/// It sends, leaves, and joins the next group while the other rank is still in the first one.
#[test]
fn a_rank_that_comes_again_leaves_what_it_has_sent() {
    let window = Window::new(1 << 20);
    for security in [Security::Plaintext, group_key()] {
        let came_again = Meeting::new(2);
        let join = |rank, deadline| PcieGroup::join(&window.0, rank, 2, settings(security.clone(), deadline));
        thread::scope(|scope| {
            let sender = scope.spawn(|| {
                join(0, Duration::from_secs(20)).unwrap().send(1, &[7u64; 1000]).unwrap();
                let error = join(0, Duration::from_millis(200)).err().expect("rank 1 does not come");
                assert!(matches!(error, JoinError::Missing { .. }), "{error}");
                came_again.wait();
            });
            let mut group = join(1, Duration::from_secs(20)).unwrap();
            came_again.wait();
            let mut received = [0u64; 1000];
            group.recv(0, &mut received).unwrap();
            assert_eq!(received, [7; 1000]);
            sender.join().unwrap();
        });
    }
}

/// Rank 0 gives up, and starts again: it makes another file of the same name.
#[test]
fn ranks_go_on_in_the_file_that_rank_0_makes_anew() {
    let path = name();
    let join = |rank, deadline| PcieGroup::join(&path, rank, 3, settings(Security::Plaintext, deadline));
    let long = Duration::from_secs(20);
    thread::scope(|scope| {
        let first = scope.spawn(move || join(1, long).map(drop));
        let error = join(0, Duration::from_secs(1)).err().expect("rank 2 does not come");
        assert!(matches!(&error, JoinError::Missing { missing, .. } if *missing == [2]), "{error}");
        let second = scope.spawn(move || join(2, long).map(drop));
        join(0, long).map(drop).unwrap();
        for rank in [first, second] {
            rank.join().unwrap().unwrap();
        }
    });
}

/// A write to a hole would end the process where the file system is full.
#[test]
fn a_file_with_holes_gets_all_of_its_memory_first() {
    let window = Window::new(1 << 20);
    assert_eq!(sums(&window.0, &[Security::Plaintext, Security::Plaintext]), [1; 2]);
    let reserved = std::fs::metadata(&window.0).unwrap().blocks() * 512;
    assert!(
        reserved >= 4 * (128 << 10),
        "{reserved} bytes: rings of 128 KiB, also those of a rank to itself"
    );
}

#[test]
fn settings_of_tcp_alone_may_differ() {
    let path = name();
    let results = thread::scope(|scope| {
        let threads = [(0, 1), (1, 3)].map(|(rank, tcp_connections)| {
            let path = &path;
            scope.spawn(move || {
                let mut settings = settings(Security::Plaintext, Duration::from_secs(20));
                settings.messages.tcp_connections = tcp_connections;
                settings.messages.tcp_encryption = rank == 0;
                PcieGroup::join(path, rank, 2, settings).map(drop)
            })
        });
        threads.map(|thread| thread.join().unwrap())
    });
    results.into_iter().for_each(Result::unwrap);
}

#[test]
fn ranks_meet_with_every_kind_of_key() {
    for security in [vec![Security::Plaintext; 4], vec![group_key(); 4], key_pairs(4)] {
        let path = name();
        assert_eq!(sums(&path, &security), [6; 4], "{security:?}");
        assert!(!path.exists(), "the file that rank 0 made is removed");
    }
}

#[test]
fn a_window_serves_group_after_group() {
    // One that is as small as it can be, and one with the words of a larger group in it.
    let window = Window::new(600 << 10);
    for ranks in [4, 2, 3, 2] {
        let total = (0..ranks as u64).sum::<u64>();
        assert_eq!(sums(&window.0, &vec![group_key(); ranks]), vec![total; ranks], "{ranks} ranks");
    }
    // What it held before does not matter, as long as it is known for a window.
    let noise: Vec<u8> = (0..600u32 << 10).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    window.write(&noise[8..], 8);
    assert_eq!(sums(&window.0, &key_pairs(3)), [3; 3]);
}

#[test]
fn a_rank_of_an_earlier_group_is_not_believed() {
    let window = Window::new(1 << 20);
    assert_eq!(sums(&window.0, &vec![group_key(); 2]), [1; 2]);
    // Rank 1 is in the window, and does not come again.
    let errors = errors(&window.0, vec![(2, settings(group_key(), Duration::from_millis(300)))]);
    assert!(errors[0].starts_with("rank 1 did not join"), "{}", errors[0]);
}

#[test]
fn a_rank_of_another_version_is_told() {
    let window = Window::new(1 << 20);
    // What rank 1 says to rank 0, from its row and place in the window.
    let mut hello = [0; 64];
    hello[..10].copy_from_slice(b"ORIPCIE\0\x01\0");
    let checksum = crc32c::crc32c(&hello[..60]).to_le_bytes();
    hello[60..].copy_from_slice(&checksum);
    window.write(&hello, 4096 + 128);
    let errors = errors(&window.0, vec![(2, settings(group_key(), Duration::from_millis(300)))]);
    let told = "rank 1 has left a hello of version 1, and this one has version 2: install the same version";
    assert!(errors[0].starts_with("rank 1 did not join") && errors[0].contains(told), "{}", errors[0]);
}

#[test]
fn a_rank_without_the_right_key_does_not_join() {
    let (right, mut wrong) = (key_pairs(2), key_pairs(2));
    // A stranger that knows the public keys of all, and says that it is rank 1.
    if let (Security::KeyPairs { public, .. }, Security::KeyPairs { own, public: known }) =
        (&right[0], &mut wrong[1])
    {
        *known = vec![public[0], own.public()];
    }
    for [first, second] in [[group_key(), group_key()], [right[0].clone(), wrong[1].clone()]] {
        let path = name();
        let settings = [first, second].map(|security| (2, settings(security, Duration::from_secs(20))));
        let errors = errors(&path, settings.to_vec());
        let wrong = format!("rank 1 in {} does not have the key of that rank; check that", path.display());
        assert!(errors[0].starts_with(&wrong), "{}", errors[0]);
        assert_eq!(
            errors[1],
            "rank 0 refuses this rank: the key that it has for rank 1 is not that of this rank"
        );
        assert!(!path.exists());
    }
}

#[test]
fn ranks_with_other_settings_are_refused_by_name() {
    let with = |security, algorithm| {
        let mut settings = settings(security, Duration::from_millis(500));
        settings.messages.algorithm = algorithm;
        settings
    };
    let refusals = |first, second| errors(&name(), vec![first, second]);
    let found = refusals((3, with(Security::Plaintext, None)), (2, with(Security::Plaintext, None)));
    assert_eq!(found[0], "rank 1 refuses this rank: its group has 2 ranks, this one 3");
    assert_eq!(found[1], "rank 0 refuses this rank: its group has 3 ranks, this one 2");
    let found =
        refusals((2, with(Security::Plaintext, None)), (2, with(Security::Plaintext, Some(Algorithm::Ring))));
    for (rank, error) in found.iter().enumerate() {
        let expected = format!(
            "rank {} refuses this rank: its `MessageSettings` differ (order, algorithm, piece_bytes, tune or uniform); use the same settings on all ranks",
            1 - rank
        );
        assert_eq!(*error, expected);
    }
    let found = refusals((2, with(group_key(), None)), (2, with(Security::Plaintext, None)));
    assert_eq!(found[0], "rank 1 refuses this rank: it expects no protection, this rank has a group key");
    assert_eq!(found[1], "rank 0 refuses this rank: it expects a group key, this rank has no protection");
}

#[test]
fn windows_and_keys_that_do_not_fit_are_refused() {
    let window = Window::new(40 << 10);
    let join = |security| {
        let settings = settings(security, Duration::from_millis(100));
        PcieGroup::join(&window.0, 0, 2, settings).err().expect("a refusal")
    };
    let error = join(Security::Plaintext);
    assert!(matches!(error, JoinError::WindowSize { bytes: 40_960, .. }), "{error}");
    assert!(matches!(join(Security::FileKey), JoinError::NoKeyFile));
    assert!(matches!(join(key_pairs(2)[1].clone()), JoinError::OwnKey { rank: 0 }), "another rank's key");
    assert!(matches!(join(key_pairs(3)[0].clone()), JoinError::Keys { keys: 3, .. }), "too many keys");
}

#[test]
fn a_file_that_another_user_may_have_made_and_a_link_are_refused() {
    let window = Window::new(1 << 20);
    let refusal = |path: &Path, rank: usize| {
        let settings = settings(Security::Plaintext, Duration::from_millis(100));
        PcieGroup::join(path, rank, 2, settings).err().expect("a refusal")
    };
    for mode in [0o666, 0o660, 0o602] {
        std::fs::set_permissions(&window.0, Permissions::from_mode(mode)).expect("it is ours");
        for rank in [0, 1] {
            let error = refusal(&window.0, rank);
            assert!(matches!(error, JoinError::UntrustedFile { .. }), "{error}");
        }
    }
    std::fs::set_permissions(&window.0, Permissions::from_mode(0o600)).expect("it is ours");
    // Only root can give a file away; the tests of other users skip this part.
    if std::os::unix::fs::chown(&window.0, Some(1), None).is_ok() {
        let error = refusal(&window.0, 0);
        assert!(matches!(error, JoinError::UntrustedFile { .. }), "{error}");
        std::os::unix::fs::chown(&window.0, Some(0), None).expect("it was ours");
    }
    for target in [window.0.clone(), name()] {
        let link = name();
        std::os::unix::fs::symlink(&target, &link).expect("a link");
        for rank in [0, 1] {
            let error = refusal(&link, rank);
            assert!(matches!(error, JoinError::File { action: "opening", .. }), "{error}");
        }
        std::fs::remove_file(&link).expect("it is there");
        assert_eq!(target.exists(), target == window.0, "nothing is made at the end of a link");
    }
    assert_eq!(std::fs::read(&window.0).expect("it is ours"), vec![0; 1 << 20], "it was not written to");
    // A descriptor was given to the process that holds it.
    let file = OpenOptions::new().read(true).write(true).open(&window.0).expect("it is ours");
    let descriptor = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    assert_eq!(sums(&descriptor, &vec![group_key(); 2]), [1; 2]);
}

/// Longest time until the ranks notice harm that is done again and again.
const HARM_TIME_MAX: Duration = Duration::from_secs(60);

/// Two ranks that reduce without end, until one of them fails. `harm` is called again and again until both have failed: what the ranks write
/// over it at once is no fault. Returns their errors, and the time from the first `harm` to the last.
fn errors_after(harm: impl Fn(), window: &Window) -> (Vec<CollectiveError>, Duration) {
    let (ready, is_ready) = channel();
    thread::scope(|scope| {
        let ranks = [0, 1].map(|rank| {
            let ready = ready.clone();
            scope.spawn(move || {
                let settings = settings(Security::Plaintext, Duration::from_secs(20));
                let mut group = PcieGroup::join(&window.0, rank, 2, settings).unwrap();
                let mut vector = vec![0u8; 30_000];
                for call in 0.. {
                    if let Err(error) = group.all_reduce(ReduceOp::Max, &mut vector) {
                        return error;
                    }
                    if call == 10 {
                        ready.send(()).unwrap();
                    }
                }
                unreachable!("it reduces until it fails")
            })
        });
        is_ready.iter().take(2).for_each(drop);
        let start = Instant::now();
        while !ranks.iter().all(ScopedJoinHandle::is_finished) {
            // The ranks would reduce without end.
            assert!(start.elapsed() < HARM_TIME_MAX, "the harm is not noticed");
            harm();
            thread::sleep(Duration::from_micros(50));
        }
        let errors = ranks.map(|rank| rank.join().unwrap()).into();
        (errors, start.elapsed())
    })
}

#[test]
fn garbage_in_the_window_ends_the_group_by_name() {
    // Where the channel from rank 1 to rank 0 begins in a window of this size, with its words.
    const CHANNEL: u64 = 172_544;
    // All of the window, the words of that channel, its rings, and one of its words.
    let places = [(0, 1 << 20), (CHANNEL, 512), (CHANNEL + 512, 100 << 10), (CHANNEL + 128, 8)];
    for (number, (offset, len)) in places.into_iter().enumerate() {
        for byte in [0u8, 0x5a, 0xff] {
            let window = Window::new(1 << 20);
            let (errors, time) = errors_after(|| window.write(&vec![byte; len], offset), &window);
            for error in errors {
                let CollectiveError::EpochFailed { rank: 0 | 1, cause, .. } = error else {
                    panic!("{error}")
                };
                let is_named = matches!(
                    cause,
                    FailureCause::Damaged | FailureCause::Unexpected | FailureCause::Silent(_)
                );
                assert!(is_named, "{byte:#x} in place {number}: {error}");
            }
            assert!(time < Duration::from_secs(5), "{time:?}");
        }
    }
}
