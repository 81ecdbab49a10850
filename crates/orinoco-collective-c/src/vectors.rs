//! Vectors of the caller, by address.
#![expect(unsafe_code, reason = "C gives vectors by address and length")]

use std::borrow::Cow;
use std::ffi::{CStr, c_char, c_void};

use orinoco_collective::Element;

use crate::fault::Fault;

/// Elements that the caller lends until the operation has ended.
#[derive(Clone, Copy)]
pub(crate) struct Vector {
    address: usize,
    count: usize,
}

impl Vector {
    /// Elements to be read.
    ///
    /// # Safety
    /// Until the operation has ended, there must be so many elements of the operation's type at the address, which nobody changes.
    pub(crate) unsafe fn input<T>(pointer: *const T, count: usize) -> Self {
        Self { address: pointer.expose_provenance(), count }
    }

    /// Elements to be written.
    ///
    /// # Safety
    /// Until the operation has ended, there must be so many elements of the operation's type at the address, which nobody else reads
    /// or changes.
    pub(crate) unsafe fn output<T>(pointer: *mut T, count: usize) -> Self {
        Self { address: pointer.expose_provenance(), count }
    }

    /// Fails if there cannot be elements of a type at the address.
    pub(crate) fn check<T: Element>(self, what: &str) -> Result<(), Fault> {
        if self.count == 0 {
            return Ok(());
        }
        let bytes = self.count.checked_mul(size_of::<T>()).filter(|bytes| isize::try_from(*bytes).is_ok());
        if self.address == 0 {
            return Err(Fault::argument(format!("{what} is NULL, and {} elements are expected", self.count)));
        }
        if !self.address.is_multiple_of(align_of::<T>()) {
            let address = self.address;
            return Err(Fault::argument(format!(
                "{what} at {address:#x} is not aligned for {}",
                T::DATA_TYPE
            )));
        }
        if bytes.and_then(|bytes| self.address.checked_add(bytes)).is_none() {
            return Err(Fault::argument(format!("{what} of {} elements does not fit memory", self.count)));
        }
        Ok(())
    }

    /// No elements, which share no memory with any.
    pub(crate) fn nothing() -> Self {
        Self { address: 0, count: 0 }
    }

    /// Whether the two have the same memory.
    pub(crate) fn is(self, other: Self) -> bool {
        self.address == other.address && self.count == other.count
    }

    /// The elements to be read, which were checked. They are copied if they share memory with `output`.
    pub(crate) fn elements<'a, T: Element>(self, output: Self) -> Cow<'a, [T]> {
        let end = |vector: Self| vector.address + vector.count * size_of::<T>();
        let overlaps = self.address < end(output) && output.address < end(self);
        // SAFETY: by the contract of `Vector::input` and `check`, there are so many aligned elements, of which every pattern of bits
        // is valid, and nobody changes them while the operation runs.
        let elements = unsafe { slice(self) };
        if overlaps { Cow::Owned(elements.to_vec()) } else { Cow::Borrowed(elements) }
    }

    /// The elements to be written, which were checked.
    pub(crate) fn elements_mut<'a, T: Element>(self) -> &'a mut [T] {
        if self.count == 0 {
            return &mut [];
        }
        let start = std::ptr::with_exposed_provenance_mut(self.address);
        // SAFETY: as in `elements`, by the contract of `Vector::output`.
        unsafe { std::slice::from_raw_parts_mut(start, self.count) }
    }
}

/// # Safety
/// As for `Vector::elements`.
unsafe fn slice<'a, T: Element>(vector: Vector) -> &'a [T] {
    if vector.count == 0 {
        return &[];
    }
    let start = std::ptr::with_exposed_provenance(vector.address);
    // SAFETY: the caller's.
    unsafe { std::slice::from_raw_parts(start, vector.count) }
}

