//! What the checks run on: a GPU where there is one, and the CPU everywhere.

mod build;
mod emulator;
mod gpu;

use orinoco_cuda::{Launch, Span, TableLayout, TableSpan};

/// Something that runs kernels on memory it places.
pub(crate) trait Machine {
    fn name(&self) -> &'static str;
    fn is_gpu(&self) -> bool;
    fn target(&self) -> &dyn Launch;
    /// Puts bytes where kernels can reach them.
    fn place(&self, bytes: &[u8]) -> Span;
    /// Waits for the kernels, and reads what they left.
    fn read(&self, span: &Span) -> Vec<u8>;
    /// A table from the bytes that `layout` filled.
    fn table(&self, layout: &TableLayout, bytes: &[u8]) -> TableSpan;
}

/// Every machine there is here; says "skipped" for each that is not.
#[expect(clippy::print_stderr, reason = "a test that did not run says so")]
pub(crate) fn machines(check: &str) -> Vec<Box<dyn Machine>> {
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
