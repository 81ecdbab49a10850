//! Messages and notices that no rank would send: streams that were changed, and streams by a peer that knows the format.

use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;

use orinoco_core::Rng;
use zerocopy::IntoBytes;

use super::header::{HEADER_BYTES, checksum};
use super::{
    Engine, Failure, Health, Memory, Moved, NOTICE_BYTES, Notice, NumberedCall, OperationPlan, Position,
    RankSet, ShrinkNotice, ShrinkStage, ShrinkState, StreamReceiver, StreamSender, Uniform, Vote, WaitEnd,
};
use crate::call::{Call, Operation};
use crate::element::kernel;
use crate::mutations::{check, mutate, noise, seal_checksum, set_number};
use crate::{Algorithm, Collective, DataType, FailureCause, ReduceOp, Topology};

const RANKS: usize = 3;
/// The rank that receives, and the one whose stream is changed.
const VICTIM: usize = 1;
const LIAR: usize = 0;
const EPOCH: u32 = 3;
/// Elements of the vectors: several pieces.
const COUNT: usize = 40;
const PIECE: usize = 7;
/// Operations, one after the other.
const OPERATIONS: usize = 3;

/// Bytes from each rank to each other, by sender and receiver.
type Streams = Vec<Vec<Vec<u8>>>;

/// A rank that executes operations on bytes that are in memory.
struct Rank {
    engine: Engine,
    senders: Vec<StreamSender>,
    receivers: Vec<StreamReceiver>,
    plan: Arc<OperationPlan>,
    call: Call,
    scratch: Vec<u64>,
    partial: Vec<u64>,
    vector: Vec<i64>,
    /// Operations that have begun.
    begun: usize,
    /// Bytes that were read of each stream.
    read: [usize; RANKS],
}

impl Rank {
    fn new(rank: usize, algorithm: Algorithm, is_trusted: bool) -> Self {
        let topology = Topology::flat(RANKS);
        let collective = Collective::AllReduce { count: COUNT };
        let kernel = kernel::<i64>(ReduceOp::Sum);
        let plan = OperationPlan::new(&collective, algorithm, &topology, rank, kernel, PIECE).unwrap();
        let mut engine = Engine::new(rank, RANKS, EPOCH);
        (0..RANKS).filter(|_| is_trusted).for_each(|peer| engine.trust_link(peer));
        let words = |bytes: usize| vec![0u64; bytes.div_ceil(8)];
        Self {
            engine,
            senders: (0..RANKS).map(StreamSender::new).collect(),
            receivers: (0..RANKS).map(StreamReceiver::new).collect(),
            scratch: words(plan.scratch_bytes()),
            partial: words(plan.partial_bytes()),
            call: Call::new(Operation::AllReduce, Some(DataType::I64), Some(ReduceOp::Sum), 0, COUNT),
            plan: Arc::new(plan),
            vector: (0..COUNT).map(|i| (rank * 1000 + i) as i64).collect(),
            begun: 0,
            read: [0; RANKS],
        }
    }

    /// Carries on as far as the streams go. Returns whether anything moved; fails if a message is refused.
    fn carry(&mut self, streams: &mut Streams) -> Result<bool, ()> {
        let mut memory = Memory {
            input: None,
            output: self.vector.as_mut_bytes(),
            scratch: self.scratch.as_mut_bytes(),
            partial: self.partial.as_mut_bytes(),
        };
        let rank = self.engine.rank();
        let mut has_moved = false;
        if self.engine.is_done() && self.begun < OPERATIONS {
            self.engine.begin(self.call, Arc::clone(&self.plan), &mut memory);
            self.begun += 1;
            has_moved = true;
        }
        for peer in (0..RANKS).filter(|peer| *peer != rank) {
            let out = &mut streams[rank][peer];
            let write = |slices: &[IoSlice<'_>]| {
                slices.iter().for_each(|slice| out.extend_from_slice(slice));
                Moved::Bytes(slices.iter().map(|slice| slice.len()).sum())
            };
            has_moved |= self.senders[peer].send(&mut self.engine, &mut memory, write).map_err(drop)?;
            let (from, at) = (&streams[peer][rank], &mut self.read[peer]);
            let read = |into: &mut [u8]| {
                let len = into.len().min(from.len() - *at);
                into[..len].copy_from_slice(&from[*at..*at + len]);
                *at += len;
                if len == 0 { Moved::Later } else { Moved::Bytes(len) }
            };
            has_moved |= self.receivers[peer].receive(&mut self.engine, &mut memory, read).map_err(drop)?;
        }
        Ok(has_moved)
    }

    fn is_done(&self) -> bool {
        self.begun == OPERATIONS && self.engine.is_done()
    }
}

