/// Solver of the linear assignment problem: finds the pairs of a small dense table with the largest sum of weights.
///
/// It is the shortest augmenting path method of Jonker and Volgenant ("A Shortest Augmenting Path Algorithm for Dense
/// and Sparse Linear Assignment Problems", Computing 38, 1987) in the rectangular form of Crouse ("On Implementing 2D
/// Rectangular Assignment Algorithms", IEEE TAES 52, 2016), which `scipy.optimize.linear_sum_assignment` uses too. The
/// solvers of `pathfinding` and `lapjv` allocate for every table, and the latter accepts square ones only.
#[derive(Clone, Debug, Default)]
pub(super) struct Assigner {
    row_price: Vec<f64>,
    column_price: Vec<f64>,
    column_of: Vec<usize>,
    row_of: Vec<usize>,
    /// Length of the shortest path to each column, and the row before it on that path.
    distance: Vec<f64>,
    reached_from: Vec<usize>,
    /// Columns whose shortest path is not known yet.
    open: Vec<usize>,
    /// Columns whose shortest path is known.
    closed: Vec<usize>,
}

/// Value in place of an index.
pub(super) const NONE: usize = usize::MAX;

impl Assigner {
    /// Assigns every row of `weights` (row-major, `columns` wide, finite, no more rows than columns) its own column,
    /// with the largest sum of weights. Takes at most `rows * rows * columns` steps.
    pub(super) fn solve(&mut self, weights: &[f32], columns: usize) -> &[usize] {
        let rows = weights.len() / columns;
        assert!(rows <= columns, "{rows} rows do not fit {columns} columns");
        refill(&mut self.row_price, rows, 0.0);
        refill(&mut self.column_price, columns, 0.0);
        refill(&mut self.column_of, rows, NONE);
        refill(&mut self.row_of, columns, NONE);
        for row in 0..rows {
            let (end, length) = self.shortest_path(weights, row);
            self.reprice(row, length);
            self.augment(row, end);
        }
        &self.column_of
    }

    /// Runs Dijkstra's search from the free row `start` to the nearest free column, over costs minus prices. A cost is
    /// a negated weight; its sign does not matter, because every path gets the same offset.
    fn shortest_path(&mut self, weights: &[f32], start: usize) -> (usize, f64) {
        let columns = self.row_of.len();
        refill(&mut self.distance, columns, f64::INFINITY);
        refill(&mut self.reached_from, columns, NONE);
        self.open.clear();
        self.open.extend(0..columns);
        self.closed.clear();
        let (mut row, mut length) = (start, 0.0);
        loop {
            let (mut nearest, mut place) = (f64::INFINITY, 0);
            for (index, &column) in self.open.iter().enumerate() {
                let cost = -f64::from(weights[row * columns + column]);
                let through = length + cost - self.row_price[row] - self.column_price[column];
                if through < self.distance[column] {
                    self.distance[column] = through;
                    self.reached_from[column] = row;
                }
                let distance = self.distance[column];
                // Among equally near columns, a free one ends the search.
                if distance < nearest || (distance == nearest && self.row_of[column] == NONE) {
                    (nearest, place) = (distance, index);
                }
            }
            length = nearest;
            let column = self.open.swap_remove(place);
            self.closed.push(column);
            match self.row_of[column] {
                NONE => return (column, length),
                next => row = next,
            }
        }
    }

    /// Updates the prices: every cost minus its prices stays at zero or above, and at zero along the pairs.
    fn reprice(&mut self, start: usize, length: f64) {
        self.row_price[start] += length;
        for &column in &self.closed {
            let ahead = length - self.distance[column];
            self.column_price[column] -= ahead;
            if self.row_of[column] != NONE {
                self.row_price[self.row_of[column]] += ahead;
            }
        }
    }

    /// Exchanges the pairs along the path that ends in column `end`.
    fn augment(&mut self, start: usize, end: usize) {
        let mut column = end;
        loop {
            let row = self.reached_from[column];
            self.row_of[column] = row;
            std::mem::swap(&mut self.column_of[row], &mut column);
            if row == start {
                return;
            }
        }
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        let floats = [&self.row_price, &self.column_price, &self.distance].map(Vec::capacity);
        let indices =
            [&self.column_of, &self.row_of, &self.reached_from, &self.open, &self.closed].map(Vec::capacity);
        floats.iter().chain(&indices).sum()
    }
}

/// Resizes `values` to `length` copies of `value`, in its existing memory.
pub(super) fn refill<T: Clone>(values: &mut Vec<T>, length: usize, value: T) {
    values.clear();
    values.resize(length, value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathfinding::prelude::{Matrix, kuhn_munkres};
    use proptest::prelude::*;

    fn table() -> impl Strategy<Value = (usize, usize, Vec<u16>)> {
        (1usize..9, 0usize..5).prop_flat_map(|(rows, more)| {
            // Few distinct weights, so that ties are common.
            let weights =
                prop::collection::vec(prop_oneof![Just(0u16), 0u16..4, 0u16..1000], rows * (rows + more));
            (Just(rows), Just(rows + more), weights)
        })
    }

    proptest! {
        #[test]
        fn no_assignment_weighs_more((rows, columns, weights) in table()) {
            let wide = Matrix::from_vec(rows, columns, weights.iter().map(|w| i64::from(*w)).collect());
            let (most, _) = kuhn_munkres(&wide.expect("the size fits"));
            let floats: Vec<f32> = weights.iter().map(|weight| f32::from(*weight)).collect();
            let mut assigner = Assigner::default();
            let found = assigner.solve(&floats, columns).to_vec();
            let sum: i64 = found.iter().enumerate().map(|(row, column)| i64::from(weights[row * columns + column])).sum();
            prop_assert_eq!(sum, most);
            let mut distinct = found.clone();
            distinct.sort_unstable();
            distinct.dedup();
            prop_assert_eq!(distinct.len(), rows);
        }
    }
}
