//! Tests that need a GPU, and the message without one. Without a GPU, the same tests run on a stand-in for the driver,
//! which proves how it is called, and that nothing is freed too early or never.

use orinoco_core::{ColorOrder, FrameDesc, FrameView, Layout, PixelFormat, Resize};
use orinoco_cuda::bench::{self, BenchError};
use orinoco_cuda::launch::{self, Element, Elements, Reduction};
use orinoco_cuda::{
    Device, DeviceArena, DevicePool, FrameTable, Graph, GraphRun, Launch, PinnedBuffer, PinnedPool,
    TableLayout, Upload, allocated,
};
use orinoco_cuda_doubles::{is_stand_in, run_with_stand_in};
use orinoco_vision::{Align, Fit, InputSpec, Mapping, Preprocessor, Rounding};

#[expect(clippy::print_stderr, reason = "a test that did not run says so")]
fn device(check: &str) -> Option<Device> {
    Device::open(0).inspect_err(|why| eprintln!("skipped: {check}: {why}")).ok()
}

/// Input spec of the CPU implementation that corresponds to [`bench::TENSOR`].
fn bench_spec() -> InputSpec {
    InputSpec {
        layout: Layout::Nchw,
        width: bench::TENSOR.width,
        height: bench::TENSOR.height,
        color: ColorOrder::Rgb,
        resize: Resize::Bilinear,
        fit: Fit::Letterbox,
        align: Align::Center,
        rounding: Rounding::Down,
        fill: bench::TENSOR.fill,
        mean: bench::TENSOR.mean,
        scale: bench::TENSOR.scale,
    }
}

#[test]
#[expect(clippy::print_stderr, reason = "a test that did not run says so")]
fn the_driver_is_called_as_it_must_be() {
    // One at a time: what one frees while another has work queued would look like freed too early. Measuring launches
    // hundreds of large images, which take the CPU minutes.
    let tests = ["--test-threads=1", "--skip", "a_plan_is_measured"];
    if let Err(why) = run_with_stand_in(&tests) {
        eprintln!("skipped: the stand-in driver: {why}");
    }
}

#[test]
fn what_is_missing_is_said() {
    let why = Device::open(u32::MAX).expect_err("no machine has that many");
    assert!(why.reason.contains("CUDA"), "{why}");
}

#[test]
fn the_bench_places_its_frames_as_the_twin_does() {
    let mapping = bench_spec().mapping(bench::FRAME.0, bench::FRAME.1);
    let seen = bench::PLACEMENT;
    assert_eq!((seen.offset, seen.size, seen.scale), (mapping.offset, mapping.size, mapping.scale));
}

#[test]
#[expect(clippy::print_stderr, reason = "what was measured, or that nothing was")]
fn a_plan_is_measured_or_the_lack_of_a_gpu_is_said() {
    let spec = bench_spec();
    let twin = |frame: &FrameView<'_>, out: &mut [f32]| {
        Preprocessor::new(spec.clone()).run(frame, &Mapping::default(), out);
    };
    match (bench::graph(0, twin), Device::open(0)) {
        (Ok(measured), Ok(_)) => {
            eprintln!("{measured:?}: gain {}, share {}", measured.replay_gain(), measured.preprocess_share());
            assert!(measured.difference_max <= 1e-3, "{measured:?}");
            assert_eq!(measured.counters.fallbacks, 0, "{measured:?}");
        }
        (Err(BenchError::Unavailable(why)), Err(same)) => {
            assert_eq!(why, same);
            eprintln!("skipped: measuring a plan: {why}");
        }
        (result, _) => panic!("{result:?}"),
    }
}

#[test]
fn a_graph_replays_what_was_captured_and_follows_new_shapes() {
    let Some(device) = device("graphs") else { return };
    let stream = device.stream().expect("a stream");
    let arena = DeviceArena::new(&device, 8192).expect("memory");
    let [sum, one] = [arena.span(0, 4096), arena.span(4096, 4096)];
    let ones: Vec<u8> = [1.0f32; 1024].iter().flat_map(|value| value.to_le_bytes()).collect();
    stream.write(&one, &ones).expect("a copy");
    drop(arena);
    let mut graph = Graph::new();
    let into = Elements { span: &sum, element: Element::F32 };
    let mut run = |count: usize| {
        let record = |stream: &_| launch::reduce(stream, into, &one, Reduction::Sum, count);
        graph.run(&stream, count as u64, record).expect("it runs")
    };
    assert_eq!(
        [run(1024), run(1024), run(512), run(512)],
        [GraphRun::Captured, GraphRun::Replayed, GraphRun::Captured, GraphRun::Replayed]
    );
    let mut bytes = vec![0; 4096];
    stream.read(&sum, &mut bytes).expect("a copy");
    let sums: Vec<f32> = bytes.as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value)).collect();
    assert_eq!((sums[0], sums[511], sums[512], sums[1023]), (4.0, 4.0, 2.0, 2.0));
    let counters = graph.counters();
    assert_eq!((counters.captures, counters.replays, counters.fallbacks), (2, 4, 0), "{counters:?}");
    assert_eq!(counters.instantiations + counters.updates, 2, "{counters:?}");
}

