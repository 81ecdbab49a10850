//! Checks of a board that need no engine, so that all of their faults come together: sources, models and their
//! descriptions, zones, lines, and classes of objects.

use orinoco_board::{BoardModel, BoardStream, ObjectsSpec};
use orinoco_config::{FaultList, Faults};
use orinoco_core::{Diagnosis, codes};
use orinoco_media::SourceUri;
use orinoco_model::{Model, Repository};

use crate::follow::check_shapes;
use crate::known::KnownModel;

/// Checks the streams and models that join a board.
pub(crate) fn check_joining<'b>(
    streams: impl Iterator<Item = &'b BoardStream>,
    models: &[&BoardModel],
    repository: &Repository,
) -> Result<(), Faults> {
    let mut faults = FaultList::default();
    for stream in streams {
        faults.value_of(check_source(stream).map_err(Faults::from));
        if let Some(track) = &stream.track {
            faults.extend(check_shapes(stream, track));
        }
    }
    let described: Vec<_> = models.iter().map(|spec| faults.value_of(describe(spec, repository))).collect();
    for spec in models {
        let Some(on) = &spec.on else { continue };
        let finder = models.iter().position(|other| other.name == on.model);
        // Labels of a model without a description are known when it is loaded, and those of one that stays by now.
        if let Some(Some(Some(finder))) = finder.map(|finder| &described[finder]) {
            let classes = object_classes(spec, on, &finder.labels);
            faults.value_of(classes.map_err(|why| Faults::from(spec.written.fault(why))));
        }
    }
    faults.finish(())
}

/// Reads what the repository says of a model; `None` for a file without a description, which has to be there.
fn describe(spec: &BoardModel, repository: &Repository) -> Result<Option<Model>, Faults> {
    // The file itself is read when the model is loaded, unless it is not there: the fault is the repository's to word.
    let described = repository.read_description(&spec.model).and_then(|described| match described {
        Some(model) if !model.file.is_file() => repository.describe(&spec.model),
        described => Ok(described),
    });
    let described = described.map_err(|faults| faults.into_iter().map(|fault| spec.written.fault(fault)));
    let mut faults = FaultList::default();
    let described = faults.value_of(described);
    faults.finish(described.flatten())
}

/// Parses a stream's source, and checks that a local file is there.
pub(crate) fn check_source(stream: &BoardStream) -> Result<SourceUri, Diagnosis> {
    let checked = SourceUri::parse(&stream.source).and_then(|uri| uri.check().map(|()| uri));
    checked.map_err(|why| stream.written.fault(why))
}

/// Returns the classes of objects that a model looks at, by the `labels` of the model that finds them.
pub(crate) fn object_classes(
    spec: &BoardModel,
    on: &ObjectsSpec,
    labels: &[String],
) -> Result<Vec<u32>, Diagnosis> {
    let class = |name: &String| {
        let place = labels.iter().position(|label| label == name);
        place.map(|class| class as u32).ok_or_else(|| {
            let cause = format!("`{}` finds nothing called `{name}`", on.model);
            let next = format!("use one of {}", labels.join(", "));
            Diagnosis::new(&codes::REFERENCE, format!("model {}", spec.name), cause, next)
        })
    };
    on.classes.iter().map(class).collect()
}

/// Checks that a model which carries a state from frame to frame serves one stream, one whole frame at a time: what it sees
/// of others would mix in it. Streams name models by their indices into `models`.
pub(crate) fn check_states(streams: &[BoardStream], models: &[&KnownModel]) -> Result<(), Diagnosis> {
    for (index, model) in models.iter().enumerate().filter(|(_, model)| model.has_state) {
        let users = streams.iter().filter(|stream| stream.models.contains(&index));
        let users: Vec<&str> = users.map(|stream| stream.name.as_str()).collect();
        let serves = match (users.len(), model.summary.batch, &model.spec.on) {
            (2.., ..) => format!("serves {}", users.join(", ")),
            (_, 2.., _) => format!("its batch is {}", model.summary.batch),
            (.., Some(on)) => format!("works on every object that {} finds", on.model),
            _ => continue,
        };
        let cause = format!("it carries a state from frame to frame, and {serves}");
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
