use std::net::{SocketAddr, TcpListener};

use zeroize::Zeroizing;

use super::TcpGroup;
use super::hello::EPOCH;
use super::join::{Listed, Place, join_listed};
use super::rendezvous::{decode, directory_bytes, encode};
use crate::security::{GroupKey, KEY_DIGITS, Keys};
use crate::split::{Member, divide};
use crate::{Communicator, JoinError, KeyError};

/// Offer of a rank: its address, a number, and a key as text. Those of the new group's rank 0 are used.
const ADDRESS_BYTES: usize = directory_bytes(1);
const NUMBER_BYTES: usize = 4;
const OFFER_BYTES: usize = ADDRESS_BYTES + NUMBER_BYTES + KEY_DIGITS;

impl TcpGroup {
    /// Makes groups of this group's ranks, as `MPI_Comm_split` does. Ranks that name the same colour form one, in the order of
    /// their keys and then of their ranks here; a rank without a colour belongs to none, and gets `None`. All ranks must call it.
    ///
    /// The new group has the settings of this one, and connections of its own: each rank listens at the address it has here, at a
    /// port that the system chooses. They are protected as this group's are: with a group key, by a new key, which the ranks of this
    /// group tell one another; with key pairs, by the same ones. The two groups are independent: a failure of one does not
    /// end the other, and each names ranks by its own numbers. Making a group takes two connections and handshakes with each of its
    /// ranks: make it once, and use it again and again.
    ///
    /// # Errors
    /// If this group has failed, or if the ranks of the new group cannot join it (see [`TcpGroup::join`]).
    pub fn split(&mut self, color: Option<u32>, key: i32) -> Result<Option<Self>, JoinError> {
        let (rank, settings) = (self.rank(), self.settings());
        let (keys, place) = (self.transport().keys.clone(), self.transport().place);
        let Some((listener, part)) = divide(self, color, key, || prepare(place, &keys))? else {
            return Ok(None);
        };
        let address = |member: &Member<OFFER_BYTES>| {
            let found = decode(&member.offer[..ADDRESS_BYTES]).and_then(|found| found.first().copied());
            found.ok_or(JoinError::Unprepared { rank: member.rank })
        };
        let addresses = part.members.iter().map(address).collect::<Result<Vec<_>, _>>()?;
        let (_, of_first) = part.members[0].offer.split_at(ADDRESS_BYTES);
        let (number, key) = of_first.split_at(NUMBER_BYTES);
        let number = u32::from_le_bytes(number.try_into().expect("four bytes"));
        let keys = match keys {
            Keys::Plaintext => Keys::Plaintext,
            Keys::Group(_) => {
                let key = std::str::from_utf8(key).ok().and_then(GroupKey::from_text);
                Keys::Group(key.ok_or(JoinError::Unprepared { rank: part.members[0].rank })?)
            }
            Keys::Pairs { own, public } => {
                let public = part.members.iter().map(|member| public[member.rank]).collect();
                Keys::Pairs { own, public }
            }
        };
        debug_assert_eq!(part.members[part.rank].rank, rank);
        let listed = Listed { listener, place, addresses, rank: part.rank, keys, number };
        Self::of(join_listed(listed, &settings)?, part.rank, EPOCH, settings).map(Some)
    }
}

/// Listens for the ranks of a new group, and makes the offer to it.
fn prepare(place: Place, keys: &Keys) -> Result<(TcpListener, Zeroizing<[u8; OFFER_BYTES]>), JoinError> {
    let address = SocketAddr::new(place.listen, 0);
    let listen = |source| JoinError::Listen { address, source };
    let listener = TcpListener::bind(address).map_err(listen)?;
    let mut offer = Zeroizing::new([0; OFFER_BYTES]);
    let (own, of_first) = offer.split_at_mut(ADDRESS_BYTES);
    let port = listener.local_addr().map_err(listen)?.port();
    own.copy_from_slice(&encode(&[SocketAddr::new(place.ip, port)]));
    let (number, key) = of_first.split_at_mut(NUMBER_BYTES);
    getrandom::fill(number).map_err(|error| KeyError::Randomness(error.to_string()))?;
    if let Keys::Group(_) = keys {
        key.copy_from_slice(GroupKey::generate()?.to_text().as_bytes());
    }
    Ok((listener, offer))
}
