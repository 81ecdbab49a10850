use std::net::{IpAddr, SocketAddr, TcpListener};

use zeroize::Zeroizing;

use super::connection::Connection;
use super::join::{Joined, Listed, PeerLinks, Place, join_listed};
use super::rendezvous::{decode, directory_bytes, encode};
use crate::message::MessageSettings;
use crate::security::{GroupKey, KEY_DIGITS, Keys};
use crate::split::{Member, divide};
use crate::{Communicator, JoinError, KeyError};

/// Offer of a rank: its address, a number, and a key as text. Those of the new group's rank 0 are used.
const ADDRESS_BYTES: usize = directory_bytes(1);
const NUMBER_BYTES: usize = 4;
const OFFER_BYTES: usize = ADDRESS_BYTES + NUMBER_BYTES + KEY_DIGITS;

/// Keys and addresses with which a rank connects with the others of its group again, for groups that are split off.
#[derive(Clone)]
pub(crate) struct Contacts {
    keys: Keys,
    /// Address of this rank.
    place: Place,
    /// Addresses of the others on this group's connections with them, by rank. `None` for this rank itself.
    peers: Vec<Option<IpAddr>>,
}

impl Contacts {
    pub(crate) fn of(joined: &Joined) -> Self {
        let peer = |connection: &Connection| connection.stream().peer_addr().ok();
        let ip =
            |links: &PeerLinks| links.messages().and_then(peer).map(|address| address.ip().to_canonical());
        Self { keys: joined.keys.clone(), place: joined.place, peers: joined.links.iter().map(ip).collect() }
    }

    /// Divides a group, whose contacts these are, into new ones. Connects this rank with the others of its new group, and returns its
    /// number there; `None` if it has no colour.
    pub(crate) fn divide(
        &self,
        parent: &mut impl Communicator,
        color: Option<u32>,
        key: i32,
        settings: &MessageSettings,
    ) -> Result<Option<(Joined, usize)>, JoinError> {
        let own = parent.rank();
        let Some((listener, part)) = divide(parent, color, key, || prepare(self.place, &self.keys))? else {
            return Ok(None);
        };
        let address = |member| self.address_of(member);
        let addresses = part.members.iter().map(address).collect::<Result<Vec<_>, _>>()?;
        let (_, of_first) = part.members[0].offer.split_at(ADDRESS_BYTES);
        let (number, key) = of_first.split_at(NUMBER_BYTES);
        let number = u32::from_le_bytes(number.try_into().expect("four bytes"));
        let keys = match &self.keys {
            Keys::Plaintext => Keys::Plaintext,
            Keys::Group(_) => {
                let key = std::str::from_utf8(key).ok().and_then(GroupKey::from_text);
                Keys::Group(key.ok_or(JoinError::Unprepared { rank: part.members[0].rank })?)
            }
            Keys::Pairs { own, public } => {
                let public = part.members.iter().map(|member| public[member.rank]).collect();
                Keys::Pairs { own: own.clone(), public }
            }
        };
        debug_assert_eq!(part.members[part.rank].rank, own);
        let listed = Listed { listener, place: self.place, addresses, rank: part.rank, keys, number };
        Ok(Some((join_listed(listed, settings)?, part.rank)))
    }

    /// Address of a member of the new group, for this rank. One that has several is at that of this group's connection with it.
    fn address_of(&self, member: &Member<OFFER_BYTES>) -> Result<SocketAddr, JoinError> {
        let offered = decode(&member.offer[..ADDRESS_BYTES]).and_then(|found| found.first().copied());
        let offered = offered.ok_or(JoinError::Unprepared { rank: member.rank })?;
        let of_link = self.peers[member.rank].filter(|_| offered.ip().is_unspecified());
        Ok(SocketAddr::new(of_link.unwrap_or(offered.ip()), offered.port()))
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
