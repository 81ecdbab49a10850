use expect_test::{Expect, expect};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::needs::{ModelNeeds, NeedsFault, Scaled, StreamNeeds, TensorNeeds};
use crate::refused::{Change, Refused};

const MIB: u64 = 1 << 20;

/// A model on a shared-memory board: weights and scratch in MiB, one picture in and one row of numbers out.
fn model(name: &str, lane: usize, weights: u64, scratch: Scaled, batch: u32) -> ModelNeeds {
    let tensor = |name: &str, item_bytes| TensorNeeds {
        name: name.to_owned(),
        bytes: Scaled { fixed_bytes: 0, item_bytes },
    };
    ModelNeeds {
        name: name.to_owned(),
        engine: "ort-cpu".to_owned(),
        lane,
        domain: Domain::Host,
        io_domain: Domain::Host,
        weights: vec![(Domain::Host, weights * MIB)],
        scratch: Scaled { fixed_bytes: scratch.fixed_bytes * MIB, item_bytes: scratch.item_bytes * MIB },
        tensors: vec![tensor("images", 3 * 416 * 416 * 4), tensor("output", 3549 * 85 * 4)],
        batch,
        align: 64,
    }
}

fn stream(name: &str, frames_max: u32) -> StreamNeeds {
    let frame_bytes = 1920 * 1080 * 3 / 2;
    StreamNeeds { name: name.to_owned(), domain: Domain::Pinned, frames_max, frame_bytes, align: 256 }
}

fn fixed(fixed_bytes: u64) -> Scaled {
    Scaled { fixed_bytes, item_bytes: 0 }
}

fn per_item(item_bytes: u64) -> Scaled {
    Scaled { fixed_bytes: 0, item_bytes }
}

/// Two models that share a lane, one alone, two cameras.
fn board() -> Needs {
    let models = vec![
        model("yolox", 0, 8, per_item(10), 2),
        model("faces", 0, 2, fixed(6), 1),
        model("depth", 1, 50, fixed(40), 1),
    ];
    Needs::new(2, models, vec![stream("yard", 4), stream("door", 8)]).expect("these needs are sound")
}

fn check(needs: &Needs, budget: Budget, expected: Expect) {
    let shown = match plan(needs, budget) {
        Ok(plan) => plan.to_string(),
        Err(refused) => refused.to_string(),
    };
    expected.assert_eq(&(shown + "\n"));
}

