//! Transfers and regions that are refused: the error says why, and the next transfer works.

use std::fs::File;
use std::thread;
use std::time::{Duration, Instant};

use orinoco_collective::transfer::{
    Access, Position, RefusalReason, Region, RegionInfo, Tier, TransferAgent, TransferError, TransferOptions,
};
use orinoco_collective::{Communicator, FailureCause, Rendezvous, Security, TcpGroup, TcpSettings};

use crate::device::SimulatedDevice;
use crate::{PIECE, SECURITIES, agents, file, pair, usual};

fn assert_refused(result: Result<(), TransferError>, reason: RefusalReason) {
    let error = result.expect_err("it is refused");
    let TransferError::Refused { rank: 0, why, .. } = error else { panic!("{error}") };
    assert_eq!(why, reason);
}

#[test]
fn what_the_owner_does_not_permit_is_refused_and_the_connection_goes_on() {
    for security in &SECURITIES {
        let [owner, other] = pair(security);
        let source = owner.register("source", vec![7; 10].into(), Access::Read).unwrap();
        let sink = owner.register("sink", Region::host(3 * PIECE), Access::Write).unwrap();
        let works = || {
            let mut into = [0; 10];
            other.get(0, "source", 0, &mut into, usual()).unwrap();
            assert_eq!(into, [7; 10]);
        };
        let get = |name, offset, len| other.get(0, name, offset, &mut vec![0; len], usual());
        let put = |name, offset, len| other.put(0, name, offset, &vec![1; len], usual());
        let out = |region_bytes| RefusalReason::OutOfRange { region_bytes };
        assert_refused(put("source", 0, 1), RefusalReason::NotWritable);
        works();
        assert_refused(get("sink", 0, 1), RefusalReason::NotReadable);
        assert_refused(get("nothing", 0, 1), RefusalReason::UnknownRegion);
        assert_refused(put("nothing", 0, 0), RefusalReason::UnknownRegion);
        works();
        assert_refused(get("source", 1, 10), out(10));
        assert_refused(get("source", 11, 0), out(10));
        assert_refused(get("source", u64::MAX, 10), out(10));
        assert_refused(put("sink", u64::MAX - 5, 2 * PIECE), out(3 * PIECE as u64));
        assert_refused(put("sink", PIECE as u64, 2 * PIECE + 1), out(3 * PIECE as u64));
        works();
        let mut kept = [0; 10];
        source.read(0, &mut kept).unwrap();
        assert_eq!(kept, [7; 10]);
        let error = sink.write(3 * PIECE as u64, &[1]).unwrap_err();
        let expected =
            "this rank's region `sink`: the range is not within the region, which has 786432 bytes";
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn calls_that_make_no_sense_are_refused_before_anything_is_sent() {
    let [owner, other] = pair(&Security::Plaintext);
    let long = "é".repeat(33);
    for name in ["", &long] {
        assert!(matches!(
            owner.register(name, Region::host(1), Access::Read),
            Err(TransferError::Name { .. })
        ));
        assert!(matches!(other.put(0, name, 0, &[1], usual()), Err(TransferError::Name { .. })));
    }
    let name = "é".repeat(32);
    let region = owner.register(&name, Region::host(1), Access::ReadWrite).unwrap();
    other.put(0, &name, 0, &[1], usual()).expect("64 bytes are a name");
    let again = owner.register(&name, Region::host(1), Access::Read);
    assert!(matches!(again, Err(TransferError::NameTaken { .. })));
    for rank in [1, 2, usize::MAX] {
        let error = other.get(rank, &name, 0, &mut [0], usual()).unwrap_err();
        assert!(matches!(error, TransferError::NoRank { ranks: 2, .. }), "{error}");
    }
    let at = |rank| Position { rank, region: &name, offset: 0 };
    for (from, to) in [(0, 0), (1, 1), (0, 7)] {
        let error = other.copy(at(from), at(to), 1, usual()).unwrap_err();
        assert!(matches!(error, TransferError::Elsewhere { .. } | TransferError::NoRank { .. }), "{error}");
    }
    let error = other.copy(at(0), at(1), 1, usual()).unwrap_err();
    assert!(matches!(error, TransferError::OwnRegion { why: RefusalReason::UnknownRegion, .. }));
    drop(region);
    owner.register(&name, Region::host(1), Access::Read).expect("the name is free again");
}

#[test]
fn files_that_cannot_be_regions_are_refused() {
    let [owner, other] = pair(&Security::Plaintext);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, [5; 100]).unwrap();
    for unsuitable in [File::open(folder.path()).unwrap(), File::options().append(true).open(&path).unwrap()]
    {
        let error = Region::file(unsuitable, 100).unwrap_err();
        assert!(matches!(error, TransferError::UnsuitableFile { .. }), "{error}");
    }
    let error = Region::file(file(&path), u64::MAX).unwrap_err();
    assert!(matches!(error, TransferError::UnsuitableFile { .. }), "{error}");
    let read_only = || Region::file(File::open(&path).unwrap(), 200).unwrap();
    for access in [Access::Write, Access::ReadWrite] {
        assert!(matches!(
            owner.register("file", read_only(), access),
            Err(TransferError::UnsuitableFile { .. })
        ));
    }
    let region = owner.register("file", read_only(), Access::Read).unwrap();
    other.get(0, "file", 0, &mut [0; 100], usual()).unwrap();
    let beyond_the_end = other.get(0, "file", 1, &mut [0; 100], usual());
    assert_refused(beyond_the_end, RefusalReason::Storage { errno: 0 });
    let error = region.write(0, &[1]).unwrap_err();
    assert!(
        matches!(error, TransferError::OwnRegion { why: RefusalReason::Storage { errno: 9 }, .. }),
        "{error}"
    );
}

#[test]
fn a_device_that_fails_ends_the_transfer_and_not_the_connection() {
    let [owner, other] = pair(&Security::FileKey);
    let mut device = SimulatedDevice::new(2 * PIECE);
    device.fails_from = PIECE as u64;
    let region = owner.register("device", Region::device(device), Access::ReadWrite).unwrap();
    let mut into = vec![0; 2 * PIECE];
    let failed = RefusalReason::Storage { errno: 5 };
    assert_refused(other.get(0, "device", 0, &mut into, usual()), failed);
    assert_refused(other.put(0, "device", PIECE as u64, &[1], usual()), failed);
    other.put(0, "device", 0, &into[..PIECE], usual()).unwrap();
    let error = region.read(PIECE as u64, &mut [0]).unwrap_err();
    assert!(matches!(error, TransferError::OwnRegion { why, .. } if why == failed), "{error}");
}

/// The thread of the connection ends with the panic. No call with that rank waits for its deadline.
#[test]
fn a_device_that_panics_ends_transfers_with_that_rank() {
    let [owner, other] = pair(&Security::FileKey);
    let mut device = SimulatedDevice::new(PIECE);
    (device.fails_from, device.panics) = (0, true);
    let _region = owner.register("device", Region::device(device), Access::Read).unwrap();
    let _theirs = other.register("host", Region::host(8), Access::Read).unwrap();
    let start = Instant::now();
    let failed = other.get(0, "device", 0, &mut [0], usual()).unwrap_err();
    assert!(matches!(failed, TransferError::RankFailed { rank: 0, .. }), "{failed}");
    let failed = owner.get(1, "host", 0, &mut [0], usual()).unwrap_err();
    assert!(
        matches!(failed, TransferError::RankFailed { rank: 1, cause: FailureCause::Disconnected }),
        "{failed}"
    );
    assert!(start.elapsed() < usual().deadline / 2);
}

#[test]
fn regions_are_listed_by_other_ranks() {
    let [owner, other] = pair(&Security::FileKey);
    let list = || other.regions(0, Duration::from_secs(20)).unwrap();
    assert_eq!(list(), []);
    let folder = tempfile::tempdir().unwrap();
    let of_file = Region::file(file(&folder.path().join("file")), 1 << 40).unwrap();
    let of_file = owner.register("b", of_file, Access::ReadWrite).unwrap();
    let of_host = owner.register("a", Region::host(3), Access::Write).unwrap();
    let info = |name: &str, bytes, access, tier| RegionInfo { name: name.to_owned(), bytes, access, tier };
    let [first, second] =
        [info("a", 3, Access::Write, Tier::Host), info("b", 1 << 40, Access::ReadWrite, Tier::File)];
    assert_eq!(list(), [first, second.clone()]);
    drop(of_host);
    assert_eq!(list(), [second]);
    drop(of_file);
    let most: Vec<_> = (0..1024)
        .map(|number| owner.register(&format!("{number:064}"), Region::host(0), Access::Read).unwrap())
        .collect();
    assert_eq!(list().len(), most.len());
    assert!(matches!(
        owner.register("one more", Region::host(0), Access::Read),
        Err(TransferError::TooManyRegions)
    ));
}

/// The owner unregisters a region when the first bytes are there, and registers another of the same name: no byte comes to that.
#[test]
fn a_region_that_is_unregistered_during_a_transfer_ends_it() {
    for security in &SECURITIES {
        let [owner, other] = pair(security);
        let len = 64 << 20;
        let region = owner.register("region", Region::host(len), Access::Write).unwrap();
        thread::scope(|scope| {
            let put = scope.spawn(|| other.put(0, "region", 0, &vec![1; len], usual()));
            let mut first = [0];
            while first == [0] {
                region.read(0, &mut first).unwrap();
                thread::yield_now();
            }
            let bytes = region.unregister().into_vec().unwrap();
            assert!(bytes.ends_with(&[0]), "the transfer was complete already");
            let next = owner.register("region", Region::host(len), Access::Write).unwrap();
            assert_refused(put.join().unwrap(), RefusalReason::Unregistered);
            assert!(next.unregister().into_vec().unwrap().iter().all(|byte| *byte == 0));
        });
        let error = other.put(0, "region", 0, &[1], usual());
        assert_refused(error, RefusalReason::UnknownRegion);
    }
}

/// Rank 0 reads the request together with the last message of an operation, before it has an agent.
#[test]
fn a_request_that_comes_before_the_agent_is_answered() {
    for security in &SECURITIES {
        let folder = tempfile::tempdir().unwrap();
        let rendezvous = Rendezvous::File(folder.path().join("meeting"));
        let join = |rank| {
            let settings = TcpSettings::new(security.clone());
            TcpGroup::join(&rendezvous, rank, 2, settings).expect("both join")
        };
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                let mut group = join(1);
                group.send(0, &[1u8; 10]).unwrap();
                let agent = TransferAgent::start(group).unwrap();
                agent.regions(0, Duration::from_secs(5)).map(|regions| regions.len())
            });
            let mut group = join(0);
            thread::sleep(Duration::from_millis(300));
            group.recv(1, &mut [0u8; 10]).unwrap();
            let agent = TransferAgent::start(group).unwrap();
            assert_eq!(other.join().unwrap().expect("an answer"), 0);
            drop(agent);
        });
    }
}

