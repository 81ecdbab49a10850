//! Random boards, and boards that differ a little from them.

use std::time::Duration;

use orinoco_board::{
    Board, BoardModel, BoardStream, ChosenLevels, ControlSpec, Inference, ModelLevel, ModelLevels,
    ObjectSelectionSpec, SensorsSpec, Shape, SinkSpec, TrackSpec,
};
use orinoco_core::{DropPolicy, Rng};

use crate::testing::uri;

/// Number of models that operate on whole frames; the second half of them have implicit state.
const MODELS: usize = 4;
/// Maximum number of streams of a board.
const STREAMS: usize = 6;

/// Board in few numbers, each of which decides about one model or one stream.
#[derive(Clone, Debug)]
pub(super) struct Genome {
    lanes: usize,
    has_budget: bool,
    models: [u32; MODELS],
    /// Secondary model, which operates on objects of the first one.
    secondary: u32,
    streams: [u32; STREAMS],
    is_reversed: bool,
}

impl Genome {
    /// Makes any board. Its first stream is a camera that never ends.
    pub(super) fn any(rng: &mut Rng) -> Self {
        let mut genome = Self {
            lanes: rng.usize(1..=3),
            has_budget: rng.u32(..3) == 0,
            models: [0; MODELS],
            secondary: rng.u32(..),
            streams: [0; STREAMS],
            is_reversed: rng.bool(),
        };
        genome.models.fill_with(|| rng.u32(..));
        genome.streams.fill_with(|| rng.u32(..));
        genome
    }

    /// Makes a board to which this one can be changed while it runs: settings that only a restart can change are the same.
    pub(super) fn changed(&self, rng: &mut Rng) -> Self {
        let mut changed = self.clone();
        let share = [2, 4, 8, 1][rng.usize(..4)];
        for gene in changed.models.iter_mut().chain(&mut changed.streams).chain([&mut changed.secondary]) {
            if rng.u32(..share) == 0 {
                *gene = rng.u32(..);
            }
        }
        changed.is_reversed ^= rng.u32(..share) == 0;
        changed
    }

    /// Whether its memory is planned.
    pub(super) fn has_budget(&self) -> bool {
        self.has_budget
    }

    /// Returns the board itself.
    pub(super) fn board(&self) -> Board {
        let mut models = Vec::new();
        // Index on the board of each model of the genome.
        let mut places = [None; MODELS + 1];
        for (number, gene) in self.models.iter().enumerate() {
            places[number] = model(number, *gene, models.len(), &mut models);
        }
        if let (Some(_), true) = (places[0], !self.secondary.is_multiple_of(3)) {
            let on = ObjectSelectionSpec {
                model: "m0".to_owned(),
                classes: Vec::new(),
                side_min: ObjectSelectionSpec::SIDE_MIN,
                count_max: ObjectSelectionSpec::COUNT_MAX + self.secondary as usize / 3 % 2,
            };
            places[MODELS] = Some(models.len());
            models.push(BoardModel { on: Some(on), ..BoardModel::new("objects", "file-objects") });
        }
        let mut taken = [false; MODELS];
        let streams = self.streams.iter().enumerate();
        let streams = streams.filter(|(number, gene)| *number == 0 || **gene % 5 > 1);
        let mut streams: Vec<BoardStream> =
            streams.map(|(number, gene)| stream(number, *gene, &places, &mut taken, self.lanes)).collect();
        if self.is_reversed {
            streams.reverse();
        }
        Board {
            name: "simulated".to_owned(),
            inference: Inference::new(Vec::new()),
            memory: self.has_budget.then_some(1 << 30),
            lanes: self.lanes,
            control: ControlSpec::default(),
            sensors: SensorsSpec::default(),
            otlp: None,
            cluster: None,
            governor: None,
            models,
            streams,
            files: Vec::new(),
        }
    }
}

/// Makes any levels of the models that a board may have.
pub(super) fn any_levels(rng: &mut Rng) -> ChosenLevels {
    let mut level = |number: usize| {
        let kind = if number >= MODELS / 2 { "state" } else { "file" };
        let variant = rng.bool().then(|| format!("{kind}-{}-light", if rng.bool() { 0 } else { number }));
        (format!("m{number}"), ModelLevel { interval: rng.bool().then_some(4), variant })
    };
    (0..MODELS).map(&mut level).collect()
}

/// Whether the model of this file has implicit state from frame to frame.
pub(super) fn has_state(model: &BoardModel) -> bool {
    model.model.starts_with("state-")
}

