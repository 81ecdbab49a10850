//! Maps NVMM surfaces of a Jetson for CUDA without a copy: the dma-buf's `NvBufSurface`, its EGL image, and the EGL frame
//! that CUDA maps.
//!
//! The functions are those of nvbufsurface.h (Jetson Linux Multimedia API) and cudaEGL.h (CUDA driver API, "EGL
//! Interoperability"), opened by name when the first such frame arrives: other machines have neither. The structures have
//! kept their layout since JetPack 5, as far as they are read here.
#![expect(unsafe_code, reason = "two C libraries that know each other's handles")]

use std::any::Any;
use std::ffi::{c_int, c_uint, c_void};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys;
use libloading::Library;
use orinoco_core::FrameDesc;

use crate::context::Context;
use crate::driver::check;
use crate::span::Span;
use crate::{CudaError, Device, DriverFault};

/// File names of NVIDIA's library: the one that its own programs open, and the one for linking.
const LIBRARIES: [&str; 2] = ["libnvbufsurface.so.1.0.0", "libnvbufsurface.so"];
/// `NVBUF_MAX_PLANES`.
const PLANES: usize = 4;
/// `STRUCTURE_PADDING`.
const PADDING: usize = 4;
/// `CU_GRAPHICS_REGISTER_FLAGS_READ_ONLY`.
const READ_ONLY: c_uint = 1;
/// `CU_EGL_FRAME_TYPE_PITCH`: pitch-linear memory. The other type is an array, which kernels cannot read by address.
const FRAME_PITCH: c_uint = 1;
/// `MAX_PLANES` of cudaEGL.h.
const EGL_PLANES: usize = 3;

/// `NvBufSurface`.
#[repr(C)]
struct NvBufSurface {
    gpu_id: u32,
    batch_size: u32,
    num_filled: u32,
    /// A C `bool`, and padding.
    is_contiguous: u32,
    mem_type: u32,
    surface_list: *mut NvBufSurfaceParams,
}

/// `NvBufSurfaceParams`, up to the last field that is read here.
#[repr(C)]
struct NvBufSurfaceParams {
    width: u32,
    height: u32,
    pitch: u32,
    color_format: u32,
    layout: u32,
    buffer_desc: u64,
    data_size: u32,
    data_ptr: *mut c_void,
    planes: NvBufSurfacePlaneParams,
    mapped_addr: [*mut c_void; PLANES],
    egl_image: *mut c_void,
}

#[repr(C)]
struct NvBufSurfacePlaneParams {
    num_planes: u32,
    width: [u32; PLANES],
    height: [u32; PLANES],
    pitch: [u32; PLANES],
    offset: [u32; PLANES],
    size: [u32; PLANES],
    bytes_per_pixel: [u32; PLANES],
    reserved: [*mut c_void; PLANES * PADDING],
}

/// `CUeglFrame`.
#[repr(C)]
struct EglFrame {
    /// Plane pointers; in the header a union with arrays.
    planes: [*mut c_void; EGL_PLANES],
    width: c_uint,
    height: c_uint,
    depth: c_uint,
    pitch: c_uint,
    plane_count: c_uint,
    channels: c_uint,
    frame_type: c_uint,
    color_format: c_uint,
    element: c_uint,
}

type SurfaceFromFd = unsafe extern "C" fn(c_int, *mut *mut NvBufSurface) -> c_int;
type OfSurface = unsafe extern "C" fn(*mut NvBufSurface, c_int) -> c_int;
type RegisterImage = unsafe extern "C" fn(*mut sys::CUgraphicsResource, *mut c_void, c_uint) -> sys::CUresult;
type MappedFrame =
    unsafe extern "C" fn(*mut EglFrame, sys::CUgraphicsResource, c_uint, c_uint) -> sys::CUresult;

/// Maps NVMM surfaces of a Jetson's video hardware for CUDA kernels.
#[derive(Clone)]
pub struct Surfaces {
    functions: Arc<Functions>,
    context: Arc<Context>,
}

struct Functions {
    from_fd: SurfaceFromFd,
    map: OfSurface,
    unmap: OfSurface,
    register: RegisterImage,
    frame: MappedFrame,
    /// Libraries that contain the functions.
    _libraries: [Library; 2],
}

