//! `orinoco bench model`: the card of a model on an engine and a board, with accuracy, latency, memory, power and energy, and
//! the comparison of several cards.

mod accuracy;
mod board;
mod card;
mod compare;
mod latency;
mod memory;
mod plot;
mod power;
mod subject;
mod tables;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use orinoco_api::{ModelCard, WarmUp};
use orinoco_config::{Existing, Faults, write_whole};
use orinoco_core::{Clock, Diagnosis, Dim, Exit, WithSubject, codes};
use orinoco_model::{ModelInput, Repository};
use orinoco_pipeline::MonotonicClock;
use orinoco_runtime::{Quiet, data_dirs, repository};
use orinoco_sysroot::Sysroot;

use self::accuracy::AccuracySource;
use self::board::BoardSensors;
use self::card::Parts;
use self::latency::Throughput;
use self::subject::{Input, Subject};
use crate::args::BenchModelArgs;
use crate::output::{self, EventLines};

pub(crate) use self::memory::run_child;

/// Maximum batch size of a graph whose batch axis is open, as for `orinoco run`.
const BATCH_MAX: usize = 64;

pub(crate) fn run(args: &BenchModelArgs, json: bool) -> Result<Exit, Faults> {
    let cards = match (&args.model, &args.compare[..]) {
        (Some(model), _) => measure(args, model)?,
        (None, files) => files.iter().map(|file| compare::read(file)).collect::<Result<_, _>>()?,
    };
    if let Some(folder) = &args.output {
        write_files(folder, &cards, args.model.is_some())?;
    }
    match (&cards[..], json) {
        ([card], true) => output::print_json(card),
        ([card], false) => output::print(&tables::text(&tables::card(card))),
        (cards, true) => output::print_json(&compare::comparison(cards)),
        (cards, false) => output::print(&tables::text(&tables::comparison(&compare::comparison(cards)))),
    }
    Ok(Exit::Done)
}

/// Measures the model on each engine, side by side.
fn measure(args: &BenchModelArgs, model: &str) -> Result<Vec<ModelCard>, Faults> {
    check_engines(&args.engine)?;
    let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::default());
    let place = repository(args.place.models.as_deref(), args.place.data.as_deref());
    let seconds = Duration::from_secs_f64(args.seconds);
    let engines: Vec<Option<&str>> = match &args.engine[..] {
        [] => vec![None],
        names => names.iter().map(|name| Some(name.as_str())).collect(),
    };
    let mut bench = Bench { args, model, place, clock, input: Input::Sound };
    let source = bench.accuracy_source()?;
    let mut subjects = bench.load_first(&engines, &source)?;
    let mut board = BoardSensors::find(Sysroot::host());
    let measured_at = bench.clock.wall();
    let before = board.conditions(bench.clock.now());
    let warm_up = subjects.iter_mut().map(|subject| bench.warm_up(subject)).collect::<Result<Vec<_>, _>>()?;

    output::note("latency");
    let latency = latency::measure(&mut subjects, seconds, &*bench.clock)?;
    output::note("power and energy");
    let power = power::measure(&mut subjects, &board, seconds, &bench.clock)?;
    let throughput = bench.throughput(&mut subjects, &latency, seconds)?;
    let after = board.conditions(bench.clock.now());

    let mut cards = Vec::new();
    for (index, subject) in subjects.iter_mut().enumerate() {
        output::note(&format!("memory and accuracy on {}", subject.engine()));
        let parts = Parts {
            measured_at,
            seconds: args.seconds,
            input: bench.input.text(),
            accuracy: accuracy::measure(&source, &mut subject.loaded)?,
            latency: &latency[index],
            throughput: &throughput[index],
            memory: memory::measure(args, model, subject.loaded.chosen.name)?,
            power: &power[index],
            warm_up: warm_up[index],
            conditions: [before.clone(), after.clone()],
        };
        cards.push(card::assemble(subject, &board, parts)?);
    }
    Ok(cards)
}

/// Checks that no engine is named twice: their cards would have the same name.
fn check_engines(engines: &[String]) -> Result<(), Diagnosis> {
    let twice = engines.iter().enumerate().find(|(index, name)| engines[..*index].contains(name));
    match twice {
        Some((_, name)) => {
            let cause = format!("`{name}` is named twice");
            Err(Diagnosis::new(&codes::REFERENCE, "--engine", cause, "name each engine once"))
        }
        None => Ok(()),
    }
}

/// Measurement of one model.
struct Bench<'a> {
    args: &'a BenchModelArgs,
    model: &'a str,
    place: Repository,
    clock: Arc<dyn Clock>,
    input: Input,
}

