//! The GPU's plan: frames to where the GPU reads them, preprocess, engine and head, bound once and replayed. Our launches
//! are captured in two graphs, one on each side of the engine's call.

mod intake;
mod readout;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use orinoco_core::{Clock, Diagnosis, ElementType, Findings, TensorDesc, WithSubject, codes};
use orinoco_cuda::launch::{self, Element};
use orinoco_cuda::{
    CudaError, Device, Filter, FilterBounds, FrameTable, Graph, Order, PictureTensor, Placement, Ran, Span,
    Stream, TableLayout,
};
use orinoco_pipeline::{Executor, Frame, StageTimes};
use orinoco_vision::{ColorOrder, InputSpec, Mapping, Resize};

use self::intake::Intake;
use self::readout::Readout;
use crate::engine::{Prepared, Session};
use crate::executor::check_count;
use crate::stream::ExecutionStream;
use orinoco_model::{Binding, Model};

/// The longest side of a frame for the antialiased resize, whose weights have room in the table from the start.
const FRAME_SIDE_MAX: u32 = 4096;

/// One model's plan for one batch size, on a GPU.
pub struct CudaPlan {
    file: PathBuf,
    spec: InputSpec,
    batch: usize,
    session: Box<dyn Session>,
    intake: Intake,
    table: FrameTable,
    /// The session's input, and what goes in.
    input: Span,
    tensor: PictureTensor,
    mappings: Vec<Mapping>,
    readout: Readout,
    before: Graph,
    after: Graph,
    stream: ExecutionStream,
    clock: Arc<dyn Clock>,
}

impl CudaPlan {
    /// Whether the kernels can do what `model` needs beside its engine: it takes pictures only, in floating point or plain
    /// bytes, and gives what it computed without scales.
    pub fn serves(model: &Model, binding: &Binding, inputs: &[TensorDesc]) -> bool {
        let plain = model.input_quantization.is_none() && model.output_quantization.is_none();
        let element = inputs[binding.input].element.and_then(kernel_element);
        plain && model.input.image().is_some() && model.feeds.is_empty() && element.is_some()
    }

    /// Binds `model`, which it [serves](Self::serves), to a session of `prepared` on `device`.
    pub fn new(
        model: &Model,
        binding: &Binding,
        prepared: &dyn Prepared,
        mut session: Box<dyn Session>,
        device: &Device,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, Diagnosis> {
        let spec = model.input.image().expect("it takes pictures").clone();
        let input = session.input(binding.input).device().clone();
        let element = kernel_element(input.element).expect("the kernels write its type");
        let make = || -> Result<_, CudaError> {
            let stream = ExecutionStream::Device(device.stream()?);
            let table = FrameTable::new(device, layout_for(&spec, binding.batch))?;
            let readout = Readout::new(model, prepared, session.as_ref(), binding.batch, device)?;
            Ok((stream, table, readout))
        };
        let (stream, table, readout) = make().map_err(|why| failed(&model.file, &why))?;
        let next = "correct model.toml (`orinoco models show` prints the graph)";
        let readout = readout.about(&codes::MODEL_DISAGREES, model.file.display(), next)?;
        Ok(Self {
            file: model.file.clone(),
            batch: binding.batch,
            session,
            intake: Intake::new(device, binding.batch),
            table,
            input: input.span,
            tensor: tensor_of(&spec, element),
            mappings: vec![Mapping::default(); binding.batch],
            readout,
            before: Graph::new(),
            after: Graph::new(),
            stream,
            clock,
            spec,
        })
    }

    /// Leaves the frames in the engine's input. A batch shorter than the plan's leaves the rest as it was.
    fn preprocess(&mut self, frames: &[Frame]) -> Result<Ran, Diagnosis> {
        self.fill_table(frames)?;
        let Self { before, stream, table, tensor, input, intake, file, .. } = self;
        let stream = on_gpu(stream);
        let ran = before.run(stream, 0, |stream| {
            table.upload(stream)?;
            launch::preprocess(stream, &table.span(), tensor, input)
        });
        let ran = ran.and_then(|ran| {
            intake.release(stream)?;
            stream.synchronize()?;
            Ok(ran)
        });
        ran.map_err(|why| failed(file, &why))
    }

    fn fill_table(&mut self, frames: &[Frame]) -> Result<(), Diagnosis> {
        let Self { intake, stream, file, .. } = self;
        intake.make_room(frames).map_err(|why| failed(file, &why))?;
        for (item, frame) in frames.iter().enumerate() {
            let placed = intake.place(item, frame, on_gpu(stream));
            let (desc, span) = placed.map_err(|why| failed(file, &why))?;
            let mapping = self.spec.mapping(desc.width, desc.height);
            let set = self.table.set(item, &desc, &span, placement(&mapping));
            let next = "make the source's frames smaller, or use an engine on the CPU";
            set.about(&codes::ENGINE_RUN, file.display(), next)?;
            self.mappings[item] = mapping;
        }
        (frames.len()..self.batch).for_each(|item| self.table.clear(item));
        Ok(())
    }

    fn postprocess(&mut self, findings: &mut [Findings]) -> Result<Ran, Diagnosis> {
        let Self { after, stream, table, readout, mappings, file, .. } = self;
        let stream = on_gpu(stream);
        let mut read = || -> Result<Ran, CudaError> {
            let ran = after.run(stream, 0, |stream| readout.record(stream, &table.span()))?;
            stream.synchronize()?;
            readout.read(stream, mappings, findings)?;
            Ok(ran)
        };
        read().map_err(|why| failed(file, &why))
    }
}

impl Executor for CudaPlan {
    fn batch_max(&self) -> usize {
        self.batch
    }

