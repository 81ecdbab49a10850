//! Memory of the GPU that an engine allocates from while it computes.

use std::alloc::Layout;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use orinoco_memory::{Ledger, Owner, Usage};

use crate::{CudaError, Device, DeviceArena};

/// Alignment of the driver's own allocations, on which engines rely (CUDA C++ Programming Guide, device memory
/// accesses).
const ALIGN_BYTES: usize = 256;

/// One area of a GPU's memory, whose ranges are given out by request. Its books lie on the host. It never grows: a request
/// that does not fit is refused and counted.
///
/// A range that was given back goes to the next who asks. So whoever shares a pool waits for the stream it computes in
/// before another begins.
pub struct DevicePool {
    device: Device,
    backing: Backing,
    books: Mutex<Books>,
}

enum Backing {
    Planned(DeviceArena),
    /// To measure: each range is an allocation of its own, and only the books know where it would lie.
    Each,
}

struct Books {
    ledger: Ledger,
    /// Each allocation by its address, with its place in the books.
    each: HashMap<u64, (usize, DeviceArena)>,
}

impl DevicePool {
    /// A pool of `bytes` bytes, allocated at once.
    pub fn new(device: &Device, bytes: usize) -> Result<Self, CudaError> {
        Ok(Self::with(device, Backing::Planned(DeviceArena::new(device, bytes)?), bytes))
    }

    /// A pool to find out how large one has to be: its usage is that of a planned one that nothing ever outgrew. Each request
    /// allocates, which is slow, and not allowed while a graph is captured.
    pub fn measuring(device: &Device) -> Self {
        Self::with(device, Backing::Each, isize::MAX as usize)
    }

    fn with(device: &Device, backing: Backing, bytes: usize) -> Self {
        let books = Books { ledger: Ledger::new(bytes, ALIGN_BYTES), each: HashMap::new() };
        Self { device: device.clone(), backing, books: Mutex::new(books) }
    }

    /// Device that owns the memory.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Whether it is there to find out how large one has to be.
    pub fn is_measuring(&self) -> bool {
        matches!(self.backing, Backing::Each)
    }

    /// Its size; 0 where it measures.
    pub fn bytes(&self) -> usize {
        match &self.backing {
            Backing::Planned(arena) => arena.whole().bytes(),
            Backing::Each => 0,
        }
    }

    /// The address of `bytes` bytes; `None`, which is counted, when they do not fit.
    pub fn alloc(&self, bytes: usize) -> Option<u64> {
        let layout = Layout::from_size_align(bytes, ALIGN_BYTES).ok()?;
        let mut books = self.books();
        let offset = books.ledger.take(layout)?;
        match &self.backing {
            Backing::Planned(arena) => Some(arena.whole().address() + offset as u64),
            Backing::Each => {
                let Ok(range) = DeviceArena::new(&self.device, bytes.max(1)) else {
                    let was_held = books.ledger.release(Some(offset));
                    debug_assert!(was_held, "it was taken above");
                    return None;
                };
                let address = range.whole().address();
                books.each.insert(address, (offset, range));
                Some(address)
            }
        }
    }

    /// Takes the range at `address` back; false, which is counted, where it does not hold one there.
    #[must_use]
    pub fn free(&self, address: u64) -> bool {
        let mut books = self.books();
        let offset = match &self.backing {
            Backing::Planned(arena) => {
                address.checked_sub(arena.whole().address()).and_then(|offset| usize::try_from(offset).ok())
            }
            // Dropping an allocation waits for the device.
            Backing::Each => books.each.remove(&address).map(|(offset, _)| offset),
        };
        books.ledger.release(offset)
    }

    /// Whether `address` lies in its memory.
    pub fn contains(&self, address: u64) -> bool {
        match &self.backing {
            Backing::Planned(arena) => {
                let start = arena.whole().address();
                (start..start + arena.whole().bytes() as u64).contains(&address)
            }
            Backing::Each => self.books().each.contains_key(&address),
        }
    }

    /// The owner of that name; made when it is first asked for.
    pub fn owner(&self, name: &str) -> Owner {
        self.books().ledger.owner(name)
    }

    /// From now on requests are on `owner`'s account.
    pub fn set_owner(&self, owner: Owner) {
        self.books().ledger.set_owner(owner);
    }

    /// Usage of all owners together.
    pub fn usage(&self) -> Usage {
        self.books().ledger.total()
    }

    /// Usage of each owner, in the order in which they were named; allocations without an owner come first.
    pub fn owners(&self) -> Vec<(String, Usage)> {
        self.books().ledger.owners().to_vec()
    }

    /// Number of calls of [`DevicePool::free`] with an address that was not allocated: a bug in the engine.
    pub fn not_held(&self) -> u64 {
        self.books().ledger.not_held()
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        // A panic in the ledger is a bug that its own checks found; what it wrote until then is whole.
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for DevicePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DevicePool({} bytes, {:?})", self.bytes(), self.usage())
    }
}
