/// How often each class was taken for each other one: rows are what is labelled, columns what was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confusion {
    classes: usize,
    counts: Vec<u64>,
}

impl Confusion {
    /// An empty matrix of `classes` rows and columns.
    pub fn new(classes: usize) -> Self {
        Self { classes, counts: vec![0; classes * classes] }
    }

    /// Counts one that is `labelled` so and was `found` as. What lies outside of the matrix is not counted.
    pub fn count(&mut self, labelled: usize, found: usize) {
        if labelled < self.classes && found < self.classes {
            self.counts[labelled * self.classes + found] += 1;
        }
    }

    /// Rows and columns.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// How many that are `labelled` so were `found` as.
    pub fn at(&self, labelled: usize, found: usize) -> u64 {
        self.counts[labelled * self.classes + found]
    }

    /// How many are labelled so.
    pub fn row(&self, labelled: usize) -> u64 {
        self.counts[labelled * self.classes..][..self.classes].iter().sum()
    }

    /// How many were found as.
    pub fn column(&self, found: usize) -> u64 {
        self.counts.iter().skip(found).step_by(self.classes).sum()
    }
}
