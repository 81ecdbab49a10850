//! Proves every algorithm for every number of ranks from 1 to 64: the result is right, no schedule can block another without end,
//! no message overwrites what another sends, and reproducible algorithms combine values in one order.

mod symbolic;

use orinoco_collective::{Algorithm, Collective, Topology, schedule};
use proptest::prelude::*;
use symbolic::{Case, prove};

const RANKS_MAX: usize = 64;

/// Vector sizes for a number of ranks: empty, smaller than it, odd, and larger.
fn sizes(ranks: usize) -> Vec<usize> {
    let mut sizes = vec![0, 1, ranks - 1, ranks + 1, 2 * ranks + 3];
    if ranks <= 6 {
        // Long enough for slices that begin at cache lines.
        sizes.push(64 * ranks + 17);
    }
    sizes
}

/// One count for each rank: different ones, some of them 0.
fn uneven(ranks: usize) -> Vec<usize> {
    (0..ranks).map(|rank| (rank * 5 + 1) % 4).collect()
}

/// All operations of that many ranks, each with the algorithms that must carry it out.
fn operations(ranks: usize) -> Vec<(Vec<Collective>, &'static [Algorithm])> {
    use Algorithm as A;
    let all = |collective: Collective| vec![collective; ranks];
    let mut operations = vec![(all(Collective::Barrier), &[A::Direct, A::RecursiveDoubling] as &[_])];
    for count in sizes(ranks) {
        operations.push((
            all(Collective::AllReduce { count }),
            &[
                A::Direct,
                A::TwoShot,
                A::Ring,
                A::RecursiveDoubling,
                A::HalvingDoubling,
                A::BinomialTree,
                A::DoubleBinaryTree,
                A::TwoLevel,
            ],
        ));
    }
    for (from, to) in [(0, ranks - 1), (ranks - 1, ranks / 2)] {
        for count in if from == to { &[] as &[usize] } else { &[0, 1, 7] } {
            operations.push((all(Collective::Send { from, to, count: *count }), &[A::Direct]));
        }
    }
    for root in [0, 1 % ranks, ranks / 2, ranks - 1] {
        let count = 2 * ranks + 3;
        operations.push((
            all(Collective::Broadcast { root, count }),
            &[A::Direct, A::BinomialTree, A::Chain, A::DoubleBinaryTree, A::TwoLevel],
        ));
        operations.push((all(Collective::Reduce { root, count }), &[A::Direct, A::BinomialTree, A::Chain]));
        for counts in [uneven(ranks), vec![3; ranks]] {
            let rooted: &[_] = &[A::Direct, A::BinomialTree];
            operations.push((all(Collective::Scatter { root, counts: counts.clone() }), rooted));
            operations.push((all(Collective::Gather { root, counts }), rooted));
        }
    }
    for counts in [uneven(ranks), vec![0; ranks], vec![1; ranks], vec![3; ranks]] {
        operations.push((
            all(Collective::AllGather { counts: counts.clone() }),
            &[A::Direct, A::Ring, A::RecursiveDoubling, A::Bruck],
        ));
        operations
            .push((all(Collective::ReduceScatter { counts }), &[A::Direct, A::Ring, A::HalvingDoubling]));
    }
    let uniform = Collective::all_to_all(ranks, 2);
    operations.push((all(uniform), &[A::Direct, A::Pairwise, A::Bruck]));
    let between = |from: usize, to: usize| (3 * from + to) % 4;
    let uneven = (0..ranks)
        .map(|rank| Collective::AllToAll {
            send: (0..ranks).map(|to| between(rank, to)).collect(),
            receive: (0..ranks).map(|from| between(from, rank)).collect(),
        })
        .collect();
    operations.push((uneven, &[A::Direct, A::Pairwise]));
    operations
}

/// Boards over which ranks are spread.
fn topologies(ranks: usize) -> Vec<Topology> {
    vec![
        Topology::of_boards((0..ranks).map(|rank| rank / 3).collect()),
        Topology::of_boards((0..ranks).map(|rank| rank % 2).collect()),
    ]
}

fn prove_ranks(ranks: usize) -> usize {
    let mut cases = 0;
    for (collectives, algorithms) in operations(ranks) {
        for algorithm in algorithms.iter().copied() {
            let topologies = match algorithm {
                Algorithm::TwoLevel => topologies(ranks),
                _ => vec![Topology::flat(ranks)],
            };
            for topology in topologies {
                prove(&Case { collectives: collectives.clone(), algorithm, topology });
                cases += 1;
            }
        }
    }
    cases
}

