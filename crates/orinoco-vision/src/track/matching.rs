use orinoco_core::BoxF;

use super::assign::{Assigner, NONE, refill};
use crate::Across;

/// Maximum number of columns with which a row may be matched, the best ones, so that memory grows with the number of
/// boxes and not with its square when thousands are at one point. A box with so many rivals has no correct match that
/// overlap alone could find.
const CANDIDATES_MAX: usize = 32;
/// Maximum number of rows or columns of a group that is solved exactly. Larger ones are matched greedily, the best pair
/// first, because the exact cost grows with the cube of the side: on a core of a server 256 x 256 took 3 milliseconds
/// with random weights and 37 with the worst ones.
const SIDE_MAX: usize = 256;

/// Track or detection to match.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entrant {
    pub(super) index: usize,
    pub(super) class_id: u32,
    /// Factor of its overlaps, 0 to 1.
    pub(super) score: f32,
    pub(super) bounds: BoxF,
}

/// Row and column that may be matched.
#[derive(Clone, Copy, Debug)]
struct Edge {
    group: usize,
    row: usize,
    column: usize,
    /// Weight above 0, at most 1.
    weight: f32,
}

/// Matches `rows` and `columns`, each at most once, with the largest sum of overlap times score. Boxes without overlap
/// are not compared: the others form small groups, and each group is solved by itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Matcher {
    pub(super) rows: Vec<Entrant>,
    pub(super) columns: Vec<Entrant>,
    /// Indices of the columns, sorted by their left edge.
    by_left: Vec<usize>,
    edges: Vec<Edge>,
    /// Union-find parents of each row, then of each column: another member of its group, or itself.
    parent: Vec<usize>,
    /// Index of each row, then of each column, within its group.
    place: Vec<usize>,
    group_rows: Vec<usize>,
    group_columns: Vec<usize>,
    weights: Vec<f32>,
    assigner: Assigner,
    pairs: Vec<(usize, usize)>,
}

impl Matcher {
    /// Returns the matches as the indices of the entrants. Boxes match only if their IoU is at least `iou_min`, and if
    /// they are of one class, unless `across` allows more.
    pub(super) fn pair(&mut self, iou_min: f32, across: Across) -> &[(usize, usize)] {
        self.pairs.clear();
        self.find_edges(iou_min, across);
        self.group();
        let mut first = 0;
        while first < self.edges.len() {
            let group = self.edges[first].group;
            let length = self.edges[first..].iter().take_while(|edge| edge.group == group).count();
            self.solve(first, first + length);
            first += length;
        }
        &self.pairs
    }

    fn find_edges(&mut self, iou_min: f32, across: Across) {
        let Self { rows, columns, by_left, edges, .. } = self;
        let left = |column: usize| columns[column].bounds.x1;
        by_left.clear();
        by_left.extend(0..columns.len());
        by_left.sort_unstable_by(|a, b| left(*a).total_cmp(&left(*b)).then(a.cmp(b)));
        let widest = columns.iter().map(|column| column.bounds.x2 - column.bounds.x1).fold(0.0, f32::max);
        edges.clear();
        for (row, track) in rows.iter().enumerate() {
            let begin = by_left.partition_point(|column| left(*column) < track.bounds.x1 - widest);
            let before = edges.len();
            let near = by_left[begin..].iter().take_while(|column| left(**column) < track.bounds.x2);
            for &column in near {
                let found = &columns[column];
                if across == Across::NoClasses && track.class_id != found.class_id {
                    continue;
                }
                let overlap = track.bounds.iou(&found.bounds);
                let weight = overlap * track.score * found.score;
                if overlap >= iou_min && weight > 0.0 {
                    edges.push(Edge { group: 0, row, column, weight });
                }
            }
            if edges.len() - before > CANDIDATES_MAX {
                edges[before..].select_nth_unstable_by(CANDIDATES_MAX, heaviest_first);
                edges.truncate(before + CANDIDATES_MAX);
            }
        }
    }

    /// Determines the group of each edge, and sorts by group, row and column.
    fn group(&mut self) {
        let Self { rows, columns, edges, parent, .. } = self;
        parent.clear();
        parent.extend(0..rows.len() + columns.len());
        for edge in edges.iter() {
            let (a, b) = (root(parent, edge.row), root(parent, rows.len() + edge.column));
            // The lower index is the root, whatever the order of the edges.
            parent[a.max(b)] = a.min(b);
        }
        for edge in edges.iter_mut() {
            edge.group = root(parent, edge.row);
        }
        edges.sort_unstable_by_key(|edge| (edge.group, edge.row, edge.column));
        refill(&mut self.place, rows.len() + columns.len(), NONE);
    }

