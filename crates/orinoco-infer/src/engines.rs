//! List of all engines, one line each, in the default order of preference.

mod onnxruntime;
#[cfg(feature = "tract")]
mod pure_rust;

use orinoco_core::{Diagnosis, codes};

pub use self::onnxruntime::stray_requests;
use crate::engine::Engine;

macro_rules! engines {
    ($($(#[$built:meta])? $name:literal => $engine:expr;)*) => {
        /// Names of all engines, including those that this build does not have.
        pub const ENGINES: [&str; [$($name),*].len()] = [$($name),*];

        /// Returns every engine of this build, in the default order of preference.
        pub fn engines() -> Vec<&'static dyn Engine> {
            vec![$($(#[$built])? { &$engine as &'static dyn Engine },)*]
        }
    };
}

engines! {
    #[cfg(feature = "cuda")] "ort-cuda" => onnxruntime::OnnxRuntime::CUDA;
    "ort-cpu" => onnxruntime::OnnxRuntime::CPU;
    #[cfg(feature = "tract")] "tract" => pure_rust::PureRust;
}

/// Returns the engine with this name.
///
/// # Errors
/// `E0301` if this build has no such engine.
pub fn by_name(name: &str) -> Result<&'static dyn Engine, Diagnosis> {
    find(&engines(), name)
}

/// Returns the engine among `engines` with this name.
pub(crate) fn find(engines: &[&'static dyn Engine], name: &str) -> Result<&'static dyn Engine, Diagnosis> {
    engines.iter().copied().find(|engine| engine.name() == name).ok_or_else(|| {
        let names: Vec<&str> = engines.iter().map(|engine| engine.name()).collect();
        let next = format!("use one of {}", names.join(", "));
        Diagnosis::new(&codes::ENGINE_UNKNOWN, name, "no engine has this name", next)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_are_found_by_name() {
        assert_eq!(by_name("ort-cpu").map(|engine| engine.name()).unwrap(), "ort-cpu");
        assert_eq!(by_name("tensorflow").err().unwrap().code.id, codes::ENGINE_UNKNOWN.id);
    }

    #[test]
    fn an_engines_name_is_that_of_its_line() {
        let built: Vec<&str> = engines().iter().map(|engine| engine.name()).collect();
        let listed: Vec<&str> = ENGINES.into_iter().filter(|name| built.contains(name)).collect();
        assert_eq!(built, listed);
    }
}
