use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;
use crate::needs::{ModelNeeds, NeedsFault, StreamNeeds};
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
            the reload would exceed the memory budget while old and new are both loaded: 16.4 MiB over budget (board)
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
            the smallest change that fits: move model `yolox` from lane 0 to lane 1; then the peak is 188.4 MiB
            after the change the total is 148.4 MiB: restart the daemon to load the new board, or set a budget of at least 207 MiB (board)
        "#]],
    );
}

/// The last lines of a refusal, without its table.
fn check_advice(needs: &Needs, budget: u64, building: u64, expected: Expect) {
    let refused = admit_change(&running(Budget::Shared(budget)), needs, &[(Domain::Host, building)]);
    let text = refused.expect_err("it does not fit").to_string();
    let is_advice = |line: &&str| line.starts_with("the ") || line.starts_with("after ");
    expected.assert_eq(&text.lines().filter(is_advice).collect::<Vec<_>>().join("\n"));
}

#[test]
fn a_change_that_fits_next_to_the_running_board_is_suggested() {
    let with = |models: Vec<ModelNeeds>, streams: Vec<StreamNeeds>| {
        let models = board().models().iter().cloned().chain(models).collect();
        let streams = board().streams().iter().cloned().chain(streams).collect();
        Needs::new(2, models, streams).expect("these needs are sound")
    };
    let Budget::Shared(now) = running(Budget::Shared(u64::MAX)).spent() else { unreachable!() };
    // A shorter ring of a stream that runs would not help: it would be another stream next to it.
    let shed_and_dog = with(vec![model("dog", 1, 20, fixed(4), 1)], vec![stream("shed", 8)]);
    check_advice(
        &shed_and_dog,
        now + 50 * MIB,
        10 * MIB,
        expect![[r#"
        the reload would exceed the memory budget while old and new are both loaded: 6.9 MiB over budget (board)
        the smallest change that fits: set queue_frames of stream `shed` to 5 instead of 8; then the peak is 216.1 MiB
        after the change the total is 215.0 MiB: restart the daemon to load the new board, or set a budget of at least 225 MiB (board)"#]],
    );
    let dog = with(vec![model("dog", 1, 20, fixed(4), 1)], Vec::new());
    check_advice(
        &dog,
        now + 30 * MIB,
        10 * MIB,
        expect![[r#"
            the reload would exceed the memory budget while old and new are both loaded: 3.1 MiB over budget (board)
            the smallest change that fits: remove model `dog`; then the peak is 178.1 MiB
            after the change the total is 191.3 MiB: restart the daemon to load the new board, or set a budget of at least 202 MiB (board)"#]],
    );
}

#[test]
fn a_scratch_that_is_there_stays_while_its_lane_has_models() {
    let before = running(Budget::Shared(400 * MIB));
    let lane_0 = before.lanes(Domain::Host)[&0];
    let needs = |models: Vec<ModelNeeds>| {
        let needs = Needs::new(2, models, Vec::new()).expect("these needs are sound");
        needs.with_scratch(0, Domain::Host, lane_0)
    };
    let of_lane = |areas: &[Area], lane| areas.iter().filter(|area| area.lane == Some(lane)).count();
    let faces = model("faces", 0, 2, fixed(6), 1);
    let change = admit_change(&before, &needs(vec![faces]), &[]).expect("it fits");
    assert_eq!(change.after.lanes(Domain::Host), [(0, lane_0)].into(), "the smaller model computes in it");
    assert_eq!((of_lane(&change.kept, 0), of_lane(&change.removed, 1)), (1, 1), "{change}");
    let change = admit_change(&before, &needs(Vec::new()), &[]).expect("it fits");
    assert_eq!((change.after.areas.len(), of_lane(&change.removed, 0)), (0, 1), "{change}");
}

#[test]
fn two_of_one_name_are_both_counted() {
    let mut models = board().models().to_vec();
    let leaving = ModelNeeds { revision: "0".to_owned(), ..models[0].clone() };
    models.push(leaving);
    let both = Needs::new(2, models.clone(), Vec::new()).expect("they are not one");
    let change = admit_change(&running(Budget::Shared(400 * MIB)), &both, &[]).expect("it fits");
    assert_eq!(change.after.models()[&*models[0].name].weights, 2 * 50 * MIB);
    models.push(models[0].clone());
    let twice = Needs::new(2, models, Vec::new());
    assert_eq!(twice, Err(NeedsFault::ModelTwice("depth".to_owned())));
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
