//! Readout of results from outputs on the GPU: kernels extract boxes and classes, and for every other head the outputs
//! are copied to the host.

use std::sync::Arc;

use half::f16;
use orinoco_core::{BoxF, ClassScore, Detection, ElementType, InferenceResult, TensorDesc};
use orinoco_cuda::launch::{
    self, BoxRows, CANDIDATES_MAX, CLASS_BYTES, Candidate, CandidateLists, Classify, Decode, Element,
    KeptLists, Suppress, Totals,
};
use orinoco_cuda::{CudaError, Device, DeviceArena, Graph, GraphRun, PinnedBuffer, Span, Stream, TableSpan};
use orinoco_model::Model;
use orinoco_vision::heads::OutputForm;
use orinoco_vision::{Across, Head, HeadSpec, InputSpec, Mapping, Output};

use super::images::on_gpu;
use crate::bound::Readout;
use crate::engine::{Prepared, Session};
use crate::head::{OUTPUTS_MAX, as_bound, build, too_many};
use crate::marks::{Mark, StageMarks};
use crate::plan_error::{ExecuteError, PlanError};
use crate::stream::ExecutionStream;
use crate::tensor::DeviceTensor;

/// Readout of a model whose outputs are on the GPU.
pub(crate) struct DeviceHead {
    how: ReadoutPath,
    shared: SharedParts,
    graph: Graph,
}

/// Parts that the head shares with what is in front of the model.
pub(super) struct SharedParts {
    /// The table of the frames.
    pub(super) table: TableSpan,
    pub(super) marks: Arc<StageMarks>,
}

/// Method that decodes the outputs.
enum ReadoutPath {
    /// Kernels decode boxes.
    Boxes(Boxes),
    /// Kernels select the best classes.
    Classes(Classes),
    /// The head on the CPU reads a copy of the outputs.
    Host(CopiedHead),
}

impl DeviceHead {
    /// Builds the readout for the outputs of `session`.
    pub(super) fn new(
        model: &Model,
        prepared: &dyn Prepared,
        session: &dyn Session,
        batch: usize,
        shared: SharedParts,
        device: &Device,
    ) -> Result<Self, PlanError> {
        let how = ReadoutPath::new(model, prepared, session, batch, device)?;
        Ok(Self { how, shared, graph: Graph::new() })
    }
}

impl Readout for DeviceHead {
    fn read(
        &mut self,
        _: &dyn Session,
        mappings: &[Mapping],
        stream: &ExecutionStream,
        results: &mut [InferenceResult],
    ) -> Result<u32, ExecuteError> {
        let Self { how, shared: SharedParts { table, marks }, graph } = self;
        let stream = on_gpu(stream);
        let ran = graph.run(stream, 0, |stream| how.record(stream, table))?;
        marks.record(Mark::Read, stream)?;
        stream.synchronize()?;
        how.read(stream, mappings, results)?;
        Ok(u32::from(ran == GraphRun::Directly))
    }
}

impl ReadoutPath {
    /// Selects the method for the outputs of `session`.
    fn new(
        model: &Model,
        prepared: &dyn Prepared,
        session: &dyn Session,
        batch: usize,
        device: &Device,
    ) -> Result<Self, PlanError> {
        let outputs: Vec<DeviceTensor> =
            (0..prepared.outputs().len()).map(|index| session.output(index).device().clone()).collect();
        let outputs = outputs.as_slice();
        let host = CopiedHead::new(model, prepared.outputs(), outputs, batch, device)?;
        let [output] = outputs else { return Ok(Self::Host(host)) };
        let Some(element) = Element::of(output.element) else { return Ok(Self::Host(host)) };
        let spec = &model.head;
        if spec.kind.form == OutputForm::Classes {
            return Ok(Self::Classes(Classes::new(spec, output, element, batch, device)?));
        }
        Ok(match box_rows(spec, &model.head_input(), &output.shape) {
            Some(rows) => Self::Boxes(Boxes::new(spec, rows, output, element, host, batch, device)?),
            None => Self::Host(host),
        })
    }

