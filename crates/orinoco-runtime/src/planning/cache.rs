//! Needs of models, kept in the cache from one start to the next.

use std::fs::Permissions;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use orinoco_board::{BoardModel, Inference};
use orinoco_config::{Faults, FileKind};
use orinoco_infer::Cache;
use orinoco_model::Repository;
use orinoco_pipeline::Stop;
use sha2::{Digest, Sha256};

use super::child::measure_in_child;
use super::measure::{MeasureRequest, Measured};
use crate::BoardEngines;

/// Version of the measuring method. When it changes, cached figures of earlier versions are measured again.
const METHOD: u32 = 3;
/// File mode of cached figures.
const KEPT_MODE: u32 = 0o600;

/// Returns the measured memory of a model, from the cache or from a child process; `None` if `stop` was requested before it
/// was measured.
pub(super) fn find_or_measure(
    model: &BoardModel,
    inference: &Inference,
    engines: &BoardEngines,
    repository: &Repository,
    stop: &Stop,
) -> Result<Option<Measured>, Faults> {
    let asked = MeasureRequest {
        model: model.model.clone(),
        batch: model.batch,
        engines: inference.engines.clone(),
        threads: inference.threads,
        ort_library: inference.ort_library.clone(),
        roots: repository.roots.clone(),
        data: repository.data.clone(),
    };
    let cache = engines.context.cache().ok();
    let file = format!("{}.json", cache_key(&asked, engines, model, repository)?);
    let kept = cache.map(|cache| CachedNeeds { cache, file: cache.folder().join("memory").join(file) });
    if let Some(measured) = kept.as_ref().and_then(CachedNeeds::read) {
        return Ok(Some(measured));
    }
    // A file that differs from its description is refused here, because a fault of the child would be reported as one of
    // measuring.
    repository.describe(&model.model)?;
    let Some(measured) = measure_in_child(&asked, &model.name, stop)? else { return Ok(None) };
    // A cache that cannot be written only costs time at the next start.
    let _ = kept.map(|kept| kept.write(&measured));
    Ok(Some(measured))
}

/// Cached needs of a model.
struct CachedNeeds<'a> {
    cache: &'a Cache,
    file: PathBuf,
}

impl CachedNeeds<'_> {
    /// Returns the cached figures; `None` if another user could have written them.
    fn read(&self) -> Option<Measured> {
        self.cache.check(&self.file).ok()?;
        serde_json::from_slice(&FileKind::DESCRIPTION.read(&self.file).ok()?).ok()
    }

    fn write(&self, measured: &Measured) -> io::Result<()> {
        let folder = self.file.parent().expect("it is in a folder of the cache");
        self.cache.make_folder(folder)?;
        self.cache.check(folder).map_err(io::Error::other)?;
        let text = serde_json::to_vec(measured).expect("names and numbers");
        // Only the user may access the file, whatever the umask: a file that others can write is not read. If it cannot be
        // written whole, it is removed.
        let mut part = tempfile::Builder::new()
            .prefix(".orinoco-")
            .suffix(".part")
            .permissions(Permissions::from_mode(KEPT_MODE))
            .tempfile_in(folder)?;
        part.write_all(&text)?;
        part.persist(&self.file).map_err(|error| error.error)?;
        Ok(())
    }
}

