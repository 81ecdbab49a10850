//! Memory of a GPU as a region of one-sided transfers between ranks. Without a GPU, the test runs on a stand-in for the driver.

use std::fmt;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::thread;

use orinoco_collective::transfer::{
    Access, DeviceMemory, Position, Region, RegionInfo, Tier, TransferAgent, TransferOptions,
};
use orinoco_collective::{MessageSettings, Rendezvous, Security, TcpGroup, TcpSettings};
use orinoco_core::Rng;
use orinoco_cuda::{CudaError, Device, DeviceArena, Span, Stream};
use orinoco_cuda_doubles::run_with_stand_in;

/// Size of the regions: several pieces of a transfer, and a part of one.
const BYTES: usize = (1 << 20) + 77;

/// Memory of a GPU. Copies are on a stream of their own, and complete when the calls return.
struct GpuMemory {
    span: Span,
    stream: Mutex<Stream>,
}

impl GpuMemory {
    fn new(device: &Device, span: Span) -> Result<Self, CudaError> {
        Ok(Self { span, stream: Mutex::new(device.stream()?) })
    }

    fn part(&self, offset: u64, bytes: usize) -> Span {
        self.span.part(usize::try_from(offset).expect("a range of the region"), bytes)
    }
}

impl fmt::Debug for GpuMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GpuMemory({} bytes)", self.span.bytes())
    }
}

impl DeviceMemory for GpuMemory {
    fn bytes(&self) -> u64 {
        self.span.bytes() as u64
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        stream.read(&self.part(offset, into.len()), into).map_err(io::Error::other)
    }

    fn write(&mut self, offset: u64, from: &[u8]) -> io::Result<()> {
        let to = self.part(offset, from.len());
        self.stream
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
            .write(&to, from)
            .map_err(io::Error::other)
    }
}

fn agents() -> [TransferAgent; 2] {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let rendezvous = Rendezvous::File(folder.path().join("meeting"));
    // Test machines are busy, and none may count as dead for that.
    let messages =
        MessageSettings { silence: std::time::Duration::from_secs(10), ..MessageSettings::default() };
    let settings = TcpSettings { security: Security::FileKey, messages };
    let start = |rank| {
        let group = TcpGroup::join(&rendezvous, rank, 2, settings.clone()).expect("both join");
        TransferAgent::start(group).expect("an agent")
    };
    thread::scope(|scope| {
        [0, 1].map(|rank| scope.spawn(move || start(rank))).map(|rank| rank.join().expect("no panic"))
    })
}

fn bytes(seed: u64) -> Vec<u8> {
    let mut rng = Rng::with_seed(seed);
    (0..BYTES.div_ceil(8)).flat_map(|_| rng.u64(..).to_le_bytes()).take(BYTES).collect()
}

#[test]
#[expect(clippy::print_stderr, reason = "a test that did not run says so")]
fn a_stand_in_for_the_driver_moves_the_same_bytes() {
    if let Err(why) = run_with_stand_in(&[]) {
        eprintln!("skipped: transfers with the stand-in driver: {why}");
    }
}

/// Bytes go from rank 1's memory to rank 0's GPU, from there to rank 1's GPU, and back into memory.
#[test]
#[expect(clippy::print_stderr, reason = "a test that did not run says so")]
fn bytes_move_between_gpu_memory_and_the_memory_of_another_rank() {
    let device = match Device::open(0) {
        Ok(device) => device,
        Err(why) => return eprintln!("skipped: transfers with the memory of a GPU: {why}"),
    };
    let [owner, other] = agents();
    let arena = DeviceArena::new(&device, 2 * BYTES).expect("memory of the GPU");
    let region =
        |offset: usize| Region::device(GpuMemory::new(&device, arena.span(offset, BYTES)).expect("a stream"));
    let theirs = owner.register("tensor", region(0), Access::ReadWrite).expect("registered");
    let ours = other.register("copy", region(BYTES), Access::Read).expect("registered");
    let options = TransferOptions::default();
    let listed = other.regions(0, options.deadline).expect("a list");
    let expected = RegionInfo {
        name: "tensor".to_owned(),
        bytes: BYTES as u64,
        access: Access::ReadWrite,
        tier: Tier::Device,
    };
    assert_eq!(listed, [expected]);

    let content = bytes(1);
    other.put(0, "tensor", 0, &content, options).expect("put");
    let mut on_gpu = vec![0; BYTES];
    device.stream().expect("a stream").read(&arena.span(0, BYTES), &mut on_gpu).expect("read");
    assert!(on_gpu == content, "the bytes are on the GPU");
    let (from, to) =
        (Position { rank: 0, region: "tensor", offset: 0 }, Position { rank: 1, region: "copy", offset: 0 });
    other.copy(from, to, BYTES as u64, TransferOptions { durable: true, ..options }).expect("copied");
    let mut copied = vec![0; BYTES];
    ours.read(0, &mut copied).expect("read");
    assert!(copied == content, "from GPU to GPU");
    let (offset, mut part) = (300_000, vec![0; 500_000]);
    other.get(0, "tensor", offset as u64, &mut part, options).expect("got");
    assert!(part == content[offset..][..part.len()], "a part comes back");
    let beyond = other.get(0, "tensor", BYTES as u64, &mut [0], options).expect_err("beyond the region");
    assert!(beyond.to_string().contains("tensor"), "{beyond}");
    assert!(theirs.unregister().into_vec().is_none(), "a region of a device has no bytes in memory");
}
