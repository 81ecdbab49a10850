//! V4L2 ioctls and mapped buffers. All unsafe code of V4L2 is here, and every function that others call is safe.
#![expect(unsafe_code, reason = "ioctls take pointers, and buffers are mapped memory")]

use std::ffi::{c_int, c_void};
use std::io;
use std::mem;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::ptr;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use orinoco_pipeline::Lease;
use orinoco_uri::Rate;
use rustix::io::{FdFlags, fcntl_setfd};
use v4l::v4l_sys as sys;
use v4l::v4l2::{self, vidioc};

/// Maximum number of memory planes of a multi-planar frame (`VIDEO_MAX_PLANES`).
const PLANES_MAX: usize = 8;
/// Memory mapping flags of Linux: readable and writable, shared.
const PROT_READ_WRITE: c_int = 0x1 | 0x2;
const MAP_SHARED: c_int = 0x1;
const POLLIN: i16 = 0x1;

/// Error: the device was removed.
pub(super) const ENODEV: i32 = 19;
/// Error: another program uses the device, or it is not ready.
pub(super) const EBUSY: i32 = 16;
/// Error: this user may not do this, or not in this state.
pub(super) const EACCES: i32 = 13;
/// Error: the value is invalid, or a list has no such entry.
pub(super) const EINVAL: i32 = 22;
/// Error: the value is out of range.
pub(super) const ERANGE: i32 = 34;
/// Error: the device does not support this request.
pub(super) const ENOTTY: i32 = 25;

/// Four-character code of a format (`V4L2_PIX_FMT_*`).
pub(super) type FourCc = [u8; 4];

/// Open capture device.
pub(super) struct Device {
    inner: v4l::Device,
    /// Buffer type: `V4L2_BUF_TYPE_VIDEO_CAPTURE`, or its multi-planar variant.
    buffer_type: u32,
    info: Info,
}

/// Description that a device gives of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Info {
    pub driver: String,
    pub card: String,
    pub bus: String,
}

/// Format that the driver has accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Geometry {
    pub fourcc: FourCc,
    pub width: u32,
    pub height: u32,
    /// Bytes of a row and of the whole, for each memory plane.
    pub planes: Vec<(usize, usize)>,
    pub colorspace: u32,
    pub ycbcr_enc: u32,
    pub quantization: u32,
}

/// Control of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Control {
    pub id: u32,
    pub name: String,
    pub range: (i64, i64),
    pub step: u64,
    pub default: i64,
}

/// Frame sizes of a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Sizes {
    Listed(Vec<(u32, u32)>),
    /// Minimum, maximum and step of width and height.
    Range((u32, u32), (u32, u32), (u32, u32)),
}

