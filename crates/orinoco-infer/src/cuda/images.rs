//! Adapter that preprocesses frames on the GPU, into an input there.

use std::sync::Arc;

use orinoco_core::Resize;
use orinoco_cuda::launch::{self, Element};
use orinoco_cuda::{
    CudaError, Device, FilterBounds, FrameTable, Graph, GraphRun, ImageTensor, Placement, Span, Stream,
    TableLayout, TableSpan,
};
use orinoco_pipeline::Frame;
use orinoco_vision::{InputSpec, Mapping};

use super::intake::{Intake, is_lent};
use crate::bound::Adapter;
use crate::engine::Session;
use crate::marks::{Mark, StageMarks};
use crate::plan_error::ExecuteError;
use crate::stream::ExecutionStream;
use crate::tensor::DeviceTensor;

/// Maximum side of a frame for the antialiased resize, in pixels. The table reserves space for its weights at the
/// start.
const FRAME_SIDE_MAX: u32 = 4096;

/// Adapter that preprocesses frames on the GPU, into the session's input there.
pub(crate) struct DeviceImages {
    spec: InputSpec,
    batch: usize,
    intake: Intake,
    table: FrameTable,
    /// Memory of the session's input, and its format.
    input: Span,
    tensor: ImageTensor,
    mappings: Vec<Mapping>,
    graph: Graph,
    marks: Arc<StageMarks>,
}

impl DeviceImages {
    pub(super) fn new(
        spec: &InputSpec,
        input: &DeviceTensor,
        batch: usize,
        marks: Arc<StageMarks>,
        device: &Device,
    ) -> Result<Self, CudaError> {
        let element = Element::of(input.element).expect("the kernels write its type");
        Ok(Self {
            batch,
            intake: Intake::new(device, batch),
            table: FrameTable::new(device, layout_for(spec, batch))?,
            input: input.span.clone(),
            tensor: tensor_of(spec, element),
            mappings: vec![Mapping::default(); batch],
            graph: Graph::new(),
            marks,
            spec: spec.clone(),
        })
    }

    /// Returns the table of the frames, as kernels read it.
    pub(super) fn table(&self) -> TableSpan {
        self.table.span()
    }

    /// Whether frames in a Jetson's video memory are read in place.
    pub(crate) fn reads_video_memory(&self) -> bool {
        self.intake.reads_video_memory()
    }

    fn fill_table(&mut self, frames: &[Frame], stream: &Stream) -> Result<(), ExecuteError> {
        self.intake.make_room(frames)?;
        for (item, frame) in frames.iter().enumerate() {
            let (desc, span) = self.intake.place(item, frame, stream)?;
            let mapping = self.spec.mapping(desc.width, desc.height);
            let set = self.table.set(item, &desc, &span, placement(&mapping));
            set.map_err(ExecuteError::Frame)?;
            self.mappings[item] = mapping;
        }
        (frames.len()..self.batch).for_each(|item| self.table.clear(item));
        Ok(())
    }
}

impl Adapter<[Frame]> for DeviceImages {
    fn write(
        &mut self,
        frames: &[Frame],
        _: &mut dyn Session,
        stream: &ExecutionStream,
    ) -> Result<u32, ExecuteError> {
        let stream = on_gpu(stream);
        self.fill_table(frames, stream)?;
        let Self { graph, table, tensor, input, intake, marks, .. } = self;
        marks.record(Mark::Started, stream)?;
        let ran = graph.run(stream, 0, |stream| {
            table.upload(stream)?;
            launch::preprocess(stream, &table.span(), tensor, input)
        })?;
        marks.record(Mark::Preprocessed, stream)?;
        intake.release(stream)?;
        // The engine would wait for it, too. Waiting here counts the time as preprocessing.
        stream.synchronize()?;
        Ok(u32::from(ran == GraphRun::Directly))
    }

    fn mappings(&self) -> &[Mapping] {
        &self.mappings
    }

    /// Releases the frames that a decoder waits for.
    fn release(&mut self, frames: &[Frame], stream: &ExecutionStream) {
        if !frames.iter().any(is_lent) {
            return;
        }
        // After an error, queued work may still run. If the wait fails, that work does not run any more either.
        let _ = stream.wait();
        (0..self.batch).for_each(|item| self.table.clear(item));
    }
}

/// Returns the CUDA stream of a model that is bound on the GPU. Panics for another stream.
pub(super) fn on_gpu(stream: &ExecutionStream) -> &Stream {
    stream.device().expect("it was made on the GPU")
}

fn tensor_of(spec: &InputSpec, element: Element) -> ImageTensor {
    ImageTensor {
        width: spec.width,
        height: spec.height,
        order: spec.color,
        layout: spec.layout,
        element,
        filter: spec.resize,
        mean: spec.mean,
        scale: spec.scale,
        fill: spec.fill,
    }
}

fn layout_for(spec: &InputSpec, batch: usize) -> TableLayout {
    match spec.resize {
        Resize::Bilinear => TableLayout::bilinear(batch),
        Resize::BilinearAntialias => {
            let input = (spec.width, spec.height);
            TableLayout::antialiased(batch, FilterBounds { frame_side_max: FRAME_SIDE_MAX, input })
        }
    }
}

fn placement(mapping: &Mapping) -> Placement {
    Placement { offset: mapping.offset, size: mapping.size, scale: mapping.scale }
}
