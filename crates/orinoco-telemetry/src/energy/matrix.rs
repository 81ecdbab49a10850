//! The little linear algebra that the regression needs.

/// Symmetric matrix whose lower triangle lies packed by rows, so that a new last row and column leave the others where they
/// are.
#[derive(Clone, Debug, Default)]
pub(super) struct Symmetric {
    order: usize,
    packed: Vec<f64>,
}

impl Symmetric {
    /// Adds rows and columns of zeros up to `order`.
    pub(super) fn grow(&mut self, order: usize) {
        if order > self.order {
            self.order = order;
            self.packed.resize(order * (order + 1) / 2, 0.0);
        }
    }

    pub(super) fn with_order(order: usize) -> Self {
        let mut matrix = Self::default();
        matrix.grow(order);
        matrix
    }

    /// Adds `weight * v * v'`. The matrix grows to the length of `v`.
    pub(super) fn add_outer(&mut self, v: &[f64], weight: f64) {
        self.grow(v.len());
        let mut at = 0;
        for (row, of_row) in v.iter().enumerate() {
            for of_column in &v[..=row] {
                self.packed[at] += weight * of_row * of_column;
                at += 1;
            }
        }
    }

    /// Adds `weight * other`, which may be smaller.
    pub(super) fn add(&mut self, other: &Symmetric, weight: f64) {
        self.grow(other.order);
        self.packed.iter_mut().zip(&other.packed).for_each(|(sum, value)| *sum += weight * value);
    }

    pub(super) fn add_to(&mut self, row: usize, column: usize, value: f64) {
        let (high, low) = (row.max(column), row.min(column));
        self.packed[high * (high + 1) / 2 + low] += value;
    }

    pub(super) fn get(&self, row: usize, column: usize) -> f64 {
        let (high, low) = (row.max(column), row.min(column));
        if high < self.order { self.packed[high * (high + 1) / 2 + low] } else { 0.0 }
    }

    /// Returns the product with a vector, whose length decides the length of the result.
    pub(super) fn times(&self, v: &[f64]) -> Vec<f64> {
        (0..v.len())
            .map(|row| v.iter().enumerate().map(|(column, x)| self.get(row, column) * x).sum())
            .collect()
    }

    /// Returns `v' * self * v`.
    pub(super) fn quadratic(&self, v: &[f64]) -> f64 {
        dot(v, &self.times(v))
    }

    /// Returns the Cholesky factor; `None` if the matrix is singular or indefinite within rounding.
    pub(super) fn factor(&self) -> Option<Factor> {
        /// Smallest pivot, as a share of the diagonal element that it came from.
        const PIVOT_MIN: f64 = 1e-9;
        let mut lower = self.clone();
        for row in 0..self.order {
            for column in 0..=row {
                let above: f64 = (0..column).map(|at| lower.get(row, at) * lower.get(column, at)).sum();
                let rest = self.get(row, column) - above;
                let value = if row > column {
                    rest / lower.get(column, column)
                } else if rest > PIVOT_MIN * self.get(row, row) {
                    rest.sqrt()
                } else {
                    return None;
                };
                lower.packed[row * (row + 1) / 2 + column] = value;
            }
        }
        Some(Factor { lower })
    }
}

/// Cholesky factor of a positive definite matrix.
#[derive(Clone, Debug)]
pub(super) struct Factor {
    lower: Symmetric,
}

impl Factor {
    /// Returns the solution of `matrix * x = right`.
    pub(super) fn solve(&self, right: &[f64]) -> Vec<f64> {
        let (order, lower) = (self.lower.order, &self.lower);
        let mut x = right.to_vec();
        for row in 0..order {
            let known: f64 = (0..row).map(|column| lower.get(row, column) * x[column]).sum();
            x[row] = (x[row] - known) / lower.get(row, row);
        }
        for row in (0..order).rev() {
            let known: f64 = (row + 1..order).map(|below| lower.get(below, row) * x[below]).sum();
            x[row] = (x[row] - known) / lower.get(row, row);
        }
        x
    }
}

pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_is_solved_and_a_singular_one_is_refused() {
        let mut matrix = Symmetric::default();
        matrix.add_outer(&[2.0], 1.0);
        matrix.add_outer(&[1.0, 3.0, -1.0], 0.5);
        assert!(matrix.factor().is_none());
        matrix.add_outer(&[0.0, 1.0, 2.0], 1.0);
        matrix.add_outer(&[1.0, 0.0, 1.0], 1.0);
        let wanted = [1.5, -2.0, 0.25];
        let solution = matrix.factor().expect("three directions").solve(&matrix.times(&wanted));
        for (found, wanted) in solution.iter().zip(wanted) {
            assert!((found - wanted).abs() < 1e-9, "{solution:?}");
        }
    }
}
