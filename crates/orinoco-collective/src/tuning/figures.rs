use std::fmt::{self, Write as _};
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

use crate::cost::{Cores, Costs, Curve, LinkCosts, Links};
use crate::{DataType, Topology};

/// Bytes of the messages that are measured.
pub(crate) const MESSAGE_BYTES: [usize; 7] = [8, 512, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// Bytes of the vectors whose reduction and copy are measured.
pub(crate) const REDUCE_BYTES: [usize; 4] = [64, 4 << 10, 64 << 10, 512 << 10];
/// Data types whose sum is measured: accumulators of 1, 4 and 8 bytes, and elements that are widened first.
pub(crate) const REDUCED_TYPES: [DataType; 4] = [DataType::I8, DataType::F32, DataType::F64, DataType::F16];
/// Largest time of a figure, in nanoseconds: 10 s.
const NANOS_MAX: u64 = 10_000_000_000;
/// First line of the text form, before the number of ranks.
const TITLE: &str = "orinoco-figures 1";
/// Most ranks of figures that come as text.
const RANKS_MAX: usize = 64;

/// Measured costs of a group's links, reductions and copies. All ranks of a group hold equal ones.
///
/// As text (`to_string`, and `parse` for the way back) they can be kept, and given to a later group of the same ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Figures {
    ranks: Vec<RankFigures>,
    /// By sender and receiver. Those from a rank to itself are zero.
    links: Vec<Vec<LinkFigures>>,
}

/// Text that holds no figures.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {line} of the figures: {why}; measure again, and store the new figures")]
pub struct FiguresError {
    /// Line, from 1.
    pub line: usize,
    /// Reason.
    pub why: String,
}

/// The largest change of a link's latency since the group's figures were measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Drift {
    /// The two ranks of the link.
    pub link: (usize, usize),
    /// Bytes of the message.
    pub bytes: usize,
    /// Latency in the figures.
    pub before: Duration,
    /// Latency now.
    pub now: Duration,
}

impl Drift {
    /// The longer of the two latencies divided by the shorter one: 1 if nothing has changed.
    pub fn factor(&self) -> f64 {
        let (before, now) = (self.before.as_secs_f64().max(1e-9), self.now.as_secs_f64().max(1e-9));
        (before / now).max(now / before)
    }
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (one, other) = self.link;
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        let (bytes, before, now) = (self.bytes, micros(self.before), micros(self.now));
        write!(f, "ranks {one} and {other}: {bytes} bytes took {before:.1} us, and take {now:.1} us now")
    }
}

/// Figures of one rank, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RankFigures {
    /// Machine on which it runs; equal for ranks that share its cores.
    pub(crate) machine: u64,
    /// Cores on which it may run, a bit for each of the first 64.
    pub(crate) cores: u64,
    /// Time for which a rank that waits for a message keeps its core.
    pub(crate) spin: u64,
    /// Time to copy [`REDUCE_BYTES`].
    pub(crate) copy: [u64; REDUCE_BYTES.len()],
    /// Time to reduce two vectors of [`REDUCE_BYTES`], for each of [`REDUCED_TYPES`].
    pub(crate) reduce: [[u64; REDUCE_BYTES.len()]; REDUCED_TYPES.len()],
}

/// Figures of messages from one rank to another, for each of [`MESSAGE_BYTES`], in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LinkFigures {
    /// Half of a ping-pong.
    pub(crate) latency: [u64; MESSAGE_BYTES.len()],
    /// Time of each message in a stream.
    pub(crate) stream: [u64; MESSAGE_BYTES.len()],
    /// Time for which a message keeps its sender's thread busy.
    pub(crate) send: [u64; MESSAGE_BYTES.len()],
    /// Time for which a message keeps its receiver's thread busy.
    pub(crate) receive: [u64; MESSAGE_BYTES.len()],
}

