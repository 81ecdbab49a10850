//! Keys and member lists of clusters, made by the program itself.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use orinoco_api::ClusterKey;

use crate::{free_address, orinoco};

/// Makes a key as `command` of `orinoco cluster` says, and returns its public part.
pub fn cluster_key(command: &[&str]) -> String {
    let output = orinoco(&[&["--json", "cluster"], command].concat()).output().expect("orinoco starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice::<ClusterKey>(&output.stdout).expect("a key").public_key
}

/// Makes in a folder a key `NAME.key` for each seat, and the signed list `members`. Returns the operator's public key.
pub fn make_cluster(dir: &Path, seats: &[(&str, SocketAddr)]) -> String {
    let path = |name: &str| dir.join(name).to_str().expect("a path that is text").to_owned();
    let mut list = "orinoco-cluster 1\nname crossing\nserial 1\n".to_owned();
    for (name, address) in seats {
        let public = cluster_key(&["keygen", &path(&format!("{name}.key"))]);
        list += &format!("seat {name} {address} {public}\n");
    }
    fs::write(path("list"), list).expect("written");
    cluster_key(&["sign", &path("list"), "--key", &path("operator.key"), "--output", &path("members")])
}

/// Makes a cluster of seats on this machine.
pub fn make_local_cluster(dir: &Path, seats: &[&str]) -> String {
    let seats: Vec<_> = seats.iter().map(|name| (*name, free_address(Ipv4Addr::LOCALHOST))).collect();
    make_cluster(dir, &seats)
}
