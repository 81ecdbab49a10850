//! Directories: the addresses of all ranks, as rank 0 tells them to the others.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Bytes of an address in a directory: IPv6 or mapped IPv4, and the port.
const ENTRY_BYTES: usize = 18;

/// Bytes of a directory of so many ranks.
pub(super) const fn directory_bytes(ranks: usize) -> usize {
    ranks * ENTRY_BYTES + 4
}

/// Placeholder in the directory for a rank that did not join.
pub(super) const NOBODY: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0);

/// The addresses of all ranks as they are sent, with a CRC32C at the end.
pub(super) fn encode(addresses: &[SocketAddr]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(directory_bytes(addresses.len()));
    for address in addresses {
        let ip = match address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        bytes.extend_from_slice(&ip.octets());
        bytes.extend_from_slice(&address.port().to_le_bytes());
    }
    let checksum = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Reads a directory. `None` if it was damaged.
pub(super) fn decode(bytes: &[u8]) -> Option<Vec<SocketAddr>> {
    let (entries, checksum) = bytes.split_last_chunk::<4>()?;
    if u32::from_le_bytes(*checksum) != crc32c::crc32c(entries) {
        return None;
    }
    let address = |entry: &[u8]| {
        let ip = Ipv6Addr::from(<[u8; 16]>::try_from(&entry[..16]).expect("16 bytes"));
        SocketAddr::new(IpAddr::V6(ip).to_canonical(), u16::from_le_bytes([entry[16], entry[17]]))
    };
    Some(entries.chunks_exact(ENTRY_BYTES).map(address).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_read_as_it_was_sent() {
        let addresses: Vec<SocketAddr> =
            ["127.0.0.1:4000", "[::]:0", "10.0.0.7:65535"].map(|address| address.parse().unwrap()).into();
        let mut bytes = encode(&addresses);
        assert_eq!(bytes.len(), directory_bytes(3));
        assert_eq!(addresses[1], NOBODY);
        assert_eq!(decode(&bytes), Some(addresses));
        bytes[3] ^= 1;
        assert_eq!(decode(&bytes), None);
        assert_eq!(decode(&[1, 2]), None);
    }
}
