//! `orinoco cluster`: keys and signed member lists.

use std::error::Error;
use std::path::Path;

use orinoco_api::{CLUSTER_KEY_SCHEMA, CLUSTER_LIST_SCHEMA, ClusterKey, ClusterList, ClusterSeat};
use orinoco_collective::{KeyPair, MemberList, SigningKey, VerifyingKey};
use orinoco_config::{Existing, Faults, FileKind, write_whole};
use orinoco_core::{Diagnosis, Exit, codes};

use crate::args::ClusterCommand;
use crate::output;

/// List of members before it is signed.
const UNSIGNED_LIST: FileKind = FileKind {
    noun: "a member list",
    bytes_max: 1 << 20,
    code: &codes::CLUSTER_SEAT,
    next: "check the path",
};

pub(crate) fn run(command: &ClusterCommand, json: bool) -> Result<Exit, Faults> {
    match command {
        ClusterCommand::Keygen { key } => keygen(key, json)?,
        ClusterCommand::Sign { list, key, output } => sign(list, key, output, json)?,
        ClusterCommand::Check { list, operator_key } => check(list, operator_key, json)?,
    }
    Ok(Exit::Done)
}

fn keygen(path: &Path, json: bool) -> Result<(), Diagnosis> {
    let about = |why: &dyn Error| fault(path, why);
    let pair = KeyPair::generate().map_err(|why| about(&why))?;
    pair.write(path).map_err(|why| about(&why))?;
    print_key("public key", &pair.public().to_string(), json);
    Ok(())
}

fn sign(list: &Path, key: &Path, output: &Path, json: bool) -> Result<(), Diagnosis> {
    let text = UNSIGNED_LIST.read_text(list)?;
    let parsed = MemberList::parse(&text).map_err(|why| fault(list, &why))?;
    let signing = signing_key(key)?;
    let signed = parsed.sign(&signing).map_err(|why| fault(list, &why))?;
    write_whole(output, signed.as_bytes(), Existing::Keep).map_err(|why| fault(output, &why))?;
    print_key("operator key", &signing.verifying_key().to_string(), json);
    Ok(())
}

/// Reads the operator's key, or makes it.
fn signing_key(path: &Path) -> Result<SigningKey, Diagnosis> {
    if path.exists() {
        return SigningKey::read(path).map_err(|why| fault(path, &why));
    }
    let key = SigningKey::generate().map_err(|why| fault(path, &why))?;
    key.write(path).map_err(|why| fault(path, &why))?;
    Ok(key)
}

fn check(list: &Path, operator_key: &str, json: bool) -> Result<(), Diagnosis> {
    let key: VerifyingKey = operator_key.parse().map_err(|why| fault(Path::new("--operator-key"), &why))?;
    let found = MemberList::read(list, &key).map_err(|why| fault(list, &why))?;
    let seats = found.seats.iter().enumerate().map(|(number, seat)| ClusterSeat {
        name: seat.name.clone(),
        address: seat.addresses_text(),
        public_key: seat.key.to_string(),
        witness: found.witness == Some(number),
    });
    let report = ClusterList {
        schema: CLUSTER_LIST_SCHEMA.to_owned(),
        name: found.name.clone(),
        serial: found.serial,
        seats: seats.collect(),
    };
    match json {
        true => output::print_json(&report),
        false => output::print(&text(&report)),
    }
    Ok(())
}

fn text(list: &ClusterList) -> String {
    let row = |seat: &ClusterSeat| {
        let witness = if seat.witness { "witness" } else { "" };
        vec![seat.name.clone(), seat.address.clone(), seat.public_key.clone(), witness.to_owned()]
    };
    let table =
        output::table(&["seat", "address", "public key", ""], 4, list.seats.iter().map(row).collect());
    format!("cluster {}, serial {}: valid signature\n{table}", list.name, list.serial)
}

fn print_key(what: &str, key: &str, json: bool) {
    match json {
        true => output::print_json(&ClusterKey {
            schema: CLUSTER_KEY_SCHEMA.to_owned(),
            public_key: key.to_owned(),
        }),
        false => output::print(&format!("{what}: {key}")),
    }
}

fn fault(path: &Path, why: &dyn Error) -> Diagnosis {
    let source = why.source().map(|source| format!(": {source}")).unwrap_or_default();
    let (subject, next) = (path.display().to_string(), "see `orinoco explain E1004`");
    Diagnosis::new(&codes::CLUSTER_SEAT, subject, format!("{why}{source}"), next)
}
