//! Test doubles of CUDA, for machines without a GPU. Only tests use this crate; no program does.
//!
//! - **The emulator** (among [`machines`]) compiles the kernels' sources as C++ and runs them on the CPU, thread by thread,
//!   forwards and backwards, in memory between pages that nobody may touch. It proves the kernels' arithmetic and
//!   bounds, and that both orders of threads give one result. It does not prove what NVIDIA's compiler makes of the
//!   sources, how a GPU rounds `exp`, or what threads that really run at once do to one another.
//! - **The stand-in driver** ([`run_with_stand_in`]) is a `libcuda.so.1` of ours, in which the caller's tests run once more.
//!   Queued work runs as late as it may. It proves how the driver is called: that memory lives long enough and is freed
//!   once, that every call has its context, and that no capture is broken. It does not prove that the real driver agrees,
//!   what overlaps, or how fast it is.
//!
//! Neither can replace a run on a GPU: [`machines`] adds the GPU where there is one. Both need a C++ compiler (`$CXX`, or
//! `c++`), and say so where there is none.
//!
//! Read first: [`Machine`], [`machines`], [`run_with_stand_in`].

mod compile;
mod emulator;
mod gpu;
mod machine;
mod stand_in;

pub use machine::Machine;
pub use stand_in::{is_stand_in, run_with_stand_in};

/// Every machine there is here; says "skipped" for each that is not.
#[expect(clippy::print_stderr, reason = "a test that did not run says so")]
pub fn machines(check: &str) -> Vec<Box<dyn Machine>> {
    let mut machines: Vec<Box<dyn Machine>> = Vec::new();
    match emulator::Emulator::both() {
        Ok([forwards, backwards]) => machines.extend([Box::new(forwards) as _, Box::new(backwards) as _]),
        Err(why) => eprintln!("skipped: {check} on the CPU: {why}"),
    }
    match gpu::Gpu::open() {
        Ok(gpu) => machines.push(Box::new(gpu)),
        Err(why) => eprintln!("skipped: {check} on a GPU: {why}"),
    }
    machines
}
