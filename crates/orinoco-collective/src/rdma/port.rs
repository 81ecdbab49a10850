//! Choice of the port of an RDMA device, from what the system says about each.

use std::fmt;
use std::net::IpAddr;

use super::mtu::Mtu;

/// A port of an RDMA device, as the system describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RdmaPort {
    /// Name of the device.
    pub device: String,
    /// Number of the port, from 1.
    pub number: u8,
    /// Whether it has a link that works.
    pub is_active: bool,
    /// Whether its link is Ethernet, for RoCE. Others are InfiniBand.
    pub is_ethernet: bool,
    /// Largest payload of a packet on the link, if it is one of InfiniBand's.
    pub mtu: Option<Mtu>,
    /// Addresses at which it has RoCE v2, each with its place in the table of GIDs.
    pub addresses: Vec<(u8, IpAddr)>,
}

/// The address that a GID stands for.
pub(super) fn address_of(gid: [u8; 16]) -> IpAddr {
    let address = std::net::Ipv6Addr::from(gid);
    address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4)
}

/// The GID of an address.
pub(super) fn gid_of(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// A port that was not chosen, and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedPort {
    /// Name of the device.
    pub device: String,
    /// Number of the port.
    pub port: u8,
    /// Reason.
    pub why: PortRefusal,
}

/// Reason to refuse a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PortRefusal {
    /// The settings name another device.
    NotNamed,
    /// It has no link.
    Down,
    /// It is InfiniBand.
    NotEthernet,
    /// It has another MTU than InfiniBand's.
    Mtu,
    /// It does not have this address of a TCP connection.
    Address(IpAddr),
    /// Another port has at least its MTU.
    Slower,
}

impl fmt::Display for RefusedPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} port {} ", self.device, self.port)?;
        match &self.why {
            PortRefusal::NotNamed => f.write_str("is not the device that the settings name"),
            PortRefusal::Down => f.write_str("has no link (`rdma link` shows its state)"),
            PortRefusal::NotEthernet => f.write_str("is InfiniBand, RoCE is needed"),
            PortRefusal::Mtu => f.write_str("has an unknown MTU"),
            PortRefusal::Address(address) => write!(f, "does not have RoCE v2 at {address}"),
            PortRefusal::Slower => f.write_str("fits too, and has no larger MTU"),
        }
    }
}

/// Port that a rank uses, and why no other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RdmaLink {
    /// The port.
    pub port: RdmaPort,
    /// The other ports.
    pub refused: Vec<RefusedPort>,
}

impl fmt::Display for RdmaLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.port)?;
        self.refused.iter().try_for_each(|refused| write!(f, "; {refused}"))
    }
}

impl fmt::Display for RdmaPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, number, mtu, .. } = self;
        write!(f, "{device} port {number}, MTU {} bytes", mtu.map_or(0, Mtu::bytes))
    }
}

impl RdmaLink {
    /// Chooses the port that has the addresses of this rank's TCP connections: the one with the largest packets. An address within
    /// the machine stands for any.
    ///
    /// # Errors
    /// The reasons, if there is none.
    pub(super) fn choose(
        ports: Vec<RdmaPort>,
        named: Option<&str>,
        addresses: &[IpAddr],
    ) -> Result<Self, Vec<RefusedPort>> {
        let (mut fitting, mut refused) = (Vec::new(), Vec::new());
        for port in ports {
            match port.unfit(named, addresses) {
                None => fitting.push(port),
                Some(why) => refused.push(port.refused(why)),
            }
        }
        // The first of several with the same MTU.
        let best = (0..fitting.len()).rev().max_by_key(|at| fitting[*at].mtu);
        let Some(best) = best else { return Err(refused) };
        let port = fitting.remove(best);
        refused.extend(fitting.iter().map(|port| port.refused(PortRefusal::Slower)));
        Ok(Self { port, refused })
    }

    /// Place in the port's table of GIDs, and the address there, for a connection from this address.
    pub(super) fn gid(&self, address: IpAddr) -> Option<(u8, IpAddr)> {
        self.port.gid(address)
    }
}

