//! Boards, models and event logs that several tests share.

#![expect(clippy::disallowed_methods, reason = "tests wait for real threads")]

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use orinoco_board::{Board, BoardModel, BoardStream, ControlSpec, Inference, SensorsSpec};
use orinoco_core::{Choice, Clock};
use orinoco_infer::default_engines;
use orinoco_model::Repository;
use orinoco_pipeline::{MonotonicClock, Stop};
use orinoco_telemetry::{Event, EventSink, SourceState, Telemetry};
use orinoco_uri::SourceUri;
use orinoco_vision::HeadKind;

use crate::model_entry::{ModelEntry, Origin};
use crate::outputs::{ExistingOutputs, TakenFiles};
use crate::prepare::Context;
use crate::seats::{NoSeats, ServedModels};
use crate::shared::Shared;
use crate::sinks::ModelNames;
use crate::{BoardEngines, Quiet};

/// Maximum wait for anything in a test: longer is a hang.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(60);
/// URI of a source that never ends.
pub(crate) const ENDLESS: &str = "test://ball?pace=pts&width=160&height=120";

pub(crate) fn shared() -> Shared {
    let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::default());
    let engines = BoardEngines::new(&inference()).expect("engines of this build");
    let served = ServedModels::new(&clock);
    let (events, seats) = (Arc::new(Quiet), Arc::new(NoSeats));
    let (telemetry, stop) = (Telemetry::default(), Stop::default());
    let seed = 1;
    Shared { clock, seed, events, telemetry, stop, engines, seats, served }
}

/// Makes the settings of the default engines.
fn inference() -> Inference {
    Inference::new(default_engines().into_iter().map(str::to_owned).collect())
}

pub(crate) fn repository() -> Repository {
    Repository { roots: Vec::new(), data: Vec::new() }
}

pub(crate) fn uri(text: &str) -> SourceUri {
    SourceUri::parse(text).unwrap_or_else(|why| panic!("{why}"))
}

/// Makes a board whose streams have these names and sources, and no models.
pub(crate) fn board(lanes: usize, streams: &[(&str, &str)]) -> Board {
    let streams = streams.iter().map(|(name, source)| BoardStream::new(*name, uri(source), Vec::new()));
    let (streams, models, files) = (streams.collect(), Vec::new(), Vec::new());
    Board {
        name: "test".to_owned(),
        inference: inference(),
        memory: None,
        lanes,
        control: ControlSpec::default(),
        sensors: SensorsSpec::default(),
        otlp: None,
        cluster: None,
        governor: None,
        models,
        streams,
        files,
    }
}

/// Makes a known model from its folder; no engine has loaded it.
pub(crate) fn known(folder: &str) -> ModelEntry {
    let spec = BoardModel::new("m", folder);
    let origin = Origin::of(&spec, &repository()).expect("it is described");
    let summary = r#"{"name": "m", "file": "", "engine": "none", "engine_version": "", "batch": 1,
                      "pictures": 0, "replays": 0, "stages": [], "refused": []}"#;
    let summary = serde_json::from_str(summary).expect("it is one");
    let names = Arc::new(ModelNames { name: "m".to_owned(), engine: "none", labels: Vec::new() });
    ModelEntry {
        spec,
        summary,
        names,
        kind: HeadKind::ALL[0],
        generation: 0,
        has_state: false,
        origin,
        measured: None,
    }
}

pub(crate) fn demo_model() -> String {
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/person-nano").to_owned()
}

/// Makes the context in which a change of `board` is prepared.
pub(crate) fn context(board: &Board, events: Arc<dyn EventSink>, earlier: ExistingOutputs) -> Context {
    let engines = BoardEngines::new(&board.inference).expect("engines of this build");
    Context {
        shared: Shared { events, engines, ..shared() },
        repository: repository(),
        earlier,
        own: TakenFiles::default(),
    }
}

/// Log of events: `a live`, lanes that failed or restart, and faults of sensors and governor.
#[derive(Debug, Default)]
pub(crate) struct Log(Mutex<Vec<String>>);

impl Log {
    /// Returns the positions in the log of every line that is `text`.
    pub(crate) fn places(&self, text: &str) -> Vec<usize> {
        let lines = self.0.lock().expect("not poisoned");
        lines.iter().enumerate().filter(|(_, line)| *line == text).map(|(place, _)| place).collect()
    }

    pub(crate) fn wait(&self, text: &str, times: usize) {
        for _ in 0..WAIT_MAX.as_millis() / 10 {
            if self.places(text).len() >= times {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("not {times} times `{text}` in {:#?}", self.0);
    }
}

impl EventSink for Log {
    fn emit(&self, event: Event) {
        let text = match event {
            Event::Source { stream, state, .. } => format!("{stream} {}", SourceState::name(state)),
            Event::LaneFailed { lane, .. } => format!("lane {lane} failed"),
            Event::LaneRestarted { lane, .. } => format!("lane {lane} restarts"),
            Event::SensorsFailed { .. } => "sensors failed".to_owned(),
            Event::GovernorFault { why } => format!("governor {}", why.code.id),
            _ => return,
        };
        self.0.lock().expect("not poisoned").push(text);
    }
}
