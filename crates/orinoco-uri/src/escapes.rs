use crate::fault::Fault;

pub(crate) fn escape_at(tail: &[u8]) -> Result<u8, Fault> {
    let hex = tail.get(..2).and_then(|pair| std::str::from_utf8(pair).ok());
    match hex.and_then(|pair| u8::from_str_radix(pair, 16).ok()) {
        Some(0) => Err(Fault::new("it contains a NUL character", "remove %00")),
        Some(byte) => Ok(byte),
        None => Err(Fault::new("a `%` is not followed by two hex digits", "write % itself as %25")),
    }
}
