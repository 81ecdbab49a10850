//! Models of a run: their figures for the summary, and the files from which they were made.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use orinoco_api::ModelSummary;
use orinoco_board::BoardModel;
use orinoco_config::Faults;
use orinoco_core::{Diagnosis, codes};
use orinoco_model::{Model, Repository};
use orinoco_telemetry::EventSink;
use orinoco_vision::HeadKind;

use crate::planning::Measured;
use crate::seats::ModelIdentity;
use crate::sinks::ModelNames;
use crate::summary::{remote_of, summarise_model, summarise_seat_model};
use crate::{BoardEngines, LoadedModel, load_model};

/// Name that stands for the engine of a model that another seat executes.
const SEAT_ENGINE: &str = "cluster";

/// Model of a board: one for which an engine was probed, or one that another seat executes. It has the figures for the summary.
#[derive(Clone)]
pub(crate) struct ModelEntry {
    pub(crate) spec: BoardModel,
    pub(crate) summary: ModelSummary,
    pub(crate) names: Arc<ModelNames>,
    /// Kind of head that decodes its outputs.
    pub(crate) kind: HeadKind,
    /// Generation: it rises when the model is replaced while streams use it.
    pub(crate) generation: u32,
    /// Whether it has implicit state from frame to frame.
    pub(crate) has_state: bool,
    pub(crate) origin: Origin,
    /// Memory that it needs, if the board has a budget.
    pub(crate) measured: Option<Arc<Measured>>,
}

impl AsRef<BoardModel> for ModelEntry {
    fn as_ref(&self) -> &BoardModel {
        &self.spec
    }
}

impl ModelEntry {
    /// Describes a model that another seat executes, and that this board does not load.
    pub(crate) fn of_seat(spec: &BoardModel, repository: &Repository) -> Result<Self, Faults> {
        let origin = Origin::of(spec, repository)?;
        let Some(model) = &origin.described else {
            let cause = "another seat executes it, and this board has no model.toml with its head and labels";
            let (subject, next) = (format!("model {}", spec.name), "copy the model.toml from that board");
            let why = Diagnosis::new(&codes::MODEL_UNKNOWN, subject, cause, next);
            return Err(spec.written.fault(why).into());
        };
        refuse_state(spec, model)?;
        let name = spec.name.clone();
        let names = ModelNames { name, engine: SEAT_ENGINE, labels: model.labels.clone() };
        let (names, kind) = (Arc::new(names), model.head.kind);
        let summary = summarise_seat_model(spec, SEAT_ENGINE);
        let (generation, has_state, measured, spec) = (0, false, None, spec.clone());
        Ok(Self { spec, summary, names, kind, generation, has_state, origin, measured })
    }

    /// Returns what the model's results mean, for other seats.
    pub(crate) fn identity(&self) -> ModelIdentity {
        ModelIdentity::new(self.kind, &self.names.labels)
    }

    /// Loads a model and probes an engine for it.
    pub(crate) fn load(
        spec: &BoardModel,
        engines: &BoardEngines,
        repository: &Repository,
        events: &dyn EventSink,
    ) -> Result<(Self, LoadedModel), Faults> {
        // The files are looked at before loading, so that a file which is replaced meanwhile counts as changed.
        let origin = Origin::of(spec, repository)?;
        let loaded = load_model(spec, engines, repository, events)?;
        let (name, labels) = (loaded.name.clone(), loaded.model.labels.clone());
        if spec.seat.is_some() {
            refuse_state(spec, &loaded.model)?;
        }
        let known = Self {
            spec: spec.clone(),
            summary: ModelSummary { remote: remote_of(spec), ..summarise_model(&loaded) },
            names: Arc::new(ModelNames { name, engine: loaded.chosen.name, labels }),
            kind: loaded.model.head.kind,
            generation: 0,
            has_state: loaded.model.has_state(),
            origin,
            measured: None,
        };
        Ok((known, loaded))
    }
}

/// Refuses a model with implicit state for another seat: its images come from several boards, in any order.
fn refuse_state(spec: &BoardModel, model: &Model) -> Result<(), Diagnosis> {
    if !model.has_state() {
        return Ok(());
    }
    let cause = "it has implicit state from frame to frame, so another seat cannot execute it";
    let why =
        Diagnosis::new(&codes::REFERENCE, format!("model {}", spec.name), cause, "remove the key `seat`");
    Err(spec.written.fault(why))
}

/// Files from which a model was made.
#[derive(Clone, PartialEq)]
pub(crate) struct Origin {
    /// Description with its labels; `None` if it was guessed from the ONNX file.
    described: Option<Model>,
    /// Length and modification time of the ONNX file.
    stamp: Option<(u64, SystemTime)>,
}

impl Origin {
    /// Looks at the files of a model as they are now.
    pub(crate) fn of(spec: &BoardModel, repository: &Repository) -> Result<Self, Faults> {
        // The ONNX file is not read: loading checks its hash, and the length and time show later changes.
        let described = repository.read_description(&spec.model)?;
        let file = described.as_ref().map_or(Path::new(&spec.model), |model| &model.file);
        let metadata = file.metadata().ok();
        let stamp = metadata.and_then(|metadata| Some((metadata.len(), metadata.modified().ok()?)));
        Ok(Self { described, stamp })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{demo_model, repository, shared};
    use orinoco_core::codes;
    use std::fs;
    use std::path::PathBuf;

    #[test]
    fn every_change_of_a_model_is_noticed() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let (folder, demo) = (dir.path().display().to_string(), PathBuf::from(demo_model()));
        let put = |version: &str| {
            fs::create_dir(dir.path().join(version)).expect("made");
            let to = dir.path().join(version).join("model.onnx");
            fs::copy(demo.join("1/model.onnx"), to).expect("copied");
        };
        let text = fs::read_to_string(demo.join("model.toml")).expect("readable");
        let toml = dir.path().join("model.toml");
        put("1");
        fs::write(&toml, &text).expect("written");
        let spec = BoardModel::new("m", folder);
        let now = || Origin::of(&spec, &repository()).unwrap_or_else(|why| panic!("{why}"));
        let before = now();
        assert!(now() == before);
        assert!(text.contains("[\"person\"]"));
        fs::write(&toml, text.replace("[\"person\"]", "[\"human\"]")).expect("written");
        assert!(now() != before, "other labels");
        fs::write(&toml, &text).expect("written");
        assert!(now() == before);
        put("2");
        assert!(now() != before, "a newer version");
    }

    #[test]
    fn only_loading_a_model_checks_its_hash() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let demo = PathBuf::from(demo_model());
        fs::create_dir(dir.path().join("1")).expect("made");
        fs::copy(demo.join("1/model.onnx"), dir.path().join("1/model.onnx")).expect("copied");
        let text = fs::read_to_string(demo.join("model.toml")).expect("readable");
        let other = text.lines().filter(|line| !line.starts_with("sha256"));
        let text = format!("sha256 = '00'\n{}\n", other.collect::<Vec<_>>().join("\n"));
        fs::write(dir.path().join("model.toml"), text).expect("written");
        let spec = BoardModel::new("m", dir.path().display().to_string());
        assert!(Origin::of(&spec, &repository()).is_ok(), "it is not read");
        let refused = ModelEntry::load(&spec, &shared().engines, &repository(), &*shared().events);
        let faults = refused.map(drop).expect_err("it is another file");
        assert_eq!(faults.as_slice()[0].code.id, codes::MODEL_HASH.id);
    }
}
