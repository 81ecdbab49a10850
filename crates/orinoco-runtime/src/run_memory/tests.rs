use std::collections::BTreeSet;

use orinoco_memory::{BytesPerBatch, admit_change};
use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;

/// Makes a stream with frames of 1 MiB and with models on its lane: `(revision, weights and scratch in MiB)`.
fn stream(name: &str, lane: usize, slots: u32, models: &[(u32, u64)]) -> StreamMemory {
    let frames = StreamNeeds {
        name: name.to_owned(),
        revision: String::new(),
        domain: Domain::Host,
        queue_frames: slots,
        slots,
        extra_slots: 0,
        frame_bytes: MIB,
        driver_bytes: 0,
        uncounted: Vec::new(),
    };
    let model = |&(revision, mebibytes): &(u32, u64)| ModelNeeds {
        name: format!("m@{lane}"),
        revision: format!("model {revision}"),
        engine: "tract".to_owned(),
        lane,
        domain: Domain::Host,
        io_domain: Domain::Host,
        weights: vec![(Domain::Host, mebibytes * MIB)],
        scratch: BytesPerBatch { fixed_bytes: mebibytes * MIB, item_bytes: 0 },
        tensors: Vec::new(),
        batch: 1,
    };
    StreamMemory { lane, frames, models: models.iter().map(model).collect() }
}

/// Admits a change of a run, and applies it as the supervisor does. Returns whether it was admitted.
fn change(
    run: &mut RunMemory,
    staying: &[StreamId],
    joining: &[(StreamId, StreamMemory)],
    on_board: &[&str],
) -> bool {
    let streams: Vec<StreamMemory> = joining.iter().map(|(_, stream)| stream.clone()).collect();
    let needs = run.needs_after(staying, &streams, &[]).expect("they are sound");
    let Ok(change) = admit_change(&run.running(), &needs, &[]) else { return false };
    let plan = change.after;
    let host = plan.lanes(Domain::Host);
    let area = |lane| ScratchSize { host_bytes: host.get(&lane).copied().unwrap_or(0), device_bytes: 0 };
    let areas = streams.iter().map(|stream| (stream.lane, area(stream.lane))).collect();
    let joined = joining.iter().map(|(id, stream)| (*id, &*stream.frames.name));
    let admitted = AdmittedMemory { plan, areas, streams: streams.clone(), replacements: Vec::new() };
    run.apply(admitted, joined, on_board.iter().copied(), std::iter::empty());
    true
}

fn spent(run: &RunMemory) -> u64 {
    run.running().bytes() / MIB
}

#[test]
fn a_stream_and_its_models_count_until_it_has_ended() {
    let mut run = RunMemory::new(100 * MIB, 2);
    let (a, b) = (StreamId(0), StreamId(1));
    let both = [(a, stream("a", 0, 2, &[(0, 10)])), (b, stream("b", 0, 3, &[(0, 10), (1, 4)]))];
    assert!(change(&mut run, &[], &both, &["a", "b"]));
    // The shared model counts once, and the scratch area has the size of the larger model.
    assert_eq!(spent(&run), 2 + 3 + 10 + 4 + 10);
    assert!(change(&mut run, &[a], &[], &["a"]));
    assert_eq!((spent(&run), run.admitted().bytes() / MIB), (29, 22), "b is on its way out");
    run.release(b);
    assert_eq!(spent(&run), 22);
    assert_eq!(run.area(0), Some(ScratchSize { host_bytes: 10 * MIB, device_bytes: 0 }));
    run.release(a);
    assert_eq!((spent(&run), run.area(0)), (0, None), "the area goes with the last model");
}

#[test]
fn a_stream_that_changed_counts_next_to_the_one_that_leaves() {
    let mut run = RunMemory::new(15 * MIB, 1);
    let a = |id, slots| [(StreamId(id), stream("a", 0, slots, &[]))];
    assert!(change(&mut run, &[], &a(0, 8), &["a"]));
    assert!(!change(&mut run, &[], &a(1, 8), &["a"]), "both do not fit");
    assert!(change(&mut run, &[], &a(1, 7), &["a"]));
    assert_eq!((spent(&run), run.admitted().bytes() / MIB), (15, 7));
    run.release(StreamId(0));
    assert_eq!(spent(&run), 7);
}

#[test]
fn a_lane_that_failed_is_started_again_in_what_it_had() {
    // The budget is exactly what the board needs.
    let mut run = RunMemory::new(28 * MIB, 2);
    let (a, b) = (StreamId(0), StreamId(1));
    let on_board = ["a", "b"];
    let both = [(a, stream("a", 1, 2, &[(0, 10)])), (b, stream("b", 0, 6, &[]))];
    assert!(change(&mut run, &[], &both, &on_board));
    assert_eq!(spent(&run), 28);
    run.lose(a);
    run.release(a);
    assert_eq!((spent(&run), run.lost_lane("a"), run.lost_lane("b")), (28, Some(1), None));
    assert!(run.kept_for(&stream("a", 0, 2, &[(0, 10)])).is_none(), "on another lane it takes more");
    // A model with state is loaded as another revision of the same size.
    let again = stream("a", 1, 2, &[(1, 10)]);
    assert!(run.kept_for(&again).is_some());
    assert!(change(&mut run, &[b], &[(StreamId(2), again)], &on_board));
    assert_eq!((spent(&run), run.lost_lane("a")), (28, None));
    run.lose(StreamId(2));
    assert!(change(&mut run, &[b], &[], &["b"]), "the next board has no such stream");
    assert_eq!(spent(&run), 6);
}

