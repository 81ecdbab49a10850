//! The path of a frame: sources push into bounded rings, a mux forms batches, a lane replays plans, sinks take the
//! outcome. OS threads only.
//!
//! What decides is a core without threads, locks and clock ([`MuxCore`], [`SourceSupervisor`], [`LaneCore`], [`SinkCore`]);
//! threads are thin shells around these.
//!
//! It names no GStreamer type, no engine and no network peer: those implement [`Source`], [`Executor`] and [`Sink`].
//! Read first: [`Frame`], [`Mux`] and [`Lane`].

mod channel;
mod clock;
mod executor;
#[cfg(all(test, shuttle))]
mod interleavings;
mod lane;
mod mux;
mod sink;
mod slot;
mod source;
mod stop;
mod supervise;
mod sync;

pub use channel::{Receiver, Sender, channel};
pub use clock::MonotonicClock;
pub use executor::{DeviceTimes, Executor, StageTimes};
pub use lane::{
    AfterBatch, BoundPlan, JoinError, JoinRequest, Lane, LaneCore, LaneEntry, ModelHold, ObjectSelection,
    PlanFacts, Step, StreamTracker, not_finite,
};
pub use mux::{Closed, FrameSender, Mux, MuxCore, Next, NextBatch, Offer, StreamQueue};
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