    /// Solves the group with the edges from `first` up to but not including `end`.
    fn solve(&mut self, first: usize, end: usize) {
        let Self { rows, columns, edges, place, group_rows, group_columns, weights, assigner, pairs, .. } =
            self;
        let edges = &mut edges[first..end];
        group_rows.clear();
        group_columns.clear();
        for edge in edges.iter() {
            enter(place, edge.row, edge.row, group_rows);
            enter(place, rows.len() + edge.column, edge.column, group_columns);
        }
        let mut join = |row: usize, column: usize| pairs.push((rows[row].index, columns[column].index));
        if let [edge] = edges {
            join(edge.row, edge.column);
        } else if group_rows.len().max(group_columns.len()) > SIDE_MAX {
            edges.sort_unstable_by(heaviest_first);
            for edge in edges.iter() {
                let (row, column) = (edge.row, rows.len() + edge.column);
                if place[row] != NONE && place[column] != NONE {
                    (place[row], place[column]) = (NONE, NONE);
                    join(edge.row, edge.column);
                }
            }
        } else {
            // The solver requires no more rows than columns.
            let upright = group_rows.len() <= group_columns.len();
            let (short, long) =
                if upright { (&*group_rows, &*group_columns) } else { (&*group_columns, &*group_rows) };
            refill(weights, short.len() * long.len(), 0.0);
            for edge in edges.iter() {
                let (row, column) = (place[edge.row], place[rows.len() + edge.column]);
                let (row, column) = if upright { (row, column) } else { (column, row) };
                weights[row * long.len() + column] = edge.weight;
            }
            for (at, &to) in assigner.solve(weights, long.len()).iter().enumerate() {
                // A pair of weight 0 is not an edge.
                if weights[at * long.len() + to] > 0.0 {
                    if upright { join(short[at], long[to]) } else { join(long[to], short[at]) }
                }
            }
        }
    }

    #[cfg(test)]
    pub(super) fn capacities(&self) -> Vec<usize> {
        let entrants = [&self.rows, &self.columns].map(Vec::capacity);
        let lists = [&self.by_left, &self.parent, &self.place, &self.group_rows, &self.group_columns];
        let others =
            [self.edges.capacity(), self.weights.capacity(), self.pairs.capacity(), self.assigner.capacity()];
        entrants.into_iter().chain(lists.map(Vec::capacity)).chain(others).collect()
    }
}

/// Assigns `node` the next index in `members`, unless it has one.
fn enter(place: &mut [usize], node: usize, index: usize, members: &mut Vec<usize>) {
    if place[node] == NONE {
        place[node] = members.len();
        members.push(index);
    }
}

/// Returns the root of the group of `node`, and halves the path for later calls.
fn root(parent: &mut [usize], mut node: usize) -> usize {
    while parent[node] != node {
        parent[node] = parent[parent[node]];
        node = parent[node];
    }
    node
}

fn heaviest_first(a: &Edge, b: &Edge) -> std::cmp::Ordering {
    b.weight.total_cmp(&a.weight).then((a.row, a.column).cmp(&(b.row, b.column)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entrant(index: usize, x: f32, score: f32) -> Entrant {
        let bounds = BoxF { x1: x, y1: 0.0, x2: x + 10.0, y2: 10.0 };
        Entrant { index, class_id: 0, score, bounds }
    }

    fn check(rows: &[f32], columns: &[f32], expected: &[(usize, usize)]) {
        let mut matcher = Matcher::default();
        matcher.rows.extend(rows.iter().enumerate().map(|(index, x)| entrant(index, *x, 1.0)));
        matcher.columns.extend(columns.iter().enumerate().map(|(index, x)| entrant(index, *x, 0.9)));
        let mut pairs = matcher.pair(0.2, Across::NoClasses).to_vec();
        pairs.sort_unstable();
        assert_eq!(pairs, expected);
    }

    #[test]
    fn the_sum_counts_and_not_the_best_pair() {
        check(&[0.0, 50.0], &[51.0, 1.0, 200.0], &[(0, 1), (1, 0)]);
        // The best pair alone, 1 with 0, would leave row 0 without a match.
        check(&[0.0, 4.0], &[3.5, 8.0], &[(0, 0), (1, 1)]);
        check(&[3.5, 8.0, 4.0], &[0.0, 4.5], &[(0, 0), (2, 1)]);
        check(&[0.0], &[9.0], &[]);
        check(&[], &[9.0], &[]);
    }

    #[test]
    fn a_large_group_is_joined_all_the_same() {
        let rows: Vec<f32> = (0..1000).map(|index| index as f32 * 3.0).collect();
        let columns: Vec<f32> = rows.iter().map(|x| x + 0.5).collect();
        let expected: Vec<(usize, usize)> = (0..1000).map(|index| (index, index)).collect();
        check(&rows, &columns, &expected);
        let spot = vec![0.0; 2000];
        let mut matcher = Matcher::default();
        matcher.rows.extend(spot.iter().enumerate().map(|(index, x)| entrant(index, *x, 1.0)));
        matcher.columns.extend(spot.iter().enumerate().map(|(index, x)| entrant(index, *x, 0.9)));
        assert!(matcher.pair(0.2, Across::NoClasses).len() >= CANDIDATES_MAX);
        assert!(matcher.edges.len() <= spot.len() * CANDIDATES_MAX);
    }
}
