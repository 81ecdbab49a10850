//! Sizes of a firmware's image, from its section headers. (`size` of a development host may not know Arm.)

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

/// Section without contents in the file (System V ABI, `sh_type`).
const NOBITS: u32 = 8;
/// Section that is written, and one that has memory (`sh_flags`).
const WRITE: u32 = 1;
const ALLOC: u32 = 2;
const WORD: usize = 4;

/// Memory that a firmware takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sizes {
    /// Code, constants, and the initial values of variables, in bytes.
    pub(super) flash: u32,
    /// Variables, in bytes. The stack is not in it.
    pub(super) ram: u32,
}

impl Sizes {
    /// Reads them from an image.
    pub(super) fn of(image: &Path) -> Result<Self> {
        let bytes = fs::read(image).with_context(|| format!("reading {}", image.display()))?;
        Self::read(&bytes).with_context(|| format!("reading the sections of {}", image.display()))
    }

    /// Adds up the sections of a 32-bit little-endian ELF file.
    fn read(bytes: &[u8]) -> Result<Self> {
        ensure!(bytes.starts_with(b"\x7fELF\x01\x01"), "it is no 32-bit little-endian ELF file");
        let half = |at: usize| -> Result<usize> {
            Ok(u16::from_le_bytes(bytes.get(at..at + 2).context("it is cut off")?.try_into()?).into())
        };
        let table = word(bytes, 0x20)? as usize;
        let (entry, count) = (half(0x2E)?, half(0x30)?);
        let mut sizes = Self::default();
        for header in (0..count).map(|index| table + index * entry) {
            let (kind, flags, size) = (
                word(bytes, header + WORD)?,
                word(bytes, header + 2 * WORD)?,
                word(bytes, header + 5 * WORD)?,
            );
            if flags & ALLOC != 0 {
                sizes.flash += if kind == NOBITS { 0 } else { size };
                sizes.ram += if flags & WRITE == 0 { 0 } else { size };
            }
        }
        Ok(sizes)
    }
}

fn word(bytes: &[u8], at: usize) -> Result<u32> {
    Ok(u32::from_le_bytes(bytes.get(at..at + WORD).context("it is cut off")?.try_into()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_flash_ram_or_both() {
        // Kind, flags and size: code, constants, variables with and without values, and a section for a debugger.
        let sections = [(1, 6, 1_000), (1, 2, 200), (1, 3, 30), (8, 3, 4_000), (1, 0, 50_000)];
        let mut bytes = vec![0; 0x34];
        bytes[..6].copy_from_slice(b"\x7fELF\x01\x01");
        bytes[0x20] = 0x34;
        bytes[0x2E] = 40;
        bytes[0x30] = sections.len() as u8;
        for (kind, flags, size) in sections {
            let words: [u32; 10] = [0, kind, flags, 0, 0, size, 0, 0, 0, 0];
            bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        }
        assert_eq!(Sizes::read(&bytes).unwrap(), Sizes { flash: 1_230, ram: 4_030 });
        bytes.truncate(bytes.len() - 20);
        assert!(Sizes::read(&bytes).is_err());
        assert!(Sizes::read(b"#!/bin/sh").is_err());
    }
}
