//! Models bound on the GPU, compared with the same models on the CPU: every tensor is on the device, and an engine on
//! the host computes between two copies. Without a GPU the kernels run in a stand-in for the driver.
#![cfg(all(feature = "cuda", feature = "tract"))]

use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use half::f16;
use orinoco_core::{
    ComputeUnit, ElementType, FrameDesc, InferenceResult, MemoryDomain, Nanos, PixelFormat, Resize,
};
use orinoco_cuda::{Device, DeviceArena, Stream, Surfaces};
use orinoco_cuda_doubles::run_with_stand_in;
use orinoco_infer::{
    DeviceTensor, Elements, ElementsMut, EngineContext, EngineError, ExecutionStream, ImagePlan, Prepared,
    Session, SessionSpec, TensorMemory, TensorMut, TensorRef, by_name,
};
use orinoco_model::{Binding, Model, Repository};
use orinoco_pipeline::{Executor, Frame, Lease, MonotonicClock, Slot, SlotPool, StageTimes};
use orinoco_vision::{HeadSpec, heads};

/// Maximum difference of a score, coordinate or tensor element; relative for values above 1.
const DIFFERENCE_MAX: f32 = 1e-3;

#[expect(clippy::print_stderr, reason = "a test that did not run says so")]
fn note(text: &str) {
    eprintln!("{text}");
}

/// Engine on the host with its tensors on the GPU: inputs are copied to the host, and outputs back to the GPU.
struct HostEngine {
    session: Box<dyn Session>,
    inputs: Vec<DeviceTensor>,
    outputs: Vec<DeviceTensor>,
    stream: Stream,
}

impl HostEngine {
    fn new(mut session: Box<dyn Session>, prepared: &dyn Prepared, device: &Device) -> Self {
        session.run().expect("it runs on zeros");
        let place = |shape: &[usize], element: ElementType| {
            let bytes = shape.iter().product::<usize>() * element.bytes();
            let span = DeviceArena::new(device, bytes).expect("little memory").whole().clone();
            DeviceTensor { shape: shape.to_vec(), element, span }
        };
        let inputs = (0..prepared.inputs().len()).map(|index| {
            let tensor = session.input(index).host();
            place(tensor.shape, tensor.data.element())
        });
        let inputs = inputs.collect();
        let outputs = (0..prepared.outputs().len()).map(|index| {
            let tensor = session.output(index).host();
            place(tensor.shape, tensor.data.element())
        });
        let outputs = outputs.collect();
        Self { session, inputs, outputs, stream: device.stream().expect("a stream") }
    }
}

impl Session for HostEngine {
    fn memory(&self) -> TensorMemory {
        TensorMemory::Device
    }

    fn input(&mut self, index: usize) -> TensorMut<'_> {
        TensorMut::Device(&self.inputs[index])
    }

    fn output(&self, index: usize) -> TensorRef<'_> {
        TensorRef::Device(&self.outputs[index])
    }

    fn enqueue(&mut self, stream: &ExecutionStream) -> Result<(), EngineError> {
        stream.wait().expect("what is queued is done");
        for (index, input) in self.inputs.iter().enumerate() {
            let mut bytes = vec![0; input.span.bytes()];
            self.stream.read(&input.span, &mut bytes).expect("a copy");
            match self.session.input(index).host().data {
                ElementsMut::F32(values) => fill(values, &bytes, f32::from_le_bytes),
                ElementsMut::F16(values) => fill(values, &bytes, f16::from_le_bytes),
                ElementsMut::U8(values) => fill(values, &bytes, |[byte]| byte),
                other => panic!("{other:?} is not a type of an image"),
            }
        }
        self.session.run()?;
        for (index, output) in self.outputs.iter().enumerate() {
            let bytes: Vec<u8> = match self.session.output(index).host().data {
                Elements::F32(values) => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
                Elements::F16(values) => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
                other => panic!("{other:?} is not a type of an output here"),
            };
            self.stream.write(&output.span, &bytes).expect("a copy");
        }
        Ok(())
    }
}

fn fill<T, const N: usize>(values: &mut [T], bytes: &[u8], value: impl Fn([u8; N]) -> T) {
    values.iter_mut().zip(bytes.as_chunks::<N>().0).for_each(|(target, bytes)| *target = value(*bytes));
}