/// Calls the kernel, again if a signal interrupts the call.
///
/// # Safety
/// `T` must be the type that `request` is defined with, and pointers in `argument` must be valid for it.
unsafe fn ioctl<T>(device: &v4l::Device, request: vidioc::_IOC_TYPE, argument: &mut T) -> io::Result<()> {
    loop {
        let pointer: *mut T = argument;
        // SAFETY: the caller's promise; the pointer is to a live value of that type.
        match unsafe { v4l2::ioctl(device.handle().fd(), request, pointer.cast::<c_void>()) } {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Type for which all bits zero is a valid value.
///
/// # Safety
/// It consists only of numbers, of pointers that may be null, and of unions and arrays of such.
unsafe trait ZeroIsValid: Copy {}

// SAFETY: structures of the kernel (linux/videodev2.h) of numbers, and of unions of numbers and raw pointers.
unsafe impl ZeroIsValid for sys::v4l2_capability {}
// SAFETY: as above.
unsafe impl ZeroIsValid for sys::v4l2_fmtdesc {}
// SAFETY: as above.
unsafe impl ZeroIsValid for sys::v4l2_frmsizeenum {}
// SAFETY: as above.
unsafe impl ZeroIsValid for sys::v4l2_frmivalenum {}
// SAFETY: as above.
unsafe impl ZeroIsValid for sys::v4l2_format {}
// SAFETY: as above.
unsafe impl ZeroIsValid for sys::v4l2_pix_format {}
// SAFETY: as above.
unsafe impl ZeroIsValid for sys::v4l2_pix_format_mplane {}
// SAFETY: as above.
unsafe impl ZeroIsValid for sys::v4l2_streamparm {}
// SAFETY: as above.
unsafe impl ZeroIsValid for sys::v4l2_captureparm {}
// SAFETY: as above.
unsafe impl ZeroIsValid for sys::v4l2_query_ext_ctrl {}
// SAFETY: as above.
unsafe impl ZeroIsValid for sys::v4l2_plane {}
// SAFETY: as above.
unsafe impl ZeroIsValid for sys::v4l2_requestbuffers {}
// SAFETY: as above.
unsafe impl ZeroIsValid for sys::v4l2_buffer {}
// SAFETY: as above.
unsafe impl ZeroIsValid for sys::v4l2_exportbuffer {}
// SAFETY: an array is its elements.
unsafe impl<T: ZeroIsValid, const N: usize> ZeroIsValid for [T; N] {}

/// Returns a value with all bits zero, as the kernel requires for unused fields.
fn zeroed<T: ZeroIsValid>() -> T {
    // SAFETY: the trait says that this is a value.
    unsafe { mem::zeroed() }
}

/// Whether a list has the requested entry: after the last one the kernel returns `EINVAL`, and `ENOTTY` if there is no
/// list. Other errors are returned, because they do not show the end of the list: a device that is removed meanwhile
/// does not have fewer formats.
fn listed(asked: io::Result<()>) -> io::Result<bool> {
    match asked {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(EINVAL | ENOTTY)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Converts bytes up to their NUL to a string.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).trim().to_owned()
}

impl Device {
    /// Opens the device at `path`; fails if it captures no video.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let inner = v4l::Device::with_path(path)?;
        // It was opened without O_CLOEXEC: a program that starts while it is open would keep the camera busy.
        // SAFETY: the descriptor is open while `inner` lives, which is longer than this borrow of it.
        fcntl_setfd(unsafe { BorrowedFd::borrow_raw(inner.handle().fd()) }, FdFlags::CLOEXEC)?;
        let mut answer: sys::v4l2_capability = zeroed();
        // SAFETY: QUERYCAP takes a v4l2_capability.
        unsafe { ioctl(&inner, vidioc::VIDIOC_QUERYCAP, &mut answer) }?;
        let told = answer.capabilities & sys::V4L2_CAP_DEVICE_CAPS != 0;
        let can = if told { answer.device_caps } else { answer.capabilities };
        let buffer_type = if can & sys::V4L2_CAP_VIDEO_CAPTURE != 0 {
            sys::v4l2_buf_type_V4L2_BUF_TYPE_VIDEO_CAPTURE
        } else if can & sys::V4L2_CAP_VIDEO_CAPTURE_MPLANE != 0 {
            sys::v4l2_buf_type_V4L2_BUF_TYPE_VIDEO_CAPTURE_MPLANE
        } else {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "it captures no video"));
        };
        if can & sys::V4L2_CAP_STREAMING == 0 {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "it does not support streaming I/O (V4L2_CAP_STREAMING)",
            ));
        }
        let (driver, card, bus) = (text(&answer.driver), text(&answer.card), text(&answer.bus_info));
        Ok(Self { inner, buffer_type, info: Info { driver, card, bus } })
    }

    pub(super) fn info(&self) -> &Info {
        &self.info
    }

    pub(super) fn is_multiplanar(&self) -> bool {
        self.buffer_type == sys::v4l2_buf_type_V4L2_BUF_TYPE_VIDEO_CAPTURE_MPLANE
    }

    /// Lists the formats that the device offers, in its order.
    pub(super) fn formats(&self) -> io::Result<Vec<FourCc>> {
        let mut formats = Vec::new();
        for index in 0.. {
            let mut entry = sys::v4l2_fmtdesc { index, type_: self.buffer_type, ..zeroed() };
            // SAFETY: ENUM_FMT takes a v4l2_fmtdesc.
            let asked = unsafe { ioctl(&self.inner, vidioc::VIDIOC_ENUM_FMT, &mut entry) };
            if !listed(asked)? {
                break;
            }
            formats.push(entry.pixelformat.to_le_bytes());
        }
        Ok(formats)
    }

    /// Returns the frame sizes of a format.
    pub(super) fn sizes(&self, fourcc: FourCc) -> Sizes {
        let mut listed = Vec::new();
        for index in 0.. {
            let mut entry =
                sys::v4l2_frmsizeenum { index, pixel_format: u32::from_le_bytes(fourcc), ..zeroed() };
            // SAFETY: ENUM_FRAMESIZES takes a v4l2_frmsizeenum.
            if unsafe { ioctl(&self.inner, vidioc::VIDIOC_ENUM_FRAMESIZES, &mut entry) }.is_err() {
                break;
            }
            if entry.type_ != sys::v4l2_frmsizetypes_V4L2_FRMSIZE_TYPE_DISCRETE {
                // SAFETY: the type says which member of the union the driver filled.
                let range = unsafe { entry.__bindgen_anon_1.stepwise };
                return Sizes::Range(
                    (range.min_width, range.min_height),
                    (range.max_width, range.max_height),
                    (range.step_width.max(1), range.step_height.max(1)),
                );
            }
            // SAFETY: as above.
            let size = unsafe { entry.__bindgen_anon_1.discrete };
            listed.push((size.width, size.height));
        }
        Sizes::Listed(listed)
    }

    /// Returns the frame rates of a format at a size, as the driver lists them; only the fastest one of a range.
    pub(super) fn rates(&self, fourcc: FourCc, (width, height): (u32, u32)) -> Vec<Rate> {
        let pixel_format = u32::from_le_bytes(fourcc);
        let mut rates = Vec::new();
        for index in 0.. {
            let mut entry = sys::v4l2_frmivalenum { index, pixel_format, width, height, ..zeroed() };
            // SAFETY: ENUM_FRAMEINTERVALS takes a v4l2_frmivalenum.
            if unsafe { ioctl(&self.inner, vidioc::VIDIOC_ENUM_FRAMEINTERVALS, &mut entry) }.is_err() {
                break;
            }
            let listed = entry.type_ == sys::v4l2_frmivaltypes_V4L2_FRMIVAL_TYPE_DISCRETE;
            // SAFETY: the type says which member of the union the driver filled.
            let interval = unsafe {
                if listed { entry.__bindgen_anon_1.discrete } else { entry.__bindgen_anon_1.stepwise.min }
            };
            rates.extend(rate(interval));
            if !listed {
                break;
            }
        }
        rates
    }

    /// Returns the current format.
    pub(super) fn geometry(&self) -> io::Result<Geometry> {
        let mut format = sys::v4l2_format { type_: self.buffer_type, ..zeroed() };
        // SAFETY: G_FMT takes a v4l2_format.
        unsafe { ioctl(&self.inner, vidioc::VIDIOC_G_FMT, &mut format) }?;
        Ok(self.read_geometry(&format))
    }

    /// Sets a format and size, and returns those that the driver accepted.
    pub(super) fn set_format(&self, fourcc: FourCc, width: u32, height: u32) -> io::Result<Geometry> {
        let mut format = sys::v4l2_format { type_: self.buffer_type, ..zeroed() };
        let pixelformat = u32::from_le_bytes(fourcc);
        if self.is_multiplanar() {
            format.fmt.pix_mp = sys::v4l2_pix_format_mplane { width, height, pixelformat, ..zeroed() };
        } else {
            format.fmt.pix = sys::v4l2_pix_format { width, height, pixelformat, ..zeroed() };
        }
        // SAFETY: S_FMT takes a v4l2_format.
        unsafe { ioctl(&self.inner, vidioc::VIDIOC_S_FMT, &mut format) }?;
        Ok(self.read_geometry(&format))
    }

    fn read_geometry(&self, format: &sys::v4l2_format) -> Geometry {
        if self.is_multiplanar() {
            // SAFETY: the driver fills the member of the buffer type.
            let pix = unsafe { format.fmt.pix_mp };
            // The structure is packed, so fields are copied out before they are borrowed.
            let (plane_fmt, planes) = (pix.plane_fmt, usize::from(pix.num_planes).min(PLANES_MAX));
            let plane =
                |plane: &sys::v4l2_plane_pix_format| (plane.bytesperline as usize, plane.sizeimage as usize);
            return Geometry {
                fourcc: pix.pixelformat.to_le_bytes(),
                width: pix.width,
                height: pix.height,
                planes: plane_fmt[..planes].iter().map(plane).collect(),
                colorspace: pix.colorspace,
                // SAFETY: both members of the union are one byte.
                ycbcr_enc: u32::from(unsafe { pix.__bindgen_anon_1.ycbcr_enc }),
                quantization: u32::from(pix.quantization),
            };
        }
        // SAFETY: the driver fills the member of the buffer type.
        let pix = unsafe { format.fmt.pix };
        Geometry {
            fourcc: pix.pixelformat.to_le_bytes(),
            width: pix.width,
            height: pix.height,
            planes: vec![(pix.bytesperline as usize, pix.sizeimage as usize)],
            colorspace: pix.colorspace,
            // SAFETY: both members of the union are one number.
            ycbcr_enc: unsafe { pix.__bindgen_anon_1.ycbcr_enc },
            quantization: pix.quantization,
        }
    }

    /// Sets a frame rate and returns the one that the driver accepted; `None` if it does not report it.
    pub(super) fn set_rate(&self, wanted: Rate) -> io::Result<Option<Rate>> {
        let mut parameters = sys::v4l2_streamparm { type_: self.buffer_type, ..zeroed() };
        let interval = sys::v4l2_fract { numerator: wanted.seconds(), denominator: wanted.frames() };
        parameters.parm.capture = sys::v4l2_captureparm { timeperframe: interval, ..zeroed() };
        // SAFETY: S_PARM takes a v4l2_streamparm.
        unsafe { ioctl(&self.inner, vidioc::VIDIOC_S_PARM, &mut parameters) }?;
        // SAFETY: a capture device fills the member `capture`.
        let made = unsafe { parameters.parm.capture };
        let told = made.capability & sys::V4L2_CAP_TIMEPERFRAME != 0;
        Ok(rate(made.timeperframe).filter(|_| told))
    }

    /// Lists the controls with a numeric value that can be set, and whether the list is complete: some cameras fail
    /// when one of their controls is queried, and then the later ones are unknown.
    pub(super) fn controls(&self) -> (Vec<Control>, io::Result<()>) {
        let mut controls = Vec::new();
        let mut id = 0;
        loop {
            let mut entry = sys::v4l2_query_ext_ctrl { id: id | sys::V4L2_CTRL_FLAG_NEXT_CTRL, ..zeroed() };
            // SAFETY: QUERY_EXT_CTRL takes a v4l2_query_ext_ctrl.
            let asked = unsafe { ioctl(&self.inner, vidioc::VIDIOC_QUERY_EXT_CTRL, &mut entry) };
            match listed(asked) {
                // Every answer must have a larger id; otherwise the same one would be queried without end.
                Ok(true) if entry.id > id => id = entry.id,
                Ok(_) => return (controls, Ok(())),
                Err(error) => return (controls, Err(error)),
            }
            let number = [
                sys::v4l2_ctrl_type_V4L2_CTRL_TYPE_INTEGER,
                sys::v4l2_ctrl_type_V4L2_CTRL_TYPE_BOOLEAN,
                sys::v4l2_ctrl_type_V4L2_CTRL_TYPE_MENU,
                sys::v4l2_ctrl_type_V4L2_CTRL_TYPE_INTEGER_MENU,
                sys::v4l2_ctrl_type_V4L2_CTRL_TYPE_BITMASK,
            ];
            let unusable = sys::V4L2_CTRL_FLAG_DISABLED | sys::V4L2_CTRL_FLAG_READ_ONLY;
            if number.contains(&entry.type_) && entry.flags & unusable == 0 {
                let name: Vec<u8> = entry.name.iter().map(|letter| *letter as u8).collect();
                controls.push(Control {
                    id,
                    name: text(&name),
                    range: (entry.minimum, entry.maximum),
                    step: entry.step,
                    default: entry.default_value,
                });
            }
        }
    }

    /// Sets a control with a numeric value.
    pub(super) fn set_control(&self, id: u32, value: i32) -> io::Result<()> {
        let mut control = sys::v4l2_control { id, value };
        // SAFETY: S_CTRL takes a v4l2_control.
        unsafe { ioctl(&self.inner, vidioc::VIDIOC_S_CTRL, &mut control) }
    }
}

