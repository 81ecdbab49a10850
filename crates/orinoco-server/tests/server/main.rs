//! The server over real sockets, with a fake board.

mod client;
mod dns_rebinding;
mod events;
mod fake;
mod health;
mod limits;
mod openapi;
mod promtool;
mod requests;
mod sharing;
mod sockets;
