/// Memory that other ranks reach over a bus. Offsets are in bytes.
///
/// A word is eight bytes at a multiple of eight, in little-endian order. Other ranks may write anything at any time, so what is
/// loaded or read is outside data.
pub(super) trait Window {
    /// Loads a word. What is loaded and read later is at least as new.
    fn load(&self, offset: usize) -> u64;

    /// Stores a word, which others see after everything that was written before. It is on its way when this returns.
    fn publish(&self, offset: usize, word: u64);

    /// Copies bytes out of the window.
    fn read(&self, offset: usize, into: &mut [u8]);

    /// Copies bytes into the window. Others may see parts of them in any order, until a word is published.
    fn write(&self, offset: usize, bytes: &[u8]);
}
