//! A stream's source and sinks, as their threads run them.

use std::collections::VecDeque;
use std::time::Duration;

use orinoco_core::{DropPolicy, FrameDesc, Nanos, PixelFormat, Rng, StreamId};
use orinoco_pipeline::{
    Frame, FrameResult, MuxCore, Offer, Reconnect, SinkCore, SinkNext, SinkResult, Slot, SlotPool,
    SourceNext, SourceNotice, SourceResult, SourceSupervisor, StreamQueue,
};
use orinoco_sim::Task;
use orinoco_telemetry::{DropCause, SourceState};

use super::{Board, MODEL_SETS, millis, pick, policy};
use crate::camera::Camera;

pub(crate) struct Stream {
    pub(crate) id: StreamId,
    pub(crate) lane: usize,
    pub(crate) source: Task,
    pub(crate) sinks_task: Task,
    pub(crate) camera: Camera,
    pub(crate) supervisor: SourceSupervisor,
    pub(crate) state: Option<SourceState>,
    pool: SlotPool,
    slots: usize,
    pub(crate) queue: StreamQueue,
    /// Maximum batch size, in frames, as its lane has it.
    pub(crate) batch_max: usize,
    /// Its frames stay in video memory.
    pub(crate) in_video_memory: bool,
    pub(crate) sinks: SinkCore,
    pub(crate) outputs: Outputs,
    /// When it joined its lane.
    pub(crate) joined: Nanos,
    pub(crate) is_stopping: bool,
    /// Its source's thread has ended.
    pub(crate) is_over: bool,
    /// Result of what the source does until its next step.
    doing: Option<SourceResult>,
    /// The frame that was read, until it is in the ring, and whether it was counted.
    pub(crate) read: Option<(Frame, bool)>,
    pub(crate) counts: Counts,
    /// Frames that must be in its ring: arrival time and number of each.
    pub(crate) ring: VecDeque<(Nanos, u64)>,
    /// Batches of its lane without it since its oldest frame had waited long enough.
    pub(crate) passed_over: usize,
    /// Its frames in the hands of the lane.
    pub(crate) at_lane: u64,
}

/// Frames by what became of them.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) frames_in: u64,
    pub(crate) frames_out: u64,
    pub(crate) dropped: [u64; DropCause::ALL.len()],
    /// Times that its source was lost and came back.
    pub(crate) recovered: u64,
    /// Number of the latest frame that was written.
    latest: Option<u64>,
}

impl Counts {
    pub(crate) fn drop_frame(&mut self, cause: DropCause) {
        self.dropped[cause as usize] += 1;
    }
}

/// Outputs that its sinks write.
#[derive(Default)]
pub(crate) struct Outputs {
    pub(crate) blocked_until: Nanos,
    pub(crate) has_failed: bool,
    /// When a frame was last given back.
    pub(crate) latest: Nanos,
    pub(crate) is_finished: bool,
    doing: Option<Doing>,
    /// When something was written that is not visible yet.
    pub(crate) hidden_since: Option<Nanos>,
}

#[expect(clippy::large_enum_variant, reason = "a box would be an allocation for each frame")]
enum Doing {
    Writing(FrameResult),
    ShowingOffline,
    Flushing,
}

impl Outputs {
    /// Frames that they hold.
    pub(crate) fn frames(&self) -> u64 {
        u64::from(matches!(self.doing, Some(Doing::Writing(_))))
    }

    /// Whether they wait, and do nothing.
    pub(crate) fn is_idle(&self) -> bool {
        self.doing.is_none()
    }
}