/// Model prepared by tract, the engine that runs on every machine.
struct Loaded {
    model: Model,
    binding: Binding,
    prepared: Box<dyn Prepared>,
}

impl Loaded {
    /// Loads a model of the repository or of the test data, changed by `change`; `None`, with a printed line, if its
    /// file is missing.
    fn new(name: &str, batch: usize, change: impl FnOnce(&mut Model)) -> Option<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let data = root.join("../shared/data");
        let data = std::env::var_os("ORINOCO_DATA").map_or(data, PathBuf::from);
        let repository =
            Repository { roots: vec![root.join("models"), root.join("tests/models")], data: vec![data] };
        let model = repository.describe(name).expect("its description is read");
        let mut model = model.expect("it has a description");
        if !model.file.is_file() {
            note(&format!("skipped: {name}: shared test data not found"));
            return None;
        }
        change(&mut model);
        let tract = by_name("tract").expect("it is known");
        let prepared = tract.prepare(&model.file, &EngineContext::default()).expect("the model is read");
        let binding = model.bind(prepared.inputs(), prepared.outputs(), batch).expect("it fits its graph");
        Some(Self { model, binding, prepared })
    }

    fn session(&self) -> Box<dyn Session> {
        self.prepared.session(&SessionSpec::new(&self.binding.shapes)).expect("it is bound")
    }

    fn on_cpu(&self) -> ImagePlan {
        let (context, clock) = (EngineContext::default(), Arc::new(MonotonicClock::default()));
        ImagePlan::new(&self.model, &self.binding, self.prepared.as_ref(), self.session(), &context, clock)
            .expect("it runs")
    }

    fn on_gpu(&self, context: &EngineContext) -> ImagePlan {
        let prepared = self.prepared.as_ref();
        let can_be = ImagePlan::can_be_on_device(&self.model, &self.binding, prepared.inputs());
        assert!(can_be, "{}", self.model.name);
        let device = context.device().expect("it is open");
        let session = Box::new(HostEngine::new(self.session(), prepared, &device));
        let clock = Arc::new(MonotonicClock::default());
        ImagePlan::new(&self.model, &self.binding, prepared, session, context, clock).expect("it runs")
    }
}

/// Creates a frame of curved stripes, with rows that are `padding` bytes longer than necessary.
fn frame(format: PixelFormat, size: (u32, u32), padding: usize, shift: usize) -> Frame {
    let mut desc = FrameDesc::packed(format, size.0, size.1);
    let mut offset = 0;
    for plane in 0..format.planes() {
        let (row, rows) = format.plane_size(plane, size.0, size.1);
        desc.planes[plane].offset = offset;
        desc.planes[plane].stride = row + padding;
        offset += (row + padding) * rows;
    }
    let mut slot = SlotPool::new(1, desc.bytes_needed()).try_take().expect("it is free");
    let stride = desc.planes[0].stride;
    for (index, byte) in slot.bytes.iter_mut().enumerate() {
        let (x, y) = (index % stride, index / stride);
        *byte = ((x * x / 97 + y * (3 + shift) + x * y / 61) % 256) as u8;
    }
    Frame::new(desc, Slot::Owned(slot), Nanos(0)).expect("it fits")
}

/// Image in the memory of a Jetson's video hardware, represented by a file. Dropping it counts one more in
/// `given_back`.
struct Surface {
    file: OwnedFd,
    given_back: Arc<AtomicUsize>,
}

impl Lease for Surface {
    fn bytes(&self) -> &[u8] {
        &[]
    }

    fn dma_buf(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }
}

impl Drop for Surface {
    fn drop(&mut self) {
        self.given_back.fetch_add(1, Ordering::Relaxed);
    }
}

