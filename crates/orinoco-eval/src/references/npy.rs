//! Arrays in NumPy's format (NumPy Enhancement Proposal 1; numpy.lib.format, versions 1.0 to 3.0).

use std::fmt;

/// Array of numbers, row by row.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// Sides of the array; empty for a single number.
    pub shape: Vec<usize>,
    /// Values.
    pub values: Vec<f32>,
}

const MAGIC: &[u8] = b"\x93NUMPY";

/// Reason why an array is not accepted. The display form is the rest of a sentence that begins with the array.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ArrayError {
    /// The bytes are not an array in NumPy's format.
    Malformed,
    /// The array is stored column by column.
    Columns,
    /// The values have a type that cannot be read, in NumPy's words.
    Type(String),
    /// The array has another number of bytes than its shape and type need.
    Length { bytes: usize, needed: usize },
}

impl fmt::Display for ArrayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => f.write_str("is not in NumPy's format"),
            Self::Columns => f.write_str("is stored column by column; store it with numpy.ascontiguousarray"),
            Self::Type(descr) => write!(f, "has the unsupported type `{descr}`"),
            Self::Length { bytes, needed } => {
                write!(f, "has {bytes} bytes of data, but its shape needs {needed}")
            }
        }
    }
}

/// Reads an array.
pub(super) fn parse(bytes: &[u8]) -> Result<Array, ArrayError> {
    let rest = bytes.strip_prefix(MAGIC).ok_or(ArrayError::Malformed)?;
    let (header, data) = split_header(rest).ok_or(ArrayError::Malformed)?;
    if entry(header, "fortran_order").is_some_and(|order| order.starts_with("True")) {
        return Err(ArrayError::Columns);
    }
    let shape = entry(header, "shape").and_then(sides).ok_or(ArrayError::Malformed)?;
    let descr = entry(header, "descr").and_then(quoted).ok_or(ArrayError::Malformed)?;
    let (bytes_each, read) = element(descr).ok_or_else(|| ArrayError::Type(descr.to_owned()))?;
    let count = shape.iter().try_fold(1_usize, |product, side| product.checked_mul(*side));
    let needed = count.and_then(|count| count.checked_mul(bytes_each)).ok_or(ArrayError::Malformed)?;
    if data.len() != needed {
        return Err(ArrayError::Length { bytes: data.len(), needed });
    }
    Ok(Array { shape, values: data.chunks_exact(bytes_each).map(read).collect() })
}

/// Splits the header from the data. Its length has 2 bytes in version 1.0, and 4 in later ones.
fn split_header(rest: &[u8]) -> Option<(&str, &[u8])> {
    let (version, rest) = rest.split_at_checked(2)?;
    let (length, rest) = match version[0] {
        1 => {
            let (length, rest) = rest.split_at_checked(2)?;
            (usize::from(u16::from_le_bytes(length.try_into().ok()?)), rest)
        }
        _ => {
            let (length, rest) = rest.split_at_checked(4)?;
            (usize::try_from(u32::from_le_bytes(length.try_into().ok()?)).ok()?, rest)
        }
    };
    let (header, data) = rest.split_at_checked(length)?;
    Some((std::str::from_utf8(header).ok()?, data))
}

/// Returns the text of a value of the header, which is a Python dictionary, up to the header's end.
fn entry<'a>(header: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = header.split_once(&format!("'{key}':"))?;
    Some(rest.trim_start())
}

/// Reads a tuple such as `(3, 224, 224)` or `(5,)`.
fn sides(text: &str) -> Option<Vec<usize>> {
    let (tuple, _) = text.strip_prefix('(')?.split_once(')')?;
    tuple.split(',').map(str::trim).filter(|side| !side.is_empty()).map(|side| side.parse().ok()).collect()
}

fn quoted(text: &str) -> Option<&str> {
    text.strip_prefix('\'')?.split_once('\'').map(|(quoted, _)| quoted)
}

/// Reader of one value, from as many bytes as it has.
type ReadValue = fn(&[u8]) -> f32;

/// Returns the size of a type in bytes, and its reader. Types are little-endian, as on every board and PC.
fn element(descr: &str) -> Option<(usize, ReadValue)> {
    fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
        bytes.try_into().expect("chunks have this length")
    }
    Some(match descr {
        "|u1" => (1, |bytes| f32::from(bytes[0])),
        "|i1" => (1, |bytes| f32::from(bytes[0].cast_signed())),
        "<f2" => (2, |bytes| half::f16::from_le_bytes(array(bytes)).to_f32()),
        "<f4" => (4, |bytes| f32::from_le_bytes(array(bytes))),
        "<f8" => (8, |bytes| f64::from_le_bytes(array(bytes)) as f32),
        "<i4" => (4, |bytes| i32::from_le_bytes(array(bytes)) as f32),
        "<i8" => (8, |bytes| i64::from_le_bytes(array(bytes)) as f32),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn npy(header: &str, data: &[u8]) -> Vec<u8> {
        let mut bytes = [MAGIC, &[2, 0], &(header.len() as u32).to_le_bytes(), header.as_bytes()].concat();
        bytes.extend(data);
        bytes
    }

    #[test]
    fn types_and_shapes_are_read() {
        let check = |header: &str, data: &[u8], expected: Result<(&[usize], &[f32]), ArrayError>| {
            let found = parse(&npy(header, data));
            let expected =
                expected.map(|(shape, values)| Array { shape: shape.into(), values: values.into() });
            assert_eq!(found, expected, "{header}");
        };
        let rows = "{'descr': '|i1', 'fortran_order': False, 'shape': (2, 1), }";
        check(rows, &[1, 0xff], Ok((&[2, 1], &[1.0, -1.0])));
        let one = "{'shape': (), 'descr': '<i8', 'fortran_order': False}";
        check(one, &5_i64.to_le_bytes(), Ok((&[], &[5.0])));
        let turned = "{'descr': '|u1', 'fortran_order': True, 'shape': (1, 1), }";
        check(turned, &[1], Err(ArrayError::Columns));
        let text = "{'descr': '<U3', 'fortran_order': False, 'shape': (1,), }";
        check(text, &[0; 12], Err(ArrayError::Type("<U3".to_owned())));
        check("{'descr': '|u1'}", &[], Err(ArrayError::Malformed));
    }

    #[test]
    fn a_cut_array_is_no_array() {
        let whole = npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", &[0; 8]);
        assert!(parse(&whole).is_ok());
        (0..whole.len()).for_each(|cut| assert!(parse(&whole[..cut]).is_err(), "{cut}"));
    }
}
