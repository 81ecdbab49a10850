//! Boards: their files, their profiles, and their detection.
//!
//! A board file is the configuration of one board. A TOML file is checked once; after that a [`Board`] is always valid: names
//! have become indices, sources are parsed, and every reference exists. A [`Profile`] is what is publicly known of a kind of
//! board. A [`Detection`] is what the files of a machine say of it. [`open_root`] opens the root of these files, [`readers`] reads its sensors, and [`power`] its power settings. The crate opens no source and loads no model.
//!
//! Read first: [`load`], [`Board`] and [`BoardError`] (the reason why there is none); [`profiles`] and [`Profile`]; [`detect`]
//! and [`Detection`].

mod board;
mod capabilities;
mod cluster;
mod detect;
mod error;
mod governor;
mod levels;
mod otlp;
pub mod power;
mod profile;
mod profiles;
mod read;
pub mod readers;
mod root;
mod seat;
mod sink;
mod unique;

pub use board::{
    Board, BoardModel, BoardStream, ControlSpec, Inference, ObjectSelectionSpec, SensorsSpec, Shape,
    SocketSpec, TrackSpec, TrackerSpec, Written,
};
pub use capabilities::Capabilities;
pub use cluster::{ClusterSpec, RdmaUse};
pub use detect::{CounterReport, Detection, Fact, PowerMode, Problem, RailReport, ThermalZone, detect};
pub use error::{BoardError, SourceFault};
pub use governor::{GovernorActuator, GovernorSpec};
pub use levels::{ChosenLevels, ModelLevel, ModelLevels};
pub use otlp::OtlpSpec;
pub use profile::{
    BoardKind, Connections, DevfreqNode, Module, Performance, PowerModeProfile, Profile, RailProfile, Soc,
    Source, ThermalZoneProfile, TotalPower, TripKind, TripPoint,
};
pub use profiles::{profile_named, profiles};
pub use read::load;
pub use root::open_root;
pub use seat::{SeatFallback, SeatSpec};
pub use sink::{Endings, SinkDescriptor, SinkKind, SinkSpec, StandardOutput};