/// Copies the pixels of an NV12 frame into a decoder's frame, behind 256 bytes of other content.
fn in_video_memory(frame: &Frame, given_back: &Arc<AtomicUsize>) -> Frame {
    const BEFORE: usize = 256;
    let mut desc = frame.desc;
    desc.memory = MemoryDomain::DmaBuf;
    let view = frame.view();
    let mut bytes = vec![0; BEFORE];
    for (plane, target) in desc.planes.iter_mut().enumerate().take(2) {
        target.offset = bytes.len();
        let plane = view.plane(plane);
        for y in 0..plane.rows() {
            bytes.extend_from_slice(plane.row(y));
            bytes.resize(bytes.len() + target.stride - plane.row(y).len(), 0);
        }
    }
    // The stand-in reads the offsets and strides of the planes from here.
    let planes = &desc.planes[..2];
    let layout = planes.iter().map(|plane| plane.offset).chain(planes.iter().map(|plane| plane.stride));
    for number in layout {
        bytes.extend((number as u32).to_le_bytes());
    }
    let file = rustix::fs::memfd_create("surface", rustix::fs::MemfdFlags::CLOEXEC).expect("a file");
    let mut file = std::fs::File::from(file);
    file.write_all(&bytes).expect("it takes them");
    let lease = Surface { file: file.into(), given_back: Arc::clone(given_back) };
    Frame::new(desc, Slot::Leased(Box::new(lease)), Nanos(0)).expect("it has a dma-buf")
}

/// Executes the model on both, and checks that the results are the same.
fn check(loaded: &Loaded, gpu: &EngineContext, batches: &[Vec<Frame>]) -> Vec<InferenceResult> {
    let (mut cpu, mut gpu) = (loaded.on_cpu(), loaded.on_gpu(gpu));
    let mut all = Vec::new();
    for frames in batches {
        let mut expected = vec![InferenceResult::default(); frames.len()];
        let mut seen = expected.clone();
        cpu.execute(frames, &mut expected).expect("it runs");
        let times = gpu.execute(frames, &mut seen).expect("it runs");
        assert_eq!(times.graph_fallbacks, 0, "{}", loaded.model.name);
        check_times(&times);
        for (seen, expected) in seen.iter().zip(&expected) {
            check_same(&loaded.model.name, seen, expected);
        }
        all.extend(seen);
    }
    all
}

/// The stages of the GPU follow one another, and the engine's ends when the host saw its end.
fn check_times(times: &StageTimes) {
    let device = times.device.expect("its stages are measured");
    let [preprocess, infer, postprocess] = device.stages().map(|(_, span)| span);
    assert_eq!(device.unit, ComputeUnit::Gpu);
    assert_eq!((preprocess.end(), infer.end()), (infer.start(), postprocess.start()), "{times:?}");
    assert_eq!(infer.end(), times.infer.end(), "{times:?}");
}

fn check_same(name: &str, seen: &InferenceResult, expected: &InferenceResult) {
    let close = |a: f32, b: f32| (a - b).abs() <= DIFFERENCE_MAX * b.abs().max(1.0);
    assert_eq!(seen.detections.len(), expected.detections.len(), "{name}");
    for (a, b) in seen.detections.iter().zip(&expected.detections) {
        let (p, q) = (&a.bounds, &b.bounds);
        let place = close(p.x1, q.x1) && close(p.y1, q.y1) && close(p.x2, q.x2) && close(p.y2, q.y2);
        assert!(
            place && a.class_id == b.class_id && close(a.score, b.score),
            "{name}: {a:?}, on the CPU {b:?}"
        );
    }
    assert_eq!(seen.classes.len(), expected.classes.len(), "{name}");
    for (a, b) in seen.classes.iter().zip(&expected.classes) {
        assert!(a.class_id == b.class_id && close(a.score, b.score), "{name}: {a:?}, on the CPU {b:?}");
    }
    assert_eq!(seen.tensors.len(), expected.tensors.len(), "{name}");
    for (a, b) in seen.tensors.iter().zip(&expected.tensors) {
        assert_eq!(a.shape, b.shape, "{name}");
        assert!(a.data.iter().zip(&b.data).all(|(a, b)| close(*a, *b)), "{name}");
    }
}

/// Returns a context with a GPU; `None`, with a printed line, if there is none.
fn gpu(check: &str) -> Option<EngineContext> {
    let context = EngineContext::default();
    context.device().map_err(|why| note(&format!("skipped: {check}: {why}"))).ok()?;
    Some(context)
}

#[test]
fn plans_run_without_a_gpu_as_well() {
    if let Err(why) = run_with_stand_in(&["--test-threads=1"]) {
        note(&format!("skipped: the stand-in driver: {why}"));
    }
}

