use std::io;
use std::net::IpAddr;

use thiserror::Error;

use super::port::RefusedPort;

/// Fault of connecting ranks by RDMA.
#[derive(Debug, Error)]
pub enum RdmaError {
    /// The library is not there.
    #[error(
        "libibverbs.so.1 cannot be loaded; install the packages `libibverbs1` and `ibverbs-providers` (or `rdma-core`)"
    )]
    NoLibrary,
    /// The kernel gives no access to RDMA devices.
    #[error(
        "the system's RDMA devices cannot be listed; load the kernel's module `ib_uverbs`, and check that /dev/infiniband can be opened"
    )]
    NoAccess(#[source] io::Error),
    /// There is no device, or no driver of its own.
    #[error(
        "no RDMA device is found: `rdma link` lists those that the kernel has, and the package `ibverbs-providers` has their drivers; `rdma link add rxe0 type rxe netdev NAME` makes one of a network interface"
    )]
    NoDevice,
    /// There are devices, but none that can be used.
    #[error("no RDMA port can be used for {}{}", list(addresses), refusals(refused))]
    NoPort {
        /// Addresses of this rank's TCP connections, which the port must have.
        addresses: Vec<IpAddr>,
        /// Reason for each port.
        refused: Vec<RefusedPort>,
    },
    /// The memory cannot be locked.
    #[error(
        "registering {} MiB of memory: the limit of locked memory is {} KiB; raise it with `ulimit -l`, or with `LimitMEMLOCK=` in the unit of systemd",
        bytes.div_ceil(1 << 20), limit / 1024
    )]
    Locked {
        /// Bytes to register.
        bytes: usize,
        /// The limit (RLIMIT_MEMLOCK), in bytes.
        limit: u64,
        /// The system's answer.
        source: io::Error,
    },
    /// A device refuses something that it does not refuse usually.
    #[error("{action} on the RDMA device {device}")]
    Device {
        /// Attempted action.
        action: &'static str,
        /// The device.
        device: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The settings of this rank exclude RDMA.
    #[error("this board's settings do not include RDMA")]
    Off,
    /// Another rank cannot use RDMA.
    #[error("rank {rank} cannot use RDMA, or its settings do not include it; its own error or log says why")]
    Peer {
        /// The other rank.
        rank: usize,
    },
    /// Another rank requires RDMA, but not all ranks can use it.
    #[error("rank {rank} requires RDMA, but not all ranks can use it")]
    Required {
        /// The rank that requires it.
        rank: usize,
        /// Reason for which not all can.
        #[source]
        why: Box<RdmaError>,
    },
    /// Another rank sent what connects no queue pair.
    #[error("rank {rank} sent {found}; all ranks must run the same version")]
    Endpoint {
        /// The other rank.
        rank: usize,
        /// Content of what it sent.
        found: &'static str,
    },
    /// The connection with a rank broke while queue pairs were connected.
    #[error("connecting queue pairs with rank {rank}")]
    Broken {
        /// The other rank.
        rank: usize,
        /// The system's answer.
        source: io::Error,
    },
}

fn list(addresses: &[IpAddr]) -> String {
    addresses.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(" and ")
}

fn refusals(refused: &[RefusedPort]) -> String {
    refused.iter().map(|refused| format!("; {refused}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rdma::port::PortRefusal;

    #[test]
    fn refused_ports_are_listed() {
        let refused = vec![RefusedPort { device: "rxe0".to_owned(), port: 1, why: PortRefusal::Down }];
        let error = RdmaError::NoPort { addresses: vec!["10.0.2.1".parse().unwrap()], refused };
        assert_eq!(
            error.to_string(),
            "no RDMA port can be used for 10.0.2.1; rxe0 port 1 has no link (`rdma link` shows its state)"
        );
    }

    #[test]
    fn a_low_limit_of_locked_memory_is_told_in_units() {
        let source = io::Error::from_raw_os_error(12);
        let error = RdmaError::Locked { bytes: 1 << 20, limit: 64 << 10, source };
        assert_eq!(
            error.to_string(),
            "registering 1 MiB of memory: the limit of locked memory is 64 KiB; raise it with `ulimit -l`, or with `LimitMEMLOCK=` in the unit of systemd"
        );
    }
}
