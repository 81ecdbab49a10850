//! TCP: how ranks find one another, and strangers at their ports.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use orinoco_collective::{
    Algorithm, Communicator, GroupKey, JoinError, KeyPair, MessageSettings, PublicKey, ReduceOp, Rendezvous,
    Security, TcpGroup, TcpSettings,
};

use crate::addresses::free_address;
use crate::keys::own_address;
use crate::name;
use crate::proxy::{connect, through_busy_proxy};

pub(crate) fn settings(security: Security) -> TcpSettings {
    let messages = MessageSettings { deadline: Duration::from_secs(20), ..MessageSettings::default() };
    TcpSettings { security, messages }
}

fn plain() -> TcpSettings {
    settings(Security::Plaintext)
}

/// Settings of ranks that give up soon.
pub(crate) fn hasty(security: Security) -> TcpSettings {
    let messages = MessageSettings { deadline: Duration::from_millis(700), ..MessageSettings::default() };
    TcpSettings { security, messages }
}

pub(crate) fn group_key() -> Security {
    Security::GroupKey(GroupKey::generate().unwrap())
}

/// Key pairs of so many ranks, as the settings of each.
pub(crate) fn key_pairs(ranks: usize) -> Vec<Security> {
    let pairs: Vec<KeyPair> = (0..ranks).map(|_| KeyPair::generate().unwrap()).collect();
    let public: Vec<PublicKey> = pairs.iter().map(KeyPair::public).collect();
    pairs.into_iter().map(|own| Security::KeyPairs { own, public: public.clone() }).collect()
}

/// Addresses of this machine at which nobody listens.
pub(crate) fn addresses(count: usize) -> Vec<SocketAddr> {
    (0..count).map(|_| free_address(Ipv4Addr::LOCALHOST)).collect()
}

/// Joins as each rank, on threads, and sums the ranks.
pub(crate) fn sums(rendezvous: &Rendezvous, of_ranks: &[Security]) -> Vec<u64> {
    let of_ranks: Vec<_> = of_ranks.iter().map(|security| (rendezvous.clone(), security.clone())).collect();
    sums_of(&of_ranks)
}

