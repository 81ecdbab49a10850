//! Messages of any length between the two ranks of a group: their length first, then their parts.

use orinoco_collective::{ClusterGroup, CollectiveError, Communicator};

/// Longest message. Eight images of 3840x2160 in RGB have 190 MiB.
pub(super) const MESSAGE_MAX: usize = 256 << 20;

/// Most bytes of a part. Memory for the next is taken when the one before has come: whoever only announces a long message costs nothing.
const PART_BYTES: usize = 4 << 20;

/// Sends a message; an empty one shows that this rank is there.
pub(super) fn send(pair: &mut ClusterGroup, message: &[u8]) -> Result<(), CollectiveError> {
    let to = 1 - pair.rank();
    pair.send(to, &[message.len() as u64])?;
    message.chunks(PART_BYTES).try_for_each(|part| pair.send(to, part))
}

/// Receives a message into `buffer`. `None`: it is longer than [`MESSAGE_MAX`], so the connection is of no use any more.
pub(super) fn receive<'b>(
    pair: &mut ClusterGroup,
    buffer: &'b mut Vec<u8>,
) -> Result<Option<&'b [u8]>, CollectiveError> {
    let (from, mut len) = (1 - pair.rank(), [0_u64]);
    pair.recv(from, &mut len)?;
    let Some(len) = usize::try_from(len[0]).ok().filter(|len| *len <= MESSAGE_MAX) else { return Ok(None) };
    for start in (0..len).step_by(PART_BYTES) {
        let end = len.min(start + PART_BYTES);
        if buffer.len() < end {
            buffer.resize(end, 0);
        }
        pair.recv(from, &mut buffer[start..end])?;
    }
    buffer.truncate(len);
    Ok(Some(buffer))
}