fn rate(interval: sys::v4l2_fract) -> Option<Rate> {
    Rate::new(interval.denominator, interval.numerator)
}

/// Buffers that a device fills, mapped into this process. Frames taken from it are leased: dropping one returns its
/// buffer to the driver. The ring lives until the last lease is dropped.
pub(super) struct Ring {
    device: Device,
    buffers: Vec<Buffer>,
    planes: usize,
    streaming: AtomicBool,
    leased: AtomicUsize,
}

struct Buffer {
    maps: Vec<Map>,
    /// First plane as a dma-buf, if the driver exports it.
    dma_buf: Option<OwnedFd>,
}

/// Mapped memory of one plane.
struct Map {
    start: *mut c_void,
    bytes: usize,
}

// SAFETY: a mapping is plain memory, and `FilledBuffer` decides when it may be read.
unsafe impl Send for Map {}
// SAFETY: as above; nothing is written through a shared reference.
unsafe impl Sync for Map {}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this start and size, and nothing refers to it any more.
        let _ = unsafe { v4l2::munmap(self.start, self.bytes) };
    }
}

/// Filled buffer, lent by the ring.
pub(super) struct FilledBuffer {
    ring: Arc<Ring>,
    index: usize,
    /// Range of the image in each plane; a driver may put other data before it.
    used: [Range<usize>; PLANES_MAX],
    /// Time stamp of the monotonic clock, if the driver uses it.
    pub timestamp: Option<Duration>,
    /// Number of the frame at the driver.
    pub sequence: u32,
    /// Whether the driver marks its content as possibly damaged.
    pub damaged: bool,
}

