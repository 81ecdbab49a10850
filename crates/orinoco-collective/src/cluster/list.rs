use std::fmt::Write;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::seats::{Quorum, SEATS_MAX};
use crate::regular_file::open_regular;
use crate::security::{PublicKey, SigningKey, VerifyingKey};

/// List of the seats of a cluster, as an operator signs it.
///
/// The file is text:
///
/// ```text
/// orinoco-cluster 1
/// name crossing
/// serial 3
/// witness a
/// seat a 10.0.0.1:4711,192.168.7.1:4711 <public key>
/// seat b 10.0.0.2:4711,192.168.7.2:4711 <public key>
/// signature <128 hexadecimal digits>
/// ```
///
/// A board with several network interfaces has an address for each: seats measure all of them, and use the fastest.
///
/// The signature is of all bytes before its line. A board that was stolen is removed from the list: seats with a newer list, which has
/// a higher serial number, refuse those with an older one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberList {
    /// Name of the cluster.
    pub name: String,
    /// Serial number. Each new list of a cluster has a higher one.
    pub serial: u32,
    /// Seat that decides when exactly half of the seats can reach one another.
    pub witness: Option<usize>,
    /// The seats, in order.
    pub seats: Vec<Seat>,
}

/// A board's fixed place in a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seat {
    /// Name.
    pub name: String,
    /// Addresses at which the board listens, and at which the others reach it: 1 to [`ADDRESSES_MAX`].
    pub addresses: Vec<SocketAddr>,
    /// Public key of the board.
    pub key: PublicKey,
}

/// Most addresses of a seat. Each takes a measurement before boards connect, and a thread that listens.
pub const ADDRESSES_MAX: usize = 4;
/// Most bytes of a list.
const LIST_BYTES_MAX: u64 = 64 << 10;
/// First line of a list.
const FIRST_LINE: &str = "orinoco-cluster 1";
/// Form of a seat's addresses.
const ADDRESSES_FORM: &str =
    "an address with a port, as in 10.0.0.1:4711, or several with commas between them and no spaces";
/// First word of the last line.
const SIGNATURE: &str = "signature ";

/// Fault of a member list.
#[derive(Debug, Error)]
pub enum ListError {
    /// The file cannot be read.
    #[error("reading {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A line is not one of such a list.
    #[error("line {line} of the member list: expected {expected}")]
    Line {
        /// Number of the line, from 1.
        line: usize,
        /// Right content of the line.
        expected: &'static str,
    },
    /// The list has no signature of the operator.
    #[error(
        "the member list is not signed with the operator key {key}: it was changed after it was signed, or belongs to another cluster"
    )]
    Signature {
        /// The key with which it was checked.
        key: VerifyingKey,
    },
    /// The list has too many seats, or none.
    #[error("{seats} seats in the member list; a cluster has 1 to {SEATS_MAX}")]
    Seats {
        /// Number of seats.
        seats: usize,
    },
    /// A seat has too many addresses, or none.
    #[error("seat `{seat}` has {addresses} addresses in the member list; a seat has 1 to {ADDRESSES_MAX}")]
    Addresses {
        /// The seat.
        seat: String,
        /// Number of its addresses.
        addresses: usize,
    },
    /// A seat has an address within its own machine, and another seat is on another machine.
    #[error(
        "seat `{seat}` has the loopback address {loopback}, at which no other board can reach it, and seat `{other}` has {address}; give each seat the address of a network interface"
    )]
    Loopback {
        /// The seat.
        seat: String,
        /// Its address.
        loopback: SocketAddr,
        /// The other seat.
        other: String,
        /// Its address.
        address: SocketAddr,
    },
    /// Two seats have something in common that they must not.
    #[error("seats `{first}` and `{second}` have the same {what}")]
    Twins {
        /// The first seat.
        first: String,
        /// The other seat.
        second: String,
        /// Thing that they have in common.
        what: &'static str,
    },
    /// A name cannot be written into the list.
    #[error("`{name}` is not a valid name in a member list: it must be one word")]
    Name {
        /// The name.
        name: String,
    },
    /// The witness is no seat.
    #[error("the witness `{witness}` is not a seat in the member list")]
    Witness {
        /// Its name.
        witness: String,
    },
}

