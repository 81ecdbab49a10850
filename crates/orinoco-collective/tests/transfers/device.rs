//! A device that is simulated: bytes that are reached by copies only.

use std::io;

use orinoco_collective::transfer::DeviceMemory;

/// Number of the error "input/output error" (`EIO`) on Linux.
const EIO: i32 = 5;

#[derive(Debug)]
pub(crate) struct SimulatedDevice {
    bytes: Vec<u8>,
    /// Copies from this offset on fail.
    pub(crate) fails_from: u64,
    /// It panics instead.
    pub(crate) panics: bool,
}

impl SimulatedDevice {
    pub(crate) fn new(bytes: usize) -> Self {
        Self { bytes: vec![0; bytes], fails_from: u64::MAX, panics: false }
    }

    fn check(&self, offset: u64) -> io::Result<usize> {
        let has_failed = offset >= self.fails_from;
        assert!(!(has_failed && self.panics), "the test asked for it");
        match !has_failed {
            true => Ok(usize::try_from(offset).expect("a range of the region")),
            false => Err(io::Error::from_raw_os_error(EIO)),
        }
    }
}

impl DeviceMemory for SimulatedDevice {
    fn bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let offset = self.check(offset)?;
        into.copy_from_slice(&self.bytes[offset..][..into.len()]);
        Ok(())
    }

    fn write(&mut self, offset: u64, from: &[u8]) -> io::Result<()> {
        let offset = self.check(offset)?;
        self.bytes[offset..][..from.len()].copy_from_slice(from);
        Ok(())
    }
}
