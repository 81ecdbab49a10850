//! What a process that runs boards asks of the C library, before anything else and after models were loaded.
#![expect(unsafe_code, reason = "environment and C library are set up by functions that ask for care")]

/// glibc deals threads to arenas, up to eight for each core, and an arena keeps what its threads freed. A camera that is
/// reached again brings new threads, and so one arena after another grows to the size of a pipeline: 14 MiB in the four
/// minutes in which a server was killed 12 times. Within two, memory is flat. Frames come from pools, so threads seldom
/// meet in an arena.
#[cfg(target_env = "gnu")]
const ARENAS_MAX: i32 = 2;

/// ONNX Runtime reports to its makers from Linux too, whatever its API is told (seen in 1.31: it looks up a host of theirs
/// and keeps an identifier of the device in the user's cache). With this it does neither.
const NO_TELEMETRY: &str = "ORT_DISABLE_TELEMETRY";

/// Bounds the arenas of the C library's allocator, unless `MALLOC_ARENA_MAX` (mallopt(3)) does, keeps engines from
/// reporting to anybody, and makes of an output that may not grow (`ulimit -f`) an error that the sink reports, where the
/// system would end the process. The first call of `main`: no thread that looks at the environment may run yet. (To count threads
/// would not do: an emulator has one of its own.)
pub fn set_up_process() {
    #[cfg(target_env = "gnu")]
    if std::env::var_os("MALLOC_ARENA_MAX").is_none() {
        // SAFETY: mallopt(3) takes two numbers and may be called at any time. It refuses what it does not know, and then
        // nothing has changed.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, ARENAS_MAX) };
    }
    // SAFETY: signal(2) may be called at any time, and SIG_IGN runs nothing. A write beyond the limit then fails with EFBIG.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    // SAFETY: no other thread could read the environment meanwhile, as this function demands.
    unsafe { std::env::set_var(NO_TELEMETRY, "1") };
}

/// Gives the system back what loading and binding took and freed, which glibc else keeps: 25 MiB of five small models.
pub fn trim_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim(3) may be called at any time, and touches only what nobody holds.
    unsafe {
        libc::malloc_trim(0);
    }
}
