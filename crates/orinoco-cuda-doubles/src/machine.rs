use orinoco_cuda::{Launch, Span, TableLayout, TableSpan};

/// Something that runs kernels on memory it places.
pub trait Machine {
    /// Its name, for messages.
    fn name(&self) -> &'static str;
    /// Whether it is a GPU, whose results may differ from the CPU's in the last bits.
    fn is_gpu(&self) -> bool;
    /// Target of kernel launches on this machine.
    fn target(&self) -> &dyn Launch;
    /// Puts bytes where kernels can reach them.
    fn place(&self, bytes: &[u8]) -> Span;
    /// Waits for the kernels, and reads what they left.
    fn read(&self, span: &Span) -> Vec<u8>;
    /// A table from the bytes that `layout` filled.
    fn table(&self, layout: &TableLayout, bytes: &[u8]) -> TableSpan;
}