#[test]
fn a_plan_is_a_table() {
    check(
        &board(),
        Budget::Shared(256 * MIB),
        expect![[r#"
            NAME            KIND             DOMAIN    MIB      BYTES     OFFSET
            depth           weights          host     50.0   52428800          0
            faces           weights          host      2.0    2097152   52428800
            yolox           weights          host      8.0    8388608   54525952
            lane 0 (yolox)  scratch          host     20.0   20971520   62914560
            lane 1 (depth)  scratch          host     40.0   41943040   83886080
            depth           inputs, outputs  host      3.1    3284992  125829120
            faces           inputs, outputs  host      3.1    3284992  129114112
            yolox           inputs, outputs  host      6.3    6569984  132399104
            door            frames           pinned   23.7   24883200          0
            yard            frames           pinned   11.9   12443648   24883200
            total                            board   168.1  176295936
            budget                           board   256.0  268435456
        "#]],
    );
}

#[test]
fn models_of_a_lane_share_its_scratch() {
    let plan = plan(&board(), Budget::Shared(u64::MAX)).unwrap();
    assert_eq!(plan.lanes(Domain::Host), BTreeMap::from([(0, 20 * MIB), (1, 40 * MIB)]));
    assert_eq!(plan.kind_bytes(Kind::Scratch), 60 * MIB);
    let faces = ModelBytes { weights: 2 * MIB, scratch: 6 * MIB, io: 3_284_992 };
    assert_eq!(plan.models()["faces"], faces);
    assert_eq!(plan.models().len(), 3);
    let kinds = [Kind::Weights, Kind::Scratch, Kind::Io, Kind::Frames];
    assert_eq!(kinds.iter().map(|kind| plan.kind_bytes(*kind)).sum::<u64>(), plan.bytes());
    assert_eq!(plan.domain_bytes(Domain::Device), 0);
}

#[test]
fn a_shorter_ring_is_suggested_first() {
    check(
        &board(),
        Budget::Shared(160 * MIB),
        expect![[r#"
            the memory budget is exceeded: 8.1 MiB over budget (board)
            NAME            KIND             DOMAIN    MIB      BYTES
            depth           weights          host     50.0   52428800
            faces           weights          host      2.0    2097152
            yolox           weights          host      8.0    8388608
            lane 0 (yolox)  scratch          host     20.0   20971520
            lane 1 (depth)  scratch          host     40.0   41943040
            depth           inputs, outputs  host      3.1    3284992
            faces           inputs, outputs  host      3.1    3284992
            yolox           inputs, outputs  host      6.3    6569984
            door            frames           pinned   23.7   24883200
            yard            frames           pinned   11.9   12443648
            total                            board   168.1  176295936
            budget                           board   160.0  167772160
            too many                         board     8.1    8523776
            the smallest change that fits: give stream `door` a ring of 5 frames instead of 8; then the total is 159.2 MiB
        "#]],
    );
}

#[test]
fn then_a_smaller_batch_then_a_busier_lane_then_one_model_fewer() {
    let suggested = |needs: &Needs, mib: u64| {
        let refused = plan(needs, Budget::Shared(mib * MIB)).unwrap_err();
        refused.suggestion.map_or("nothing".to_owned(), |suggestion| suggestion.change.to_string())
    };
    let models = vec![
        model("a", 0, 10, per_item(10), 2),
        model("b", 1, 10, fixed(70), 1),
        model("c", 2, 5, fixed(60), 1),
    ];
    let needs = Needs::new(3, models, vec![stream("s", 3)]).unwrap();
    let shown: Vec<String> = [195, 184, 178, 140, 130, 115, 90]
        .iter()
        .map(|mib| format!("{mib}: {}", suggested(&needs, *mib)))
        .collect();
    expect![[r#"
        195: give stream `s` a ring of 2 frames instead of 3
        184: run model `a` with a batch of 1 instead of 2
        178: move model `a` from lane 0 to lane 1
        140: move model `b` from lane 1 to lane 2
        130: leave out model `c`
        115: leave out model `b`
        90: nothing
    "#]]
    .assert_eq(&(shown.join("\n") + "\n"));
}

#[test]
fn a_discrete_board_has_two_budgets() {
    let on_device = |mut needs: ModelNeeds| {
        needs.domain = Domain::Device;
        needs.weights[0].0 = Domain::Device;
        needs.io_domain = Domain::Pinned;
        needs
    };
    let models = vec![on_device(model("a", 0, 30, fixed(20), 1)), on_device(model("b", 1, 30, fixed(10), 1))];
    let needs = Needs::new(2, models, vec![stream("s", 2)]).unwrap();
    check(
        &needs,
        Budget::Separate { host: 13 * MIB, device: 80 * MIB },
        expect![[r#"
            the memory budget is exceeded: 10.0 MiB over budget (device)
            NAME        KIND             DOMAIN   MIB     BYTES
            a           inputs, outputs  pinned   3.1   3284992
            b           inputs, outputs  pinned   3.1   3284992
            s           frames           pinned   5.9   6221824
            a           weights          device  30.0  31457280
            b           weights          device  30.0  31457280
            lane 0 (a)  scratch          device  20.0  20971520
            lane 1 (b)  scratch          device  10.0  10485760
            total                        host    12.2  12791808
            total                        device  90.0  94371840
            budget                       host    13.0  13631488
            budget                       device  80.0  83886080
            too many                     host     0.0         0
            too many                     device  10.0  10485760
            the smallest change that fits: move model `a` from lane 0 to lane 1; then the total is 12.2 MiB on the host and 80.0 MiB on the device
        "#]],
    );
    check(
        &needs,
        Budget::Separate { host: 4 * MIB, device: 40 * MIB },
        expect![[r#"
            the memory budget is exceeded: 8.2 MiB over budget (host), 50.0 MiB over budget (device)
            NAME        KIND             DOMAIN   MIB     BYTES
            a           inputs, outputs  pinned   3.1   3284992
            b           inputs, outputs  pinned   3.1   3284992
            s           frames           pinned   5.9   6221824
            a           weights          device  30.0  31457280
            b           weights          device  30.0  31457280
            lane 0 (a)  scratch          device  20.0  20971520
            lane 1 (b)  scratch          device  10.0  10485760
            total                        host    12.2  12791808
            total                        device  90.0  94371840
            budget                       host     4.0   4194304
            budget                       device  40.0  41943040
            too many                     host     8.2   8597504
            too many                     device  50.0  52428800
            no single change fits; the least budget that does: 13 MiB (host), 90 MiB (device)
        "#]],
    );
}

#[test]
fn unsound_needs_are_refused_by_name() {
    let fault = |lanes, models: Vec<ModelNeeds>, streams: Vec<StreamNeeds>| {
        Needs::new(lanes, models, streams).map_err(|fault: NeedsFault| fault.to_string()).unwrap_err()
    };
    let a = || model("a", 0, 1, fixed(1), 1);
    let s = || stream("s", 2);
    let shown = [
        fault(1, vec![a(), a()], vec![]),
        fault(1, vec![a()], vec![s(), s()]),
        fault(1, vec![ModelNeeds { lane: 1, ..a() }], vec![]),
        fault(1, vec![ModelNeeds { align: 48, ..a() }], vec![]),
        fault(1, vec![], vec![StreamNeeds { align: 8192, ..s() }]),
        fault(1, vec![ModelNeeds { batch: 0, ..a() }], vec![]),
        fault(
            1,
            vec![
                ModelNeeds { weights: vec![(Domain::Host, u64::MAX)], ..a() },
                model("b", 0, 1, fixed(1), u32::MAX),
            ],
            vec![],
        ),
    ];
    expect![[r#"
        two models are named `a`
        two streams are named `s`
        model `a` is on lane 1; the board has 1, counted from 0
        `a` asks to be aligned to 48 bytes; choose a power of two up to 4096
        `s` asks to be aligned to 8192 bytes; choose a power of two up to 4096
        `a` has a batch or ring of 0
        all needs together are more than 281474976710656 bytes
    "#]]
    .assert_eq(&(shown.join("\n") + "\n"));
}

#[test]
fn the_checker_finds_what_is_wrong() {
    let good = plan(&board(), Budget::Shared(u64::MAX)).unwrap();
    let broken = |change: &dyn Fn(&mut Plan)| {
        let mut plan = good.clone();
        change(&mut plan);
        plan.check().unwrap_err().to_string()
    };
    let scratch = 3;
    let shown = [
        broken(&|plan| plan.parts[0].areas[1].offset += PAGE_BYTES),
        broken(&|plan| plan.parts[0].bytes += PAGE_BYTES),
        broken(&|plan| plan.parts[0].areas[0].spans[0].bytes += 1),
        broken(&|plan| plan.parts[0].areas[5].spans[1].offset += 1),
        broken(&|plan| plan.parts[0].areas[5].spans[1].offset -= 64),
        broken(&|plan| plan.parts[0].areas[scratch].spans[0].live = Live::Always),
        broken(&|plan| {
            plan.parts[0].areas[scratch].spans[0].live = Live::Replay { lane: 1, model: "faces".to_owned() };
        }),
    ];
    expect![[r#"
        area `faces` does not start where the one before it ends, or is not made of whole pages
        the host domain does not end where its last area ends
        `depth` reaches out of its area
        `depth/output` is off its alignment
        `depth/images` and `depth/output` share bytes and may be live at one moment
        `faces` and `yolox` share bytes and may be live at one moment
        `faces` and `yolox` share bytes and may be live at one moment
    "#]]
    .assert_eq(&(shown.join("\n") + "\n"));
}

fn any_domain() -> impl Strategy<Value = Domain> {
    select(&Domain::ALL[..])
}

fn any_scaled() -> impl Strategy<Value = Scaled> {
    (0..3 * MIB, prop_oneof![Just(0), 0..MIB])
        .prop_map(|(fixed_bytes, item_bytes)| Scaled { fixed_bytes, item_bytes })
}

fn any_model(index: usize, lanes: usize) -> impl Strategy<Value = ModelNeeds> {
    let weights = vec((any_domain(), 0..8 * MIB), 0..4);
    let sizes = (weights, any_scaled(), vec(any_scaled(), 0..4));
    (0..lanes, any_domain(), any_domain(), sizes, 1_u32..9, 0_u32..13).prop_map(
        move |(lane, domain, io_domain, (weights, scratch, tensors), batch, align)| ModelNeeds {
            name: format!("model {index}"),
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
            align: 1 << align,
        },
    )
}

fn any_stream(index: usize) -> impl Strategy<Value = StreamNeeds> {
    (any_domain(), 1_u32..17, 0..MIB, 0_u32..13).prop_map(move |(domain, frames_max, frame_bytes, align)| {
        StreamNeeds { name: format!("stream {index}"), domain, frames_max, frame_bytes, align: 1 << align }
    })
}

fn any_lists() -> impl Strategy<Value = (usize, Vec<ModelNeeds>, Vec<StreamNeeds>)> {
    (1_usize..5, 0_usize..6, 0_usize..4).prop_flat_map(|(lanes, models, streams)| {
        let models: Vec<_> = (0..models).map(|index| any_model(index, lanes)).collect();
        let streams: Vec<_> = (0..streams).map(any_stream).collect();
        (Just(lanes), models, streams)
    })
}

fn any_needs() -> impl Strategy<Value = Needs> {
    any_lists()
        .prop_map(|(lanes, models, streams)| Needs::new(lanes, models, streams).expect("generated soundly"))
}

fn any_kind_of_budget() -> impl Strategy<Value = Budget> {
    select(vec![Budget::Shared(u64::MAX), Budget::Separate { host: u64::MAX, device: u64::MAX }])
}

/// What `plan` takes when nothing limits it.
fn spent(needs: &Needs, kind: Budget) -> Budget {
    plan(needs, kind).expect("no limit is exceeded").spent()
}

proptest! {
    #[test]
    fn every_plan_is_proved_and_holds_every_need(needs in any_needs()) {
        let plan = plan(&needs, Budget::Shared(u64::MAX)).unwrap();
        prop_assert_eq!(plan.check(), Ok(()));
        let spans = || plan.areas().flat_map(|(_, area)| &area.spans);
        for model in needs.models() {
            let scratch = plan.models().get(model.name.as_str()).map_or(0, |bytes| bytes.scratch);
            prop_assert_eq!(scratch, model.scratch.at(model.batch));
            for tensor in model.tensors.iter().filter(|tensor| tensor.bytes.at(model.batch) > 0) {
                let name = format!("{}/{}", model.name, tensor.name);
                let found: Vec<&Span> = spans().filter(|span| span.name == name).collect();
                prop_assert_eq!(found.len(), 1);
                prop_assert_eq!(found[0].bytes, tensor.bytes.at(model.batch));
            }
        }
        for domain in Domain::ALL {
            let areas = || plan.areas().filter(|(theirs, _)| *theirs == domain).map(|(_, area)| area);
            for model in needs.models() {
                let kept: u64 =
                    model.weights.iter().filter(|(theirs, _)| *theirs == domain).map(|(_, bytes)| bytes).sum();
                let is_theirs = |area: &&Area| area.kind == Kind::Weights && area.name == model.name;
                let planned: u64 = areas().filter(is_theirs).map(|area| area.bytes).sum();
                prop_assert_eq!(planned, kept.next_multiple_of(PAGE_BYTES));
            }
            for (lane, bytes) in plan.lanes(domain) {
                let on = needs.models().iter().filter(|model| model.lane == lane && model.domain == domain);
                let largest = on.map(|model| model.scratch.at(model.batch).next_multiple_of(PAGE_BYTES)).max();
                prop_assert_eq!(bytes, largest.unwrap_or(0));
            }
        }
    }

    #[test]
    fn the_order_of_the_input_does_not_matter(
        (lists, models, streams) in any_lists().prop_flat_map(|(lanes, models, streams)| {
            let shuffled = (Just(models.clone()).prop_shuffle(), Just(streams.clone()).prop_shuffle());
            (Just((lanes, models, streams)), shuffled.0, shuffled.1)
        }),
        share in 0_u64..110,
    ) {
        let lanes = lists.0;
        let needs = Needs::new(lanes, lists.1, lists.2).unwrap();
        let shuffled = Needs::new(lanes, models, streams).unwrap();
        let Budget::Shared(total) = spent(&needs, Budget::Shared(u64::MAX)) else { unreachable!() };
        let budget = Budget::Shared(total * share / 100);
        prop_assert_eq!(plan(&needs, budget), plan(&shuffled, budget));
    }

    #[test]
    fn exactly_the_total_is_accepted_and_a_byte_less_refused(needs in any_needs(), kind in any_kind_of_budget()) {
        let least = spent(&needs, kind);
        let accepted = plan(&needs, least).expect("the total itself is enough");
        prop_assert_eq!(accepted.spent(), least);
        let less = match least {
            Budget::Shared(bytes) => vec![bytes.checked_sub(1).map(Budget::Shared)],
            Budget::Separate { host, device } => vec![
                host.checked_sub(1).map(|host| Budget::Separate { host, device }),
                device.checked_sub(1).map(|device| Budget::Separate { host, device }),
            ],
        };
        for budget in less.into_iter().flatten() {
            let refused = plan(&needs, budget).expect_err("one byte is missing");
            prop_assert_eq!(refused.budget_min(), least);
            let excess: u64 = refused.excess().parts().iter().map(|(_, bytes)| bytes).sum();
            prop_assert_eq!(excess, 1);
        }
    }

    #[test]
    fn a_suggestion_fits_and_a_smaller_one_of_its_kind_does_not(
        needs in any_needs(), kind in any_kind_of_budget(), share in 0_u64..100, on_device in 0_u64..100,
    ) {
        let budget = match spent(&needs, kind) {
            Budget::Shared(bytes) => Budget::Shared(bytes * share / 100),
            Budget::Separate { host, device } => {
                Budget::Separate { host: host * share / 100, device: device * on_device / 100 }
            }
        };
        let Err(refused) = plan(&needs, budget) else { return Ok(()) };
        let Refused { suggestion, .. } = *refused;
        let single = every_single_change(&needs);
        let fitting: Vec<&Change> =
            single.iter().filter(|change| plan(&change.apply(&needs), budget).is_ok()).collect();
        let Some(suggestion) = suggestion else {
            prop_assert_eq!(fitting, Vec::<&Change>::new());
            return Ok(());
        };
        let after = plan(&suggestion.change.apply(&needs), budget).expect("the suggested change fits");
        prop_assert_eq!(after.spent(), suggestion.spent);
        // Nothing less harmful fits, found by trying all.
        let least = fitting.iter().map(|change| harm(change)).min().expect("the suggestion is a single change");
        prop_assert_eq!(harm(&suggestion.change), least);
    }
}

/// Every single change that may be suggested.
fn every_single_change(needs: &Needs) -> Vec<Change> {
    let mut all = Vec::new();
    for stream in needs.streams() {
        let (stream, from) = (stream.name.clone(), stream.frames_max);
        all.extend((2..from).map(|to| Change::Frames { stream: stream.clone(), from, to }));
    }
    for model in needs.models() {
        let (name, from, batch) = (model.name.clone(), model.lane, model.batch);
        all.extend((1..batch).map(|to| Change::Batch { model: name.clone(), from: batch, to }));
        let lanes = (0..needs.lanes()).filter(|to| *to != from);
        all.extend(lanes.map(|to| Change::Lane { model: name.clone(), from, to }));
        if needs.models().len() > 1 {
            all.push(Change::Drop { model: name });
        }
    }
    all
}

/// The order of harm, and within a ring or a batch the share that is lost, in millionths.
fn harm(change: &Change) -> (u8, u32) {
    let lost = |from: &u32, to: &u32| (from - to) * 1_000_000 / from;
    match change {
        Change::Frames { from, to, .. } => (0, lost(from, to)),
        Change::Batch { from, to, .. } => (1, lost(from, to)),
        Change::Lane { .. } => (2, 0),
        Change::Drop { .. } => (3, 0),
    }
}
