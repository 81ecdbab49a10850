//! Links between seats: one for each address of the lower seat. All are measured, and the fastest is used.
//!
//! A seat is *lower* than another if it comes earlier in the member list; the higher seat connects and measures.

use std::cmp::Reverse;
use std::net::IpAddr;
use std::time::Duration;

use super::packet::LinkPacket;

/// Measured figures of a link between two seats. The connection is encrypted, also where the messages of epochs are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkFigures {
    /// Median time for a few bytes to the other seat and back.
    pub round_trip: Duration,
    /// Bandwidth in bytes per second, the lower of the two directions.
    pub bytes_per_second: u64,
}

/// Link with another seat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeatLink {
    /// Address of this board on the link; `None` if it was never connected.
    pub local: Option<IpAddr>,
    /// Address of the other board.
    pub peer: IpAddr,
    /// Measured figures, or the reason for which there are none, as a sentence.
    pub figures: Result<LinkFigures, String>,
    /// Whether the present epoch uses it.
    pub is_used: bool,
}

/// Links with one seat.
#[derive(Default)]
pub(super) struct SeatLinks {
    /// Links with this seat. If it is lower: one per address, in list order; if it is higher: those that it reported.
    links: Vec<SeatLink>,
    /// Addresses of this board and of the other between which the present epoch is connected.
    used: Option<(IpAddr, IpAddr)>,
    /// Times at which the links with a lower seat were last measured, since this seat was opened.
    measured: Vec<Duration>,
}

/// Interval at which links with a seat that has several are measured again: one may have become slower.
const MEASURE_EVERY: Duration = Duration::from_secs(600);
/// Interval at which a link that could not be measured is tried again: the other board may have been busy, or a cable unplugged.
const RETRY_EVERY: Duration = Duration::from_secs(10);
/// Links count as equally fast if the slower has this percentage of the other's rate. Repeated measurements of one link differ by up to
/// this much.
const EQUAL_PERCENT: u64 = 90;

impl SeatLinks {
    /// Notes the link with a lower seat at one of its addresses. The first time, this is called for each address in list order.
    pub(super) fn measured(&mut self, at: usize, link: SeatLink, now: Duration) {
        match self.links.get_mut(at) {
            Some(known) => (*known, self.measured[at]) = (link, now),
            None => {
                assert_eq!(at, self.links.len(), "links are measured in list order");
                self.links.push(link);
                self.measured.push(now);
            }
        }
    }

    /// Notes a link that a higher seat has measured.
    pub(super) fn reported(&mut self, link: SeatLink) {
        match self.links.iter_mut().find(|known| (known.local, known.peer) == (link.local, link.peer)) {
            Some(known) => *known = link,
            None => self.links.push(link),
        }
        // Drops the oldest entries: addresses that the other board no longer uses.
        let excess = self.links.len().saturating_sub(super::list::ADDRESSES_MAX);
        self.links.drain(..excess);
    }

    /// Notes the connection that the present epoch uses, or that there is none.
    pub(super) fn uses(&mut self, ends: Option<(IpAddr, IpAddr)>) {
        self.used = ends;
    }

    /// Address of the other board that the present epoch uses.
    pub(super) fn used(&self) -> Option<IpAddr> {
        self.used.map(|(_, peer)| peer)
    }

    /// Numbers of the addresses, of so many that a lower seat has, at which the links are to be measured.
    pub(super) fn due(&self, addresses: usize, now: Duration) -> Vec<usize> {
        let is_due = |at: &usize| {
            let Some(link) = self.links.get(*at) else { return true };
            let age = now.saturating_sub(self.measured[*at]);
            match link.figures {
                Ok(_) => addresses > 1 && age >= MEASURE_EVERY,
                Err(_) => age >= RETRY_EVERY,
            }
        };
        (0..addresses).filter(is_due).collect()
    }

    /// All links, with the one that is used.
    pub(super) fn list(&self) -> Vec<SeatLink> {
        let is_used = |link: &SeatLink| self.used.is_some_and(|used| Some(used) == link.ends());
        let mut links: Vec<SeatLink> =
            self.links.iter().map(|link| SeatLink { is_used: is_used(link), ..link.clone() }).collect();
        // It may be used before it was measured.
        if let Some((local, peer)) = self.used.filter(|_| !links.iter().any(|link| link.is_used)) {
            let figures = Err("not measured yet".to_owned());
            links.push(SeatLink { local: Some(local), peer, figures, is_used: true });
        }
        links
    }

    /// Figures of the link that is used, or else of the one that would be.
    pub(super) fn figures(&self) -> Option<LinkFigures> {
        let used = self.links.iter().find(|link| link.ends().is_some() && link.ends() == self.used);
        let best = || self.preference(self.links.len()).first().and_then(|at| self.links.get(*at));
        used.or_else(best).and_then(|link| link.figures.as_ref().ok().copied())
    }

