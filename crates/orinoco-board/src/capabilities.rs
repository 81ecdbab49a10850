use orinoco_uri::Scheme;

use crate::SinkKind;

/// Names in board files that mean something to the binary that reads one. Any other is refused.
#[derive(Clone, Copy, Debug, Default)]
pub struct Capabilities<'c> {
    /// Names of engines.
    pub engines: &'c [&'c str],
    /// Names of the engines of a board that names none, in order of preference.
    pub default_engines: &'c [&'c str],
    /// Kinds of sink, in the order in which messages list them.
    pub sinks: &'c [SinkKind],
    /// Schemes of sources that `orinoco-uri` has no variant for.
    pub schemes: &'c [Scheme],
}
