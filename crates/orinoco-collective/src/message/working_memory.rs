//! Working memory of a group: of the transport's device, if it has one that takes it.

use zerocopy::IntoBytes;

use super::transport::Transport;
use super::vector_memory::VectorMemory;

/// Working memory. Its elements are aligned for every data type.
#[derive(Default)]
pub(super) enum WorkingMemory {
    #[default]
    None,
    Ordinary(Vec<u64>),
    /// The device knows it.
    Registered(VectorMemory<u64>),
}

impl WorkingMemory {
    /// Makes it at least so long.
    pub(super) fn grow<T: Transport>(&mut self, bytes: usize, transport: &mut T) {
        let words = bytes.div_ceil(size_of::<u64>());
        if self.words().len() >= words {
            return;
        }
        match transport.expected_bytes() {
            Some(_) => {
                // The device gives up the memory before it takes the next.
                *self = Self::None;
                *self = Self::registered(words.next_power_of_two(), transport);
            }
            None => match self {
                Self::Ordinary(memory) => memory.resize(words, 0),
                _ => *self = Self::Ordinary(vec![0; words]),
            },
        }
    }

    /// Registered memory, or ordinary memory if the device does not take it: messages are copied then, as if it had none.
    fn registered<T: Transport>(words: usize, transport: &mut T) -> Self {
        let mapped = VectorMemory::map(words).ok();
        let registered = mapped.filter(|(_, memory)| transport.register(memory).is_ok());
        registered.map_or_else(|| Self::Ordinary(vec![0; words]), |(memory, _)| Self::Registered(memory))
    }

    pub(super) fn bytes(&mut self) -> &mut [u8] {
        match self {
            Self::None => &mut [],
            Self::Ordinary(memory) => memory.as_mut_bytes(),
            Self::Registered(memory) => memory.as_mut_bytes(),
        }
    }

    fn words(&self) -> &[u64] {
        match self {
            Self::None => &[],
            Self::Ordinary(memory) => memory,
            Self::Registered(memory) => memory,
        }
    }
}
