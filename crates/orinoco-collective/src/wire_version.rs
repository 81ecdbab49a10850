use std::fmt;

/// Version of the wire format. Ranks understand one another if they have the same major version and minor versions that differ by one
/// at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WireVersion {
    /// Major version.
    pub major: u16,
    /// Minor version; `None` if it is not known, because another major version may have it at another place.
    pub minor: Option<u8>,
}

impl WireVersion {
    /// Version of this build.
    pub const OURS: Self = Self { major: 1, minor: Some(MINOR) };
}

/// Minor version of this build.
pub(crate) const MINOR: u8 = 1;

impl fmt::Display for WireVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.minor {
            Some(minor) => write!(f, "{}.{minor}", self.major),
            None => write!(f, "{}", self.major),
        }
    }
}
