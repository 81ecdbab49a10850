/// Memory in which a source stores its frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FrameMemory {
    /// Host memory.
    #[default]
    Host,
    /// Video memory of a Jetson (NVMM), if the source's decoder or camera produces frames there. For models on the GPU,
    /// which read it without a copy.
    Nvmm,
}
