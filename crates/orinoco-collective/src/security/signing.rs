use std::fmt;
use std::path::Path;
use std::str::FromStr;

use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use zeroize::Zeroizing;

use super::keys::{KEY_BYTES, KeyError, from_text, random_key, read_secret, to_text, write_secret};

/// First word of the file.
const SIGNING_FILE: &str = "orinoco-signing-key";
/// Bytes of a signature.
const SIGNATURE_BYTES: usize = 64;

/// Secret with which an operator signs the member list of a cluster, on Ed25519 (RFC 8032). Boards do not need it.
pub struct SigningKey(Zeroizing<[u8; KEY_BYTES]>);

/// Public key with which seats check that list. As text it has 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct VerifyingKey([u8; KEY_BYTES]);

impl SigningKey {
    /// Generates a key.
    ///
    /// # Errors
    /// If the system has no randomness.
    pub fn generate() -> Result<Self, KeyError> {
        random_key().map(Self)
    }

    /// Reads a key from a file that [`SigningKey::write`] has written.
    ///
    /// # Errors
    /// If the file cannot be read, if other users can read it, or if it holds something else.
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        let [key] = read_secret(path, SIGNING_FILE, 1)?.try_into().expect("one key");
        Ok(Self(key))
    }

    /// Writes the key to a new file that only this user can read.
    ///
    /// # Errors
    /// If the file exists or cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), KeyError> {
        write_secret(path, SIGNING_FILE, &[&self.0])
    }

    /// The public key.
    pub fn verifying_key(&self) -> VerifyingKey {
        VerifyingKey(self.pair().public_key().as_ref().try_into().expect("keys of Ed25519 have 32 bytes"))
    }

    /// Signs a message. The signature is in hexadecimal digits.
    pub(crate) fn sign(&self, message: &[u8]) -> String {
        self.pair().sign(message).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn pair(&self) -> Ed25519KeyPair {
        Ed25519KeyPair::from_seed_unchecked(&*self.0).expect("any 32 bytes are a secret key of Ed25519")
    }
}

impl VerifyingKey {
    /// Whether the owner of the key has signed a message.
    pub(crate) fn verifies(&self, message: &[u8], signature: &str) -> bool {
        let Some(halves) = signature.split_at_checked(SIGNATURE_BYTES) else { return false };
        let (Some(first), Some(second)) = (from_text(halves.0), from_text(halves.1)) else { return false };
        let signature = [*first, *second].concat();
        UnparsedPublicKey::new(&ED25519, &self.0).verify(message, &signature).is_ok()
    }
}

impl FromStr for VerifyingKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        from_text(text).map(|key| Self(*key)).ok_or(KeyError::Digits)
    }
}

impl fmt::Display for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&to_text(&self.0))
    }
}

impl fmt::Debug for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VerifyingKey({self})")
    }
}

impl fmt::Debug for SigningKey {
    /// Leaves the key out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_owner_s_signature_of_the_same_message_is_right() {
        let (key, other) = (SigningKey::generate().unwrap(), SigningKey::generate().unwrap());
        let signature = key.sign(b"list");
        assert!(key.verifying_key().verifies(b"list", &signature));
        assert!(!key.verifying_key().verifies(b"lost", &signature));
        assert!(!other.verifying_key().verifies(b"list", &signature));
        for damaged in
            ["", "00", &signature[1..], &signature.replace(|digit| digit != '0', "0"), &"é".repeat(64)]
        {
            assert!(!key.verifying_key().verifies(b"list", damaged), "{damaged}");
        }
    }

    #[test]
    fn the_key_of_rfc_8032_gives_its_public_key() {
        // Section 7.1, test 1.
        let secret = from_text("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60").unwrap();
        let public = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
        assert_eq!(SigningKey(secret).verifying_key().to_string(), public);
    }

    #[test]
    fn a_key_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let (path, key) = (folder.path().join("key"), SigningKey::generate().unwrap());
        key.write(&path).unwrap();
        assert_eq!(SigningKey::read(&path).unwrap().verifying_key(), key.verifying_key());
        assert!(!format!("{key:?}").contains(&*to_text(&key.0)));
    }
}
