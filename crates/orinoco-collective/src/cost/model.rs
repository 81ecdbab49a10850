use super::Curve;

/// Costs of messages between two ranks.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkCosts {
    /// Seconds from the start of a send to the end of its receive, by bytes: half of a ping-pong.
    pub latency: Curve,
    /// Seconds for which a message keeps a port busy, by bytes: the time of each in a stream of messages.
    pub occupancy: Curve,
}

impl LinkCosts {
    /// Creates costs of a link from a latency in seconds and a bandwidth in bytes per second. A message keeps the port busy for
    /// its bytes and a tenth of the latency.
    pub fn linear(latency: f64, bytes_per_second: f64) -> Self {
        Self {
            latency: Curve::line(latency, bytes_per_second.recip()),
            occupancy: Curve::line(latency / 10.0, bytes_per_second.recip()),
        }
    }
}

/// Costs of all that an operation does.
#[derive(Debug, Clone, PartialEq)]
pub struct Costs {
    /// Links between ranks on different boards.
    pub between_boards: LinkCosts,
    /// Links between ranks of one board.
    pub on_board: LinkCosts,
    /// Seconds to reduce two vectors, by the bytes of one.
    pub reduce: Curve,
    /// Seconds to copy, by bytes.
    pub copy: Curve,
}

/// Sizes of the values of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Bytes of an element.
    pub element: usize,
    /// Bytes of an accumulator.
    pub accumulator: usize,
    /// Most elements of a piece of the vector. Pieces are independent operations that overlap. Applies to operations on one
    /// vector: broadcast, reduce and all-reduce.
    pub piece: usize,
}

/// A price.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Price {
    /// Seconds until the last rank has finished, if all begin at once.
    pub seconds: f64,
    /// Messages of all ranks.
    pub messages: usize,
}
