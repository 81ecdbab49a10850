use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;
use crate::needs::{ModelNeeds, StreamNeeds};
use crate::testing::{MIB, any_kind_of_budget, any_lists, any_needs, board, fixed, model, per_item, stream};

fn running(budget: Budget) -> Plan {
    plan(&board(), budget).expect("the board fits")
}

fn check(running: &Plan, needs: &Needs, building: &[(Domain, u64)], expected: Expect) {
    let shown = match admit_change(running, needs, building) {
        Ok(change) => change.to_string(),
        Err(refused) => refused.to_string(),
    };
    expected.assert_eq(&(shown + "\n"));
}

/// Returns the needs of [`board`] with another `yolox`, whose scratch is larger, and one stream less.
fn swapped() -> Needs {
    let yolox = ModelNeeds { revision: "2".to_owned(), ..model("yolox", 0, 8, per_item(12), 2) };
    let models = vec![yolox, model("faces", 0, 2, fixed(6), 1), model("depth", 1, 50, fixed(40), 1)];
    Needs::new(2, models, vec![stream("yard", 4)]).expect("these needs are sound")
}

#[test]
fn a_swap_holds_both_until_it_is_done() {
    check(
        &running(Budget::Shared(400 * MIB)),
        &swapped(),
        &[(Domain::Device, 100 * MIB)],
        expect![[r#"
            NAME            KIND             DOMAIN    MIB      BYTES  CHANGE
            depth           weights          host     50.0   52428800  stays
            faces           weights          host      2.0    2097152  stays
            lane 1 (depth)  scratch          host     40.0   41943040  stays
            depth           inputs, outputs  host      3.1    3284992  stays
            faces           inputs, outputs  host      3.1    3284992  stays
            yard            frames           pinned   11.9   12443648  stays
            yolox           weights          host      8.0    8388608  added
            lane 0 (yolox)  scratch          host     24.0   25165824  added
            yolox           inputs, outputs  host      6.3    6569984  added
            yolox           weights          host      8.0    8388608  goes
            lane 0 (yolox)  scratch          host     20.0   20971520  goes
            yolox           inputs, outputs  host      6.3    6569984  goes
            door            frames           pinned   23.7   24883200  goes
            building                         board   100.0  104857600
            peak                             board   306.4  321277952
            budget                           board   400.0  419430400
        "#]],
    );
}

#[test]
fn a_change_that_fits_only_by_itself_is_refused_at_its_peak() {
    check(
        &running(Budget::Shared(190 * MIB)),
        &swapped(),
        &[],
        expect![[r#"
            the change exceeds the memory budget at its peak: 16.4 MiB over budget (board)
            NAME            KIND             DOMAIN    MIB      BYTES  CHANGE
            depth           weights          host     50.0   52428800  stays
            faces           weights          host      2.0    2097152  stays
            lane 1 (depth)  scratch          host     40.0   41943040  stays
            depth           inputs, outputs  host      3.1    3284992  stays
            faces           inputs, outputs  host      3.1    3284992  stays
            yard            frames           pinned   11.9   12443648  stays
            yolox           weights          host      8.0    8388608  added
            lane 0 (yolox)  scratch          host     24.0   25165824  added
            yolox           inputs, outputs  host      6.3    6569984  added
            yolox           weights          host      8.0    8388608  goes
            lane 0 (yolox)  scratch          host     20.0   20971520  goes
            yolox           inputs, outputs  host      6.3    6569984  goes
            door            frames           pinned   23.7   24883200  goes
            building                         board     0.0          0
            peak                             board   206.4  216420352
            budget                           board   190.0  199229440
            after the change the total is 148.4 MiB: restart to load it, or set a budget of at least 207 MiB (board)
        "#]],
    );
}

#[test]
fn needs_that_do_not_fit_at_all_are_refused_as_such() {
    let more = Needs::new(1, vec![model("huge", 0, 900, fixed(1), 1)], Vec::new()).unwrap();
    let refused = admit_change(&running(Budget::Shared(300 * MIB)), &more, &[]).unwrap_err();
    let ChangeRefused::Needs(refused) = refused else { panic!("{refused}") };
    assert_eq!(Err(refused), plan(&more, Budget::Shared(300 * MIB)));
}

/// Makes two boards with the same names, in which some models and streams are the same.
fn any_change() -> impl Strategy<Value = (Needs, Needs)> {
    let both = (any_lists(), any_lists(), any::<u64>());
    both.prop_map(|((lanes, models, streams), (new_lanes, new_models, new_streams), same)| {
        let lanes = lanes.max(new_lanes);
        let stays = |index: usize| same >> index & 1 == 1;
        let new_models =
            (0..new_models.len()).map(|index| match models.get(index).filter(|_| stays(index)) {
                Some(model) => model.clone(),
                None => new_models[index].clone(),
            });
        let new_streams =
            (0..new_streams.len()).map(|index| match streams.get(index).filter(|_| stays(32 + index)) {
                Some(stream) => stream.clone(),
                None => new_streams[index].clone(),
            });
        let (new_models, new_streams): (Vec<ModelNeeds>, Vec<StreamNeeds>) =
            (new_models.collect(), new_streams.collect());
        let needs = |models, streams| Needs::new(lanes, models, streams).expect("generated soundly");
        (needs(models, streams), needs(new_models, new_streams))
    })
}

fn each(budget: Budget) -> Vec<u64> {
    budget.parts().into_iter().map(|(_, bytes)| bytes).collect()
}

proptest! {
    #[test]
    fn a_peak_is_what_was_and_what_is_new(
        (old, new) in any_change(), kind in any_kind_of_budget(), building in 0..64 * MIB,
    ) {
        let running = plan(&old, kind).unwrap();
        let building = [(Domain::Pinned, building / 3), (Domain::Device, building)];
        let change = admit_change(&running, &new, &building).unwrap();
        prop_assert_eq!(&change.after, &plan(&new, kind).unwrap());
        // Every area of both plans is in exactly one list.
        let total = |areas: &[Area]| areas.iter().map(|area| area.bytes).sum::<u64>();
        prop_assert_eq!(change.kept.len() + change.removed.len(), running.areas.len());
        prop_assert_eq!(change.kept.len() + change.added.len(), change.after.areas.len());
        prop_assert_eq!(total(&change.kept) + total(&change.removed), running.bytes());
        prop_assert_eq!(total(&change.kept) + total(&change.added), change.after.bytes());
        let mut all = [&change.kept[..], &change.added, &change.removed].concat();
        all.sort_by_key(|area| format!("{area:?}"));
        let count = all.len();
        all.dedup();
        prop_assert_eq!(all.len(), count, "an area is counted twice");
        // For each part of the budget, each plan fits into the peak, and the peak into both plans and the build.
        let parts = each(change.peak()).into_iter().zip(each(running.spent())).zip(each(change.after.spent()));
        let built = each(kind.sum(building.into_iter()));
        for (((peak, before), after), built) in parts.zip(built) {
            prop_assert!(peak >= before.max(after) + built);
            prop_assert!(peak <= before + after + built);
        }
    }

    #[test]
    fn no_change_is_no_more(needs in any_needs(), kind in any_kind_of_budget()) {
        let spent = plan(&needs, kind).unwrap().spent();
        let running = plan(&needs, spent).expect("the total itself is enough");
        let change = admit_change(&running, &needs, &[]).expect("nothing is added");
        prop_assert_eq!(change.peak(), spent);
        prop_assert_eq!((&change.kept, change.added.len(), change.removed.len()), (&running.areas, 0, 0));
    }

    #[test]
    fn exactly_the_peak_is_admitted_and_a_byte_less_refused((old, new) in any_change()) {
        let free = plan(&old, Budget::Shared(u64::MAX)).unwrap();
        let Budget::Shared(peak) = admit_change(&free, &new, &[]).unwrap().peak() else { unreachable!() };
        let within = |budget: u64| Plan { budget: Budget::Shared(budget), ..free.clone() };
        prop_assert!(admit_change(&within(peak), &new, &[]).is_ok());
        if let Some(less) = peak.checked_sub(1) {
            prop_assert!(admit_change(&within(less), &new, &[]).is_err());
        }
    }
}
