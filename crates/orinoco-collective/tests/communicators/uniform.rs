//! Uniform groups: what the ranks return after a failure. `message/simulated/uniform.rs` has all kinds of failures.

use std::thread;
use std::time::Duration;

use orinoco_collective::{
    CollectiveError, MessageSettings, ReduceOp, Rendezvous, Security, TcpGroup, TcpSettings, Uniform,
};
use orinoco_core::Rng;

use crate::tcp::addresses;
use crate::{Group, Kind, Times, run};

/// Sums after which a rank leaves, at most.
const SUMS_MAX: usize = 40;

pub(crate) fn messages(times: Times) -> MessageSettings {
    let Times { deadline, silence } = times;
    MessageSettings { deadline, silence, uniform: Some(Uniform::default()), ..MessageSettings::default() }
}

/// One rank makes another call than the others, at a random place. The others return equally many results, and then only errors.
fn all_fail_at_the_same_sum<G: Group>(kind: &Kind<G>) {
    for seed in 0..8 {
        let mut rng = Rng::with_seed(seed);
        let (odd, last) = (rng.usize(..4), rng.usize(..SUMS_MAX));
        let returned = run(kind, 4, Times::default(), |mut group| {
            for sum in 0.. {
                let mut vector = vec![sum as u64; 5];
                let result = match group.rank() == odd && sum == last {
                    true => group.barrier(),
                    false => group.all_reduce(ReduceOp::Sum, &mut vector),
                };
                if let Err(error) = result {
                    assert!(!matches!(error, CollectiveError::Isolated { .. }), "seed {seed}: {error}");
                    assert!(group.barrier().is_err(), "once failed, always failed");
                    return sum;
                }
                assert_eq!(vector, [4 * sum as u64; 5]);
            }
            unreachable!("one sum fails")
        });
        assert_eq!(returned, [last; 4], "seed {seed}");
    }
}

#[test]
fn all_fail_at_the_same_sum_over_tcp() {
    all_fail_at_the_same_sum(&crate::on_uniform_tcp::KIND);
}

#[test]
fn all_fail_at_the_same_sum_over_pcie() {
    all_fail_at_the_same_sum(&crate::on_uniform_pcie::KIND);
}

#[test]
fn ranks_that_differ_in_it_are_refused() {
    let rendezvous = Rendezvous::Address(addresses(1)[0]);
    let times = Times { deadline: Duration::from_millis(500), ..Times::default() };
    let settings = [None, Some(Uniform::default()), Some(Uniform { witness: Some(0) })];
    let errors = thread::scope(|scope| {
        let join = |rank: usize| {
            let messages = MessageSettings { uniform: settings[rank], ..messages(times) };
            let settings = TcpSettings { security: Security::Plaintext, messages };
            TcpGroup::join(&rendezvous, rank, 3, settings).err().expect("a refusal").to_string()
        };
        let threads = [0, 1, 2].map(|rank| scope.spawn(move || join(rank)));
        threads.map(|thread| thread.join().unwrap())
    });
    for error in &errors[1..] {
        assert!(error.starts_with("rank 0 refuses this rank: its `MessageSettings` differ"), "{error}");
    }
}
