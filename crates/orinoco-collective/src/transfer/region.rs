//! Regions that a rank exposes to the other ranks, by name.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use rustix::fs::{OFlags, fcntl_getfl};

use super::error::{RefusalReason, TransferError, own_fault};
use super::limits::{NAME_BYTES_MAX, REGIONS_MAX};

/// Bytes that other ranks can read or write: memory of this process or of a device, or a file.
#[derive(Debug)]
pub struct Region {
    contents: Contents,
}

/// Memory of a device, such as a GPU.
///
/// The threads that serve other ranks call it. A read must see all writes that have returned before; the device's own work with the memory
/// must be complete, or not be concerned.
pub trait DeviceMemory: fmt::Debug + Send + Sync {
    /// Length in bytes. It does not change.
    fn bytes(&self) -> u64;

    /// Copies bytes from `offset` on to the memory of this process. The range is inside the length. Returns when they are there.
    ///
    /// # Errors
    /// If the device has failed. The requesting rank gets the number of the system's error, if it has one.
    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;

    /// Copies bytes to the device, from `offset` on. The range is inside the length. Returns when a read would see them.
    ///
    /// # Errors
    /// As [`DeviceMemory::read`].
    fn write(&mut self, offset: u64, from: &[u8]) -> io::Result<()>;
}

#[derive(Debug)]
enum Contents {
    Host(Vec<u8>),
    Device(Box<dyn DeviceMemory>),
    File {
        file: File,
        bytes: u64,
    },
    /// The region was unregistered.
    Nothing,
}

/// Storage of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tier {
    /// Memory of the owner's process.
    Host,
    /// A file of the owner.
    File,
    /// Memory of a device of the owner.
    Device,
    /// Storage that this version does not know.
    Unknown(u8),
}

/// Access of other ranks to a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// They may get from it.
    Read,
    /// They may put to it.
    Write,
    /// They may do both.
    ReadWrite,
}

/// Description of a region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionInfo {
    /// Name, unique on its rank.
    pub name: String,
    /// Length in bytes.
    pub bytes: u64,
    /// Access of other ranks.
    pub access: Access,
    /// Storage.
    pub tier: Tier,
}

impl Region {
    /// Creates a region in memory, filled with zeros.
    pub fn host(bytes: usize) -> Self {
        vec![0; bytes].into()
    }

    /// Creates a region of the first `bytes` of a file. The file may be shorter: it grows as it is written, and reading beyond its end
    /// is an error.
    ///
    /// # Errors
    /// If it is not a regular file, or if it was opened to append: the system then ignores the offset of a write.
    pub fn file(file: File, bytes: u64) -> Result<Self, TransferError> {
        let unsuitable = |why| Err(TransferError::UnsuitableFile { why });
        if !file.metadata().map_err(TransferError::File)?.is_file() {
            return unsuitable("it is not a regular file");
        }
        if mode(&file)?.contains(OFlags::APPEND) {
            return unsuitable("it was opened to append");
        }
        if i64::try_from(bytes).is_err() {
            return unsuitable("the region is longer than a file can be");
        }
        Ok(Self { contents: Contents::File { file, bytes } })
    }

    /// Creates a region of a device's memory.
    pub fn device(memory: impl DeviceMemory + 'static) -> Self {
        Self { contents: Contents::Device(Box::new(memory)) }
    }

    /// The bytes of a region in the memory of this process. `None` for another.
    pub fn into_vec(self) -> Option<Vec<u8>> {
        match self.contents {
            Contents::Host(bytes) => Some(bytes),
            Contents::Device(_) | Contents::File { .. } | Contents::Nothing => None,
        }
    }

    /// Checks that the file of a region was opened for an access.
    fn check(&self, access: Access) -> Result<(), TransferError> {
        let Contents::File { file, .. } = &self.contents else { return Ok(()) };
        let mode = mode(file)? & OFlags::RWMODE;
        match access {
            _ if mode == OFlags::RDWR => Ok(()),
            Access::Read if mode == OFlags::RDONLY => Ok(()),
            Access::Write if mode == OFlags::WRONLY => Ok(()),
            Access::Read | Access::Write | Access::ReadWrite => {
                Err(TransferError::UnsuitableFile { why: "it was not opened for the access of the region" })
            }
        }
    }
}

impl From<Vec<u8>> for Region {
    fn from(bytes: Vec<u8>) -> Self {
        Self { contents: Contents::Host(bytes) }
    }
}