#[test]
fn what_cannot_be_captured_runs_all_the_same() {
    let Some(device) = device("a refused capture") else { return };
    let stream = device.stream().expect("a stream");
    let arena = DeviceArena::new(&device, 256).expect("memory");
    let mut graph = Graph::new();
    for _ in 0..3 {
        // Waiting is not allowed in a capture.
        let ran = graph.run(&stream, 0, |stream| {
            Launch::zero(stream, arena.whole())?;
            stream.synchronize()
        });
        assert_eq!(ran.expect("it runs"), GraphRun::Directly);
    }
    assert_eq!(graph.counters().fallbacks, 3);
    assert!(graph.refusal().is_some());
}

#[test]
fn pinned_slots_are_read_where_they_are_and_come_back() {
    let Some(device) = device("pinned slots") else { return };
    let stream = device.stream().expect("a stream");
    let frame = FrameDesc::packed(PixelFormat::Nv12, bench::FRAME.0, bench::FRAME.1);
    let pool = PinnedPool::new(&device, 1, frame.bytes_needed()).expect("pinned memory");
    let mut slot = pool.try_take().expect("one slot is free");
    assert!(pool.try_take().is_none());
    slot.bytes_mut().iter_mut().enumerate().for_each(|(i, byte)| *byte = (i * 7 % 251) as u8);
    let mut table = FrameTable::new(&device, TableLayout::bilinear(1)).expect("a table");
    table.set(0, &frame, slot.span(), bench::PLACEMENT).expect("the frame fits");
    let out = DeviceArena::new(&device, bench::TENSOR.elements() * 4).expect("memory");
    table.upload(&stream).expect("a copy");
    launch::preprocess(&stream, &table.span(), &bench::TENSOR, out.whole()).expect("launched");
    let mut bytes = vec![0; out.whole().bytes()];
    stream.read(out.whole(), &mut bytes).expect("a copy");
    let mut expected = vec![0.0; bench::TENSOR.elements()];
    let view = FrameView::new(&frame, slot.bytes()).expect("the frame fits");
    Preprocessor::new(bench_spec()).run(&view, &Mapping::default(), &mut expected);
    for (value, twin) in bytes.as_chunks::<4>().0.iter().zip(&expected) {
        assert!((f32::from_le_bytes(*value) - twin).abs() <= 1e-3);
    }
    drop(slot);
    assert!(pool.try_take().is_some());
}

#[test]
fn memory_stays_until_the_work_that_uses_it_is_done() {
    let Some(device) = device("freeing memory") else { return };
    let stream = device.stream().expect("a stream");
    let arena = DeviceArena::new(&device, 1 << 20).expect("memory");
    let pinned = PinnedBuffer::new(&device, 1 << 20).expect("memory");
    stream.copy(arena.whole(), pinned.span()).expect("queued");
    drop(arena);
    stream.copy(pinned.span(), pinned.span()).expect("queued");
    drop(pinned);
    stream.synchronize().expect("it ran");
}

#[test]
fn what_one_thread_frees_does_not_end_a_capture_of_another() {
    let Some(device) = device("freeing during a capture") else { return };
    let before = allocated();
    let arena = DeviceArena::new(&device, 4096).expect("memory");
    let freed =
        (DeviceArena::new(&device, 4096).expect("memory"), PinnedBuffer::new(&device, 4096).expect("memory"));
    let free = std::sync::Mutex::new(Some(freed));
    let other = std::sync::Mutex::new(Graph::new());
    // Another lane's graph, which is going to be changed in place: this waits for the device, too.
    let stream = device.stream().expect("a stream");
    let run_other = |shapes: u64| {
        let stream = device.stream().expect("a stream");
        let count = shapes as usize * 16;
        let zero = |stream: &_| Launch::zero(stream, &arena.span(0, count));
        let ran = other.lock().expect("no panic").run(&stream, shapes, zero).expect("it runs");
        stream.synchronize().expect("it ran");
        ran
    };
    assert_eq!(run_other(1), GraphRun::Captured);
    let mut graph = Graph::new();
    let ran = graph.run(&stream, 0, |stream| {
        Launch::zero(stream, arena.whole())?;
        let captured = std::thread::scope(|scope| {
            let free = scope.spawn(|| drop(free.lock().expect("no panic").take()));
            free.join().expect("it frees");
            scope.spawn(|| run_other(2)).join().expect("it runs")
        });
        assert_eq!(captured, GraphRun::Captured);
        Launch::zero(stream, arena.whole())
    });
    assert_eq!(ran.expect("it runs"), GraphRun::Captured, "{:?}", graph.refusal());
    assert_eq!(graph.counters().fallbacks, 0);
    stream.synchronize().expect("it ran");
    drop((graph, other, arena, stream));
    // On a GPU other tests allocate at the same time.
    if is_stand_in() {
        assert_eq!(allocated(), before, "all of it was freed after the capture");
    }
}

