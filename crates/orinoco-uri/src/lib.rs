//! Source URIs: the source of a stream and its settings; and addresses of servers to which data is sent.
//!
//! Parsing is pure: it opens nothing, asks neither the file system nor the network, and knows no decoder. The code that
//! opens a source finds out whether it exists. Passwords are hidden wherever an address is shown. Read first:
//! [`SourceUri`] (a parsed URI), [`SourceKind`] (the kinds of source) and [`hide_secrets`] (for other programs'
//! messages that quote addresses).

mod cameras;
mod endpoint;
mod escapes;
mod fault;
mod files;
mod names;
mod network;
mod other;
mod pattern;
mod rate;
mod raw;
mod scheme;
mod secrets;
mod settings;
mod uri;

pub use cameras::{CsiAddress, V4l2Address};
pub use endpoint::{EndpointFault, HttpEndpoint};
pub use files::{ImagePaths, NumberedPath};
pub use names::{is_image_name, is_video_name};
pub use network::{HttpAddress, RtspAddress, Transport};
pub use other::{OtherAddress, Scheme};
pub use pattern::TestPattern;
pub use rate::Rate;
pub use raw::{RawFrames, RawLayout, RawVideo};
pub use secrets::hide_secrets;
pub use settings::Pace;
pub use uri::{SourceKind, SourceUri};
