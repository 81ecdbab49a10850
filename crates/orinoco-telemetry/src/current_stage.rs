//! Stage that a lane's thread is in, readable from outside, also while it hangs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use orinoco_core::ModelId;

use crate::Stage;

/// Stage that a lane's thread is in. It is one atomic number: setting it costs less than 1 ns.
#[derive(Clone, Debug, Default)]
pub struct CurrentStage(Arc<AtomicU64>);

/// Setter of a lane's current stage, for one model on that lane.
#[derive(Clone, Debug)]
pub struct StageSetter {
    current: CurrentStage,
    model: ModelId,
}

impl CurrentStage {
    /// Returns the model and the stage that the thread is in; `None` while it executes no model.
    pub fn get(&self) -> Option<(ModelId, Stage)> {
        let packed = self.0.load(Ordering::Relaxed);
        let stage = usize::try_from(packed & 0xff).ok()?.checked_sub(1)?;
        Some((ModelId((packed >> 8) as u32), *Stage::ALL.get(stage)?))
    }

    /// Returns the setter for a model that the lane executes.
    pub fn of(&self, model: ModelId) -> StageSetter {
        StageSetter { current: self.clone(), model }
    }

    /// Says that the thread executes no model any more.
    pub fn clear(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

impl StageSetter {
    /// Says that the thread enters a stage of the model.
    pub fn enter(&self, stage: Stage) {
        let packed = u64::from(self.model.0) << 8 | (stage as u64 + 1);
        self.current.0.store(packed, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stage_that_was_entered_last_is_shown() {
        let current = CurrentStage::default();
        assert_eq!(current.get(), None);
        let (first, last) = (current.of(ModelId(0)), current.of(ModelId(u32::MAX)));
        for stage in Stage::ALL {
            first.enter(stage);
            assert_eq!(current.get(), Some((ModelId(0), stage)));
            last.enter(stage);
            assert_eq!(current.get(), Some((ModelId(u32::MAX), stage)));
        }
        current.clear();
        assert_eq!(current.get(), None);
    }
}
