//! Search for the library of ONNX Runtime, and loading it.
//!
//! The search runs once per process, in a fixed order. The first library that exists is used, or its fault is reported:
//! a library that the user chose explicitly is never replaced by another one in silence.

use std::error::Error as _;
use std::fs;
use std::path::{Path, PathBuf};

use ort::LoadDynamicError;
use ort::environment::Environment;
use ort::logging::LogLevel;

use crate::cache::{Cache, CacheUnavailable};
use crate::context::EngineContext;
use crate::engine::EngineInfo;
use crate::engine_error::shorten;

/// Loaded library with its environment. ONNX Runtime allows one environment per process, and `ort` one library.
pub(super) struct Runtime {
    pub(super) environment: Environment,
    pub(super) info: EngineInfo,
    /// Whether the allocator for memory of a GPU is registered, so that sessions can use it.
    #[cfg(feature = "cuda")]
    pub(super) gives_device_memory: std::sync::Mutex<bool>,
}

impl Runtime {
    /// Returns an error if `wanted` is another library than the one that this process has loaded.
    pub(super) fn check_is(&self, wanted: Option<&Path>) -> Result<(), String> {
        let (Some(wanted), Some(loaded)) = (wanted, &self.info.library) else { return Ok(()) };
        if wanted.canonicalize().is_ok_and(|wanted| wanted == *loaded) {
            return Ok(());
        }
        let (wanted, loaded) = (wanted.display(), loaded.display());
        Err(format!("{wanted} cannot be used, because this process has already loaded {loaded}"))
    }
}

fn load_error(library: &Path, why: &LoadDynamicError) -> String {
    let library = library.display();
    match why {
        // `ort`'s feature `api-20` makes 1.20 the oldest version. It is the first with everything that is used here,
        // and there are builds of it for JetPack 6.
        LoadDynamicError::BadVersion { version_str, .. } => {
            format!(
                "{library} is ONNX Runtime {version_str}, but 1.{} or newer is needed",
                ort::MINOR_VERSION
            )
        }
        LoadDynamicError::MissingApi { .. } => format!("{library} is not ONNX Runtime"),
        LoadDynamicError::InvalidVersionString => format!("{library} does not report its version"),
        LoadDynamicError::Dlopen { error, .. } => {
            let reason = error.source().map_or_else(|| error.to_string(), |source| source.to_string());
            format!(
                "{library} cannot be loaded: {}",
                shorten(reason.trim_start_matches(&format!("{library}: ")))
            )
        }
    }
}

/// Returns the real path and the full version of the library that was just loaded. The library itself reports only its
/// minor version, and only before it is loaded; its file name has the full version.
fn identify(library: PathBuf) -> (PathBuf, String) {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut mapped = maps.lines().filter_map(|line| line.find('/').map(|at| PathBuf::from(&line[at..])));
    let real = match library.canonicalize() {
        Ok(real) if library.is_absolute() => real,
        _ => mapped.find(|path| is_library(path)).unwrap_or(library),
    };
    let named =
        real.to_str().and_then(|path| path.rsplit_once(".so.")).map(|(_, version)| version.to_owned());
    let version = named.filter(|version| version.contains('.')).unwrap_or_else(|| {
        let minor = ort::util::probe(&real).unwrap_or(ort::MINOR_VERSION);
        format!("1.{minor}")
    });
    (real, version)
}

const LIBRARY: &str = "libonnxruntime.so";
/// Folder of the libraries inside the cache.
const CACHED: &str = "onnxruntime";

fn is_library(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(LIBRARY))
}

/// Places to search for the library.
#[derive(Debug, Default)]
pub(super) struct Search {
    option: Option<PathBuf>,
    variable: Option<PathBuf>,
    cache: Option<Result<Cache, CacheUnavailable>>,
}

impl Search {
    /// Returns the places of a context: its options, the environment and the cache.
    pub(super) fn of(context: &EngineContext) -> Self {
        let variable =
            |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        Self {
            option: context.options().ort_library.clone(),
            variable: variable("ORT_DYLIB_PATH"),
            cache: Some(context.cache().cloned().map_err(CacheUnavailable::clone)),
        }
    }

    /// Loads the first library that is found, and creates its environment.
    pub(super) fn load(&self) -> Result<Runtime, String> {
        let mut builder = None;
        for library in self.candidates()? {
            match ort::init_from(&library) {
                Ok(found) => {
                    builder = Some((found, library));
                    break;
                }
                // A bare name that the system's loader does not find is not an error yet.
                Err(LoadDynamicError::Dlopen { .. }) if !library.is_absolute() => {}
                Err(why) => return Err(load_error(&library, &why)),
            }
        }
        let (builder, library) = builder.ok_or_else(|| self.nothing_found())?;
        // This disables telemetry on Windows. On Linux only the environment can: programs call
        // `orinoco_runtime::set_up_process` first.
        let environment = builder.with_name("orinoco").with_telemetry(false).build();
        let environment = environment.map_err(|why| shorten(why.message()))?;
        // Messages that it would print to standard error are returned as errors, and reported once.
        environment.set_log_level(LogLevel::Fatal);
        let (library, version) = identify(library);
        Ok(Runtime {
            environment,
            info: EngineInfo { version, library: Some(library) },
            #[cfg(feature = "cuda")]
            gives_device_memory: std::sync::Mutex::new(false),
        })
    }