/// Returns a hash of everything on which a model's needs depend: its file, its description, the batch size, and the
/// installed engines.
fn cache_key(
    asked: &MeasureRequest,
    engines: &BoardEngines,
    model: &BoardModel,
    repository: &Repository,
) -> Result<String, Faults> {
    // The length and the modification time of the file stand for its content; loading the model checks its hash.
    let described = repository.read_description(&model.model)?;
    let file = described.as_ref().map_or(Path::new(&model.model), |described| &described.file);
    let mut hash = Sha256::new();
    let mut add = |text: &str| {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    };
    add(&file.canonicalize().unwrap_or_else(|_| file.to_owned()).display().to_string());
    // The description counts, because a graph may leave the size of its input open.
    add(&format!("{described:?}"));
    if let Ok(metadata) = file.metadata() {
        let changed = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        add(&format!("{} {changed:?}", metadata.len()));
    }
    add(&format!("{METHOD} {} {} {}", asked.batch, asked.threads, env!("CARGO_PKG_VERSION")));
    for engine in engines.order.engines() {
        let version = engine.check(&engines.context).map_or_else(|why| why, |info| info.version);
        add(&format!("{} {version}", engine.name()));
    }
    #[cfg(feature = "cuda")]
    if engines.order.engines().any(|engine| engine.compute_unit() == orinoco_core::ComputeUnit::Gpu) {
        add(&engines.context.device().map_or_else(|why| why.reason, |device| format!("{:?}", device.info())));
    }
    Ok(hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::*;

    /// Variable that is set where the next test runs itself, with the folder of its cache.
    const CACHE_CHILD: &str = "ORINOCO_TEST_CACHE_CHILD";

    #[test]
    fn what_is_kept_is_for_the_user_alone_and_whole() {
        let measured = Measured {
            engine: "ort-cpu".into(),
            weights_bytes: 1,
            scratch_bytes: 2,
            tensors: Vec::new(),
            building_bytes: 3,
            on_device: None,
        };
        if let Some(dir) = std::env::var_os(CACHE_CHILD) {
            let cache = Cache::of_process().unwrap_or_else(|why| panic!("{why}"));
            assert!(cache.folder().starts_with(dir), "it is the test's own");
            let file = cache.folder().join("memory/key.json");
            let folder = file.parent().expect("it has one");
            let kept = CachedNeeds { cache: &cache, file: file.clone() };
            kept.write(&measured).expect("writable");
            assert_eq!(kept.read().expect("readable").scratch_bytes, 2);
            assert_eq!(file.metadata().expect("there").permissions().mode() & 0o777, KEPT_MODE);
            // A folder cannot be replaced by a file.
            fs::remove_file(&file).expect("removed");
            fs::create_dir(&file).expect("made");
            kept.write(&measured).expect_err("a folder is there");
            assert_eq!(fs::read_dir(folder).expect("there").count(), 1, "no part is left");
            return;
        }
        let dir = tempfile::tempdir().expect("temporary folder");
        let program = std::env::current_exe().expect("it has a path");
        let name = "planning::cache::tests::what_is_kept_is_for_the_user_alone_and_whole";
        let mut command = Command::new("sh");
        command.args(["-c", "umask 0; exec \"$0\" --exact \"$1\""]).arg(program).arg(name);
        command.env(CACHE_CHILD, dir.path()).env("XDG_CACHE_HOME", dir.path());
        let output = command.output().expect("it starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }

    #[test]
    fn another_description_is_measured_again() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/person-nano");
        fs::create_dir(dir.path().join("1")).expect("made");
        fs::copy(models.join("1/model.onnx"), dir.path().join("1/model.onnx")).expect("copied");
        let text = fs::read_to_string(models.join("model.toml")).expect("readable");
        let key = |text: &str| {
            fs::write(dir.path().join("model.toml"), text).expect("written");
            let repository = Repository { roots: Vec::new(), data: Vec::new() };
            let model = BoardModel::new("m", dir.path().display().to_string());
            let asked = MeasureRequest {
                model: model.model.clone(),
                batch: 1,
                engines: Vec::new(),
                threads: 1,
                ort_library: None,
                roots: Vec::new(),
                data: Vec::new(),
            };
            let inference = Inference::new(Vec::new());
            let engines = BoardEngines::new(&inference).expect("it names none");
            cache_key(&asked, &engines, &model, &repository).expect("it is described")
        };
        assert_eq!(key(&text), key(&text));
        let (from, to) = ("width = 384", "width = 416");
        assert!(text.contains(from));
        assert_ne!(key(&text), key(&text.replace(from, to)));
    }
}
