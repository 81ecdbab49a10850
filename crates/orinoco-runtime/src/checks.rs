//! Checks of a board that need no engine, so that all of their faults are reported together: sources, models and their
//! descriptions, zones, lines, and classes of objects.

use orinoco_board::{
    Board, BoardError, BoardModel, BoardStream, ObjectSelectionSpec, SourceFault, TrackSpec,
};
use orinoco_config::{FaultList, Faults};
use orinoco_core::{Diagnosis, codes};
use orinoco_model::{Model, Repository};

use crate::model_entry::ModelEntry;
use crate::track::check_shapes;

/// Checks the streams and models that join a board.
pub(crate) fn check_joining<'b>(
    streams: impl Iterator<Item = &'b BoardStream>,
    models: &[&BoardModel],
    repository: &Repository,
) -> Result<(), Faults> {
    let mut faults = FaultList::default();
    streams.for_each(|stream| check_stream(stream, &mut faults));
    check_models(models, repository, &mut faults);
    faults.finish(())
}

/// Returns every fault of a refused board. If its sources are faulty, the faults that a start finds without an engine in
/// the rest of the board are reported as well.
pub fn faults_of(error: BoardError, repository: &Repository) -> Faults {
    let (models, streams) = match error {
        BoardError::Faults(faults) => return faults,
        BoardError::Sources { models, streams } => (models, streams),
    };
    let mut faults = FaultList::default();
    for stream in streams {
        match stream {
            Ok(stream) => check_stream(&stream, &mut faults),
            Err(SourceFault { stream, track, fault }) => {
                faults.push(fault);
                check_track(&stream, track.as_ref(), &mut faults);
            }
        }
    }
    check_models(&models.iter().collect::<Vec<_>>(), repository, &mut faults);
    faults.finish(()).expect_err("at least one source is wrong")
}

/// Checks what only a change of the board file corrects, wherever it runs: zones, lines, and the classes of objects on which
/// secondary models operate. Models whose descriptions cannot be read are skipped.
///
/// # Errors
/// All faults.
pub fn check_references(board: &Board, repository: &Repository) -> Result<(), Faults> {
    let mut faults = FaultList::default();
    for stream in &board.streams {
        check_track(&stream.name, stream.track.as_ref(), &mut faults);
    }
    let models: Vec<&BoardModel> = board.models.iter().collect();
    let described: Vec<_> = models.iter().map(|spec| describe(spec, repository).ok()).collect();
    check_objects(&models, &described, &mut faults);
    faults.finish(())
}

fn check_stream(stream: &BoardStream, faults: &mut FaultList) {
    faults.value_of(check_source(stream).map_err(Faults::from));
    check_track(&stream.name, stream.track.as_ref(), faults);
}

fn check_track(stream: &str, track: Option<&TrackSpec>, faults: &mut FaultList) {
    faults.extend(track.into_iter().flat_map(|track| check_shapes(stream, track)));
}

fn check_models(models: &[&BoardModel], repository: &Repository, faults: &mut FaultList) {
    // The governor chooses a variant when the board is in trouble: a fault in it must be found before.
    for spec in models {
        for variant in spec.levels.variants.iter().filter(|variant| **variant != spec.model) {
            let spec = BoardModel { model: variant.clone(), ..(*spec).clone() };
            faults.value_of(describe(&spec, repository));
        }
    }
    let described: Vec<_> = models.iter().map(|spec| faults.value_of(describe(spec, repository))).collect();
    check_objects(models, &described, faults);
}

/// Checks the classes of objects on which secondary models operate. `described` has the description of each model, as far
/// as it could be read.
fn check_objects(models: &[&BoardModel], described: &[Option<Option<Model>>], faults: &mut FaultList) {
    for spec in models {
        let Some(on) = &spec.on else { continue };
        let primary = models.iter().position(|other| other.name == on.model);
        // If the primary model has no description, or is one that stays, the classes are checked when the stream is opened.
        if let Some(Some(Some(primary))) = primary.map(|primary| &described[primary]) {
            let classes = object_classes(spec, on, &primary.labels);
            faults.value_of(classes.map_err(|why| Faults::from(spec.written.fault(why))));
        }
    }
}