    /// Numbers of a seat's addresses in the order in which they are to be tried: the fastest link first, and of equally fast ones that with
    /// the shortest round trip. Links without figures come last, in the order of the list.
    pub(super) fn preference(&self, addresses: usize) -> Vec<usize> {
        let figures = |at: &usize| self.links.get(*at).and_then(|link| link.figures.as_ref().ok());
        let fastest =
            (0..addresses).filter_map(|at| figures(&at)).map(|figures| figures.bytes_per_second).max();
        let enough = fastest.unwrap_or(0) / 100 * EQUAL_PERCENT;
        let mut order: Vec<usize> = (0..addresses).collect();
        // The sort keeps the order of equals.
        order.sort_by_key(|at| match figures(at) {
            Some(figures) if figures.bytes_per_second >= enough => (0, figures.round_trip, Reverse(0)),
            Some(figures) => (1, Duration::ZERO, Reverse(figures.bytes_per_second)),
            None => (2, Duration::ZERO, Reverse(0)),
        });
        order
    }
}

impl LinkFigures {
    /// The figures of the link with a seat, for other seats.
    pub(super) fn packet(&self, seat: usize) -> LinkPacket {
        LinkPacket {
            seat: u8::try_from(seat).expect("few seats"),
            round_trip_us: u32::try_from(self.round_trip.as_micros()).unwrap_or(u32::MAX),
            kib_per_second: u32::try_from(self.bytes_per_second >> 10).unwrap_or(u32::MAX),
        }
    }

    pub(super) fn of_packet(packet: LinkPacket) -> Self {
        Self {
            round_trip: Duration::from_micros(packet.round_trip_us.into()),
            bytes_per_second: u64::from(packet.kib_per_second) << 10,
        }
    }
}

impl SeatLink {
    fn ends(&self) -> Option<(IpAddr, IpAddr)> {
        self.local.map(|local| (local, self.peer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(net: u8, figures: Option<(u64, u64)>) -> SeatLink {
        let address = |board: u8| IpAddr::from([10, 0, net, board]);
        let figures = figures.map(|(megabytes, micros)| LinkFigures {
            round_trip: Duration::from_micros(micros),
            bytes_per_second: megabytes * 1_000_000,
        });
        let figures = figures.ok_or_else(|| "nobody listens".to_owned());
        SeatLink { local: Some(address(1)), peer: address(2), figures, is_used: false }
    }

    fn check(figures: &[Option<(u64, u64)>], expected: &[usize]) {
        let mut links = SeatLinks::default();
        (0..).zip(figures).for_each(|(net, figures)| {
            links.measured(net.into(), link(net, *figures), Duration::ZERO);
        });
        assert_eq!(links.preference(figures.len()), expected, "{figures:?}");
    }

    #[test]
    fn the_fastest_link_is_tried_first() {
        check(&[None, None], &[0, 1]);
        check(&[Some((110, 200)), Some((1100, 50))], &[1, 0]);
        check(&[Some((110, 200)), None, Some((900, 300)), Some((400, 10))], &[2, 3, 0, 1]);
        // Within a tenth, the round trip decides; the list decides between equals.
        check(&[Some((110, 200)), Some((112, 300)), Some((105, 90))], &[2, 0, 1]);
        check(&[Some((110, 200)), Some((112, 200))], &[0, 1]);
        check(&[Some((100, 200)), Some((112, 300))], &[1, 0]);
        assert_eq!(SeatLinks::default().preference(2), [0, 1], "nothing is measured yet");
    }

    #[test]
    fn the_link_that_an_epoch_uses_is_shown() {
        let mut links = SeatLinks::default();
        links.measured(0, link(0, Some((110, 200))), Duration::ZERO);
        links.measured(1, link(1, None), Duration::ZERO);
        let used = |links: &SeatLinks| links.list().iter().map(|link| link.is_used).collect::<Vec<_>>();
        assert_eq!(used(&links), [false, false]);
        links.uses(link(1, None).ends());
        assert_eq!(used(&links), [false, true]);
        links.uses(link(2, None).ends());
        assert_eq!(used(&links), [false, false, true]);
        links.reported(link(2, Some((9, 9))));
        assert_eq!(used(&links), [false, false, true]);
        (3..200).for_each(|net| links.reported(link(net, None)));
        assert_eq!(links.links.len(), super::super::list::ADDRESSES_MAX, "memory stays bounded");
    }

    #[test]
    fn links_are_measured_again_after_a_while() {
        let mut links = SeatLinks::default();
        let start = Duration::from_secs(5);
        assert_eq!(links.due(2, Duration::ZERO), [0, 1]);
        links.measured(0, link(0, None), start);
        assert_eq!(links.due(1, RETRY_EVERY), [0; 0], "it has failed just now");
        assert_eq!(links.due(1, start + RETRY_EVERY), [0]);
        links.measured(0, link(0, Some((9, 9))), start);
        links.measured(1, link(1, None), start);
        assert_eq!(links.due(2, RETRY_EVERY), [0; 0]);
        assert_eq!(links.due(2, start + RETRY_EVERY), [1], "it has failed, the other has not");
        assert_eq!(links.due(2, start + MEASURE_EVERY), [0, 1]);
        links.measured(1, link(1, Some((9, 9))), start + RETRY_EVERY);
        assert_eq!(links.due(2, start + MEASURE_EVERY), [0]);
        assert_eq!(links.due(1, start + MEASURE_EVERY), [0; 0], "there is no choice");
    }
}
