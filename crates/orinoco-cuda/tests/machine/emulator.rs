//! The kernels' sources compiled as C++ and run on the CPU: the same arithmetic, thread by thread.
#![expect(unsafe_code, reason = "the compiled kernels are C, and read memory by address")]

use std::cell::UnsafeCell;
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::slice;
use std::sync::{Arc, Mutex, OnceLock};

use libloading::Library;
use orinoco_cuda::launch::{Arguments, Grid};
use orinoco_cuda::{CudaError, Kernel, Launch, Owner, Span, TableLayout, TableSpan};

use super::{Machine, build};

/// `orinoco_launch` of a compiled source: name, grid and block, a pointer to each value, direction.
type Run = unsafe extern "C" fn(*const c_char, *const c_uint, *const *const c_void, c_int) -> c_int;

/// Bytes before and after what is placed, to see that nothing is written there, and that what is read there does not
/// matter: each direction has others.
const GUARD_BYTES: usize = 64;

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

    fn guard(&self) -> u8 {
        if self.backwards { 0x5a } else { 0xa5 }
    }
}

fn compile() -> Result<Kernels, String> {
    let compiler = build::compiler()?;
    let folder = tempfile::tempdir().expect("a folder for the compiled kernels");
    let builds = build::SOURCES.map(|name| {
        let text = build::source(name);
        let entries: String = build::kernel_names(&text)
            .map(|kernel| format!("{{\"{kernel}\", [](void **v) {{ emulator::call({kernel}, v); }}}},\n"))
            .collect();
        let whole = format!(
            "{}{text}static const emulator::Entry entries[] = {{{entries}}};\n\
             extern \"C\" int orinoco_launch(const char *name, const unsigned *grid, void **values, int backwards) {{\n\
             return emulator::launch(entries, sizeof entries / sizeof *entries, name, grid, values, backwards); }}\n",
            build::head()
        );
        let library = folder.path().join(format!("lib{name}.so"));
        (build::start(&compiler, &whole, &library), library)
    });
    let libraries = builds.map(|(child, library)| {
        build::finish(child);
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
            // SAFETY: `arguments` are what the kernel takes: they are made in launch.rs only. Memory they name lies in
            // spans, which were placed below and live as long as `arguments`.
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

/// Bytes with guards around them, aligned to 8.
struct Placed {
    words: Box<[UnsafeCell<u64>]>,
    bytes: usize,
    guard: u8,
}

// SAFETY: tests place, launch and read one after another.
unsafe impl Send for Placed {}
// SAFETY: as above.
unsafe impl Sync for Placed {}

impl Placed {
    fn pointer(&self) -> *mut u8 {
        self.words[0].get().cast()
    }

    fn all(&self) -> &[u8] {
        // SAFETY: the words live as long as `self`, and no launch runs.
        unsafe { slice::from_raw_parts(self.pointer(), self.words.len() * 8) }
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        let (before, rest) = self.all().split_at(GUARD_BYTES);
        let untouched = before.iter().chain(&rest[self.bytes..]).all(|byte| *byte == self.guard);
        assert!(untouched || std::thread::panicking(), "a kernel wrote outside of {} bytes", self.bytes);
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
        let words = (bytes.len() + 2 * GUARD_BYTES).div_ceil(8);
        let word = u64::from_ne_bytes([self.guard(); 8]);
        let words = (0..words).map(|_| UnsafeCell::new(word)).collect();
        let placed = Placed { words, bytes: bytes.len(), guard: self.guard() };
        // SAFETY: the words hold the bytes and a guard on each side.
        let start = unsafe { placed.pointer().add(GUARD_BYTES) };
        // SAFETY: as above; nobody else knows of them yet.
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
