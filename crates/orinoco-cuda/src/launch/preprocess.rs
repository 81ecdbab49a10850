//! Launch of the kernel that makes a model's input from frames (`kernels/preprocess.cu`).

use orinoco_core::{ColorOrder, Layout, Resize};

use super::elements::Element;
use super::{Arguments, Grid, Launch, at, check_span, word};
use crate::span::Span;
use crate::table::TableSpan;
use crate::{CudaError, Kernel};

/// Image input of a model: `value = (sample - mean) * scale`, sample 0 to 255, per channel in `order`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ImageTensor {
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// Channel order.
    pub order: ColorOrder,
    /// Axis order.
    pub layout: Layout,
    /// Element type.
    pub element: Element,
    /// Resize filter. The table of the antialiased one is [`TableLayout::antialiased`](crate::TableLayout::antialiased).
    pub filter: Resize,
    /// Mean of each channel, in units of samples (0 to 255).
    pub mean: [f32; 3],
    /// Scale of each channel.
    pub scale: [f32; 3],
    /// Sample value of the padding around the image.
    pub fill: u8,
}

/// `PreprocessSpec` of `kernels/preprocess.cu`.
#[repr(C)]
struct PreprocessSpec {
    width: u32,
    height: u32,
    order: u32,
    nhwc: u32,
    element: u32,
    scale: [f32; 3],
    shift: [f32; 3],
    border: [f32; 3],
}

/// `ColorOrder` of `kernels/preprocess.cu`.
fn order_number(order: ColorOrder) -> u32 {
    match order {
        ColorOrder::Rgb => 0,
        ColorOrder::Bgr => 1,
        ColorOrder::Gray => 2,
    }
}

impl ImageTensor {
    /// Returns the number of elements per image.
    pub fn elements(&self) -> usize {
        self.order.channels() * self.width as usize * self.height as usize
    }

    fn spec(&self) -> PreprocessSpec {
        let (mean, scale) = (self.mean, self.scale);
        PreprocessSpec {
            width: self.width,
            height: self.height,
            order: order_number(self.order),
            nhwc: u32::from(self.layout == Layout::Nhwc),
            element: self.element as u32,
            scale,
            // (x - mean) * scale with one multiplication less to round.
            shift: std::array::from_fn(|channel| -mean[channel] * scale[channel]),
            border: std::array::from_fn(|channel| (f32::from(self.fill) - mean[channel]) * scale[channel]),
        }
    }
}

/// Queues the preprocessing of every frame of `table` into its item of `out`, which has `table.batch()` images. Items that are
/// not in the table keep their values.
pub fn preprocess(
    target: &(impl Launch + ?Sized),
    table: &TableSpan,
    tensor: &ImageTensor,
    out: &Span,
) -> Result<(), CudaError> {
    // TILE_X and TILE_Y of the kernels.
    const TILE: (u32, u32) = (32, 8);
    let batch = table.batch();
    check_span("the input tensor", out, batch * tensor.elements(), tensor.element.bytes());
    let spec = tensor.spec();
    let blocks = [tensor.width.div_ceil(TILE.0), tensor.height.div_ceil(TILE.1), word(batch)];
    let grid = Grid { blocks, threads: [TILE.0, TILE.1, 1] };
    let (entries, output) = (table.span().address(), out.address());
    let spans = [table.span(), out];
    match tensor.filter {
        Resize::Bilinear => {
            let pointers = [at(&entries), at(&spec), at(&output)];
            let arguments = Arguments { pointers: &pointers, spans: &spans };
            target.launch(Kernel::PreprocessBilinear, grid, &arguments)
        }
        Resize::BilinearAntialias => {
            let weights = table.filters().expect("the antialiased resize has a table with weights").address();
            let pointers = [at(&entries), at(&spec), at(&weights), at(&output)];
            let arguments = Arguments { pointers: &pointers, spans: &spans };
            target.launch(Kernel::PreprocessAntialias, grid, &arguments)
        }
    }
}
