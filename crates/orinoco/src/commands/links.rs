//! `orinoco links`: the links between the boards of a cluster.

use orinoco_api::{ClusterStatus, LINKS_SCHEMA, LinkFigures, LinkStatus, LinksReport, SeatStatus};
use orinoco_config::Faults;
use orinoco_core::{Diagnosis, Exit, codes};

use crate::client::{Client, DaemonArgs};
use crate::figures::UNKNOWN;
use crate::output;

/// Prints the links of a board. A seat that cannot be reached is a check that failed.
pub(crate) fn run(args: &DaemonArgs, json: bool) -> Result<Exit, Faults> {
    let status = Client::new(args)?.status()?;
    let cluster = status.cluster.ok_or_else(|| {
        let cause = "the daemon's board file has no section [cluster]";
        Diagnosis::new(
            &codes::CLUSTER_SEAT,
            status.board.as_str(),
            cause,
            "see docs/collectives.md, \"Clusters\"",
        )
    })?;
    let (text, is_whole) = (text(&cluster), cluster.seats.iter().all(|seat| seat.state != "unreachable"));
    match json {
        true => output::print_json(&LinksReport {
            schema: LINKS_SCHEMA.to_owned(),
            cluster: cluster.name,
            seat: cluster.seat,
            transport: cluster.transport,
            rdma_port: cluster.rdma_port,
            rdma_refused: cluster.rdma_refused,
            fallback: cluster.fallback,
            seats: cluster.seats,
            matrix: cluster.matrix,
        }),
        false => output::print(&text),
    }
    Ok(if is_whole { Exit::Done } else { Exit::CheckFailed })
}

/// Returns the links as tables. Below them are the reasons for which links are not used or seats not reachable.
fn text(cluster: &ClusterStatus) -> String {
    let others = || cluster.seats.iter().filter(|seat| seat.name != cluster.seat);
    let headings = [
        "seat",
        "state",
        "",
        "interface",
        "local address",
        "remote address",
        "transport",
        "MTU",
        "speed",
        "round trip",
        "rate",
    ];
    let rows: Vec<Vec<String>> = others().flat_map(rows).collect();
    let reasons = others().flat_map(|seat| {
        let own = seat.fault.as_ref().map(|why| format!("  {}: {why}", seat.name));
        own.into_iter().chain(seat.links.iter().filter_map(|link| reason(seat, link)))
    });
    let other_ports = cluster.rdma_refused.iter().map(|refused| format!("  RDMA device {refused}"));
    let reasons: Vec<String> = reasons.chain(other_ports).collect();
    let mut parts = vec![
        format!("cluster {}: links of seat {}{}", cluster.name, cluster.seat, transport(cluster)),
        output::table(&headings, 7, rows),
    ];
    if !reasons.is_empty() {
        parts.push(format!("notes:\n{}", reasons.join("\n")));
    }
    if cluster.seats.len() > 2 && !cluster.matrix.is_empty() {
        parts.push(matrix(cluster));
    }
    parts.join("\n\n")
}

/// Returns the transport of the epoch, if there is one.
fn transport(cluster: &ClusterStatus) -> String {
    let port = cluster.rdma_port.as_deref().unwrap_or(UNKNOWN);
    match (cluster.epoch, cluster.transport.as_deref(), &cluster.fallback) {
        (Some(epoch), Some("rdma"), _) => {
            format!("\nepoch {epoch} uses RDMA ({port}): messages are not encrypted")
        }
        (Some(epoch), Some("tcp-plaintext"), Some(why)) => {
            format!("\nepoch {epoch} uses TCP instead of RDMA, and messages are not encrypted: {why}")
        }
        (Some(epoch), Some("tcp-plaintext"), None) => {
            format!("\nepoch {epoch} uses TCP: messages are not encrypted (tcp_encryption = false)")
        }
        (Some(epoch), Some(_), Some(why)) => format!("\nepoch {epoch} uses TCP instead of RDMA: {why}"),
        _ => String::new(),
    }
}

/// Returns a row for each link with a seat, or one without a link.
fn rows(seat: &SeatStatus) -> Vec<Vec<String>> {
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| UNKNOWN.to_owned());
    let row = |link: &LinkStatus| {
        vec![
            seat.name.clone(),
            seat.state.clone(),
            if link.used { "used" } else { "" }.to_owned(),
            text(&link.interface),
            text(&link.local),
            text(&link.address),
            text(&link.transport),
            link.mtu.map_or_else(|| UNKNOWN.to_owned(), |mtu| mtu.to_string()),
            link.speed_mbps.map_or_else(|| UNKNOWN.to_owned(), speed),
            link.round_trip_us.map_or_else(|| UNKNOWN.to_owned(), |us| format!("{us:.0} us")),
            link.bytes_per_s.map_or_else(|| UNKNOWN.to_owned(), |bytes| format!("{} MB/s", megabytes(bytes))),
        ]
    };
    match seat.links.is_empty() {
        true => vec![vec![seat.name.clone(), seat.state.clone()]],
        false => seat.links.iter().map(row).collect(),
    }
}

/// Returns the link with a seat that the epoch uses, in short: its interface and measured rate.
pub(super) fn used_link(seat: &SeatStatus) -> String {
    let used = seat.links.iter().find(|link| link.used);
    let interface = used.and_then(|link| link.interface.clone());
    let rate = used.and_then(|link| link.bytes_per_s).map(|bytes| format!("{} MB/s", megabytes(bytes)));
    let parts: Vec<String> = interface.into_iter().chain(rate).collect();
    if parts.is_empty() { UNKNOWN.to_owned() } else { parts.join(", ") }
}

