//! The kernels' sources compiled as C++ and run on the CPU: the same arithmetic, thread by thread.
#![expect(unsafe_code, reason = "the compiled kernels are C, and read memory by address")]

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::slice;
use std::sync::{Arc, Mutex, OnceLock};

use libloading::Library;
use orinoco_cuda::launch::{Arguments, Grid};
use orinoco_cuda::{CudaError, Kernel, Launch, Owner, Span, TableLayout, TableSpan};

use crate::compile;
use crate::machine::Machine;

/// `orinoco_launch` of a compiled source: name, grid and block, a pointer to each value, direction.
type Run = unsafe extern "C" fn(*const c_char, *const c_uint, *const *const c_void, c_int) -> c_int;

/// `orinoco_place`: length, and whether the memory ends where no page is, or starts there.
type Place = unsafe extern "C" fn(usize, c_int) -> *mut u8;
/// `orinoco_remove`: the same, of what was placed.
type Remove = unsafe extern "C" fn(*mut u8, usize, c_int);

/// The compiled kernels.
struct Kernels {
    libraries: Vec<Library>,
    /// The schedulers of a library keep their state in it.
    one_at_a_time: Mutex<()>,
    _folder: tempfile::TempDir,
}

pub(crate) struct Emulator {
    kernels: &'static Kernels,
    backwards: bool,
}

impl Emulator {
    /// The emulator in both directions, or why there is none.
    pub(crate) fn both() -> Result<[Self; 2], String> {
        static KERNELS: OnceLock<Result<Kernels, String>> = OnceLock::new();
        let kernels = KERNELS.get_or_init(compile).as_ref().map_err(Clone::clone)?;
        Ok([false, true].map(|backwards| Self { kernels, backwards }))
    }
}

fn compile() -> Result<Kernels, String> {
    let compiler = compile::compiler()?;
    let folder = tempfile::tempdir().expect("a folder for the compiled kernels");
    let builds = compile::SOURCES.map(|name| {
        let text = compile::source(name);
        let entries: String = compile::kernel_names(&text)
            .map(|kernel| format!("{{\"{kernel}\", [](void **v) {{ emulator::call({kernel}, v); }}}},\n"))
            .collect();
        let whole = format!(
            "{}{text}static const emulator::Entry entries[] = {{{entries}}};\n\
             extern \"C\" int orinoco_launch(const char *name, const unsigned *grid, void **values, int backwards) {{\n\
             return emulator::launch(entries, sizeof entries / sizeof *entries, name, grid, values, backwards); }}\n\
             extern \"C\" char *orinoco_place(size_t bytes, int at_end) {{ return emulator::place(bytes, at_end); }}\n\
             extern \"C\" void orinoco_remove(char *placed, size_t bytes, int at_end) {{\n\
             emulator::remove(placed, bytes, at_end); }}\n",
            compile::head()
        );
        let library = folder.path().join(format!("lib{name}.so"));
        (compile::start(&compiler, &whole, &library), library)
    });
    let libraries = builds.map(|(child, library)| {
        compile::finish(child);
        // SAFETY: it was just built from our sources, and does nothing when it is opened.
        unsafe { Library::new(&library) }.expect("the compiled kernels can be opened")
    });
    Ok(Kernels { libraries: libraries.into(), one_at_a_time: Mutex::new(()), _folder: folder })
}

impl Launch for Emulator {
    fn launch(&self, kernel: Kernel, grid: Grid, arguments: &Arguments<'_>) -> Result<(), CudaError> {
        let name = CString::new(kernel.name()).expect("a kernel's name has no zero byte");
        let ([gx, gy, gz], [bx, by, bz]) = (grid.blocks, grid.threads);
        let sizes = [gx, gy, gz, bx, by, bz];
        // What the driver would refuse.
        assert!(gx > 0 && gy > 0 && gz > 0 && gy <= 65535 && gz <= 65535, "{grid:?}");
        assert!((1..=1024).contains(&(bx * by * bz)) && bz <= 64, "{grid:?}");
        let _alone = self.kernels.one_at_a_time.lock().expect("no launch panics");
        let ran = self.kernels.libraries.iter().any(|library| {
            // SAFETY: `orinoco_launch` has this type in every library (see `compile`).
            let run = unsafe { library.get::<Run>(b"orinoco_launch") }.expect("it is in every library");
            // SAFETY: `arguments` are what the kernel takes: they are made in launch.rs and below it only.
            // Memory they name lies in spans, which were placed below and live as long as `arguments`.
            let code = unsafe {
                run(name.as_ptr(), sizes.as_ptr(), arguments.pointers().as_ptr(), c_int::from(self.backwards))
            };
            code == 0
        });
        assert!(ran, "{} is in no source", kernel.name());
        Ok(())
    }

    fn zero(&self, span: &Span) -> Result<(), CudaError> {
        // SAFETY: the span was placed below, and nobody else uses it meanwhile.
        unsafe { slice::from_raw_parts_mut(span.address() as *mut u8, span.bytes()) }.fill(0);
        Ok(())
    }
}

/// Bytes at the edge of what may be touched: a kernel that reads or writes past it ends the test.
struct Placed {
    kernels: &'static Kernels,
    start: *mut u8,
    bytes: usize,
    at_end: bool,
}

// SAFETY: tests place, launch and read one after another.
unsafe impl Send for Placed {}
// SAFETY: as above.
unsafe impl Sync for Placed {}

impl Placed {
    fn new(kernels: &'static Kernels, bytes: usize, at_end: bool) -> Self {
        // SAFETY: `orinoco_place` has this type in every library (see `compile`).
        let place =
            unsafe { kernels.libraries[0].get::<Place>(b"orinoco_place") }.expect("it is in every library");
        // SAFETY: it takes any length.
        let start = unsafe { place(bytes, c_int::from(at_end)) };
        Self { kernels, start, bytes, at_end }
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        // SAFETY: `orinoco_remove` has this type in every library (see `compile`).
        let remove = unsafe { self.kernels.libraries[0].get::<Remove>(b"orinoco_remove") }
            .expect("it is in every library");
        // SAFETY: the memory was placed with the same arguments, and this is its last owner.
        unsafe { remove(self.start, self.bytes, c_int::from(self.at_end)) };
    }
}

impl Machine for Emulator {
    fn name(&self) -> &'static str {
        if self.backwards { "the CPU, backwards" } else { "the CPU" }
    }

    fn is_gpu(&self) -> bool {
        false
    }

    fn target(&self) -> &dyn Launch {
        self
    }

    fn place(&self, bytes: &[u8]) -> Span {
        let placed = Placed::new(self.kernels, bytes.len(), !self.backwards);
        let start = placed.start;
        // SAFETY: that many bytes were placed, and nobody else knows of them yet.
        unsafe { start.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        let owner: Owner = Arc::new(placed);
        // SAFETY: the bytes lie in `placed`, which lives as long as its owner.
        unsafe { Span::foreign(start as u64, bytes.len(), Some(owner)) }
    }

    fn read(&self, span: &Span) -> Vec<u8> {
        // SAFETY: the span was placed above, and no launch runs.
        unsafe { slice::from_raw_parts(span.address() as *const u8, span.bytes()) }.to_vec()
    }

    fn table(&self, layout: &TableLayout, bytes: &[u8]) -> TableSpan {
        // SAFETY: the checks fill `bytes` by `layout`, and hold the frames until they are done.
        unsafe { TableSpan::foreign(self.place(bytes), layout) }
    }
}
