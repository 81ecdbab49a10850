use std::fmt;

use orinoco_core::Diagnosis;

/// One or more faults of one file, in the order in which they were found. It cannot be made without a fault.
#[derive(Clone, Debug)]
pub struct Faults(Vec<Diagnosis>);

impl Faults {
    /// Returns the first fault.
    pub fn first(&self) -> &Diagnosis {
        &self.0[0]
    }

    /// Returns all faults in the order in which they were found.
    pub fn as_slice(&self) -> &[Diagnosis] {
        &self.0
    }

    /// Iterates over the faults in the order in which they were found.
    pub fn iter(&self) -> std::slice::Iter<'_, Diagnosis> {
        self.0.iter()
    }
}

impl IntoIterator for Faults {
    type Item = Diagnosis;
    type IntoIter = std::vec::IntoIter<Diagnosis>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a Faults {
    type Item = &'a Diagnosis;
    type IntoIter = std::slice::Iter<'a, Diagnosis>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl From<Diagnosis> for Faults {
    fn from(fault: Diagnosis) -> Self {
        Self(vec![fault])
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.0.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{fault}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

/// Collects faults while more are looked for; [`FaultList::finish`] returns the result.
#[derive(Clone, Debug, Default)]
pub struct FaultList(Vec<Diagnosis>);

impl FaultList {
    /// Adds a fault.
    pub fn push(&mut self, fault: Diagnosis) {
        self.0.push(fault);
    }

    /// Returns the value of `result`, or adds its faults.
    pub fn value_of<T, E: IntoIterator<Item = Diagnosis>>(&mut self, result: Result<T, E>) -> Option<T> {
        result.map_err(|faults| self.extend(faults)).ok()
    }

    /// Whether there are no faults so far.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns `Ok` with `value` when there are no faults, else all of them.
    pub fn finish<T>(self, value: T) -> Result<T, Faults> {
        if self.0.is_empty() { Ok(value) } else { Err(Faults(self.0)) }
    }
}

impl Extend<Diagnosis> for FaultList {
    fn extend<I: IntoIterator<Item = Diagnosis>>(&mut self, faults: I) {
        self.0.extend(faults);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use orinoco_core::codes;

    #[test]
    fn faults_cannot_be_empty() {
        assert_eq!(FaultList::default().finish(7).expect("nothing was found"), 7);
        let fault = |subject: &str| Diagnosis::new(&codes::SYNTAX, subject, "it is wrong", "correct it");
        let mut found = FaultList::default();
        found.push(fault("a"));
        assert_eq!(found.value_of(Ok::<_, Faults>(3)), Some(3));
        assert_eq!(found.value_of(Err::<(), _>(Faults::from(fault("b")))), None);
        let faults = found.finish(()).expect_err("two were found");
        let subjects: Vec<&str> = faults.iter().map(|fault| fault.subject.as_str()).collect();
        assert_eq!((faults.first().subject.as_str(), subjects), ("a", vec!["a", "b"]));
    }
}