    /// Queues the kernels and copies that bring the results of a run to the host.
    fn record(&self, stream: &Stream, table: &TableSpan) -> Result<(), CudaError> {
        match self {
            Self::Boxes(boxes) => boxes.record(stream, table),
            Self::Classes(classes) => classes.record(stream),
            Self::Host(host) => host.record(stream),
        }
    }

    /// Reads as many `results`, once the queued work is done.
    fn read(
        &mut self,
        stream: &Stream,
        mappings: &[Mapping],
        results: &mut [InferenceResult],
    ) -> Result<(), CudaError> {
        match self {
            Self::Boxes(boxes) => return boxes.read(stream, mappings, results),
            Self::Classes(classes) => classes.read(results),
            Self::Host(host) => host.read(mappings, results),
        }
        Ok(())
    }
}

/// Returns the layout of the boxes in a head's output, if there is a kernel for it.
fn box_rows(spec: &HeadSpec, input: &InputSpec, shape: &[usize]) -> Option<BoxRows> {
    match (spec.kind.form, shape) {
        (OutputForm::GridRows, _) => {
            let strides = spec.strides_or_usual().to_vec();
            let fits = strides.len() <= launch::LEVELS_MAX;
            fits.then_some(BoxRows::Grid { strides, size: (input.width, input.height) })
        }
        (OutputForm::PixelRows, [_, rows, _]) => Some(BoxRows::Pixels { rows: *rows }),
        (OutputForm::Channels, [_, _, anchors]) => Some(BoxRows::Channels { anchors: *anchors, more: 0 }),
        _ => None,
    }
}

// ---- boxes -----------------------------------------------------------------------------------------------------------

/// Boxes that are decoded and suppressed on the GPU.
struct Boxes {
    decode: Decode,
    suppress: Suppress,
    output: Span,
    batch: usize,
    lists: CandidateLists,
    kept: PinnedBuffer,
    totals: PinnedBuffer,
    /// Fallback for an image with more candidates than a list holds, or with boxes that the kernels treat differently.
    host: CopiedHead,
}

impl Boxes {
    fn new(
        spec: &HeadSpec,
        boxes: BoxRows,
        output: &DeviceTensor,
        element: Element,
        host: CopiedHead,
        batch: usize,
        device: &Device,
    ) -> Result<Self, CudaError> {
        let decode = Decode {
            boxes,
            classes: spec.classes,
            element,
            multi_label: spec.multi_label,
            threshold: spec.score_threshold,
        };
        let suppress = Suppress {
            iou_max: spec.iou_threshold,
            keep_max: spec.detections_max,
            across_classes: spec.across == Across::AllClasses,
        };
        let (candidate_bytes, count_bytes) = CandidateLists::bytes(batch, CANDIDATES_MAX);
        let lists = CandidateLists {
            candidates: DeviceArena::new(device, candidate_bytes)?.whole().clone(),
            counts: DeviceArena::new(device, count_bytes)?.whole().clone(),
            capacity: CANDIDATES_MAX,
        };
        let kept = PinnedBuffer::new(device, batch * suppress.keep_max * Candidate::BYTES)?;
        let totals = PinnedBuffer::new(device, batch * Totals::BYTES)?;
        Ok(Self { decode, suppress, output: output.span.clone(), batch, lists, kept, totals, host })
    }

    fn record(&self, stream: &Stream, table: &TableSpan) -> Result<(), CudaError> {
        let kept = KeptLists { kept: self.kept.span().clone(), totals: self.totals.span().clone() };
        launch::decode(stream, table, &self.decode, &self.output, &self.lists)?;
        launch::suppress(stream, self.batch, &self.suppress, &self.lists, &kept)
    }

