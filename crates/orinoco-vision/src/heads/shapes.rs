//! Checks the outputs of a graph against the shapes that a head reads.

use orinoco_core::text::count;
use orinoco_core::{Dim, TensorDesc};

/// Returns the only output, or the reason why there is not exactly one.
pub(super) fn only<'a>(outputs: &'a [TensorDesc], head: &str) -> Result<&'a TensorDesc, String> {
    match outputs {
        [output] => Ok(output),
        _ => Err(format!("it has {}, where {head} has 1", count(outputs.len() as u64, "output"))),
    }
}

/// Returns the index of the output `name` of shape `[any, rest..]`, or the reason why it does not fit.
pub(super) fn find_output(outputs: &[TensorDesc], name: &str, rest: &[usize]) -> Result<usize, String> {
    let found = outputs.iter().position(|output| output.name == name);
    let names = || outputs.iter().map(|o| o.name.as_str()).collect::<Vec<_>>().join(", ");
    let index = found.ok_or_else(|| format!("it has no output `{name}`; its outputs are {}", names()))?;
    check_shape(&outputs[index], rest)?;
    Ok(index)
}

/// Checks that `output` is `[any, rest..]`.
pub(super) fn check_shape(output: &TensorDesc, rest: &[usize]) -> Result<(), String> {
    let wanted: Vec<Dim> = std::iter::once(Dim::Dynamic).chain(rest.iter().map(|n| Dim::Fixed(*n))).collect();
    check_axes(output, &wanted)
}

/// Checks that every axis of `output` accepts the size in `wanted`.
pub(super) fn check_axes(output: &TensorDesc, wanted: &[Dim]) -> Result<(), String> {
    let fits = |(axis, wanted): (&Dim, &Dim)| match wanted {
        Dim::Fixed(size) => axis.accepts(*size),
        Dim::Dynamic => true,
    };
    if output.shape.len() == wanted.len() && output.shape.iter().zip(wanted).all(fits) {
        return Ok(());
    }
    let wanted = orinoco_core::shape_text(wanted);
    Err(format!("its output is {output}, but model.toml describes it as {wanted}"))
}

/// Returns the fixed sizes of the axes after the first, if there are `N` of them.
pub(super) fn fixed_after_batch<const N: usize>(output: &TensorDesc) -> Option<[usize; N]> {
    let axes = output.shape.get(1..)?;
    let sizes: Vec<usize> =
        axes.iter().filter_map(|axis| if let Dim::Fixed(n) = axis { Some(*n) } else { None }).collect();
    (axes.len() == N).then(|| sizes.try_into().ok()).flatten()
}