fn reason(seat: &SeatStatus, link: &LinkStatus) -> Option<String> {
    let why = link.reason.as_ref()?;
    let end = link.address.as_ref().or(link.interface.as_ref());
    Some(format!("  {}, {}: {why}", seat.name, end.map_or("", String::as_str)))
}

/// Returns the rates between all seats, with a row for each.
fn matrix(cluster: &ClusterStatus) -> String {
    let names: Vec<&str> = cluster.seats.iter().map(|seat| seat.name.as_str()).collect();
    let headings: Vec<&str> = std::iter::once("seat").chain(names.iter().copied()).collect();
    let entry = |from: &str, to: &str| {
        let found = cluster.matrix.iter().find(|link| link.from == from && link.to == to);
        found.map_or_else(
            || UNKNOWN.to_owned(),
            |link: &LinkFigures| format!("{} ({:.0})", megabytes(link.bytes_per_s), link.round_trip_us),
        )
    };
    let row = |from: &&str| {
        let entries = names.iter().map(|to| entry(from, to));
        std::iter::once((*from).to_owned()).chain(entries).collect()
    };
    let table = output::table(&headings, 1, names.iter().map(row).collect());
    format!("all links: bandwidth of the slower direction in MB/s (round-trip time in us)\n{table}")
}

fn speed(mbps: u32) -> String {
    match mbps {
        ..1000 => format!("{mbps} Mb/s"),
        _ => format!("{} Gb/s", f64::from(mbps) / 1e3),
    }
}

fn megabytes(bytes: u64) -> String {
    let megabytes = bytes as f64 / 1e6;
    if megabytes < 10.0 { format!("{megabytes:.1}") } else { format!("{megabytes:.0}") }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn links_are_shown_with_the_reasons() {
        let link = |net: u8, bytes_per_s: Option<u64>| LinkStatus {
            used: net == 0,
            transport: bytes_per_s.map(|_| "tcp".to_owned()),
            interface: Some(format!("eth{net}")),
            local: bytes_per_s.map(|_| format!("10.0.{net}.1")),
            address: Some(format!("10.0.{net}.2")),
            mtu: Some(1500),
            speed_mbps: Some(1000 << net),
            round_trip_us: bytes_per_s.map(|_| 182.4),
            bytes_per_s,
            reason: bytes_per_s.is_none().then(|| "nobody listens at 10.0.1.2:4711".to_owned()),
        };
        let seat = |name: &str, state: &str, links| SeatStatus {
            name: name.to_owned(),
            address: "10.0.0.1:4711".to_owned(),
            state: state.to_owned(),
            fault: (state == "unreachable").then(|| "nobody listens at 10.0.0.3:4711".to_owned()),
            links,
            answers: None,
        };
        let cluster = ClusterStatus {
            name: "crossing".to_owned(),
            serial: 1,
            seat: "north".to_owned(),
            epoch: Some(3),
            fault: None,
            transport: Some("tcp".to_owned()),
            rdma_port: None,
            rdma_refused: Vec::new(),
            fallback: Some("seat east cannot use RDMA".to_owned()),
            seats: vec![
                seat("north", "member", Vec::new()),
                seat("east", "member", vec![link(0, Some(112_000_000)), link(1, None)]),
                seat("west", "unreachable", Vec::new()),
            ],
            matrix: vec![LinkFigures {
                from: "north".to_owned(),
                to: "east".to_owned(),
                round_trip_us: 182.4,
                bytes_per_s: 112_000_000,
            }],
        };
        let shown = anstream::adapter::strip_str(&text(&cluster)).to_string();
        expect![[r#"
            cluster crossing: links of seat north
            epoch 3 uses TCP instead of RDMA: seat east cannot use RDMA

            seat  state              interface  local address  remote address  transport   MTU   speed  round trip      rate
            east  member       used  eth0       10.0.0.1       10.0.0.2        tcp        1500  1 Gb/s      182 us  112 MB/s
            east  member             eth1       -              10.0.1.2        -          1500  2 Gb/s           -         -
            west  unreachable

            notes:
              east, 10.0.1.2: nobody listens at 10.0.1.2:4711
              west: nobody listens at 10.0.0.3:4711

            all links: bandwidth of the slower direction in MB/s (round-trip time in us)
            seat   north       east  west
            north      -  112 (182)     -
            east       -          -     -
            west       -          -     -"#]].assert_eq(&shown);

        let refused = "rxe1 port 1 has no link (`rdma link` shows its state)".to_owned();
        let over_rdma = ClusterStatus {
            transport: Some("rdma".to_owned()),
            rdma_port: Some("rxe0 port 1, MTU 4096 bytes".to_owned()),
            rdma_refused: vec![refused],
            fallback: None,
            ..cluster
        };
        let shown = text(&over_rdma);
        let expected = "epoch 3 uses RDMA (rxe0 port 1, MTU 4096 bytes): messages are not encrypted";
        assert!(shown.contains(expected), "{shown}");
        let expected = "\n  RDMA device rxe1 port 1 has no link (`rdma link` shows its state)\n";
        assert!(shown.contains(expected), "{shown}");
    }
}
