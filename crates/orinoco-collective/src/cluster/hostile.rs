//! Packets that no right seat would send to a seat, which then takes part in no epoch that cannot be.

use std::time::Duration;

use orinoco_core::Rng;

use super::assembly::Assembly;
use super::membership::{Bounds, Membership, MembershipEvent};
use super::packet::{LinkPacket, Packet, Status};
use super::seats::{Quorum, SEATS_MAX, SeatSet};
use crate::mutations::check;

const BOUNDS: Bounds = Bounds { settle: Duration::from_millis(300), silence: Duration::from_millis(400) };
const STEPS: usize = 60;

/// A packet with any content. Its numbers are near those that the seat expects, so that it often takes them.
fn packet(rng: &mut Rng, seats: usize) -> Packet {
    let bits = match rng.bool() {
        true => rng.u16(..),
        false => rng.u16(..) & ((1_u32 << seats) - 1) as u16,
    };
    let set = SeatSet::from_bits(bits);
    let epoch = match rng.u32(..20) {
        0 => u32::MAX - rng.u32(..2),
        _ => rng.u32(..8),
    };
    match rng.u32(..6) {
        0 => Packet::Status(Status {
            is_ready: rng.bool(),
            connected: set,
            highest: epoch,
            epoch: rng.u32(..8),
        }),
        1 => Packet::Propose { epoch, members: set },
        2 => Packet::Accept { epoch },
        3 => Packet::Refuse { highest: epoch },
        4 => Packet::Commit { epoch, members: set },
        _ => Packet::Link(LinkPacket { seat: rng.u8(..), round_trip_us: epoch, kib_per_second: epoch }),
    }
}

/// Enters an epoch that has begun, as a seat does.
fn enter(membership: &Membership, quorum: Quorum, own: usize, epoch: u32, members: SeatSet) {
    assert!(quorum.is_met_by(members) && members.contains(own), "{members:?} of {quorum:?}");
    let assembly = Assembly::new(epoch, epoch, members, quorum.seats);
    let all_higher = assembly.missing(own, 1).is_none_or(|seat| seat > own && seat < quorum.seats);
    assert!(all_higher, "{members:?} of {quorum:?}");
    let _ = assembly.lost_member(own, membership);
}

#[test]
fn any_packets_lead_to_possible_epochs() {
    check("membership", |rng| {
        let seats = 1 + rng.usize(..SEATS_MAX);
        let quorum = Quorum { seats, witness: rng.bool().then(|| rng.usize(..seats)) };
        let own = rng.usize(..seats);
        let mut now = Duration::ZERO;
        let mut membership = Membership::new(own, quorum, BOUNDS, now);
        // The proposal and the commitment of an epoch, one after the other, which noise seldom is.
        let mut agreed = None;
        for _ in 0..STEPS {
            let from = rng.usize(..seats);
            match rng.u32(..8) {
                _ if from == own => membership.ask(now),
                0 => membership.connected_with(from, now),
                1 if rng.u32(..8) == 0 => membership.closed(from, now),
                2 => {
                    now += Duration::from_millis(rng.u64(..200));
                    membership.handle_timeout(now);
                }
                _ => {
                    let packet = match (agreed.take(), packet(rng, seats)) {
                        (Some((from, packet)), _) if rng.bool() => {
                            membership.received(from, packet, now);
                            continue;
                        }
                        (_, packet) => packet,
                    };
                    if let Packet::Propose { epoch, members } = packet {
                        let members = members.with(own).with(from);
                        membership.received(from, Packet::Propose { epoch, members }, now);
                        agreed = Some((from, Packet::Commit { epoch, members }));
                    } else {
                        membership.received(from, packet, now);
                    }
                }
            }
            while let Some(event) = membership.next_event() {
                if let MembershipEvent::Committed { epoch, members } = event {
                    enter(&membership, quorum, own, epoch, members);
                }
            }
            while let Some((to, _)) = membership.next_packet() {
                assert!(to < seats && to != own, "a packet for seat {to} of {seats}");
            }
        }
    });
}
