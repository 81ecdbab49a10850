//! Puts a schedule together.

use super::{Buffer, Local, Region, Round, Schedule, Transfer};

/// Schedule under construction. Messages and steps go into the last round; [`Builder::round`] begins the next.
#[derive(Default)]
pub(super) struct Builder {
    schedule: Schedule,
}

impl Builder {
    /// Begins a round.
    pub(super) fn round(&mut self) {
        self.schedule.rounds.push(Round::default());
    }

    /// Allocates memory for elements that arrive from a region of this buffer on another rank: partial reductions arrive as
    /// partial reductions.
    pub(super) fn like(&mut self, sent_from: Buffer, len: usize) -> Region {
        if sent_from.is_partial() { self.partial(len) } else { self.scratch(len) }
    }

    pub(super) fn scratch(&mut self, len: usize) -> Region {
        let start = self.schedule.scratch_len;
        self.schedule.scratch_len += len;
        Region { buffer: Buffer::Scratch, start, len }
    }

    pub(super) fn partial(&mut self, len: usize) -> Region {
        let start = self.schedule.partial_len;
        self.schedule.partial_len += len;
        Region { buffer: Buffer::Partial, start, len }
    }

    /// Sends a region, unless it is empty: then its receiver does not wait for it either.
    pub(super) fn send(&mut self, peer: usize, region: Region) {
        self.send_all(peer, vec![region]);
    }

    /// Sends several regions in one message.
    pub(super) fn send_all(&mut self, peer: usize, regions: Vec<Region>) {
        let transfer = Transfer { peer, regions: merged(regions) };
        if !transfer.is_empty() {
            self.last().sends.push(transfer);
        }
    }

    /// Sends a region, also if it is empty.
    pub(super) fn send_always(&mut self, peer: usize, region: Region) {
        self.last().sends.push(Transfer { peer, regions: merged(vec![region]) });
    }

    pub(super) fn receive_always(&mut self, peer: usize, region: Region) {
        self.last().receives.push(Transfer { peer, regions: merged(vec![region]) });
    }

    pub(super) fn receive(&mut self, peer: usize, region: Region) {
        self.receive_all(peer, vec![region]);
    }

    pub(super) fn receive_all(&mut self, peer: usize, regions: Vec<Region>) {
        let transfer = Transfer { peer, regions: merged(regions) };
        if !transfer.is_empty() {
            self.last().receives.push(transfer);
        }
    }

    /// Exchanges messages without elements with two ranks, which may be the same.
    pub(super) fn signal(&mut self, to: usize, from: usize) {
        self.last().sends.push(Transfer { peer: to, regions: Vec::new() });
        self.last().receives.push(Transfer { peer: from, regions: Vec::new() });
    }

    pub(super) fn copy(&mut self, from: Region, into: Region) {
        assert_eq!(from.len, into.len, "a copy keeps its length");
        if from.len > 0 && from != into {
            self.last().locals.push(Local::Copy { from, into });
        }
    }

    pub(super) fn reduce(&mut self, into: Region, operands: Vec<Region>) {
        assert!(
            operands.iter().all(|operand| operand.len == into.len),
            "operands are as long as their result"
        );
        if into.len > 0 {
            self.last().locals.push(Local::Reduce { into, operands });
        }
    }

    /// Returns the schedule without rounds in which nothing happens.
    pub(super) fn finish(mut self) -> Schedule {
        self.schedule.rounds.retain(|round| *round != Round::default());
        self.schedule
    }

    fn last(&mut self) -> &mut Round {
        if self.schedule.rounds.is_empty() {
            self.round();
        }
        self.schedule.rounds.last_mut().expect("a round was begun")
    }
}

/// Merges regions that follow one another.
fn merged(regions: Vec<Region>) -> Vec<Region> {
    let mut merged: Vec<Region> = Vec::with_capacity(regions.len());
    for region in regions.into_iter().filter(|region| region.len > 0) {
        match merged.last_mut() {
            Some(last) if last.buffer == region.buffer && last.start + last.len == region.start => {
                last.len += region.len;
            }
            _ => merged.push(region),
        }
    }
    merged
}