/// Event in a run.
#[derive(Clone, Debug)]
enum Step {
    /// Reload to a board of these streams: name, lane, slots, model, and whether the stream can join.
    Reload(Vec<(u8, usize, u32, Option<u8>, bool)>),
    /// End of a stream that runs or is leaving.
    Release(prop::sample::Index),
    /// Failure of a lane.
    Fail(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let stream = (0_u8..5, 0_usize..2, 1_u32..4, prop::option::of(0_u8..4), prop::bool::weighted(0.9));
    prop::collection::vec(
        prop_oneof![
            4 => prop::collection::vec(stream, 0..5).prop_map(Step::Reload),
            3 => any::<prop::sample::Index>().prop_map(Step::Release),
            1 => (0_usize..2).prop_map(Step::Fail),
        ],
        1..60,
    )
}

proptest! {
    /// Checks that the counted memory is never over the budget, and is 0 at the end, whatever joins, ends and fails.
    #[test]
    fn what_counts_is_within_the_budget(steps in steps(), budget in 10_u64..60) {
        let mut run = RunMemory::new(budget * MIB, 2);
        let mut next = 0;
        // `alive` are all streams that have not ended, and `staying` those of them that are on the board.
        let (mut alive, mut staying) = (BTreeMap::<StreamId, StreamMemory>::new(), BTreeSet::new());
        for step in steps {
            match step {
                Step::Reload(wanted) => {
                    let wanted: BTreeMap<u8, _> = wanted.into_iter().map(|stream| (stream.0, stream)).collect();
                    let names: Vec<String> = wanted.keys().map(u8::to_string).collect();
                    let on_board: Vec<&str> = names.iter().map(String::as_str).collect();
                    let (mut stay, mut join) = (Vec::new(), Vec::new());
                    for (name, (_, lane, slots, model, can_join)) in wanted {
                        let models: Vec<(u32, u64)> =
                            model.map(|model| (u32::from(model), u64::from(model))).into_iter().collect();
                        let memory = stream(&name.to_string(), lane, slots, &models);
                        let same = staying.iter().copied().find(|id| alive.get(id) == Some(&memory));
                        match same {
                            Some(id) => stay.push(id),
                            None if can_join => { join.push((StreamId(next), memory)); next += 1; }
                            None => {}
                        }
                    }
                    if change(&mut run, &stay, &join, &on_board) {
                        staying = stay.into_iter().chain(join.iter().map(|(id, _)| *id)).collect();
                        alive.extend(join);
                    }
                }
                Step::Release(index) if !alive.is_empty() => {
                    let id = *alive.keys().nth(index.index(alive.len())).expect("it is within");
                    alive.remove(&id);
                    run.release(id);
                }
                Step::Release(_) => {}
                Step::Fail(lane) => {
                    let lost: Vec<StreamId> =
                        staying.iter().copied().filter(|id| alive.get(id).is_some_and(|s| s.lane == lane)).collect();
                    for id in lost {
                        staying.remove(&id);
                        run.lose(id);
                    }
                }
            }
            let running = run.running();
            prop_assert!(running.bytes() <= budget * MIB, "{running}");
        }
        alive.keys().for_each(|id| run.release(*id));
        prop_assert!(change(&mut run, &[], &[], &[]));
        prop_assert_eq!((spent(&run), run.area(0), run.area(1)), (0, None, None));
    }
}

#[test]
fn a_replaced_model_counts_until_its_plan_is_dropped() {
    let mut run = RunMemory::new(100 * MIB, 2);
    let (a, b) = (StreamId(0), StreamId(1));
    let both = [(a, stream("a", 0, 2, &[(0, 10)])), (b, stream("b", 0, 3, &[(0, 10)]))];
    assert!(change(&mut run, &[], &both, &["a", "b"]));
    assert_eq!(spent(&run), 2 + 3 + 10 + 10, "frames, the weights and a scratch area");

    // The new model is larger, and computes in less memory.
    let old = LanePlan { lane: 0, model: orinoco_core::ModelId(0), generation: 0 };
    let mut new = stream("", 0, 1, &[(7, 30)]).models.remove(0);
    new.scratch.fixed_bytes = MIB;
    let replacement = Replacement { old, old_revision: "model 0".to_owned(), new };
    let needs = |run: &RunMemory, staying: &[StreamId]| {
        let after =
            run.needs_after(staying, &[], std::slice::from_ref(&replacement)).expect("they are sound");
        let peak = run.needs_at_peak(&[], std::slice::from_ref(&replacement)).expect("they are sound");
        let budget = run.admitted().budget;
        let peak = admit_change(&run.running(), &peak, &[]).expect("it fits").peak();
        let Budget::Shared(peak) = peak else { unreachable!("boards have one budget") };
        (Plan::of(&after, budget), peak / MIB)
    };
    let (plan, peak) = needs(&run, &[a]);
    assert_eq!(
        (plan.bytes() / MIB, peak),
        (2 + 30 + 10, 2 + 3 + 10 + 30 + 10),
        "b leaves, and is still here"
    );

    let admitted = AdmittedMemory {
        plan,
        areas: BTreeMap::new(),
        streams: Vec::new(),
        replacements: vec![replacement.clone()],
    };
    run.apply(admitted, std::iter::empty(), ["a"].into_iter(), [old].into_iter());
    assert_eq!(spent(&run), 2 + 3 + 10 + 30 + 10, "both");
    run.plan_dropped(LanePlan { generation: 1, ..old });
    run.plan_dropped(LanePlan { lane: 1, ..old });
    assert_eq!(spent(&run), 2 + 3 + 10 + 30 + 10, "another plan was dropped");
    run.plan_dropped(old);
    assert_eq!(spent(&run), 2 + 3 + 30 + 10);
    run.release(a);
    run.release(b);
    assert_eq!(spent(&run), 0);
}