/// Joins as each rank, by its own rendezvous and security, on threads, and sums the ranks.
pub(crate) fn sums_of(of_ranks: &[(Rendezvous, Security)]) -> Vec<u64> {
    let ranks = of_ranks.len();
    thread::scope(|scope| {
        let join = |rank: usize| {
            let (rendezvous, security) = &of_ranks[rank];
            let settings = settings(security.clone());
            let mut group = TcpGroup::join(rendezvous, rank, ranks, settings).expect("all join");
            let mut vector = [rank as u64];
            group.all_reduce(ReduceOp::Sum, &mut vector).unwrap();
            vector[0]
        };
        let threads: Vec<_> = (0..ranks).map(|rank| scope.spawn(move || join(rank))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn ranks_meet_by_a_list_or_by_one_address() {
    let all = addresses(4);
    for security in [vec![Security::Plaintext; 4], vec![group_key(); 4], key_pairs(4)] {
        assert_eq!(sums(&Rendezvous::Address(all[0]), &security), [6; 4], "{security:?}");
        assert_eq!(sums(&Rendezvous::List(all.clone()), &security), [6; 4], "{security:?}");
    }
}

#[test]
fn a_rank_whose_deadline_ends_first_learns_who_is_missing_and_may_come_again() {
    for security in [Security::Plaintext, group_key()] {
        let rendezvous = Rendezvous::Address(addresses(1)[0]);
        thread::scope(|scope| {
            let join = |rank, settings: fn(Security) -> TcpSettings| {
                TcpGroup::join(&rendezvous, rank, 3, settings(security.clone()))
            };
            let patient = |rank| scope.spawn(move || join(rank, settings).map(drop));
            let rank_0 = patient(0);
            let error = join(2, hasty).err().expect("rank 1 is missing");
            let JoinError::Missing { missing, .. } = &error else { panic!("{error}") };
            assert_eq!(missing, &[1], "{error}");
            for rank in [patient(2), patient(1), rank_0] {
                rank.join().unwrap().unwrap();
            }
        });
    }
}

#[test]
fn addresses_of_other_machines_are_refused() {
    let address: SocketAddr = "192.0.2.7:4000".parse().unwrap();
    for rank in [0, 1] {
        let error =
            TcpGroup::join(&Rendezvous::Address(address), rank, 2, plain()).err().expect("not loopback");
        assert!(matches!(error, JoinError::Unprotected { .. }), "{error}");
    }
}

#[test]
fn a_list_needs_an_address_for_each_rank() {
    let error = TcpGroup::join(&Rendezvous::List(addresses(2)), 0, 3, plain()).err().expect("one is missing");
    assert_eq!(error.to_string(), "2 addresses for 3 ranks; there must be one for each rank");
    for tcp_connections in [0, 9] {
        let messages = MessageSettings { tcp_connections, ..MessageSettings::default() };
        let settings = TcpSettings { security: Security::Plaintext, messages };
        let error = TcpGroup::join(&Rendezvous::List(addresses(2)), 0, 2, settings).err().expect("refused");
        let expected = format!("`tcp_connections` is {tcp_connections}; it must be 1 to 8");
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn ranks_with_other_settings_are_refused_by_name() {
    let rendezvous = Rendezvous::Address(addresses(1)[0]);
    let deadline = Duration::from_millis(500);
    let errors = thread::scope(|scope| {
        let join = |rank, ranks, algorithm| {
            let messages = MessageSettings { deadline, algorithm, ..MessageSettings::default() };
            let settings = TcpSettings { security: Security::Plaintext, messages };
            TcpGroup::join(&rendezvous, rank, ranks, settings).err().expect("a refusal").to_string()
        };
        let threads = [(0, 3, None), (1, 4, None), (2, 3, Some(Algorithm::Ring))];
        let threads =
            threads.map(|(rank, ranks, algorithm)| scope.spawn(move || join(rank, ranks, algorithm)));
        threads.map(|thread| thread.join().unwrap())
    });
    assert!(errors[0].starts_with("ranks 1, 2 did not join 127.0.0.1:"), "{}", errors[0]);
    assert_eq!(errors[1], "rank 0 refuses this rank: its group has 3 ranks, this one 4");
    assert_eq!(
        errors[2],
        "rank 0 refuses this rank: its `MessageSettings` differ (tcp_connections, tcp_encryption, order, algorithm, piece_bytes, tune or uniform); use the same settings on all ranks"
    );
}

#[test]
fn another_program_at_a_rank_s_address_is_named() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 48];
        stream.read_exact(&mut request).unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").unwrap();
    });
    let error = TcpGroup::join(&Rendezvous::Address(address), 1, 2, plain()).err().expect("no rank");
    assert!(matches!(error, JoinError::NoRank { rank: 0, .. }), "{error}");
    server.join().unwrap();
}

/// A hello of version 2, whose later fields nobody knows.
fn hello_of_version_2() -> [u8; 48] {
    let mut bytes = [7; 48];
    bytes[..8].copy_from_slice(b"ORINOCO\0");
    bytes[8..10].copy_from_slice(&2_u16.to_le_bytes());
    bytes
}

#[test]
fn a_rank_of_another_version_is_named() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut [0; 48]).unwrap();
        stream.write_all(&hello_of_version_2()).unwrap();
    });
    let error = TcpGroup::join(&Rendezvous::Address(address), 1, 2, plain()).err().expect("another version");
    assert_eq!(
        error.to_string(),
        format!(
            "rank 0 at {address} uses version 2 of the wire format, this rank version 1.1; install the same version of Orinoco on all machines"
        )
    );
    server.join().unwrap();
}

#[test]
fn a_rank_of_another_version_learns_of_this_one() {
    let address = addresses(1)[0];
    let rendezvous = Rendezvous::Address(address);
    thread::scope(|scope| {
        let rank_0 = scope.spawn(|| TcpGroup::join(&rendezvous, 0, 2, hasty(Security::Plaintext)).err());
        let mut stream = connect(address);
        stream.write_all(&hello_of_version_2()).unwrap();
        let mut answer = [0; 48];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!((&answer[..8], answer[8], answer[9]), (&b"ORINOCO\0"[..], 1, 0));
        let error = rank_0.join().unwrap().expect("nobody joined");
        let text = error.to_string();
        assert!(matches!(error, JoinError::Missing { .. }), "{text}");
        let versions = "version 2 of the wire format was refused, since this rank uses version 1.1";
        assert!(text.contains(versions), "{text}");
    });
}

/// Port scans, garbage, and connections that say nothing do not keep ranks from joining.
#[test]
fn strangers_do_not_keep_ranks_from_joining() {
    for security in [Security::Plaintext, group_key()] {
        join_among_strangers(security);
    }
}

fn join_among_strangers(security: Security) {
    let address = addresses(1)[0];
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let stranger = thread::spawn(move || {
        let mut open = Vec::new();
        let mut number = 0usize;
        while stopped.try_recv().is_err() {
            let Ok(mut stream) = TcpStream::connect(address) else {
                thread::yield_now();
                continue;
            };
            number += 1;
            match number % 3 {
                0 => drop(stream),
                1 => drop(stream.write_all(&[0x4f; 500])),
                _ => open.push(stream),
            }
            open.truncate(100);
        }
        number
    });
    assert_eq!(sums(&Rendezvous::Address(address), &vec![security; 3]), [3; 3]);
    stop.send(()).unwrap();
    stranger.join().unwrap();
}

