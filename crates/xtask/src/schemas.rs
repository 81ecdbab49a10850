//! The JSON Schemas of the contracts, as files. A test of `orinoco-api` compares them with the types.

use std::fs;

use anyhow::{Context, Result};
use orinoco_api::CONTRACTS;

use crate::workspace::root;

/// Writes the schema of every contract into `docs/schemas`, and removes those of contracts that are gone.
pub(crate) fn write() -> Result<()> {
    let folder = root().join("docs/schemas");
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("removing {}", folder.display()))?;
    }
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    for contract in &CONTRACTS {
        let file = folder.join(contract.file_name());
        fs::write(&file, contract.file_text()).with_context(|| format!("writing {}", file.display()))?;
    }
    println!("{} schemas in docs/schemas", CONTRACTS.len());
    Ok(())
}