    fn read(
        &mut self,
        stream: &Stream,
        mappings: &[Mapping],
        results: &mut [InferenceResult],
    ) -> Result<(), CudaError> {
        let each = self.suppress.keep_max * Candidate::BYTES;
        let totals = Totals::read_all(self.totals.bytes());
        let lists = self.kept.bytes().chunks_exact(each);
        let mut is_doubtful = false;
        for ((found, totals), list) in results.iter_mut().zip(totals).zip(lists) {
            is_doubtful |= totals.found as usize > self.lists.capacity;
            found.clear();
            let kept = Candidate::read_all(list).take(totals.kept as usize);
            found.detections.extend(kept.map(|candidate| detection(&candidate)));
            is_doubtful |= found.detections.iter().any(|found| !is_certain(found));
        }
        if is_doubtful {
            self.host.record(stream)?;
            stream.synchronize()?;
            self.host.read(mappings, results);
        }
        Ok(())
    }
}

/// Whether the kernels treat a box like the CPU's head. They neither leave out boxes that are not finite, nor compare
/// boxes whose area overflows single precision. No other box suppresses such a box, so it is in the kernels' list
/// unless better ones fill it.
fn is_certain(found: &Detection) -> bool {
    found.is_finite() && found.bounds.area().is_finite()
}

fn detection(candidate: &Candidate) -> Detection {
    let Candidate { class_id, score, x1, y1, x2, y2, .. } = *candidate;
    Detection { class_id, score, bounds: BoxF { x1, y1, x2, y2 } }
}

// ---- classes ---------------------------------------------------------------------------------------------------------

/// Best classes, which a kernel selects on the GPU.
struct Classes {
    how: Classify,
    output: Span,
    batch: usize,
    best: PinnedBuffer,
    counts: PinnedBuffer,
}

impl Classes {
    fn new(
        spec: &HeadSpec,
        output: &DeviceTensor,
        element: Element,
        batch: usize,
        device: &Device,
    ) -> Result<Self, CudaError> {
        let how = Classify {
            classes: spec.classes,
            element,
            activation: spec.activation,
            background: spec.background,
            top: spec.top,
            // The kernel keeps scores of at least the threshold; heads keep scores above it.
            threshold: spec.score_threshold.next_up(),
        };
        let best = PinnedBuffer::new(device, batch * how.top.max(1) * CLASS_BYTES)?;
        let counts = PinnedBuffer::new(device, batch * size_of::<u32>())?;
        Ok(Self { how, output: output.span.clone(), batch, best, counts })
    }

    fn record(&self, stream: &Stream) -> Result<(), CudaError> {
        launch::classify(stream, self.batch, &self.how, &self.output, self.best.span(), self.counts.span())
    }

    fn read(&self, results: &mut [InferenceResult]) {
        let counts = self.counts.bytes().as_chunks::<4>().0;
        let lists = self.best.bytes().chunks_exact(self.how.top.max(1) * CLASS_BYTES);
        for ((found, count), list) in results.iter_mut().zip(counts).zip(lists) {
            found.clear();
            let best = list.as_chunks::<4>().0.as_chunks::<2>().0.iter();
            let best = best.take(u32::from_le_bytes(*count) as usize).map(|[class_id, score]| ClassScore {
                class_id: u32::from_le_bytes(*class_id),
                score: f32::from_le_bytes(*score),
            });
            for class in best {
                if class.score.is_finite() {
                    found.classes.push(class);
                } else {
                    found.not_finite += 1;
                }
            }
        }
    }
}

// ---- every other head ------------------------------------------------------------------------------------------------

/// Head on the CPU, and copies of the outputs for it.
struct CopiedHead {
    outputs: Vec<HostOutput>,
    batch: usize,
    head: Box<dyn Head>,
}

struct HostOutput {
    tensor: DeviceTensor,
    copy: PinnedBuffer,
    values: Vec<f32>,
}

