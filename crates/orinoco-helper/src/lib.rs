//! The one program of root: it sets the power mode and the highest clocks of a board for the daemon, which has no privileges.
//!
//! It takes a closed set of [`Request`]s on a Unix socket, from one client at a time. Each value must be one that the board
//! itself lists; a clock is only ever set below what the mode or the administrator allows, and a mode that needs a reboot
//! is refused. Before the first write it saves what was there, and it restores that when its client disconnects, dies or is
//! silent, and at its next start if it was killed itself. It writes to the files of [`clock_domains`](orinoco_board::power::clock_domains)
//! and to its own state file, runs `nvpmodel -m N`, and does nothing else: it starts no shell, reads no configuration, and
//! opens no network.
//!
//! Read first: [`Request`] and [`Answer`] (the protocol), [`PowerSettings`] (what is written), [`Server`] (who may ask, and when
//! it restores). [`Client`] is the daemon's side.

mod client;
mod nvpmodel;
mod power_settings;
mod protocol;
mod saved;
mod server;

pub use client::{Client, ClientError};
pub use orinoco_api::helper::{Answer, ClockState, ModeState, PowerState, Refusal, RefusalReason, Request};
pub use power_settings::{PowerSettings, RestoreError};
pub use protocol::{ANSWER_BYTES_MAX, PROTOCOL_VERSION, REQUEST_BYTES_MAX, SOCKET};
pub use server::{Peers, SILENCE_MAX, Server, ServerError};
