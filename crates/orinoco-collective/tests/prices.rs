//! Prices of schedules agree with the formulas of the literature, and large groups can be priced.

use orinoco_collective::cost::{
    Costs, Curve, LinkCosts, Links, Price, Sizes, Unpriced, price, price_after_barrier,
};
use orinoco_collective::{Algorithm, Collective, Topology};

const LATENCY: f64 = 10e-6;
const SECONDS_PER_BYTE: f64 = 1e-9;
const REDUCE_SECONDS_PER_BYTE: f64 = 0.25e-9;

fn costs() -> Costs {
    let link = LinkCosts {
        latency: Curve::line(LATENCY, SECONDS_PER_BYTE),
        occupancy: Curve::line(0.0, SECONDS_PER_BYTE),
        send: Curve::line(0.0, 0.0),
        receive: Curve::line(0.0, 0.0),
    };
    Costs {
        links: Links::OfBoards { between: link.clone(), within: link },
        reduce: Curve::line(0.0, REDUCE_SECONDS_PER_BYTE),
        copy: Curve::line(0.0, 0.0),
        cores: None,
    }
}

fn priced(collective: &Collective, algorithm: Algorithm, ranks: usize, piece: usize) -> Price {
    let sizes = Sizes { element: 4, accumulator: 4, piece };
    price(collective, algorithm, &Topology::flat(ranks), sizes, &costs()).expect("there is such a schedule")
}

/// Formulas of Thakur, Rabenseifner and Gropp (2005), and of Bruck and others (1997).
#[test]
fn prices_are_those_of_the_literature() {
    let (a, b, g) = (LATENCY, SECONDS_PER_BYTE, REDUCE_SECONDS_PER_BYTE);
    for (ranks, log) in [(2usize, 1.0), (8, 3.0), (16, 4.0)] {
        let count = 64 * ranks * ranks;
        let (p, s) = (ranks as f64, (count * 4) as f64);
        let share = (p - 1.0) / p;
        let all_reduce = Collective::AllReduce { count };
        let all_gather = Collective::AllGather { counts: vec![count / ranks; ranks] };
        let all_to_all = Collective::all_to_all(ranks, count / ranks);
        let broadcast = Collective::Broadcast { root: 0, count };
        for (collective, algorithm, seconds) in [
            (&all_reduce, Algorithm::Direct, a + (p - 1.0) * s * (b + g)),
            (&all_reduce, Algorithm::TwoShot, 2.0 * a + share * s * (2.0 * b + g)),
            (&all_reduce, Algorithm::Ring, 2.0 * (p - 1.0) * a + share * s * (2.0 * b + g)),
            (&all_reduce, Algorithm::RecursiveDoubling, log * (a + s * b + s * g)),
            (&all_reduce, Algorithm::HalvingDoubling, 2.0 * log * a + share * s * (2.0 * b + g)),
            (&all_gather, Algorithm::Ring, (p - 1.0) * a + share * s * b),
            (&all_gather, Algorithm::Bruck, log * a + share * s * b),
            (&all_to_all, Algorithm::Pairwise, (p - 1.0) * a + share * s * b),
            (&broadcast, Algorithm::BinomialTree, log * (a + s * b)),
        ] {
            let price = priced(collective, algorithm, ranks, usize::MAX).seconds;
            let error = (price - seconds).abs() / seconds;
            assert!(error < 1e-9, "{algorithm} {collective} of {ranks}: {price} instead of {seconds}");
        }
    }
}

/// The rank that reaches a barrier last leaves it a latency before the others.
#[test]
fn who_leaves_a_barrier_first_waits_for_the_others() {
    let sizes = Sizes { element: 4, accumulator: 4, piece: usize::MAX };
    let seconds = |collective: &Collective, algorithm, ranks| {
        let topology = Topology::flat(ranks);
        let barrier = Algorithm::Direct;
        let price = price_after_barrier(collective, algorithm, barrier, &topology, sizes, &costs());
        price.expect("there is such a schedule").seconds
    };
    let broadcast = Collective::Broadcast { root: 0, count: 1 };
    let all_gather = |ranks| Collective::AllGather { counts: vec![1; ranks] };
    for (collective, algorithm, ranks, latencies) in [
        // If the root is last, its message arrives when the other leaves the barrier; else the other waits for two latencies.
        (broadcast.clone(), Algorithm::Direct, 2, 1.0),
        (broadcast, Algorithm::Direct, 4, 1.5),
        (all_gather(2), Algorithm::Direct, 2, 2.0),
        (all_gather(4), Algorithm::Direct, 4, 2.0),
        // Three steps, which begin a latency later at all ranks but one.
        (all_gather(4), Algorithm::Ring, 4, 4.0),
    ] {
        let (price, expected) = (seconds(&collective, algorithm, ranks), latencies * LATENCY);
        // Four bytes take less than a thousandth of the latency.
        let error = (price - expected).abs() / expected;
        assert!(error < 2e-3, "{algorithm} {collective} of {ranks}: {price} instead of {expected}");
    }
}

/// In pieces, a chain's ranks send while they receive.
#[test]
fn pieces_overlap() {
    let (ranks, count) = (8, 1 << 20);
    let collective = Collective::Broadcast { root: 0, count };
    let whole = priced(&collective, Algorithm::Chain, ranks, usize::MAX).seconds;
    let pieces = priced(&collective, Algorithm::Chain, ranks, count / 64).seconds;
    let least = (count * 4) as f64 * SECONDS_PER_BYTE;
    assert!(whole > 7.0 * least, "{whole}");
    assert!(pieces < 1.15 * least, "{pieces} for {least}");
}

#[test]
fn ten_thousand_ranks_can_be_priced() {
    let collective = Collective::AllReduce { count: 4 };
    let few = priced(&collective, Algorithm::RecursiveDoubling, 16, usize::MAX);
    let many = priced(&collective, Algorithm::RecursiveDoubling, 10_000, usize::MAX);
    // 8,192 nodes in 13 levels, and the pairs of the rest before and after them.
    assert_eq!(many.messages, 8192 * 13 + 2 * (10_000 - 8192));
    // Nodes that are no pair do not wait for one at first, so the two steps of the pairs cost one latency together.
    let ratio = many.seconds / few.seconds;
    assert!((ratio - 14.0 / 4.0).abs() < 0.01, "{ratio}");
    let sizes = Sizes { element: 4, accumulator: 4, piece: 1 };
    let refused = price(&collective, Algorithm::Direct, &Topology::flat(10_000), sizes, &costs());
    assert!(matches!(refused, Err(Unpriced::TooLarge { .. })));
}