impl Surfaces {
    /// Opens NVIDIA's libraries. Fails on a machine that is not a Jetson.
    pub fn open(device: &Device) -> Result<Self, CudaError> {
        // SAFETY: NVIDIA's libraries are made to be opened at run time.
        let open = |name| unsafe { Library::new(name) };
        let surfaces = open(LIBRARIES[0]).or_else(|_| open(LIBRARIES[1])).map_err(|why| missing(&why))?;
        let cuda = open("libcuda.so.1").map_err(|why| missing(&why))?;
        // SAFETY: the types are those of the functions in the headers named above.
        let find = || unsafe {
            Ok::<_, libloading::Error>((
                *surfaces.get::<SurfaceFromFd>(c"NvBufSurfaceFromFd")?,
                *surfaces.get::<OfSurface>(c"NvBufSurfaceMapEglImage")?,
                *surfaces.get::<OfSurface>(c"NvBufSurfaceUnMapEglImage")?,
                *cuda.get::<RegisterImage>(c"cuGraphicsEGLRegisterImage")?,
                *cuda.get::<MappedFrame>(c"cuGraphicsResourceGetMappedEglFrame")?,
            ))
        };
        let (from_fd, map, unmap, register, frame) = find().map_err(|why| missing(&why))?;
        let functions = Functions { from_fd, map, unmap, register, frame, _libraries: [surfaces, cuda] };
        Ok(Self { functions: Arc::new(functions), context: Arc::clone(device.context()) })
    }

    /// Maps the surface in `dma_buf`, whose layout is `desc`, and returns its span of GPU memory. The span keeps `lease`, which
    /// keeps the dma-buf alive. Wait for the CUDA stream before the last clone of the span is dropped: nothing may read the
    /// surface then.
    pub fn span<T: Any + Send + Sync>(
        &self,
        desc: &FrameDesc,
        dma_buf: BorrowedFd<'_>,
        lease: T,
    ) -> Result<Span, CudaError> {
        self.context.bind()?;
        let image = self.image(dma_buf)?;
        let (functions, context) = (Arc::clone(&self.functions), Arc::clone(&self.context));
        let mut mapped = CudaImage { functions, context, resource: ptr::null_mut(), image };
        // SAFETY: the resource has a place, and the image is there until `mapped` is dropped.
        let result =
            unsafe { (self.functions.register)(&mut mapped.resource, mapped.image.handle(), READ_ONLY) };
        check(result, "cuGraphicsEGLRegisterImage", || doing("registering"))?;
        let start = mapped.start()?;
        let bytes = desc.bytes_needed();
        if bytes > mapped.image.params().data_size as usize {
            return Err(strange("NvBufSurfaceFromFd", "the surface is smaller than its frame"));
        }
        // SAFETY: the driver maps the planes of a registered image, which is there until its owner is dropped; `start`
        // checked that they lie as the surface says, which has that many bytes.
        Ok(unsafe { Span::foreign(start, bytes, Some(Arc::new((mapped, lease)))) })
    }

    fn image(&self, dma_buf: BorrowedFd<'_>) -> Result<Image, CudaError> {
        let mut surface = ptr::null_mut();
        // SAFETY: the surface has a place; the function only looks the descriptor up.
        let answer = unsafe { (self.functions.from_fd)(dma_buf.as_raw_fd(), &mut surface) };
        refused(answer, "NvBufSurfaceFromFd")?;
        // SAFETY: the library found it, and its owner keeps it as long as the dma-buf.
        let whole = unsafe { surface.as_ref() };
        if !whole.is_some_and(|surface| surface.batch_size > 0 && !surface.surface_list.is_null()) {
            return Err(strange("NvBufSurfaceFromFd", "the surface is empty"));
        }
        let mut image = Image { functions: Arc::clone(&self.functions), surface, is_ours: false };
        if image.handle().is_null() {
            // SAFETY: the surface has a first buffer, as was checked above.
            refused(unsafe { (self.functions.map)(surface, 0) }, "NvBufSurfaceMapEglImage")?;
            image.is_ours = true;
        }
        if image.handle().is_null() {
            return Err(strange("NvBufSurfaceMapEglImage", "it returned no EGL image"));
        }
        Ok(image)
    }
}

impl std::fmt::Debug for Surfaces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Surfaces")
    }
}

/// EGL image of a surface's first buffer. An image that existed before was mapped by other code, and is not unmapped here.
struct Image {
    functions: Arc<Functions>,
    surface: *mut NvBufSurface,
    is_ours: bool,
}