#[test]
fn boxes_are_those_of_the_cpu() {
    let Some(gpu) = gpu("boxes") else { return };
    let low = |model: &mut Model| model.head.score_threshold = 0.01;
    let loaded = Loaded::new("person-nano", 2, low).expect("it is in the repository");
    // Batches of one and of two frames, each frame larger than the previous ones.
    let batches = [
        vec![frame(PixelFormat::Nv12, (320, 180), 0, 0)],
        vec![frame(PixelFormat::I420, (322, 200), 6, 1), frame(PixelFormat::Rgb, (200, 322), 5, 2)],
        vec![frame(PixelFormat::Nv12, (320, 180), 4, 3)],
    ];
    let found = check(&loaded, &gpu, &batches);
    assert!(found.iter().all(|found| !found.detections.is_empty()), "there is something to compare");
}

#[test]
fn heads_without_kernels_read_copies() {
    let Some(gpu) = gpu("raw outputs") else { return };
    let raw = |model: &mut Model| {
        model.head = HeadSpec::new(heads::RAW, 0);
        if let orinoco_model::ModelInput::Image(image) = &mut model.input {
            image.resize = Resize::BilinearAntialias;
        }
    };
    let loaded = Loaded::new("person-nano", 1, raw).expect("it is in the repository");
    let batches = [vec![frame(PixelFormat::Nv12, (640, 360), 0, 0)]];
    let found = check(&loaded, &gpu, &batches);
    assert!(found.iter().all(|found| !found.tensors.is_empty()), "there is something to compare");
}

#[test]
fn classes_are_those_of_the_cpu() {
    let Some(gpu) = gpu("classes") else { return };
    let Some(loaded) = Loaded::new("mnist_8", 1, |_| {}) else { return };
    let batches: Vec<Vec<Frame>> =
        (0..4).map(|shift| vec![frame(PixelFormat::Gray8, (28, 28), 0, shift)]).collect();
    let found = check(&loaded, &gpu, &batches);
    assert!(found.iter().all(|found| !found.classes.is_empty()), "there is something to compare");
}

#[test]
fn more_candidates_than_a_list_holds_are_read_on_the_host() {
    let Some(gpu) = gpu("a full list") else { return };
    let all = |model: &mut Model| (model.head.score_threshold, model.head.multi_label) = (0.0, true);
    let Some(loaded) = Loaded::new("yolox_nano", 1, all) else { return };
    let found = check(&loaded, &gpu, &[vec![frame(PixelFormat::Nv12, (320, 180), 0, 0)]]);
    assert_eq!(found[0].detections.len(), loaded.model.head.detections_max);
}

#[test]
fn frames_in_video_memory_are_read_where_they_are_and_given_back() {
    let Some(gpu) = gpu("frames in video memory") else { return };
    if let Err(why) = Surfaces::open(&gpu.device().expect("it is open")) {
        return note(&format!("skipped: frames in video memory: {why}: {}", why.source));
    }
    let low = |model: &mut Model| model.head.score_threshold = 0.01;
    let loaded = Loaded::new("person-nano", 2, low).expect("it is in the repository");
    let (mut cpu, mut gpu) = (loaded.on_cpu(), loaded.on_gpu(&gpu));
    let given_back = Arc::default();
    for (turn, size) in [(320, 180), (320, 180), (640, 360)].into_iter().enumerate() {
        let host: Vec<_> = (0..2).map(|at| frame(PixelFormat::Nv12, size, 12, turn * 2 + at)).collect();
        // One of the two frames is in the host's memory.
        let mixed = [in_video_memory(&host[0], &given_back), host[1].share()];
        let mut expected = vec![InferenceResult::default(); 2];
        let mut seen = expected.clone();
        cpu.execute(&host, &mut expected).expect("it runs");
        gpu.execute(&mixed, &mut seen).expect("it runs");
        seen.iter().zip(&expected).for_each(|(seen, expected)| check_same("video memory", seen, expected));
        assert!(seen.iter().all(|found| !found.detections.is_empty()), "there is something to compare");
        assert_eq!(given_back.load(Ordering::Relaxed), turn, "the frame is still ours");
        drop(mixed);
        assert_eq!(given_back.load(Ordering::Relaxed), turn + 1, "nothing else keeps it");
    }
}
