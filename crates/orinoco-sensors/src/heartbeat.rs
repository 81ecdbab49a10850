use embedded_hal::digital::OutputPin;

use crate::trigger::Polarity;

/// State that a heartbeat shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HeartbeatState {
    /// Starting: short flashes, five a second.
    #[default]
    Starting,
    /// Running: one flash a second.
    Running,
    /// Running with a warning: two flashes a second, one soon after the other.
    Warning,
    /// Fault: even, twice a second.
    Fault,
}

impl HeartbeatState {
    /// Returns the pattern: milliseconds on, off, on, off, and again from the start.
    const fn pattern(self) -> &'static [u16] {
        match self {
            Self::Starting => &[50, 150],
            Self::Running => &[100, 900],
            Self::Warning => &[100, 150, 100, 650],
            Self::Fault => &[250, 250],
        }
    }
}

/// Light or line that shows a state, and shows a fault when nobody feeds it.
#[derive(Debug)]
pub struct Heartbeat<PIN> {
    pin: PIN,
    polarity: Polarity,
    timeout_us: u64,
    state: HeartbeatState,
    /// Time of the latest feeding; that of the first poll before.
    fed_us: Option<u64>,
    /// State that is shown, with the start of its pattern.
    shown: Option<(HeartbeatState, u64)>,
    /// It has not been fed for longer than the time-out.
    is_silent: bool,
    timeouts: u32,
}

impl<PIN: OutputPin> Heartbeat<PIN> {
    /// Creates a heartbeat that shows [`HeartbeatState::Starting`], and a fault when it has not been fed for
    /// `timeout_us` microseconds. The pin is off until the first poll.
    pub fn new(mut pin: PIN, polarity: Polarity, timeout_us: u64) -> Result<Self, PIN::Error> {
        polarity.release(&mut pin)?;
        let state = HeartbeatState::default();
        Ok(Self {
            pin,
            polarity,
            timeout_us,
            state,
            fed_us: None,
            shown: None,
            is_silent: false,
            timeouts: 0,
        })
    }

    /// Returns the pin, which is turned off first.
    pub fn release(mut self) -> Result<PIN, PIN::Error> {
        self.polarity.release(&mut self.pin)?;
        Ok(self.pin)
    }

    /// Sets the state to show while it is fed.
    pub fn set_state(&mut self, state: HeartbeatState) {
        self.state = state;
    }

    /// Reports that the guarded program is alive.
    pub fn feed(&mut self, now_us: u64) {
        self.fed_us = Some(now_us);
    }

    /// Sets the pin as the pattern has it now, and returns the state that it shows. A poll every 25 ms shows each
    /// pattern as it is.
    pub fn poll(&mut self, now_us: u64) -> Result<HeartbeatState, PIN::Error> {
        let state = self.state_at(now_us);
        let start_us = match self.shown {
            Some((shown, start_us)) if shown == state => start_us,
            _ => now_us,
        };
        self.shown = Some((state, start_us));
        match is_on(state.pattern(), now_us.saturating_sub(start_us)) {
            true => self.polarity.activate(&mut self.pin)?,
            false => self.polarity.release(&mut self.pin)?,
        }
        Ok(state)
    }

    /// Returns how often the feeding has stopped for longer than the time-out.
    pub fn timeouts(&self) -> u32 {
        self.timeouts
    }

    /// Returns the state to show: a fault while nobody feeds it.
    fn state_at(&mut self, now_us: u64) -> HeartbeatState {
        let fed_us = *self.fed_us.get_or_insert(now_us);
        let is_silent = now_us.saturating_sub(fed_us) >= self.timeout_us;
        if is_silent && !self.is_silent {
            self.timeouts = self.timeouts.saturating_add(1);
        }
        self.is_silent = is_silent;
        if is_silent { HeartbeatState::Fault } else { self.state }
    }
}

/// Whether a pattern is on at a time since its start: its durations are on, off, on, off, in milliseconds.
fn is_on(pattern: &[u16], elapsed_us: u64) -> bool {
    let durations_us = || pattern.iter().map(|duration_ms| u64::from(*duration_ms) * 1_000);
    let mut rest_us = elapsed_us % durations_us().sum::<u64>();
    let position = durations_us().position(|duration_us| {
        let is_within = rest_us < duration_us;
        rest_us = rest_us.saturating_sub(duration_us);
        is_within
    });
    position.is_some_and(|position| position % 2 == 0)
}
