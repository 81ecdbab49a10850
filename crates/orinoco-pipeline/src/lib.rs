//! The path of a frame: sources push into bounded rings, a mux forms batches, a lane executes plans, sinks take the
//! results. Between its batches a lane answers [`Request`]s. OS threads only.
//!
//! What decides is a core without threads, locks and clock ([`MuxCore`], [`SourceSupervisor`], [`LaneModels`],
//! [`LaneBatches`], [`SinkCore`]); threads are thin shells around these.
//!
//! It names no GStreamer type, no engine and no network peer: those implement [`Source`], [`Executor`] and [`Sink`].
//! Read first: [`Frame`], [`Mux`] and [`Lane`].

mod channel;
mod clock;
mod executor;
#[cfg(all(test, shuttle))]
mod interleavings;
mod lane;
mod lane_times;
mod mux;
mod request;
mod sink;
mod slot;
mod source;
mod stop;
mod supervise;
mod suspension;
mod sync;

pub use channel::{Receiver, Sender, channel};
pub use clock::MonotonicClock;
pub use executor::{DeviceTimes, Executed, Executor, StageTimes};
pub use lane::{
    AfterExecution, AfterFailure, BatchStep, BoundPlan, ExchangeError, Exchanged, Execution, ExecutionEnd,
    JoinError, JoinRequest, Lane, LaneBatches, LaneEntry, LaneModels, ModelHold, Notice, ObjectSelection,
    PlanFacts, Resumed, Settled, Step, StreamModels, StreamTracker, Unfinished, not_finite,
};
pub use lane_times::LaneTimes;
pub use mux::{
    Closed, FrameSender, LateAnswer, Mux, MuxCore, Next, NextBatch, Offer, SUSPENDED_FRAMES_MAX,
    SUSPENSION_MAX, StreamQueue, SuspensionError, Ticket,
};
pub use orinoco_telemetry::{Stage, StageSetter};
pub use request::{
    ANSWER_PARTS_MAX, Answer, AnswerReceiver, AnswerSender, NextAnswer, NotTaken, Priority, REQUESTS_MAX,
    Request, RequestInputs, RequestQueue, RequestRefusal, Unserved, answer_channel,
};
pub use sink::{
    Crossing, CrossingKind, FrameResult, ModelResult, Object, ResultOffer, ResultSender, Sink, SinkCore,
    SinkNext, SinkOutputs, SinkResult, SinkThread,
};
pub use slot::{Frame, Lease, OwnedSlot, PixelAspect, Slot, SlotPool};
pub use source::{Poll, Source, SourceError};
pub use stop::Stop;
pub use supervise::{
    Reconnect, SourceEnd, SourceNext, SourceNotice, SourceResult, SourceRunner, SourceSupervisor,
};
pub use suspension::{Suspender, Suspension};
