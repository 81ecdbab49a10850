//! Memory budget of a board.

use std::fmt;

use orinoco_core::text::mebibytes;

use crate::needs::Domain;

/// Memory that a board may use for its models and streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// One budget: host and device share one DRAM, as on every Jetson.
    Shared(u64),
    /// Separate budgets of a discrete GPU and its host. Pinned memory counts for the host.
    Separate {
        /// Bytes of host and pinned memory.
        host: u64,
        /// Bytes of GPU memory.
        device: u64,
    },
}

impl Budget {
    /// Returns names and bytes of its parts.
    pub fn parts(self) -> Vec<(&'static str, u64)> {
        match self {
            Self::Shared(bytes) => vec![("board", bytes)],
            Self::Separate { host, device } => vec![("host", host), ("device", device)],
        }
    }

    /// Whether `spent` fits into it.
    pub fn covers(self, spent: Self) -> bool {
        self.excess(spent).parts().iter().all(|(_, bytes)| *bytes == 0)
    }

    /// Returns the bytes of `spent` over budget, by part.
    pub fn excess(self, spent: Self) -> Self {
        match (self, spent) {
            (Self::Shared(budget), Self::Shared(spent)) => Self::Shared(spent.saturating_sub(budget)),
            (Self::Separate { host, device }, Self::Separate { host: on_host, device: on_device }) => {
                Self::Separate {
                    host: on_host.saturating_sub(host),
                    device: on_device.saturating_sub(device),
                }
            }
            (budget, spent) => {
                panic!("a budget {budget:?} is compared with {spent:?}, which is of the other kind")
            }
        }
    }

    /// Sums up bytes by the parts of this budget. A sum beyond 64 bits becomes the largest number, which exceeds any
    /// budget.
    pub(crate) fn sum(self, bytes: impl Iterator<Item = (Domain, u64)>) -> Self {
        let (mut on_host, mut on_device) = (0_u64, 0_u64);
        for (domain, bytes) in bytes {
            let part = match domain {
                Domain::Host | Domain::Pinned => &mut on_host,
                Domain::Device => &mut on_device,
            };
            *part = part.saturating_add(bytes);
        }
        match self {
            Self::Shared(_) => Self::Shared(on_host.saturating_add(on_device)),
            Self::Separate { .. } => Self::Separate { host: on_host, device: on_device },
        }
    }

    /// Formats the bytes over budget, by part: `8.1 MiB over budget (board)`.
    pub(crate) fn excess_text(self, spent: Self) -> String {
        let parts = self.excess(spent).parts().into_iter().filter(|(_, bytes)| *bytes > 0);
        let parts: Vec<String> =
            parts.map(|(part, bytes)| format!("{} over budget ({part})", mebibytes(bytes))).collect();
        parts.join(", ")
    }

    /// Formats its parts in whole MiB, rounded up, as in a board file: `13 MiB (host), 90 MiB (device)`.
    pub(crate) fn whole_mebibytes(self) -> String {
        let parts = self.parts().into_iter();
        let parts: Vec<String> =
            parts.map(|(part, bytes)| format!("{} MiB ({part})", bytes.div_ceil(1 << 20))).collect();
        parts.join(", ")
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shared(bytes) => f.write_str(&mebibytes(*bytes)),
            Self::Separate { host, device } => {
                write!(f, "{} on the host and {} on the device", mebibytes(*host), mebibytes(*device))
            }
        }
    }
}