fn mode(file: &File) -> Result<OFlags, TransferError> {
    fcntl_getfl(file).map_err(|error| TransferError::File(error.into()))
}

impl Tier {
    pub(super) fn to_code(self) -> u8 {
        match self {
            Self::Host => 1,
            Self::File => 2,
            Self::Device => 3,
            Self::Unknown(code) => code,
        }
    }

    pub(super) fn from_code(code: u8) -> Self {
        match code {
            1 => Self::Host,
            2 => Self::File,
            3 => Self::Device,
            code => Self::Unknown(code),
        }
    }
}

impl Access {
    pub(super) fn to_code(self) -> u8 {
        match self {
            Self::Read => 1,
            Self::Write => 2,
            Self::ReadWrite => 3,
        }
    }

    pub(super) fn from_code(code: u8) -> Option<Self> {
        [Self::Read, Self::Write, Self::ReadWrite].into_iter().find(|access| access.to_code() == code)
    }
}

/// A region while it is registered. Each access holds its lock: writes are atomic, and none happens after unregistration.
pub(super) struct Registered {
    name: String,
    /// Number of the registration: a later region of the same name has another.
    serial: u32,
    access: Access,
    bytes: u64,
    tier: Tier,
    contents: RwLock<Contents>,
}

impl Registered {
    pub(super) fn serial(&self) -> u32 {
        self.serial
    }

    /// Checks that other ranks may read it.
    pub(super) fn check_read(&self) -> Result<(), RefusalReason> {
        if self.access == Access::Write { Err(RefusalReason::NotReadable) } else { Ok(()) }
    }

    /// Checks that other ranks may write to it.
    pub(super) fn check_write(&self) -> Result<(), RefusalReason> {
        if self.access == Access::Read { Err(RefusalReason::NotWritable) } else { Ok(()) }
    }

    /// Checks that a range is in the region.
    pub(super) fn check_range(&self, offset: u64, bytes: u64) -> Result<(), RefusalReason> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.bytes => Ok(()),
            _ => Err(RefusalReason::OutOfRange { region_bytes: self.bytes }),
        }
    }

    pub(super) fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), RefusalReason> {
        self.check_range(offset, into.len() as u64)?;
        match &*self.contents.read().unwrap_or_else(PoisonError::into_inner) {
            Contents::Host(bytes) => {
                into.copy_from_slice(&bytes[offset as usize..][..into.len()]);
                Ok(())
            }
            Contents::Device(memory) => storage(memory.read(offset, into)),
            Contents::File { file, .. } => storage(file.read_exact_at(into, offset)),
            Contents::Nothing => Err(RefusalReason::Unregistered),
        }
    }

    pub(super) fn write(&self, offset: u64, from: &[u8]) -> Result<(), RefusalReason> {
        self.check_range(offset, from.len() as u64)?;
        match &mut *self.contents.write().unwrap_or_else(PoisonError::into_inner) {
            Contents::Host(bytes) => {
                bytes[offset as usize..][..from.len()].copy_from_slice(from);
                Ok(())
            }
            Contents::Device(memory) => storage(memory.write(offset, from)),
            Contents::File { file, .. } => storage(file.write_all_at(from, offset)),
            Contents::Nothing => Err(RefusalReason::Unregistered),
        }
    }

    /// Returns when what was written is on the disk. Memory has none.
    pub(super) fn sync(&self) -> Result<(), RefusalReason> {
        match &*self.contents.read().unwrap_or_else(PoisonError::into_inner) {
            Contents::Host(_) | Contents::Device(_) => Ok(()),
            Contents::File { file, .. } => storage(file.sync_data()),
            Contents::Nothing => Err(RefusalReason::Unregistered),
        }
    }

    /// Ends all access, when those under way are over.
    fn end(&self) -> Region {
        let mut contents = self.contents.write().unwrap_or_else(PoisonError::into_inner);
        Region { contents: std::mem::replace(&mut contents, Contents::Nothing) }
    }
}

/// Checks that a name can be that of a region.
pub(super) fn check_name(name: &str) -> Result<(), TransferError> {
    match name.len() {
        1..=NAME_BYTES_MAX => Ok(()),
        _ => Err(TransferError::Name { name: name.to_owned() }),
    }
}

fn storage(result: io::Result<()>) -> Result<(), RefusalReason> {
    result.map_err(|error| RefusalReason::of_storage(&error))
}

