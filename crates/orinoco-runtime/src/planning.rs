//! A board's memory, planned before a model is loaded: what each model needs is measured once in a process of its own, and
//! kept; a board that does not fit its budget is refused before anything is allocated.

mod cache;
mod child;
mod measure;

use std::sync::Arc;

use orinoco_board::{Board, BoardModel, BoardStream};
use orinoco_config::Faults;
use orinoco_core::text::mebibytes;
use orinoco_core::{Diagnosis, WithSubject, codes};
use orinoco_infer::{CacheUnavailable, EngineContext, Scratch};
use orinoco_media::source_needs;
use orinoco_memory::{
    Budget, BytesPerBatch, Domain, ModelNeeds, Needs, Plan, Refused, StreamNeeds, TensorNeeds, plan,
};
use orinoco_model::Repository;
use orinoco_pipeline::Stop;
use orinoco_telemetry::{Event, EventSink};

pub use self::child::asked_to_measure;

use self::cache::{MeasuredModel, find_or_measure};
use self::measure::{Measured, OnDevice};
use crate::BoardEngines;
use crate::available::available;

/// Plans the memory of a board; `None` where its file has no budget. Ends with `E0702` soon after `stop` is requested.
pub fn plan_board(
    board: &Board,
    engines: &BoardEngines,
    repository: &Repository,
    events: &dyn EventSink,
    stop: &Stop,
) -> Result<Option<Plan>, Faults> {
    Ok(plan_with_scratch_sizes(board, engines, repository, events, stop)?.map(|(plan, _)| plan))
}

/// The same, with what each model computes in.
pub(crate) fn plan_with_scratch_sizes(
    board: &Board,
    engines: &BoardEngines,
    repository: &Repository,
    events: &dyn EventSink,
    stop: &Stop,
) -> Result<Option<(Plan, Vec<ScratchSize>)>, Faults> {
    let Some(budget) = board.memory else { return Ok(None) };
    if let Err(CacheUnavailable::Untrusted(why)) = engines.context.cache() {
        events.emit(Event::CacheRefused { why: why.clone() });
    }
    let measured = board.models.iter().map(|model| {
        let found = find_or_measure(model, &board.inference, engines, repository, stop)?;
        found.ok_or_else(|| Faults::from(stopped(board)))
    });
    let measured = measured.collect::<Result<Vec<_>, Faults>>()?;
    let needs = needs_of(board, &measured)?;
    match plan(&needs, Budget::Shared(budget)) {
        Ok(plan) => Ok(Some((plan, measured.iter().map(|model| model.measured.scratch_size()).collect()))),
        Err(refused) => {
            let (bytes, refused) = (refused.plan.bytes(), Arc::<Refused>::from(refused));
            events.emit(Event::MemoryRefused {
                needed_bytes: bytes,
                budget_bytes: budget,
                refused: Arc::<Refused>::clone(&refused),
            });
            let (short, budget) = (mebibytes(bytes.saturating_sub(budget)), mebibytes(budget));
            let cause = format!("it is {short} over its memory budget of {budget}");
            let next = match &refused.suggestion {
                Some(suggestion) => suggestion.change.to_string(),
                None => format!("set budget = \"{} MiB\" or more", bytes.div_ceil(1 << 20)),
            };
            Err(Diagnosis::new(&codes::MEMORY_BUDGET, format!("board {}", board.name), cause, next).into())
        }
    }
}

/// The scratch area of each lane, as planned.
pub(crate) fn scratches(
    plan: &Plan,
    lanes: usize,
    context: &EngineContext,
) -> Result<Vec<Scratch>, Diagnosis> {
    let areas = |domain| {
        let areas = plan.lanes(domain);
        move |lane| usize::try_from(areas.get(&lane).copied().unwrap_or(0)).unwrap_or(usize::MAX)
    };
    let (host_bytes, device_bytes) = (areas(Domain::Host), areas(Domain::Device));
    let next = "free some memory, or lower the budget";
    let make = |lane| {
        // A lane without models of ours still gets a page: one way to do it is simpler than two.
        let scratch = Scratch::new(host_bytes(lane).max(1)).map_err(|why| match available() {
            Some(available) => format!("{why} failed: {available}"),
            None => why.to_string(),
        })?;
        match device_bytes(lane) {
            0 => Ok(scratch),
            bytes => scratch.with_device_area(context, bytes),
        }
    };
    (0..lanes).map(|lane| make(lane).about(&codes::MEMORY_BUDGET, "the scratch area", next)).collect()
}

