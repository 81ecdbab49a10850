//! One suite for the communicators of every transport, and what is special about each.

#[path = "../addresses/mod.rs"]
mod addresses;
mod int8;
mod keys;
mod meeting;
mod pcie;
mod proxy;
mod rdma;
mod recorder;
mod shared_ports;
mod shm;
mod shrink;
mod split;
mod suite;
mod tcp;
mod tuning;
mod uniform;

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use orinoco_collective::{
    Communicator, JoinError, MessageSettings, PcieGroup, PcieSettings, Rendezvous, Security, Settings,
    ShmGroup, TcpGroup, TcpSettings,
};

/// Bounds of waits.
#[derive(Clone, Copy)]
pub(crate) struct Times {
    pub(crate) deadline: Duration,
    pub(crate) silence: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self { deadline: Duration::from_secs(60), silence: Duration::from_millis(500) }
    }
}

impl Times {
    /// Times of tests that are not about failures: dozens of threads share the cores, and none may count as dead for that.
    pub(crate) fn of_a_busy_machine() -> Self {
        Self { silence: Duration::from_secs(10), ..Self::default() }
    }
}

/// One rank's communicator, over any transport.
pub(crate) trait Group: Communicator + Send + Sized + 'static {}

impl<G: Communicator + Send + 'static> Group for G {}

/// Kind of groups that ranks join through a file. It is a value and not a type, so that kinds whose groups have the same type share
/// the code of their tests: otherwise the suite takes twice as long to compile.
pub(crate) struct Kind<G> {
    /// Module of its tests.
    pub(crate) module: &'static str,
    join: fn(&Path, usize, usize, Times) -> Result<G, JoinError>,
}

impl<G> Kind<G> {
    pub(crate) fn join(&self, path: &Path, rank: usize, ranks: usize, times: Times) -> Result<G, JoinError> {
        (self.join)(path, rank, ranks, times)
    }

    /// Whether nothing is missing on this machine. Says that a test is skipped otherwise.
    #[expect(clippy::print_stdout, reason = "a skipped test says so")]
    fn can_run(&self, test: &str, missing: Option<String>) -> bool {
        if let Some(missing) = &missing {
            println!("skipped: {}::{test}: {missing}", self.module);
        }
        missing.is_none()
    }
}

/// A file name that no other group has.
pub(crate) fn name() -> PathBuf {
    static GROUPS: AtomicU32 = AtomicU32::new(0);
    let number = GROUPS.fetch_add(1, Ordering::Relaxed);
    PathBuf::from(format!("/dev/shm/orinoco-test-{}-{number}", std::process::id()))
}

/// Runs a function as each rank, on threads. Returns the results in rank order.
pub(crate) fn run<G: Group, R: Send>(
    kind: &Kind<G>,
    ranks: usize,
    times: Times,
    body: impl Fn(G) -> R + Sync,
) -> Vec<R> {
    let path = name();
    let results: Vec<Mutex<Option<R>>> = (0..ranks).map(|_| Mutex::new(None)).collect();
    as_each_rank(ranks, &|rank| {
        let group = kind.join(&path, rank, ranks, times).expect("all ranks join");
        *results[rank].lock().expect("no rank panics") = Some(body(group));
    });
    assert!(!path.exists(), "the file is removed when all have joined");
    let result =
        |result: Mutex<Option<R>>| result.into_inner().expect("no rank panics").expect("all ranks ended");
    results.into_iter().map(result).collect()
}

fn as_each_rank(ranks: usize, body: &(dyn Fn(usize) + Sync)) {
    thread::scope(|scope| {
        let ranks: Vec<_> = (0..ranks).map(|rank| scope.spawn(move || body(rank))).collect();
        ranks.into_iter().for_each(|rank| rank.join().expect("no rank panics"));
    });
}

/// Tests of the suite for a kind of communicator.
macro_rules! suite {
    ($module:ident, $group:ty, |$path:ident, $rank:ident, $ranks:ident, $times:ident| $join:expr, $missing:expr, [$($test:ident)*]) => {
        mod $module {
            use super::*;

            pub(crate) const KIND: Kind<$group> =
                Kind { module: stringify!($module), join: |$path, $rank, $ranks, $times| $join };

            $(
                #[test]
                fn $test() {
                    if KIND.can_run(stringify!($test), $missing) {
                        crate::suite::$test(&KIND);
                    }
                }
            )*
        }
    };
}

