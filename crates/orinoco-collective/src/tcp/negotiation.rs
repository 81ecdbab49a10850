//! Ranks of which the versions or capabilities differ, and a man in the middle who changes what they say.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use super::hello::{EPOCH, HELLO_BYTES, Use, seal_checksum};
use super::join::join_with;
use super::offer::{Capability, Offer};
use super::{Rendezvous, TcpGroup, TcpSettings};
use crate::tuning::Figures;
use crate::{
    Algorithm, Collective, CollectiveError, Communicator, DataType, FailureCause, GroupKey, JoinError,
    KeyPair, MessageSettings, Order, ReduceOp, Security, WireVersion,
};

/// Place of the capabilities in a hello and in its answer.
const WORD: usize = 28;

fn offer(minor: u8) -> Offer {
    Offer { minor, ..Offer::OURS }
}

fn without(capability: Capability) -> Offer {
    Offer { capabilities: Offer::OURS.capabilities.without(capability), ..Offer::OURS }
}

fn group_key() -> [Security; 2] {
    let key = GroupKey::generate().unwrap();
    [Security::GroupKey(key.clone()), Security::GroupKey(key)]
}

fn key_pairs() -> [Security; 2] {
    let pairs = [KeyPair::generate().unwrap(), KeyPair::generate().unwrap()];
    let public = pairs.each_ref().map(KeyPair::public).to_vec();
    pairs.map(|own| Security::KeyPairs { own, public: public.clone() })
}

fn plaintext() -> [Security; 2] {
    [Security::Plaintext, Security::Plaintext]
}

/// A free address of this machine.
fn address() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
}

/// Joins two ranks with these offers, of which rank 1 reaches rank 0 at another address, and sums a vector if they join. Returns their
/// groups or errors.
fn meet(
    offers: [Offer; 2],
    security: [Security; 2],
    messages: MessageSettings,
    through: impl FnOnce(SocketAddr) -> SocketAddr,
) -> [Result<TcpGroup, JoinError>; 2] {
    let own = [address(), address()];
    let seen_by = [own.to_vec(), vec![through(own[0]), own[1]]];
    let join = |rank: usize, security: Security| {
        let settings = TcpSettings { security, messages };
        let list = Rendezvous::List(seen_by[rank].clone());
        let joined = join_with(offers[rank], &list, rank, 2, &settings)?;
        let mut group = TcpGroup::of(joined, rank, EPOCH, messages)?;
        let mut sum = [rank as f32 + 1.0; 1000];
        group.all_reduce(ReduceOp::Sum, &mut sum).unwrap();
        assert_eq!(sum, [3.0; 1000]);
        Ok(group)
    };
    let [first, second] = security;
    thread::scope(|scope| {
        let rank_0 = scope.spawn(|| join(0, first));
        let rank_1 = join(1, second);
        [rank_0.join().unwrap(), rank_1]
    })
}

fn settings(deadline: Duration) -> MessageSettings {
    MessageSettings { deadline, ..MessageSettings::default() }
}

const PATIENT: Duration = Duration::from_secs(20);
const HASTY: Duration = Duration::from_millis(400);

fn versions_of(error: &JoinError) -> (WireVersion, WireVersion) {
    match error {
        JoinError::OtherVersion { theirs, ours, .. } => (*theirs, *ours),
        other => panic!("{other}"),
    }
}

#[test]
fn the_minor_versions_next_to_each_other_work_together() {
    for kind in [plaintext, group_key, key_pairs] {
        for offers in [
            [offer(1), Offer::MINOR_0],
            [Offer::MINOR_0, offer(1)],
            [offer(1), offer(2)],
            [offer(2), offer(1)],
        ] {
            drop(meet(offers, kind(), settings(PATIENT), |own| own).map(Result::unwrap));
        }
    }
}

#[test]
fn an_older_minor_version_is_refused_and_named() {
    for [older, newer] in [[0, 1], [1, 0]] {
        let mut offers = [offer(3); 2];
        offers[older] = offer(1);
        let [error_0, error_1] = meet(offers, group_key(), settings(HASTY), |own| own)
            .map(|group| group.err().expect("they differ"));
        let versions = [offers[0].version(), offers[1].version()];
        assert_eq!(versions_of(&error_1), (versions[0], versions[1]), "{newer} is newer");
        let text = error_0.to_string();
        assert!(text.contains(&format!("version {} of the wire format was refused", versions[1])), "{text}");
    }
}

