//! Authentication and encryption of connections, by the Noise Protocol Framework.

mod handshake;
#[cfg(test)]
mod hostile;
mod keys;
mod protection;
mod seal;
mod signing;

pub use keys::{GroupKey, KeyError, KeyPair, PublicKey};
pub use protection::Security;
pub use signing::{SigningKey, VerifyingKey};

pub(crate) use handshake::{HANDSHAKE_BYTES, Handshake};
pub(crate) use keys::DIGITS as KEY_DIGITS;
pub(crate) use protection::Keys;
pub(crate) use seal::{CONFIRMATION_BYTES, Seal};