macro_rules! suites {
    ($($module:ident, $group:ty, |$path:ident, $rank:ident, $ranks:ident, $times:ident| $join:expr $(, unless $missing:expr)?;)*) => {$(
        suite!($module, $group, |$path, $rank, $ranks, $times| $join, None$(.or($missing))?, [
            all_operations_are_exact_for_1_to_8_ranks
            operations_with_uneven_counts_are_exact
            several_vectors_at_once_are_reduced_as_one_by_one
            queued_operations_run_in_order_and_return_their_vectors
            messages_come_whole_and_in_order
            a_message_of_another_length_is_an_error_that_names_both
            a_sender_that_leaves_is_named_and_its_messages_are_not_lost
            every_type_and_reduction_works
            many_operations_in_a_row_stay_exact
            different_calls_are_an_error_that_names_both
            a_call_of_no_elements_is_compared_too
            ranks_that_wait_for_each_other_name_both_calls
            ranks_that_wait_for_messages_of_each_other_name_both_calls
            ranks_that_wait_in_a_circle_name_two_calls
            a_rank_that_waits_for_one_that_waits_for_all_is_told
            a_rank_that_leaves_is_named
            a_rank_that_is_alive_and_late_is_waited_for_until_the_deadline
            ranks_that_do_not_join_are_named
            the_longest_times_are_no_bound
            a_silence_that_blames_healthy_ranks_is_refused
            a_file_that_is_none_of_a_group_is_refused_and_kept
            first_rank
            a_group_is_joined_after_a_rank_0_that_was_killed
            second_rank
            a_rank_whose_process_is_killed_or_stopped_is_named
        ]);
    )*};
}

suites! {
    on_shm, ShmGroup, |path, rank, ranks, times| {
        let Times { deadline, silence } = times;
        ShmGroup::join(path, rank, ranks, Settings { deadline, silence, ..Settings::default() })
    };
    on_shm_without_single_copy, ShmGroup, |path, rank, ranks, times| {
        let Times { deadline, silence } = times;
        ShmGroup::join(path, rank, ranks, Settings { deadline, silence, single_copy: false })
    };
    on_tcp, TcpGroup, |path, rank, ranks, times| {
        let Times { deadline, silence } = times;
        let messages = MessageSettings { deadline, silence, ..MessageSettings::default() };
        let settings = TcpSettings { security: Security::FileKey, messages };
        TcpGroup::join(&Rendezvous::File(path.to_owned()), rank, ranks, settings)
    };
    on_tcp_without_encryption, TcpGroup, |path, rank, ranks, times| {
        let Times { deadline, silence } = times;
        let messages = MessageSettings { deadline, silence, ..MessageSettings::default() };
        let settings = TcpSettings { security: Security::Plaintext, messages };
        TcpGroup::join(&Rendezvous::File(path.to_owned()), rank, ranks, settings)
    };
    on_tcp_with_authentication_only, TcpGroup, |path, rank, ranks, times| {
        let Times { deadline, silence } = times;
        let usual = MessageSettings::default();
        let messages = MessageSettings { deadline, silence, tcp_encryption: false, ..usual };
        let settings = TcpSettings { security: Security::FileKey, messages };
        TcpGroup::join(&Rendezvous::File(path.to_owned()), rank, ranks, settings)
    };
    on_three_tcp_connections_without_busy_poll, TcpGroup, |path, rank, ranks, times| {
        let Times { deadline, silence } = times;
        let (busy_poll, tcp_connections) = (Duration::ZERO, 3);
        let usual = MessageSettings::default();
        let messages = MessageSettings { deadline, silence, busy_poll, tcp_connections, ..usual };
        let settings = TcpSettings { security: Security::FileKey, messages };
        TcpGroup::join(&Rendezvous::File(path.to_owned()), rank, ranks, settings)
    };
    on_pcie, PcieGroup, |path, rank, ranks, times| {
        let Times { deadline, silence } = times;
        let messages = MessageSettings { deadline, silence, ..MessageSettings::default() };
        PcieGroup::join(path, rank, ranks, PcieSettings { security: crate::pcie::suite_key(), messages })
    };
    on_pcie_without_busy_poll, PcieGroup, |path, rank, ranks, times| {
        let Times { deadline, silence } = times;
        let busy_poll = Duration::ZERO;
        let messages = MessageSettings { deadline, silence, busy_poll, ..MessageSettings::default() };
        PcieGroup::join(path, rank, ranks, PcieSettings { security: Security::Plaintext, messages })
    };
    on_rdma, orinoco_collective::RdmaGroup, |path, rank, ranks, times| {
        let Times { deadline, silence } = times;
        let messages = MessageSettings { deadline, silence, ..MessageSettings::default() };
        let usual = orinoco_collective::RdmaSettings::new(Security::FileKey);
        let settings = orinoco_collective::RdmaSettings { messages, ..usual };
        orinoco_collective::RdmaGroup::join(&Rendezvous::File(path.to_owned()), rank, ranks, settings)
    }, unless crate::rdma::missing();
}

