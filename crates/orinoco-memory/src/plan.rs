//! Where everything lies, and what it adds up to.
//!
//! A domain holds areas one after another: the weights of each model by name, the scratch of each lane, the inputs and
//! outputs of each model by name, the ring of each stream by name. Names are compared byte by byte. So equal needs give
//! the same plan in whatever order they came.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use orinoco_core::text::mebibytes;

use crate::needs::{Domain, ModelNeeds, Needs, PAGE_BYTES};
use crate::refused::{Refused, area_row, table, total_rows};

/// What a board may spend on its models and streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// Host and device are one DRAM, as on every Jetson.
    Shared(u64),
    /// A discrete GPU has its own. Pinned memory is the host's.
    Separate {
        /// Bytes of host and pinned memory.
        host: u64,
        /// Bytes of GPU memory.
        device: u64,
    },
}

impl Budget {
    /// Names and bytes of its parts.
    pub fn parts(self) -> Vec<(&'static str, u64)> {
        match self {
            Self::Shared(bytes) => vec![("board", bytes)],
            Self::Separate { host, device } => vec![("host", host), ("device", device)],
        }
    }

    /// Whether `spent` is within it.
    pub fn covers(self, spent: Self) -> bool {
        self.excess(spent).parts().iter().all(|(_, bytes)| *bytes == 0)
    }

    /// What `spent` has too much, by part.
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

/// What memory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// What an engine keeps between runs.
    Weights,
    /// Activations of whichever model of the lane replays.
    Scratch,
    /// Bound inputs and outputs.
    Io,
    /// A stream's ring.
    Frames,
}

impl Kind {
    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Weights => "weights",
            Self::Scratch => "scratch",
            Self::Io => "inputs, outputs",
            Self::Frames => "frames",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// When the bytes of a range are somebody's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Live {
    /// As long as the plan stands.
    Always,
    /// While the lane replays the model. A lane replays one model at a time.
    Replay {
        /// The lane.
        lane: usize,
        /// The model.
        model: String,
    },
}

impl Live {
    /// Whether both may be live at one moment.
    fn meets(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Replay { lane, model }, Self::Replay { lane: other_lane, model: other_model }) => {
                lane != other_lane || model == other_model
            }
            _ => true,
        }
    }
}

/// A range of an area: a model's weights, its share of the lane's scratch, one tensor, one ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The model or stream, and for a tensor its name: `yolox/images`.
    pub name: String,
    /// Bytes from the domain's start.
    pub offset: u64,
    /// Its length.
    pub bytes: u64,
    /// What `offset` is a multiple of.
    pub align: u64,
    /// When it is in use.
    pub live: Live,
}

impl Span {
    fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.bytes
    }
}

/// Whole pages for one purpose: what becomes one mapping, or one [`Arena`](crate::Arena).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Area {
    /// The model, the lane (`lane 0`) or the stream.
    pub name: String,
    /// What it is for.
    pub kind: Kind,
    /// Bytes from the domain's start.
    pub offset: u64,
    /// Its length.
    pub bytes: u64,
    /// What lies in it.
    pub spans: Vec<Span>,
}

impl Area {
    fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.bytes
    }
}

/// The plan of one domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Whose memory it is.
    pub domain: Domain,
    /// One after another, without gaps.
    pub areas: Vec<Area>,
    /// Where the last area ends.
    pub bytes: u64,
}

/// What one model takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelBytes {
    /// Kept between runs, in whole pages.
    pub weights: u64,
    /// What it uses of its lane's scratch. Models of a lane use the same bytes, so these do not add up.
    pub scratch: u64,
    /// Inputs and outputs, in whole pages.
    pub io: u64,
}

/// Where everything lies. Its proof is [`Plan::check`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What it was planned for.
    pub budget: Budget,
    /// The domains that hold anything, in the order of [`Domain::ALL`].
    pub parts: Vec<Part>,
}

/// Lays out the needs, or says what does not fit and what would. Pure: equal needs give equal plans.
pub fn plan(needs: &Needs, budget: Budget) -> Result<Plan, Box<Refused>> {
    let plan = Plan::lay_out(needs, budget);
    debug_assert_eq!(plan.check(), Ok(()), "the planner broke its own rules");
    if budget.covers(plan.spent()) { Ok(plan) } else { Err(Box::new(Refused::new(needs, plan))) }
}

