use pathfinding::prelude::{Matrix, kuhn_munkres};

/// What 1 weighs in whole numbers. The solver wants a total order, which floats lack; 2^36 keeps eleven digits and
/// leaves room for a frame of thousands of objects with [`super::clear`]'s bonus of 1000 each.
const ONE: f64 = (1u64 << 36) as f64;

/// The pairs (row, column) whose weights sum to the most, each row and column in one pair at most. Weights are not
/// negative; pairs that weigh nothing are left out.
pub(super) fn heaviest(
    rows: usize,
    columns: usize,
    weight: impl Fn(usize, usize) -> f64,
) -> Vec<(usize, usize)> {
    if rows == 0 || columns == 0 {
        return Vec::new();
    }
    let whole = |row: usize, column: usize| (weight(row, column) * ONE).round() as i64;
    // The solver gives every row a column, so rows must be the fewer.
    let assigned: Vec<(usize, usize)> = if rows <= columns {
        let weights = Matrix::from_fn(rows, columns, |(row, column)| whole(row, column));
        kuhn_munkres(&weights).1.into_iter().enumerate().collect()
    } else {
        let weights = Matrix::from_fn(columns, rows, |(column, row)| whole(row, column));
        kuhn_munkres(&weights).1.into_iter().enumerate().map(|(column, row)| (row, column)).collect()
    };
    assigned.into_iter().filter(|(row, column)| weight(*row, *column) > 0.0).collect()
}