#[test]
fn ranks_do_what_all_of_them_can() {
    for other in [without(Capability::Shrink), Offer::MINOR_0] {
        let offers = [Offer::OURS, other];
        let [mut group, _other] = meet(offers, group_key(), settings(PATIENT), |own| own).map(Result::unwrap);
        let error = group.shrink().err().expect("one rank cannot");
        assert!(matches!(error, JoinError::Incapable { rank: 1, .. }), "{error}");
    }
}

#[test]
fn what_a_rank_cannot_do_is_refused_at_both_ends() {
    let messages = MessageSettings { tcp_connections: 2, ..settings(PATIENT) };
    let offers = [Offer::OURS, without(Capability::Streams)];
    for group in meet(offers, group_key(), messages, |own| own) {
        let error = group.err().expect("one rank cannot");
        assert!(matches!(error, JoinError::Incapable { rank: 1, .. }), "{error}");
    }
}

#[test]
fn a_rank_that_knows_no_waits_is_told_none() {
    for offers in [[Offer::OURS; 2], [Offer::OURS, without(Capability::Waits)], [Offer::OURS, Offer::MINOR_0]]
    {
        let waits = offers == [Offer::OURS; 2];
        // Either way, both wait for at least one sign of life of the other.
        let messages =
            MessageSettings { silence: Duration::from_secs(1), ..settings(Duration::from_secs(3)) };
        let groups = meet(offers, group_key(), messages, |own| own).map(Result::unwrap);
        let errors: Vec<CollectiveError> = thread::scope(|scope| {
            let receive = |(rank, mut group): (usize, TcpGroup)| {
                scope.spawn(move || group.recv(1 - rank, &mut [0u8; 3]).unwrap_err())
            };
            let receiving: Vec<_> = groups.into_iter().enumerate().map(receive).collect();
            receiving.into_iter().map(|receiving| receiving.join().unwrap()).collect()
        });
        let is_expected = |error: &CollectiveError| match error {
            CollectiveError::Mismatch { .. }
            | CollectiveError::EpochFailed { cause: FailureCause::Mismatch, .. } => waits,
            CollectiveError::EpochFailed { cause, .. } => matches!(cause, FailureCause::Late(_)) && !waits,
            _ => false,
        };
        assert!(errors.iter().all(is_expected), "{offers:?}: {errors:?}");
    }
}

