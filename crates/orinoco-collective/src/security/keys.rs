use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use snow::Builder;
use snow::params::DHChoice;
use snow::resolvers::{CryptoResolver, DefaultResolver};
use thiserror::Error;
use zeroize::Zeroizing;

use crate::regular_file::open_regular;

/// Bytes of a key.
pub(crate) const KEY_BYTES: usize = 32;
/// Digits of a key as text.
pub(crate) const DIGITS: usize = 2 * KEY_BYTES;
/// First words of the files.
const PAIR_FILE: &str = "orinoco-secret-key";
const GROUP_FILE: &str = "orinoco-group-key";
/// A pattern on Curve25519, to generate keys for.
const CURVE: &str = "Noise_KK_25519_AESGCM_SHA256";
/// Most bytes of a file that are read.
const FILE_BYTES_MAX: u64 = 1024;

/// Public key of a rank, on Curve25519. As text it has 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PublicKey(pub(super) [u8; KEY_BYTES]);

/// Key pair of a rank, on Curve25519.
#[derive(Clone)]
pub struct KeyPair {
    pub(super) secret: Zeroizing<[u8; KEY_BYTES]>,
    public: PublicKey,
}

/// Secret that all ranks of a group share.
#[derive(Clone)]
pub struct GroupKey(pub(super) Zeroizing<[u8; KEY_BYTES]>);

/// Fault of a key or its file.
#[derive(Debug, Error)]
pub enum KeyError {
    /// The text is no key.
    #[error("expected a key of {DIGITS} hexadecimal digits")]
    Digits,
    /// The file cannot be read or written.
    #[error("{action} {path}")]
    File {
        /// Attempted action.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// Others can read the file.
    #[error(
        "{path} holds a secret, but its mode is {mode:03o}: other users can open it; run `chmod 600 {path}`"
    )]
    Mode {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The file holds something else.
    #[error(
        "{path} is not a `{kind}` file: it must have the word `{kind}` and then a key of {DIGITS} hexadecimal digits"
    )]
    Content {
        /// The file.
        path: PathBuf,
        /// First word of such a file.
        kind: &'static str,
    },
    /// The file holds a public key that is not the one of its secret key.
    #[error("{path} holds a public key that does not belong to its secret key; generate a new key pair")]
    Pair {
        /// The file.
        path: PathBuf,
    },
    /// The system has no randomness.
    #[error("the system provides no randomness: {0}")]
    Randomness(String),
}

impl KeyPair {
    /// Generates a key pair.
    ///
    /// # Errors
    /// If the system has no randomness.
    pub fn generate() -> Result<Self, KeyError> {
        let builder = Builder::new(CURVE.parse().expect("a pattern that snow knows"));
        let pair = builder.generate_keypair().map_err(|error| KeyError::Randomness(error.to_string()))?;
        let private = Zeroizing::new(pair.private);
        let key =
            |bytes: &[u8]| <[u8; KEY_BYTES]>::try_from(bytes).expect("keys of Curve25519 have 32 bytes");
        Ok(Self { secret: Zeroizing::new(key(&private)), public: PublicKey(key(&pair.public)) })
    }

    /// The public key.
    pub fn public(&self) -> PublicKey {
        self.public
    }

    /// Reads a key pair from a file that [`KeyPair::write`] has written.
    ///
    /// # Errors
    /// If the file cannot be read, if other users can read it, if it holds something else, or if its keys are not a pair.
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        let keys = read_secret(path, PAIR_FILE, 2)?;
        let [secret, public] = keys.try_into().expect("two keys");
        let public = PublicKey(*public);
        match public == public_of(&secret) {
            true => Ok(Self { secret, public }),
            false => Err(KeyError::Pair { path: path.to_owned() }),
        }
    }

    /// Writes the key pair to a new file that only this user can read.
    ///
    /// # Errors
    /// If the file exists or cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), KeyError> {
        let public = Zeroizing::new(self.public.0);
        write_secret(path, PAIR_FILE, &[&self.secret, &public])
    }
}

impl GroupKey {
    /// Generates a key.
    ///
    /// # Errors
    /// If the system has no randomness.
    pub fn generate() -> Result<Self, KeyError> {
        random_key().map(Self)
    }

    /// Reads a key from a file that [`GroupKey::write`] has written.
    ///
    /// # Errors
    /// If the file cannot be read, if other users can read it, or if it holds something else.
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        let [key] = read_secret(path, GROUP_FILE, 1)?.try_into().expect("one key");
        Ok(Self(key))
    }

    /// Writes the key to a new file that only this user can read.
    ///
    /// # Errors
    /// If the file exists or cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), KeyError> {
        write_secret(path, GROUP_FILE, &[&self.0])
    }

    /// The key as text of 64 hexadecimal digits, which is as secret as the key.
    pub fn to_text(&self) -> Zeroizing<String> {
        to_text(&self.0)
    }

    /// Reads a key from such a text. `None` if it is something else.
    pub fn from_text(text: &str) -> Option<Self> {
        from_text(text).map(Self)
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        from_text(text).map(|key| Self(*key)).ok_or(KeyError::Digits)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&to_text(&self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

impl fmt::Debug for KeyPair {
    /// Writes the public key only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyPair").field("public", &self.public).finish_non_exhaustive()
    }
}

impl fmt::Debug for GroupKey {
    /// Leaves the key out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GroupKey(..)")
    }
}