/// Runs all ranks. Returns their streams, and the victim's result.
fn run(algorithm: Algorithm, is_trusted: bool) -> (Streams, Vec<i64>) {
    let mut streams = vec![vec![Vec::new(); RANKS]; RANKS];
    let mut ranks: Vec<Rank> = (0..RANKS).map(|rank| Rank::new(rank, algorithm, is_trusted)).collect();
    while !ranks.iter().all(Rank::is_done) {
        let moved = ranks.iter_mut().map(|rank| rank.carry(&mut streams).expect("all is right"));
        assert!(moved.fold(false, |any, moved| any | moved), "no rank goes on");
    }
    (streams, ranks.swap_remove(VICTIM).vector)
}

/// The messages of a stream: where each begins.
fn starts(stream: &[u8]) -> Vec<usize> {
    let (mut starts, mut at) = (Vec::new(), 0);
    while at < stream.len() {
        starts.push(at);
        let len = u64::from_le_bytes(stream[at + 32..at + 40].try_into().expect("eight bytes"));
        at += HEADER_BYTES + len as usize;
    }
    starts
}

/// Changes messages as a peer can that knows the format: fields have numbers at their bounds, payloads are longer, messages are
/// missing, repeated or exchanged; checksums are right.
fn lie(rng: &mut Rng, stream: &mut Vec<u8>) {
    for _ in 0..rng.usize(1..3) {
        let mut messages: Vec<Vec<u8>> = Vec::new();
        for start in starts(stream).into_iter().rev() {
            messages.push(stream.split_off(start));
        }
        messages.reverse();
        let at = rng.usize(..messages.len());
        match rng.u32(..6) {
            0 => drop(messages.remove(at)),
            1 => messages.insert(at, messages[at].clone()),
            2 => {
                let other = rng.usize(..messages.len());
                messages.swap(at, other);
            }
            3 => {
                let more = noise(rng, 64);
                messages[at].extend(more);
                let len = (messages[at].len() - HEADER_BYTES) as u64;
                messages[at][32..40].copy_from_slice(&len.to_le_bytes());
                let checksum = checksum([&messages[at][HEADER_BYTES..]].into_iter());
                messages[at][20..24].copy_from_slice(&checksum.to_le_bytes());
            }
            _ => {
                let field = [0, 1, 2, 4, 8, 12, 16, 20, 24, 32][rng.usize(..10)];
                set_number(rng, &mut messages[at][..HEADER_BYTES - 4], field);
            }
        }
        messages.iter_mut().for_each(|message| seal_checksum(&mut message[..HEADER_BYTES]));
        *stream = messages.concat();
        // A length that is a lie: the messages cannot be told apart any more.
        let total: u128 = messages
            .iter()
            .map(|message| {
                u128::from(u64::from_le_bytes(message[32..40].try_into().unwrap())) + HEADER_BYTES as u128
            })
            .sum();
        if total != stream.len() as u128 || messages.is_empty() {
            return;
        }
    }
}

const ALGORITHMS: [Algorithm; 4] =
    [Algorithm::Direct, Algorithm::TwoShot, Algorithm::RecursiveDoubling, Algorithm::Ring];

/// The victim ends with the right result, or refuses a message, or waits for more; without panic, and without memory for more than
/// the schedule's messages.
fn receive(streams: &mut Streams, algorithm: Algorithm, is_trusted: bool) -> Option<Vec<i64>> {
    let mut victim = Rank::new(VICTIM, algorithm, is_trusted);
    loop {
        match victim.carry(streams) {
            Err(()) => return None,
            Ok(false) => return victim.is_done().then_some(victim.vector),
            Ok(true) => {}
        }
    }
}

#[test]
fn a_changed_stream_of_messages_gives_no_wrong_result() {
    let valid = ALGORITHMS.map(|algorithm| run(algorithm, false));
    check("messages", |rng| {
        let number = rng.usize(..ALGORITHMS.len());
        let (streams, expected) = &valid[number];
        let mut streams = streams.clone();
        let other = &valid[rng.usize(..ALGORITHMS.len())].0[LIAR][VICTIM];
        let stream = &mut streams[LIAR][VICTIM];
        match rng.u32(..8) {
            0 => {
                let len = rng.usize(..3000);
                *stream = noise(rng, len);
            }
            _ => mutate(rng, stream, other),
        }
        let result = receive(&mut streams, ALGORITHMS[number], false);
        assert!(result.is_none_or(|result| result == *expected), "a wrong result");
    });
}

#[test]
fn a_peer_that_knows_the_format_breaks_nothing_but_its_group() {
    let valid = [false, true].map(|is_trusted| ALGORITHMS.map(|algorithm| run(algorithm, is_trusted)));
    check("messages of a liar", |rng| {
        let (is_trusted, number) = (rng.bool(), rng.usize(..ALGORITHMS.len()));
        let mut streams = valid[usize::from(is_trusted)][number].0.clone();
        lie(rng, &mut streams[LIAR][VICTIM]);
        // It may have changed elements, too: whoever takes part may.
        let _ = receive(&mut streams, ALGORITHMS[number], is_trusted);
    });
}