/// Sums vectors of these lengths in a group of two machines with two ranks each, as figures tell rank 0. Returns the algorithms of each rank.
fn sum_on_two_machines(
    offers: [Offer; 4],
    messages: MessageSettings,
    lengths: &[usize],
) -> Vec<Vec<Algorithm>> {
    let list = Rendezvous::List((0..4).map(|_| address()).collect());
    let run = |rank: usize| {
        let settings = TcpSettings { security: Security::Plaintext, messages };
        let joined = join_with(offers[rank], &list, rank, 4, &settings).unwrap();
        let mut group = TcpGroup::of(joined, rank, EPOCH, messages).unwrap();
        group.tune(Some(&Figures::of_machines(2, 2))).unwrap();
        let algorithm = |count: &usize| {
            // Exact in every order: whole numbers below 2^24.
            let mut sum: Vec<f32> = (0..*count).map(|at| (rank * 1000 + at % 1000) as f32).collect();
            group.all_reduce(ReduceOp::Sum, &mut sum).unwrap();
            assert!(sum.iter().enumerate().all(|(at, sum)| *sum == (6000 + 4 * (at % 1000)) as f32));
            group.explain(&Collective::AllReduce { count: *count }, DataType::F32).unwrap().chosen
        };
        lengths.iter().map(algorithm).collect()
    };
    thread::scope(|scope| {
        let ranks: Vec<_> = (0..4)
            .map(|rank| {
                scope.spawn({
                    let run = &run;
                    move || run(rank)
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

#[test]
fn ranks_of_two_machines_reduce_on_two_levels_if_all_know_the_machines() {
    let lengths = [1, 100, 2000, 1 << 18];
    let fast = MessageSettings { order: Order::Fast, ..settings(PATIENT) };
    let all = sum_on_two_machines([Offer::OURS; 4], fast, &lengths);
    assert_eq!(all[0][..3], [Algorithm::TwoLevel; 3]);
    assert!(all.iter().all(|rank| *rank == all[0]), "{all:?}");
    for rank in [0, 3] {
        let mut offers = [Offer::OURS; 4];
        offers[rank] = Offer::MINOR_0;
        let all = sum_on_two_machines(offers, fast, &lengths);
        assert!(all.iter().all(|rank| *rank == all[0] && !rank.contains(&Algorithm::TwoLevel)), "{all:?}");
    }
}

#[test]
fn an_algorithm_of_the_settings_does_not_change_the_order_of_reductions() {
    let algorithm = Some(Algorithm::TwoLevel);
    for (order, is_used) in [(Order::Fast, true), (Order::Reproducible, false)] {
        let messages = MessageSettings { order, algorithm, ..settings(PATIENT) };
        let all = sum_on_two_machines([Offer::OURS; 4], messages, &[1, 2000]);
        for chosen in all.iter().flatten() {
            assert_eq!((*chosen == Algorithm::TwoLevel, chosen.is_reproducible()), (is_used, !is_used));
        }
    }
}

/// Messages that are changed on their way.
#[derive(Clone, Copy)]
enum Changed {
    Hello,
    Answer,
}

#[test]
fn capabilities_that_are_changed_on_their_way_fail_the_handshake() {
    for kind in [group_key, key_pairs] {
        for changed in [Changed::Hello, Changed::Answer] {
            for word in [0, without(Capability::Shrink).word()] {
                let [error_0, error_1] =
                    meet([Offer::OURS; 2], kind(), settings(HASTY), |own| between(own, changed, word))
                        .map(|group| group.err().expect("what they say was changed"));
                let is_found = match changed {
                    Changed::Hello => matches!(error_1, JoinError::Refused { rank: 0, .. }),
                    Changed::Answer => matches!(error_1, JoinError::Untrusted { rank: 0, .. }),
                };
                assert!(is_found, "{error_1}");
                assert!(matches!(error_0, JoinError::Missing { .. }), "{error_0}");
            }
        }
    }
}

#[test]
fn a_man_in_the_middle_who_changes_nothing_is_not_noticed() {
    let same = Offer::OURS.word();
    let groups =
        meet([Offer::OURS; 2], key_pairs(), settings(PATIENT), |own| between(own, Changed::Answer, same));
    drop(groups.map(Result::unwrap));
}

/// Puts a man in the middle between rank 0 and those who connect, who changes the capabilities on connections for notices.
fn between(rank_0: SocketAddr, changed: Changed, word: u16) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for inner in listener.incoming().map_while(Result::ok) {
            // Rank 1 tries until somebody listens; this one listens before rank 0 does.
            let outer = std::iter::repeat_with(|| TcpStream::connect(rank_0)).find_map(Result::ok);
            thread::spawn(move || relay(&inner, &outer.expect("an endless search"), changed, word));
        }
    });
    address
}

/// Relays a connection from `inner` to `outer`, and its answers.
fn relay(inner: &TcpStream, outer: &TcpStream, changed: Changed, word: u16) -> io::Result<()> {
    let is_of_notices = pass(inner, outer, |hello| {
        let is_of_notices = hello[10] == Use::Notices as u8;
        if is_of_notices && matches!(changed, Changed::Hello) {
            hello[WORD..WORD + 2].copy_from_slice(&word.to_le_bytes());
        }
        is_of_notices
    })?;
    let answers = (outer.try_clone()?, inner.try_clone()?);
    thread::spawn(move || -> io::Result<()> {
        pass(&answers.0, &answers.1, |answer| {
            if is_of_notices && matches!(changed, Changed::Answer) {
                answer[WORD..WORD + 2].copy_from_slice(&word.to_le_bytes());
            }
        })?;
        copy(&answers.0, &answers.1)
    });
    copy(inner, outer)
}

/// Passes a hello or an answer on, after a change.
fn pass<R>(
    mut from: &TcpStream,
    mut to: &TcpStream,
    change: impl FnOnce(&mut [u8; HELLO_BYTES]) -> R,
) -> io::Result<R> {
    let mut bytes = [0; HELLO_BYTES];
    from.read_exact(&mut bytes)?;
    let result = change(&mut bytes);
    seal_checksum(&mut bytes);
    to.write_all(&bytes)?;
    Ok(result)
}

fn copy(mut from: &TcpStream, mut to: &TcpStream) -> io::Result<()> {
    io::copy(&mut from, &mut to)?;
    to.shutdown(std::net::Shutdown::Write)
}
