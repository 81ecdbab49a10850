//! Bruck's algorithms: blocks at distances 1, 2, 4, ..., for any number of ranks.

use super::Region;
use super::builder::Builder;
use super::doubling::powers_below;
use super::group::Group;
use crate::partition::blocks;

/// After the step at distance `d`, a rank has the blocks of itself and of the `2 d - 1` ranks after it.
pub(super) fn all_gather(b: &mut Builder, group: &Group, input: Region, output: Region, counts: &[usize]) {
    let slices = blocks(counts);
    let held: Vec<Region> =
        (0..group.len()).map(|distance| output.part(slices[group.after(distance)].clone())).collect();
    b.round();
    b.copy(input, held[0]);
    for distance in powers_below(group.len()) {
        let end = (2 * distance).min(group.len());
        b.round();
        b.send_all(group.rank(group.before(distance)), held[..end - distance].to_vec());
        b.receive_all(group.rank(group.after(distance)), held[distance..end].to_vec());
    }
}

/// Block `i` waits for the rank `i` after this one. At distance `d`, blocks whose number has the bit `d` go `d` ranks further.
pub(super) fn all_to_all(b: &mut Builder, group: &Group, input: Region, output: Region, count: usize) {
    let block = |vector: Region, member: usize| vector.part(member * count..(member + 1) * count);
    let mut waiting: Vec<Region> =
        (0..group.len()).map(|distance| block(input, group.after(distance))).collect();
    b.round();
    b.copy(block(input, group.me), block(output, group.me));
    for distance in powers_below(group.len()) {
        let moved: Vec<usize> = (0..group.len()).filter(|number| number & distance != 0).collect();
        b.round();
        b.send_all(group.rank(group.after(distance)), moved.iter().map(|number| waiting[*number]).collect());
        for number in &moved {
            // With its last bit the block arrives: it began `number` ranks before this one.
            let arrives = number >> (distance.ilog2() + 1) == 0;
            waiting[*number] = if arrives { block(output, group.before(*number)) } else { b.scratch(count) };
        }
        b.receive_all(
            group.rank(group.before(distance)),
            moved.iter().map(|number| waiting[*number]).collect(),
        );
    }
}
