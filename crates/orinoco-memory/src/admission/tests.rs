use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;
use crate::needs::{Domain, ModelNeeds};
use crate::suggestion::Change;
use crate::testing::{MIB, any_kind_of_budget, any_needs, board, fixed, model, per_item, stream};

fn check(needs: &Needs, budget: Budget, expected: Expect) {
    let shown = match plan(needs, budget) {
        Ok(plan) => plan.to_string(),
        Err(refused) => refused.to_string(),
    };
    expected.assert_eq(&(shown + "\n"));
}

#[test]
fn a_shorter_ring_is_suggested_first() {
    check(
        &board(),
        Budget::Shared(160 * MIB),
        expect![[r#"
            the memory budget is exceeded: 8.1 MiB over budget (board)
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
            budget                           board   160.0  167772160
            too many                         board     8.1    8523776
            the smallest change that fits: set queue_frames of stream `door` to 5 instead of 8; then the total is 159.2 MiB
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
        195: set queue_frames of stream `s` to 2 instead of 3
        184: run model `a` with a batch of 1 instead of 2
        178: move model `a` from lane 0 to lane 1
        140: move model `b` from lane 1 to lane 2
        130: remove model `c`
        115: remove model `b`
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
            NAME        KIND             DOMAIN   MIB     BYTES  BASIS
            a           inputs, outputs  pinned   3.1   3284992  measured
            b           inputs, outputs  pinned   3.1   3284992  measured
            s           frames           pinned   5.9   6221824  computed
            a           weights          device  30.0  31457280  measured
            b           weights          device  30.0  31457280  measured
            lane 0 (a)  scratch          device  20.0  20971520  measured
            lane 1 (b)  scratch          device  10.0  10485760  measured
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
            NAME        KIND             DOMAIN   MIB     BYTES  BASIS
            a           inputs, outputs  pinned   3.1   3284992  measured
            b           inputs, outputs  pinned   3.1   3284992  measured
            s           frames           pinned   5.9   6221824  computed
            a           weights          device  30.0  31457280  measured
            b           weights          device  30.0  31457280  measured
            lane 0 (a)  scratch          device  20.0  20971520  measured
            lane 1 (b)  scratch          device  10.0  10485760  measured
            total                        host    12.2  12791808
            total                        device  90.0  94371840
            budget                       host     4.0   4194304
            budget                       device  40.0  41943040
            too many                     host     8.2   8597504
            too many                     device  50.0  52428800
            no single change fits; the smallest sufficient budget is 13 MiB (host), 90 MiB (device)
        "#]],
    );
}

/// Returns the sizes of the plan for `needs` without a limit.
fn spent(needs: &Needs, kind: Budget) -> Budget {
    plan(needs, kind).expect("no limit is exceeded").spent()
}

proptest! {
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
        // Tries all changes, to check that no less harmful one fits.
        let least = fitting.iter().map(|change| harm(change)).min().expect("the suggestion is a single change");
        prop_assert_eq!(harm(&suggestion.change), least);
    }
}

/// Returns every single change that may be suggested.
fn every_single_change(needs: &Needs) -> Vec<Change> {
    let mut all = Vec::new();
    for stream in needs.streams() {
        let (stream, from) = (stream.name.clone(), stream.queue_frames);
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

/// Ranks a change by harm: its kind, and within a ring or a batch the share that is lost, in millionths.
fn harm(change: &Change) -> (u8, u32) {
    let lost = |from: &u32, to: &u32| (from - to) * 1_000_000 / from;
    match change {
        Change::Frames { from, to, .. } => (0, lost(from, to)),
        Change::Batch { from, to, .. } => (1, lost(from, to)),
        Change::Lane { .. } => (2, 0),
        Change::Drop { .. } => (3, 0),
    }
}