/// Names of a link's curves in the text form, in the order of [`LinkFigures::curves`].
const LINK_CURVES: [&str; 4] = ["latency", "stream", "send", "receive"];

impl RankFigures {
    /// Numbers of a rank.
    pub(crate) const WORDS: usize = 3 + REDUCE_BYTES.len() * (1 + REDUCED_TYPES.len());

    fn fields(&mut self) -> impl Iterator<Item = &mut u64> {
        let Self { machine, cores, spin, copy, reduce } = self;
        [machine, cores, spin].into_iter().chain(copy).chain(reduce.iter_mut().flatten())
    }

    /// The rank with these numbers, which may come from anywhere: those that cannot be are brought into bounds.
    fn from_words(words: &[u64]) -> Self {
        let mut rank = Self::default();
        rank.fields().zip(words).for_each(|(field, word)| *field = *word);
        rank.cores = rank.cores.max(1);
        let reduce = rank.reduce.iter_mut().flatten();
        rank.copy.iter_mut().chain(reduce).chain([&mut rank.spin]).for_each(bound);
        rank
    }
}

impl LinkFigures {
    /// Numbers of a link.
    pub(crate) const WORDS: usize = MESSAGE_BYTES.len() * LINK_CURVES.len();

    fn curves(&mut self) -> [&mut [u64; MESSAGE_BYTES.len()]; 4] {
        [&mut self.latency, &mut self.stream, &mut self.send, &mut self.receive]
    }

    /// The link with these numbers, which may come from anywhere: those that cannot be are brought into bounds.
    fn from_words(words: &[u64]) -> Self {
        let mut link = Self::default();
        for (field, word) in link.curves().into_iter().flatten().zip(words) {
            *field = *word;
            bound(field);
        }
        link
    }

    fn to_costs(self) -> LinkCosts {
        let curve = |nanos: [u64; MESSAGE_BYTES.len()]| curve(&MESSAGE_BYTES, &nanos);
        LinkCosts {
            latency: curve(self.latency),
            occupancy: curve(self.stream),
            send: curve(self.send),
            receive: curve(self.receive),
        }
    }
}

impl Figures {
    /// Numbers of one rank's figures, and of its links to all ranks.
    pub(crate) fn row(mut rank: RankFigures, links: &[LinkFigures]) -> Vec<u64> {
        let mut words: Vec<u64> = rank.fields().map(|field| *field).collect();
        words.extend(links.iter().copied().flat_map(|mut link| link.curves().map(|curve| *curve)).flatten());
        words
    }

    /// Numbers of the figures of so many ranks.
    pub(crate) fn words_of(ranks: usize) -> usize {
        ranks * (RankFigures::WORDS + ranks * LinkFigures::WORDS)
    }

    /// The figures with these numbers, which may come from anywhere: for each rank its own, then its links to all ranks. Numbers that
    /// cannot be are brought into bounds: figures lead to choices, and never to wrong results.
    ///
    /// # Panics
    /// If there are not [`Figures::words_of`] numbers.
    pub(crate) fn from_words(ranks: usize, words: &[u64]) -> Self {
        assert_eq!(words.len(), Self::words_of(ranks), "numbers of {ranks} ranks");
        let rows = || words.chunks(words.len() / ranks);
        let links = |row: &[u64]| {
            row[RankFigures::WORDS..].chunks(LinkFigures::WORDS).map(LinkFigures::from_words).collect()
        };
        Self {
            ranks: rows().map(|row| RankFigures::from_words(&row[..RankFigures::WORDS])).collect(),
            links: rows().map(links).collect(),
        }
    }

    pub(crate) fn to_words(&self) -> Vec<u64> {
        self.ranks.iter().zip(&self.links).flat_map(|(rank, links)| Self::row(*rank, links)).collect()
    }

