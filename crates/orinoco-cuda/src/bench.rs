//! Benchmarks on this GPU: the cost of a captured graph, and the speed of preprocessing compared with a memory copy.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]

use std::time::{Duration, Instant};

use orinoco_core::{ColorOrder, FrameDesc, FrameView, Layout, PixelFormat, Resize};
use thiserror::Error;

use crate::launch::{
    self, BoxRows, Candidate, CandidateLists, Decode, Element, Elements, ImageTensor, KeptLists, Suppress,
    Totals,
};
use crate::{
    CudaError, Device, DeviceArena, DeviceInfo, FrameTable, Graph, GraphCounters, PinnedBuffer, Placement,
    Span, Stream, TableLayout, Unavailable,
};

/// Frames of one replay: four cameras.
pub const BATCH: usize = 4;
/// The frames' size.
pub const FRAME: (u32, u32) = (1920, 1080);
/// The model's input, in float32.
pub const TENSOR: ImageTensor = ImageTensor {
    width: 640,
    height: 640,
    order: ColorOrder::Rgb,
    layout: Layout::Nchw,
    element: Element::F32,
    filter: Resize::Bilinear,
    mean: [0.0; 3],
    scale: [1.0 / 255.0; 3],
    fill: 114,
};
/// Letterboxed, in the middle.
pub const PLACEMENT: Placement =
    Placement { offset: (0, 140), size: (640, 360), scale: (640.0 / 1920.0, 640.0 / 1920.0) };

/// Rows of the head's output: YOLOX at 640 by 640.
const HEAD_CLASSES: usize = 80;
const CAPACITY: usize = 1024;
const KEEP_MAX: usize = 300;
/// Runs before anything is measured, and runs measured one by one.
const WARM_UP: usize = 20;
const RUNS: usize = 200;
/// Runs measured together, and bytes of a copy: more than any cache.
const RUNS_TOGETHER: u32 = 50;
const COPY_BYTES: usize = 64 << 20;

/// Figures of one benchmark run.
#[derive(Clone, Debug)]
pub struct GraphBench {
    /// On what.
    pub device: DeviceInfo,
    /// Launches, copies and fills of one replay.
    pub steps: u32,
    /// The host's time for one replay as a graph, median.
    pub cpu_replay: Duration,
    /// The host's time for the same launches one by one, median.
    pub cpu_direct: Duration,
    /// Bytes read and written each second by a copy within the GPU's memory.
    pub copy_bytes_per_s: f64,
    /// Bytes of frames and of tensors each second by preprocessing.
    pub preprocess_bytes_per_s: f64,
    /// The largest difference of a preprocessed value (0 to 1) from the twin's.
    pub difference_max: f32,
    /// Captures, updates and fallbacks of the graph. With fallbacks, `cpu_replay` is not the time of a replay.
    pub counters: GraphCounters,
}

impl GraphBench {
    /// Ratio of the host's time for separate launches to its time for one replay.
    pub fn replay_gain(&self) -> f64 {
        self.cpu_direct.as_secs_f64() / self.cpu_replay.as_secs_f64()
    }

    /// Preprocessing's share of the copy's speed.
    pub fn preprocess_share(&self) -> f64 {
        self.preprocess_bytes_per_s / self.copy_bytes_per_s
    }
}