/// The driver has one context for all of them, and to wait for it ends every capture: what one frees waits for the captures of the others.
#[test]
fn a_device_that_is_opened_twice_knows_of_all_captures() {
    let Some(device) = device("a device that is opened twice") else { return };
    let other = Device::open(0).expect("it was just opened");
    let stream = device.stream().expect("a stream");
    let arena = DeviceArena::new(&device, 4096).expect("memory");
    let mut freed = Some(DeviceArena::new(&other, 4096).expect("memory"));
    let mut graph = Graph::new();
    let ran = graph.run(&stream, 0, |stream| {
        Launch::zero(stream, arena.whole())?;
        drop(freed.take());
        Launch::zero(stream, arena.whole())
    });
    assert_eq!(ran.expect("it runs"), GraphRun::Captured, "{:?}", graph.refusal());
    stream.synchronize().expect("it ran");
}

#[test]
fn nothing_is_freed_while_an_engine_may_capture() {
    let Some(device) = device("freeing while an engine captures") else { return };
    let before = allocated();
    let arena = DeviceArena::new(&device, 4096).expect("memory");
    let (one, other) = (device.capture_guard(), device.capture_guard());
    drop(arena);
    drop(one);
    if is_stand_in() {
        assert_eq!(allocated().device_bytes, before.device_bytes + 4096, "a capture may be under way");
    }
    drop(other);
    if is_stand_in() {
        assert_eq!(allocated(), before);
    }
}

#[test]
fn memory_without_bytes_can_be_had() {
    let Some(device) = device("memory without bytes") else { return };
    let stream = device.stream().expect("a stream");
    let arena = DeviceArena::new(&device, 0).expect("none is needed");
    let mut pinned = PinnedBuffer::new(&device, 0).expect("none is needed");
    assert_eq!((arena.whole().bytes(), pinned.span().bytes(), pinned.bytes_mut().len()), (0, 0, 0));
    // An output without elements, as a plan brings it to the host.
    let mut graph = Graph::new();
    let ran = graph.run(&stream, 0, |stream| stream.copy(arena.whole(), pinned.span()));
    assert_eq!(ran.expect("it runs"), GraphRun::Captured);
    Launch::zero(&stream, arena.whole()).expect("nothing to do");
    stream.write(arena.whole(), &[]).expect("nothing to do");
    stream.read(arena.whole(), &mut []).expect("nothing to do");
    assert!(PinnedPool::new(&device, 1, 0).expect("none is needed").try_take().is_some());
    let mut upload = Upload::new(&device, 2, 0).expect("none is needed");
    let uploaded = upload.push(0, |bytes| assert!(bytes.is_empty()), &stream).expect("nothing to do");
    upload.release(uploaded, &stream).expect("an event");
    assert_eq!(DevicePool::new(&device, 0).expect("none is needed").bytes(), 0);
}

#[test]
fn a_graph_keeps_the_memory_it_uses() {
    let Some(device) = device("a graph's memory") else { return };
    let stream = device.stream().expect("a stream");
    let mut graph = Graph::new();
    // The second time the graph is updated in place.
    for shapes in [1, 2] {
        let arena = DeviceArena::new(&device, 4096 * shapes).expect("memory");
        let ran = graph.run(&stream, shapes as u64, |stream| Launch::zero(stream, arena.whole()));
        assert_eq!(ran.expect("it runs"), GraphRun::Captured);
        drop(arena);
        let ran = graph.run(&stream, shapes as u64, |_| panic!("what is captured is not recorded again"));
        assert_eq!(ran.expect("it runs"), GraphRun::Replayed);
        stream.synchronize().expect("it ran");
    }
}