impl Image {
    fn params(&self) -> &NvBufSurfaceParams {
        // SAFETY: `Surfaces::image` checked that there is one; the owner of the dma-buf keeps it, and nobody changes it
        // but the library, when it makes or ends an image.
        unsafe { &*(*self.surface).surface_list }
    }

    fn handle(&self) -> *mut c_void {
        self.params().egl_image
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        if self.is_ours {
            // SAFETY: it was mapped in `Surfaces::image`, and is registered no more.
            let _ = unsafe { (self.functions.unmap)(self.surface, 0) };
        }
    }
}

/// EGL image that is registered with CUDA. It is unregistered before the image is unmapped, because fields are dropped last.
struct CudaImage {
    functions: Arc<Functions>,
    context: Arc<Context>,
    resource: sys::CUgraphicsResource,
    image: Image,
}

// SAFETY: the driver's resources and the library's surfaces are bound to no thread, and nothing here changes them but
// `drop`, which has exclusive access.
unsafe impl Send for CudaImage {}
// SAFETY: as above.
unsafe impl Sync for CudaImage {}

impl CudaImage {
    /// Returns the GPU address of the surface's first byte.
    fn start(&self) -> Result<u64, CudaError> {
        let call = "cuGraphicsResourceGetMappedEglFrame";
        // SAFETY: zeros are a value of the structure.
        let mut frame: EglFrame = unsafe { std::mem::zeroed() };
        // SAFETY: `frame` is a place for the answer, and the resource was registered.
        let result = unsafe { (self.functions.frame)(&mut frame, self.resource, 0, 0) };
        check(result, call, || doing("mapping"))?;
        let planes = &self.image.params().planes;
        let count = frame.plane_count as usize;
        if frame.frame_type != FRAME_PITCH || count > EGL_PLANES || count != planes.num_planes as usize {
            return Err(strange(call, "the EGL frame is not pitch-linear"));
        }
        let starts = frame.planes.iter().zip(&planes.offset).take(count);
        let mut starts = starts.map(|(plane, offset)| (plane.addr() as u64).wrapping_sub(u64::from(*offset)));
        let start = starts.next().ok_or_else(|| strange(call, "the EGL frame has no planes"))?;
        if !starts.all(|other| other == start) {
            return Err(strange(call, "the plane offsets of the EGL frame and the surface differ"));
        }
        Ok(start)
    }
}

impl Drop for CudaImage {
    fn drop(&mut self) {
        if !self.resource.is_null() && self.context.bind().is_ok() {
            // SAFETY: it was registered in `Surfaces::span`, and whoever read it is done.
            let _ = unsafe { sys::cuGraphicsUnregisterResource(self.resource) };
        }
    }
}

fn doing(what: &str) -> String {
    format!("{what} an NVMM surface for CUDA")
}

fn missing(why: &libloading::Error) -> CudaError {
    let source = DriverFault { code: 0, name: "library not found".to_owned(), meaning: why.to_string() };
    CudaError { call: "dlopen", doing: doing("opening the libraries for"), source }
}

fn refused(answer: c_int, call: &'static str) -> Result<(), CudaError> {
    if answer == 0 {
        return Ok(());
    }
    let meaning = "NVIDIA's library does not say why".to_owned();
    let source = DriverFault { code: answer.unsigned_abs(), name: format!("it answered {answer}"), meaning };
    Err(CudaError { call, doing: doing("mapping"), source })
}

fn strange(call: &'static str, meaning: &str) -> CudaError {
    let source = DriverFault { code: 0, name: "unexpected surface".to_owned(), meaning: meaning.to_owned() };
    CudaError { call, doing: doing("mapping"), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    /// Compares with the 64-bit layout of the headers.
    #[test]
    fn structures_lie_as_in_the_headers() {
        assert_eq!(offset_of!(NvBufSurface, surface_list), 24);
        assert_eq!(offset_of!(NvBufSurfaceParams, planes), 48);
        assert_eq!(offset_of!(NvBufSurfaceParams, mapped_addr), 280);
        assert_eq!(offset_of!(NvBufSurfaceParams, egl_image), 312);
        assert_eq!((offset_of!(EglFrame, frame_type), size_of::<EglFrame>()), (48, 64));
    }
}
