use std::sync::LazyLock;

use orinoco_board::Capabilities;
use orinoco_infer::ENGINES;
use orinoco_media::source_schemes;
use orinoco_uri::Scheme;

use crate::sinks::SINKS;

/// Names in board files that mean something to this build: of its engines, its sinks and its sources' schemes.
pub fn capabilities() -> Capabilities<'static> {
    static SCHEMES: LazyLock<Vec<Scheme>> = LazyLock::new(source_schemes);
    Capabilities { engines: &ENGINES, sinks: SINKS, schemes: &SCHEMES }
}