impl MemberList {
    /// Reads a list from a file and checks its signature.
    ///
    /// # Errors
    /// If the file cannot be read, is no such list, or is not signed with this key.
    pub fn read(path: &Path, key: &VerifyingKey) -> Result<Self, ListError> {
        let fault = |source| ListError::File { path: path.to_owned(), source };
        let mut text = String::new();
        let file = open_regular(path).map_err(fault)?;
        file.take(LIST_BYTES_MAX).read_to_string(&mut text).map_err(fault)?;
        Self::verify(&text, key)
    }

    /// Reads a list from text and checks its signature.
    ///
    /// # Errors
    /// If the text is no such list, or is not signed with this key.
    pub fn verify(text: &str, key: &VerifyingKey) -> Result<Self, ListError> {
        let unsigned = || ListError::Signature { key: *key };
        // Nothing of a list is read before its signature is known to be right.
        let start =
            text.rfind(SIGNATURE).filter(|start| text[..*start].ends_with('\n')).ok_or_else(unsigned)?;
        let (content, line) = text.split_at(start);
        if !key.verifies(content.as_bytes(), line[SIGNATURE.len()..].trim_end()) {
            return Err(unsigned());
        }
        Self::parse(content)
    }

    /// Reads a list without a signature, as an operator writes it before it is signed.
    ///
    /// # Errors
    /// If the text is no such list.
    pub fn parse(text: &str) -> Result<Self, ListError> {
        let mut lines = text.lines().enumerate().map(|(number, line)| (number + 1, line.trim_end()));
        if lines.next().map(|(_, line)| line) != Some(FIRST_LINE) {
            return Err(ListError::Line { line: 1, expected: "`orinoco-cluster 1`" });
        }
        let (mut name, mut serial, mut witness, mut seats) = (None, None, None, Vec::new());
        for (line, content) in lines {
            let wrong = |expected| ListError::Line { line, expected };
            let words: Vec<&str> = content.split_whitespace().collect();
            match words[..] {
                [] => {}
                [word, ..] if word.starts_with('#') => {}
                ["name", word] => name = Some(word.to_owned()),
                ["serial", number] => {
                    serial = Some(number.parse().map_err(|_| wrong("a serial number below 2^32"))?);
                }
                ["witness", seat] => witness = Some(seat.to_owned()),
                ["seat", seat, addresses, key] => seats.push(Seat {
                    name: seat.to_owned(),
                    addresses: addresses
                        .split(',')
                        .map(|address| address.parse())
                        .collect::<Result<_, _>>()
                        .map_err(|_| wrong(ADDRESSES_FORM))?,
                    key: key.parse().map_err(|_| wrong("a public key of 64 hexadecimal digits"))?,
                }),
                _ => {
                    return Err(wrong(
                        "name, serial, witness, or seat with a name, an address and a public key",
                    ));
                }
            }
        }
        let missing = |expected| ListError::Line { line: text.lines().count(), expected };
        let witness = witness
            .map(|witness: String| {
                let found = seats.iter().position(|seat: &Seat| seat.name == witness);
                found.ok_or(ListError::Witness { witness })
            })
            .transpose()?;
        let list = Self {
            name: name.ok_or_else(|| missing("a line `name` before the end"))?,
            serial: serial.ok_or_else(|| missing("a line `serial` before the end"))?,
            witness,
            seats,
        };
        list.check()?;
        Ok(list)
    }

