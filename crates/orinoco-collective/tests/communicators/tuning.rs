//! Groups that measure their links.

use std::thread;
use std::time::Duration;

use orinoco_collective::{
    Collective, Communicator, DataType, Explanation, Figures, MessageSettings, Order, ReduceOp, Rendezvous,
    Security, TcpGroup, TcpSettings, Tune,
};

use crate::{Times, name};

fn settings(tune: Tune, order: Order) -> TcpSettings {
    let silence = Times::of_a_busy_machine().silence;
    let messages = MessageSettings { silence, tune, order, ..MessageSettings::default() };
    TcpSettings { security: Security::FileKey, messages }
}

/// Runs a function as each rank of a group with these settings.
fn run<R: Send>(ranks: usize, settings: &TcpSettings, body: impl Fn(TcpGroup) -> R + Sync) -> Vec<R> {
    let rendezvous = Rendezvous::File(name());
    thread::scope(|scope| {
        let join = |rank| {
            let group = TcpGroup::join(&rendezvous, rank, ranks, settings.clone()).expect("all join");
            body(group)
        };
        let ranks: Vec<_> = (0..ranks).map(|rank| scope.spawn(move || join(rank))).collect();
        ranks.into_iter().map(|rank| rank.join().expect("no rank panics")).collect()
    })
}

/// Sums vectors of several lengths, whose sums depend on the order. Returns their bits.
fn sums(group: &mut TcpGroup) -> Vec<u32> {
    let mut bits = Vec::new();
    for len in [1, 100, 5_000, 300_000] {
        let value = |i: usize| (group.rank() * 7 + i * 3) as f32 / 7.0;
        let mut vector: Vec<f32> = (0..len).map(value).collect();
        group.all_reduce(ReduceOp::Sum, &mut vector).unwrap();
        bits.extend(vector.iter().map(|value| value.to_bits()));
    }
    bits
}

#[test]
fn a_tuned_group_agrees_and_has_the_same_results() {
    for ranks in [1, 2, 4] {
        let untuned = run(ranks, &settings(Tune::Off, Order::Reproducible), |mut group| sums(&mut group));
        let tuned = run(ranks, &settings(Tune::AtJoin, Order::Reproducible), |mut group| {
            let figures = group.figures().expect("it was tuned").clone();
            let drift = group.recheck().unwrap();
            (figures, drift, sums(&mut group))
        });
        for (rank, (figures, drift, bits)) in tuned.iter().enumerate() {
            assert!(*bits == untuned[0], "rank {rank} of {ranks} got other bits");
            assert_eq!((figures, drift), (&tuned[0].0, &tuned[0].1), "rank {rank} of {ranks}");
            assert_eq!(drift.is_some(), ranks > 1);
            assert!(drift.is_none_or(|drift| drift.factor() >= 1.0 && !drift.now.is_zero()));
        }
    }
}

#[test]
fn every_operation_works_in_a_tuned_group_of_any_order() {
    for order in [Order::Reproducible, Order::Fast] {
        run(3, &settings(Tune::AtJoin, order), |mut group| {
            let (rank, len) = (group.rank() as u64, 40_000);
            let mut vector = vec![rank + 1; len];
            group.all_reduce(ReduceOp::Sum, &mut vector).unwrap();
            assert_eq!(vector, vec![6; len]);
            group.broadcast(1, &mut vector).unwrap();
            let mut all = vec![0; 3 * len];
            group.all_gather(&vec![rank; len], &mut all).unwrap();
            assert_eq!([all[0], all[len], all[2 * len]], [0, 1, 2]);
            let mut own = vec![0; len];
            group.reduce_scatter(ReduceOp::Max, &all, &mut own).unwrap();
            assert_eq!(own, vec![rank; len]);
            group.scatter(2, &all, &mut own).unwrap();
            group.gather(0, &own, &mut all).unwrap();
            assert_eq!([all[0], all[len], all[2 * len]], [0, 1, 2]);
            group.reduce(ReduceOp::Min, 1, &own, &mut vector).unwrap();
            let mut turned = vec![0; 3 * len];
            group.all_to_all(&vec![rank; 3 * len], &mut turned).unwrap();
            assert_eq!([turned[0], turned[len], turned[2 * len]], [0, 1, 2]);
            // Blocks that are equal at one rank only: it must not choose by them.
            let send: Vec<usize> = (0..3).map(|to| if group.rank() == 0 { 2 } else { to + 1 }).collect();
            let receive: Vec<usize> =
                (0..3).map(|from| if from == 0 { 2 } else { group.rank() + 1 }).collect();
            let input = vec![rank; send.iter().sum()];
            let mut output = vec![9; receive.iter().sum()];
            group.all_to_all_v(&input, &send, &mut output, &receive).unwrap();
            assert_eq!(output[..3], [0, 0, 1]);
            group.barrier().unwrap();
        });
    }
}

