/// Where a source leaves its frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FrameMemory {
    /// Where the host reads them.
    #[default]
    Host,
    /// In a Jetson's video memory (NVMM), where it makes them there: for plans on the GPU, which read it without a copy.
    Nvmm,
}
