//! Prints which algorithm a cost model expects to be fastest, from 2 ranks to 10,000: a look beyond the hardware at hand.
//!
//!     cargo run --release -p orinoco-collective --example prices [LATENCY_US] [GBIT_PER_S]

use orinoco_collective::cost::{Costs, Curve, LinkCosts, Links, Sizes, price};
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
    for ranks in RANKS {
        print!("{ranks:>10}");
        for bytes in BYTES {
            print!(" {:>24}", fastest(ranks, bytes, &costs));
        }
        println!();
    }
}

fn fastest(ranks: usize, bytes: usize, costs: &Costs) -> String {
    let collective = Collective::AllReduce { count: bytes / 4 };
    let sizes = Sizes { element: 4, accumulator: 4, piece: PIECE };
    let topology = Topology::flat(ranks);
    let prices = Algorithm::ALL.into_iter().filter_map(|algorithm| {
        price(&collective, algorithm, &topology, sizes, costs).ok().map(|price| (price.seconds, algorithm))
    });
    match prices.min_by(|one, other| one.0.total_cmp(&other.0)) {
        Some((seconds, algorithm)) => format!("{algorithm} {:.0} us", seconds * 1e6),
        None => "too large to price".to_owned(),
    }
}
