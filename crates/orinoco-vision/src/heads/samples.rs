//! Sample models of a head, which the suite of heads feeds: `heads/tests.rs` and `tests/hostile.rs`.

/// Name and shape of an output.
pub type SampleShape = (&'static str, &'static [usize]);

/// Name and shape of an output, and its values, which are repeated until it is full.
pub type SampleValues = (&'static str, &'static [usize], &'static [f32]);

/// Sample models of one head.
#[derive(Clone, Copy, Debug)]
pub struct HeadSamples {
    /// Model as large as published ones.
    pub published: SampleModel<SampleShape>,
    /// Model of 32 x 32 pixels, with outputs in which the head finds something; `None` for heads without a threshold.
    pub finding: Option<SampleModel<SampleValues>>,
}

/// Sample model of a head.
#[derive(Clone, Copy, Debug)]
pub struct SampleModel<O: 'static> {
    /// Number of classes.
    pub classes: usize,
    /// Width and height of its input, in pixels.
    pub side: u32,
    /// Cell sizes, where the head has no usual ones.
    pub strides: &'static [u32],
    /// Outputs for one image.
    pub outputs: &'static [O],
}

impl HeadSamples {
    /// Side of the small model, in pixels.
    const SIDE: u32 = 32;

    /// A published model, and none in which something is found.
    pub(super) const fn published(classes: usize, side: u32, outputs: &'static [SampleShape]) -> Self {
        Self { published: SampleModel { classes, side, strides: &[], outputs }, finding: None }
    }

    /// Adds the model in which something is found.
    pub(super) const fn finding(self, classes: usize, outputs: &'static [SampleValues]) -> Self {
        let finding = SampleModel { classes, side: Self::SIDE, strides: &[], outputs };
        Self { finding: Some(finding), ..self }
    }
}
