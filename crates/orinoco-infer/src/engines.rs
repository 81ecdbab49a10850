//! Every engine, in order of preference. A new one is a file in this folder and a line in the list (docs/extending.md).
//! Other crates ask the methods of [`Engine`], and decide nothing by an engine's name.

use orinoco_core::{ComputeUnit, Diagnosis, codes};

pub use self::onnxruntime::stray_requests;
use crate::engine::Engine;

/// Declares each engine's module, and lists what it has: `mod file: "name" => CONSTANT;`. `if "feature"` names what a build
/// has to have for an engine.
macro_rules! engines {
    ($($(#[$built:meta])? mod $module:ident: $($name:literal $(if $feature:literal)? => $engine:ident),+;)*) => {
        $($(#[$built])? mod $module;)*

        /// Names of all engines, including those that this build does not have.
        pub const ENGINES: [&str; [$($($name),+),*].len()] = [$($($name),+),*];

        /// Returns every engine of this build, in order of preference.
        pub fn engines() -> Vec<&'static dyn Engine> {
            let mut built: Vec<&'static dyn Engine> = Vec::new();
            $($(#[$built])? {
                $($(#[cfg(feature = $feature)])? built.push(&$module::$engine);)+
            })*
            built
        }
    };
}

engines! {
    mod onnxruntime: "ort-cuda" if "cuda" => CUDA, "ort-cpu" => CPU;
    #[cfg(feature = "tract")] mod pure_rust: "tract" => ENGINE;
}

/// Returns the engine with this name.
///
/// # Errors
/// `E0301` if this build has no such engine.
pub fn by_name(name: &str) -> Result<&'static dyn Engine, Diagnosis> {
    find(&engines(), name)
}

/// Returns the names of the engines that are tried when nobody names any, in order of preference: those of this build that
/// compute on the CPU. A GPU is used only where its engine is named.
pub fn default_engines() -> Vec<&'static str> {
    let built = engines().into_iter();
    built.filter(|engine| engine.compute_unit() == ComputeUnit::Cpu).map(|engine| engine.name()).collect()
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
    fn the_default_is_onnx_runtime_on_the_cpu_then_tract() {
        let default = default_engines();
        let expected = if cfg!(feature = "tract") { vec!["ort-cpu", "tract"] } else { vec!["ort-cpu"] };
        assert!(default.starts_with(&expected) && !default.contains(&"ort-cuda"), "{default:?}");
    }

    #[test]
    fn an_engines_name_is_that_of_its_line() {
        let built: Vec<&str> = engines().iter().map(|engine| engine.name()).collect();
        let listed: Vec<&str> = ENGINES.into_iter().filter(|name| built.contains(name)).collect();
        assert_eq!(built, listed);
    }
}
