use super::figures::{Figures, REDUCED_TYPES};
use crate::cost::{Costs, Sizes, price};
use crate::{Algorithm, Collective, Order, Topology, schedule};

/// Sizes for which choices are made, as exponents of two: 8 B to 8 MiB. Longer vectors move in pieces, so that their choice is that of
/// the longest of these.
const EXPONENT_MIN: u32 = 3;
const EXPONENT_MAX: u32 = 23;
const SIZES: usize = (EXPONENT_MAX - EXPONENT_MIN + 1) as usize;
/// Operations for which choices are made; a send has one algorithm.
const OPERATIONS: usize = 9;
/// Choices in a table.
const CELLS: usize = OPERATIONS * REDUCED_TYPES.len() * SIZES;
/// Pieces of a vector that are priced at most: with more, the shares of the algorithms change no further.
const PIECES_MAX: usize = 8;
/// Ratio of the times of an all-reduce from which weighted slices are used: predicted times are not exact.
const GAIN_MIN: f64 = 1.05;
/// Ratio of the rates of two ranks from which slices are weighted by them.
const RATES_RATIO_MIN: f64 = 1.5;
/// Weight of the fastest rank.
const WEIGHT_MAX: f64 = 16.0;

/// The algorithm of every operation, by size and kind of reduction, and the weights of the ranks' slices.
///
/// All ranks of a group hold equal choices: rank 0 makes them, and sends them to the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Choices {
    cells: Vec<Algorithm>,
    weights: Vec<u32>,
}

/// Settings of a group on which prices depend, in addition to the figures.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    pub(crate) order: Order,
    pub(crate) piece_bytes: usize,
    /// Whether all ranks know on which machines the others are.
    pub(crate) has_machines: bool,
}

impl Rules {
    /// The ranks on their machines, as all ranks with equal figures see it.
    pub(crate) fn boards(self, figures: &Figures) -> Topology {
        match self.has_machines {
            true => figures.boards(),
            false => Topology::flat(figures.ranks()),
        }
    }
}

impl Choices {
    /// Chooses the algorithm with the lowest price for each operation and size.
    pub(crate) fn priced(figures: &Figures, rules: Rules) -> Self {
        let topology = topology(figures, rules);
        let mut cells = Vec::with_capacity(CELLS);
        for operation in 0..OPERATIONS {
            for reduced in 0..REDUCED_TYPES.len() {
                if reduced > 0 && !sample(operation, topology.ranks(), 1).reduces() {
                    // Operations that only copy have equal choices for all kinds.
                    cells.extend_from_within(cells.len() - SIZES..);
                    continue;
                }
                let costs = figures.costs(reduced);
                let cheapest = |exponent| cheapest(operation, reduced, exponent, &topology, rules, &costs);
                let coarse: Vec<Algorithm> = (EXPONENT_MIN..=EXPONENT_MAX).step_by(2).map(cheapest).collect();
                for place in 0..SIZES {
                    // Prices take time: those between two sizes with one choice are not looked at.
                    let (below, above) = (coarse[place / 2], coarse[place.div_ceil(2)]);
                    let exponent = EXPONENT_MIN + place as u32;
                    cells.push(if below == above { below } else { cheapest(exponent) });
                }
            }
        }
        Self { cells, weights: topology.weights().to_vec() }
    }

    /// The algorithm of an operation on `bytes` of the largest vector of any rank. `None` if none was chosen for it.
    pub(crate) fn algorithm(
        &self,
        collective: &Collective,
        reduced: usize,
        bytes: usize,
    ) -> Option<Algorithm> {
        let operation = number(collective)?;
        let reduced = if collective.reduces() { reduced } else { 0 };
        self.cells.get((operation * REDUCED_TYPES.len() + reduced) * SIZES + size(bytes)).copied()
    }

    /// Weights of the ranks' slices.
    pub(crate) fn weights(&self) -> &[u32] {
        &self.weights
    }

    /// Numbers of the choices of so many ranks.
    pub(crate) fn words_of(ranks: usize) -> usize {
        CELLS + ranks
    }

    pub(crate) fn to_words(&self) -> Vec<u32> {
        let cells = self.cells.iter().map(|algorithm| *algorithm as u32);
        cells.chain(self.weights.iter().copied()).collect()
    }

