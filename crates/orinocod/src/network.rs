//! Links with other boards as the control socket shows them: measured figures, network interfaces, and why a link is not used.

use std::net::IpAddr;

use if_addrs::{IfAddr, get_if_addrs};
use orinoco_api::LinkStatus;
use orinoco_collective::{LinkFigures, SeatLink};
use orinoco_sysroot::Sysroot;

/// Network interface of this board.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NetworkInterface {
    name: String,
    addresses: Vec<Network>,
    /// Whether it is a device, and not only software (a bridge, a container's link).
    is_device: bool,
    /// State as the kernel names it (RFC 2863): `up`, `down`, `unknown` and others.
    state: String,
    mtu: Option<u32>,
    speed_mbps: Option<u32>,
}

/// Address with the length of its network's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Network {
    address: IpAddr,
    prefix_bits: u8,
}

/// Reads the network interfaces of this board. One whose files cannot be read has no MTU and no speed.
pub(crate) fn interfaces(sysroot: &Sysroot) -> Vec<NetworkInterface> {
    let addresses = get_if_addrs().unwrap_or_default();
    let networks = |name: &str| {
        let own = addresses.iter().filter(|interface| interface.name == name);
        own.map(|interface| Network::of(&interface.addr)).collect()
    };
    let interface = |name: String| {
        let path = |file: &str| format!("/sys/class/net/{name}/{file}");
        // Without a link, drivers refuse to give the speed, or give -1.
        let speed = sysroot.number::<i64>(&path("speed")).ok();
        NetworkInterface {
            addresses: networks(&name),
            is_device: sysroot.link(&path("device")).is_ok(),
            state: sysroot
                .text(&path("operstate"))
                .map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned()),
            mtu: sysroot.number(&path("mtu")).ok(),
            speed_mbps: speed.and_then(|speed| u32::try_from(speed).ok()).filter(|speed| *speed > 0),
            name,
        }
    };
    sysroot.entries("/sys/class/net").unwrap_or_default().into_iter().map(interface).collect()
}

impl Network {
    fn of(address: &IfAddr) -> Self {
        let prefix_bits = match address {
            IfAddr::V4(address) => address.prefixlen,
            IfAddr::V6(address) => address.prefixlen,
        };
        Self { address: address.ip(), prefix_bits }
    }

    /// Whether an address is in the same network.
    fn has(&self, other: IpAddr) -> bool {
        let bits = |address: IpAddr| match address {
            IpAddr::V4(address) => (u128::from(address.to_bits()) << 96, 32),
            IpAddr::V6(address) => (address.to_bits(), 128),
        };
        let ((own, len), (other, other_len)) = (bits(self.address), bits(other));
        let differing = (own ^ other).leading_zeros();
        len == other_len && differing >= u32::from(self.prefix_bits)
    }
}

impl NetworkInterface {
    fn has(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|network| network.address == address)
    }

    fn is_loopback(&self) -> bool {
        self.addresses.iter().any(|network| network.address.is_loopback())
    }

    /// Reason for which it does not lead to a seat.
    fn refusal(&self, seat: &str) -> String {
        let name = &self.name;
        if self.state != "up" && self.state != "unknown" {
            return format!("{name} is {}; check its cable and its settings", self.state);
        }
        if self.addresses.is_empty() {
            return format!("{name} has no IP address; assign one, and add it to the member list");
        }
        format!(
            "seat {seat} has no address in a subnet of {name}; add one to the member list, or connect {name} to that seat's network"
        )
    }
}

