//! Needs for the tests of plans, refusals and changes.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::budget::Budget;
use crate::needs::{BytesPerBatch, Domain, ModelNeeds, Needs, StreamNeeds, TensorNeeds};

pub(crate) const MIB: u64 = 1 << 20;

/// Makes a model on a shared-memory board: weights and scratch in MiB, one image as input and one row of numbers as
/// output.
pub(crate) fn model(name: &str, lane: usize, weights: u64, scratch: BytesPerBatch, batch: u32) -> ModelNeeds {
    let tensor = |name: &str, item_bytes| TensorNeeds {
        name: name.to_owned(),
        bytes: BytesPerBatch { fixed_bytes: 0, item_bytes },
    };
    ModelNeeds {
        name: name.to_owned(),
        revision: "1".to_owned(),
        engine: "ort-cpu".to_owned(),
        lane,
        domain: Domain::Host,
        io_domain: Domain::Host,
        weights: vec![(Domain::Host, weights * MIB)],
        scratch: BytesPerBatch {
            fixed_bytes: scratch.fixed_bytes * MIB,
            item_bytes: scratch.item_bytes * MIB,
        },
        tensors: vec![tensor("images", 3 * 416 * 416 * 4), tensor("output", 3549 * 85 * 4)],
        batch,
    }
}

/// Makes a Full HD camera whose source has as many slots as its ring.
pub(crate) fn stream(name: &str, queue_frames: u32) -> StreamNeeds {
    StreamNeeds {
        name: name.to_owned(),
        revision: "camera".to_owned(),
        domain: Domain::Pinned,
        queue_frames,
        slots: queue_frames,
        extra_slots: 0,
        frame_bytes: 1920 * 1080 * 3 / 2,
        driver_bytes: 0,
        uncounted: Vec::new(),
    }
}

pub(crate) fn fixed(fixed_bytes: u64) -> BytesPerBatch {
    BytesPerBatch { fixed_bytes, item_bytes: 0 }
}

pub(crate) fn per_item(item_bytes: u64) -> BytesPerBatch {
    BytesPerBatch { fixed_bytes: 0, item_bytes }
}

/// Makes a board of two models that share a lane, one alone on its lane, and two cameras.
pub(crate) fn board() -> Needs {
    let models = vec![
        model("yolox", 0, 8, per_item(10), 2),
        model("faces", 0, 2, fixed(6), 1),
        model("depth", 1, 50, fixed(40), 1),
    ];
    Needs::new(2, models, vec![stream("yard", 4), stream("door", 8)]).expect("these needs are sound")
}

fn any_domain() -> impl Strategy<Value = Domain> {
    select(&Domain::ALL[..])
}

fn any_scaled() -> impl Strategy<Value = BytesPerBatch> {
    (0..3 * MIB, prop_oneof![Just(0), 0..MIB])
        .prop_map(|(fixed_bytes, item_bytes)| BytesPerBatch { fixed_bytes, item_bytes })
}

fn any_model(index: usize, lanes: usize) -> impl Strategy<Value = ModelNeeds> {
    let weights = vec((any_domain(), 0..8 * MIB), 0..4);
    let sizes = (weights, any_scaled(), vec(any_scaled(), 0..4));
    (0..lanes, any_domain(), any_domain(), sizes, 1_u32..9, 0_u32..2).prop_map(
        move |(lane, domain, io_domain, (weights, scratch, tensors), batch, revision)| ModelNeeds {
            name: format!("model {index}"),
            revision: revision.to_string(),
            engine: "tract".to_owned(),
            lane,
            domain,
            io_domain,
            weights,
            scratch,
            tensors: (0..)
                .zip(tensors)
                .map(|(i, bytes)| TensorNeeds { name: format!("{i}"), bytes })
                .collect(),
            batch,
        },
    )
}

fn any_stream(index: usize) -> impl Strategy<Value = StreamNeeds> {
    let slots = (0_u32..20, 0_u32..20);
    (any_domain(), 1_u32..17, slots, 0..MIB, prop_oneof![Just(0), 0..MIB]).prop_map(
        move |(domain, queue_frames, (slots, extra_slots), frame_bytes, driver_bytes)| StreamNeeds {
            name: format!("stream {index}"),
            revision: String::new(),
            domain,
            queue_frames,
            slots,
            extra_slots,
            frame_bytes,
            driver_bytes,
            uncounted: Vec::new(),
        },
    )
}

pub(crate) fn any_lists() -> impl Strategy<Value = (usize, Vec<ModelNeeds>, Vec<StreamNeeds>)> {
    (1_usize..5, 0_usize..6, 0_usize..4).prop_flat_map(|(lanes, models, streams)| {
        let models: Vec<_> = (0..models).map(|index| any_model(index, lanes)).collect();
        let streams: Vec<_> = (0..streams).map(any_stream).collect();
        (Just(lanes), models, streams)
    })
}

pub(crate) fn any_needs() -> impl Strategy<Value = Needs> {
    any_lists()
        .prop_map(|(lanes, models, streams)| Needs::new(lanes, models, streams).expect("generated soundly"))
}

pub(crate) fn any_kind_of_budget() -> impl Strategy<Value = Budget> {
    select(vec![Budget::Shared(u64::MAX), Budget::Separate { host: u64::MAX, device: u64::MAX }])
}