impl Ring {
    /// Requests the device's buffers, gives them to the driver, and starts streaming. `planes` is the number of the
    /// format's memory planes.
    pub(super) fn start(device: Device, buffers: u32, planes: usize) -> io::Result<Arc<Self>> {
        let count = device.request_buffers(buffers)?;
        let maps = (0..count).map(|index| map_buffer(&device, index, planes));
        let buffers = maps.collect::<io::Result<Vec<Buffer>>>()?;
        let ring = Arc::new(Self {
            device,
            buffers,
            planes,
            streaming: AtomicBool::new(true),
            leased: AtomicUsize::new(0),
        });
        for index in 0..ring.buffers.len() {
            ring.queue(index)?;
        }
        let mut buffer_type = ring.device.buffer_type as c_int;
        // SAFETY: STREAMON takes an int.
        unsafe { ioctl(&ring.device.inner, vidioc::VIDIOC_STREAMON, &mut buffer_type) }?;
        Ok(ring)
    }

    /// Returns the number of buffers that have not been returned to the driver.
    pub(super) fn leased(&self) -> usize {
        self.leased.load(Ordering::Acquire)
    }

    /// Returns the number of buffers.
    pub(super) fn len(&self) -> usize {
        self.buffers.len()
    }

    /// Waits at most `wait` until the device is readable. Returns whether it is, so that a buffer is probably filled.
    pub(super) fn wait(&self, wait: Duration) -> io::Result<bool> {
        let millis = c_int::try_from(wait.as_millis()).unwrap_or(c_int::MAX);
        match self.device.inner.handle().poll(POLLIN, millis) {
            Ok(ready) => Ok(ready > 0),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Takes the next filled buffer; `None` when there is none.
    pub(super) fn take(self: &Arc<Self>) -> io::Result<Option<FilledBuffer>> {
        let mut planes: [sys::v4l2_plane; PLANES_MAX] = zeroed();
        let mut buffer = self.device.buffer(0, &mut planes, self.planes);
        // SAFETY: DQBUF takes a v4l2_buffer, whose planes live as long as it does.
        match unsafe { ioctl(&self.device.inner, vidioc::VIDIOC_DQBUF, &mut buffer) } {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        }
        let index = buffer.index as usize;
        if index >= self.buffers.len() {
            return Err(io::Error::other(format!(
                "the driver returned buffer index {index}, but there are {} buffers",
                self.buffers.len()
            )));
        }
        let mut used: [Range<usize>; PLANES_MAX] = Default::default();
        match self.device.is_multiplanar() {
            true => used
                .iter_mut()
                .zip(&planes)
                .for_each(|(used, plane)| *used = plane.data_offset as usize..plane.bytesused as usize),
            false => used[0] = 0..buffer.bytesused as usize,
        }
        self.leased.fetch_add(1, Ordering::AcqRel);
        let monotonic =
            buffer.flags & sys::V4L2_BUF_FLAG_TIMESTAMP_MASK == sys::V4L2_BUF_FLAG_TIMESTAMP_MONOTONIC;
        let seconds = u64::try_from(buffer.timestamp.tv_sec).unwrap_or(0);
        let micros = u64::try_from(buffer.timestamp.tv_usec).unwrap_or(0);
        let timestamp = Duration::from_secs(seconds) + Duration::from_micros(micros);
        Ok(Some(FilledBuffer {
            ring: Arc::clone(self),
            index,
            used,
            timestamp: monotonic.then_some(timestamp),
            sequence: buffer.sequence,
            damaged: buffer.flags & sys::V4L2_BUF_FLAG_ERROR != 0,
        }))
    }

    /// Stops streaming and frees the buffers, so that the device can be started again while frames are still leased:
    /// their buffers stay mapped until the last lease is dropped.
    pub(super) fn stop(&self) {
        if self.streaming.swap(false, Ordering::AcqRel) {
            let mut buffer_type = self.device.buffer_type as c_int;
            // SAFETY: STREAMOFF takes an int. It fails when the device is gone, which does no harm.
            let _ = unsafe { ioctl(&self.device.inner, vidioc::VIDIOC_STREAMOFF, &mut buffer_type) };
            // Since Linux 5.0 this frees mapped buffers too, and their memory is freed with the last mapping. Older
            // kernels refuse it, and the device stays busy until the ring is dropped.
            let _ = self.device.request_buffers(0);
        }
    }

    /// Gives a buffer to the driver.
    fn queue(&self, index: usize) -> io::Result<()> {
        let mut planes: [sys::v4l2_plane; PLANES_MAX] = zeroed();
        let mut buffer = self.device.buffer(index as u32, &mut planes, self.planes);
        // SAFETY: QBUF takes a v4l2_buffer, whose planes live as long as it does.
        unsafe { ioctl(&self.device.inner, vidioc::VIDIOC_QBUF, &mut buffer) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Device {
    /// Requests `count` buffers, or with 0 frees all. Returns the number of buffers that the driver has made.
    fn request_buffers(&self, count: u32) -> io::Result<u32> {
        let mut request = sys::v4l2_requestbuffers {
            count,
            type_: self.buffer_type,
            memory: v4l::Memory::Mmap as u32,
            ..zeroed()
        };
        // SAFETY: REQBUFS takes a v4l2_requestbuffers.
        unsafe { ioctl(&self.inner, vidioc::VIDIOC_REQBUFS, &mut request) }?;
        Ok(request.count)
    }

    /// Makes a buffer's description; `planes` must live as long as it is used.
    fn buffer(
        &self,
        index: u32,
        planes: &mut [sys::v4l2_plane; PLANES_MAX],
        count: usize,
    ) -> sys::v4l2_buffer {
        let mut buffer =
            sys::v4l2_buffer { index, type_: self.buffer_type, memory: v4l::Memory::Mmap as u32, ..zeroed() };
        if self.is_multiplanar() {
            buffer.length = count.min(PLANES_MAX) as u32;
            buffer.m.planes = planes.as_mut_ptr();
        }
        buffer
    }
}

fn map_buffer(device: &Device, index: u32, planes: usize) -> io::Result<Buffer> {
    let mut places: [sys::v4l2_plane; PLANES_MAX] = zeroed();
    let mut buffer = device.buffer(index, &mut places, planes);
    // SAFETY: QUERYBUF takes a v4l2_buffer, whose planes live as long as it does.
    unsafe { ioctl(&device.inner, vidioc::VIDIOC_QUERYBUF, &mut buffer) }?;
    let maps = match device.is_multiplanar() {
        true => {
            let used = places.iter().take(planes.min(PLANES_MAX));
            // SAFETY: for mapped memory the driver fills the offset.
            used.map(|plane| map(device, plane.length, unsafe { plane.m.mem_offset }))
                .collect::<io::Result<_>>()?
        }
        // SAFETY: as above.
        false => vec![map(device, buffer.length, unsafe { buffer.m.offset })?],
    };
    Ok(Buffer { maps, dma_buf: export(device, index) })
}

fn map(device: &Device, bytes: u32, offset: u32) -> io::Result<Map> {
    let (fd, bytes) = (device.inner.handle().fd(), bytes as usize);
    // SAFETY: a new mapping of the driver's memory at an address that the kernel chooses.
    let start =
        unsafe { v4l2::mmap(ptr::null_mut(), bytes, PROT_READ_WRITE, MAP_SHARED, fd, i64::from(offset)) }?;
    Ok(Map { start, bytes })
}

/// Exports the buffer's first plane as a dma-buf, which other devices can read without a copy.
fn export(device: &Device, index: u32) -> Option<OwnedFd> {
    /// Flags O_RDONLY and O_CLOEXEC.
    const FLAGS: u32 = 0o2_000_000;
    let mut request =
        sys::v4l2_exportbuffer { type_: device.buffer_type, index, flags: FLAGS, fd: -1, ..zeroed() };
    // SAFETY: EXPBUF takes a v4l2_exportbuffer.
    unsafe { ioctl(&device.inner, vidioc::VIDIOC_EXPBUF, &mut request) }.ok()?;
    // SAFETY: on success the kernel made this descriptor for us alone.
    (request.fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(request.fd) })
}

impl FilledBuffer {
    /// Returns the bytes of the image in `plane`.
    pub(super) fn plane(&self, plane: usize) -> &[u8] {
        let Some(map) = self.ring.buffers[self.index].maps.get(plane) else { return &[] };
        // SAFETY: the mapping holds `bytes` bytes and lives as long as the ring; until this buffer is queued again, which
        // happens when `self` is dropped, the driver does not write to it.
        let bytes = unsafe { slice::from_raw_parts(map.start.cast::<u8>(), map.bytes) };
        bytes.get(self.used[plane].clone()).unwrap_or(&[])
    }
}

impl Lease for FilledBuffer {
    fn bytes(&self) -> &[u8] {
        self.plane(0)
    }

    fn dma_buf(&self) -> Option<BorrowedFd<'_>> {
        // A consumer of a dma-buf assumes that the image begins at its start.
        if self.used[0].start > 0 {
            return None;
        }
        self.ring.buffers[self.index].dma_buf.as_ref().map(AsFd::as_fd)
    }
}

impl Drop for FilledBuffer {
    fn drop(&mut self) {
        // After a stop the driver has no such buffer. If the stop comes in between, or the device is gone, queueing the
        // buffer fails, which does no harm: nobody waits for it.
        if self.ring.streaming.load(Ordering::Acquire) {
            let _ = self.ring.queue(self.index);
        }
        self.ring.leased.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_ends_where_the_kernel_says_so() {
        assert!(listed(Ok(())).expect("an entry"));
        for errno in [EINVAL, ENOTTY] {
            let there = listed(Err(io::Error::from_raw_os_error(errno)));
            assert!(!there.expect("the end of the list"), "{errno}");
        }
        let gone = listed(Err(io::Error::from_raw_os_error(ENODEV))).expect_err("the device has gone");
        assert_eq!(gone.raw_os_error(), Some(ENODEV));
    }
}