/// Returns the links with a seat, and the interfaces that are faster or may be, but do not lead to it.
pub(crate) fn links_with(seat: &str, links: &[SeatLink], interfaces: &[NetworkInterface]) -> Vec<LinkStatus> {
    let used = links.iter().find(|link| link.is_used);
    let of = |link: &SeatLink| interfaces.iter().find(|interface| interface.is_of(link));
    let known = links.iter().map(|link| status(link, of(link), used));
    let speed = used.and_then(of).and_then(|interface| interface.speed_mbps);
    let is_left = |interface: &&NetworkInterface| {
        let is_faster = match (interface.speed_mbps, speed) {
            (Some(own), Some(used)) => own > used,
            // It may be faster once it has a link.
            (None, _) => interface.is_device && interface.state != "up",
            (Some(_), None) => interface.is_device,
        };
        is_faster && !interface.is_loopback() && !links.iter().any(|link| interface.is_of(link))
    };
    let left = interfaces
        .iter()
        .filter(is_left)
        .map(|interface| LinkStatus { reason: Some(interface.refusal(seat)), ..described(interface) });
    known.chain(left).collect()
}

impl NetworkInterface {
    /// Whether a link goes through it, or would if the other seat answered.
    fn is_of(&self, link: &SeatLink) -> bool {
        match link.local {
            Some(local) => self.has(local),
            None => self.addresses.iter().any(|network| network.has(link.peer)),
        }
    }
}

fn described(interface: &NetworkInterface) -> LinkStatus {
    LinkStatus {
        used: false,
        transport: None,
        interface: Some(interface.name.clone()),
        local: None,
        address: None,
        mtu: interface.mtu,
        speed_mbps: interface.speed_mbps,
        round_trip_us: None,
        bytes_per_s: None,
        reason: None,
    }
}

fn status(link: &SeatLink, interface: Option<&NetworkInterface>, used: Option<&SeatLink>) -> LinkStatus {
    let figures = link.figures.as_ref().ok();
    LinkStatus {
        used: link.is_used,
        transport: link.local.map(|_| "tcp".to_owned()),
        interface: interface.map(|interface| interface.name.clone()),
        local: link.local.map(|local| local.to_string()),
        address: Some(link.peer.to_string()),
        mtu: interface.and_then(|interface| interface.mtu),
        speed_mbps: interface.and_then(|interface| interface.speed_mbps),
        round_trip_us: figures.map(|figures| figures.round_trip.as_secs_f64() * 1e6),
        bytes_per_s: figures.map(|figures| figures.bytes_per_second),
        reason: reason(link, used),
    }
}

/// Reason for which a link is not used, or has no figures.
fn reason(link: &SeatLink, used: Option<&SeatLink>) -> Option<String> {
    let figures = match &link.figures {
        Ok(figures) => figures,
        Err(why) => return Some(why.clone()),
    };
    if link.is_used {
        return None;
    }
    let Some(used) = used else { return Some("no epoch includes this seat yet".to_owned()) };
    Some(match &used.figures {
        Ok(other) if is_no_faster(figures, other) => {
            "it is not faster than the link in use (differences below 10 % do not count)".to_owned()
        }
        _ => "it was measured after the epoch began; the next epoch may use it".to_owned(),
    })
}

