//! Default folders of data and models.

use std::env;
use std::path::{Path, PathBuf};

use orinoco_config::Vars;
use orinoco_infer::Cache;
use orinoco_model::Repository;

/// Returns the folders of shared data: `named`, else `$ORINOCO_DATA`, else `data` in the current folder, the package's
/// `/var/lib/orinoco/data`, and `../shared/data`, which is next to a checkout in which models are tested.
pub fn data_dirs(named: Option<&Path>) -> Vec<PathBuf> {
    let from_env = || env::var_os("ORINOCO_DATA").map(PathBuf::from);
    let dir = named.map(Path::to_owned).or_else(from_env);
    match dir {
        Some(dir) => vec![dir],
        None => ["data", "/var/lib/orinoco/data", "../shared/data"].map(PathBuf::from).into(),
    }
}

/// Returns the model repository: `named`, else `$ORINOCO_MODELS`, else `models` in the current folder and the package's
/// `/var/lib/orinoco/models`.
pub fn repository(named: Option<&Path>, data: Option<&Path>) -> Repository {
    let from_env = || env::var_os("ORINOCO_MODELS").map(PathBuf::from);
    let roots = match named.map(Path::to_owned).or_else(from_env) {
        Some(dir) => vec![dir],
        None => vec![PathBuf::from("models"), PathBuf::from("/var/lib/orinoco/models")],
    };
    Repository { roots, data: data_dirs(data) }
}

/// Returns the values of `${name}` in board files: `cache`, if the user has a cache folder that no other user can write.
pub fn vars() -> Vars {
    let cache = Cache::of_process().ok();
    cache.map(|cache| ("cache".to_owned(), cache.folder().display().to_string())).into_iter().collect()
}
