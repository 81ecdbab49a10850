//! Operations by messages: schedules are executed by an [`Engine`], and a [`Transport`] carries its messages.
//!
//! The engine and the [`Health`] of a group have neither sockets nor clocks, so whole groups run in a simulator, in virtual time
//! (`simulated`). A [`MessageGroup`] drives both over a transport.

mod agreement;
mod attempt;
mod choice;
mod engine;
mod group;
mod header;
mod health;
mod kernel;
mod memory;
mod notice;
mod plan;
mod shared_health;
mod shrink;
mod stream;
mod transport;
mod tuner;
mod uniform;
mod uniform_state;
mod vector_memory;
mod waits;
mod working_memory;

#[cfg(test)]
mod hostile;
#[cfg(test)]
pub(crate) mod simulated;

pub(crate) use agreement::VOTING_RANKS_MAX;
pub use agreement::{Position, RankSet, Uniform, Vote};
pub use choice::Order;
pub(crate) use engine::Expected;
pub use engine::{Engine, Refusal};
pub use group::{MessageGroup, MessageSettings, TCP_CONNECTIONS_MAX, Tune};
pub(crate) use header::MessageId;
pub use header::{HEADER_BYTES, Header};
pub use health::Health;
pub(crate) use kernel::{Kernel, kernel_of};
pub use memory::{Memory, Span};
pub use notice::{Failure, NOTICE_BYTES, Notice, NumberedCall};
pub use plan::OperationPlan;
pub(crate) use shared_health::SharedHealth;
pub use shrink::{ShrinkNotice, ShrinkStage};
pub(crate) use shrink::{ShrinkState, Survivor, Survivors};
pub(crate) use stream::{INLINE_BYTES, SLICES_MAX, write_inline};
pub use stream::{Moved, StreamReceiver, StreamSender};
pub use transport::{LinkFault, Transport};
pub use tuner::TUNED_RANKS_MAX;
pub use vector_memory::{AllocateError, MappedMemory, VectorMemory};
pub use waits::WaitEnd;