/// Whether a link is too slow to replace another.
fn is_no_faster(figures: &LinkFigures, other: &LinkFigures) -> bool {
    // The cluster counts links of nearly the same rate as equals.
    figures.bytes_per_second <= other.bytes_per_second + other.bytes_per_second / 9
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use expect_test::{Expect, expect};

    use super::*;

    fn interface(name: &str, address: Option<[u8; 4]>, speed_mbps: Option<u32>) -> NetworkInterface {
        let network = |address: [u8; 4]| Network { address: address.into(), prefix_bits: 24 };
        NetworkInterface {
            name: name.to_owned(),
            addresses: address.map(network).into_iter().collect(),
            is_device: name != "br0",
            state: if speed_mbps.is_some() { "up" } else { "down" }.to_owned(),
            mtu: Some(1500),
            speed_mbps,
        }
    }

    fn link(net: u8, megabytes: Option<u64>) -> SeatLink {
        let figures = megabytes.map(|megabytes| LinkFigures {
            round_trip: Duration::from_micros(150),
            bytes_per_second: megabytes * 1_000_000,
        });
        SeatLink {
            local: megabytes.map(|_| [10, 0, net, 1].into()),
            peer: [10, 0, net, 2].into(),
            figures: figures.ok_or_else(|| format!("nobody listens at 10.0.{net}.2:4711")),
            is_used: false,
        }
    }

    fn check(links: &[SeatLink], expected: Expect) {
        let interfaces = [
            interface("lo", Some([127, 0, 0, 1]), None),
            interface("eth0", Some([10, 0, 0, 1]), Some(1000)),
            interface("eth1", Some([10, 0, 1, 1]), Some(10_000)),
            interface("eth2", None, Some(2500)),
            interface("eth3", None, None),
            interface("wlan0", Some([10, 0, 4, 1]), Some(300)),
            interface("br0", Some([10, 0, 5, 1]), None),
        ];
        let line = |link: LinkStatus| {
            let rate = link.bytes_per_s.map_or(0, |bytes| bytes / 1_000_000);
            let ends = format!("{} {}", link.local.unwrap_or_default(), link.address.unwrap_or_default());
            let used = if link.used { "used" } else { "" };
            format!(
                "{} {ends} {rate} {used}: {}\n",
                link.interface.unwrap_or_default(),
                link.reason.unwrap_or_default()
            )
        };
        let lines: String = links_with("b", links, &interfaces).into_iter().map(line).collect();
        expected.assert_eq(&lines);
    }

    #[test]
    fn each_faster_link_that_is_not_used_has_a_reason() {
        check(
            &[SeatLink { is_used: true, ..link(0, Some(110)) }, link(1, None), link(4, Some(20))],
            expect![[r#"
                eth0 10.0.0.1 10.0.0.2 110 used: 
                eth1  10.0.1.2 0 : nobody listens at 10.0.1.2:4711
                wlan0 10.0.4.1 10.0.4.2 20 : it is not faster than the link in use (differences below 10 % do not count)
                eth2   0 : eth2 has no IP address; assign one, and add it to the member list
                eth3   0 : eth3 is down; check its cable and its settings
            "#]],
        );
        check(
            &[SeatLink { is_used: true, ..link(0, Some(110)) }],
            expect![[r#"
                eth0 10.0.0.1 10.0.0.2 110 used: 
                eth1   0 : seat b has no address in a subnet of eth1; add one to the member list, or connect eth1 to that seat's network
                eth2   0 : eth2 has no IP address; assign one, and add it to the member list
                eth3   0 : eth3 is down; check its cable and its settings
            "#]],
        );
        check(
            &[link(0, Some(110)), SeatLink { is_used: true, ..link(1, Some(900)) }],
            expect![[r#"
                eth0 10.0.0.1 10.0.0.2 110 : it is not faster than the link in use (differences below 10 % do not count)
                eth1 10.0.1.1 10.0.1.2 900 used: 
                eth3   0 : eth3 is down; check its cable and its settings
            "#]],
        );
    }

    #[test]
    fn interfaces_of_this_machine_are_read() {
        let found = interfaces(&Sysroot::host());
        let loopback = found.iter().find(|interface| interface.is_loopback()).expect("every machine has one");
        assert!(!loopback.is_device && loopback.mtu.is_some_and(|mtu| mtu >= 1500), "{loopback:?}");
    }

    #[test]
    fn a_network_has_the_addresses_with_its_prefix() {
        let network = |address: &str, prefix_bits| Network { address: address.parse().unwrap(), prefix_bits };
        let has = |network: Network, other: &str| network.has(other.parse().unwrap());
        assert!(has(network("10.0.0.1", 24), "10.0.0.200") && !has(network("10.0.0.1", 24), "10.0.1.1"));
        assert!(has(network("10.0.0.1", 23), "10.0.1.1") && has(network("10.0.0.1", 0), "1.2.3.4"));
        assert!(has(network("fe80::1", 64), "fe80::2") && !has(network("fe80::1", 64), "10.0.0.1"));
        assert!(has(network("10.0.0.1", 32), "10.0.0.1") && !has(network("10.0.0.1", 32), "10.0.0.2"));
    }
}