/// A key of random bytes.
pub(super) fn random_key() -> Result<Zeroizing<[u8; KEY_BYTES]>, KeyError> {
    let mut key = Zeroizing::new([0; KEY_BYTES]);
    getrandom::fill(&mut *key).map_err(|error| KeyError::Randomness(error.to_string()))?;
    Ok(key)
}

/// The public key of a secret one.
fn public_of(secret: &[u8; KEY_BYTES]) -> PublicKey {
    let mut curve = DefaultResolver.resolve_dh(&DHChoice::Curve25519).expect("a curve that snow knows");
    curve.set(secret);
    PublicKey(curve.pubkey().try_into().expect("keys of Curve25519 have 32 bytes"))
}

pub(super) fn to_text(key: &[u8; KEY_BYTES]) -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::with_capacity(DIGITS));
    for byte in key {
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from_digit(u32::from(digit), 16).expect("a hexadecimal digit"));
        }
    }
    text
}

pub(super) fn from_text(text: &str) -> Option<Zeroizing<[u8; KEY_BYTES]>> {
    let digits = text.as_bytes();
    if digits.len() != DIGITS {
        return None;
    }
    let mut key = Zeroizing::new([0; KEY_BYTES]);
    for (byte, pair) in key.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        *byte = u8::try_from(digit(pair[0])? << 4 | digit(pair[1])?).expect("two digits are a byte");
    }
    Some(key)
}

pub(super) fn read_secret(
    path: &Path,
    kind: &'static str,
    count: usize,
) -> Result<Vec<Zeroizing<[u8; KEY_BYTES]>>, KeyError> {
    let fault = |source| KeyError::File { action: "reading", path: path.to_owned(), source };
    let file = open_regular(path).map_err(fault)?;
    let mode = file.metadata().map_err(fault)?.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(KeyError::Mode { path: path.to_owned(), mode });
    }
    let mut text = Zeroizing::new(String::new());
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(fault)?;
    let content = || KeyError::Content { path: path.to_owned(), kind };
    let mut words = text.split_whitespace();
    if words.next() != Some(kind) {
        return Err(content());
    }
    let keys: Option<Vec<_>> = words.map(from_text).collect();
    keys.filter(|keys| keys.len() == count).ok_or_else(content)
}

pub(super) fn write_secret(
    path: &Path,
    kind: &'static str,
    keys: &[&Zeroizing<[u8; KEY_BYTES]>],
) -> Result<(), KeyError> {
    let fault = |source| KeyError::File { action: "writing", path: path.to_owned(), source };
    let mut text = Zeroizing::new(String::with_capacity(64 + keys.len() * (DIGITS + 1)));
    text.push_str(kind);
    for key in keys {
        text.push(' ');
        text.push_str(&to_text(key));
    }
    text.push('\n');
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(fault)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    written.map_err(|source| {
        // Half a key is none.
        let _ = fs::remove_file(path);
        fault(source)
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn keys_survive_their_files() {
        let folder = tempfile::tempdir().unwrap();
        let (pair_file, group_file) = (folder.path().join("pair"), folder.path().join("group"));
        let (pair, group) = (KeyPair::generate().unwrap(), GroupKey::generate().unwrap());
        pair.write(&pair_file).unwrap();
        group.write(&group_file).unwrap();
        let read = KeyPair::read(&pair_file).unwrap();
        assert_eq!((*read.secret, read.public), (*pair.secret, pair.public));
        assert_eq!(*GroupKey::read(&group_file).unwrap().0, *group.0);
        assert_eq!(pair.public.to_string().parse::<PublicKey>().unwrap(), pair.public);
        assert_eq!(fs::metadata(&pair_file).unwrap().mode() & 0o777, 0o600);
        assert!(matches!(pair.write(&pair_file), Err(KeyError::File { .. })), "a key is never replaced");
        assert!(matches!(KeyPair::read(&group_file), Err(KeyError::Content { .. })));
        assert_ne!(*GroupKey::generate().unwrap().0, *group.0);
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        GroupKey::generate().unwrap().write(&path).unwrap();
        for mode in [0o640, 0o604, 0o620] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let error = GroupKey::read(&path).unwrap_err();
            assert!(error.to_string().contains("chmod 600"), "{mode:o}: {error}");
        }
    }

    #[test]
    fn keys_of_two_pairs_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pair");
        let (own, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        KeyPair { secret: own.secret, public: other.public }.write(&path).unwrap();
        let error = KeyPair::read(&path).unwrap_err();
        assert!(matches!(error, KeyError::Pair { .. }), "{error}");
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let digits = "0f".repeat(32);
        for text in
            ["", GROUP_FILE, &digits, &format!("{GROUP_FILE} {digits} {digits}"), "orinoco-group-key xyz"]
        {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            assert!(matches!(GroupKey::read(&path), Err(KeyError::Content { .. })), "{text}");
        }
        for text in ["", "0f", &digits.replace('f', "g"), &digits.replace("0f0f", "é0")] {
            assert!(text.parse::<PublicKey>().is_err(), "{text}");
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let (pair, group) = (KeyPair::generate().unwrap(), GroupKey::generate().unwrap());
        let shown = format!("{pair:?} {group:?}");
        assert!(!shown.contains(&*to_text(&pair.secret)) && !shown.contains(&*group.to_text()));
        assert!(shown.contains(&pair.public.to_string()));
    }
}
