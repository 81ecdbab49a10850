//! Numbers in texts for people.

use alloc::format;
use alloc::string::String;

/// Formats a number with its noun: "1 object", "2 objects". `one` is the singular of the noun; the plural is formed by
/// rule.
pub fn count(number: u64, one: &str) -> String {
    let consonant_y = one.strip_suffix('y').filter(|stem| !stem.ends_with(['a', 'e', 'i', 'o', 'u']));
    match (number, consonant_y) {
        (1, _) => format!("1 {one}"),
        (_, Some(stem)) => format!("{number} {stem}ies"),
        _ if ["s", "x", "z", "ch", "sh"].iter().any(|end| one.ends_with(end)) => format!("{number} {one}es"),
        _ => format!("{number} {one}s"),
    }
}

/// Formats bytes as MiB, rounded to a tenth. A size above zero is never shown as zero.
pub fn mebibytes(bytes: u64) -> String {
    // Tenths are rounded in whole numbers, because a float could lose the last digit.
    let tenths = (u128::from(bytes) * 10 + (1 << 19)) >> 20;
    match (bytes, tenths) {
        (1.., 0) => "less than 0.1 MiB".into(),
        _ => format!("{}.{} MiB", tenths / 10, tenths % 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nouns_agree_with_their_numbers() {
        for (number, one, expected) in [
            (0, "object", "0 objects"),
            (1, "object", "1 object"),
            (2, "object", "2 objects"),
            (1, "class", "1 class"),
            (2, "class", "2 classes"),
            (2, "box", "2 boxes"),
            (2, "batch", "2 batches"),
            (2, "entry", "2 entries"),
            (2, "array", "2 arrays"),
        ] {
            assert_eq!(count(number, one), expected);
        }
    }

    #[test]
    fn sizes_have_one_decimal_and_are_never_nothing() {
        for (bytes, expected) in [
            (0, "0.0 MiB"),
            (1, "less than 0.1 MiB"),
            (52_429, "0.1 MiB"),
            (40_849_408, "39.0 MiB"),
            (u64::MAX, "17592186044416.0 MiB"),
        ] {
            assert_eq!(mebibytes(bytes), expected);
        }
    }
}
