//! Noise handshakes.
//!
//! With a group key: `Noise_NNpsk0_25519_AESGCM_SHA256`. With key pairs: `Noise_KK_25519_AESGCM_SHA256`. Both have two messages of 48
//! bytes; the second may have a payload, which makes it longer. The prologue is the hello, so that version, epoch, ranks and settings are part of the transcript. The
//! first sealed record of the side that connects confirms that it has its key: its first message alone could be one that was
//! recorded earlier.

use snow::{Builder, HandshakeState};

use super::keys::KEY_BYTES;
use super::protection::Keys;
use super::seal::Seal;

/// Bytes of a message of a handshake: an ephemeral key and a tag.
pub(crate) const HANDSHAKE_BYTES: usize = KEY_BYTES + 16;

const WITH_GROUP_KEY: &str = "Noise_NNpsk0_25519_AESGCM_SHA256";
const WITH_KEY_PAIRS: &str = "Noise_KK_25519_AESGCM_SHA256";

/// A handshake under way.
pub(crate) struct Handshake(HandshakeState);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Initiator,
    Responder,
}

impl Handshake {
    /// Begins the handshake of the side that connects. `None` without keys.
    pub(crate) fn initiator(keys: &Keys, peer: usize, prologue: &[u8]) -> Option<Self> {
        Self::new(keys, peer, prologue, Side::Initiator)
    }

    /// Begins the handshake of the side that accepts. `None` without keys.
    pub(crate) fn responder(keys: &Keys, peer: usize, prologue: &[u8]) -> Option<Self> {
        Self::new(keys, peer, prologue, Side::Responder)
    }

    fn new(keys: &Keys, peer: usize, prologue: &[u8], side: Side) -> Option<Self> {
        let builder = |name: &str| Builder::new(name.parse().expect("a pattern that snow knows"));
        let builder = match keys {
            Keys::Plaintext => return None,
            Keys::Group(key) => builder(WITH_GROUP_KEY).psk(0, &key.0),
            Keys::Pairs { own, public } => builder(WITH_KEY_PAIRS)
                .local_private_key(&*own.secret)
                .and_then(|builder| builder.remote_public_key(&public[peer].0)),
        };
        let builder = builder.and_then(|builder| builder.prologue(prologue)).expect("each is set once");
        let state = match side {
            Side::Initiator => builder.build_initiator(),
            Side::Responder => builder.build_responder(),
        };
        Some(Self(state.expect("the pattern has its keys")))
    }

    /// This side's message.
    pub(crate) fn write(&mut self) -> [u8; HANDSHAKE_BYTES] {
        self.write_with(&[]).try_into().expect("a message without payload")
    }

    /// This side's message with a short payload, by which it is longer.
    pub(crate) fn write_with(&mut self, payload: &[u8]) -> Vec<u8> {
        let mut message = vec![0; HANDSHAKE_BYTES + payload.len()];
        let len = self.0.write_message(payload, &mut message).expect("it is this side's turn");
        assert_eq!(len, message.len(), "a message is a key, the payload and a tag");
        message
    }

    /// Reads the other side's message. `false` if it does not have the key.
    #[must_use]
    pub(crate) fn read(&mut self, message: &[u8; HANDSHAKE_BYTES]) -> bool {
        self.read_with(message, &[])
    }

    /// Reads the other side's message. `false` if it does not have the key, or if the payload is another.
    #[must_use]
    pub(crate) fn read_with(&mut self, message: &[u8], payload: &[u8]) -> bool {
        let mut found = vec![0; message.len()];
        self.0.read_message(message, &mut found).is_ok_and(|len| found[..len] == *payload)
    }

    /// Keys of the connection, after both messages.
    pub(crate) fn finish(self) -> Seal {
        Seal::new(self.0.into_stateless_transport_mode().expect("both messages were exchanged"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GroupKey, KeyPair};

    /// Whether both sides end with keys of one connection.
    fn meet(first: &Keys, second: &Keys, prologues: [&[u8]; 2]) -> bool {
        let mut initiator = Handshake::initiator(first, 1, prologues[0]).unwrap();
        let mut responder = Handshake::responder(second, 0, prologues[1]).unwrap();
        if !responder.read(&initiator.write()) || !initiator.read(&responder.write()) {
            return false;
        }
        let confirmation = initiator.finish().confirmation();
        responder.finish().confirms(&confirmation)
    }

    fn pairs(own: &KeyPair, public: [&KeyPair; 2]) -> Keys {
        Keys::Pairs { own: own.clone(), public: public.map(KeyPair::public).to_vec() }
    }

    #[test]
    fn only_those_with_the_keys_meet() {
        let [a, b, c] = std::array::from_fn(|_| KeyPair::generate().unwrap());
        let (right, wrong) = (GroupKey::generate().unwrap(), GroupKey::generate().unwrap());
        let group = |key: &GroupKey| Keys::Group(key.clone());
        let same: [&[u8]; 2] = [b"hello", b"hello"];
        assert!(meet(&group(&right), &group(&right), same));
        assert!(!meet(&group(&right), &group(&wrong), same));
        assert!(!meet(&group(&right), &group(&right), [b"hello", b"hallo"]), "the prologue is part of it");
        assert!(meet(&pairs(&a, [&a, &b]), &pairs(&b, [&a, &b]), same));
        assert!(!meet(&pairs(&c, [&c, &b]), &pairs(&b, [&a, &b]), same), "a stranger connects");
        assert!(!meet(&pairs(&a, [&a, &b]), &pairs(&c, [&a, &c]), same), "a stranger accepts");
        assert!(!meet(&pairs(&b, [&b, &b]), &pairs(&b, [&a, &b]), same), "a rank says that it is another");
    }

    #[test]
    fn a_recorded_handshake_is_not_confirmed() {
        let key = Keys::Group(GroupKey::generate().unwrap());
        let mut initiator = Handshake::initiator(&key, 1, b"").unwrap();
        let recorded = initiator.write();
        let mut responder = Handshake::responder(&key, 0, b"").unwrap();
        assert!(responder.read(&recorded) && initiator.read(&responder.write()));
        let confirmation = initiator.finish().confirmation();
        assert!(responder.finish().confirms(&confirmation));
        let mut again = Handshake::responder(&key, 0, b"").unwrap();
        assert!(again.read(&recorded), "it was right once");
        again.write();
        assert!(!again.finish().confirms(&confirmation));
    }
}
