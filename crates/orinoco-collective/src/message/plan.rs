use super::kernel::Kernel;
use super::memory::Span;
use crate::partition::PIECES_ACTIVE;
use crate::{Algorithm, Buffer, Collective, Region, Schedule, Topology, Transfer, Unsupported, schedule};

/// This rank's part in an operation: the pieces of its vector, and the schedule of each.
///
/// All ranks must make equal plans.
pub struct OperationPlan {
    pub(super) algorithm: Algorithm,
    pub(super) ranks: u32,
    pub(super) kernel: Kernel,
    /// Whether all ranks call it.
    pub(super) is_of_all: bool,
    /// Elements of all pieces but the last.
    piece: usize,
    pieces: u32,
    whole: Schedule,
    last: Schedule,
}

impl OperationPlan {
    /// Plans an operation in pieces of `piece` elements. Only vectors of broadcast, reduce, all-reduce and send are cut.
    ///
    /// # Errors
    /// If the algorithm does not carry out the operation.
    pub(crate) fn new(
        collective: &Collective,
        algorithm: Algorithm,
        topology: &Topology,
        rank: usize,
        kernel: Kernel,
        piece: usize,
    ) -> Result<Self, Unsupported> {
        let count = collective.vector_len().unwrap_or(0);
        let piece = piece.max(1);
        let pieces = count.div_ceil(piece).max(1);
        let of = |count| schedule(&collective.on_piece(count), algorithm, topology, rank);
        Ok(Self {
            algorithm,
            ranks: u32::try_from(topology.ranks()).expect("few ranks"),
            kernel,
            is_of_all: collective.is_of_all(),
            piece,
            pieces: u32::try_from(pieces).expect("fewer pieces than 2^32"),
            whole: if pieces > 1 { of(piece)? } else { Schedule::default() },
            last: of(count - (pieces - 1) * piece)?,
        })
    }

    /// Plans the part of this rank in a schedule of two ranks of so many, whose elements are bytes.
    pub(super) fn of_two(schedule: Schedule, ranks: usize) -> Self {
        Self {
            algorithm: Algorithm::Direct,
            ranks: u32::try_from(ranks).expect("few ranks"),
            kernel: Kernel::copying(None),
            is_of_all: false,
            piece: 1,
            pieces: 1,
            whole: Schedule::default(),
            last: schedule,
        }
    }

    pub(super) fn pieces(&self) -> u32 {
        self.pieces
    }

    pub(super) fn schedule(&self, piece: u32) -> &Schedule {
        if piece + 1 == self.pieces { &self.last } else { &self.whole }
    }

    /// Bytes of scratch memory for all pieces that are under way.
    pub(crate) fn scratch_bytes(&self) -> usize {
        self.active() * self.scratch_stride()
    }

    /// Bytes of memory for partial reductions of all pieces that are under way.
    pub(crate) fn partial_bytes(&self) -> usize {
        self.active() * self.partial_stride()
    }

    /// Place in memory of a region of a piece's schedule.
    pub(super) fn span(&self, piece: u32, region: Region) -> Span {
        let slot = piece as usize % PIECES_ACTIVE;
        let size = self.kernel.size(region.buffer);
        let start = match region.buffer {
            Buffer::Input | Buffer::Output => piece as usize * self.piece * size,
            Buffer::Scratch => slot * self.scratch_stride(),
            Buffer::Partial => slot * self.partial_stride(),
        };
        Span { buffer: region.buffer, start: start + region.start * size, len: region.len * size }
    }

    /// Bytes of a message.
    pub(super) fn message_bytes(&self, transfer: &Transfer) -> usize {
        transfer.regions.iter().map(|region| region.len * self.kernel.size(region.buffer)).sum()
    }

    /// The consecutive bytes of a message from `offset` on; `None` at its end.
    pub(super) fn rest(&self, piece: u32, transfer: &Transfer, mut offset: usize) -> Option<Span> {
        for region in &transfer.regions {
            let span = self.span(piece, *region);
            if offset < span.len {
                return Some(Span { start: span.start + offset, len: span.len - offset, ..span });
            }
            offset -= span.len;
        }
        None
    }

    fn active(&self) -> usize {
        PIECES_ACTIVE.min(self.pieces as usize)
    }

    /// Bytes of scratch memory of a piece. Its elements are aligned in every slot.
    fn scratch_stride(&self) -> usize {
        stride(self.whole.scratch_len.max(self.last.scratch_len) * self.kernel.element)
    }

    fn partial_stride(&self) -> usize {
        stride(self.whole.partial_len.max(self.last.partial_len) * self.kernel.accumulator)
    }
}

/// Rounds up to a whole cache line.
fn stride(bytes: usize) -> usize {
    bytes.next_multiple_of(64)
}
