use super::keys::{GroupKey, KeyPair, PublicKey};

/// Protection of the connections of a group. All ranks must have the same kind. Where it encrypts,
/// [`MessageSettings::tcp_encryption`](crate::MessageSettings::tcp_encryption) can except the messages.
#[derive(Debug, Clone)]
pub enum Security {
    /// None. Only addresses of the same machine are accepted, where another user's process can join as a rank.
    Plaintext,
    /// A key that rank 0 generates and puts into the file through which the ranks meet: authenticated and encrypted.
    FileKey,
    /// A secret that all ranks share: authenticated and encrypted. Whoever has it can join as any rank.
    GroupKey(GroupKey),
    /// A key pair for each rank: authenticated and encrypted. A rank can join as no other.
    KeyPairs {
        /// This rank's key pair.
        own: KeyPair,
        /// The public key of each rank, in order.
        public: Vec<PublicKey>,
    },
}

/// Keys of the connections of a group, once they are known.
#[derive(Clone)]
pub(crate) enum Keys {
    Plaintext,
    Group(GroupKey),
    Pairs { own: KeyPair, public: Vec<PublicKey> },
}

impl Keys {
    /// The kind as it is sent.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Plaintext => 0,
            Self::Group(_) => 1,
            Self::Pairs { .. } => 2,
        }
    }

    /// The kind with this code, for people.
    pub(crate) fn describe(code: u8) -> &'static str {
        match code {
            0 => "no protection",
            1 => "a group key",
            2 => "key pairs",
            _ => "a protection that this version does not know",
        }
    }
}
