//! Section `[cluster]` of a board file: the board's seat among others.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use orinoco_config::TableReader;
use orinoco_core::codes;

use crate::unique::listed_once;

/// Hexadecimal digits of the operator's key.
const KEY_DIGITS: usize = 64;

/// Numbers of TCP connections between two boards.
const TCP_CONNECTIONS: RangeInclusive<i64> = 1..=8;

/// Seat of the board in a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterSpec {
    /// Signed member list.
    pub list: PathBuf,
    /// Public key with which the list is checked, in hexadecimal digits.
    pub operator_key: String,
    /// Key pair of this board.
    pub key: PathBuf,
    /// Address at which the seat listens; `None` for that of the list.
    pub listen: Option<SocketAddr>,
    /// Unix socket at which programs on this board share the seat's port; `None` if none may.
    pub program_socket: Option<PathBuf>,
    /// Whether the other boards may copy the models that this board runs.
    pub share_models: bool,
    /// Whether messages travel by RDMA.
    pub rdma: RdmaUse,
    /// Name of the RDMA device; `None` for the one that has this board's addresses.
    pub rdma_device: Option<String>,
    /// TCP connections for the messages with each other board.
    pub tcp_connections: u16,
    /// Whether messages over TCP are encrypted.
    pub tcp_encryption: bool,
}

/// Whether the messages of a cluster travel by RDMA.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RdmaUse {
    /// They travel over TCP.
    #[default]
    Off,
    /// If all members can use RDMA; otherwise over TCP.
    Preferred,
    /// There is no group unless all its members can use RDMA.
    Required,
}

fn as_u16(number: i64) -> u16 {
    u16::try_from(number).expect("in the range")
}

/// Reads the section; `None` where the board has no seat.
pub(crate) fn read_cluster(top: &TableReader<'_>) -> Option<ClusterSpec> {
    if !top.has("cluster") {
        return None;
    }
    let table = top.table("cluster");
    let path = |key, next| {
        let path = table.path(key);
        if path.is_none() && !table.has(key) {
            table.missing(key, next);
        }
        path.unwrap_or_default()
    };
    let spec = ClusterSpec {
        list: path("list", "name the signed member list"),
        operator_key: read_operator_key(&table),
        key: path("key", "name the file with the key pair of this board"),
        listen: table.text("listen").and_then(|text| {
            let next = "write an IP address and a port, as in \"0.0.0.0:4711\"";
            text.parse()
                .map_err(|_| {
                    table.fault("listen", &codes::KEY_RANGE, format!("`{text}` is no address"), next)
                })
                .ok()
        }),
        program_socket: table.path("program_socket"),
        share_models: table.boolean("share_models").unwrap_or(false),
        rdma: read_transports(&table),
        rdma_device: table.text("rdma_device"),
        tcp_connections: table.integer("tcp_connections", TCP_CONNECTIONS).map_or(1, as_u16),
        tcp_encryption: table.boolean("tcp_encryption").unwrap_or(true),
    };
    if spec.rdma == RdmaUse::Off && spec.rdma_device.is_some() {
        let next = "write `transports = [\"rdma\", \"tcp\"]`, or remove this key";
        table.fault("rdma_device", &codes::REFERENCE, "`transports` does not include \"rdma\"", next);
    }
    table.finish();
    Some(spec)
}

/// Transports in the order of preference, and those that are required.
fn read_transports(table: &TableReader<'_>) -> RdmaUse {
    const KNOWN: [&str; 2] = ["rdma", "tcp"];
    let names = |key| {
        let names = listed_once(table, key);
        for name in names.iter().filter(|name| !KNOWN.contains(&name.as_str())) {
            let next = format!("use one of {}", KNOWN.join(", "));
            table.fault(key, &codes::REFERENCE, format!("no transport is called `{name}`"), next);
        }
        names
    };
    let (transports, required) = (names("transports"), names("require"));
    let has = |names: &[String], name: &str| names.iter().any(|listed| listed == name);
    let transports = if transports.is_empty() { vec!["tcp".to_owned()] } else { transports };
    if transports.iter().position(|name| name == "tcp").is_some_and(|tcp| tcp + 1 < transports.len()) {
        let cause = "every board has TCP, so a transport after it would never be used";
        table.fault("transports", &codes::KEY_RANGE, cause, "write \"tcp\" last");
    }
    for name in required.iter().filter(|name| KNOWN.contains(&name.as_str()) && !has(&transports, name)) {
        let cause = format!("`{name}` is required, but `transports` does not include it");
        table.fault("require", &codes::REFERENCE, cause, format!("add \"{name}\" to `transports`"));
    }
    let is_allowed = |name| has(&transports, name) && (required.is_empty() || has(&required, name));
    match (is_allowed("rdma"), is_allowed("tcp")) {
        (false, _) => RdmaUse::Off,
        (true, true) => RdmaUse::Preferred,
        (true, false) => RdmaUse::Required,
    }
}