#[test]
fn an_explanation_compares_predictions_with_measured_times() {
    let collective = Collective::AllReduce { count: 1000 };
    let explained = run(2, &settings(Tune::AtJoin, Order::Reproducible), |mut group| {
        let before = group.explain(&collective, DataType::F32).expect("it was tuned");
        for _ in 0..5 {
            group.all_reduce(ReduceOp::Sum, &mut vec![1.0f32; 1000]).unwrap();
        }
        (before, group.explain(&collective, DataType::F32).expect("it was tuned"))
    });
    for (before, after) in &explained {
        assert_eq!(before.measured, None);
        let measured = after.measured.expect("it was called");
        assert_eq!(measured.calls, 5);
        assert!(!measured.median.is_zero() && !measured.last.is_zero());
        check_is_sensible(before);
        check_is_sensible(after);
        assert_eq!(before.candidates, explained[0].0.candidates);
        let table = after.to_string();
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[0], "all_reduce of f32, 4000 bytes, 2 ranks");
        assert!(lines.iter().any(|line| line.starts_with(&format!("* {}", after.chosen))), "{table}");
        // The first column of numbers ends where its heading does, in all lines.
        let end = lines[1].find("(us)").expect("a heading") + "(us)".len();
        let is_aligned = |line: &&str| !line[..end].ends_with(' ') && !line[end..].starts_with(|c| c != ' ');
        assert!(lines[1..].iter().all(is_aligned), "{table}");
    }
}

fn check_is_sensible(explanation: &Explanation) {
    assert_eq!(explanation.bytes, 4000);
    assert!(explanation.candidates.len() >= 5, "{explanation}");
    assert!(explanation.candidates.is_sorted_by_key(|candidate| candidate.predicted), "{explanation}");
    assert!(explanation.candidates.iter().all(|candidate| candidate.algorithm.is_reproducible()));
    let (bound, predicted) =
        (explanation.bound, explanation.predicted().expect("the chosen one has a price"));
    assert!(
        !bound.is_zero() && predicted >= bound / 2 && predicted < Duration::from_secs(1),
        "{explanation}"
    );
}

#[test]
fn an_untuned_group_has_no_explanation() {
    run(2, &settings(Tune::Off, Order::Reproducible), |mut group| {
        assert!(group.explain(&Collective::Barrier, DataType::U8).is_none());
        assert!(group.figures().is_none());
        assert!(group.recheck().unwrap().is_none());
        group.barrier().unwrap();
    });
}

/// Only those of rank 0 count, so that ranks with others do not choose differently.
#[test]
fn kept_figures_are_used_again() {
    let text = run(2, &settings(Tune::AtJoin, Order::Reproducible), |group| {
        group.figures().expect("it was tuned").to_string()
    });
    let kept: Figures = text[0].parse().expect("figures");
    let used = run(2, &settings(Tune::Off, Order::Reproducible), |mut group| {
        let known = (group.rank() == 0).then_some(&kept);
        group.tune(known).unwrap();
        group.barrier().unwrap();
        group.figures().cloned()
    });
    assert_eq!(used, [Some(kept.clone()), Some(kept.clone())]);
    // Figures of another number of ranks are not used.
    let used = run(3, &settings(Tune::Off, Order::Reproducible), |mut group| {
        group.tune(Some(&kept)).unwrap();
        group.figures().map(Figures::ranks)
    });
    assert_eq!(used, [Some(3); 3]);
}

#[test]
fn text_that_holds_no_figures_is_refused() {
    let error = |text: &str| text.parse::<Figures>().expect_err("no figures").to_string();
    let again = "measure again, and store the new figures";
    assert_eq!(
        error("hello"),
        format!(
            "line 1 of the figures: expected `orinoco-figures 1 ranks` and 1 number, found `hello`; {again}"
        )
    );
    assert_eq!(
        error("orinoco-figures 1 ranks 18446744073709551615"),
        format!("line 1 of the figures: expected 1 to 64 ranks; {again}")
    );
    assert_eq!(error("orinoco-figures 1 ranks 2"), format!("line 2 of the figures: it is missing; {again}"));
    assert!(
        error("orinoco-figures 1 ranks 1\nrank 0 machine 1 cores 1\nrank 0 spin 1\nrank 0 copy 1 2")
            .contains("4 numbers")
    );
}
