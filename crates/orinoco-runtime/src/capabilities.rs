use std::sync::LazyLock;

use orinoco_board::Capabilities;
use orinoco_infer::{ENGINES, default_engines};
use orinoco_media::source_schemes;
use orinoco_uri::Scheme;

use crate::sinks::SINKS;

/// Returns the names in board files that this build supports, of engines, sinks and schemes of sources, and the default
/// engines.
pub fn capabilities() -> Capabilities<'static> {
    static SCHEMES: LazyLock<Vec<Scheme>> = LazyLock::new(source_schemes);
    static DEFAULT_ENGINES: LazyLock<Vec<&str>> = LazyLock::new(default_engines);
    Capabilities { engines: &ENGINES, default_engines: &DEFAULT_ENGINES, sinks: SINKS, schemes: &SCHEMES }
}
