//! Key files and encrypted streams that were changed.

use std::io::{IoSlice, Write};
use std::os::unix::fs::OpenOptionsExt;

use orinoco_core::Rng;

use super::{GroupKey, Handshake, KeyPair, Keys, Seal};
use crate::message::Moved;
use crate::mutations::{check, mutate, noise};

#[test]
fn any_key_file_is_read_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let content = |name: &str, write: &dyn Fn(&std::path::Path)| {
        let path = folder.path().join(name);
        write(&path);
        std::fs::read(path).unwrap()
    };
    let pair = KeyPair::generate().unwrap();
    let of_pair = content("pair", &|path| pair.write(path).unwrap());
    let of_group = content("group", &|path| GroupKey::generate().unwrap().write(path).unwrap());
    let path = folder.path().join("changed");
    check("key file", |rng| {
        let mut bytes = if rng.bool() { of_pair.clone() } else { of_group.clone() };
        match rng.u32(..4) {
            0 => {
                let len = rng.usize(..3000);
                bytes = noise(rng, len);
            }
            _ => mutate(rng, &mut bytes, &of_pair),
        }
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&path).unwrap();
        file.write_all(&bytes).unwrap();
        if let Ok(read) = KeyPair::read(&path) {
            // A bit of a secret key that Curve25519 does not use may have changed.
            assert_eq!(read.public(), pair.public());
        }
        let _ = GroupKey::read(&path);
    });
}

fn connection() -> (Seal, Seal) {
    let keys = Keys::Group(GroupKey::generate().unwrap());
    let mut initiator = Handshake::initiator(&keys, 1, b"").unwrap();
    let mut responder = Handshake::responder(&keys, 0, b"").unwrap();
    assert!(responder.read(&initiator.write()) && initiator.read(&responder.write()));
    (initiator.finish(), responder.finish())
}

/// Records of some sizes.
fn sealed(rng: &mut Rng, sender: &mut Seal, content: &[u8]) -> Vec<u8> {
    let (mut stream, mut start) = (Vec::new(), 0);
    while start < content.len() {
        let end = (start + rng.usize(1..2000)).min(content.len());
        let moved = sender.write(&[IoSlice::new(&content[start..end])], |slices| {
            stream.extend_from_slice(&slices[0]);
            Moved::Bytes(slices[0].len())
        });
        assert_eq!(moved, Moved::Bytes(end - start));
        start = end;
    }
    stream
}

/// The part that opens is a beginning of what was sent, whatever was done to it on the way.
#[test]
fn a_changed_stream_opens_as_far_as_it_was_sent() {
    let content: Vec<u8> = (0..6000u32).map(|at| (at % 251) as u8).collect();
    check("records", |rng| {
        let ((mut sender, mut receiver), (mut stranger, _)) = (connection(), connection());
        let mut stream = sealed(rng, &mut sender, &content);
        let other = sealed(rng, &mut stranger, &content);
        match rng.u32(..8) {
            0 => {
                let len = rng.usize(..3000);
                stream = noise(rng, len);
            }
            _ => mutate(rng, &mut stream, &other),
        }
        let (mut at, mut opened, mut into) = (0, Vec::new(), vec![0; rng.usize(1..5000)]);
        loop {
            let moved = receiver.read(&mut into, |into| {
                let len = rng.usize(1..4000).min(into.len()).min(stream.len() - at);
                into[..len].copy_from_slice(&stream[at..at + len]);
                at += len;
                if len == 0 { Moved::Later } else { Moved::Bytes(len) }
            });
            let Moved::Bytes(len) = moved else { break };
            opened.extend_from_slice(&into[..len]);
        }
        assert!(content.starts_with(&opened), "{} bytes opened", opened.len());
    });
}

/// First messages of a handshake, and confirmations, by those who have no key.
#[test]
fn a_changed_handshake_is_refused() {
    let keys = Keys::Group(GroupKey::generate().unwrap());
    check("handshake", |rng| {
        let mut initiator = Handshake::initiator(&keys, 1, b"").unwrap();
        let mut responder = Handshake::responder(&keys, 0, b"").unwrap();
        let right = initiator.write();
        let mut bytes = right.to_vec();
        let other = noise(rng, 48);
        mutate(rng, &mut bytes, &other);
        bytes.resize(right.len(), 0);
        let is_read = responder.read(bytes.as_slice().try_into().unwrap());
        assert_eq!(is_read, bytes == right, "a changed message is read");
    });
}
