use pathfinding::prelude::{Matrix, kuhn_munkres};

/// Weight of 1.0 in whole numbers. The solver needs a total order, which floats do not have; 2^36 keeps eleven digits,
/// and the sum for a frame of thousands of objects with the bonus of 1000 of [`super::clear`] fits.
const ONE: f64 = (1u64 << 36) as f64;

/// Returns the matches (row, column) with the largest sum of weights. Each row and column is in at most one match.
/// Weights must not be negative; pairs of weight 0 are left out.
pub(super) fn heaviest(
    rows: usize,
    columns: usize,
    weight: impl Fn(usize, usize) -> f64,
) -> Vec<(usize, usize)> {
    if rows == 0 || columns == 0 {
        return Vec::new();
    }
    let whole = |row: usize, column: usize| (weight(row, column) * ONE).round() as i64;
    // The solver assigns a column to every row, so there must not be more rows than columns.
    let assigned: Vec<(usize, usize)> = if rows <= columns {
        let weights = Matrix::from_fn(rows, columns, |(row, column)| whole(row, column));
        kuhn_munkres(&weights).1.into_iter().enumerate().collect()
    } else {
        let weights = Matrix::from_fn(columns, rows, |(column, row)| whole(row, column));
        kuhn_munkres(&weights).1.into_iter().enumerate().map(|(column, row)| (row, column)).collect()
    };
    assigned.into_iter().filter(|(row, column)| weight(*row, *column) > 0.0).collect()
}