    fn check(&self) -> Result<(), ListError> {
        if self.seats.is_empty() || self.seats.len() > SEATS_MAX {
            return Err(ListError::Seats { seats: self.seats.len() });
        }
        let names = self.seats.iter().map(|seat| &seat.name).chain([&self.name]);
        if let Some(name) = names.into_iter().find(|name| name.split_whitespace().ne([name.as_str()])) {
            return Err(ListError::Name { name: name.clone() });
        }
        if let Some(seat) =
            self.seats.iter().find(|seat| !(1..=ADDRESSES_MAX).contains(&seat.addresses.len()))
        {
            return Err(ListError::Addresses { seat: seat.name.clone(), addresses: seat.addresses.len() });
        }
        self.check_loopback()?;
        for (number, second) in self.seats.iter().enumerate() {
            for first in &self.seats[..number] {
                let what = if first.name == second.name {
                    "name"
                } else if first.addresses.iter().any(|address| second.addresses.contains(address)) {
                    "address"
                } else if first.key == second.key {
                    "public key"
                } else {
                    continue;
                };
                return Err(ListError::Twins {
                    first: first.name.clone(),
                    second: second.name.clone(),
                    what,
                });
            }
        }
        Ok(())
    }

    /// Seats on one machine have loopback addresses only, and seats on several machines none.
    fn check_loopback(&self) -> Result<(), ListError> {
        let all =
            || self.seats.iter().flat_map(|seat| seat.addresses.iter().map(move |address| (seat, *address)));
        let of = |is_loopback: bool| all().find(|(_, address)| address.ip().is_loopback() == is_loopback);
        match (of(true), of(false)) {
            (Some((seat, loopback)), Some((other, address))) => Err(ListError::Loopback {
                seat: seat.name.clone(),
                loopback,
                other: other.name.clone(),
                address,
            }),
            _ => Ok(()),
        }
    }

    /// The list as text, signed.
    ///
    /// # Errors
    /// If the list has too many seats or none, or two seats with the same name, address or key.
    pub fn sign(&self, key: &SigningKey) -> Result<String, ListError> {
        self.check()?;
        let mut text = self.to_text();
        let signature = key.sign(text.as_bytes());
        writeln!(text, "{SIGNATURE}{signature}").expect("a string takes any text");
        Ok(text)
    }

    fn to_text(&self) -> String {
        let mut text = format!("{FIRST_LINE}\nname {}\nserial {}\n", self.name, self.serial);
        let mut add = |line: String| text.push_str(&line);
        if let Some(witness) = self.witness.and_then(|witness| self.seats.get(witness)) {
            add(format!("witness {}\n", witness.name));
        }
        let line = |seat: &Seat| format!("seat {} {} {}\n", seat.name, seat.addresses_text(), seat.key);
        self.seats.iter().for_each(|seat| add(line(seat)));
        text
    }

    /// Checksum by which seats see that their lists differ.
    pub(crate) fn checksum(&self) -> u32 {
        crc32c::crc32c(self.to_text().as_bytes())
    }

    pub(crate) fn quorum(&self) -> Quorum {
        Quorum { seats: self.seats.len(), witness: self.witness }
    }
}

impl Seat {
    /// The addresses as the list has them, with commas between them.
    pub fn addresses_text(&self) -> String {
        self.addresses.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KeyPair;

    fn list(seats: usize) -> MemberList {
        let seat = |number: usize| Seat {
            name: format!("board-{number}"),
            addresses: ["10.0.0", "10.0.1"]
                .map(|net| format!("{net}.{}:4711", number + 1).parse().unwrap())
                .to_vec(),
            key: KeyPair::generate().unwrap().public(),
        };
        MemberList {
            name: "crossing".to_owned(),
            serial: 3,
            witness: Some(0),
            seats: (0..seats).map(seat).collect(),
        }
    }

    #[test]
    fn a_list_is_read_as_it_was_signed_and_no_other_way() {
        let (list, key) = (list(3), SigningKey::generate().unwrap());
        let text = list.sign(&key).unwrap();
        assert_eq!(MemberList::verify(&text, &key.verifying_key()).unwrap(), list);
        let other = SigningKey::generate().unwrap().verifying_key();
        let changed = text.replace("serial 3", "serial 4");
        let unsigned = text.replace("signature", "signed");
        let appended = format!("{text}seat x 10.0.0.9:1 {}\n", list.seats[0].key);
        for (text, key) in [
            (&text, other),
            (&changed, key.verifying_key()),
            (&unsigned, key.verifying_key()),
            (&appended, key.verifying_key()),
        ] {
            let error = MemberList::verify(text, &key).unwrap_err();
            assert!(matches!(error, ListError::Signature { .. }), "{error}");
        }
    }

    #[test]
    fn what_is_no_file_is_refused_without_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
        let key = SigningKey::generate().unwrap().verifying_key();
        for path in [pipe.as_path(), folder.path(), Path::new("/dev/zero")] {
            assert!(
                matches!(MemberList::read(path, &key), Err(ListError::File { .. })),
                "{}",
                path.display()
            );
        }
    }

