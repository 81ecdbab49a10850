use embedded_hal::delay::DelayNs;
use embedded_hal::digital::OutputPin;

/// Level of a pin while it is active.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Polarity {
    /// High while active.
    #[default]
    ActiveHigh,
    /// Low while active.
    ActiveLow,
}

impl Polarity {
    /// Makes the pin active.
    pub(crate) fn activate<PIN: OutputPin>(self, pin: &mut PIN) -> Result<(), PIN::Error> {
        match self {
            Self::ActiveHigh => pin.set_high(),
            Self::ActiveLow => pin.set_low(),
        }
    }

    /// Makes the pin idle.
    pub(crate) fn release<PIN: OutputPin>(self, pin: &mut PIN) -> Result<(), PIN::Error> {
        match self {
            Self::ActiveHigh => pin.set_low(),
            Self::ActiveLow => pin.set_high(),
        }
    }
}

/// Settings of a [`Trigger`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TriggerConfig {
    /// Level during a pulse.
    pub polarity: Polarity,
    /// Duration of a pulse, in microseconds.
    pub width_us: u32,
    /// Time that the pin is idle after a pulse, at least, in microseconds: a camera that is triggered while it reads
    /// out its sensor drops the frame, or the one before.
    pub recovery_us: u32,
}

/// State of a trigger that was asked to start a pulse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// The pulse has begun.
    Started,
    /// A pulse or its recovery is under way, so none was begun.
    Busy {
        /// Time at which one can begin, in microseconds.
        until_us: u64,
    },
}

/// Trigger output for a camera: a pulse of a set width on a pin.
///
/// [`fire`](Self::fire) waits until the pulse has ended; [`start`](Self::start) and [`poll`](Self::poll) do not wait.
/// The pulse is at least as long as its width, and longer by what the caller polls late.
#[derive(Debug)]
pub struct Trigger<PIN> {
    pin: PIN,
    config: TriggerConfig,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Idle,
    Active { until_us: u64 },
    Recovering { until_us: u64 },
}

impl<PIN: OutputPin> Trigger<PIN> {
    /// Creates the trigger, and makes the pin idle.
    pub fn new(mut pin: PIN, config: TriggerConfig) -> Result<Self, PIN::Error> {
        config.polarity.release(&mut pin)?;
        Ok(Self { pin, config, state: State::Idle })
    }

    /// Returns the pin, which is made idle first.
    pub fn release(mut self) -> Result<PIN, PIN::Error> {
        self.config.polarity.release(&mut self.pin)?;
        Ok(self.pin)
    }

    /// Makes one pulse and waits for its end and recovery. It ends a pulse that was started and is not over.
    pub fn fire(&mut self, delay: &mut impl DelayNs) -> Result<(), PIN::Error> {
        if let State::Active { .. } = self.state {
            self.config.polarity.release(&mut self.pin)?;
            delay.delay_us(self.config.recovery_us);
        }
        self.config.polarity.activate(&mut self.pin)?;
        delay.delay_us(self.config.width_us);
        self.config.polarity.release(&mut self.pin)?;
        delay.delay_us(self.config.recovery_us);
        self.state = State::Idle;
        Ok(())
    }

    /// Starts a pulse, which [`poll`](Self::poll) ends.
    pub fn start(&mut self, now_us: u64) -> Result<Start, PIN::Error> {
        self.poll(now_us)?;
        match self.state {
            State::Active { until_us } => {
                Ok(Start::Busy { until_us: until_us.saturating_add(self.config.recovery_us.into()) })
            }
            State::Recovering { until_us } => Ok(Start::Busy { until_us }),
            State::Idle => {
                self.config.polarity.activate(&mut self.pin)?;
                self.state = State::Active { until_us: now_us.saturating_add(self.config.width_us.into()) };
                Ok(Start::Started)
            }
        }
    }

    /// Ends the pulse if its time has come. Returns when to poll again, in microseconds; `None` while the trigger is
    /// idle.
    pub fn poll(&mut self, now_us: u64) -> Result<Option<u64>, PIN::Error> {
        if let State::Active { until_us } = self.state
            && now_us >= until_us
        {
            self.config.polarity.release(&mut self.pin)?;
            self.state =
                State::Recovering { until_us: now_us.saturating_add(self.config.recovery_us.into()) };
        }
        if let State::Recovering { until_us } = self.state
            && now_us >= until_us
        {
            self.state = State::Idle;
        }
        Ok(match self.state {
            State::Idle => None,
            State::Active { until_us } | State::Recovering { until_us } => Some(until_us),
        })
    }
}