fn read_operator_key(table: &TableReader<'_>) -> String {
    if !table.has("operator_key") {
        table.missing("operator_key", "write the key that `orinoco cluster sign` prints");
    }
    let Some(key) = table.text("operator_key") else { return String::new() };
    if key.len() != KEY_DIGITS || !key.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        let (cause, next) =
            ("it is no key of 64 hexadecimal digits", "write the key that `orinoco cluster sign` prints");
        table.fault("operator_key", &codes::KEY_RANGE, cause, next);
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Capabilities, load};
    use expect_test::{Expect, expect};
    use orinoco_config::Vars;

    fn check(text: &str, expected: Expect) {
        let dir = tempfile::tempdir().expect("temporary folder");
        let path = dir.path().join("b.toml");
        let stream = "[[stream]]\nname = 'x'\nsource = 'test://ball'\nmodels = []\n";
        std::fs::write(&path, format!("version = 1\n{stream}{text}")).expect("write");
        let known = Capabilities::default();
        let shown = match load(&path, &known, &Vars::new()) {
            Ok(board) => format!("{:?}", board.cluster),
            Err(faults) => faults.to_string(),
        };
        expected.assert_eq(&shown.replace(&format!("{}/", dir.path().display()), ""));
    }

    #[test]
    fn a_seat_is_read() {
        let key = "0f".repeat(32);
        check("", expect!["None"]);
        check(
            &format!(
                "[cluster]\nlist = 'members'\noperator_key = '{key}'\nkey = 'seat.key'\nlisten = '0.0.0.0:4711'\n"
            ),
            expect![[
                r#"Some(ClusterSpec { list: "members", operator_key: "0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f", key: "seat.key", listen: Some(0.0.0.0:4711), program_socket: None, share_models: false, rdma: Off, rdma_device: None, tcp_connections: 1, tcp_encryption: true })"#
            ]],
        );
    }

    #[test]
    fn every_fault_is_named() {
        check(
            "[cluster]\n",
            expect![[r#"
            b.toml:6: key `cluster.list`: it is missing; name the signed member list
            b.toml:6: key `cluster.operator_key`: it is missing; write the key that `orinoco cluster sign` prints
            b.toml:6: key `cluster.key`: it is missing; name the file with the key pair of this board"#]],
        );
        check(
            "[cluster]\nlist = 3\noperator_key = 'me'\nkey = 'seat.key'\nlisten = 'here'\nseats = 2\ntcp_connections = 9\n",
            expect![[r#"
                b.toml:7: key `cluster.list`: it is a whole number; write a string in quotes
                b.toml:8: key `cluster.operator_key`: it is no key of 64 hexadecimal digits; write the key that `orinoco cluster sign` prints
                b.toml:10: key `cluster.listen`: `here` is no address; write an IP address and a port, as in "0.0.0.0:4711"
                b.toml:12: key `cluster.tcp_connections`: 9 is outside its range; choose 1 to 8
                b.toml:11: key `cluster.seats`: unknown key; use one of list, operator_key, key, listen, program_socket, share_models, transports, require, rdma_device, tcp_connections, tcp_encryption"#]],
        );
    }
    #[test]
    fn transports_are_those_that_are_listed_and_allowed() {
        let rdma = |keys: &str| {
            let seat = format!("[cluster]\nlist = 'm'\noperator_key = '{}'\nkey = 'k'\n", "0f".repeat(32));
            let dir = tempfile::tempdir().expect("temporary folder");
            let path = dir.path().join("b.toml");
            let stream = "[[stream]]\nname = 'x'\nsource = 'test://ball'\nmodels = []\n";
            std::fs::write(&path, format!("version = 1\n{stream}{seat}{keys}")).expect("write");
            let known = Capabilities::default();
            load(&path, &known, &Vars::new()).map(|board| board.cluster.expect("a seat").rdma)
        };
        assert_eq!(rdma("transports = ['tcp']").unwrap(), RdmaUse::Off);
        assert_eq!(rdma("transports = ['rdma', 'tcp']\nrdma_device = 'rxe0'").unwrap(), RdmaUse::Preferred);
        assert_eq!(rdma("transports = ['rdma']").unwrap(), RdmaUse::Required);
        assert_eq!(rdma("transports = ['rdma', 'tcp']\nrequire = ['rdma']").unwrap(), RdmaUse::Required);
        assert_eq!(rdma("transports = ['rdma', 'tcp']\nrequire = ['tcp']").unwrap(), RdmaUse::Off);
        let faults = rdma("transports = ['tcp', 'rdma', 'tcp', 'pcie']\nrequire = ['shm']").unwrap_err();
        expect![[r#"
            b.toml:10: key `cluster.transports`: `tcp` is listed more than once; list it once
            b.toml:10: key `cluster.transports`: no transport is called `pcie`; use one of rdma, tcp
            b.toml:11: key `cluster.require`: no transport is called `shm`; use one of rdma, tcp
            b.toml:10: key `cluster.transports`: every board has TCP, so a transport after it would never be used; write "tcp" last
        "#]].assert_eq(&faults_text(&faults));
        let faults = rdma("require = ['rdma']\nrdma_device = 'rxe0'").unwrap_err();
        expect![[r#"
            b.toml:10: key `cluster.require`: `rdma` is required, but `transports` does not include it; add "rdma" to `transports`
            b.toml:11: key `cluster.rdma_device`: `transports` does not include "rdma"; write `transports = ["rdma", "tcp"]`, or remove this key
        "#]].assert_eq(&faults_text(&faults));
    }

    /// Faults without the folder of the file.
    fn faults_text(faults: &crate::BoardError) -> String {
        let text = faults.to_string();
        text.lines()
            .filter_map(|line| line.split_once("b.toml"))
            .map(|(_, rest)| format!("b.toml{rest}\n"))
            .collect()
    }
}