impl CopiedHead {
    fn new(
        model: &Model,
        declared: &[TensorDesc],
        outputs: &[DeviceTensor],
        batch: usize,
        device: &Device,
    ) -> Result<Self, PlanError> {
        if outputs.len() > OUTPUTS_MAX {
            return Err(PlanError::Head(too_many(outputs.len())));
        }
        let seen = declared.iter().zip(outputs).map(|(declared, bound)| as_bound(declared, &bound.shape));
        let head = build(model, &seen.collect::<Vec<TensorDesc>>(), batch).map_err(PlanError::Head)?;
        let copied = |tensor: &DeviceTensor| {
            let copy = PinnedBuffer::new(device, tensor.span.bytes())?;
            Ok(HostOutput { tensor: tensor.clone(), copy, values: Vec::new() })
        };
        let outputs = outputs.iter().map(copied).collect::<Result<_, CudaError>>()?;
        Ok(Self { outputs, batch, head })
    }

    fn record(&self, stream: &Stream) -> Result<(), CudaError> {
        self.outputs.iter().try_for_each(|output| stream.copy(&output.tensor.span, output.copy.span()))
    }

    fn read(&mut self, mappings: &[Mapping], results: &mut [InferenceResult]) {
        for output in &mut self.outputs {
            to_f32(output.copy.bytes(), output.tensor.element, &mut output.values);
        }
        let mut views = [Output { shape: &[], data: &[], batch: self.batch }; OUTPUTS_MAX];
        for (view, output) in views.iter_mut().zip(&self.outputs) {
            *view = Output { shape: &output.tensor.shape, data: &output.values, batch: self.batch };
        }
        for (item, (found, mapping)) in results.iter_mut().zip(mappings).enumerate() {
            found.clear();
            self.head.decode(&views[..self.outputs.len()], item, mapping, found);
        }
    }
}

/// Replaces the content of `target` by the elements in `bytes`, converted to f32.
fn to_f32(bytes: &[u8], element: ElementType, target: &mut Vec<f32>) {
    fn each<const N: usize>(bytes: &[u8], target: &mut Vec<f32>, value: impl Fn([u8; N]) -> f32) {
        target.clear();
        target.extend(bytes.as_chunks::<N>().0.iter().map(|element| value(*element)));
    }
    match element {
        ElementType::F32 => each::<4>(bytes, target, f32::from_le_bytes),
        ElementType::F16 => each::<2>(bytes, target, |b| f16::from_le_bytes(b).to_f32()),
        ElementType::U8 => each::<1>(bytes, target, |[b]| f32::from(b)),
        ElementType::I8 => each::<1>(bytes, target, |b| f32::from(i8::from_le_bytes(b))),
        ElementType::I32 => each::<4>(bytes, target, |b| i32::from_le_bytes(b) as f32),
        ElementType::I64 => each::<8>(bytes, target, |b| i64::from_le_bytes(b) as f32),
        ElementType::Bool => each::<1>(bytes, target, |[b]| f32::from(u8::from(b != 0))),
        other => unreachable!("no engine binds {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_is_read() {
        let check = |element, bytes: &[u8], expected: &[f32]| {
            let mut seen = vec![7.0; 3];
            to_f32(bytes, element, &mut seen);
            assert_eq!(seen, expected, "{element:?}");
        };
        check(ElementType::F32, &[0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0], &[1.0, -2.0]);
        check(ElementType::F16, &[0, 0x3c, 0, 0xc0], &[1.0, -2.0]);
        check(ElementType::U8, &[3, 255], &[3.0, 255.0]);
        check(ElementType::I8, &[3, 255], &[3.0, -1.0]);
        check(ElementType::I32, &[254, 255, 255, 255], &[-2.0]);
        check(ElementType::I64, &[254, 255, 255, 255, 255, 255, 255, 255], &[-2.0]);
        check(ElementType::Bool, &[0, 1], &[0.0, 1.0]);
    }
}
