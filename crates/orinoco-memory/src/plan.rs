//! Memory plan: the areas of all models, lanes and streams, and their sums.
//!
//! For each domain, a plan lists the weights of each model by name, the scratch of each lane, the inputs and outputs of
//! each model by name, and the frames of each stream by name. Names are compared byte by byte. So equal needs give the
//! same plan, in whatever order they were given. The code that maps an area decides on its address.

use std::collections::BTreeMap;
use std::fmt;

use crate::area::{Area, AreaContent, Kind};
use crate::budget::Budget;
use crate::needs::{Domain, ModelNeeds, Needs, PAGE_BYTES, StreamNeeds};
use crate::table::{area_row, table, total_rows};

/// Planned memory of one model, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelBytes {
    /// Weights and other memory kept between runs, in whole pages.
    pub weights: u64,
    /// Part of its lane's scratch that it uses. Models of a lane use the same bytes, so these do not add up.
    pub scratch: u64,
    /// Inputs and outputs, in whole pages.
    pub io: u64,
}

/// Memory whose size is unknown before it is allocated, so that no plan can count it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uncounted {
    /// Name of the stream.
    pub name: String,
    /// Kind of memory, such as `decoder buffers`.
    pub what: String,
}

/// Sizes of all memory that a board allocates, as far as they are known in advance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Budget for which the plan was made.
    pub budget: Budget,
    /// Areas by domain in the order of [`Domain::ALL`], then by kind, then by lane or name. None is empty.
    pub areas: Vec<Area>,
    /// Memory in addition to the areas, by stream.
    pub uncounted: Vec<Uncounted>,
}

impl Plan {
    /// Makes the plan, whether or not it is within the budget.
    pub(crate) fn of(needs: &Needs, budget: Budget) -> Self {
        let areas = Domain::ALL.iter().flat_map(|domain| areas_in(*domain, needs));
        let uncounted = needs.streams().iter().flat_map(|stream| {
            let of_stream = |what: &String| Uncounted { name: stream.name.clone(), what: what.clone() };
            stream.uncounted.iter().map(of_stream)
        });
        Self { budget, areas: areas.filter(|area| area.bytes > 0).collect(), uncounted: uncounted.collect() }
    }

    /// Returns the planned bytes, by the parts of the budget.
    pub fn spent(&self) -> Budget {
        self.budget.sum(self.areas.iter().map(|area| (area.domain, area.bytes)))
    }

    /// Returns the bytes of all domains.
    pub fn bytes(&self) -> u64 {
        self.areas.iter().map(|area| area.bytes).sum()
    }

    /// Returns the bytes of one domain.
    pub fn domain_bytes(&self, domain: Domain) -> u64 {
        self.areas.iter().filter(|area| area.domain == domain).map(|area| area.bytes).sum()
    }

    /// Returns the bytes of one kind; all kinds together are [`Plan::bytes`].
    pub fn kind_bytes(&self, kind: Kind) -> u64 {
        self.areas.iter().filter(|area| area.kind == kind).map(|area| area.bytes).sum()
    }

    /// Returns the planned memory of each model, by name.
    pub fn models(&self) -> BTreeMap<&str, ModelBytes> {
        let mut models = BTreeMap::<&str, ModelBytes>::new();
        for area in &self.areas {
            match area.kind {
                Kind::Weights => models.entry(&area.name).or_default().weights += area.bytes,
                Kind::Io => models.entry(&area.name).or_default().io += area.bytes,
                Kind::Scratch => {
                    for share in &area.shares {
                        models.entry(&share.name).or_default().scratch += share.bytes;
                    }
                }
                Kind::Frames => {}
            }
        }
        models
    }

    /// Returns the bytes of each lane's scratch in `domain`, without lanes that have none there.
    pub fn lanes(&self, domain: Domain) -> BTreeMap<usize, u64> {
        let in_domain = self.areas.iter().filter(|area| area.domain == domain);
        in_domain.filter_map(|area| Some((area.lane?, area.bytes))).collect()
    }
}

