use std::time::Duration;

/// Times that a frame spent in its lane, from which the cause of a late frame follows. In microseconds, which hold 71 minutes:
/// it travels with each frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneTimes {
    queue_us: u32,
    preprocess_us: u32,
    postprocess_us: u32,
}

impl LaneTimes {
    /// Creates the times of a frame that waited for its lane for `queue`, and whose batch was preprocessed and postprocessed for
    /// the other times. What is left of the time in the lane is inference.
    pub fn new(queue: Duration, preprocess: Duration, postprocess: Duration) -> Self {
        let us = |time: Duration| u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
        Self { queue_us: us(queue), preprocess_us: us(preprocess), postprocess_us: us(postprocess) }
    }

    /// Returns the time for which the frame waited for its lane.
    pub fn queue(self) -> Duration {
        Duration::from_micros(self.queue_us.into())
    }

    /// Returns the time for which its batch was preprocessed, for all of its models.
    pub fn preprocess(self) -> Duration {
        Duration::from_micros(self.preprocess_us.into())
    }

    /// Returns the time for which its batch was postprocessed, for all of its models.
    pub fn postprocess(self) -> Duration {
        Duration::from_micros(self.postprocess_us.into())
    }
}
