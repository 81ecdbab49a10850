//! Reads of another process's memory.
#![expect(unsafe_code, reason = "the kernel copies between addresses of two processes")]

use std::io;

use super::sync::step;
use crate::Element;

/// Address of a vector in this process, for other ranks to read from.
pub(super) fn address<T>(vector: &[T]) -> u64 {
    vector.as_ptr().addr() as u64
}

/// Copies elements from an address of another process, which may be this one.
///
/// # Errors
/// The kernel's: it does not know the process, refuses the access, or the process has no such memory.
pub(super) fn read<T: Element>(process: u32, address: u64, into: &mut [T]) -> io::Result<()> {
    step();
    let process = libc::pid_t::try_from(process).map_err(|_| io::ErrorKind::InvalidInput)?;
    let base = into.as_mut_ptr().cast::<u8>();
    let (mut done, bytes) = (0, size_of_val(into));
    while done < bytes {
        let address = usize::try_from(address).ok().and_then(|address| address.checked_add(done));
        let address = address.ok_or(io::ErrorKind::InvalidInput)?;
        let remote =
            libc::iovec { iov_base: std::ptr::without_provenance_mut(address), iov_len: bytes - done };
        // SAFETY: `local` describes the rest of `into`, which is borrowed exclusively and of which every pattern of bits is valid
        // (`Element` is sealed); `done` is below `bytes`. The other address is checked by the kernel.
        let copied = unsafe {
            let local = libc::iovec { iov_base: base.add(done).cast(), iov_len: bytes - done };
            libc::process_vm_readv(process, &local, 1, &remote, 1, 0)
        };
        match usize::try_from(copied) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(copied) => done += copied,
            Err(_) => return Err(io::Error::last_os_error()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_this_process_can_be_read_and_what_is_none_is_an_error() {
        let there = [1u32, 2, 3];
        let mut here = [0u32; 3];
        read(std::process::id(), address(&there), &mut here).unwrap();
        assert_eq!(here, there);
        assert!(read(std::process::id(), 8, &mut here).is_err());
        assert!(read(u32::MAX, address(&there), &mut here).is_err());
        // No process has a number as high.
        assert_eq!(
            read((1 << 22) + 1, address(&there), &mut here).unwrap_err().raw_os_error(),
            Some(libc::ESRCH)
        );
    }
}
