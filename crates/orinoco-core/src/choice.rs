//! Closed sets of values that have names in files and messages.

/// One of a closed set of values, each with a name in files and messages. The names are contracts.
pub trait Choice: Copy + 'static {
    /// Every value, in the order in which messages list the names.
    const ALL: &'static [Self];

    /// Returns the name of this value.
    fn name(self) -> &'static str;

    /// Returns the value called `name`, if there is one.
    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|value| value.name() == name)
    }
}
