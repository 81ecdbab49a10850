//! Meeting of the ranks in a window: hellos, then handshakes over the rings of messages, then a word that all have met. No clock and
//! no file: whoever calls it decides how long to wait.

use std::path::Path;

use super::hello::{HELLO_BYTES, Hello, other_version};
use super::layout::Layout;
use super::window::Window;
use super::window_ring::{Ends, Ring, Rings};
use crate::JoinError;
use crate::message::Moved;
use crate::security::{CONFIRMATION_BYTES, HANDSHAKE_BYTES, Handshake, Keys, Seal};
use crate::tcp::EPOCH;

/// Answer to the first message of a handshake, before the second.
const ACCEPTED: u8 = 0;
const WRONG_KEY: u8 = 1;
const ANSWER_BYTES: usize = 1 + HANDSHAKE_BYTES;
/// Said when a rank has met all others.
const READY: u8 = 0x52;

/// Attempt of a rank to join a group, in which it meets all others.
pub(super) struct JoinAttempt<'a> {
    /// The window, for errors.
    pub(super) path: &'a Path,
    pub(super) rank: usize,
    pub(super) ranks: usize,
    pub(super) layout: Layout,
    pub(super) keys: Keys,
    /// Checksum of the settings that all ranks must share.
    pub(super) settings: u32,
    /// A random number, not 0.
    pub(super) nonce: u64,
}

/// Meetings of a rank with all others.
pub(super) struct Meetings<'a> {
    attempt: JoinAttempt<'a>,
    all: Vec<Meeting>,
    is_ready: bool,
}

impl<'a> Meetings<'a> {
    /// Says hello to all other ranks.
    pub(super) fn begin(attempt: JoinAttempt<'a>, window: &impl Window) -> Self {
        let peers = (0..attempt.ranks).filter(|peer| *peer != attempt.rank);
        let all: Vec<Meeting> = peers.map(|peer| Meeting::new(&attempt, peer)).collect();
        for meeting in &all {
            meeting.own.leave(window, attempt.layout.hello(attempt.rank, meeting.peer));
        }
        Self { attempt, all, is_ready: false }
    }

    /// Goes on as far as the other ranks have come. Returns those that are missing; none are when all have met.
    ///
    /// # Errors
    /// If a rank has other settings or another key, or is none.
    pub(super) fn step(&mut self, window: &impl Window) -> Result<Vec<usize>, JoinError> {
        if !self.is_ready {
            let mut missing = Vec::new();
            for meeting in &mut self.all {
                if !meeting.meet(&self.attempt, window)? {
                    missing.push(meeting.peer);
                }
            }
            if !missing.is_empty() {
                return Ok(missing);
            }
            self.is_ready = true;
            for meeting in &mut self.all {
                meeting.say(window, &[READY]);
            }
        }
        let mut missing = Vec::new();
        for meeting in &mut self.all {
            if !meeting.is_ready(&self.attempt, window)? {
                missing.push(meeting.peer);
            }
        }
        Ok(missing)
    }

    /// A rank of which the hello is one of another version, and that version. It may have left the hello in an earlier group.
    pub(super) fn other_version(&self, window: &impl Window) -> Option<(usize, u16)> {
        let JoinAttempt { rank, layout, .. } = &self.attempt;
        self.all.iter().find_map(|Meeting { peer, .. }| {
            Some((*peer, other_version(window, layout.hello(*peer, *rank))?))
        })
    }

    /// Whether this rank has met all others, and said so.
    pub(super) fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// Rings with each rank, when all have met; none for this rank itself.
    pub(super) fn finish(self) -> Vec<Option<Rings>> {
        let mut rings: Vec<Option<Rings>> = (0..self.attempt.ranks).map(|_| None).collect();
        for meeting in self.all {
            rings[meeting.peer] = meeting.rings;
        }
        rings
    }
}

/// Tag of the words between two ranks. It depends on both nonces, and is the same for both.
fn tag(hello: &Hello) -> u32 {
    let both = hello.nonce ^ hello.echo;
    (both >> 32) as u32 ^ both as u32
}

/// Meeting of a rank with one other.
struct Meeting {
    peer: usize,
    /// This rank's hello, as it was left last.
    own: Hello,
    /// Once the rank has repeated this rank's nonce.
    rings: Option<Rings>,
    /// Whether the rank has opened its ends of them, too.
    is_open: bool,
    stage: Stage,
    /// Bytes of the stage that have come.
    bytes: Vec<u8>,
}