impl RdmaPort {
    fn unfit(&self, named: Option<&str>, addresses: &[IpAddr]) -> Option<PortRefusal> {
        if named.is_some_and(|named| named != self.device) {
            return Some(PortRefusal::NotNamed);
        }
        if !self.is_ethernet {
            return Some(PortRefusal::NotEthernet);
        }
        if !self.is_active {
            return Some(PortRefusal::Down);
        }
        if self.mtu.is_none() {
            return Some(PortRefusal::Mtu);
        }
        addresses.iter().find(|address| self.gid(**address).is_none()).copied().map(PortRefusal::Address)
    }

    fn gid(&self, address: IpAddr) -> Option<(u8, IpAddr)> {
        let is_same = |own: IpAddr| own == address || (address.is_loopback() && own.is_ipv4());
        self.addresses.iter().find(|(_, own)| is_same(*own)).copied()
    }

    fn refused(&self, why: PortRefusal) -> RefusedPort {
        RefusedPort { device: self.device.clone(), port: self.number, why }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(device: &str, mtu: u8, addresses: &[&str]) -> RdmaPort {
        let addresses = (1..).zip(addresses.iter().map(|address| address.parse().unwrap())).collect();
        let (is_active, is_ethernet, mtu) = (true, true, Mtu::from_code(mtu));
        RdmaPort { device: device.to_owned(), number: 1, is_active, is_ethernet, mtu, addresses }
    }

    fn check(ports: Vec<RdmaPort>, named: Option<&str>, address: &str) -> String {
        match RdmaLink::choose(ports, named, &[address.parse().unwrap()]) {
            Ok(link) => link.to_string(),
            Err(refused) => refused.iter().map(RefusedPort::to_string).collect::<Vec<_>>().join("; "),
        }
    }

    #[test]
    fn the_port_of_the_connection_with_the_largest_packets_is_chosen() {
        let ports = || {
            vec![
                RdmaPort { is_active: false, ..port("down", 5, &["10.0.0.1"]) },
                RdmaPort { is_ethernet: false, ..port("ib", 5, &[]) },
                port("slow", 3, &["fe80::1", "10.0.0.1"]),
                port("fast", 5, &["10.0.0.1"]),
                port("twin", 5, &["10.0.0.1"]),
                port("away", 5, &["10.0.1.1"]),
            ]
        };
        let others =
            "down port 1 has no link (`rdma link` shows its state); ib port 1 is InfiniBand, RoCE is needed";
        assert_eq!(
            check(ports(), None, "10.0.0.1"),
            format!(
                "fast port 1, MTU 4096 bytes; {others}; away port 1 does not have RoCE v2 at 10.0.0.1; slow port 1 fits too, and has no larger MTU; twin port 1 fits too, and has no larger MTU"
            )
        );
        assert!(check(ports(), Some("slow"), "10.0.0.1").starts_with("slow port 1, MTU 1024 bytes; "));
        let none = check(ports(), None, "10.0.2.1");
        assert!(none.starts_with("down port 1 has no link"), "{none}");
    }

    #[test]
    fn a_connection_has_the_gid_of_its_address() {
        let link =
            RdmaLink::choose(vec![port("rxe0", 5, &["fe80::1", "10.0.0.1", "10.0.0.2"])], None, &[]).unwrap();
        let gid = |address: &str| link.gid(address.parse().unwrap()).map(|(place, _)| place);
        assert_eq!((gid("10.0.0.2"), gid("fe80::1"), gid("10.0.0.9")), (Some(3), Some(1), None));
        assert_eq!(gid("127.0.0.1"), Some(2), "within the machine, any IPv4 address");
        let address: IpAddr = "10.77.0.1".parse().unwrap();
        assert_eq!(address_of(gid_of(address)), address);
        assert_eq!(gid_of(address)[10..], [255, 255, 10, 77, 0, 1]);
    }
}
