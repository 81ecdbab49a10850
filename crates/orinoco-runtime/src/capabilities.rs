use std::sync::LazyLock;

use orinoco_board::Capabilities;
use orinoco_infer::ENGINES;
use orinoco_media::source_schemes;
use orinoco_uri::Scheme;

use crate::sinks::SINKS;

/// Returns the names in board files that this build supports: of engines, sinks and schemes of sources.
pub fn capabilities() -> Capabilities<'static> {
    static SCHEMES: LazyLock<Vec<Scheme>> = LazyLock::new(source_schemes);
    Capabilities { engines: &ENGINES, sinks: SINKS, schemes: &SCHEMES }
}
