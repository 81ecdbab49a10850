//! Fields of a protobuf file, one after the other. Fields that the caller does not ask for are skipped without reading,
//! so a model of gigabytes costs no more than its notes.

use std::fs::File;
use std::io::{self, BufReader, Read};

use prost::Message;

/// Reading position in a file of protobuf messages.
pub(crate) struct Fields {
    file: BufReader<File>,
    at: u64,
    length: u64,
}

/// Field with a length: a message, a string or bytes, whose content comes next in the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    pub(crate) number: u64,
    pub(crate) length: u64,
}

impl Fields {
    /// Starts reading `file`, which must be at its start.
    pub(crate) fn new(file: File) -> Self {
        let length = file.metadata().map_or(0, |metadata| metadata.len());
        Self { file: BufReader::new(file), at: 0, length }
    }

    /// Returns the end of the file's message.
    pub(crate) fn end(&self) -> u64 {
        self.length
    }

    /// Returns the end of the message in `field`, which must be the last one that `next` returned.
    pub(crate) fn end_of(&self, field: Field) -> u64 {
        self.at.saturating_add(field.length)
    }

    /// Returns the next field with a length before `end`, and skips other fields. A field that extends beyond `end` is
    /// an error.
    pub(crate) fn next(&mut self, end: u64) -> io::Result<Option<Field>> {
        self.next_with(end, |_, _| ())
    }

    /// Returns the next field with a length like [`Fields::next`], and calls `on_number` with the number and the value of
    /// each integer field before it.
    pub(crate) fn next_with(
        &mut self,
        end: u64,
        mut on_number: impl FnMut(u64, u64),
    ) -> io::Result<Option<Field>> {
        while self.at < end {
            let key = self.varint()?;
            let wire = key & 7;
            let length = match wire {
                0 => {
                    on_number(key >> 3, self.varint()?);
                    continue;
                }
                1 => 8,
                2 => self.varint()?,
                5 => 4,
                _ => return Err(io::ErrorKind::InvalidData.into()),
            };
            if length > end.saturating_sub(self.at) {
                return Err(io::ErrorKind::InvalidData.into());
            }
            if wire == 2 {
                return Ok(Some(Field { number: key >> 3, length }));
            }
            self.skip(length)?;
        }
        Ok(None)
    }

    /// Reads the message of a field that `next` returned. Returns `None` where it is longer than `bytes_max` (it is
    /// skipped) or malformed.
    pub(crate) fn message<M: Message + Default>(
        &mut self,
        field: Field,
        bytes_max: u64,
    ) -> io::Result<Option<M>> {
        Ok(self.bytes(field, bytes_max)?.and_then(|bytes| M::decode(bytes.as_slice()).ok()))
    }

    /// Reads the string of a field that `next` returned; empty where it is longer than `bytes_max` and is skipped.
    pub(crate) fn text(&mut self, field: Field, bytes_max: u64) -> io::Result<String> {
        let bytes = self.bytes(field, bytes_max)?.unwrap_or_default();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Skips the next `length` bytes.
    pub(crate) fn skip(&mut self, length: u64) -> io::Result<()> {
        let step = i64::try_from(length).map_err(|_| io::ErrorKind::InvalidData)?;
        self.at = self.at.checked_add(length).ok_or(io::ErrorKind::InvalidData)?;
        self.file.seek_relative(step)
    }

    fn bytes(&mut self, field: Field, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
        if field.length > bytes_max {
            self.skip(field.length)?;
            return Ok(None);
        }
        let mut bytes = Vec::new();
        self.file.by_ref().take(field.length).read_to_end(&mut bytes)?;
        self.at += field.length;
        Ok(Some(bytes))
    }

    fn varint(&mut self) -> io::Result<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let mut byte = [0];
            self.file.read_exact(&mut byte)?;
            self.at += 1;
            value |= u64::from(byte[0] & 0x7f) << shift;
            if byte[0] & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(io::ErrorKind::InvalidData.into())
    }
}