impl Stream {
    pub(crate) fn new(
        id: StreamId,
        lane: usize,
        source: Task,
        sinks_task: Task,
        now: Nanos,
        rng: &mut Rng,
    ) -> Self {
        let policy = policy(rng);
        let group = rng.usize(..MODEL_SETS.len());
        let batch_wait = pick(rng, &[0, 1, 10, 40, 100]);
        let queue = StreamQueue {
            group,
            frames_max: rng.usize(1..=8),
            policy,
            batch_wait: Duration::from_millis(batch_wait),
        };
        let is_file = policy == DropPolicy::Block && rng.bool();
        let period = if is_file { Duration::ZERO } else { millis(rng, 40..250) };
        let frames = if is_file || rng.u32(..4) == 0 { rng.u64(50..1500) } else { u64::MAX };
        let reconnect = Reconnect {
            attempts_max: pick(rng, &[None, None, Some(3)]),
            stall: Duration::from_secs(rng.u64(1..6)),
        };
        let frames_max = (rng.u32(..3) == 0).then(|| rng.u64(1..400));
        let slots = rng.usize(3..=16);
        Self {
            id,
            lane,
            source,
            sinks_task,
            camera: Camera::new(period, frames),
            supervisor: SourceSupervisor::new(format!("camera {id}"), reconnect, frames_max, rng.u64(..)),
            state: None,
            pool: SlotPool::new(slots, 1),
            slots,
            queue,
            batch_max: 0,
            in_video_memory: false,
            sinks: SinkCore::new(policy, now),
            outputs: Outputs::default(),
            joined: now,
            is_stopping: false,
            is_over: false,
            doing: None,
            read: None,
            counts: Counts::default(),
            ring: VecDeque::new(),
            passed_over: 0,
            at_lane: 0,
        }
    }

    /// Whether its source waits for room in its ring.
    pub(crate) fn is_blocked(&self) -> bool {
        self.read.as_ref().is_some_and(|(_, was_counted)| *was_counted)
    }

    /// Number of frames that were counted and are on their way.
    pub(crate) fn in_flight(&self, mux: &MuxCore) -> u64 {
        let waiting = mux.waiting(self.id) + self.sinks.waiting() + usize::from(self.is_blocked());
        waiting as u64 + self.at_lane + self.outputs.frames()
    }

    /// Number of slots that nobody holds, and of all.
    pub(crate) fn slots_free(&self) -> (usize, usize) {
        let free: Vec<_> = std::iter::from_fn(|| self.pool.try_take()).collect();
        (free.len(), self.slots)
    }

    fn frame(&self, lost: u64, now: Nanos) -> Frame {
        let slot = self.pool.try_take().expect("it was free when the read began");
        let desc = FrameDesc::packed(PixelFormat::Gray8, 1, 1);
        let mut frame = Frame::new(desc, Slot::Owned(slot), now).expect("it fits");
        frame.lost = lost;
        frame
    }
}

