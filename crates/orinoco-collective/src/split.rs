//! Division of a group into smaller ones: which ranks form one, and what they tell one another for it.

use zeroize::Zeroizing;

use crate::{CollectiveError, Communicator, JoinError};

/// A rank of the parent that belongs to the same new group as this one.
pub(crate) struct Member<const BYTES: usize> {
    /// Its number in the parent.
    pub(crate) rank: usize,
    /// Its offer to the group.
    pub(crate) offer: Zeroizing<[u8; BYTES]>,
}

/// The new group of this rank.
pub(crate) struct Part<const BYTES: usize> {
    /// This rank's number in it.
    pub(crate) rank: usize,
    /// Its ranks, in order.
    pub(crate) members: Vec<Member<BYTES>>,
}

/// A rank's choice as it is told to the others: participation, colour and key, 4 bytes each. The offer follows.
const CHOICE_BYTES: usize = 12;
const TAKES_NO_PART: u8 = 0;
const IS_READY: u8 = 1;
const IS_UNABLE: u8 = 2;

/// Divides a group. Every rank tells the others its colour, its key and an offer, which `prepare` makes, together with whatever
/// this rank keeps. A rank whose preparation fails tells that too, so nobody waits for it.
pub(crate) fn divide<C: Communicator, K, const BYTES: usize>(
    parent: &mut C,
    color: Option<u32>,
    key: i32,
    prepare: impl FnOnce() -> Result<(K, Zeroizing<[u8; BYTES]>), JoinError>,
) -> Result<Option<(K, Part<BYTES>)>, JoinError> {
    let prepared = color.map(|color| (color, prepare()));
    let mut own = Zeroizing::new(vec![0; CHOICE_BYTES + BYTES]);
    if let Some((color, prepared)) = &prepared {
        own[0] = if prepared.is_ok() { IS_READY } else { IS_UNABLE };
        own[4..8].copy_from_slice(&color.to_le_bytes());
        own[8..12].copy_from_slice(&key.to_le_bytes());
        if let Ok((_, offer)) = prepared {
            own[CHOICE_BYTES..].copy_from_slice(&**offer);
        }
    }
    let mut all = Zeroizing::new(vec![0; own.len() * parent.ranks()]);
    parent.all_gather(&own[..], &mut all[..]).map_err(|why: CollectiveError| JoinError::Split(why))?;
    let Some((color, prepared)) = prepared else { return Ok(None) };
    let (kept, _) = prepared?;
    part(&all, color, parent.rank()).map(|part| Some((kept, part)))
}

/// Finds the ranks of a colour among all choices, in the order of their keys and then of their ranks.
fn part<const BYTES: usize>(all: &[u8], color: u32, own: usize) -> Result<Part<BYTES>, JoinError> {
    let mut found = Vec::new();
    for (rank, choice) in all.chunks_exact(CHOICE_BYTES + BYTES).enumerate() {
        let four = |at: usize| <[u8; 4]>::try_from(&choice[at..at + 4]).expect("four bytes");
        if choice[0] == TAKES_NO_PART || u32::from_le_bytes(four(4)) != color {
            continue;
        }
        if choice[0] != IS_READY {
            return Err(JoinError::Unprepared { rank });
        }
        let mut offer = Zeroizing::new([0; BYTES]);
        offer.copy_from_slice(&choice[CHOICE_BYTES..]);
        found.push((i32::from_le_bytes(four(8)), Member { rank, offer }));
    }
    // The sort is stable, and the ranks are in order already.
    found.sort_by_key(|(key, _)| *key);
    let members: Vec<_> = found.into_iter().map(|(_, member)| member).collect();
    let rank = members.iter().position(|member| member.rank == own).expect("this rank has the colour");
    Ok(Part { rank, members })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(state: u8, color: u32, key: i32, offer: u8) -> Vec<u8> {
        [&[state, 0, 0, 0][..], &color.to_le_bytes(), &key.to_le_bytes(), &[offer]].concat()
    }

    #[test]
    fn ranks_of_a_colour_are_in_the_order_of_keys_and_then_of_ranks() {
        let all = [
            choice(IS_READY, 7, 5, 10),
            choice(IS_READY, 8, 0, 11),
            choice(IS_READY, 7, -5, 12),
            choice(TAKES_NO_PART, 7, 0, 13),
            choice(IS_READY, 7, 5, 14),
            choice(IS_UNABLE, 9, 0, 15),
        ]
        .concat();
        let part = part::<1>(&all, 7, 4).unwrap();
        let members: Vec<(usize, u8)> =
            part.members.iter().map(|member| (member.rank, member.offer[0])).collect();
        assert_eq!((part.rank, members), (2, vec![(2, 12), (0, 10), (4, 14)]));
        let error = super::part::<1>(&all, 9, 5).err().expect("rank 5 could not prepare");
        assert!(matches!(error, JoinError::Unprepared { rank: 5 }), "{error}");
    }
}
