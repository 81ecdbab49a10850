//! Prints which algorithm a cost model expects to be fastest, from 2 ranks to 10,000: a look beyond the hardware at hand.
//!
//!     cargo run --release -p orinoco-collective --example prices [LATENCY_US] [GBIT_PER_S]

use std::collections::BTreeSet;
use std::fmt;

use orinoco_collective::cost::{Costs, Curve, LinkCosts, Links, Sizes, Unpriced, price};
use orinoco_collective::{Algorithm, Collective, Topology};

const RANKS: [usize; 9] = [2, 3, 4, 8, 16, 64, 256, 1_000, 10_000];
const BYTES: [usize; 6] = [8, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20];
/// Elements of a piece: 256 KiB of `f32`.
const PIECE: usize = 64 << 10;

#[expect(clippy::print_stdout, reason = "an example prints its result")]
fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<f64>().expect("a number"));
    let latency = arguments.next().unwrap_or(20.0) * 1e-6;
    let gbits = arguments.next().unwrap_or(10.0);
    let link = LinkCosts::linear(latency, gbits * 1e9 / 8.0);
    let costs = Costs {
        links: Links::OfBoards { between: link.clone(), within: link },
        // A core that reads two vectors and writes one at 10 GB/s each.
        reduce: Curve::line(0.0, 0.1e-9),
        copy: Curve::line(0.0, 0.1e-9),
        cores: None,
    };
    println!(
        "fastest all_reduce of f32 at {:.0} us and {gbits} Gbit/s, without limits of switches",
        latency * 1e6
    );
    print!("{:>10}", "ranks");
    for bytes in BYTES {
        print!(" {:>24}", format!("{bytes} B"));
    }
    println!();
    let mut unpriced: Vec<(usize, BTreeSet<Algorithm>)> = Vec::new();
    for ranks in RANKS {
        print!("{ranks:>10}");
        let mut of_ranks = BTreeSet::new();
        for bytes in BYTES {
            let cell = Cell::of(ranks, bytes, &costs);
            print!(" {:>24}", cell.to_string());
            of_ranks.extend(cell.unpriced);
        }
        println!();
        unpriced.push((ranks, of_ranks));
    }
    unpriced.retain(|(_, algorithms)| !algorithms.is_empty());
    if !unpriced.is_empty() {
        println!("\n* the fastest of those with a price; too many messages to price for some size:");
    }
    for (ranks, algorithms) in unpriced {
        let names: Vec<&str> = algorithms.into_iter().map(Algorithm::name).collect();
        println!("{ranks:>10} ranks: {}", names.join(", "));
    }
}

/// The fastest algorithm of a number of ranks and a size, and those without a price.
struct Cell {
    fastest: Option<(f64, Algorithm)>,
    unpriced: Vec<Algorithm>,
}

impl Cell {
    fn of(ranks: usize, bytes: usize, costs: &Costs) -> Self {
        let collective = Collective::AllReduce { count: bytes / 4 };
        let sizes = Sizes { element: 4, accumulator: 4, piece: PIECE };
        let topology = Topology::flat(ranks);
        let mut cell = Self { fastest: None, unpriced: Vec::new() };
        for algorithm in Algorithm::ALL {
            match price(&collective, algorithm, &topology, sizes, costs) {
                Ok(price) if cell.fastest.is_none_or(|(seconds, _)| price.seconds < seconds) => {
                    cell.fastest = Some((price.seconds, algorithm));
                }
                Ok(_) | Err(Unpriced::Unsupported(_)) => {}
                Err(Unpriced::TooLarge { .. }) => cell.unpriced.push(algorithm),
            }
        }
        cell
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.fastest {
            Some((seconds, algorithm)) => {
                let mark = if self.unpriced.is_empty() { "" } else { "*" };
                write!(f, "{algorithm} {:.0} us{mark}", seconds * 1e6)
            }
            None => f.write_str("too large to price"),
        }
    }
}
