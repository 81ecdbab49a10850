use std::sync::Arc;

use zeroize::Zeroizing;

use super::{ShmGroup, join};
use crate::split::divide;
use crate::{JoinError, KeyError};

/// Bytes of a file's name. Nobody can guess it, so nobody can be there first.
const NAME_BYTES: usize = 16;

impl ShmGroup {
    /// Makes groups of this group's ranks, as `MPI_Comm_split` does. Ranks that name the same colour form one, in the order of
    /// their keys and then of their ranks here; a rank without a colour belongs to none, and gets `None`. All ranks must call it.
    ///
    /// The new group has the settings of this one. The two are independent: a failure of one does not end the other, and each names
    /// ranks by its own numbers. Making a group takes about as long as joining one, some milliseconds, and each has memory and a
    /// thread of its own: make it once, and use it again and again.
    ///
    /// # Errors
    /// If this group has failed, or if the ranks of the new group cannot join it (see [`ShmGroup::join`]).
    pub fn split(&mut self, color: Option<u32>, key: i32) -> Result<Option<Self>, JoinError> {
        let name = || {
            let mut name = Zeroizing::new([0; NAME_BYTES]);
            getrandom::fill(&mut *name).map_err(|error| KeyError::Randomness(error.to_string()))?;
            Ok(((), name))
        };
        let Some(((), part)) = divide(self, color, key, name)? else { return Ok(None) };
        let name = u128::from_le_bytes(*part.members[0].offer);
        let path = self.path.with_file_name(format!("orinoco-{name:032x}"));
        let (ranks, settings) = (part.members.len(), self.waiting.settings());
        let (segment, file) = join::join(&path, part.rank, ranks, settings.deadline)?;
        // All have mapped it, so nobody comes any more. Nobody else would remove the file of a rank that is killed later: no other group
        // meets at this name.
        drop(file);
        Self::of(Arc::new(segment), path, part.rank, ranks, settings).map(Some)
    }
}