/// Returns the bytes of scratch memory that a model needs.
pub(super) fn scratch_bytes(model: &BoardModel) -> u64 {
    let size = model.model.bytes().map(u64::from).sum::<u64>() % 4;
    (1 + size) * 4096 * model.batch as u64
}

/// Returns the lifetime of a source that ends by itself, and whether it fails then.
pub(super) fn life(stream: &BoardStream) -> Option<(Duration, bool)> {
    let seconds = |number: u64| Duration::from_secs(number);
    match stream.reconnect_attempts {
        Some(attempts) => Some((seconds(3 * u64::from(attempts)), true)),
        None => stream.frames_max.map(|frames| (seconds(frames), false)),
    }
}

fn model(number: usize, gene: u32, index: usize, models: &mut Vec<BoardModel>) -> Option<usize> {
    if gene.is_multiple_of(4) {
        return None;
    }
    let carries_state = number >= MODELS / 2;
    let kind = if carries_state { "state" } else { "file" };
    // Two models may share one file.
    let file = if (gene / 4).is_multiple_of(3) { 0 } else { number };
    let (interval, name) = (1 + gene / 64 % 2, format!("{kind}-{file}"));
    // Some models have levels between which can be chosen.
    let intervals = if (gene / 128).is_multiple_of(2) { vec![interval, 4] } else { Vec::new() };
    let variants =
        if (gene / 256).is_multiple_of(2) { vec![name.clone(), format!("{name}-light")] } else { Vec::new() };
    models.push(BoardModel {
        batch: if carries_state { 1 } else { 1 + gene as usize / 16 % 2 },
        score_threshold: (gene / 32).is_multiple_of(2).then_some(0.5),
        interval,
        levels: ModelLevels { intervals, variants },
        ..BoardModel::new(format!("m{number}"), name)
    });
    Some(index)
}

fn stream(
    number: usize,
    gene: u32,
    places: &[Option<usize>; MODELS + 1],
    taken: &mut [bool; MODELS],
    lanes: usize,
) -> BoardStream {
    let mut models = Vec::new();
    for (model, place) in places.iter().enumerate().take(MODELS) {
        let is_wanted = gene >> (8 + model) & 1 == 1;
        let is_free = model < MODELS / 2 || !taken[model];
        if let (Some(place), true) = (place, is_wanted && is_free) {
            taken[model] = true;
            models.push(*place);
        }
    }
    if let (Some(place), true) =
        (places[MODELS], models.first().is_some_and(|first| Some(*first) == places[0]))
    {
        models.extend((gene >> 13 & 1 == 1).then_some(place));
    }
    let bits = gene >> 14;
    let name = ["a", "b", "c", "d", "e", "f"][number];
    // The first stream never ends, so that the board does not end either.
    let kind = if number == 0 { bits % 2 } else { bits % 5 };
    let (source, frames_max, reconnect_attempts) = match kind {
        0 | 1 => (format!("rtsp://camera/{name}{kind}"), None, None),
        2 => ("test://ball?frames=9".to_owned(), Some(9), None),
        3 => ("test://ball".to_owned(), Some(u64::from(30 + bits / 5 % 2)), None),
        _ => (format!("rtsp://broken/{name}"), None, Some(4)),
    };
    let bits = bits / 16;
    let zone = |size: f32| {
        let points = vec![(0.0, 0.0), (size, 0.0), (0.0, size)];
        Shape { name: "zone".to_owned(), points, ..Shape::default() }
    };
    let track = [None, Some(0.5), Some(1.0)][bits as usize % 3];
    let path = format!("{name}.jsonl").into();
    BoardStream {
        lane: (bits / 4).is_multiple_of(4).then_some(bits as usize / 16 % lanes),
        drop: (bits / 32).is_multiple_of(4).then_some(DropPolicy::DropNewest),
        queue_frames: 2 + bits as usize / 128 % 2,
        latency_max: (bits / 256).is_multiple_of(2).then_some(Duration::from_secs(1)),
        frames_max,
        reconnect_attempts,
        track: track.map(|size| TrackSpec { zones: vec![zone(size)], ..TrackSpec::default() }),
        sinks: if (bits / 512).is_multiple_of(2) {
            vec![SinkSpec { kind: crate::sinks::JSONL, path }]
        } else {
            Vec::new()
        },
        ..BoardStream::new(name, uri(&source), models)
    }
}