/// Reason for which the benchmark could not run.
#[derive(Clone, Debug, Error)]
pub enum BenchError {
    /// There is no GPU to measure.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The driver refused something.
    #[error("measuring on the GPU")]
    Cuda(#[from] CudaError),
}

/// Measures GPU `ordinal`. `twin` makes of a frame what the kernels must: [`TENSOR`], with the image at [`PLACEMENT`].
pub fn graph(
    ordinal: u32,
    mut twin: impl FnMut(&FrameView<'_>, &mut [f32]),
) -> Result<GraphBench, BenchError> {
    let device = Device::open(ordinal)?;
    let stream = device.stream()?;
    let plan = Plan::new(&device, &stream)?;
    let mut graph = Graph::new();
    for _ in 0..WARM_UP {
        graph.run(&stream, 0, |stream| plan.record(stream))?;
    }
    stream.synchronize()?;
    let cpu_replay =
        median_host_time(&stream, || graph.run(&stream, 0, |stream| plan.record(stream)).map(drop))?;
    let cpu_direct = median_host_time(&stream, || plan.record(&stream))?;
    let preprocess_s = device_time(&device, &stream, || plan.preprocess(&stream))?.as_secs_f64();
    let source = DeviceArena::new(&device, COPY_BYTES)?;
    let target = DeviceArena::new(&device, COPY_BYTES)?;
    let copy_s = device_time(&device, &stream, || stream.copy(source.whole(), target.whole()))?.as_secs_f64();
    Ok(GraphBench {
        steps: plan.steps(&device),
        cpu_replay,
        cpu_direct,
        copy_bytes_per_s: 2.0 * COPY_BYTES as f64 / copy_s,
        preprocess_bytes_per_s: plan.bytes_moved() as f64 / preprocess_s,
        difference_max: plan.difference_max(&stream, &mut twin)?,
        counters: graph.counters(),
        device: device.info().clone(),
    })
}

/// The host's time for `run` when the stream is idle, median.
fn median_host_time(
    stream: &Stream,
    mut run: impl FnMut() -> Result<(), CudaError>,
) -> Result<Duration, CudaError> {
    let mut times = Vec::with_capacity(RUNS);
    for _ in 0..RUNS {
        let start = Instant::now();
        run()?;
        times.push(start.elapsed());
        stream.synchronize()?;
    }
    times.sort_unstable();
    Ok(times[RUNS / 2])
}

/// The GPU's time for one `run`, of many one after another.
fn device_time(
    device: &Device,
    stream: &Stream,
    mut run: impl FnMut() -> Result<(), CudaError>,
) -> Result<Duration, CudaError> {
    let (start, end) = (device.event()?, device.event()?);
    run()?;
    stream.record(&start)?;
    for _ in 0..RUNS_TOGETHER {
        run()?;
    }
    stream.record(&end)?;
    end.synchronize()?;
    Ok(start.until(&end)? / RUNS_TOGETHER)
}

/// Launches of a detector except its engine: a batch of frames in, boxes out.
struct Plan {
    frame: FrameDesc,
    /// The frames' bytes: pinned on an integrated GPU, on the device otherwise, as sources bring them.
    pixels: Vec<u8>,
    table: FrameTable,
    input: Span,
    half_input: Span,
    output: Span,
    lists: CandidateLists,
    kept: KeptLists,
    _frames: Vec<PinnedBuffer>,
}

impl Plan {
    fn new(device: &Device, stream: &Stream) -> Result<Self, CudaError> {
        let frame = FrameDesc::packed(PixelFormat::Nv12, FRAME.0, FRAME.1);
        // An image with detail everywhere, so that a wrong tap shows.
        let pixels: Vec<u8> = (0..frame.bytes_needed()).map(|i| ((i * 31 + i / 7) % 253) as u8).collect();
        let elements = BATCH * TENSOR.elements();
        let (candidate_bytes, count_bytes) = CandidateLists::bytes(BATCH, CAPACITY);
        let lengths = [
            elements * Element::F32.bytes(),
            elements * Element::F16.bytes(),
            BATCH * decode_spec().elements() * Element::F32.bytes(),
            candidate_bytes,
            count_bytes,
            BATCH * KEEP_MAX * Candidate::BYTES,
            BATCH * Totals::BYTES,
            BATCH * pixels.len(),
        ];
        let [input, half_input, output, candidates, counts, kept, totals, frames] = planned(device, lengths)?;
        let mut table = FrameTable::new(device, TableLayout::bilinear(BATCH))?;
        let mut pinned = Vec::new();
        for item in 0..BATCH {
            let place = match device.info().memory {
                crate::MemoryKind::Integrated => {
                    let mut buffer = PinnedBuffer::new(device, pixels.len())?;
                    buffer.bytes_mut().copy_from_slice(&pixels);
                    let span = buffer.span().clone();
                    pinned.push(buffer);
                    span
                }
                crate::MemoryKind::Discrete => {
                    let span = frames.part(item * pixels.len(), pixels.len());
                    stream.write(&span, &pixels)?;
                    span
                }
            };
            table.set(item, &frame, &place, PLACEMENT).expect("the frame fits its buffer");
        }
        let lists = CandidateLists { candidates, counts, capacity: CAPACITY };
        let kept = KeptLists { kept, totals };
        let plan = Self { frame, pixels, table, input, half_input, output, lists, kept, _frames: pinned };
        plan.table.upload(stream)?;
        stream.synchronize()?;
        Ok(plan)
    }

    fn record(&self, stream: &Stream) -> Result<(), CudaError> {
        self.table.upload(stream)?;
        self.preprocess(stream)?;
        let input = Elements { span: &self.input, element: Element::F32 };
        let half_input = Elements { span: &self.half_input, element: Element::F16 };
        launch::convert(stream, input, half_input, BATCH * TENSOR.elements())?;
        launch::decode(stream, &self.table.span(), &decode_spec(), &self.output, &self.lists)?;
        let how = Suppress { iou_max: 0.45, keep_max: KEEP_MAX, across_classes: false };
        launch::suppress(stream, BATCH, &how, &self.lists, &self.kept)
    }

    /// Number of steps that `record` queues: four kernels, one memset of the candidates' counts, and on a discrete GPU the copy of
    /// the frame table.
    fn steps(&self, device: &Device) -> u32 {
        5 + u32::from(device.info().memory == crate::MemoryKind::Discrete)
    }

    fn preprocess(&self, stream: &Stream) -> Result<(), CudaError> {
        launch::preprocess(stream, &self.table.span(), &TENSOR, &self.input)
    }

    fn bytes_moved(&self) -> usize {
        BATCH * self.pixels.len() + self.input.bytes()
    }

    fn difference_max(
        &self,
        stream: &Stream,
        twin: &mut impl FnMut(&FrameView<'_>, &mut [f32]),
    ) -> Result<f32, CudaError> {
        self.preprocess(stream)?;
        let mut bytes = vec![0; self.input.bytes()];
        stream.read(&self.input, &mut bytes)?;
        let mut expected = vec![0.0; TENSOR.elements()];
        twin(&FrameView::new(&self.frame, &self.pixels).expect("the frame fits its buffer"), &mut expected);
        let seen = bytes.as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value));
        let expected = expected.iter().cycle();
        // Not `max`, which would pass over a NaN.
        let differences = seen.zip(expected).map(|(a, b)| (a - b).abs());
        Ok(differences.fold(0.0, |most, one| if one > most || one.is_nan() { one } else { most }))
    }
}

fn decode_spec() -> Decode {
    Decode {
        boxes: BoxRows::Grid { strides: vec![8, 16, 32], size: (TENSOR.width, TENSOR.height) },
        classes: HEAD_CLASSES,
        element: Element::F32,
        multi_label: true,
        threshold: 0.3,
    }
}

/// One allocation with these lengths in it, one after another.
fn planned<const N: usize>(device: &Device, lengths: [usize; N]) -> Result<[Span; N], CudaError> {
    /// A cache line of every GPU.
    const ALIGNMENT: usize = 256;
    let mut end = 0;
    let offsets = lengths.map(|length| {
        let start = end;
        end = (start + length).next_multiple_of(ALIGNMENT);
        start
    });
    let arena = DeviceArena::new(device, end)?;
    Ok(std::array::from_fn(|index| arena.span(offsets[index], lengths[index])))
}
