//! How the C library keeps freed memory, in a process that runs for months.
#![expect(unsafe_code, reason = "the C library's allocator is set up by a C function")]

/// glibc deals threads to arenas, up to eight for each core, and an arena keeps what its threads freed. A camera that is
/// reached again brings new threads, and so one arena after another grows to the size of a pipeline: 14 MiB in the four
/// minutes in which a server was killed 12 times. Within two, memory is flat. Frames come from pools, so threads seldom
/// meet in an arena.
const ARENAS_MAX: i32 = 2;

/// Bounds the arenas, unless whoever started us did (`MALLOC_ARENA_MAX`, mallopt(3)).
pub(crate) fn bound_arenas() {
    #[cfg(target_env = "gnu")]
    if std::env::var_os("MALLOC_ARENA_MAX").is_none() {
        // SAFETY: mallopt(3) takes two numbers and may be called at any time. It refuses what it does not know, and then
        // nothing has changed.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, ARENAS_MAX) };
    }
}
