//! Frames in NVIDIA's video memory (NVMM), as JetPack's elements pass them: a buffer holds an `NvBufSurface`, which
//! refers to a dma-buf.
//!
//! The structures are those of nvbufsurface.h (Jetson Linux Multimedia API; JetPack 5, 6 and 7 agree in the part that
//! is read here). Nothing is read after the plane parameters of `surfaceList[0]`, where versions differ.
#![expect(unsafe_code, reason = "a buffer's content is a C structure with a pointer to another")]

use std::ffi::c_void;
use std::fmt;
use std::mem::{align_of, size_of};
use std::os::fd::{BorrowedFd, RawFd};
use std::slice;

/// Value of `NVBUF_MAX_PLANES`.
const PLANES: usize = 4;
/// Value of `NVBUF_LAYOUT_PITCH`: rows one after another. The other layout is in blocks, which only NVIDIA's devices
/// read.
const LAYOUT_PITCH: u32 = 0;
/// Values of `NVBUF_MEM_DEFAULT` and `NVBUF_MEM_SURFACE_ARRAY`: on a Jetson both are dma-bufs.
const MEMORY: [u32; 2] = [0, 4];

/// First part of `NvBufSurface`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct NvBufSurface {
    pub(super) gpu_id: u32,
    pub(super) batch_size: u32,
    pub(super) num_filled: u32,
    /// A C `bool` and its padding.
    pub(super) is_contiguous: u32,
    pub(super) mem_type: u32,
    pub(super) surface_list: *const NvBufSurfaceParams,
}

/// First part of `NvBufSurfaceParams`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct NvBufSurfaceParams {
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) pitch: u32,
    pub(super) color_format: u32,
    pub(super) layout: u32,
    /// File descriptor of the dma-buf.
    pub(super) buffer_desc: u64,
    pub(super) data_size: u32,
    pub(super) data_ptr: *const c_void,
    pub(super) planes: NvBufSurfacePlaneParams,
}

/// First part of `NvBufSurfacePlaneParams`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct NvBufSurfacePlaneParams {
    pub(super) num_planes: u32,
    pub(super) width: [u32; PLANES],
    pub(super) height: [u32; PLANES],
    pub(super) pitch: [u32; PLANES],
    pub(super) offset: [u32; PLANES],
}

/// Description of a frame in NVMM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Surface {
    pub(super) width: u32,
    pub(super) height: u32,
    /// Offset and pitch of each plane, in bytes.
    pub(super) planes: Vec<(usize, usize)>,
    fd: RawFd,
}

/// Reason why a buffer holds no surface that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SurfaceError {
    /// The buffer has this many bytes, and no NvBufSurface begins in it.
    NoSurface { bytes: usize },
    /// The surface is in this type of memory, and has `filled` of `buffers` buffers.
    Unusable { memory: u32, filled: u32, buffers: u32 },
    /// The surface has no list of frames.
    Empty,
    /// The rows are not stored one after another.
    BlockLinear,
    /// The frame has this number of planes.
    Planes(usize),
    /// The frame has no dma-buf.
    NoDmaBuf,
}

impl fmt::Display for SurfaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSurface { bytes } => {
                write!(f, "an NVMM buffer of {bytes} bytes does not hold an NvBufSurface")
            }
            Self::Unusable { memory, filled, buffers } => {
                write!(f, "an NVMM surface has memory type {memory} and {filled} of {buffers} buffers filled")
            }
            Self::Empty => f.write_str("an NVMM surface is empty"),
            Self::BlockLinear => f.write_str("an NVMM surface is block-linear"),
            Self::Planes(count) => write!(f, "an NVMM surface has {count} planes"),
            Self::NoDmaBuf => f.write_str("an NVMM surface has no dma-buf fd"),
        }
    }
}

impl Surface {
    /// Reads the content of a buffer with the caps feature `memory:NVMM`.
    pub(super) fn read(content: &[u8]) -> Result<Self, SurfaceError> {
        let start = content.as_ptr().cast::<NvBufSurface>();
        if content.len() < size_of::<NvBufSurface>() || start.addr() % align_of::<NvBufSurface>() != 0 {
            return Err(SurfaceError::NoSurface { bytes: content.len() });
        }
        // SAFETY: the length and alignment were checked above, and every bit pattern is a value of the structure.
        let surface = unsafe { *start };
        if surface.batch_size == 0
            || surface.num_filled > surface.batch_size
            || !MEMORY.contains(&surface.mem_type)
        {
            return Err(SurfaceError::Unusable {
                memory: surface.mem_type,
                filled: surface.num_filled,
                buffers: surface.batch_size,
            });
        }
        let list = surface.surface_list;
        if list.is_null() || list.addr() % align_of::<NvBufSurfaceParams>() != 0 {
            return Err(SurfaceError::Empty);
        }
        // SAFETY: NVIDIA's elements make the list with `batch_size` surfaces, at least one, and keep it as long as the
        // buffer with this content. The part that is read here has been the same since JetPack 5.
        let first = unsafe { &slice::from_raw_parts(list, 1)[0] };
        Self::from_params(first)
    }

    fn from_params(params: &NvBufSurfaceParams) -> Result<Self, SurfaceError> {
        if params.layout != LAYOUT_PITCH {
            return Err(SurfaceError::BlockLinear);
        }
        let count = params.planes.num_planes as usize;
        if !(1..=PLANES).contains(&count) {
            return Err(SurfaceError::Planes(count));
        }
        let fd = RawFd::try_from(params.buffer_desc).ok().filter(|fd| *fd >= 0);
        let planes = params.planes.offset.iter().zip(&params.planes.pitch).take(count);
        Ok(Self {
            width: params.width,
            height: params.height,
            planes: planes.map(|(offset, pitch)| (*offset as usize, *pitch as usize)).collect(),
            fd: fd.ok_or(SurfaceError::NoDmaBuf)?,
        })
    }

    /// Returns the dma-buf of the frame, which is valid while `self` is kept together with its buffer.
    pub(super) fn dma_buf(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor belongs to the buffer, which its lease holds together with `self`.
        unsafe { BorrowedFd::borrow_raw(self.fd) }
    }
}
