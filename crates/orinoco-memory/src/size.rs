//! Sizes as people write and read them.

use std::fmt;

/// Reason why a text is not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// The text has no number, or more than a number and a unit.
    #[error("`{0}` is not a size: write a number with a unit (3 GiB, 512 MiB, 1.5 GB), or a number of bytes")]
    Malformed(String),
    /// The unit is ambiguous: `G` may mean 1000³ or 1024³.
    #[error(
        "`{0}` may mean powers of 1000 or of 1024: write B at the end for 1000 (3 GB), iB for 1024 (3 GiB)"
    )]
    Ambiguous(String),
    /// The size does not fit 64 bits.
    #[error("`{0}` is too large")]
    TooLarge(String),
}

/// Parses a size such as `3 GiB`, `512 MiB`, `1.5 GB` or `1500000000`, in bytes. Case does not matter, `_` may group
/// digits, and a fraction is rounded to whole bytes.
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    let ambiguous = |last: char| matches!(last.to_ascii_lowercase(), 'k' | 'm' | 'g' | 't' | 'p' | 'e' | 'i');
    match parse_size::parse_size(text) {
        Ok(_) if text.trim_end().ends_with(ambiguous) => Err(SizeError::Ambiguous(text.to_owned())),
        Ok(bytes) => Ok(bytes),
        Err(parse_size::Error::PosOverflow) => Err(SizeError::TooLarge(text.to_owned())),
        Err(_) => Err(SizeError::Malformed(text.to_owned())),
    }
}

/// Number of bytes, displayed as MiB with one decimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mib(pub u64);

impl fmt::Display for Mib {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Tenths are rounded in whole numbers, because a float could lose the last digit of a budget.
        let tenths = (u128::from(self.0) * 10 + (1 << 19)) >> 20;
        f.pad(&format!("{}.{}", tenths / 10, tenths % 10))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn check(text: &str, expected: Expect) {
        let shown = match parse_size(text) {
            Ok(bytes) => format!("{bytes} = {} MiB", Mib(bytes)),
            Err(error) => error.to_string(),
        };
        expected.assert_eq(&shown);
    }

    #[test]
    fn sizes_as_people_write_them() {
        check("3 GiB", expect!["3221225472 = 3072.0 MiB"]);
        check("512 MiB", expect!["536870912 = 512.0 MiB"]);
        check("512mib", expect!["536870912 = 512.0 MiB"]);
        check("1500000000", expect!["1500000000 = 1430.5 MiB"]);
        check("1_500_000 KB", expect!["1500000000 = 1430.5 MiB"]);
        check("1.5 GB", expect!["1500000000 = 1430.5 MiB"]);
        check("0", expect!["0 = 0.0 MiB"]);
        check("18446744073709551615", expect!["18446744073709551615 = 17592186044416.0 MiB"]);
    }

    #[test]
    fn what_is_no_size_says_what_would_be() {
        let malformed = expect![[
            "`3 gigs` is not a size: write a number with a unit (3 GiB, 512 MiB, 1.5 GB), or a number of bytes"
        ]];
        check("3 gigs", malformed);
        check(
            "",
            expect![
                "`` is not a size: write a number with a unit (3 GiB, 512 MiB, 1.5 GB), or a number of bytes"
            ],
        );
        check(
            "-1 GiB",
            expect![
                "`-1 GiB` is not a size: write a number with a unit (3 GiB, 512 MiB, 1.5 GB), or a number of bytes"
            ],
        );
        check(
            "3G",
            expect![
                "`3G` may mean powers of 1000 or of 1024: write B at the end for 1000 (3 GB), iB for 1024 (3 GiB)"
            ],
        );
        check("99999999 TiB", expect!["`99999999 TiB` is too large"]);
    }
}
