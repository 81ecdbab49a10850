use core::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $noun:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(pub u32);

        impl $name {
            /// Returns the id with this index.
            ///
            /// # Panics
            /// Panics at 2^32, which no run reaches: at one id per millisecond it takes 49 days.
            pub fn from_index(index: usize) -> Self {
                Self(u32::try_from(index).expect(concat!("a run starts fewer than 2^32 ", $noun)))
            }

            /// Returns the index into tables that have one entry per id.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

id! {
    /// Stream of a run. Ids count up from 0 and are not reused while the process runs.
    StreamId, "streams"
}

id! {
    /// Loaded model of a run. Ids count up from 0 and are not reused while the process runs: a new version of a model
    /// gets a new id.
    ModelId, "models"
}

id! {
    /// A lane of a board, by its number there. A lane that is started again keeps its number.
    LaneId, "lanes"
}