    /// Fills in the links that were not measured, where all figures are zero: a link costs what the other direction does, and else
    /// what the fastest links of its two ranks cost, of the slower of them.
    pub(crate) fn complete(mut self) -> Self {
        let ranks = self.ranks();
        let is_measured = |link: &LinkFigures| link.latency[0] > 0;
        for (from, to) in pairs(ranks) {
            match (is_measured(&self.links[from][to]), is_measured(&self.links[to][from])) {
                (true, false) => self.links[to][from] = self.links[from][to],
                (false, true) => self.links[from][to] = self.links[to][from],
                _ => {}
            }
        }
        let time = |link: &LinkFigures| link.latency.iter().sum::<u64>();
        let fastest: Vec<Option<LinkFigures>> = (self.links.iter())
            .map(|links| links.iter().filter(|link| is_measured(link)).min_by_key(|link| time(link)).copied())
            .collect();
        for (from, to) in pairs(ranks) {
            let slower = fastest[from].into_iter().chain(fastest[to]).max_by_key(time);
            if let Some(slower) = slower.filter(|_| !is_measured(&self.links[from][to])) {
                (self.links[from][to], self.links[to][from]) = (slower, slower);
            }
        }
        self
    }

    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.ranks.len()
    }

    /// Time from the start of a send of so many bytes to the end of its receive, half of a ping-pong.
    ///
    /// # Panics
    /// If there is no such link.
    pub fn latency(&self, from: usize, to: usize, bytes: usize) -> Duration {
        let curve = curve(&MESSAGE_BYTES, &self.link(from, to).latency);
        Duration::from_secs_f64(curve.at(bytes))
    }

    /// Rate of a stream of long messages, in bytes per second.
    ///
    /// # Panics
    /// If there is no such link.
    pub fn bandwidth(&self, from: usize, to: usize) -> f64 {
        let link = self.link(from, to);
        let rate = |(bytes, nanos): (&usize, &u64)| *bytes as f64 * 1e9 / (*nanos).max(1) as f64;
        MESSAGE_BYTES.iter().zip(&link.stream).map(rate).fold(0.0, f64::max)
    }

    fn link(&self, from: usize, to: usize) -> &LinkFigures {
        assert!(from != to, "rank {from} has no link to itself");
        &self.links[from][to]
    }

    /// Costs of operations that reduce one of [`REDUCED_TYPES`], or of those that reduce nothing. The slowest rank's reductions and
    /// copies count for all.
    pub(crate) fn costs(&self, reduced: usize) -> Costs {
        let slowest = |of: &dyn Fn(&RankFigures) -> [u64; REDUCE_BYTES.len()]| {
            let mut most = [0; REDUCE_BYTES.len()];
            for rank in &self.ranks {
                most.iter_mut().zip(of(rank)).for_each(|(most, nanos)| *most = nanos.max(*most));
            }
            curve(&REDUCE_BYTES, &most)
        };
        let links = self.links.iter().map(|links| links.iter().map(|link| link.to_costs()).collect());
        Costs {
            links: Links::OfRanks(links.collect()),
            reduce: slowest(&|rank| rank.reduce[reduced]),
            copy: slowest(&|rank| rank.copy),
            cores: self.cores(),
        }
    }

    /// Figures of machines with so many ranks each. Links within a machine take 5 us and have 4 GB/s, those between machines 200 us and
    /// 100 MB/s, and keep a processor busy for 1 us and 5 us per message.
    #[cfg(test)]
    pub(crate) fn of_machines(machines: u64, ranks_of_each: u64) -> Self {
        let ranks = machines * ranks_of_each;
        let mut words = Vec::new();
        for rank in 0..ranks {
            let machine = rank / ranks_of_each;
            words.extend([machine, 1 << (rank % ranks_of_each), 0]);
            words.extend([100; 4 * (1 + REDUCED_TYPES.len())]);
            for other in 0..ranks {
                let is_within = other / ranks_of_each == machine;
                let (latency, per_kib, work) =
                    if is_within { (5_000, 250, 1_000) } else { (200_000, 10_000, 5_000) };
                let curve = |start: u64| MESSAGE_BYTES.map(|bytes| start + bytes as u64 * per_kib / 1024);
                let busy = [work; MESSAGE_BYTES.len()];
                words.extend([curve(latency), curve(work), busy, busy].concat());
            }
        }
        Self::from_words(usize::try_from(ranks).expect("few ranks"), &words)
    }

    /// The ranks on their machines: a board for each machine. If all are on one machine, they share no link, and each counts as a board of
    /// its own.
    pub(crate) fn boards(&self) -> Topology {
        let machines = self.machines();
        match machines.iter().all(|machine| *machine == 0) {
            true => Topology::flat(machines.len()),
            false => Topology::of_boards(machines),
        }
    }

    /// The machine of each rank, numbered from 0 in the order of their first ranks.
    fn machines(&self) -> Vec<usize> {
        let mut names: Vec<u64> = Vec::new();
        let number = |rank: &RankFigures| {
            names.iter().position(|name| *name == rank.machine).unwrap_or_else(|| {
                names.push(rank.machine);
                names.len() - 1
            })
        };
        self.ranks.iter().map(number).collect()
    }

    /// The cores of each machine, if some have fewer than ranks.
    fn cores(&self) -> Option<Cores> {
        let machines = self.machines();
        let of_machines = 1 + machines.iter().copied().max().unwrap_or(0);
        let (mut cores, mut ranks) = (vec![0; of_machines], vec![0; of_machines]);
        for (rank, machine) in self.ranks.iter().zip(&machines) {
            cores[*machine] |= rank.cores;
            ranks[*machine] += 1;
        }
        let cores: Vec<usize> = cores.into_iter().map(|cores: u64| cores.count_ones() as usize).collect();
        let has_enough = cores.iter().zip(&ranks).all(|(cores, ranks)| cores >= ranks);
        let spin = self.ranks.iter().map(|rank| rank.spin).max().unwrap_or(0) as f64 * 1e-9;
        (!has_enough).then_some(Cores { machines, cores, spin })
    }
}