/// The fault of a board that was stopped before it ran.
pub(crate) fn stopped(board: &Board) -> Diagnosis {
    let (subject, cause) = (format!("board {}", board.name), "it was stopped before it started");
    Diagnosis::new(&codes::STOPPED, subject, cause, "start it again")
}

/// Bytes in which a model computes, or that a lane has for that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ScratchSize {
    pub(crate) host_bytes: u64,
    pub(crate) device_bytes: u64,
}

impl ScratchSize {
    /// What a lane has.
    pub(crate) fn of(scratch: &Scratch) -> Self {
        let device_bytes = scratch.device_bytes() as u64;
        Self { host_bytes: scratch.bytes() as u64 - device_bytes, device_bytes }
    }

    /// Enough for either of two models.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            host_bytes: self.host_bytes.max(other.host_bytes),
            device_bytes: self.device_bytes.max(other.device_bytes),
        }
    }

    /// Why a model that needs this cannot compute in `there`.
    pub(crate) fn shortfall(self, there: Self) -> String {
        let (needed, there, place) = match self.host_bytes > there.host_bytes {
            true => (self.host_bytes, there.host_bytes, ""),
            false => (self.device_bytes, there.device_bytes, " on the GPU"),
        };
        let (short, there) = (mebibytes(needed - there), mebibytes(there));
        format!(
            "a model needs {short} more{place} to compute in than the {there} that its lane was planned with"
        )
    }

    /// Whether a model that needs this can compute in `there`.
    pub(crate) fn fits(self, there: Self) -> bool {
        self.host_bytes <= there.host_bytes && self.device_bytes <= there.device_bytes
    }
}

/// The planned memory, and the areas that lanes compute in.
pub(crate) struct Planned {
    pub(crate) plan: Plan,
    pub(crate) scratches: Vec<Scratch>,
}

impl Measured {
    fn scratch_size(&self) -> ScratchSize {
        let device_bytes = self.on_device.map_or(0, |device| device.scratch_bytes);
        ScratchSize { host_bytes: self.scratch_bytes, device_bytes }
    }
}

// --- needs -------------------------------------------------------------------------------------------------------------

fn needs_of(board: &Board, measured: &[MeasuredModel]) -> Result<Needs, Diagnosis> {
    let lanes = board.lanes_used();
    let mut models = Vec::new();
    for lane in 0..lanes {
        let on_lane = |(index, _): &(usize, _)| board.lane_of(*index) == lane;
        let streams = || board.streams.iter().enumerate().filter(on_lane).map(|(_, stream)| stream);
        for (index, model) in board.models.iter().enumerate() {
            if streams().any(|stream: &BoardStream| stream.models.contains(&index)) {
                models.push(model_needs(model, &measured[index], lane));
            }
        }
    }
    let streams = board.streams.iter().map(stream_needs).collect();
    let next = "correct the board file";
    Needs::new(lanes, models, streams).about(&codes::MEMORY_BUDGET, format!("board {}", board.name), next)
}

/// What a model on a lane is called in plans: each lane has a session of its own.
pub fn planned_name(model: &str, lane: usize) -> String {
    if lane == 0 { model.to_owned() } else { format!("{model}@{lane}") }
}

