//! Source of streams whose models infer images of other boards: it has no frames itself.

use std::sync::Arc;
use std::time::Duration;

use orinoco_core::{Clock, Signal};
use orinoco_pipeline::{Poll, Source, SourceError};
use orinoco_uri::SourceKind;

#[cfg(test)]
use super::suite::Samples;
use super::{SourceDescriptor, no_check, no_files};
use crate::slots::SourceNeeds;

/// Source of `cluster://`. It never ends.
struct ClusterSource {
    clock: Arc<dyn Clock>,
    /// Nobody notifies it: it is for waits.
    signal: Arc<dyn Signal>,
}

impl Source for ClusterSource {
    /// Returns at once.
    fn open(&mut self) -> Result<(), SourceError> {
        Ok(())
    }

    fn next(&mut self, wait: Duration) -> Result<Poll, SourceError> {
        let until = self.clock.now() + wait;
        while self.clock.now() < until {
            self.signal.wait(Some(until));
        }
        Ok(Poll::Waiting)
    }

    fn close(&mut self) {}

    fn has_frames(&self) -> bool {
        false
    }
}

pub(crate) const CLUSTER: SourceDescriptor = SourceDescriptor {
    scheme: None,
    opens: |uri| matches!(uri.kind(), SourceKind::Cluster),
    needs: |_, _| SourceNeeds::default(),
    check: no_check,
    files: no_files,
    make: |_, settings| {
        let signal = settings.clock.signal();
        Ok(Box::new(ClusterSource { clock: settings.clock, signal }))
    },
    #[cfg(test)]
    samples: |_| Samples::Lacking("frames: it has none"),
};
