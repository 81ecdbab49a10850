//! Reasons why a change of the running board is refused while it is prepared.

use orinoco_config::Faults;
use orinoco_core::{Diagnosis, codes};

/// Reason why a change of the running board cannot be prepared, other than faults of the board file and its models
/// (`E0110`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PrepareError {
    /// A key has changed that only a restart can change.
    FixedKey {
        /// Name of the board.
        board: String,
        /// The key.
        key: &'static str,
    },
    /// Levels of the governor's choice, for which streams would have to start again.
    LevelRestarts {
        /// Names of the models whose levels they are.
        models: Vec<String>,
    },
    /// The files of a model changed while the change was prepared.
    FilesChanged {
        /// Name of the model.
        model: String,
    },
}

impl From<PrepareError> for Diagnosis {
    fn from(error: PrepareError) -> Self {
        let (subject, cause, next) = match error {
            PrepareError::FixedKey { board, key } => (
                format!("board {board}"),
                format!("`{key}` has changed, but cannot change while the board runs"),
                "restart the daemon, or change it back",
            ),
            PrepareError::LevelRestarts { models } => (
                format!("model {}", models.join(", ")),
                "the variant has implicit state, other labels, another head or another engine, or needs more scratch memory than its \
                 lane has, so that it cannot take over while streams run"
                    .to_owned(),
                "list variants that give the same results in less time, and load the largest one first",
            ),
            PrepareError::FilesChanged { model } => (
                format!("model {model}"),
                "its files changed during the reload".to_owned(),
                "reload the board file again",
            ),
        };
        Self::new(&codes::RELOAD, subject, cause, next)
    }
}

impl From<PrepareError> for Faults {
    fn from(error: PrepareError) -> Self {
        Diagnosis::from(error).into()
    }
}