    /// Returns the libraries to try, in order: one path, or names for the system's loader.
    fn candidates(&self) -> Result<Vec<PathBuf>, String> {
        let named = self.option.as_ref().map(|path| (path, "ort_library"));
        let named = named.or(self.variable.as_ref().map(|path| (path, "ORT_DYLIB_PATH")));
        if let Some((path, origin)) = named {
            let real = path.canonicalize();
            return Ok(vec![real.map_err(|why| format!("{}, named by {origin}: {why}", path.display()))?]);
        }
        if let Ok(Some(cached)) = self.cached() {
            return Ok(vec![cached]);
        }
        // Debian's runtime package contains only the name with the major version.
        Ok(vec![PathBuf::from(LIBRARY), PathBuf::from(format!("{LIBRARY}.1"))])
    }

    /// Returns the newest library in the cache. All files next to it are checked too, because it loads its providers
    /// from there.
    fn cached(&self) -> Result<Option<PathBuf>, String> {
        let Some(cache) = &self.cache else { return Ok(None) };
        let cache = cache.as_ref().map_err(CacheUnavailable::to_string)?;
        let Some(library) = newest_cached(&cache.folder().join(CACHED)) else { return Ok(None) };
        let folder = library.parent().unwrap_or(cache.folder());
        for entry in fs::read_dir(folder).map_err(|why| format!("{}: {why}", folder.display()))?.flatten() {
            cache.check(&entry.path())?;
        }
        Ok(Some(library))
    }

    fn nothing_found(&self) -> String {
        let place = match &self.cache {
            Some(Ok(cache)) => cache.folder().join(CACHED).display().to_string(),
            _ => "the user's cache".to_owned(),
        };
        let not_used = self.cached().err().map_or_else(String::new, |why| format!("; {why}"));
        format!(
            "no usable {LIBRARY} in {place} or the system's library folders{not_used}; copy it there, set \
             ORT_DYLIB_PATH, or set ort_library in the board file"
        )
    }
}

/// Returns the library of the newest version in `<cache>/<version>/<arch>/`.
fn newest_cached(cache: &Path) -> Option<PathBuf> {
    let entries =
        |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries(cache)
        .filter_map(|folder| {
            let version = version_key(folder.file_name()?.to_str()?)?;
            // A folder may contain links next to the library; the longest name is the library itself.
            let library =
                entries(&folder.join(std::env::consts::ARCH)).filter(|path| is_library(path)).max()?;
            Some((version, library))
        })
        .max()
        .map(|(_, library)| library)
}

fn version_key(text: &str) -> Option<Vec<u32>> {
    text.split('.').map(|part| part.parse().ok()).collect()
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_explicit_library_that_is_not_there_is_not_replaced() {
        let search = Search { option: Some("/no/such/lib.so".into()), ..Search::default() };
        let why = search.candidates().unwrap_err();
        assert!(why.starts_with("/no/such/lib.so, named by ort_library: "), "{why}");
        let search = Search { variable: Some("/no/such/lib.so".into()), ..Search::default() };
        let why = search.candidates().unwrap_err();
        assert!(why.contains("named by ORT_DYLIB_PATH"), "{why}");
    }

    #[test]
    fn the_newest_cached_library_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let cache = dir.path().join(CACHED);
        for (version, arch) in
            [("1.9.0", std::env::consts::ARCH), ("1.22.1", std::env::consts::ARCH), ("2.0", "z80")]
        {
            let folder = cache.join(version).join(arch);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("libonnxruntime_providers_shared.so"), "").unwrap();
            fs::write(folder.join(format!("{LIBRARY}.{version}")), "").unwrap();
        }
        fs::create_dir(cache.join("not-a-version")).unwrap();
        let trusted = Cache::at(dir.path().to_owned());
        let search = Search { cache: Some(trusted), ..Search::default() };
        let found = search.candidates().unwrap();
        let newest = cache.join("1.22.1").join(std::env::consts::ARCH).join("libonnxruntime.so.1.22.1");
        assert_eq!(found, std::slice::from_ref(&newest));
        assert!(search.nothing_found().contains("copy it there, set ORT_DYLIB_PATH, or set ort_library"));
        // A provider that another user could have put next to the library would be loaded with it.
        let provider = newest.with_file_name("libonnxruntime_providers_shared.so");
        fs::set_permissions(&provider, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
        assert_eq!(search.candidates().unwrap(), [LIBRARY.into(), PathBuf::from(format!("{LIBRARY}.1"))]);
        let why = search.nothing_found();
        assert!(why.contains("providers_shared.so is ignored: others can write it"), "{why}");
    }

    #[test]
    fn without_any_the_systems_loader_is_asked() {
        let found = Search::default().candidates().unwrap();
        assert_eq!(found, [PathBuf::from("libonnxruntime.so"), PathBuf::from("libonnxruntime.so.1")]);
    }

    #[test]
    fn a_file_that_is_no_library_is_reported() {
        let library = tempfile::NamedTempFile::new().unwrap();
        let search = Search { option: Some(library.path().to_owned()), ..Search::default() };
        let why = search.load().map(|runtime| runtime.info).unwrap_err();
        assert!(why.ends_with("cannot be loaded: file too short"), "{why}");
    }
}
