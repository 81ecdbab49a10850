use super::Curve;

/// Costs of messages from one rank to another.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkCosts {
    /// Seconds from the start of a send to the end of its receive, by bytes: half of a ping-pong.
    pub latency: Curve,
    /// Seconds for which a message keeps a port busy, by bytes: the time of each in a stream of messages.
    pub occupancy: Curve,
    /// Seconds for which a message keeps the processor of its sender busy, by bytes.
    pub send: Curve,
    /// Seconds for which a message keeps the processor of its receiver busy, by bytes.
    pub receive: Curve,
}

impl LinkCosts {
    /// Creates costs of a link from a latency in seconds and a bandwidth in bytes per second. A message keeps the port busy for
    /// its bytes and a tenth of the latency, and no processor.
    pub fn linear(latency: f64, bytes_per_second: f64) -> Self {
        Self {
            latency: Curve::line(latency, bytes_per_second.recip()),
            occupancy: Curve::line(latency / 10.0, bytes_per_second.recip()),
            send: Curve::line(0.0, 0.0),
            receive: Curve::line(0.0, 0.0),
        }
    }
}

/// Costs of the links of a group.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "a group has one")]
pub enum Links {
    /// Those between boards are alike, and so are those within a board.
    OfBoards {
        /// Links between ranks on different boards.
        between: LinkCosts,
        /// Links between ranks of one board.
        within: LinkCosts,
    },
    /// Each has costs of its own, by sender and receiver.
    OfRanks(Vec<Vec<LinkCosts>>),
}

/// Processor cores that ranks share.
#[derive(Debug, Clone, PartialEq)]
pub struct Cores {
    /// Machine of each rank.
    pub machines: Vec<usize>,
    /// Cores of each machine.
    pub cores: Vec<usize>,
    /// Seconds for which a rank that waits for one message keeps its core before it gives way to others. For several messages it
    /// looks in several places, and keeps it as many times longer.
    pub spin: f64,
}

/// Costs of all that an operation does.
#[derive(Debug, Clone, PartialEq)]
pub struct Costs {
    /// Links.
    pub links: Links,
    /// Seconds to reduce two vectors, by the bytes of one.
    pub reduce: Curve,
    /// Seconds to copy, by bytes.
    pub copy: Curve,
    /// Cores that ranks share; `None` if each rank has a core of its own.
    pub cores: Option<Cores>,
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
