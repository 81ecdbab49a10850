//! Addresses of this machine at which nobody listens.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::process;
use std::sync::atomic::{AtomicU16, Ordering};

/// Ports to choose from. Linux gives ports from 32768 to outgoing connections: one of those may be taken again before
/// the test listens there.
const FIRST: u16 = 10_000;
const PORTS: u16 = 20_000;

/// Returns an address of this network interface at which nobody listens, another one each time.
pub fn free_address(ip: impl Into<IpAddr>) -> SocketAddr {
    static TAKEN: AtomicU16 = AtomicU16::new(0);
    // Each process starts at another port, since several may run at once.
    let start = process::id().wrapping_mul(97) % u32::from(PORTS);
    let ip = ip.into();
    loop {
        let taken = TAKEN.fetch_add(1, Ordering::Relaxed);
        assert!(taken < PORTS, "no port of {ip} is free");
        let port = FIRST + ((start + u32::from(taken)) % u32::from(PORTS)) as u16;
        let address = SocketAddr::new(ip, port);
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}