#[test]
fn neither_side_of_an_upload_overtakes_the_other() {
    const ROUNDS: usize = 8;
    const BYTES: usize = 4096;
    let Some(device) = device("uploads during work") else { return };
    let stream = device.stream().expect("a stream");
    let mut upload = Upload::new(&device, 2, BYTES).expect("memory");
    let results = DeviceArena::new(&device, ROUNDS * BYTES).expect("memory");
    // Nobody waits for the reader, so that it may lag behind as far as it likes.
    for round in 0..ROUNDS {
        let uploaded = upload.push(BYTES, |bytes| bytes.fill(round as u8), &stream).expect("a copy");
        stream.copy(&uploaded.span, &results.span(round * BYTES, BYTES)).expect("queued");
        upload.release(uploaded, &stream).expect("an event");
    }
    let mut bytes = vec![0xff; ROUNDS * BYTES];
    stream.read(results.whole(), &mut bytes).expect("a copy");
    for (round, bytes) in bytes.chunks_exact(BYTES).enumerate() {
        assert!(bytes.iter().all(|byte| *byte == round as u8), "round {round}");
    }
}

#[test]
fn uploads_arrive_in_order() {
    let Some(device) = device("uploads") else { return };
    let stream = device.stream().expect("a stream");
    let mut upload = Upload::new(&device, 2, 1 << 20).expect("memory");
    for round in 0..8u8 {
        let bytes = vec![round; (1 << 20) - usize::from(round)];
        let uploaded =
            upload.push(bytes.len(), |target| target.copy_from_slice(&bytes), &stream).expect("a copy");
        let mut seen = vec![0xff; bytes.len()];
        stream.read(&uploaded.span, &mut seen).expect("a copy");
        assert_eq!(seen, bytes);
        upload.release(uploaded, &stream).expect("an event");
    }
}

/// Allocations as a model might make them: size in bytes, and true if it is freed at once.
const REQUESTS: [(usize, bool); 6] =
    [(1000, false), (300_000, true), (65_536, false), (200_000, true), (1, false), (90_000, true)];

/// Makes the requests and gives everything back; the addresses that came.
fn ask(pool: &DevicePool) -> Vec<u64> {
    let mut held = Vec::new();
    let take = |&(bytes, at_once): &(usize, bool)| {
        let address = pool.alloc(bytes).expect("it fits");
        assert!(pool.contains(address) && address.is_multiple_of(256), "{address:#x}");
        if at_once {
            assert!(pool.free(address));
        } else {
            held.push(address);
        }
        address
    };
    let addresses = REQUESTS.iter().map(take).collect();
    assert!(held.into_iter().all(|address| pool.free(address)));
    addresses
}

#[test]
fn a_pool_that_measures_says_how_large_one_has_to_be() {
    let Some(device) = device("pools") else { return };
    let before = allocated();
    // On a GPU other tests allocate at the same time.
    let check_held = |device_bytes: usize, pinned_bytes: u64| {
        if is_stand_in() {
            let held = (allocated().device_bytes, allocated().pinned_bytes);
            assert_eq!(held, (before.device_bytes + device_bytes as u64, before.pinned_bytes + pinned_bytes));
        }
    };
    let measuring = DevicePool::measuring(&device);
    ask(&measuring);
    let measured = measuring.usage();
    assert_eq!((measured.held, measured.refused), (0, 0));
    check_held(0, 0);

    let planned = DevicePool::new(&device, measured.reach_bytes).expect("little memory");
    check_held(measured.reach_bytes, 0);
    // Whoever asks again gets the same memory again.
    let (first, second) = (planned.owner("first"), planned.owner("second"));
    planned.set_owner(first);
    let addresses = ask(&planned);
    planned.set_owner(second);
    assert_eq!(ask(&planned), addresses);
    assert_eq!(planned.usage().reach_bytes, measured.reach_bytes);
    let of_owners: Vec<_> =
        planned.owners().into_iter().map(|(name, usage)| (name, usage.allocations)).collect();
    assert_eq!(of_owners, [("nobody".into(), 0), ("first".into(), 6), ("second".into(), 6)]);

    let small = DevicePool::new(&device, measured.reach_bytes - 64).expect("little memory");
    let got = REQUESTS.iter().filter_map(|(bytes, _)| small.alloc(*bytes)).count();
    assert!(got < REQUESTS.len() && small.usage().refused > 0, "{small:?}");
    assert!(!small.free(addresses[0]), "it is the other pool's");
    let pinned = PinnedBuffer::new(&device, 4096).expect("little memory");
    check_held(2 * measured.reach_bytes - 64, 4096);
    drop((planned, small, pinned));
    check_held(0, 0);
}
