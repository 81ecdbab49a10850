//! Chains: from rank to rank.

use super::Region;
use super::builder::Builder;
use super::group::Group;

pub(super) fn broadcast(b: &mut Builder, group: &Group, root: usize, input: Region, output: Region) {
    let me = (group.me + group.len() - root) % group.len();
    b.round();
    if me == 0 {
        b.copy(input, output);
    } else {
        b.receive(group.rank(group.before(1)), output);
    }
    b.round();
    if me + 1 < group.len() {
        b.send(group.rank(group.after(1)), output);
    }
}

/// From the last rank before the root around to the root.
pub(super) fn reduce(b: &mut Builder, group: &Group, root: usize, input: Region, output: Region) {
    let me = (group.me + group.len() - root) % group.len();
    let is_first = me + 1 == group.len();
    let mut current = input;
    b.round();
    if !is_first {
        let neighbour_is_first = me + 2 == group.len();
        let received =
            if neighbour_is_first { b.like(input.buffer, input.len) } else { b.partial(input.len) };
        b.receive(group.rank(group.after(1)), received);
        current = if me == 0 { output } else { b.partial(input.len) };
        b.reduce(current, vec![input, received]);
    } else if me == 0 {
        b.reduce(output, vec![input]);
    }
    b.round();
    if me > 0 {
        b.send(group.rank(group.before(1)), current);
    }
}