impl Board<'_> {
    pub(crate) fn step_source(&mut self, index: usize) {
        let now = self.simulator.now();
        let stream = &mut self.streams[index];
        if stream.is_over {
            return;
        }
        if let Some(result) = stream.doing.take() {
            if let SourceResult::Frame { lost } = result {
                stream.read = Some((stream.frame(lost, now), false));
            }
            stream.supervisor.finished(result, now);
        }
        if stream.is_stopping {
            stream.supervisor.stop();
        }
        let next = stream.supervisor.next(now);
        while let Some(notice) = stream.supervisor.notice() {
            if let SourceNotice::Recovered { .. } = notice {
                stream.counts.recovered += 1;
            }
            if let SourceNotice::Entered { state, .. } = notice {
                stream.state = Some(state);
                self.simulator.note(|| format!("stream {index} is {}", state.name()));
                if state == SourceState::Live {
                    let mux = &mut self.lanes[stream.lane].mux;
                    mux.set_source_frames_max(stream.id, Some(stream.slots));
                }
            }
        }
        let rng = self.simulator.rng();
        let (until, result) = match next {
            SourceNext::Open => stream.camera.open(now, rng),
            SourceNext::Read(wait_max) => {
                let has_slot = stream.pool.try_take().is_some();
                stream.camera.read(wait_max, has_slot, now, rng)
            }
            SourceNext::Push { seq } => return self.push(index, seq),
            SourceNext::Close => (now + millis(rng, 0..200), SourceResult::Closed),
            SourceNext::WaitUntil(until) => {
                assert!(
                    until <= now + Duration::from_secs(1),
                    "a camera that is back is seen within a second"
                );
                return self.simulator.wait(stream.source, Some(until));
            }
            SourceNext::Ended(end) => {
                self.simulator.note(|| format!("source {index} has ended: {end:?}"));
                stream.is_over = true;
                let lane = &mut self.lanes[stream.lane];
                lane.mux.end(stream.id);
                return self.simulator.notify(lane.task);
            }
        };
        stream.doing = Some(result);
        self.simulator.work(stream.source, until);
    }

    fn push(&mut self, index: usize, seq: u64) {
        let now = self.simulator.now();
        let stream = &mut self.streams[index];
        let (mut frame, was_counted) = stream.read.take().expect("a frame was read");
        if !was_counted {
            stream.counts.frames_in += 1 + frame.lost;
            stream.counts.dropped[DropCause::LostAtSource as usize] += frame.lost;
            (frame.desc.seq, frame.desc.stream) = (seq, stream.id);
        }
        let lane = &mut self.lanes[stream.lane];
        let result = match lane.mux.offer(stream.id, frame, now) {
            Offer::Full(frame) => {
                assert_eq!(stream.queue.policy, DropPolicy::Block, "only such a source waits");
                stream.read = Some((frame, true));
                return self.simulator.wait(stream.source, None);
            }
            Offer::Accepted => SourceResult::Pushed,
            Offer::Replaced(oldest) => {
                assert_eq!(stream.ring.pop_front().map(|(_, seq)| seq), Some(oldest.desc.seq));
                stream.counts.drop_frame(DropCause::DropOldest);
                SourceResult::Pushed
            }
            Offer::Refused(frame) => {
                assert_eq!(frame.desc.seq, seq);
                stream.counts.drop_frame(DropCause::DropNewest);
                stream.doing = Some(SourceResult::Pushed);
                return self.simulator.work(stream.source, now);
            }
            Offer::Closed(_) => {
                stream.counts.drop_frame(DropCause::Shutdown);
                stream.doing = Some(SourceResult::RingClosed);
                return self.simulator.work(stream.source, now);
            }
        };
        stream.ring.push_back((now, seq));
        stream.doing = Some(result);
        self.simulator.notify(lane.task);
        self.simulator.work(stream.source, now);
    }

    pub(crate) fn step_sinks(&mut self, index: usize) {
        let now = self.simulator.now();
        let stream = &mut self.streams[index];
        if stream.outputs.is_finished {
            return;
        }
        match stream.outputs.doing.take() {
            Some(Doing::Writing(frame_result)) => {
                let seq = frame_result.frame.desc.seq;
                assert!(stream.counts.latest.is_none_or(|latest| latest < seq), "{seq} comes too late");
                (stream.counts.latest, stream.outputs.latest) = (Some(seq), now);
                if stream.outputs.has_failed {
                    stream.counts.drop_frame(DropCause::SinkFailed);
                } else {
                    stream.counts.frames_out += 1;
                }
                stream.sinks.finished(SinkResult::Wrote, now);
                stream.outputs.hidden_since.get_or_insert(now);
            }
            Some(Doing::ShowingOffline) => {
                let is_away = matches!(
                    stream.state,
                    Some(SourceState::Connecting | SourceState::Stalled | SourceState::BackingOff)
                );
                let result = if is_away { SinkResult::WroteOffline } else { SinkResult::NotOffline };
                stream.sinks.finished(result, now);
                if is_away {
                    stream.outputs.hidden_since.get_or_insert(now);
                }
            }
            Some(Doing::Flushing) => stream.outputs.hidden_since = None,
            None => {}
        }
        let next = stream.sinks.next(now);
        let rng = self.simulator.rng();
        let mut until = now + millis(rng, 0..4);
        stream.outputs.doing = Some(match next {
            SinkNext::Write(frame_result) => {
                until = until.max(stream.outputs.blocked_until);
                self.simulator.notify(self.lanes[stream.lane].task);
                Doing::Writing(frame_result)
            }
            SinkNext::CheckOffline => Doing::ShowingOffline,
            SinkNext::Flush => Doing::Flushing,
            SinkNext::WaitUntil(until) => return self.simulator.wait(stream.sinks_task, Some(until)),
            SinkNext::Finish => {
                stream.outputs.is_finished = true;
                return;
            }
        });
        self.simulator.work(stream.sinks_task, until);
    }
}