/// Regions of a rank.
#[derive(Default)]
pub(super) struct Registry {
    state: Mutex<RegistryState>,
}

#[derive(Default)]
struct RegistryState {
    by_name: BTreeMap<String, Arc<Registered>>,
    last_serial: u32,
}

impl Registry {
    fn state(&self) -> MutexGuard<'_, RegistryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a region, and returns its handle, which ends the registration when dropped.
    pub(super) fn register(
        self: &Arc<Self>,
        name: &str,
        region: Region,
        access: Access,
    ) -> Result<RegionHandle, TransferError> {
        check_name(name)?;
        region.check(access)?;
        let (bytes, tier) = match &region.contents {
            Contents::Host(bytes) => (bytes.len() as u64, Tier::Host),
            Contents::Device(memory) => (memory.bytes(), Tier::Device),
            Contents::File { bytes, .. } => (*bytes, Tier::File),
            Contents::Nothing => unreachable!("only a registration ends"),
        };
        let mut state = self.state();
        if state.by_name.contains_key(name) {
            return Err(TransferError::NameTaken { name: name.to_owned() });
        }
        if state.by_name.len() >= REGIONS_MAX {
            return Err(TransferError::TooManyRegions);
        }
        // 0 is reserved for no registration.
        state.last_serial = state.last_serial.checked_add(1).unwrap_or(1);
        let contents = RwLock::new(region.contents);
        let (name, serial) = (name.to_owned(), state.last_serial);
        let registered = Arc::new(Registered { name, serial, access, bytes, tier, contents });
        state.by_name.insert(registered.name.clone(), Arc::clone(&registered));
        Ok(RegionHandle { registry: Arc::clone(self), registered })
    }

    /// Finds a region by its name, and by the number of its registration unless that is 0.
    pub(super) fn find(&self, name: &str, serial: u32) -> Result<Arc<Registered>, RefusalReason> {
        match self.state().by_name.get(name) {
            Some(region) if serial == 0 || serial == region.serial => Ok(Arc::clone(region)),
            None if serial == 0 => Err(RefusalReason::UnknownRegion),
            _ => Err(RefusalReason::Unregistered),
        }
    }

    /// Describes all regions, in the order of their names.
    pub(super) fn list(&self) -> Vec<RegionInfo> {
        let info = |region: &Arc<Registered>| {
            let Registered { name, bytes, access, tier, .. } = &**region;
            RegionInfo { name: name.clone(), bytes: *bytes, access: *access, tier: *tier }
        };
        self.state().by_name.values().map(info).collect()
    }
}

/// A registered region, as its owner has it. The registration ends when it is dropped.
pub struct RegionHandle {
    registry: Arc<Registry>,
    registered: Arc<Registered>,
}

impl RegionHandle {
    /// Name of the region.
    pub fn name(&self) -> &str {
        &self.registered.name
    }

    /// Length of the region, in bytes.
    pub fn bytes(&self) -> u64 {
        self.registered.bytes
    }

    /// Reads from the region. Puts of other ranks wait until the read ends, so the read sees each of their pieces (256 KiB) completely
    /// or not at all.
    ///
    /// # Errors
    /// If the range is not in the region, or if its file cannot be read.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), TransferError> {
        self.registered.read(offset, into).map_err(|why| self.fault(why))
    }

    /// Writes to the region. Transfers of other ranks wait meanwhile: each of their pieces sees all of it or nothing.
    ///
    /// # Errors
    /// If the range is not in the region, or if its file cannot be written.
    pub fn write(&self, offset: u64, from: &[u8]) -> Result<(), TransferError> {
        self.registered.write(offset, from).map_err(|why| self.fault(why))
    }

    /// Ends the registration, and returns the region. Transfers under way fail with [`RefusalReason::Unregistered`]; nothing is read
    /// or written by others any more.
    pub fn unregister(self) -> Region {
        self.end()
    }

    fn end(&self) -> Region {
        let mut state = self.registry.state();
        // After `unregister` the name may belong to another region.
        let is_own = |region: &Arc<Registered>| Arc::ptr_eq(region, &self.registered);
        if state.by_name.get(self.name()).is_some_and(is_own) {
            state.by_name.remove(self.name());
        }
        drop(state);
        self.registered.end()
    }

    fn fault(&self, why: RefusalReason) -> TransferError {
        own_fault(self.name(), why)
    }
}

impl Drop for RegionHandle {
    fn drop(&mut self) {
        self.end();
    }
}
