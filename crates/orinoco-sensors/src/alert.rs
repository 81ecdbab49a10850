/// Behaviour of an alert flag and its pin after the fault has gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AlertLatch {
    /// They follow the fault.
    #[default]
    Transparent,
    /// They stay until the flags are read.
    Latched,
}

/// Level of an alert pin while there is an alert.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AlertPolarity {
    /// Low; the pin is an open drain.
    #[default]
    ActiveLow,
    /// High.
    ActiveHigh,
}

/// Signal of the alert pin for a finished conversion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConversionSignal {
    /// None.
    #[default]
    Off,
    /// The pin also reports each finished conversion.
    AlertPin,
}