    /// The choices with these numbers, which may come from anywhere. `None` if an operation would have an algorithm that does not
    /// carry it out or that does not keep the order, or if the slices could not be made.
    pub(crate) fn from_words(words: &[u32], topology: &Topology, order: Order) -> Option<Self> {
        let (cells, weights) = words.split_at_checked(CELLS)?;
        let algorithm = |code: &u32| Algorithm::ALL.get(*code as usize).copied();
        let cells: Vec<Algorithm> = cells.iter().map(algorithm).collect::<Option<_>>()?;
        for (operation, chosen) in cells.chunks(CELLS / OPERATIONS).enumerate() {
            let collective = sample(operation, topology.ranks(), 1);
            let allowed: Vec<Algorithm> = algorithms(&collective, topology, order).collect();
            if !chosen.iter().all(|algorithm| allowed.contains(algorithm)) {
                return None;
            }
        }
        let has_weights = weights.len() == topology.ranks() && weights.iter().any(|weight| *weight > 0);
        has_weights.then(|| Self { cells, weights: weights.to_vec() })
    }
}

/// The algorithm with the lowest price of an operation on a largest vector of two to the power of `exponent` bytes.
fn cheapest(
    operation: usize,
    reduced: usize,
    exponent: u32,
    topology: &Topology,
    rules: Rules,
    costs: &Costs,
) -> Algorithm {
    let sizes = sizes(reduced, rules);
    let mut collective = sample(operation, topology.ranks(), (1usize << exponent) / sizes.element);
    if let Some(elements) = collective.vector_len() {
        collective = collective.on_piece(elements.min(PIECES_MAX * sizes.piece));
    }
    let prices = algorithms(&collective, topology, rules.order).map(|algorithm| {
        let price = price(&collective, algorithm, topology, sizes, costs);
        (price.map_or(f64::INFINITY, |price| price.seconds), algorithm)
    });
    let cheapest = prices.min_by(|one, other| one.0.total_cmp(&other.0));
    cheapest.expect("every operation has an algorithm").1
}

/// Algorithms that carry out an operation and keep the order.
pub(crate) fn algorithms<'a>(
    collective: &'a Collective,
    topology: &'a Topology,
    order: Order,
) -> impl Iterator<Item = Algorithm> + 'a {
    Algorithm::ALL.into_iter().filter(move |algorithm| {
        let keeps_order = order == Order::Fast || !collective.reduces() || algorithm.is_reproducible();
        keeps_order && schedule(collective, *algorithm, topology, 0).is_ok()
    })
}

/// Sizes of the values that are reduced.
pub(super) fn sizes(reduced: usize, rules: Rules) -> Sizes {
    let element = REDUCED_TYPES[reduced].size();
    // Of `f16` the accumulators are `f32`; the other measured types accumulate in themselves.
    let accumulator = if element == 2 { 4 } else { element };
    Sizes { element, accumulator, piece: (rules.piece_bytes / element).max(1) }
}

/// Place of an operation in the table.
fn number(collective: &Collective) -> Option<usize> {
    Some(match collective {
        Collective::Barrier => 0,
        Collective::Broadcast { .. } => 1,
        Collective::Reduce { .. } => 2,
        Collective::AllReduce { .. } => 3,
        Collective::AllGather { .. } => 4,
        Collective::ReduceScatter { .. } => 5,
        Collective::Scatter { .. } => 6,
        Collective::Gather { .. } => 7,
        Collective::AllToAll { .. } => 8,
        Collective::Send { .. } => return None,
    })
}

/// The operation at a place in the table, on a largest vector of so many elements.
fn sample(number: usize, ranks: usize, elements: usize) -> Collective {
    let counts = || vec![elements.div_ceil(ranks); ranks];
    match number {
        0 => Collective::Barrier,
        1 => Collective::Broadcast { root: 0, count: elements },
        2 => Collective::Reduce { root: 0, count: elements },
        3 => Collective::AllReduce { count: elements },
        4 => Collective::AllGather { counts: counts() },
        5 => Collective::ReduceScatter { counts: counts() },
        6 => Collective::Scatter { root: 0, counts: counts() },
        7 => Collective::Gather { root: 0, counts: counts() },
        _ => Collective::all_to_all(ranks, elements.div_ceil(ranks)),
    }
}

/// Place of the nearest size: a size belongs to the next one from 4/3 of this one on.
fn size(bytes: usize) -> usize {
    let bytes = bytes.clamp(1 << EXPONENT_MIN, 1 << EXPONENT_MAX);
    let exponent = (bytes + bytes / 2).ilog2().min(EXPONENT_MAX);
    (exponent - EXPONENT_MIN) as usize
}

