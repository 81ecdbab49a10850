//! Versions of a model in a run, and the plans that lanes have of them.

use orinoco_core::ModelId;

/// Generation of a model in a run. It rises when the model is replaced while streams use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ModelVersion {
    pub(crate) id: ModelId,
    pub(crate) generation: u32,
}

/// Plan of a model on a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LanePlan {
    pub(crate) lane: usize,
    pub(crate) model: ModelId,
    pub(crate) generation: u32,
}

impl ModelVersion {
    /// Returns the revision of the model in memory plans.
    pub(crate) fn revision(self) -> String {
        match self.generation {
            0 => format!("model {}", self.id),
            generation => format!("model {}, generation {generation}", self.id),
        }
    }
}

impl From<LanePlan> for ModelVersion {
    fn from(plan: LanePlan) -> Self {
        Self { id: plan.model, generation: plan.generation }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_have_their_own_revisions() {
        let revision = |generation| ModelVersion { id: ModelId(3), generation }.revision();
        assert_eq!((revision(0), revision(1)), ("model 3".to_owned(), "model 3, generation 1".to_owned()));
    }
}