/// Notices as they come from a connection, and the time that passes in between.
#[test]
fn any_notices_leave_a_group_that_goes_on_or_names_a_rank() {
    let failure = Failure { rank: 2, cause: FailureCause::Left, call: Call::from_code(5) };
    let shrink = |stage| {
        Notice::Shrink(ShrinkNotice { stage, excluded: RankSet::from_bits(4), port: 1, number: 1, group: 0 })
    };
    let valid = [
        Notice::Alive {
            awaited: Some(2),
            call: Some(NumberedCall { operation: 0, call: Call::from_code(5) }),
        },
        Notice::Alive { awaited: None, call: None },
        Notice::Waiting(WaitEnd { peer: VICTIM, call: Call::from_code(5), number: 1, messages: 0 }),
        Notice::Blocking(WaitEnd { peer: VICTIM, call: Call::from_code(5), number: 1, messages: 0 }),
        Notice::Failed(failure),
        Notice::Vote(Vote { position: Position(1), excluded: RankSet::from_bits(4), is_final: false }),
        Notice::Vote(Vote { position: Position(3), excluded: RankSet::default(), is_final: true }),
        shrink(ShrinkStage::Proposed),
        shrink(ShrinkStage::Connected),
        shrink(ShrinkStage::Formed),
        shrink(ShrinkStage::Withdrawn),
        Notice::Leaving,
    ];
    let valid = valid.map(|notice| notice.encode(EPOCH).repeat(3)).concat();
    check("notices", |rng| {
        let mut bytes = valid.clone();
        match rng.u32(..4) {
            0 => {
                let len = rng.usize(..1000);
                bytes = noise(rng, len);
            }
            1 => mutate(rng, &mut bytes, &valid),
            _ => {
                for notice in bytes.chunks_exact_mut(NOTICE_BYTES) {
                    let field = [0, 4, 8, 12, 16, 24][rng.usize(..6)];
                    if field != 4 || rng.u32(..8) == 0 {
                        set_number(rng, &mut notice[..NOTICE_BYTES - 4], field);
                    }
                    seal_checksum(notice);
                }
            }
        }
        let silence = Duration::from_millis(500);
        let uniform = rng.bool().then(Uniform::default);
        let mut health = Health::new(VICTIM, RANKS, silence, Duration::ZERO).with_uniform(uniform);
        let (mut now, mut votes) = (Duration::ZERO, 0);
        for notice in bytes.as_chunks::<NOTICE_BYTES>().0 {
            match Notice::decode(notice, EPOCH) {
                Some(notice) => health.received(LIAR, notice, now),
                None => health.refused(LIAR),
            }
            now += Duration::from_millis(rng.u64(..60));
            health.handle_timeout(now);
            if rng.u32(..8) == 0 {
                health.late(rng.usize(..RANKS), silence);
            }
            if rng.u32(..16) == 0 {
                health.closed(LIAR);
            }
            match rng.u32(..16) {
                0 => drop(health.begin_shrink(1, rng.u32(..))),
                1 => drop(health.withdraw_shrink()),
                _ => {}
            }
            let own = WaitEnd { peer: LIAR, call: Call::from_code(6), number: 1, messages: rng.u32(..2) };
            health.waits_for_messages(std::iter::once(own), |peer, theirs| {
                (theirs.messages < 2).then_some(WaitEnd { peer, messages: theirs.messages, ..own })
            });
            let is_held_up = rng.bool();
            assert!(health.circle(|_, _| is_held_up).is_none_or(|(rank, _)| rank < RANKS));
            if let ShrinkState::Ready(survivors) = health.shrink_state() {
                let ranks: Vec<usize> = survivors.members.iter().map(|member| member.rank).collect();
                assert!(ranks.contains(&VICTIM) && ranks.iter().all(|rank| *rank < RANKS), "{ranks:?}");
                if rng.bool() {
                    assert!(health.connect_shrunk(&survivors));
                }
            }
            assert!(health.failure().is_none_or(|failure| failure.rank < RANKS));
            let notices: Vec<Notice> = std::iter::from_fn(|| health.next_notice()).collect();
            let count = |is_one: fn(&&Notice) -> bool| notices.iter().filter(is_one).count();
            let of_votes = count(|notice| matches!(notice, Notice::Vote(_)));
            let of_shrink = count(|notice| matches!(notice, Notice::Shrink(_)));
            let of_waits = count(|notice| matches!(notice, Notice::Waiting(_) | Notice::Blocking(_)));
            // Its own wait, and one of the liar for each number of messages with which this rank blocks it.
            assert!(of_waits <= 3, "{of_waits} ends of waits");
            let others = notices.len() - of_votes - of_shrink - of_waits;
            assert!(others <= 2, "{others} notices for one");
            // Each rank may be excluded, and then this rank's own calls.
            assert!(of_shrink <= RANKS + 2, "{of_shrink} notices of a smaller group for one");
            votes += of_votes;
            // The position changes once at most, each rank is excluded once, and then it decides.
            assert!(votes <= if uniform.is_some() { RANKS + 2 } else { 0 }, "{votes} votes");
        }
    });
}
