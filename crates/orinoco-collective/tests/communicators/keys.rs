//! Keys of TCP connections: who is refused, and what others on the way see and can do.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::thread;

use orinoco_collective::{
    CollectiveError, FailureCause, JoinError, MessageSettings, Rendezvous, Security, TcpGroup, TcpSettings,
};

use crate::addresses::free_address;
use crate::name;
use crate::proxy::{Carried, connect, through_proxy};
use crate::tcp::{addresses, group_key, hasty, key_pairs, settings, sums};

/// Joins two ranks, each with its own settings. Returns their errors.
fn errors(rendezvous: [&Rendezvous; 2], settings: [TcpSettings; 2]) -> [JoinError; 2] {
    thread::scope(|scope| {
        let [first, second] = settings;
        let first = scope.spawn(|| TcpGroup::join(rendezvous[0], 0, 2, first).err().expect("rank 0 fails"));
        let second = scope.spawn(|| TcpGroup::join(rendezvous[1], 1, 2, second).err().expect("rank 1 fails"));
        [first.join().unwrap(), second.join().unwrap()]
    })
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
        let rendezvous = Rendezvous::Address(addresses(1)[0]);
        let errors = errors([&rendezvous; 2], [hasty(first), hasty(second)]);
        let [first, second] = errors.map(|error| error.to_string());
        assert!(first.starts_with("rank 1 did not join"), "{first}");
        assert!(first.contains("; 1 connection was refused because of its key;"), "{first}");
        assert_eq!(
            second,
            "rank 0 refuses this rank: the key that it has for rank 1 is not that of this rank"
        );
    }
}

#[test]
fn ranks_with_another_kind_of_protection_are_refused_by_name() {
    let kinds = [
        (Security::Plaintext, "no protection"),
        (group_key(), "a group key"),
        (key_pairs(2)[0].clone(), "key pairs"),
    ];
    for (first, theirs) in &kinds {
        for (second, ours) in [(Security::Plaintext, "no protection"), (group_key(), "a group key")] {
            if *theirs == ours {
                continue;
            }
            let rendezvous = Rendezvous::Address(addresses(1)[0]);
            let [_, error] = errors([&rendezvous; 2], [hasty(first.clone()), hasty(second)]);
            let expected = format!("rank 0 refuses this rank: it expects {theirs}, this rank has {ours}");
            assert_eq!(error.to_string(), expected);
        }
    }
}

#[test]
fn keys_that_do_not_fit_are_refused() {
    let rendezvous = Rendezvous::Address(addresses(1)[0]);
    let error =
        |rank, security| TcpGroup::join(&rendezvous, rank, 3, hasty(security)).err().expect("a refusal");
    assert!(matches!(error(0, Security::FileKey), JoinError::NoKeyFile));
    assert!(matches!(error(1, key_pairs(3)[0].clone()), JoinError::OwnKey { rank: 1 }), "another rank's key");
    assert!(matches!(error(1, key_pairs(2)[1].clone()), JoinError::Keys { keys: 2, .. }), "too few keys");
    let path = name();
    let mut file = File::create(&path).unwrap();
    // A rank 0 that waits has a lock.
    file.try_lock().unwrap();
    file.write_all(b"127.0.0.1:4000\n").unwrap();
    let error =
        TcpGroup::join(&Rendezvous::File(path.clone()), 1, 3, hasty(Security::FileKey)).err().unwrap();
    assert!(matches!(error, JoinError::Foreign { .. }), "{error}");
    std::fs::remove_file(&path).unwrap();
}

/// The answer of a rank that accepts a hello, made from that.
fn accepted(hello: &[u8]) -> Vec<u8> {
    let mut answer = hello[..44].to_vec();
    answer[10] = 0;
    answer.extend(crc32c::crc32c(&answer).to_le_bytes());
    answer
}

#[test]
fn a_program_that_accepts_without_the_key_is_not_trusted() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut greeting = [0; 96];
        stream.read_exact(&mut greeting).unwrap();
        stream.write_all(&accepted(&greeting)).unwrap();
        stream.write_all(&[7; 48]).unwrap();
        stream.read(&mut greeting).unwrap()
    });
    let error =
        TcpGroup::join(&Rendezvous::Address(address), 1, 2, settings(group_key())).err().expect("no trust");
    assert!(matches!(error, JoinError::Untrusted { rank: 0, .. }), "{error}");
    assert_eq!(server.join().unwrap(), 0, "it is sent nothing more");
}

