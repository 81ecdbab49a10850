//! Ring algorithms: each rank passes a block to the next one.

use std::ops::Range;

use super::Region;
use super::builder::Builder;
use super::group::Group;
use crate::partition::blocks;

pub(super) fn all_reduce(b: &mut Builder, group: &Group, input: Region, output: Region) {
    let slices = group.slices(input.len);
    let own = output.part(slices[group.me].clone());
    reduce_slices(b, group, input, own, &slices);
    pass_slices(b, group, own, output, &slices);
}

pub(super) fn reduce_scatter(
    b: &mut Builder,
    group: &Group,
    input: Region,
    output: Region,
    counts: &[usize],
) {
    reduce_slices(b, group, input, output, &blocks(counts));
}

pub(super) fn all_gather(b: &mut Builder, group: &Group, input: Region, output: Region, counts: &[usize]) {
    let slices = blocks(counts);
    pass_slices(b, group, input, output, &slices);
    b.copy(input, output.part(slices[group.me].clone()));
}

/// Each slice travels once around the circle, to end at the member of its number, and each member adds its own part.
fn reduce_slices(b: &mut Builder, group: &Group, input: Region, own: Region, slices: &[Range<usize>]) {
    if group.len() == 1 {
        b.reduce(own, vec![input]);
        return;
    }
    let longest = slices.iter().map(|slice| slice.len()).max().unwrap_or_default();
    // One partial sum is sent while the other is received.
    let partials = [b.partial(longest), b.partial(longest)];
    let first = b.like(input.buffer, longest);
    let mut sent = input.part(slices[group.before(1)].clone());
    for step in 1..group.len() {
        let slice = slices[group.before(step + 1)].clone();
        let is_last = step + 1 == group.len();
        let received = if step == 1 { first } else { partials[step % 2] }.part(0..slice.len());
        b.round();
        b.send(group.rank(group.after(1)), sent);
        b.receive(group.rank(group.before(1)), received);
        let into = if is_last { own } else { partials[step % 2].part(0..slice.len()) };
        b.reduce(into, vec![received, input.part(slice)]);
        sent = into;
    }
}

/// Passes slices around the circle until all have all.
fn pass_slices(b: &mut Builder, group: &Group, own: Region, output: Region, slices: &[Range<usize>]) {
    let mut sent = own;
    for step in 1..group.len() {
        let received = output.part(slices[group.before(step)].clone());
        b.round();
        b.send(group.rank(group.after(1)), sent);
        b.receive(group.rank(group.before(1)), received);
        sent = received;
    }
}
