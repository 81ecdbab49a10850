use orinoco_core::{Choice, Watts};

/// Setting of the board that changes how much power it takes: a ladder of levels, of which one is set.
#[derive(Clone, Debug, PartialEq)]
pub struct Actuator {
    /// Kind of setting.
    pub kind: ActuatorKind,
    /// Name, such as `power-mode` or `devfreq/17000000.gpu`.
    pub name: String,
    /// Levels in ascending order of power.
    pub levels: Vec<Level>,
    /// Index of the level that is set.
    pub current: usize,
    /// Whether a higher level alone changes the power little, because another actuator, whose setting stays, bounds it: a power
    /// mode whose clocks are capped.
    pub is_guarded: bool,
}

/// Level of an actuator.
#[derive(Clone, Debug, PartialEq)]
pub struct Level {
    /// Name, such as `15W` or `612 MHz`.
    pub name: String,
    /// Expected power of the board at this level, relative to the other levels. It is above 0.
    pub scale: f64,
    /// Greatest power at this level by the maker's data; `None` where there are none.
    pub ceiling: Option<Watts>,
}

/// Kind of an actuator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActuatorKind {
    /// Power mode of `nvpmodel`. It changes at most once in [`MODE_DWELL`](crate::MODE_DWELL).
    PowerMode,
    /// Highest clock of the GPU or of a group of cores.
    Clock,
    /// Inference interval: a lower level infers fewer of the frames.
    Interval,
    /// Variant of a model: a lower level is a smaller model.
    ModelVariant,
}

impl ActuatorKind {
    /// Whether a lower level makes every inference slower. The other kinds make less work of the frames instead.
    pub fn is_speed(self) -> bool {
        matches!(self, Self::PowerMode | Self::Clock)
    }
}

impl Choice for ActuatorKind {
    const ALL: &'static [Self] = &[Self::PowerMode, Self::Clock, Self::Interval, Self::ModelVariant];

    fn name(self) -> &'static str {
        match self {
            Self::PowerMode => "power-mode",
            Self::Clock => "clock",
            Self::Interval => "interval",
            Self::ModelVariant => "model-variant",
        }
    }
}

impl Actuator {
    /// Returns the level below the one that is set.
    pub(crate) fn lower(&self) -> Option<usize> {
        self.current.checked_sub(1).filter(|lower| *lower < self.levels.len())
    }

    /// Returns the level above the one that is set.
    pub(crate) fn higher(&self) -> Option<usize> {
        Some(self.current + 1).filter(|higher| *higher < self.levels.len())
    }

    /// Returns how much more power a level is expected to take than the one that is set: 1.1 for 10 % more.
    pub(crate) fn ratio_to(&self, level: usize) -> f64 {
        self.levels[level].scale / self.levels[self.current].scale
    }

    /// Returns the position on the ladder, from 0 (lowest) to 1.
    pub(crate) fn height(&self) -> f64 {
        self.current as f64 / (self.levels.len().max(2) - 1) as f64
    }
}