impl Plan {
    /// The plan, whether or not it is within the budget.
    pub(crate) fn lay_out(needs: &Needs, budget: Budget) -> Self {
        let parts = Domain::ALL.iter().map(|domain| Part::lay_out(needs, *domain));
        Self { budget, parts: parts.filter(|part| part.bytes > 0).collect() }
    }

    /// What it takes, by the parts of its budget.
    pub fn spent(&self) -> Budget {
        let device = self.domain_bytes(Domain::Device);
        let host = self.domain_bytes(Domain::Host) + self.domain_bytes(Domain::Pinned);
        match self.budget {
            Budget::Shared(_) => Budget::Shared(host + device),
            Budget::Separate { .. } => Budget::Separate { host, device },
        }
    }

    /// Bytes of all domains.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes).sum()
    }

    /// Bytes of one domain.
    pub fn domain_bytes(&self, domain: Domain) -> u64 {
        self.parts.iter().find(|part| part.domain == domain).map_or(0, |part| part.bytes)
    }

    /// Bytes of one kind; all kinds together are [`Plan::bytes`].
    pub fn kind_bytes(&self, kind: Kind) -> u64 {
        self.areas().filter(|(_, area)| area.kind == kind).map(|(_, area)| area.bytes).sum()
    }

    /// What each model takes, by name.
    pub fn models(&self) -> BTreeMap<&str, ModelBytes> {
        let mut models = BTreeMap::<&str, ModelBytes>::new();
        for (_, area) in self.areas() {
            match area.kind {
                Kind::Weights => models.entry(&area.name).or_default().weights += area.bytes,
                Kind::Io => models.entry(&area.name).or_default().io += area.bytes,
                Kind::Scratch => {
                    for span in &area.spans {
                        models.entry(&span.name).or_default().scratch += span.bytes;
                    }
                }
                Kind::Frames => {}
            }
        }
        models
    }

    /// Bytes of each lane's scratch in `domain`. A lane that needs none there is left out.
    pub fn lanes(&self, domain: Domain) -> BTreeMap<usize, u64> {
        let mut lanes = BTreeMap::new();
        let of_lanes = |(theirs, area): &(Domain, &Area)| *theirs == domain && area.kind == Kind::Scratch;
        for (_, area) in self.areas().filter(of_lanes) {
            if let Some(Live::Replay { lane, .. }) = area.spans.first().map(|span| &span.live) {
                *lanes.entry(*lane).or_default() += area.bytes;
            }
        }
        lanes
    }

    /// Every area with its domain.
    pub fn areas(&self) -> impl Iterator<Item = (Domain, &Area)> {
        self.parts.iter().flat_map(|part| part.areas.iter().map(|area| (part.domain, area)))
    }

    /// Proves the plan: areas are whole pages, follow one another and fill the domain; spans lie inside their area, on
    /// their alignment; and no two spans that may be live at one moment share a byte.
    pub fn check(&self) -> Result<(), Fault> {
        self.parts.iter().try_for_each(Part::check)
    }
}

/// Why a plan is wrong: a bug in whoever made it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// An area leaves a gap, overlaps its neighbour, or is not made of whole pages.
    #[error("area `{0}` does not start where the one before it ends, or is not made of whole pages")]
    Area(String),
    /// The domain's length is not where its last area ends.
    #[error("the {0} domain does not end where its last area ends")]
    Total(Domain),
    /// A span reaches out of its area.
    #[error("`{0}` reaches out of its area")]
    Outside(String),
    /// A span is off its alignment.
    #[error("`{0}` is off its alignment")]
    Align(String),
    /// Two spans share bytes while both are live.
    #[error("`{0}` and `{1}` share bytes and may be live at one moment")]
    Overlap(String, String),
}