/// The ranks on their machines, with slices that are weighted by the rates of their links if these differ clearly and it makes a long all-reduce faster.
fn topology(figures: &Figures, rules: Rules) -> Topology {
    let ranks = figures.ranks();
    let equal = rules.boards(figures);
    // That of its fastest link: every rank has a slow link to a slow rank.
    let rate = |rank: usize| {
        let others = (0..ranks).filter(move |other| *other != rank);
        others.map(|other| figures.bandwidth(rank, other)).fold(0.0, f64::max)
    };
    let rates: Vec<f64> = (0..ranks).map(rate).collect();
    let fastest = rates.iter().copied().fold(0.0, f64::max);
    let slowest = rates.iter().copied().fold(f64::INFINITY, f64::min);
    if ranks < 3 || fastest < slowest * RATES_RATIO_MIN {
        return equal;
    }
    let weight = |rate: &f64| ((rate / fastest * WEIGHT_MAX).round() as u32).max(1);
    let weighted = equal.clone().with_weights(rates.iter().map(weight).collect());
    let f32s = 1;
    let costs = figures.costs(f32s);
    let seconds = |topology: &Topology| {
        let collective = Collective::AllReduce { count: (1 << 20) / size_of::<f32>() };
        let price = price(&collective, Algorithm::TwoShot, topology, sizes(f32s, rules), &costs);
        price.map_or(f64::INFINITY, |price| price.seconds)
    };
    if seconds(&weighted) * GAIN_MIN < seconds(&equal) { weighted } else { equal }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::figures::MESSAGE_BYTES;
    use super::*;

    const RULES: Rules = Rules { order: Order::Reproducible, piece_bytes: 512 << 10, has_machines: true };

    /// Figures of links that all cost this much.
    fn figures(ranks: usize, latency: u64, nanos_per_kib: u64) -> Figures {
        let mut words = Vec::new();
        for _ in 0..ranks {
            words.extend([7, 3, 0]);
            words.extend([100; 4 * (1 + REDUCED_TYPES.len())]);
            for _ in 0..ranks {
                let time =
                    |start: u64| MESSAGE_BYTES.map(|bytes| start + bytes as u64 * nanos_per_kib / 1024);
                words.extend([time(latency), time(0), time(0), time(0)].concat());
            }
        }
        Figures::from_words(ranks, &words)
    }

    fn chosen(choices: &Choices, bytes: usize) -> Algorithm {
        choices.algorithm(&Collective::AllReduce { count: bytes / 4 }, 1, bytes).expect("a choice")
    }

    #[test]
    fn latency_and_bandwidth_decide() {
        // A long way and a fast link: one latency is best. A short way and a slow link: fewer bytes are best.
        let (far, slow) = (figures(4, 1_000_000, 1), figures(4, 1_000, 10_000));
        let (far, slow) = (Choices::priced(&far, RULES), Choices::priced(&slow, RULES));
        assert_eq!(chosen(&far, 8 << 10), Algorithm::Direct);
        assert_ne!(chosen(&slow, 64 << 10), Algorithm::Direct);
        assert_eq!(far.weights(), [1; 4]);
    }

    #[test]
    fn slices_are_weighted_only_if_a_rank_is_clearly_slower() {
        let mut words = figures(4, 1_000, 100).to_words();
        let row = words.len() / 4;
        let link = |from: usize, to: usize| from * row + row - (4 - to) * super::super::LinkFigures::WORDS;
        for other in 0..3 {
            for start in [link(3, other), link(other, 3)] {
                // All of its curves but the latencies: rank 3 needs its processor for every byte, and ten times as long.
                for (place, bytes) in MESSAGE_BYTES.into_iter().enumerate() {
                    for curve in 0..4 {
                        words[start + curve * MESSAGE_BYTES.len() + place] = 1_000 + bytes as u64;
                    }
                }
            }
        }
        let choices = Choices::priced(&Figures::from_words(4, &words), RULES);
        let weights = choices.weights();
        assert!(weights[3] < weights[0] / 4 && weights[..3] == [weights[0]; 3], "{weights:?}");
    }

    /// Sizes in bytes of the all-reduces that are carried out on two levels.
    fn on_two_levels(figures: &Figures, rules: Rules) -> Vec<usize> {
        let choices = Choices::priced(figures, rules);
        let sizes = (EXPONENT_MIN..=EXPONENT_MAX).map(|exponent| 1 << exponent);
        sizes.filter(|bytes| chosen(&choices, *bytes) == Algorithm::TwoLevel).collect()
    }

    #[test]
    fn ranks_of_two_machines_reduce_on_two_levels_where_that_is_cheaper() {
        let fast = Rules { order: Order::Fast, ..RULES };
        for ranks_of_each in 2..=4 {
            let figures = Figures::of_machines(2, ranks_of_each);
            let two_level = on_two_levels(&figures, fast);
            assert!(two_level.starts_with(&[8, 16, 32, 64, 128, 256, 512, 1024]), "{two_level:?}");
            let costs = figures.costs(1);
            for exponent in EXPONENT_MIN..=EXPONENT_MAX {
                let is_cheapest =
                    cheapest(3, 1, exponent, &figures.boards(), fast, &costs) == Algorithm::TwoLevel;
                // Between two sizes with one choice, prices are not looked at.
                assert!(
                    is_cheapest == two_level.contains(&(1 << exponent)) || exponent % 2 == 0,
                    "{exponent}"
                );
            }
            assert!(on_two_levels(&figures, RULES).is_empty(), "another order than that of the tree");
            let unknown = Rules { has_machines: false, ..fast };
            assert!(on_two_levels(&figures, unknown).is_empty(), "not all ranks know the machines");
        }
        for alone in [Figures::of_machines(1, 4), Figures::of_machines(4, 1)] {
            assert!(on_two_levels(&alone, fast).is_empty(), "no two levels");
            assert_eq!(fast.boards(&alone), Topology::flat(4));
        }
    }

    #[test]
    fn sizes_belong_to_the_nearest() {
        assert_eq!([0, 8, 10, 11, 16].map(size), [0, 0, 0, 1, 1]);
        assert_eq!(size(usize::MAX), SIZES - 1);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

        /// Figures from anywhere lead to choices that every rank can take over, and that keep the order.
        #[test]
        fn any_figures_lead_to_choices_that_exist(
            ranks in 1usize..5,
            is_fast in any::<bool>(),
            seed in prop::collection::vec(prop_oneof![Just(0), Just(u64::MAX), 0..100_000_u64, any::<u64>()], 64),
        ) {
            let order = if is_fast { Order::Fast } else { Order::Reproducible };
            let rules = Rules { order, ..RULES };
            let words: Vec<u64> = seed.iter().copied().cycle().take(Figures::words_of(ranks)).collect();
            let figures = Figures::from_words(ranks, &words);
            prop_assert_eq!(&Figures::from_words(ranks, &figures.to_words()), &figures);
            prop_assert_eq!(figures.to_string().parse::<Figures>().map(|read| read.to_string()), Ok(figures.to_string()));
            let choices = Choices::priced(&figures, rules);
            prop_assert_eq!(&Choices::priced(&figures, rules), &choices);
            let topology = Topology::flat(ranks);
            prop_assert_eq!(Choices::from_words(&choices.to_words(), &topology, order), Some(choices.clone()));
            for operation in 0..OPERATIONS {
                for (reduced, exponent) in (0..REDUCED_TYPES.len()).flat_map(|kind| (0..30).map(move |exponent| (kind, exponent))) {
                    let collective = sample(operation, ranks, 5);
                    let chosen = choices.algorithm(&collective, reduced, 1 << exponent).expect("a choice");
                    prop_assert!(order == Order::Fast || !collective.reduces() || chosen.is_reproducible());
                    prop_assert!(schedule(&collective, chosen, &topology, ranks - 1).is_ok());
                }
            }
        }

        #[test]
        fn choices_from_anywhere_are_checked(ranks in 1usize..5, place in 0..CELLS + 8, code in any::<u32>()) {
            let topology = Topology::flat(ranks);
            let choices = Choices::priced(&figures(ranks, 1000, 100), RULES);
            let mut words = choices.to_words();
            prop_assert_eq!(words.len(), Choices::words_of(ranks));
            if let Some(word) = words.get_mut(place) {
                *word = code;
            }
            if let Some(read) = Choices::from_words(&words, &topology, Order::Reproducible) {
                for operation in 0..OPERATIONS {
                    for exponent in 0..24 {
                        let collective = sample(operation, ranks, 5);
                        let chosen = read.algorithm(&collective, 1, 1 << exponent).expect("a choice");
                        prop_assert!(!collective.reduces() || chosen.is_reproducible());
                        prop_assert!(schedule(&collective, chosen, &topology, 0).is_ok());
                    }
                }
            }
            prop_assert!(Choices::from_words(&words[1..], &topology, Order::Reproducible).is_none() || ranks > 1);
        }
    }
}