/// Iterates over the areas of one domain, including empty ones.
fn areas_in(domain: Domain, needs: &Needs) -> impl Iterator<Item = Area> {
    let weights = needs.models().iter().map(move |model| weights(domain, model));
    let scratches = (0..needs.lanes()).map(move |lane| scratch(domain, lane, needs));
    let with_io = needs.models().iter().filter(move |model| model.io_domain == domain);
    let with_frames = needs.streams().iter().filter(move |stream| stream.domain == domain);
    weights.chain(scratches).chain(with_io.map(inputs_and_outputs)).chain(with_frames.map(frames))
}

fn weights(domain: Domain, model: &ModelNeeds) -> Area {
    let share = AreaContent { name: model.name.clone(), bytes: model.weights_bytes(domain) };
    area(Kind::Weights, domain, &model.name, of_engine(model), vec![share])
}

/// Makes the scratch area that the models of a lane share. It is as large as the largest of them needs, because a lane
/// executes one at a time.
fn scratch(domain: Domain, lane: usize, needs: &Needs) -> Area {
    let on_lane = needs.models().iter().filter(|model| model.lane == lane && model.domain == domain);
    let shares =
        on_lane.map(|model| AreaContent { name: model.name.clone(), bytes: model.scratch.at(model.batch) });
    let shares: Vec<AreaContent> = shares.filter(|share| share.bytes > 0).collect();
    let largest = shares.iter().map(|share| share.bytes).max().unwrap_or(0);
    Area {
        name: format!("lane {lane}"),
        kind: Kind::Scratch,
        domain,
        lane: Some(lane),
        revision: String::new(),
        bytes: largest.next_multiple_of(PAGE_BYTES),
        shares,
    }
}

fn inputs_and_outputs(model: &ModelNeeds) -> Area {
    let shares = model.tensors.iter().map(|tensor| AreaContent {
        name: format!("{}/{}", model.name, tensor.name),
        bytes: tensor.bytes.at(model.batch),
    });
    area(Kind::Io, model.io_domain, &model.name, of_engine(model), shares.collect())
}

fn frames(stream: &StreamNeeds) -> Area {
    let slots = AreaContent { name: stream.name.clone(), bytes: stream.slots_bytes() };
    let driver = AreaContent { name: format!("{}/driver", stream.name), bytes: stream.driver_bytes };
    area(Kind::Frames, stream.domain, &stream.name, stream.revision.clone(), vec![slots, driver])
}

/// Returns the revision of a model's areas. It includes the engine, because another engine has its own memory for the
/// same model.
fn of_engine(model: &ModelNeeds) -> String {
    format!("{} on {}", model.revision, model.engine)
}

/// Makes an area that is the sum of its shares. A share without bytes is left out.
fn area(kind: Kind, domain: Domain, name: &str, revision: String, mut shares: Vec<AreaContent>) -> Area {
    shares.retain(|share| share.bytes > 0);
    let bytes = shares.iter().map(AreaContent::counted_bytes).sum::<u64>().next_multiple_of(PAGE_BYTES);
    Area { name: name.to_owned(), kind, domain, lane: None, revision, bytes, shares }
}

impl Plan {
    /// Returns the areas and the uncounted memory as rows of a table with the column `BASIS`.
    pub(crate) fn rows(&self) -> impl Iterator<Item = Vec<String>> {
        let areas = self.areas.iter().map(|area| {
            let mut row = area_row(area);
            row.push(area.kind.basis().name().to_owned());
            row
        });
        let uncounted = self.uncounted.iter().map(|Uncounted { name, what }| {
            let unknown = || "-".to_owned();
            let kind = Kind::Frames.name().to_owned();
            vec![name.clone(), kind, unknown(), unknown(), unknown(), format!("not counted: {what}")]
        });
        areas.chain(uncounted)
    }
}

/// Heading of the last column of [`Plan::rows`].
pub(crate) const BASIS: &str = "BASIS";

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let totals = [("total", self.spent()), ("budget", self.budget)];
        let totals = totals.into_iter().flat_map(|(what, budget)| total_rows(what, budget));
        f.write_str(&table(BASIS, self.rows().chain(totals)))
    }
}

#[cfg(test)]
mod tests;
