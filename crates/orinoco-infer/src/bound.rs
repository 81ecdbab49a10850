//! A model bound to an engine's session: an adapter in front, which writes what the model is given into the inputs that
//! the session lends, and a readout behind, which makes findings of the outputs. It is the same for pictures and sound, on
//! the host and on the GPU.

use std::path::PathBuf;
use std::sync::Arc;

use orinoco_core::{Diagnosis, InferenceResult, Nanos};
use orinoco_pipeline::DeviceTimes;
use orinoco_vision::Mapping;

use crate::engine::Session;
use crate::faults::device_failed;
use crate::marks::{Mark, StageMarks};
use crate::states::States;
use crate::stream::ExecutionStream;

/// What is in front of a model whose work is a `Work`: the frames of a batch, or a window of sound.
pub(crate) trait Adapter<Work: ?Sized> {
    /// Leaves `work` in the inputs of `session`. Work that fills less than the batch leaves the rest as it was. Returns how
    /// many captured sequences had to be launched call by call.
    fn write(
        &mut self,
        work: &Work,
        session: &mut dyn Session,
        stream: &ExecutionStream,
    ) -> Result<u32, Diagnosis>;

    /// Where each item of the latest work lies in the input.
    fn mappings(&self) -> &[Mapping];

    /// Lets go of what somebody waits for of `work`, which was executed or failed.
    fn release(&mut self, work: &Work, stream: &ExecutionStream) {
        let _ = (work, stream);
    }
}

/// What is behind a model.
pub(crate) trait Readout {
    /// Reads as many items of the latest run as there are `results`. Returns as [`Adapter::write`].
    fn read(
        &mut self,
        session: &dyn Session,
        mappings: &[Mapping],
        stream: &ExecutionStream,
        results: &mut [InferenceResult],
    ) -> Result<u32, Diagnosis>;
}

/// A model bound to a session.
pub(crate) struct BoundModel<A, R> {
    pub(crate) file: PathBuf,
    pub(crate) adapter: A,
    pub(crate) session: Box<dyn Session>,
    /// Outputs that go back into inputs.
    pub(crate) states: States,
    pub(crate) readout: R,
    pub(crate) stream: ExecutionStream,
    /// Marks of the stages in `stream`, on a GPU.
    pub(crate) marks: Option<Arc<StageMarks>>,
}

impl<A, R: Readout> BoundModel<A, R> {
    /// Leaves `work` in the inputs.
    pub(crate) fn write<W: ?Sized>(&mut self, work: &W) -> Result<u32, Diagnosis>
    where
        A: Adapter<W>,
    {
        self.adapter.write(work, self.session.as_mut(), &self.stream)
    }

    /// One inference, which is done when this returns.
    pub(crate) fn infer(&mut self) -> Result<(), Diagnosis> {
        let Self { file, stream, marks, .. } = self;
        self.session.enqueue(stream)?;
        let marks = marks.as_deref().zip(stream.device());
        let marked = marks.map_or(Ok(()), |(marks, stream)| marks.record(Mark::Inferred, stream));
        marked.and_then(|()| stream.wait()).map_err(|why| device_failed(file, &why))?;
        self.states.carry(self.session.as_mut());
        Ok(())
    }

    /// Makes findings of the outputs.
    pub(crate) fn read<W: ?Sized>(&mut self, results: &mut [InferenceResult]) -> Result<u32, Diagnosis>
    where
        A: Adapter<W>,
    {
        self.readout.read(self.session.as_ref(), self.adapter.mappings(), &self.stream, results)
    }

    /// The latest execution by the clock of its GPU, if it has one; `inferred` is when [`Self::infer`] returned.
    pub(crate) fn device_times(&self, inferred: Nanos) -> Option<DeviceTimes> {
        self.marks.as_ref()?.times(inferred)
    }

    /// Lets go of `work`.
    pub(crate) fn release<W: ?Sized>(&mut self, work: &W)
    where
        A: Adapter<W>,
    {
        self.adapter.release(work, &self.stream);
    }

    /// Forgets what went before: states are zero again.
    pub(crate) fn reset(&mut self) {
        self.states.reset(self.session.as_mut());
    }
}