impl Part {
    fn lay_out(needs: &Needs, domain: Domain) -> Self {
        let mut part = Self { domain, areas: Vec::new(), bytes: 0 };
        for model in needs.models() {
            let bytes = model.weights_bytes(domain);
            let weights = Item { name: model.name.clone(), bytes, align: model.align };
            part.push(Kind::Weights, &model.name, in_a_row(vec![weights]));
        }
        for lane in 0..needs.lanes() {
            let sharing = needs.models().iter().filter(|model| model.lane == lane && model.domain == domain);
            part.push(Kind::Scratch, &format!("lane {lane}"), sharing.filter_map(scratch).collect());
        }
        for model in needs.models().iter().filter(|model| model.io_domain == domain) {
            let tensors = model.tensors.iter().map(|tensor| Item {
                name: format!("{}/{}", model.name, tensor.name),
                bytes: tensor.bytes.at(model.batch),
                align: model.align,
            });
            part.push(Kind::Io, &model.name, in_a_row(tensors.collect()));
        }
        for stream in needs.streams().iter().filter(|stream| stream.domain == domain) {
            let bytes = stream.stride() * u64::from(stream.frames_max);
            let ring = Item { name: stream.name.clone(), bytes, align: stream.align };
            part.push(Kind::Frames, &stream.name, in_a_row(vec![ring]));
        }
        part
    }

    /// Adds an area for spans whose offsets count from its start. An area without bytes is left out.
    fn push(&mut self, kind: Kind, name: &str, mut spans: Vec<Span>) {
        let bytes = spans.iter().map(|span| span.range().end).max().unwrap_or(0).next_multiple_of(PAGE_BYTES);
        if bytes == 0 {
            return;
        }
        let offset = self.bytes;
        spans.iter_mut().for_each(|span| span.offset += offset);
        self.areas.push(Area { name: name.to_owned(), kind, offset, bytes, spans });
        self.bytes += bytes;
    }

    fn check(&self) -> Result<(), Fault> {
        let mut end = 0;
        for area in &self.areas {
            if area.offset != end
                || !area.offset.is_multiple_of(PAGE_BYTES)
                || !area.bytes.is_multiple_of(PAGE_BYTES)
            {
                return Err(Fault::Area(area.name.clone()));
            }
            area.check()?;
            end = area.range().end;
        }
        // Areas do not overlap and spans stay inside theirs, so spans of different areas cannot meet.
        if end == self.bytes { Ok(()) } else { Err(Fault::Total(self.domain)) }
    }
}

impl Area {
    fn check(&self) -> Result<(), Fault> {
        for (index, span) in self.spans.iter().enumerate() {
            let (ours, area) = (span.range(), self.range());
            if ours.start < area.start || ours.end > area.end {
                return Err(Fault::Outside(span.name.clone()));
            }
            if !span.offset.is_multiple_of(span.align) {
                return Err(Fault::Align(span.name.clone()));
            }
            let met = self.spans[index + 1..].iter().filter(|other| span.live.meets(&other.live));
            for other in met {
                let theirs = other.range();
                if ours.start < theirs.end && theirs.start < ours.end {
                    return Err(Fault::Overlap(span.name.clone(), other.name.clone()));
                }
            }
        }
        Ok(())
    }
}

/// Something that is live always, before it has a place.
struct Item {
    name: String,
    bytes: u64,
    align: u64,
}

/// Spans one after another from 0, each on its alignment. An item without bytes is left out.
fn in_a_row(items: Vec<Item>) -> Vec<Span> {
    let mut end = 0_u64;
    let place = |Item { name, bytes, align }| {
        let offset = end.next_multiple_of(align);
        end = offset + bytes;
        Span { name, offset, bytes, align, live: Live::Always }
    };
    items.into_iter().filter(|item| item.bytes > 0).map(place).collect()
}

/// A model's span of its lane's scratch: all models of the lane start where the area does.
fn scratch(model: &ModelNeeds) -> Option<Span> {
    let live = Live::Replay { lane: model.lane, model: model.name.clone() };
    let bytes = model.scratch.at(model.batch);
    (bytes > 0).then(|| Span { name: model.name.clone(), offset: 0, bytes, align: model.align, live })
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = |(domain, area): (Domain, &Area)| {
            let mut row = area_row(domain, area);
            row.push(area.offset.to_string());
            row
        };
        let totals = [("total", self.spent()), ("budget", self.budget)];
        let totals = totals.into_iter().flat_map(|(what, budget)| total_rows(what, budget));
        let rows = self.areas().map(row).chain(totals);
        f.write_str(&table(&["NAME", "KIND", "DOMAIN", "MIB", "BYTES", "OFFSET"], rows))
    }
}

#[cfg(test)]
mod tests;