#[test]
#[expect(clippy::print_stdout, reason = "the number of schedules is a figure")]
fn all_algorithms_are_correct_for_1_to_64_ranks() {
    // Large numbers first: they take longest.
    let next = std::sync::atomic::AtomicUsize::new(RANKS_MAX);
    let cases = std::sync::atomic::AtomicUsize::new(0);
    let order = std::sync::atomic::Ordering::Relaxed;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Ok(ranks) = next.fetch_update(order, order, |ranks| (ranks > 0).then(|| ranks - 1))
                {
                    cases.fetch_add(prove_ranks(ranks), order);
                }
            });
        }
    });
    println!("{} schedules of 1 to {RANKS_MAX} ranks", cases.into_inner());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn weighted_slices_and_any_sizes_are_correct(
        weights in prop::collection::vec(0u32..5, 1..12),
        count in 0usize..200,
        counts in prop::collection::vec(0usize..7, 12),
    ) {
        prop_assume!(weights.iter().any(|weight| *weight > 0));
        let ranks = weights.len();
        let topology = Topology::flat(ranks).with_weights(weights);
        let counts = counts[..ranks].to_vec();
        for algorithm in [Algorithm::TwoShot, Algorithm::Ring] {
            let collectives = vec![Collective::AllReduce { count }; ranks];
            prove(&Case { collectives, algorithm, topology: topology.clone() });
        }
        for algorithm in [Algorithm::Direct, Algorithm::Ring, Algorithm::HalvingDoubling] {
            let collectives = vec![Collective::ReduceScatter { counts: counts.clone() }; ranks];
            prove(&Case { collectives, algorithm, topology: topology.clone() });
        }
        for algorithm in [Algorithm::Ring, Algorithm::RecursiveDoubling, Algorithm::Bruck] {
            let collectives = vec![Collective::AllGather { counts: counts.clone() }; ranks];
            prove(&Case { collectives, algorithm, topology: topology.clone() });
        }
    }

    #[test]
    fn ranks_may_be_on_any_boards(boards in prop::collection::vec(0usize..5, 1..14), count in 0usize..40, root in 0usize..14) {
        let ranks = boards.len();
        let topology = Topology::of_boards(boards);
        let root = root % ranks;
        for collective in [Collective::AllReduce { count }, Collective::Broadcast { root, count }] {
            let collectives = vec![collective; ranks];
            prove(&Case { collectives, algorithm: Algorithm::TwoLevel, topology: topology.clone() });
        }
    }
}

#[test]
fn an_operation_that_an_algorithm_lacks_is_an_error() {
    let refused = schedule(&Collective::Barrier, Algorithm::Ring, &Topology::flat(2), 0).unwrap_err();
    assert_eq!(refused.to_string(), "there is no ring barrier");
    let uneven = Collective::AllToAll { send: vec![1, 2], receive: vec![1, 1] };
    assert!(schedule(&uneven, Algorithm::Bruck, &Topology::flat(2), 0).is_err());
}

/// The messages of one rank, as the literature counts them.
#[test]
fn rounds_and_elements_are_those_of_the_literature() {
    let of = |algorithm, ranks, count| {
        let collective = Collective::AllReduce { count };
        let schedule = schedule(&collective, algorithm, &Topology::flat(ranks), 0).unwrap();
        let sends = schedule.rounds.iter().flat_map(|round| &round.sends);
        (
            schedule.rounds.iter().filter(|round| !round.sends.is_empty()).count(),
            sends.map(|send| send.len()).sum(),
        )
    };
    let (ranks, count) = (8, 8 * 64);
    assert_eq!(of(Algorithm::Direct, ranks, count), (1, 7 * count));
    assert_eq!(of(Algorithm::TwoShot, ranks, count), (2, 2 * count * 7 / 8));
    assert_eq!(of(Algorithm::Ring, ranks, count), (14, 2 * count * 7 / 8));
    assert_eq!(of(Algorithm::RecursiveDoubling, ranks, count), (3, 3 * count));
    assert_eq!(of(Algorithm::HalvingDoubling, ranks, count), (6, 2 * count * 7 / 8));
}