/// Things that are awaited from the other rank.
enum Stage {
    /// A hello that repeats this rank's nonce.
    Hello,
    /// The first message of a handshake. The higher rank begins.
    Request(Handshake),
    /// The answer to it.
    Answer(Handshake),
    /// The proof that it has the key now, and did not record it earlier.
    Confirmation(Box<Seal>),
    /// The word that it has met all.
    Readiness,
    Nothing,
}

impl Meeting {
    fn new(attempt: &JoinAttempt<'_>, peer: usize) -> Self {
        let number = |number: usize| u32::try_from(number).expect("few ranks, and rings of 256 KiB at most");
        let own = Hello {
            security: attempt.keys.code(),
            epoch: EPOCH,
            ranks: number(attempt.ranks),
            from: number(attempt.rank),
            to: number(peer),
            ring_bytes: number(attempt.layout.ring_bytes),
            nonce: attempt.nonce,
            echo: 0,
            settings: attempt.settings,
        };
        Self { peer, own, rings: None, is_open: false, stage: Stage::Hello, bytes: Vec::new() }
    }

    /// Goes on until the rank is met. Returns whether it is.
    fn meet(&mut self, attempt: &JoinAttempt<'_>, window: &impl Window) -> Result<bool, JoinError> {
        loop {
            let awaited = match &self.stage {
                Stage::Hello => {
                    let Some(found) = self.listen(attempt, window) else { return Ok(false) };
                    self.check(&found)?;
                    self.open(attempt, window, &found);
                    continue;
                }
                Stage::Request(_) => HANDSHAKE_BYTES,
                Stage::Answer(_) => ANSWER_BYTES,
                Stage::Confirmation(_) => CONFIRMATION_BYTES,
                Stage::Readiness | Stage::Nothing => return Ok(true),
            };
            if !self.receive(attempt, window, awaited)? {
                return Ok(false);
            }
            self.answer(attempt, window)?;
        }
    }

    /// Looks for the other rank's hello, and repeats its nonce. Returns the hello once it repeats this rank's nonce.
    fn listen(&mut self, attempt: &JoinAttempt<'_>, window: &impl Window) -> Option<Hello> {
        let JoinAttempt { rank, layout, .. } = attempt;
        // It may be left of an earlier group, in which that rank still is.
        let found = Hello::find(window, layout.hello(self.peer, *rank))?;
        if (found.from, found.to) != (self.own.to, self.own.from) || found.nonce == 0 {
            return None;
        }
        if self.own.echo != found.nonce {
            self.own.echo = found.nonce;
            self.own.leave(window, layout.hello(*rank, self.peer));
        }
        (found.echo == self.own.nonce).then_some(found)
    }

    /// Compares a hello with this rank's.
    fn check(&self, found: &Hello) -> Result<(), JoinError> {
        let own = &self.own;
        let why = if found.ranks != own.ranks || found.epoch != own.epoch {
            format!("its group has {} ranks, this one {}", found.ranks, own.ranks)
        } else if found.ring_bytes != own.ring_bytes {
            format!("its window has rings of {} bytes, this one of {}", found.ring_bytes, own.ring_bytes)
        } else if found.settings != own.settings {
            "its `MessageSettings` differ (order, algorithm, piece_bytes, tune or uniform); use the same settings on all ranks".to_owned()
        } else if found.security != own.security {
            let (theirs, ours) = (Keys::describe(found.security), Keys::describe(own.security));
            format!("it expects {theirs}, this rank has {ours}")
        } else {
            return Ok(());
        };
        Err(JoinError::Refused { rank: self.peer, why })
    }

    /// Opens the rings, and begins the handshake if there are keys.
    fn open(&mut self, attempt: &JoinAttempt<'_>, window: &impl Window, found: &Hello) {
        let JoinAttempt { rank, layout, keys, .. } = attempt;
        let peer = self.peer;
        // The rank is in no earlier group any more, to which these words would be damage.
        for word in layout.words(*rank, peer) {
            window.publish(word, Ring::first_word(tag(&self.own)));
        }
        self.rings = Some(layout.rings(*rank, peer, tag(&self.own)));
        let begins = *rank > peer;
        let (first, second) = if begins { (&self.own, found) } else { (found, &self.own) };
        let prologue: [u8; 2 * HELLO_BYTES] =
            [first.encode(), second.encode()].concat().try_into().expect("two hellos");
        self.stage = if begins {
            match Handshake::initiator(keys, peer, &prologue) {
                None => Stage::Readiness,
                Some(mut handshake) => {
                    self.say(window, &handshake.write());
                    Stage::Answer(handshake)
                }
            }
        } else {
            Handshake::responder(keys, peer, &prologue).map_or(Stage::Readiness, Stage::Request)
        };
    }

