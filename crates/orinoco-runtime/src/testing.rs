//! What several tests need.

#![expect(clippy::disallowed_methods, reason = "tests wait for real threads")]

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use orinoco_board::{Board, BoardModel, BoardStream, Inference};
use orinoco_model::Repository;
use orinoco_pipeline::{MonotonicClock, Stop};
use orinoco_telemetry::{Event, EventSink, SourceState, Telemetry};
use orinoco_uri::SourceUri;

use crate::known::{KnownModel, Origin};
use crate::outputs::{ExistingOutputs, TakenFiles};
use crate::prepare::Context;
use crate::shared::Shared;
use crate::sinks::ModelNames;
use crate::{BoardEngines, Quiet};

/// Nothing takes longer, unless it hangs.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(60);
/// A source that never ends.
pub(crate) const ENDLESS: &str = "test://ball?pace=pts&width=160&height=120";

pub(crate) fn shared() -> Shared {
    let clock = Arc::new(MonotonicClock::default());
    let engines = BoardEngines::new(&Inference::default()).expect("engines of this build");
    Shared { clock, events: Arc::new(Quiet), telemetry: Telemetry::default(), stop: Stop::default(), engines }
}

pub(crate) fn repository() -> Repository {
    Repository { roots: Vec::new(), data: Vec::new() }
}

pub(crate) fn uri(text: &str) -> SourceUri {
    SourceUri::parse(text).unwrap_or_else(|why| panic!("{why}"))
}

/// A board whose streams have these names and sources, and no models.
pub(crate) fn board(lanes: usize, streams: &[(&str, &str)]) -> Board {
    let streams = streams.iter().map(|(name, source)| BoardStream::new(*name, uri(source), Vec::new()));
    let (inference, streams) = (Inference::default(), streams.collect());
    let (models, files) = (Vec::new(), Vec::new());
    Board { name: "test".to_owned(), inference, memory: None, lanes, models, streams, files }
}

/// The model in a folder, taken as known; no engine has it.
pub(crate) fn known(folder: &str) -> KnownModel {
    let spec = BoardModel::new("m", folder);
    let origin = Origin::of(&spec, &repository()).expect("it is described");
    let summary = r#"{"name": "m", "file": "", "engine": "none", "engine_version": "", "batch": 1,
                      "pictures": 0, "replays": 0, "stages": [], "refused": []}"#;
    let summary = serde_json::from_str(summary).expect("it is one");
    let names = Arc::new(ModelNames { name: "m".to_owned(), engine: "none", labels: Vec::new() });
    KnownModel { spec, summary, names, has_state: false, origin, measured: None }
}

pub(crate) fn demo_model() -> String {
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/person-nano").to_owned()
}

/// What a change of `board` is prepared with.
pub(crate) fn context(board: &Board, events: Arc<dyn EventSink>, earlier: ExistingOutputs) -> Context {
    let engines = BoardEngines::new(&board.inference).expect("engines of this build");
    Context {
        shared: Shared { events, engines, ..shared() },
        repository: repository(),
        earlier,
        own: TakenFiles::default(),
    }
}

/// What happened: `a live`, and lanes that failed or restart.
#[derive(Debug, Default)]
pub(crate) struct Log(Mutex<Vec<String>>);

impl Log {
    /// Where it says so, each time that it does.
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
            _ => return,
        };
        self.0.lock().expect("not poisoned").push(text);
    }
}