#[test]
fn a_rank_that_was_shown_out_comes_again() {
    for security in [Security::Plaintext, group_key()] {
        let (_, sums) = through_busy_proxy(3, &settings(security), &[21], |_, _, _| {});
        assert_eq!(sums.map(Result::unwrap), [[42], [42]]);
    }
}

#[test]
fn a_program_that_closes_all_connections_is_named() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let rendezvous = Rendezvous::Address(listener.local_addr().unwrap());
    // The first time, and five more.
    let server = thread::spawn(move || (0..6).for_each(|_| drop(listener.accept().unwrap())));
    let error = TcpGroup::join(&rendezvous, 1, 2, plain()).err().expect("no rank");
    assert!(matches!(error, JoinError::NoRank { rank: 0, .. }), "{error}");
    server.join().unwrap();
}

/// They are as many as the lobby takes several times over, and would have to be waited for one lobby after the other.
#[test]
fn connections_that_say_nothing_do_not_fill_the_lobby() {
    let address = addresses(1)[0];
    let messages = MessageSettings { deadline: Duration::from_secs(8), ..MessageSettings::default() };
    let settings = TcpSettings { security: Security::Plaintext, messages };
    thread::scope(|scope| {
        let join = |rank| {
            let settings = settings.clone();
            scope.spawn(move || TcpGroup::join(&Rendezvous::Address(address), rank, 2, settings).map(drop))
        };
        let first = join(0);
        let mut silent = vec![connect(address)];
        silent.extend((0..600).filter_map(|_| TcpStream::connect(address).ok()));
        let second = join(1);
        first.join().unwrap().expect("rank 0 joins");
        second.join().unwrap().expect("rank 1 joins");
        drop(silent);
    });
}

#[test]
fn a_file_with_an_address_of_another_machine_is_refused() {
    let path = name();
    let mut file = File::create(&path).unwrap();
    // A rank 0 that waits has a lock.
    file.try_lock().unwrap();
    file.write_all(b"192.0.2.7:4000\n").unwrap();
    let error = TcpGroup::join(&Rendezvous::File(path.clone()), 1, 2, plain()).err().expect("not loopback");
    assert!(matches!(error, JoinError::Unprotected { .. }), "{error}");
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn ranks_reach_rank_0_at_the_address_that_they_know() {
    let security = group_key();
    let port = free_address(Ipv4Addr::UNSPECIFIED).port();
    let at = |ip: [u8; 4]| (Rendezvous::Address(SocketAddr::from((ip, port))), security.clone());
    // Rank 0 listens at all addresses of the machine, and does not know at which of them it is reached.
    assert_eq!(sums_of(&[at([0, 0, 0, 0]), at([127, 0, 0, 1]), at([127, 0, 0, 7])]), [3; 3]);
}

#[test]
fn loopback_addresses_are_refused_where_others_are_not() {
    let security = group_key();
    let list: Vec<SocketAddr> = ["127.0.0.1:4000", "192.0.2.7:4000"].map(|text| text.parse().unwrap()).into();
    let error =
        TcpGroup::join(&Rendezvous::List(list), 0, 2, settings(security.clone())).err().expect("refused");
    assert_eq!(
        error.to_string(),
        "rank 0 has the loopback address 127.0.0.1:4000, at which no other machine can reach it, and rank 1 has 192.0.2.7:4000; give each rank the address of a network interface"
    );
}

#[test]
#[expect(clippy::print_stdout, reason = "a skipped test says so")]
fn all_ranks_say_that_one_came_from_loopback() {
    let Some(ip) = own_address() else {
        println!("skipped: all_ranks_say_that_one_came_from_loopback: this machine has loopback only");
        return;
    };
    let port = free_address(Ipv4Addr::UNSPECIFIED).port();
    let security = group_key();
    let ips = [IpAddr::from(Ipv4Addr::UNSPECIFIED), IpAddr::from(Ipv4Addr::LOCALHOST), ip];
    let errors = thread::scope(|scope| {
        let join = |rank: usize| {
            let rendezvous = Rendezvous::Address(SocketAddr::new(ips[rank], port));
            TcpGroup::join(&rendezvous, rank, 3, settings(security.clone())).err().expect("refused")
        };
        let threads = [0, 1, 2].map(|rank| scope.spawn(move || join(rank)));
        threads.map(|thread| thread.join().unwrap())
    });
    for error in errors {
        assert!(matches!(error, JoinError::Loopback { rank: 1, other: 2, .. }), "{error}");
    }
}
