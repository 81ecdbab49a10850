//! Grids of cells over a model's input.

/// Cell of a grid over the model's input.
#[derive(Clone, Copy)]
pub(super) struct Cell {
    pub(super) x: f32,
    pub(super) y: f32,
    pub(super) stride: f32,
}

/// Returns the cells of every stride in raster order. If `partial` is set, a stride that does not divide a side has a
/// partial cell at the end.
pub(super) fn cells(strides: &[u32], width: u32, height: u32, partial: bool) -> Vec<Cell> {
    let count = |side: u32, stride: u32| if partial { side.div_ceil(stride) } else { side / stride };
    let grid = |stride: u32| {
        let (columns, rows) = (count(width, stride), count(height, stride));
        (0..rows).flat_map(move |y| {
            (0..columns).map(move |x| Cell { x: x as f32, y: y as f32, stride: stride as f32 })
        })
    };
    strides.iter().flat_map(|stride| grid(*stride)).collect()
}