/// Reads the description of a model in the repository; `None` for a file without a description, which must exist.
fn describe(spec: &BoardModel, repository: &Repository) -> Result<Option<Model>, Faults> {
    // The ONNX file itself is read when the model is loaded. If it is missing, the repository makes the fault.
    let described = repository.read_description(&spec.model).and_then(|described| match described {
        // The seat that executes the model has the ONNX file.
        Some(model) if spec.is_loaded() && !model.file.is_file() => repository.describe(&spec.model),
        described => Ok(described),
    });
    let described = described.map_err(|faults| faults.into_iter().map(|fault| spec.written.fault(fault)));
    let mut faults = FaultList::default();
    let described = faults.value_of(described);
    faults.finish(described.flatten())
}

/// Checks that a stream's source exists, as far as it is local.
pub(crate) fn check_source(stream: &BoardStream) -> Result<(), Diagnosis> {
    orinoco_media::check_source(&stream.source).map_err(|why| stream.written.fault(why))
}

/// Returns the classes of objects on which a secondary model operates, as indices into `labels`, those of the primary
/// model.
pub(crate) fn object_classes(
    spec: &BoardModel,
    on: &ObjectSelectionSpec,
    labels: &[String],
) -> Result<Vec<u32>, Diagnosis> {
    let class = |name: &String| {
        let place = labels.iter().position(|label| label == name);
        place.map(|class| class as u32).ok_or_else(|| {
            let cause = format!("`{}` has no class `{name}`", on.model);
            let next = format!("use one of {}", labels.join(", "));
            Diagnosis::new(&codes::REFERENCE, format!("model {}", spec.name), cause, next)
        })
    };
    on.classes.iter().map(class).collect()
}

/// Checks that a model with implicit state serves one stream, one whole frame at a time: frames of other streams would mix
/// in its state. Streams name models by their indices into `models`.
pub(crate) fn check_states(streams: &[BoardStream], models: &[&ModelEntry]) -> Result<(), Diagnosis> {
    for (index, model) in models.iter().enumerate().filter(|(_, model)| model.has_state) {
        let users = streams.iter().filter(|stream| stream.models.contains(&index));
        let users: Vec<&str> = users.map(|stream| stream.name.as_str()).collect();
        let serves = match (users.len(), model.summary.batch, &model.spec.on) {
            (2.., ..) => format!("serves {}", users.join(", ")),
            (_, 2.., _) => format!("its batch is {}", model.summary.batch),
            (.., Some(on)) => format!("operates on every object of {}", on.model),
            _ => continue,
        };
        let cause = format!("it is stateful (keeps state between frames), and {serves}");
        let next = "give each stream a [[model]] of its own, for whole frames, with batch = 1";
        return Err(Diagnosis::new(
            &codes::MODEL_DISAGREES,
            format!("model {}", model.names.name),
            cause,
            next,
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capabilities::capabilities;
    use crate::testing::repository;
    use expect_test::expect;

    #[test]
    fn faults_of_sources_come_with_those_of_files_zones_and_models() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let (path, shown) = (dir.path().join("b.toml"), dir.path().display().to_string());
        let zone = "[[stream.zone]]\nname = 'z'\ncorners = [0, 0, 1, 1, 0, 0]\n";
        let stream = |name, source: &str, zone| {
            format!("[[stream]]\nname = '{name}'\nsource = '{source}'\nmodels = ['m']\n{zone}")
        };
        let streams = [
            stream("gone", "${dir}/gone.mp4", ""),
            stream("wrong", "ftp://u:secret@host/a", zone),
            stream("fine", "test://ball", ""),
            stream("empty", "", ""),
        ];
        let text = format!("version = 1\n[[model]]\nname = 'm'\nmodel = 'nothing'\n{}", streams.concat());
        std::fs::write(&path, text).expect("written");
        let error = orinoco_board::load(&path, &capabilities(), &orinoco_config::Vars::new())
            .expect_err("much is wrong");
        let faults = faults_of(error, &repository());
        let seen: Vec<String> = faults.iter().map(|fault| format!("{} {fault}\n", fault.code.id)).collect();
        expect![[r#"
            E0101 /b.toml:7: /gone.mp4: there is no such file; check the path
            E0401 /b.toml:11: ftp://u:***@host/a: `ftp://` is not a kind of source; use file://, csi://, v4l2://, rtsp://, http://, stdin:// or test://ball, or a plain path
            E0106 /b.toml:15: stream wrong, zone z: its points are all in one place or in one line; give points from 0 to 1 that form a polygon (zone) or a line
            E0401 /b.toml:22: source: it is empty; name a file, a folder of images, csi://, v4l2://, rtsp://, http://, stdin:// or test://ball
            E0201 /b.toml:4: nothing: no such model in; the repository is empty: choose another with --models
        "#]].assert_eq(&seen.concat().replace(&shown, ""));
    }
}
