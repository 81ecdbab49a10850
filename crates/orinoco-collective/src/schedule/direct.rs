//! Direct algorithms: each rank sends to whom it concerns, at once.

use std::ops::Range;

use super::Region;
use super::builder::Builder;
use super::group::Group;
use crate::partition::blocks;

pub(super) fn barrier(b: &mut Builder, group: &Group) {
    b.round();
    for distance in 1..group.len() {
        b.signal(group.rank(group.after(distance)), group.rank(group.before(distance)));
    }
}

pub(super) fn broadcast(b: &mut Builder, group: &Group, root: usize, input: Region, output: Region) {
    let source = if group.me == root { input } else { output };
    b.round();
    send_to_others(b, group, root, source);
    if group.me == root {
        b.copy(input, output);
    }
}

/// The root sends `source` to all others, which receive it there.
pub(super) fn send_to_others(b: &mut Builder, group: &Group, root: usize, source: Region) {
    if group.me == root {
        for member in group.others() {
            b.send(group.rank(member), source);
        }
    } else {
        b.receive(group.rank(root), source);
    }
}

pub(super) fn reduce(b: &mut Builder, group: &Group, root: usize, input: Region, into: Region) {
    b.round();
    if group.me == root {
        let operands = receive_from_all(b, group, input);
        b.reduce(into, operands);
    } else {
        b.send(group.rank(root), input);
    }
}

/// One-shot: everybody receives all inputs and reduces them.
pub(super) fn all_reduce(b: &mut Builder, group: &Group, input: Region, output: Region) {
    b.round();
    for member in group.others() {
        b.send(group.rank(member), input);
    }
    let operands = receive_from_all(b, group, input);
    b.reduce(output, operands);
}

/// Two-shot: each rank reduces a slice, and sends it to the others.
pub(super) fn two_shot(b: &mut Builder, group: &Group, input: Region, output: Region) {
    let slices = group.slices(input.len);
    let own = output.part(slices[group.me].clone());
    reduce_slices(b, group, input, own, &slices);
    exchange_slices(b, group, own, output, &slices);
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
    exchange_slices(b, group, input, output, &slices);
    b.copy(input, output.part(slices[group.me].clone()));
}

pub(super) fn scatter(
    b: &mut Builder,
    group: &Group,
    root: usize,
    input: Region,
    output: Region,
    counts: &[usize],
) {
    b.round();
    if group.me != root {
        b.receive(group.rank(root), output);
        return;
    }
    let slices = blocks(counts);
    for member in group.others() {
        b.send(group.rank(member), input.part(slices[member].clone()));
    }
    b.copy(input.part(slices[root].clone()), output);
}

pub(super) fn gather(
    b: &mut Builder,
    group: &Group,
    root: usize,
    input: Region,
    output: Region,
    counts: &[usize],
) {
    b.round();
    if group.me != root {
        b.send(group.rank(root), input);
        return;
    }
    let slices = blocks(counts);
    for member in group.others() {
        b.receive(group.rank(member), output.part(slices[member].clone()));
    }
    b.copy(input, output.part(slices[root].clone()));
}

pub(super) fn all_to_all(
    b: &mut Builder,
    group: &Group,
    input: Region,
    output: Region,
    send: &[usize],
    receive: &[usize],
) {
    let (sent, received) = (blocks(send), blocks(receive));
    b.round();
    for distance in 1..group.len() {
        let (to, from) = (group.after(distance), group.before(distance));
        b.send(group.rank(to), input.part(sent[to].clone()));
        b.receive(group.rank(from), output.part(received[from].clone()));
    }
    b.copy(input.part(sent[group.me].clone()), output.part(received[group.me].clone()));
}

/// Sends each member its slice of `input`, and reduces the own one into `own`.
fn reduce_slices(b: &mut Builder, group: &Group, input: Region, own: Region, slices: &[Range<usize>]) {
    b.round();
    for member in group.others() {
        b.send(group.rank(member), input.part(slices[member].clone()));
    }
    let operands = receive_from_all(b, group, input.part(slices[group.me].clone()));
    b.reduce(own, operands);
}

/// Sends `own` to all, and receives their slices in `output`.
fn exchange_slices(b: &mut Builder, group: &Group, own: Region, output: Region, slices: &[Range<usize>]) {
    b.round();
    for distance in 1..group.len() {
        let (to, from) = (group.after(distance), group.before(distance));
        b.send(group.rank(to), own);
        b.receive(group.rank(from), output.part(slices[from].clone()));
    }
}

/// Receives what all others have in the place of `own`. Returns the operands of all members, in order.
fn receive_from_all(b: &mut Builder, group: &Group, own: Region) -> Vec<Region> {
    let received = b.like(own.buffer, own.len * (group.len() - 1));
    let mut operands = vec![own; group.len()];
    for (i, member) in group.others().enumerate() {
        operands[member] = received.part(i * own.len..(i + 1) * own.len);
        b.receive(group.rank(member), operands[member]);
    }
    operands
}

/// One message, also if it has no elements: its receiver waits for it.
pub(super) fn send(b: &mut Builder, rank: usize, from: usize, to: usize, input: Region, output: Region) {
    if rank == from {
        b.round();
        b.send_always(to, input);
    } else if rank == to {
        b.round();
        b.receive_always(from, output);
    }
}
