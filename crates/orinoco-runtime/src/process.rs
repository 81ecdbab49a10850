//! Settings of the C library and of the environment, for a process that runs boards.
#![expect(unsafe_code, reason = "environment and C library are set up by functions that ask for care")]

/// Maximum number of glibc's arenas. glibc spreads threads over up to eight arenas for each core, and an arena keeps the
/// memory that its threads freed. A camera that reconnects brings new threads, so that one arena after another grows to the
/// size of a pipeline: 14 MiB in the four minutes in which a server was killed 12 times. With two arenas, memory stays
/// flat. Frames come from pools, so threads seldom compete for an arena.
#[cfg(target_env = "gnu")]
const ARENAS_MAX: i32 = 2;

/// Variable that turns off ONNX Runtime's telemetry. ONNX Runtime reports to its developers from Linux too, even if its API is
/// told not to (seen in 1.31: it looks up one of their hosts, and keeps an identifier of the device in the user's cache).
/// With this variable it does neither.
const NO_TELEMETRY: &str = "ORT_DISABLE_TELEMETRY";

/// Sets up the process. Bounds the arenas of the C library's allocator, unless `MALLOC_ARENA_MAX` does (mallopt(3)); turns
/// off the telemetry of engines; and ignores SIGXFSZ, so that an output that reaches its size limit (`ulimit -f`) is a
/// fault of its sink and does not end the process.
///
/// Must be the first call of `main`: no thread that reads the environment may run yet. (Counting threads would not check
/// that, because an emulator has one of its own.)
pub fn set_up_process() {
    #[cfg(target_env = "gnu")]
    if std::env::var_os("MALLOC_ARENA_MAX").is_none() {
        // SAFETY: mallopt(3) takes two numbers and may be called at any time. It refuses an unknown option, and then
        // nothing has changed.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, ARENAS_MAX) };
    }
    // SAFETY: signal(2) may be called at any time, and SIG_IGN runs nothing. A write beyond the limit then fails with EFBIG.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    // SAFETY: no other thread could read the environment meanwhile, as this function demands.
    unsafe { std::env::set_var(NO_TELEMETRY, "1") };
}

/// Returns freed memory to the system, after models were loaded and bound. glibc would keep it: 25 MiB for five small
/// models.
pub fn trim_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim(3) may be called at any time, and touches only memory that is not in use.
    unsafe {
        libc::malloc_trim(0);
    }
}
