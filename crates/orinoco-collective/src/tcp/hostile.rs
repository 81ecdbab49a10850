//! Hellos, targets, directories and rendezvous files that no rank would write.

use std::fs::File;
use std::net::SocketAddr;

use super::directory::{decode, directory_bytes, encode};
use super::hello::{ClusterHello, HELLO_BYTES, Hello};
use super::rendezvous::Meeting;
use super::target::{TARGET_BYTES, Target};
use crate::GroupKey;
use crate::mutations::{check, mutate, noise, seal_checksum, set_number};

fn hello(from: u32) -> Hello {
    Hello {
        kind: 3,
        security: 1,
        epoch: 0,
        ranks: 4,
        from,
        to: 0,
        detail: 4711,
        settings: 77,
        cluster: ClusterHello::default(),
    }
}

#[test]
fn any_hello_is_read_or_refused() {
    check("hello", |rng| {
        let mut bytes = hello(1).encode().to_vec();
        match rng.u32(..3) {
            0 => bytes = noise(rng, HELLO_BYTES),
            1 => mutate(rng, &mut bytes, &hello(2).encode()),
            _ => {
                let at = rng.usize(8..HELLO_BYTES - 4);
                set_number(rng, &mut bytes, at);
                seal_checksum(&mut bytes);
            }
        }
        bytes.resize(HELLO_BYTES, 0);
        let is_changed = bytes[..] != hello(1).encode();
        if let Some(read) = Hello::decode(bytes.as_slice().try_into().unwrap()) {
            assert_eq!(Hello::decode(&read.encode()), Some(read));
            let _ = (read.purpose(), read.answer());
            let is_sealed =
                crc32c::crc32c(&bytes[..HELLO_BYTES - 4]).to_le_bytes() == bytes[HELLO_BYTES - 4..];
            assert!(!is_changed || is_sealed, "a changed hello has a right checksum");
        }
    });
}

#[test]
fn any_target_is_read_or_refused() {
    let target = |group: &str, rank| Target::of_rank(group, rank).unwrap().encode();
    check("target", |rng| {
        let mut bytes = target("training", 1).to_vec();
        match rng.u32(..3) {
            0 => bytes = noise(rng, TARGET_BYTES),
            1 => mutate(rng, &mut bytes, &target("other", 2)),
            _ => {
                let at = rng.usize(8..TARGET_BYTES - 4);
                set_number(rng, &mut bytes, at);
                seal_checksum(&mut bytes);
            }
        }
        bytes.resize(TARGET_BYTES, 0);
        if let Some(read) = Target::decode(bytes.as_slice().try_into().unwrap()) {
            assert_eq!(read.encode()[..], bytes, "one target has one form");
            assert!(
                Hello::decode(bytes.as_slice().try_into().unwrap())
                    .is_none_or(|hello| hello.purpose().is_none())
            );
        }
    });
}

#[test]
fn any_directory_is_read_or_refused() {
    let all = |start: u16| -> Vec<SocketAddr> {
        (0..5).map(|rank| SocketAddr::from(([10, 0, 0, 1], start + rank))).collect()
    };
    check("directory", |rng| {
        let mut bytes = encode(&all(4000));
        match rng.u32(..3) {
            0 => {
                let len = rng.usize(..200);
                bytes = noise(rng, len);
            }
            1 => mutate(rng, &mut bytes, &encode(&all(5000))),
            _ => {
                let at = rng.usize(..bytes.len() - 4);
                set_number(rng, &mut bytes, at);
                seal_checksum(&mut bytes);
            }
        }
        if let Some(read) = decode(&bytes) {
            assert!(directory_bytes(read.len()) <= bytes.len());
        }
    });
}

#[test]
fn any_rendezvous_file_is_read_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("meeting");
    let rank_0 = File::create(&path).unwrap();
    rank_0.try_lock().unwrap();
    let key = GroupKey::generate().unwrap().to_text();
    let text = |port: u16| format!("127.0.0.1:{port} {}\n", key.as_str());
    check("rendezvous file", |rng| {
        let mut bytes = text(4000).into_bytes();
        match rng.u32(..3) {
            0 => {
                let len = rng.usize(..3000);
                bytes = noise(rng, len);
            }
            _ => mutate(rng, &mut bytes, text(5000).as_bytes()),
        }
        std::fs::write(&path, &bytes).unwrap();
        match Meeting::read(&path) {
            Ok(meeting) => assert!(meeting.is_some(), "the file is there"),
            // The error is shown to people, and must not show them the key.
            Err(error) => assert!(!error.to_string().contains(key.as_str()), "{error}"),
        }
    });
}