// Without the tests of a rendezvous file, which it does not have.
suite!(
    on_shared_ports,
    TcpGroup,
    |path, rank, ranks, times| {
        let Times { deadline, silence } = times;
        let messages = MessageSettings { deadline, silence, ..MessageSettings::default() };
        let settings = TcpSettings { security: crate::pcie::suite_key(), messages };
        let ports = crate::shared_ports::of_suite(path, ranks);
        TcpGroup::join(&Rendezvous::SharedPorts(ports), rank, ranks, settings)
    },
    None,
    [
        all_operations_are_exact_for_1_to_8_ranks
        operations_with_uneven_counts_are_exact
        several_vectors_at_once_are_reduced_as_one_by_one
        queued_operations_run_in_order_and_return_their_vectors
        messages_come_whole_and_in_order
        a_message_of_another_length_is_an_error_that_names_both
        a_sender_that_leaves_is_named_and_its_messages_are_not_lost
        many_operations_in_a_row_stay_exact
        different_calls_are_an_error_that_names_both
        ranks_that_wait_for_messages_of_each_other_name_both_calls
        ranks_that_wait_in_a_circle_name_two_calls
        a_rank_that_waits_for_one_that_waits_for_all_is_told
        a_rank_that_leaves_is_named
        a_rank_that_is_alive_and_late_is_waited_for_until_the_deadline
        ranks_that_do_not_join_are_named
        the_longest_times_are_no_bound
        a_silence_that_blames_healthy_ranks_is_refused
        second_rank
        a_rank_whose_process_is_killed_or_stopped_is_named
    ]
);

/// Tests of the suite for uniform groups: all but those in which a rank of two ends, after which the other is no majority.
macro_rules! uniform_suites {
    ($($module:ident, $group:ty, |$path:ident, $rank:ident, $ranks:ident, $times:ident| $join:expr;)*) => {$(
        suite!($module, $group, |$path, $rank, $ranks, $times| $join, None, [
            all_operations_are_exact_for_1_to_8_ranks
            operations_with_uneven_counts_are_exact
            several_vectors_at_once_are_reduced_as_one_by_one
            queued_operations_run_in_order_and_return_their_vectors
            messages_come_whole_and_in_order
            many_operations_in_a_row_stay_exact
            different_calls_are_an_error_that_names_both
            a_rank_that_leaves_is_named
            a_rank_that_is_alive_and_late_is_waited_for_until_the_deadline
        ]);
    )*};
}

uniform_suites! {
    on_uniform_tcp, TcpGroup, |path, rank, ranks, times| {
        let settings = TcpSettings { security: Security::FileKey, messages: crate::uniform::messages(times) };
        TcpGroup::join(&Rendezvous::File(path.to_owned()), rank, ranks, settings)
    };
    on_uniform_pcie, PcieGroup, |path, rank, ranks, times| {
        let messages = crate::uniform::messages(times);
        PcieGroup::join(path, rank, ranks, PcieSettings { security: Security::Plaintext, messages })
    };
}