/// Every two ranks, the lower one first.
fn pairs(ranks: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..ranks).flat_map(move |one| (one + 1..ranks).map(move |other| (one, other)))
}

fn bound(nanos: &mut u64) {
    *nanos = (*nanos).min(NANOS_MAX);
}

/// Place among [`REDUCED_TYPES`] of the type whose reduction costs about as much as that of elements and accumulators of so many bytes.
pub(crate) fn reduced_kind(element: usize, accumulator: usize) -> usize {
    match (element, accumulator) {
        (1, 1) => 0,
        (4, 4) => 1,
        (4 | 8, _) => 2,
        _ => 3,
    }
}

/// A time as a figure.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).min(NANOS_MAX)
}

fn curve(bytes: &[usize], nanos: &[u64]) -> Curve {
    let points: Vec<(f64, f64)> =
        bytes.iter().zip(nanos).map(|(bytes, nanos)| (*bytes as f64, *nanos as f64 * 1e-9)).collect();
    Curve::through(&points)
}

/// Text form: a line for each rank, data type and link, of names and times in nanoseconds.
impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{TITLE} ranks {}", self.ranks())?;
        for (number, rank) in self.ranks.iter().enumerate() {
            writeln!(f, "rank {number} machine {:016x} cores {:x}", rank.machine, rank.cores)?;
            writeln!(f, "rank {number} spin {}", rank.spin)?;
            writeln!(f, "rank {number} copy{}", times(&rank.copy))?;
            for (data_type, reduce) in REDUCED_TYPES.iter().zip(&rank.reduce) {
                writeln!(f, "rank {number} reduce {data_type}{}", times(reduce))?;
            }
        }
        for (from, to) in (0..self.ranks()).flat_map(|from| (0..self.ranks()).map(move |to| (from, to))) {
            let mut link = self.links[from][to];
            if from != to {
                for (name, curve) in LINK_CURVES.iter().zip(link.curves()) {
                    writeln!(f, "link {from} {to} {name}{}", times(curve))?;
                }
            }
        }
        Ok(())
    }
}

