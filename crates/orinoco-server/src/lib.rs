//! Control socket of the daemon: health, status, events, metrics, a post-mortem dump and the models of other boards as HTTP with JSON, on a
//! Unix socket and, where the board file says so, on loopback TCP.
//!
//! The server runs on threads of its own and stays off the data plane: it asks a [`Monitored`] board on a blocking thread, at
//! most once in 100 ms for all clients together. It bounds connections, requests and waits, so that a client that is slow or
//! stuck delays nobody but itself. It changes nothing on the board, takes no request bodies, never listens on an address that
//! other machines reach, and neither logs nor prints.
//!
//! Read first: [`Monitored`] (the board, as the server sees it), [`Server`] (starts and ends it) and [`LocalSocket`] (the
//! Unix socket, created and removed safely).

mod answers;
mod cached;
mod connections;
mod counters;
mod end;
mod event_log;
mod gate;
mod limits;
mod listeners;
mod loopback;
mod monitored;
mod prometheus_text;
mod refusal;
mod routes;
mod server;
mod socket;
mod stall;

pub use limits::Limits;
pub use loopback::LoopbackListener;
pub use monitored::{ModelPart, Monitored};
pub use prometheus_text::{PROMETHEUS_CONTENT_TYPE, prometheus_text};
pub use routes::{ROUTES, Route};
pub use server::{Listeners, Server};
pub use socket::{LocalSocket, SocketSetting};