impl Bench<'_> {
    fn accuracy_source(&self) -> Result<AccuracySource, Faults> {
        let data = data_dirs(self.args.place.data.as_deref());
        let name = crate::commands::board_model(self.model, 1, None).name;
        Ok(AccuracySource::open(self.args.dataset.as_deref(), &data, &name)?)
    }

    /// Loads the model on every engine for the smallest batch, and decides on what it runs.
    fn load_first(
        &mut self,
        engines: &[Option<&str>],
        source: &AccuracySource,
    ) -> Result<Vec<Subject>, Faults> {
        let mut loaded = Vec::new();
        for engine in engines {
            let start = self.clock.now();
            let model = subject::load(self.args, self.model, *engine, 1, &self.place, &EventLines)?;
            source.check(&model)?;
            loaded.push((model, self.clock.now().since(start)));
        }
        if matches!(loaded[0].0.model.input, ModelInput::Image(_)) {
            self.input = Input::of(&source.images(), &*self.clock)?;
        }
        let bind = |(model, load)| Subject::bind(model, load, &self.input, &self.clock);
        Ok(loaded.into_iter().map(bind).collect::<Result<Vec<_>, _>>()?)
    }

    /// Executes the discarded inferences, and times the first.
    fn warm_up(&self, subject: &mut Subject) -> Result<WarmUp, Diagnosis> {
        let start = self.clock.now();
        subject.execute()?;
        let first = self.clock.now().since(start);
        for _ in 1..self.args.warm_up {
            subject.execute()?;
        }
        Ok(card::warm_up(subject.load, first, u64::from(self.args.warm_up)))
    }

    /// Measures the throughput at each batch size: the smallest has been measured with the latency; then twice as many, until
    /// the graph, an engine or the option sets an end.
    fn throughput(
        &self,
        subjects: &mut [Subject],
        latency: &[latency::Samples],
        seconds: Duration,
    ) -> Result<Vec<Throughput>, Faults> {
        let first = subjects.iter().zip(latency).map(|(subject, samples)| Throughput {
            batches: vec![samples.throughput(subject.batch())],
            limit: batch_limit(subject),
        });
        let mut results: Vec<Throughput> = first.collect();
        let max = self.args.batch_max.map_or(BATCH_MAX, usize::from);
        for batch in std::iter::successors(Some(2), |batch| Some(batch * 2)).take_while(|batch| *batch <= max)
        {
            let mut open: Vec<usize> =
                (0..results.len()).filter(|index| results[*index].limit.is_none()).collect();
            let mut group = Vec::new();
            open.retain(|index| match self.load_batch(subjects[*index].loaded.chosen.name, batch) {
                Ok(subject) => {
                    group.push(subject);
                    true
                }
                Err(why) => {
                    results[*index].limit = Some(format!("batch {batch}: {why}"));
                    false
                }
            });
            if group.is_empty() {
                break;
            }
            output::note(&format!("throughput at batch {batch}"));
            for subject in &mut group {
                subject.execute()?;
            }
            let samples = latency::measure(&mut group, seconds, &*self.clock)?;
            for (index, samples) in open.iter().zip(&samples) {
                results[*index].batches.push(samples.throughput(batch));
            }
        }
        Ok(results)
    }

    /// Loads the model for batches of `batch`. The error is the reason why it cannot, as a sentence.
    fn load_batch(&self, engine: &str, batch: usize) -> Result<Subject, String> {
        let cause =
            |faults: Faults| faults.as_slice().first().map_or_else(String::new, |fault| fault.cause.clone());
        let loaded =
            subject::load(self.args, self.model, Some(engine), batch, &self.place, &Quiet).map_err(cause)?;
        Subject::bind(loaded, Duration::ZERO, &self.input, &self.clock).map_err(|fault| fault.cause)
    }
}

/// Returns the reason why the model cannot run larger batches, as far as its graph shows it.
fn batch_limit(subject: &Subject) -> Option<String> {
    let loaded = &subject.loaded;
    if matches!(loaded.model.input, ModelInput::Audio(_)) {
        return Some("an audio model runs one window at a time".to_owned());
    }
    match loaded.chosen.prepared.inputs()[loaded.binding.input].shape.first() {
        Some(Dim::Fixed(batch)) => Some(format!("the graph fixes its batch at {batch}")),
        _ => None,
    }
}

/// Writes the cards, and their comparison if there are several, into `folder`.
fn write_files(folder: &Path, cards: &[ModelCard], is_measured: bool) -> Result<(), Diagnosis> {
    const NEXT: &str = "check that the folder can be written";
    std::fs::create_dir_all(folder).about(&codes::SINK_OPEN, folder.display(), NEXT)?;
    let write = |name: String, text: String| {
        let path = folder.join(name);
        let written = write_whole(&path, text.as_bytes(), Existing::Replace);
        written.about(&codes::SINK_OPEN, path.display(), NEXT)?;
        output::note(&format!("wrote {}", path.display()));
        Ok::<(), Diagnosis>(())
    };
    if is_measured {
        for card in cards {
            let name = if cards.len() == 1 { "card".to_owned() } else { format!("card-{}", card.engine) };
            write(format!("{name}.json"), json_text(card))?;
            write(format!("{name}.md"), tables::markdown(&tables::card(card)))?;
            write(format!("{name}.svg"), plot::card(card))?;
        }
    }
    if cards.len() > 1 {
        let comparison = compare::comparison(cards);
        write("comparison.json".to_owned(), json_text(&comparison))?;
        write("comparison.md".to_owned(), tables::markdown(&tables::comparison(&comparison)))?;
        write("comparison.svg".to_owned(), plot::comparison(&comparison))?;
    }
    Ok(())
}

fn json_text(value: &impl serde::Serialize) -> String {
    serde_json::to_string_pretty(value).expect("contracts have only text keys and plain numbers") + "\n"
}