fn assert_left(agent: &TransferAgent, peer: usize) {
    let start = Instant::now();
    let error = agent.get(peer, "region", 0, &mut [0], usual()).unwrap_err();
    let has_left =
        matches!(error, TransferError::RankFailed { rank, cause: FailureCause::Left } if rank == peer);
    assert!(has_left, "{error}");
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

/// A rank that leaves is named, and the others go on without it. Its last answer arrives.
#[test]
fn a_rank_that_leaves_is_named_and_its_last_answers_arrive() {
    for security in &SECURITIES {
        let mut agents = agents(3, security);
        let third = agents.pop().unwrap();
        let region = agents[0].register("region", Region::host(1), Access::ReadWrite).unwrap();
        thread::scope(|scope| {
            let agents = &agents;
            // It leaves as soon as it is notified, which is before the answer is sent.
            scope.spawn(move || {
                let region = third.register("last", Region::host(4 * PIECE), Access::Write).unwrap();
                third.next_notification(Duration::from_secs(20)).expect("a notification");
                drop(third);
                drop(region);
            });
            let options = TransferOptions { notify: Some(1), ..usual() };
            let put = || agents[0].put(2, "last", 0, &[1; 4 * PIECE], options);
            while let Err(error) = put() {
                let why = RefusalReason::UnknownRegion;
                assert!(matches!(error, TransferError::Refused { why: of, .. } if of == why), "{error}");
            }
        });
        assert_left(&agents[0], 2);
        assert_left(&agents[1], 2);
        assert_eq!(agents[1].failure(2), Some(FailureCause::Left));
        assert_eq!((agents[1].failure(0), agents[1].failure(1), agents[1].failure(9)), (None, None, None));
        agents[1].put(0, "region", 0, &[1], usual()).expect("the others go on");
        drop(region);
    }
}
