use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;
use crate::admission::plan;
use crate::needs::{ALIGN_BYTES, NeedsFault};
use crate::testing::{MIB, any_kind_of_budget, any_lists, any_needs, board, fixed, model, stream};

fn check(needs: &Needs, budget: Budget, expected: Expect) {
    expected.assert_eq(&(Plan::of(needs, budget).to_string() + "\n"));
}

#[test]
fn a_plan_is_a_table() {
    check(
        &board(),
        Budget::Shared(256 * MIB),
        expect![[r#"
            NAME            KIND             DOMAIN    MIB      BYTES  BASIS
            depth           weights          host     50.0   52428800  measured
            faces           weights          host      2.0    2097152  measured
            yolox           weights          host      8.0    8388608  measured
            lane 0 (yolox)  scratch          host     20.0   20971520  measured
            lane 1 (depth)  scratch          host     40.0   41943040  measured
            depth           inputs, outputs  host      3.1    3284992  measured
            faces           inputs, outputs  host      3.1    3284992  measured
            yolox           inputs, outputs  host      6.3    6569984  measured
            door            frames           pinned   23.7   24883200  computed
            yard            frames           pinned   11.9   12443648  computed
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
        fault(1, vec![ModelNeeds { batch: 0, ..a() }], vec![]),
        fault(1, vec![], vec![StreamNeeds { queue_frames: 0, ..s() }]),
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
        batch or queue_frames of `a` is 0
        batch or queue_frames of `s` is 0
        all needs together are more than 256 TiB
    "#]]
    .assert_eq(&(shown.join("\n") + "\n"));
}

#[test]
fn what_cannot_be_counted_is_named() {
    let driver = StreamNeeds { driver_bytes: 5 * MIB, ..stream("door", 4) };
    let decoder = StreamNeeds {
        slots: 0,
        frame_bytes: 0,
        uncounted: vec!["decoder buffers".to_owned()],
        ..stream("yard", 4)
    };
    let needs = Needs::new(1, vec![model("a", 0, 1, fixed(0), 1)], vec![driver, decoder]).unwrap();
    check(
        &needs,
        Budget::Shared(64 * MIB),
        expect![[r#"
            NAME    KIND             DOMAIN   MIB     BYTES  BASIS
            a       weights          host     1.0   1048576  measured
            a       inputs, outputs  host     3.1   3284992  measured
            door    frames           pinned  16.9  17686528  computed
            yard    frames           -          -         -  not counted: decoder buffers
            total                    board   21.0  22020096
            budget                   board   64.0  67108864
        "#]],
    );
}

proptest! {
    #[test]
    fn every_need_is_in_the_sum_once(needs in any_needs(), kind in any_kind_of_budget()) {
        let plan = Plan::of(&needs, kind);
        prop_assert!(plan.areas.iter().all(|area| area.bytes > 0 && area.bytes.is_multiple_of(PAGE_BYTES)));
        let area = |kind: Kind, domain: Domain, name: &str| {
            let mut areas = plan.areas.iter().filter(move |area| {
                area.kind == kind && area.domain == domain && area.name == name
            });
            let found = areas.next();
            assert!(areas.next().is_none(), "two areas of {kind} are named {name}");
            found
        };
        let mut bytes = 0;
        for domain in Domain::ALL {
            for model in needs.models() {
                let weights = area(Kind::Weights, domain, &model.name).map_or(0, |area| area.bytes);
                let kept = model.weights.iter().filter(|(theirs, _)| *theirs == domain).map(|(_, bytes)| bytes);
                prop_assert_eq!(weights, kept.sum::<u64>().next_multiple_of(PAGE_BYTES));
                let io = area(Kind::Io, domain, &model.name).map_or(0, |area| area.bytes);
                let tensors = model.tensors.iter().filter(|_| model.io_domain == domain);
                let tensors = tensors.map(|tensor| tensor.bytes.at(model.batch).next_multiple_of(ALIGN_BYTES));
                prop_assert_eq!(io, tensors.sum::<u64>().next_multiple_of(PAGE_BYTES));
                bytes += weights + io;
            }
            for (lane, name) in (0..needs.lanes()).map(|lane| (lane, format!("lane {lane}"))) {
                let on = needs.models().iter().filter(|model| model.lane == lane && model.domain == domain);
                let largest = on.map(|model| model.scratch.at(model.batch)).max().unwrap_or(0);
                let scratch = area(Kind::Scratch, domain, &name).map_or(0, |area| area.bytes);
                prop_assert_eq!(scratch, largest.next_multiple_of(PAGE_BYTES));
                prop_assert_eq!(scratch, plan.lanes(domain).get(&lane).copied().unwrap_or(0));
                bytes += scratch;
            }
            for stream in needs.streams() {
                let frames = area(Kind::Frames, domain, &stream.name).map_or(0, |area| area.bytes);
                let driver = stream.driver_bytes.next_multiple_of(ALIGN_BYTES);
                let sum = stream.frame_bytes.next_multiple_of(ALIGN_BYTES) * u64::from(stream.slots) + driver;
                let sum = if stream.domain == domain { sum } else { 0 };
                prop_assert_eq!(frames, sum.next_multiple_of(PAGE_BYTES));
                bytes += frames;
            }
        }
        prop_assert_eq!(plan.bytes(), bytes);
        let parts: u64 = plan.spent().parts().iter().map(|(_, bytes)| bytes).sum();
        prop_assert_eq!(parts, bytes);
        prop_assert_eq!(Domain::ALL.iter().map(|domain| plan.domain_bytes(*domain)).sum::<u64>(), bytes);
        for model in needs.models() {
            let scratch = plan.models().get(model.name.as_str()).map_or(0, |bytes| bytes.scratch);
            prop_assert_eq!(scratch, model.scratch.at(model.batch));
        }
    }

    #[test]
    fn more_needs_never_take_less(
        (lanes, models, streams) in any_lists(), index in any::<proptest::sample::Index>(), more in 0_u64..MIB,
        which in 0_usize..9,
    ) {
        let needs = Needs::new(lanes, models.clone(), streams.clone()).unwrap();
        let (mut models, mut streams) = (models, streams);
        match which {
            0..5 if !models.is_empty() => {
                let model = index.get(&models).name.clone();
                let model = models.iter_mut().find(|theirs| theirs.name == model).expect("it is one of them");
                match which {
                    0 => model.weights.push((Domain::Host, more)),
                    1 => model.scratch.fixed_bytes += more,
                    2 => model.scratch.item_bytes += more,
                    3 => model.batch += 1,
                    _ => model.tensors.iter_mut().for_each(|tensor| tensor.bytes.fixed_bytes += more),
                }
            }
            5..8 if !streams.is_empty() => {
                let stream = index.get(&streams).name.clone();
                let stream = streams.iter_mut().find(|theirs| theirs.name == stream).expect("it is one of them");
                match which {
                    5 => stream.slots += 1,
                    6 => stream.frame_bytes += more,
                    _ => stream.driver_bytes += more,
                }
            }
            _ => models.push(model("one more", 0, more % 8, fixed(more % 5), 1)),
        }
        let grown = Needs::new(lanes, models, streams).unwrap();
        let budget = Budget::Shared(u64::MAX);
        let (less, more) = (Plan::of(&needs, budget), Plan::of(&grown, budget));
        for domain in Domain::ALL {
            prop_assert!(more.domain_bytes(domain) >= less.domain_bytes(domain));
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
        let total = Plan::of(&needs, Budget::Shared(u64::MAX)).bytes();
        let budget = Budget::Shared(total * share / 100);
        prop_assert_eq!(plan(&needs, budget), plan(&shuffled, budget));
    }
}