    fn reads_video_memory(&self) -> bool {
        self.intake.reads_video_memory()
    }

    fn replay(&mut self, frames: &[Frame], findings: &mut [Findings]) -> Result<StageTimes, Diagnosis> {
        check_count(frames, self.batch);
        let times = self.replay_lent(frames, findings);
        self.give_back(frames);
        times
    }
}

impl CudaPlan {
    fn replay_lent(&mut self, frames: &[Frame], findings: &mut [Findings]) -> Result<StageTimes, Diagnosis> {
        let start = self.clock.now();
        let before = self.preprocess(frames)?;
        let ready = self.clock.now();
        self.session.enqueue(&self.stream)?;
        self.stream.wait().map_err(|why| failed(&self.file, &why))?;
        let inferred = self.clock.now();
        let after = self.postprocess(findings)?;
        let done = self.clock.now();
        Ok(StageTimes {
            preprocess: ready.since(start),
            infer: inferred.since(ready),
            postprocess: done.since(inferred),
            graph_fallbacks: u32::from(before == Ran::Directly) + u32::from(after == Ran::Directly),
        })
    }

    /// Lets go of those frames that decoders wait for.
    fn give_back(&mut self, frames: &[Frame]) {
        if !frames.iter().any(intake::is_lent) {
            return;
        }
        // After a fault something may still be on its way; what cannot be waited for does not run any more either.
        let _ = self.stream.wait();
        (0..self.batch).for_each(|item| self.table.clear(item));
    }
}

/// The stream that a plan on the GPU has.
fn on_gpu(stream: &ExecutionStream) -> &Stream {
    stream.device().expect("it was made on the GPU")
}

/// What kernels call a tensor's elements, if they know them.
fn kernel_element(element: ElementType) -> Option<Element> {
    match element {
        ElementType::F32 => Some(Element::F32),
        ElementType::F16 => Some(Element::F16),
        ElementType::U8 => Some(Element::U8),
        _ => None,
    }
}

fn tensor_of(spec: &InputSpec, element: Element) -> PictureTensor {
    PictureTensor {
        width: spec.width,
        height: spec.height,
        order: match spec.color {
            ColorOrder::Rgb => Order::Rgb,
            ColorOrder::Bgr => Order::Bgr,
            ColorOrder::Gray => Order::Gray,
        },
        layout: spec.layout,
        element,
        filter: match spec.resize {
            Resize::Bilinear => Filter::Bilinear,
            Resize::BilinearAntialias => Filter::Antialias,
        },
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

/// A call of the driver that failed while a model ran.
fn failed(file: &Path, why: &CudaError) -> Diagnosis {
    let next =
        "see `orinoco doctor` and the kernel's log; after a fault of the GPU the process has to start again";
    Diagnosis::new(&codes::ENGINE_RUN, file.display(), format!("{why}: {}", why.source), next)
}
