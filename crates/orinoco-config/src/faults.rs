use std::fmt;

use orinoco_core::Diagnosis;

/// One or more faults of one file, in the order found. Never empty when returned as an error.
#[derive(Clone, Debug, Default)]
pub struct Faults(pub Vec<Diagnosis>);

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