fn model_needs(model: &BoardModel, measured: &MeasuredModel, lane: usize) -> ModelNeeds {
    let MeasuredModel { revision, measured } = measured;
    let batch = u32::try_from(model.batch).unwrap_or(u32::MAX);
    let tensor = |(name, bytes): &(String, u64)| {
        let each = bytes / u64::from(batch);
        let bytes = match each * u64::from(batch) == *bytes {
            true => BytesPerBatch { fixed_bytes: 0, item_bytes: each },
            false => BytesPerBatch { fixed_bytes: *bytes, item_bytes: 0 },
        };
        TensorNeeds { name: name.clone(), bytes }
    };
    let mut weights = vec![(Domain::Host, measured.weights_bytes)];
    if let Some(OnDevice { kept_bytes, pinned_bytes, .. }) = measured.on_device {
        weights.extend([(Domain::Pinned, pinned_bytes), (Domain::Device, kept_bytes)]);
    }
    let (domain, scratch_bytes) = match measured.on_device {
        Some(device) => (Domain::Device, device.scratch_bytes),
        None => (Domain::Host, measured.scratch_bytes),
    };
    ModelNeeds {
        name: planned_name(&model.name, lane),
        revision: revision.clone(),
        engine: measured.engine.clone(),
        lane,
        domain,
        io_domain: Domain::Host,
        weights,
        scratch: BytesPerBatch { fixed_bytes: scratch_bytes, item_bytes: 0 },
        tensors: measured.tensors.iter().map(tensor).collect(),
        batch,
    }
}

fn stream_needs(stream: &BoardStream) -> StreamNeeds {
    let needs = source_needs(&stream.source, stream.queue_frames);
    let frames = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    StreamNeeds {
        name: stream.name.clone(),
        revision: stream.source.to_string(),
        domain: Domain::Host,
        queue_frames: frames(stream.queue_frames),
        slots: frames(needs.slots),
        extra_slots: frames(needs.extra_slots),
        frame_bytes: needs.frame_bytes,
        driver_bytes: needs.driver_bytes,
        uncounted: needs.uncounted.into_iter().map(str::to_owned).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_on_the_gpu_has_a_share_of_every_memory() {
        let on_host = Measured {
            engine: "ort-cpu".into(),
            weights_bytes: 5 << 20,
            scratch_bytes: 3 << 20,
            tensors: vec![("images".into(), 4096), ("boxes".into(), 100)],
            on_device: None,
        };
        let device = OnDevice { kept_bytes: 20 << 20, scratch_bytes: 7 << 20, pinned_bytes: 3 << 20 };
        let on_gpu = Measured {
            engine: "ort-cuda".into(),
            scratch_bytes: 0,
            tensors: Vec::new(),
            on_device: Some(device),
            ..on_host.clone()
        };
        assert_eq!(on_host.scratch_size(), ScratchSize { host_bytes: 3 << 20, device_bytes: 0 });
        assert_eq!(on_gpu.scratch_size(), ScratchSize { host_bytes: 0, device_bytes: 7 << 20 });

        let models = [("cpu", &on_host), ("gpu", &on_gpu), ("larger", &on_gpu)];
        let models = models.map(|(name, measured)| {
            let measured = Measured {
                on_device: measured.on_device.map(|device| OnDevice {
                    scratch_bytes: device.scratch_bytes + name.len() as u64 * 4096,
                    ..device
                }),
                ..measured.clone()
            };
            let measured = MeasuredModel { revision: "1".to_owned(), measured };
            model_needs(&BoardModel::new(name, "m"), &measured, 0)
        });
        let needs = Needs::new(1, models.into(), Vec::new()).expect("they are sound");
        let plan = plan(&needs, Budget::Shared(100 << 20)).expect("it fits");
        expect_test::expect![[r#"
            NAME             KIND             DOMAIN    MIB      BYTES  BASIS
            cpu              weights          host      5.0    5242880  measured
            gpu              weights          host      5.0    5242880  measured
            larger           weights          host      5.0    5242880  measured
            lane 0 (cpu)     scratch          host      3.0    3145728  measured
            cpu              inputs, outputs  host      0.0       8192  measured
            gpu              weights          pinned    3.0    3145728  measured
            larger           weights          pinned    3.0    3145728  measured
            gpu              weights          device   20.0   20971520  measured
            larger           weights          device   20.0   20971520  measured
            lane 0 (larger)  scratch          device    7.0    7364608  measured
            total                             board    71.0   74481664
            budget                            board   100.0  104857600"#]]
        .assert_eq(&plan.to_string());
        assert_eq!(plan.lanes(Domain::Host)[&0], 3 << 20);
        assert_eq!(plan.lanes(Domain::Device)[&0], (7 << 20) + 6 * 4096, "they share the larger one's");
    }
}