    /// Goes on after the bytes of a stage have come.
    fn answer(&mut self, attempt: &JoinAttempt<'_>, window: &impl Window) -> Result<(), JoinError> {
        let bytes = std::mem::take(&mut self.bytes);
        let JoinAttempt { rank, path, .. } = attempt;
        let wrong_key = || JoinError::WrongKey { rank: self.peer, path: path.to_path_buf() };
        match std::mem::replace(&mut self.stage, Stage::Readiness) {
            Stage::Request(mut handshake) => {
                let mut answer = [WRONG_KEY; ANSWER_BYTES];
                if !handshake.read(bytes.as_slice().try_into().expect("its length was checked")) {
                    let error = wrong_key();
                    self.say(window, &answer);
                    return Err(error);
                }
                answer[0] = ACCEPTED;
                answer[1..].copy_from_slice(&handshake.write());
                self.say(window, &answer);
                self.stage = Stage::Confirmation(Box::new(handshake.finish()));
            }
            Stage::Answer(mut handshake) => {
                if bytes[0] != ACCEPTED {
                    let why = format!("the key that it has for rank {rank} is not that of this rank");
                    return Err(JoinError::Refused { rank: self.peer, why });
                }
                if !handshake.read(bytes[1..].try_into().expect("its length was checked")) {
                    return Err(wrong_key());
                }
                self.say(window, &handshake.finish().confirmation());
            }
            Stage::Confirmation(mut seal) => {
                if !seal.confirms(bytes.as_slice().try_into().expect("its length was checked")) {
                    return Err(wrong_key());
                }
            }
            Stage::Hello | Stage::Readiness | Stage::Nothing => {}
        }
        Ok(())
    }

    /// Whether the other rank has met all, too.
    fn is_ready(&mut self, attempt: &JoinAttempt<'_>, window: &impl Window) -> Result<bool, JoinError> {
        if matches!(self.stage, Stage::Readiness) && self.receive(attempt, window, 1)? {
            if self.bytes != [READY] {
                return Err(self.garbled(attempt));
            }
            self.stage = Stage::Nothing;
        }
        Ok(matches!(self.stage, Stage::Nothing))
    }

    /// Sends a few bytes. All that a rank says when it joins fits an empty ring at once.
    fn say(&mut self, window: &impl Window, bytes: &[u8]) {
        let Ends { outgoing, .. } = self.ends();
        // It fails only if the other rank has damaged the words of the ring, which shows when it is read from.
        outgoing.write_whole(window, bytes);
    }

    /// Receives so many bytes. Returns whether all have come.
    fn receive(
        &mut self,
        attempt: &JoinAttempt<'_>,
        window: &impl Window,
        awaited: usize,
    ) -> Result<bool, JoinError> {
        // So far its words may be those of an earlier group. They are written in order.
        let [.., last] = attempt.layout.words(self.peer, attempt.rank);
        self.is_open = self.is_open || (window.load(last) >> 32) as u32 == tag(&self.own);
        if !self.is_open {
            return Ok(false);
        }
        while self.bytes.len() < awaited {
            let (mut bytes, rest) = ([0; ANSWER_BYTES], awaited - self.bytes.len());
            match self.ends().incoming.read(window, &mut bytes[..rest]) {
                Moved::Bytes(count) => self.bytes.extend_from_slice(&bytes[..count]),
                Moved::Later => return Ok(false),
                Moved::Closed | Moved::Damaged => return Err(self.garbled(attempt)),
            }
        }
        Ok(true)
    }

    fn ends(&mut self) -> &mut Ends {
        &mut self.rings.as_mut().expect("rings that are open").messages
    }

    fn garbled(&self, attempt: &JoinAttempt<'_>) -> JoinError {
        JoinError::Garbled { rank: self.peer, path: attempt.path.to_path_buf() }
    }
}
