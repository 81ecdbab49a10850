//! SIMULATED GStreamer elements of JetPack, under their names and with their caps. They decode and encode nothing. They
//! make buffers in simulated NVMM (a `NvBufSurface` that refers to a memfd), and count how many are held.

mod elements;

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use gstreamer as gst;
use rustix::fs::MemfdFlags;

pub(crate) const NVMM: &str = "memory:NVMM";
/// Alignment of rows in NVMM, in bytes.
const PITCH: usize = 256;

/// Number of buffers of one element.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) made: u64,
    pub(crate) released: u64,
    /// Maximum number held at one time.
    pub(crate) most: u64,
}

static COUNTS: Mutex<BTreeMap<&'static str, Count>> = Mutex::new(BTreeMap::new());

fn counts() -> MutexGuard<'static, BTreeMap<&'static str, Count>> {
    COUNTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the counts since the last [`start`].
pub(crate) fn count(element: &str) -> Count {
    counts().get(element).copied().unwrap_or_default()
}

/// Behaviour of the simulated elements.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Script {
    /// Number of frames after which the decoder and the camera fail.
    pub(crate) fail_after: Option<u64>,
    /// Number of frames of the camera that are marked as damaged before the first good one.
    pub(crate) damaged: u64,
    /// Number of output buffers of the converter; `None` for as many as it needs.
    pub(crate) converter_buffers: Option<u64>,
}

static SCRIPT: Mutex<Script> = Mutex::new(Script { fail_after: None, damaged: 0, converter_buffers: None });
static TURN: Mutex<()> = Mutex::new(());

fn script() -> Script {
    *SCRIPT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registers the simulated elements, resets the counts, and waits for this test's turn, because the counts belong to
/// the process.
pub(crate) fn start(script: Script) -> MutexGuard<'static, ()> {
    static REGISTERED: Once = Once::new();
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    REGISTERED.call_once(|| {
        gst::init().expect("GStreamer starts");
        elements::register();
    });
    *SCRIPT.lock().unwrap_or_else(PoisonError::into_inner) = script;
    counts().clear();
    turn
}

/// Frame in simulated NVMM.
struct SurfaceBuffer {
    /// Content of the `NvBufSurface`.
    surface: Vec<u64>,
    /// Content of the `NvBufSurfaceParams`, to which the surface points.
    _params: Vec<u64>,
    _memory: OwnedFd,
    element: &'static str,
}

impl AsRef<[u8]> for SurfaceBuffer {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.surface)
    }
}

impl Drop for SurfaceBuffer {
    fn drop(&mut self) {
        counts().entry(self.element).or_default().released += 1;
    }
}

/// Combines two 32-bit fields of a C structure.
fn pair(low: usize, high: usize) -> u64 {
    low as u64 | (high as u64) << 32
}

/// Makes a buffer with a flat NV12 frame whose luma is `luma`.
fn nvmm_buffer(element: &'static str, width: usize, height: usize, luma: u8) -> gst::Buffer {
    let pitch = width.next_multiple_of(PITCH);
    let chroma = pitch * height;
    let mut pixels = vec![luma; chroma];
    pixels.resize(chroma * 3 / 2, 128);
    let memory = rustix::fs::memfd_create("nvmm", MemfdFlags::CLOEXEC).expect("Linux has it");
    assert_eq!(rustix::io::pwrite(&memory, &pixels, 0).expect("memory has room"), pixels.len());

    let mut params = vec![0u64; 64];
    params[0] = pair(width, height);
    params[1] = pair(pitch, 0);
    params[3] = memory.as_raw_fd() as u64;
    params[4] = pair(pixels.len(), 0);
    // Number of planes, then four fields for each: width, height, pitch, offset.
    params[6] = pair(2, width);
    params[7] = pair(width / 2, 0);
    params[8] = pair(0, height);
    params[9] = pair(height / 2, 0);
    params[10] = pair(0, pitch);
    params[11] = pair(pitch, 0);
    params[12] = pair(0, 0);
    params[13] = pair(chroma, 0);

    let mut surface = vec![0u64; 8];
    surface[0] = pair(0, 1);
    surface[1] = pair(1, 0);
    surface[2] = pair(4, 0);
    surface[3] = params.as_ptr().expose_provenance() as u64;
    // Reserved by NVIDIA: the simulated elements store the luma here.
    surface[4] = u64::from(luma);
    {
        let mut counts = counts();
        let count = counts.entry(element).or_default();
        count.made += 1;
        count.most = count.most.max(count.made - count.released);
    }
    let surface = SurfaceBuffer { surface, _params: params, _memory: memory, element };
    let mut buffer = gst::Buffer::new();
    buffer.get_mut().expect("it is new").append_memory(gst::Memory::from_slice(surface));
    buffer
}

/// Returns the luma of a frame that [`nvmm_buffer`] made.
fn luma_of(buffer: &gst::BufferRef) -> u8 {
    let bytes = buffer.map_readable().expect("it can be read");
    bytes[32]
}

/// Returns the luma of the frame with this number, as the decoder and the camera make it.
pub(crate) fn luma_of_number(number: u64) -> u8 {
    16 + u8::try_from(number * 7 % 200).expect("small")
}