/// Turns the encryption of messages off.
fn unencrypted(settings: TcpSettings) -> TcpSettings {
    let messages = MessageSettings { tcp_encryption: false, ..settings.messages };
    TcpSettings { messages, ..settings }
}

#[test]
fn ranks_agree_on_the_encryption_of_messages() {
    let rendezvous = Rendezvous::Address(addresses(1)[0]);
    let key = group_key();
    for is_first in [true, false] {
        let one_of = |is_this| match is_this {
            true => unencrypted(hasty(key.clone())),
            false => hasty(key.clone()),
        };
        let [_, error] = errors([&rendezvous; 2], [one_of(is_first), one_of(!is_first)]);
        let text = error.to_string();
        assert!(text.starts_with("rank 0 refuses this rank: its `MessageSettings` differ"), "{text}");
    }
}

#[test]
fn connections_with_keys_show_nothing_to_others_on_the_way() {
    let vector = vec![0x1234_5678_9abc_def0u64; 40_000];
    let shows = |carried: &[Carried]| {
        let pattern = vector[0].to_le_bytes();
        carried.iter().flatten().any(|bytes| bytes.windows(8).any(|window| window == pattern))
    };
    let cases = [
        (settings(Security::Plaintext), true),
        (settings(group_key()), false),
        (unencrypted(settings(group_key())), true),
    ];
    for (settings, is_shown) in cases {
        let (carried, results) = through_proxy(&settings, &vector, |_, _, _| {});
        let sum: Vec<u64> = vector.iter().map(|element| element * 2).collect();
        assert!(results.into_iter().all(|result| result.expect("a result") == sum));
        assert_eq!(shows(&carried), is_shown);
    }
}

/// Changes a bit of a message, far behind the handshake.
fn flip_a_bit(purpose: u8, start: usize, bytes: &mut [u8]) {
    const MESSAGES: u8 = 3;
    const AT: usize = 50_000;
    if purpose == MESSAGES && (start..start + bytes.len()).contains(&AT) {
        bytes[AT - start] ^= 4;
    }
}

#[test]
fn bytes_that_are_changed_on_the_way_end_the_group() {
    let (_, results) = through_proxy(&settings(group_key()), &[7; 40_000], flip_a_bit);
    for result in results {
        let error = result.expect_err("damaged");
        let is_named =
            matches!(&error, CollectiveError::EpochFailed { rank: 1, cause: FailureCause::Damaged, .. });
        assert!(is_named, "{error}");
    }
}

#[test]
fn a_recorded_connection_does_not_join() {
    let key = group_key();
    does_not_join_again(&settings(key.clone()), hasty(key.clone()));
    does_not_join_again(&unencrypted(settings(key.clone())), unencrypted(hasty(key)));
}

/// Records what a rank sends that joins with some settings, and sends it again to another one.
fn does_not_join_again(recorded: &TcpSettings, hasty: TcpSettings) {
    let (carried, _) = through_proxy(recorded, &[7; 10], |_, _, _| {});
    let address = addresses(1)[0];
    let error = thread::scope(|scope| {
        let all = vec![address, addresses(1)[0]];
        let rank = scope.spawn(|| TcpGroup::join(&Rendezvous::List(all), 0, 2, hasty).err());
        for [out, _] in &carried {
            connect(address).write_all(out).unwrap();
        }
        rank.join().unwrap().expect("nobody joins")
    });
    let JoinError::Missing { missing, turned_away, .. } = error else { panic!("{error}") };
    assert_eq!((missing, turned_away), (vec![1], 2));
}

/// An address of this machine that is not loopback, if it has one.
pub(crate) fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    // It only chooses a route: nothing is sent.
    socket.connect(("192.0.2.7", 9)).ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|ip| !ip.is_loopback())
}

#[test]
#[expect(clippy::print_stdout, reason = "a skipped test says so")]
fn ranks_with_keys_join_at_addresses_that_are_not_loopback() {
    let Some(ip) = own_address() else {
        println!(
            "skipped: ranks_with_keys_join_at_addresses_that_are_not_loopback: this machine has loopback only"
        );
        return;
    };
    let all: Vec<SocketAddr> = (0..3).map(|_| free_address(ip)).collect();
    for security in [vec![group_key(); 3], key_pairs(3)] {
        assert_eq!(sums(&Rendezvous::List(all.clone()), &security), [3; 3]);
    }
}
