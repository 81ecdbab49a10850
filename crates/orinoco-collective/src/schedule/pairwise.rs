//! Pairwise exchange: one partner at a time.

use super::Region;
use super::builder::Builder;
use super::group::Group;
use crate::partition::blocks;

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
    b.copy(input.part(sent[group.me].clone()), output.part(received[group.me].clone()));
    for distance in 1..group.len() {
        let (to, from) = (group.after(distance), group.before(distance));
        b.round();
        b.send(group.rank(to), input.part(sent[to].clone()));
        b.receive(group.rank(from), output.part(received[from].clone()));
    }
}
