/// Confusion matrix: how often each class was taken for each other one. Rows are labelled classes, columns found ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confusion {
    classes: usize,
    counts: Vec<u64>,
}

impl Confusion {
    /// Creates an empty matrix of `classes` rows and columns.
    pub fn new(classes: usize) -> Self {
        Self { classes, counts: vec![0; classes * classes] }
    }

    /// Counts an item of class `labelled` that was found as class `found`. Classes outside of the matrix are not
    /// counted.
    pub fn count(&mut self, labelled: usize, found: usize) {
        if labelled < self.classes && found < self.classes {
            self.counts[labelled * self.classes + found] += 1;
        }
    }

    /// Returns the number of rows, which is that of columns.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// Returns how many items of class `labelled` were found as class `found`.
    pub fn at(&self, labelled: usize, found: usize) -> u64 {
        self.counts[labelled * self.classes + found]
    }

    /// Returns the number of items of class `labelled`.
    pub fn row(&self, labelled: usize) -> u64 {
        self.counts[labelled * self.classes..][..self.classes].iter().sum()
    }

    /// Returns the number of items that were found as class `found`.
    pub fn column(&self, found: usize) -> u64 {
        self.counts.iter().skip(found).step_by(self.classes).sum()
    }
}