    #[test]
    fn faults_are_named() {
        let key = KeyPair::generate().unwrap().public();
        let seat = |name: &str, address: &str| format!("seat {name} {address} {key}\n");
        let start = "orinoco-cluster 1\nname c\nserial 1\n";
        for (text, expected) in [
            ("orinoco-cluster 2\n".to_owned(), "line 1 of the member list: expected `orinoco-cluster 1`"),
            (
                format!("{start}seat a 10.0.0.1 {key}\n"),
                "line 4 of the member list: expected an address with a port, as in 10.0.0.1:4711, or several with commas between them and no spaces",
            ),
            (
                format!("{start}seat a 10.0.0.1:1 0f\n"),
                "line 4 of the member list: expected a public key of 64 hexadecimal digits",
            ),
            (
                "orinoco-cluster 1\nserial -1\n".to_owned(),
                "line 2 of the member list: expected a serial number below 2^32",
            ),
            (start.to_owned(), "0 seats in the member list; a cluster has 1 to 16"),
            (
                format!("{start}{}{}", seat("a", "1.1.1.1:1"), seat("a", "1.1.1.2:1")),
                "seats `a` and `a` have the same name",
            ),
            (
                format!("{start}{}{}", seat("a", "1.1.1.1:1"), seat("b", "1.1.1.1:1")),
                "seats `a` and `b` have the same address",
            ),
            (
                format!("{start}{}{}", seat("a", "1.1.1.1:1"), seat("b", "1.1.1.2:1")),
                "seats `a` and `b` have the same public key",
            ),
            (
                format!("{start}{}{}", seat("a", "1.1.1.1:1,1.1.2.1:1"), seat("b", "1.1.1.2:1,1.1.2.1:1")),
                "seats `a` and `b` have the same address",
            ),
            (
                format!("{start}{}", seat("a", "1.1.1.1:1,1.1.1.1:2,1.1.1.1:3,1.1.1.1:4,1.1.1.1:5")),
                "seat `a` has 5 addresses in the member list; a seat has 1 to 4",
            ),
            (
                format!("{start}{}{}", seat("a", "1.1.1.1:1"), seat("b", "127.0.0.1:1")),
                "seat `b` has the loopback address 127.0.0.1:1, at which no other board can reach it, and seat `a` has 1.1.1.1:1; give each seat the address of a network interface",
            ),
            (
                format!("{start}witness z\n{}", seat("a", "1.1.1.1:1")),
                "the witness `z` is not a seat in the member list",
            ),
        ] {
            assert_eq!(MemberList::parse(&text).unwrap_err().to_string(), expected);
        }
        let error = MemberList::parse("orinoco-cluster 1\n").unwrap_err().to_string();
        assert_eq!(error, "line 1 of the member list: expected a line `name` before the end");
        let unnamed = MemberList { name: "a b".to_owned(), ..list(1) };
        assert!(matches!(unnamed.sign(&SigningKey::generate().unwrap()), Err(ListError::Name { .. })));
        assert!(matches!(
            list(17).sign(&SigningKey::generate().unwrap()),
            Err(ListError::Seats { seats: 17 })
        ));
    }
}