/// Vectors to be read and written, each with its count.
///
/// # Safety
/// There must be so many entries in both lists, and as for [`Vector::output`], the elements of each vector.
pub(crate) unsafe fn vector_list(
    pointers: *const *mut c_void,
    counts: *const usize,
    number: usize,
) -> Result<Vec<Vector>, Fault> {
    if number == 0 {
        return Ok(Vec::new());
    }
    if pointers.is_null() {
        return Err(Fault::argument("the list of vectors is NULL"));
    }
    // SAFETY: the caller's.
    let counts = unsafe { count_list(counts, number) }?;
    // SAFETY: the caller's, and not null.
    let pointers = unsafe { std::slice::from_raw_parts(pointers, number) };
    let vector = |(pointer, count): (&*mut c_void, usize)| {
        // SAFETY: the caller's.
        unsafe { Vector::output(*pointer, count) }
    };
    Ok(pointers.iter().zip(counts).map(vector).collect())
}

/// Fails if there cannot be elements of a type at one of the addresses, or if two vectors share memory.
pub(crate) fn check_list<T: Element>(vectors: &[Vector]) -> Result<(), Fault> {
    for (number, vector) in vectors.iter().enumerate() {
        vector.check::<T>(&format!("vector {number}"))?;
    }
    let mut ordered: Vec<(usize, &Vector)> =
        vectors.iter().enumerate().filter(|(_, vector)| vector.count > 0).collect();
    ordered.sort_by_key(|(_, vector)| vector.address);
    for pair in ordered.windows(2) {
        let ((one, first), (other, second)) = (pair[0], pair[1]);
        if first.address + first.count * size_of::<T>() > second.address {
            return Err(Fault::argument(format!("vectors {one} and {other} share memory")));
        }
    }
    Ok(())
}

/// Counts, one for each rank or vector.
///
/// # Safety
/// There must be so many counts at the address.
pub(crate) unsafe fn count_list(pointer: *const usize, number: usize) -> Result<Vec<usize>, Fault> {
    if pointer.is_null() {
        return Err(Fault::argument("the list of counts is NULL"));
    }
    // SAFETY: the caller's, and not null.
    Ok(unsafe { std::slice::from_raw_parts(pointer, number) }.to_vec())
}

/// Text.
///
/// # Safety
/// There must be text that ends with a null character at the address.
pub(crate) unsafe fn text(pointer: *const c_char, what: &str) -> Result<String, Fault> {
    if pointer.is_null() {
        return Err(Fault::argument(format!("{what} is NULL")));
    }
    // SAFETY: the caller's, and not null.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map(str::to_owned).map_err(|_| Fault::argument(format!("{what} is not UTF-8")))
}

/// Writes as much of a text as fits, and a null character.
///
/// # Safety
/// There must be so many bytes at the address, which nobody else reads or changes.
pub(crate) unsafe fn write_text(text: &str, buffer: *mut c_char, capacity: usize) -> Result<(), Fault> {
    let Some(room) = capacity.checked_sub(1) else { return Ok(()) };
    if buffer.is_null() {
        return Err(Fault::argument("the buffer is NULL"));
    }
    let written = &text.as_bytes()[..text.floor_char_boundary(room)];
    // SAFETY: the caller's: at most `room` bytes and one more, in a buffer that is not null and that the text is no part of.
    unsafe {
        buffer.cast::<u8>().copy_from_nonoverlapping(written.as_ptr(), written.len());
        buffer.add(written.len()).write(0);
    }
    Ok(())
}

/// The thing at an address, or an error.
///
/// # Safety
/// There must be such a thing at the address, or it must be null.
pub(crate) unsafe fn at<'a, T>(pointer: *const T, what: &str) -> Result<&'a T, Fault> {
    // SAFETY: the caller's.
    unsafe { pointer.as_ref() }.ok_or_else(|| Fault::argument(format!("{what} is NULL")))
}

/// Gives the caller a pointer to a thing, which comes back once to be dropped.
///
/// # Safety
/// `place` is null or a place for a pointer.
pub(crate) unsafe fn give<T>(place: *mut *mut T, thing: T, what: &str) -> Result<(), Fault> {
    if place.is_null() {
        return Err(Fault::argument(format!("{what} is NULL")));
    }
    // SAFETY: the caller's, and not null.
    unsafe { place.write(Box::into_raw(Box::new(thing))) };
    Ok(())
}