fn times(nanos: &[u64]) -> String {
    nanos.iter().fold(String::new(), |mut text, nanos| {
        write!(text, " {nanos}").expect("a string takes everything");
        text
    })
}

impl FromStr for Figures {
    type Err = FiguresError;

    fn from_str(text: &str) -> Result<Self, FiguresError> {
        let mut lines = Lines { lines: text.lines(), number: 0 };
        let ranks = lines.numbers(&format!("{TITLE} ranks"), 1)?[0];
        let ranks = usize::try_from(ranks).ok().filter(|ranks| (1..=RANKS_MAX).contains(ranks));
        let ranks = ranks.ok_or_else(|| lines.fault(format!("expected 1 to {RANKS_MAX} ranks")))?;
        let (mut of_ranks, mut of_links) = (Vec::new(), Vec::new());
        for number in 0..ranks {
            let line = lines.next_line()?;
            let parts = line
                .strip_prefix(&format!("rank {number} machine "))
                .and_then(|rest| rest.split_once(" cores "))
                .and_then(|(machine, cores)| {
                    let number = |text| u64::from_str_radix(text, 16).ok();
                    Some([number(machine)?, number(cores)?])
                });
            let expected = || format!("expected `rank {number} machine ... cores ...`, found `{line}`");
            let mut words = parts.ok_or_else(|| lines.fault(expected()))?.to_vec();
            words.extend(lines.numbers(&format!("rank {number} spin"), 1)?);
            words.extend(lines.numbers(&format!("rank {number} copy"), REDUCE_BYTES.len())?);
            for data_type in REDUCED_TYPES {
                let start = format!("rank {number} reduce {data_type}");
                words.extend(lines.numbers(&start, REDUCE_BYTES.len())?);
            }
            of_ranks.push(words);
        }
        for (from, to) in (0..ranks).flat_map(|from| (0..ranks).map(move |to| (from, to))) {
            for name in LINK_CURVES {
                let start = format!("link {from} {to} {name}");
                let numbers = if from == to {
                    vec![0; MESSAGE_BYTES.len()]
                } else {
                    lines.numbers(&start, MESSAGE_BYTES.len())?
                };
                of_links.extend(numbers);
            }
        }
        let mut words = Vec::with_capacity(Self::words_of(ranks));
        for (rank, links) in of_ranks.into_iter().zip(of_links.chunks(ranks * LinkFigures::WORDS)) {
            words.extend(rank);
            words.extend(links);
        }
        Ok(Self::from_words(ranks, &words))
    }
}

/// Lines of the text form.
struct Lines<'a> {
    lines: std::str::Lines<'a>,
    number: usize,
}

impl<'a> Lines<'a> {
    fn next_line(&mut self) -> Result<&'a str, FiguresError> {
        self.number += 1;
        self.lines.next().ok_or_else(|| self.fault("it is missing".to_owned()))
    }

    /// So many numbers after the start of the next line.
    fn numbers(&mut self, start: &str, count: usize) -> Result<Vec<u64>, FiguresError> {
        let line = self.next_line()?;
        let rest = line.strip_prefix(start).filter(|rest| rest.starts_with(' '));
        let numbers: Option<Vec<u64>> =
            rest.and_then(|rest| rest.split_whitespace().map(|number| number.parse().ok()).collect());
        numbers.filter(|numbers| numbers.len() == count).ok_or_else(|| {
            let numbers = if count == 1 { "1 number".to_owned() } else { format!("{count} numbers") };
            self.fault(format!("expected `{start}` and {numbers}, found `{line}`"))
        })
    }

    fn fault(&self, why: String) -> FiguresError {
        FiguresError { line: self.number, why }
    }
}
