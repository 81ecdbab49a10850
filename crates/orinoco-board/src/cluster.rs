//! Section `[cluster]` of a board file: the board's seat among others.

use std::net::SocketAddr;
use std::path::PathBuf;

use orinoco_config::TableReader;
use orinoco_core::codes;

/// Hexadecimal digits of the operator's key.
const KEY_DIGITS: usize = 64;

/// Seat of the board in a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterSpec {
    /// Signed list of members.
    pub list: PathBuf,
    /// Public key with which the list is checked, in hexadecimal digits.
    pub operator_key: String,
    /// Key pair of this board.
    pub key: PathBuf,
    /// Address at which the seat listens; `None` for that of the list.
    pub listen: Option<SocketAddr>,
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
        list: path("list", "name the signed list of members"),
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
    };
    table.finish();
    Some(spec)
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
    use crate::{Capabilities, load};
    use expect_test::{Expect, expect};
    use orinoco_config::Vars;

    fn check(text: &str, expected: Expect) {
        let dir = tempfile::tempdir().expect("temporary folder");
        let path = dir.path().join("b.toml");
        let stream = "[[stream]]\nname = 'x'\nsource = 'test://ball'\nmodels = []\n";
        std::fs::write(&path, format!("version = 1\n{stream}{text}")).expect("write");
        let known = Capabilities { engines: &[], sinks: &[], schemes: &[] };
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
                r#"Some(ClusterSpec { list: "members", operator_key: "0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f", key: "seat.key", listen: Some(0.0.0.0:4711) })"#
            ]],
        );
    }

    #[test]
    fn every_fault_is_named() {
        check(
            "[cluster]\n",
            expect![[r#"
            b.toml:6: key `cluster.list`: it is missing; name the signed list of members
            b.toml:6: key `cluster.operator_key`: it is missing; write the key that `orinoco cluster sign` prints
            b.toml:6: key `cluster.key`: it is missing; name the file with the key pair of this board"#]],
        );
        check(
            "[cluster]\nlist = 3\noperator_key = 'me'\nkey = 'seat.key'\nlisten = 'here'\nseats = 2\n",
            expect![[r#"
                b.toml:7: key `cluster.list`: it is a whole number; write a string in quotes
                b.toml:8: key `cluster.operator_key`: it is no key of 64 hexadecimal digits; write the key that `orinoco cluster sign` prints
                b.toml:10: key `cluster.listen`: `here` is no address; write an IP address and a port, as in "0.0.0.0:4711"
                b.toml:11: key `cluster.seats`: unknown key; use one of list, operator_key, key, listen"#]],
        );
    }
}
