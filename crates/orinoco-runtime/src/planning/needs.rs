//! Needs of a board's streams and models, from measured figures and from the allocations of sources.

use std::collections::BTreeSet;
use std::sync::Arc;

use orinoco_board::{Board, BoardModel, BoardStream};
use orinoco_media::source_needs;
use orinoco_memory::{BytesPerBatch, Domain, ModelNeeds, StreamNeeds, TensorNeeds};

use super::measure::{Measured, OnDevice};
use crate::run_memory::StreamMemory;

/// Returns the memory of one stream on a lane, of a board whose models were `measured`. `revision` returns the revision in
/// the run of the model with an index on the board.
pub(crate) fn stream_memory(
    board: &Board,
    stream: &BoardStream,
    lane: usize,
    measured: &[Arc<Measured>],
    revision: &dyn Fn(usize) -> String,
) -> StreamMemory {
    let used: BTreeSet<usize> = stream.models.iter().copied().collect();
    let needs = |model: usize| model_needs(&board.models[model], &measured[model], lane, revision(model));
    StreamMemory { lane, frames: stream_needs(stream), models: used.into_iter().map(needs).collect() }
}

/// Returns the name of a model on a lane in plans: each lane has its own session of the model.
pub fn planned_name(model: &str, lane: usize) -> String {
    if lane == 0 { model.to_owned() } else { format!("{model}@{lane}") }
}

/// Returns the memory of a model on a lane, under its `revision` in the run.
pub(crate) fn model_needs(
    model: &BoardModel,
    measured: &Measured,
    lane: usize,
    revision: String,
) -> ModelNeeds {
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
        revision,
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
        revision: String::new(),
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
    use orinoco_memory::{Budget, Needs, plan};

    use super::*;
    use crate::scratch_size::ScratchSize;

    #[test]
    fn a_model_on_the_gpu_has_a_share_of_every_memory() {
        let on_host = Measured {
            engine: "ort-cpu".into(),
            weights_bytes: 5 << 20,
            scratch_bytes: 3 << 20,
            tensors: vec![("images".into(), 4096), ("boxes".into(), 100)],
            building_bytes: 0,
            on_device: None,
        };
        let (kept_bytes, scratch_bytes, pinned_bytes) = (20 << 20, 7 << 20, 3 << 20);
        let device = OnDevice { kept_bytes, scratch_bytes, pinned_bytes, building_bytes: 0 };
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
            model_needs(&BoardModel::new(name, "m"), &measured, 0, "1".to_owned())
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
