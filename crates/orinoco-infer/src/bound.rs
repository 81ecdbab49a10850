//! Model bound to an engine's session. An adapter before the session writes the model's input, and a readout after it
//! reads results from the outputs. The structure is the same for images and sound, on the host and on the GPU.

use std::path::PathBuf;
use std::sync::Arc;

use orinoco_core::{InferenceResult, Nanos};
use orinoco_pipeline::DeviceTimes;
use orinoco_vision::Mapping;

use crate::engine::Session;
use crate::engine_error::EngineError;
use crate::marks::{Mark, StageMarks};
use crate::plan_error::ExecuteError;
use crate::states::States;
use crate::stream::ExecutionStream;

/// Writes `Work` (the frames of a batch, or a window of sound) into the inputs of a session.
pub(crate) trait Adapter<Work: ?Sized> {
    /// Writes `work` into the inputs of `session`. If it fills less than the batch, the rest keeps its values. Returns
    /// the number of CUDA graphs whose launches had to be made one by one; 0 on the CPU.
    fn write(
        &mut self,
        work: &Work,
        session: &mut dyn Session,
        stream: &ExecutionStream,
    ) -> Result<u32, ExecuteError>;

    /// Returns the mapping of each item of the latest work from its source to the input.
    fn mappings(&self) -> &[Mapping];

    /// Releases the memory of `work` that its producer waits for, after an execution or an error.
    fn release(&mut self, work: &Work, stream: &ExecutionStream) {
        let _ = (work, stream);
    }
}

/// Reads results from the outputs of a session.
pub(crate) trait Readout {
    /// Reads as many items of the latest run as there are `results`. Returns the same number as [`Adapter::write`].
    fn read(
        &mut self,
        session: &dyn Session,
        mappings: &[Mapping],
        stream: &ExecutionStream,
        results: &mut [InferenceResult],
    ) -> Result<u32, ExecuteError>;
}

/// Model bound to a session, with its adapter and readout.
pub(crate) struct BoundModel<A, R> {
    pub(crate) file: PathBuf,
    pub(crate) adapter: A,
    pub(crate) session: Box<dyn Session>,
    /// Outputs that are copied back into inputs (implicit state).
    pub(crate) states: States,
    pub(crate) readout: R,
    pub(crate) stream: ExecutionStream,
    /// Marks of the stages in `stream`, on a GPU.
    pub(crate) marks: Option<Arc<StageMarks>>,
}

impl<A, R: Readout> BoundModel<A, R> {
    /// Writes `work` into the inputs.
    pub(crate) fn write<W: ?Sized>(&mut self, work: &W) -> Result<u32, ExecuteError>
    where
        A: Adapter<W>,
    {
        self.adapter.write(work, self.session.as_mut(), &self.stream)
    }

    /// Executes one inference, and returns when it is done.
    pub(crate) fn infer(&mut self) -> Result<(), EngineError> {
        let Self { stream, marks, .. } = self;
        self.session.enqueue(stream)?;
        let marks = marks.as_deref().zip(stream.device());
        marks.map_or(Ok(()), |(marks, stream)| marks.record(Mark::Inferred, stream))?;
        stream.wait()?;
        self.states.carry(self.session.as_mut());
        Ok(())
    }

    /// Reads results from the outputs of the latest run.
    pub(crate) fn read<W: ?Sized>(&mut self, results: &mut [InferenceResult]) -> Result<u32, ExecuteError>
    where
        A: Adapter<W>,
    {
        self.readout.read(self.session.as_ref(), self.adapter.mappings(), &self.stream, results)
    }

    /// The latest execution by the clock of its GPU, if it has one; `inferred` is when [`Self::infer`] returned.
    pub(crate) fn device_times(&self, inferred: Nanos) -> Option<DeviceTimes> {
        self.marks.as_ref()?.times(inferred)
    }

    /// Releases the memory of `work` that its producer waits for.
    pub(crate) fn release<W: ?Sized>(&mut self, work: &W)
    where
        A: Adapter<W>,
    {
        self.adapter.release(work, &self.stream);
    }

    /// Resets the implicit states to zero.
    pub(crate) fn reset(&mut self) {
        self.states.reset(self.session.as_mut());
    }
}
