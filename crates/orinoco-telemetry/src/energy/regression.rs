//! Regression of the board's power on the busy times of the models' stages, over all time scales at once.
//!
//! **Equations.** Readings of power, and the busy shares that each of them saw, are compared in pairs: a reading with the next
//! one, the mean of two with that of the next two, of four with the next four, and so on (the Haar wavelet transform). Each
//! comparison is an equation: the difference of power is the sum of the differences of the busy shares, times what each
//! costs. What is the same on both sides, the idle power, is gone from it, and what drifts is nearly gone.
//!
//! **Weights.** Drift, leakage and other processes make the comparisons over long times noisier than those over short times.
//! The noise of every time scale is estimated from the residuals of its equations, and weighs them (generalised least squares
//! in the wavelet domain, where such noise is nearly uncorrelated: Fadili and Bullmore, NeuroImage 15, 2002).
//!
//! **Errors.** The equations are kept in blocks of time. The variance is the leave-one-block-out estimate (Kline, Saggio and
//! Sølvsten, Econometrica 88, 2020), which does not rely on the weights and has no bias; the degrees of freedom are those of
//! Satterthwaite (Bell and McCaffrey, 2002): how many blocks really contribute.
//!
//! **Memory** is bounded: only sums of products are kept, at most [`BLOCKS_MAX`] blocks of at most [`SCALES_MAX`] scales.
//! When the blocks are full, each two become one.

use super::matrix::{Factor, Symmetric, dot};

/// Most blocks; then pairs are merged. Half as many always remain, which leaves enough degrees of freedom.
const BLOCKS_MAX: usize = 32;

/// Readings in a block at first, as a power of two.
const BLOCK_SCALES_MIN: usize = 4;

/// Time scales: 2^40 readings are 34 years of 1,000 a second.
const SCALES_MAX: usize = 40;

/// Relative spread of the power of different columns while busy, which is assumed before anything is measured. It only
/// decides where the readings cannot tell columns apart: these are then split by busy time, with an error of this size.
const SPREAD: f64 = 0.5;

const _: () = assert!(BLOCKS_MAX.is_power_of_two() && BLOCKS_MAX >= 4);

/// Sums over readings that follow one another.
#[derive(Clone, Debug, Default)]
struct Node {
    readings: f64,
    busy: Vec<f64>,
    power: f64,
}

impl Node {
    fn add(&mut self, other: &Node) {
        self.readings += other.readings;
        self.power += other.power;
        if self.busy.len() < other.busy.len() {
            self.busy.resize(other.busy.len(), 0.0);
        }
        self.busy.iter_mut().zip(&other.busy).for_each(|(sum, value)| *sum += value);
    }

    fn clear(&mut self) {
        self.readings = 0.0;
        self.power = 0.0;
        self.busy.clear();
    }
}

/// Sums of products over equations of one time scale.
#[derive(Clone, Debug, Default)]
struct Scatter {
    equations: f64,
    busy_busy: Symmetric,
    busy_power: Vec<f64>,
    power_power: f64,
}

impl Scatter {
    /// Adds the comparison of two nodes, scaled so that independent readings give every scale the same noise. `busy` is
    /// scratch.
    fn compare(&mut self, left: &Node, right: &Node, busy: &mut Vec<f64>) {
        let scale = (left.readings * right.readings / (left.readings + right.readings)).sqrt();
        let columns = left.busy.len().max(right.busy.len());
        let mean = |node: &Node, at: usize| node.busy.get(at).copied().unwrap_or(0.0) / node.readings;
        busy.clear();
        busy.extend((0..columns).map(|at| scale * (mean(right, at) - mean(left, at))));
        let power = scale * (right.power / right.readings - left.power / left.readings);
        self.add_equation(busy, power, 1.0);
    }

    fn add_equation(&mut self, busy: &[f64], power: f64, weight: f64) {
        self.equations += 1.0;
        self.busy_busy.add_outer(busy, weight);
        grow(&mut self.busy_power, busy.len());
        self.busy_power.iter_mut().zip(busy).for_each(|(sum, busy)| *sum += weight * busy * power);
        self.power_power += weight * power * power;
    }

    fn add(&mut self, other: &Scatter, weight: f64) {
        self.equations += other.equations;
        self.busy_busy.add(&other.busy_busy, weight);
        grow(&mut self.busy_power, other.busy_power.len());
        self.busy_power.iter_mut().zip(&other.busy_power).for_each(|(sum, value)| *sum += weight * value);
        self.power_power += weight * other.power_power;
    }

    /// Returns the mean square of the residuals.
    fn residual(&self, powers: &[f64]) -> f64 {
        let explained = 2.0 * dot(powers, &self.busy_power) - self.busy_busy.quadratic(powers);
        (self.power_power - explained).max(0.0) / self.equations
    }
}

fn grow(values: &mut Vec<f64>, len: usize) {
    if values.len() < len {
        values.resize(len, 0.0);
    }
}

/// Readings of one stretch of time: their sums, and the equations within it by time scale.
#[derive(Clone, Debug, Default)]
struct Block {
    sum: Node,
    scales: Vec<Scatter>,
}

/// A power of the idle board that the user measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct GivenIdle {
    /// Power, in watts.
    pub(super) power: f64,
    /// Standard deviation of its error, in watts.
    pub(super) deviation: f64,
}

/// Conditions under which a [`Regression`] is solved.
#[derive(Clone, Copy, Debug)]
pub(super) struct Question {
    /// Number of columns.
    pub(super) columns: usize,
    /// Standard deviation of the relative error of the sensor's clock, as it is known beforehand.
    pub(super) clock_deviation: f64,
    /// Shortest time scale that is used: comparisons of 2 to this power readings with as many. Over shorter times, a small
    /// error of the sensor's window would bias the powers.
    pub(super) first_scale: usize,
    /// Least variance of a reading, in square watts.
    pub(super) noise_min: f64,
    pub(super) given: Option<GivenIdle>,
}

/// The regression's sums. Its time per reading is that of about two outer products of the busy shares.
#[derive(Clone, Debug)]
pub(super) struct Regression {
    blocks: Vec<Block>,
    /// Number of time scales within a block: it has 2 to this power readings.
    block_scales: usize,
    current: Block,
    /// Left side of the comparison that is next at each scale; empty if there is none.
    waiting: Vec<Node>,
    carry: Node,
    scratch: Vec<f64>,
}

impl Regression {
    pub(super) fn new() -> Self {
        Self {
            blocks: Vec::with_capacity(BLOCKS_MAX),
            block_scales: BLOCK_SCALES_MIN,
            current: Block::default(),
            waiting: vec![Node::default(); SCALES_MAX],
            carry: Node::default(),
            scratch: Vec::new(),
        }
    }

    /// Adds a reading: for each column the share of its time in which it was busy, and the derivative of that by the relative
    /// error of the sensor's clock; and the power in watts.
    pub(super) fn add(&mut self, busy: &[f64], power: f64) {
        let mut carry = std::mem::take(&mut self.carry);
        carry.clear();
        carry.busy.extend_from_slice(busy);
        (carry.readings, carry.power) = (1.0, power);
        self.current.sum.add(&carry);
        for scale in 0..self.block_scales {
            let left = &mut self.waiting[scale];
            if left.readings == 0.0 {
                std::mem::swap(left, &mut carry);
                self.carry = carry;
                return;
            }
            if self.current.scales.len() <= scale {
                self.current.scales.resize_with(scale + 1, Scatter::default);
            }
            self.current.scales[scale].compare(left, &carry, &mut self.scratch);
            carry.add(left);
            left.clear();
        }
        self.carry = carry;
        self.blocks.push(std::mem::take(&mut self.current));
        if self.blocks.len() == BLOCKS_MAX {
            self.merge_blocks();
        }
    }

    /// Makes one block of each two. Their comparison becomes an equation of the merged block.
    fn merge_blocks(&mut self) {
        let mut merged = Vec::with_capacity(BLOCKS_MAX);
        for pair in self.blocks.chunks_exact_mut(2) {
            let [left, right] = pair else { unreachable!("chunks of two") };
            let mut block = std::mem::take(left);
            for (sum, scatter) in block.scales.iter_mut().zip(&right.scales) {
                sum.add(scatter, 1.0);
            }
            let mut between = Scatter::default();
            between.compare(&block.sum, &right.sum, &mut self.scratch);
            block.scales.push(between);
            block.sum.add(&right.sum);
            merged.push(block);
        }
        self.blocks = merged;
        self.block_scales += 1;
        assert!(self.block_scales < SCALES_MAX, "2^{SCALES_MAX} readings take decades");
    }

    /// Solves for the power of each column while it is busy. Returns `None` if the readings do not determine even the mean
    /// power while busy.
    pub(super) fn solve(&self, question: &Question) -> Option<Solution> {
        let mut clusters = self.clusters();
        let all = self.total();
        let (noise, point) = Noise::estimate(&clusters, &all, question);
        for cluster in &mut clusters {
            cluster.scales.retain(|(scale, _)| *scale >= question.first_scale);
        }
        clusters.retain(|cluster| !cluster.scales.is_empty());
        let known = point.known(&all, &noise, question);
        Solution::new(&clusters, &noise, &point, known)
    }

    /// Returns the sums over all readings.
    fn total(&self) -> Node {
        let mut all = self.current.sum.clone();
        self.blocks.iter().for_each(|block| all.add(&block.sum));
        all
    }

    /// Returns the equations in groups that are nearly independent: those within a block, and each comparison of blocks.
    fn clusters(&self) -> Vec<Cluster> {
        let of_block = |block: &Block| {
            let scales = block.scales.iter().cloned().enumerate();
            Cluster { scales: scales.filter(|(_, scatter)| scatter.equations > 0.0).collect() }
        };
        let blocks = self.blocks.iter().chain(std::iter::once(&self.current));
        let mut clusters: Vec<Cluster> =
            blocks.map(of_block).filter(|cluster| !cluster.scales.is_empty()).collect();
        let mut nodes: Vec<Node> = self.blocks.iter().map(|block| block.sum.clone()).collect();
        // The block that is being filled counts where it is long enough to have the noise of a whole one.
        let whole = (1_u64 << self.block_scales) as f64;
        if self.current.sum.readings >= 0.5 * whole {
            nodes.push(self.current.sum.clone());
        }
        let mut scratch = Vec::new();
        let mut scale = self.block_scales;
        while nodes.len() > 1 {
            let mut merged = Vec::with_capacity(nodes.len().div_ceil(2));
            for pair in nodes.chunks(2) {
                let mut node = pair[0].clone();
                if let [left, right] = pair {
                    let mut scatter = Scatter::default();
                    scatter.compare(left, right, &mut scratch);
                    clusters.push(Cluster { scales: vec![(scale, scatter)] });
                    node.add(right);
                }
                merged.push(node);
            }
            nodes = merged;
            scale += 1;
        }
        clusters
    }
}

/// Equations that are left out together.
#[derive(Clone, Debug)]
struct Cluster {
    scales: Vec<(usize, Scatter)>,
}

/// Powers and clock error around which the equations are linear. The unknowns are the powers, and last the change of the clock
/// error from here (the Gauss-Newton method).
struct Point {
    powers: Vec<f64>,
    clock: f64,
}

impl Point {
    /// Returns the equations of shares and their derivatives as equations of the unknowns.
    fn reduce(&self, scatter: &Scatter) -> Scatter {
        let (columns, clock) = (self.powers.len(), self.clock);
        let of = |row: usize, column: usize| scatter.busy_busy.get(row, column);
        let power = |at: usize| scatter.busy_power.get(at).copied().unwrap_or(0.0);
        let mut reduced = Scatter {
            equations: scatter.equations,
            busy_busy: Symmetric::with_order(columns + 1),
            busy_power: (0..columns).map(|at| power(2 * at) + clock * power(2 * at + 1)).collect(),
            power_power: scatter.power_power,
        };
        let mut clock_power = 0.0;
        for (row, of_row) in self.powers.iter().enumerate() {
            clock_power += of_row * power(2 * row + 1);
            for (column, of_column) in self.powers.iter().enumerate() {
                let (x, dx, y, dy) = (2 * row, 2 * row + 1, 2 * column, 2 * column + 1);
                if column <= row {
                    let value = of(x, y) + clock * (of(x, dy) + of(dx, y) + clock * of(dx, dy));
                    reduced.busy_busy.add_to(row, column, value);
                }
                reduced.busy_busy.add_to(columns, row, of_column * (of(x, dy) + clock * of(dx, dy)));
                reduced.busy_busy.add_to(columns, columns, of_row * of_column * of(dx, dy));
            }
        }
        reduced.busy_power.push(clock_power);
        reduced
    }

    /// Returns what is known beforehand, as equations of the unknowns: the clock's tolerance, and a given idle power.
    fn known(&self, all: &Node, noise: &Noise, question: &Question) -> Scatter {
        let mut unknowns = vec![0.0; self.powers.len() + 1];
        unknowns[self.powers.len()] = 1.0;
        let mut known = Scatter::default();
        known.add_equation(&unknowns, -self.clock, 1.0 / question.clock_deviation.powi(2).max(1e-12));
        if let Some(given) = question.given.filter(|_| all.readings > 0.0) {
            known.add(&self.reduce(&noise.of_given(all, given)), 1.0);
        }
        known
    }

    fn step(&mut self, found: &[f64], question: &Question) {
        let (clock, powers) = found.split_last().expect("the clock is the last unknown");
        self.powers.copy_from_slice(powers);
        // Twice the tolerance, so that a poor first guess of the powers leads to no wild clock.
        let limit = 2.0 * 3_f64.sqrt() * question.clock_deviation;
        self.clock = (self.clock + clock).clamp(-limit, limit);
    }
}

/// Variance of the noise of an equation, by time scale, in square watts.
struct Noise {
    variances: Vec<f64>,
    /// Variance of a single reading around its neighbours.
    of_reading: f64,
}

impl Noise {
    /// Growth of the variance from one scale to the next that is assumed where there are few equations: that of flicker
    /// noise, between independent noise (1) and a random walk (4).
    const GROWTH: f64 = 2.0;
    /// Number of equations that this assumption counts as.
    const ASSUMED: f64 = 4.0;
    /// Number of equations up to which a scale is not believed to be quieter than the one before: small by chance, its
    /// variance would give a few equations most of the weight.
    const FEW: f64 = 64.0;

    /// Returns the noise, and the point at which the equations are linear.
    fn estimate(clusters: &[Cluster], all: &Node, question: &Question) -> (Self, Point) {
        /// Rounds of weights and solution in turn: both settle after a few.
        const ROUNDS: usize = 8;
        let mut scales: Vec<Scatter> = Vec::new();
        for (scale, scatter) in clusters.iter().flat_map(|cluster| &cluster.scales) {
            if scales.len() <= *scale {
                scales.resize_with(scale + 1, Scatter::default);
            }
            scales[*scale].add(scatter, 1.0);
        }
        let floor = question.noise_min.max(1e-12);
        let variances = (0..scales.len().max(1)).map(|scale| 2_f64.powi(scale as i32)).collect();
        let mut noise = Self { variances, of_reading: 0.0 };
        let mut point = Point { powers: vec![0.0; question.columns], clock: 0.0 };
        for _ in 0..ROUNDS {
            let reduced: Vec<Scatter> = scales.iter().map(|scatter| point.reduce(scatter)).collect();
            let mut sum = Scatter::default();
            let used = reduced.iter().zip(&noise.variances).skip(question.first_scale);
            used.for_each(|(scatter, variance)| sum.add(scatter, 1.0 / variance));
            // Where nothing is determined, all of the power is noise.
            let found = System::new(sum, point.known(all, &noise, question), question.columns)
                .map_or_else(|| vec![0.0; question.columns + 1], |system| system.solve());
            noise.set(&reduced, &found, floor);
            point.step(&found, question);
        }
        (noise, point)
    }

    fn set(&mut self, scales: &[Scatter], powers: &[f64], floor: f64) {
        let (mut squares, mut equations, mut before) = (0.0, 0.0, floor);
        for (scatter, variance) in scales.iter().zip(&mut self.variances) {
            let measured =
                if scatter.equations > 0.0 { scatter.residual(powers) * scatter.equations } else { 0.0 };
            if scatter.equations >= Self::ASSUMED {
                squares += measured;
                equations += scatter.equations;
            }
            let assumed = Self::ASSUMED * Self::GROWTH * before;
            let least = if scatter.equations <= Self::FEW { before } else { floor };
            before = ((measured + assumed) / (scatter.equations + Self::ASSUMED)).max(least);
            *variance = before;
        }
        self.of_reading = if equations > 0.0 { squares / equations } else { 0.0 };
    }

    fn of(&self, scale: usize) -> f64 {
        self.variances[scale]
    }

    /// Returns the equation that a given idle power makes, weighed: the mean power above it is what the mean busy shares cost.
    /// The mean has the noise of the longest scale.
    fn of_given(&self, all: &Node, given: GivenIdle) -> Scatter {
        let variance = self.of(self.variances.len() - 1) / all.readings + given.deviation * given.deviation;
        let busy: Vec<f64> = all.busy.iter().map(|sum| sum / all.readings).collect();
        let mut scatter = Scatter::default();
        scatter.add_equation(&busy, all.power / all.readings - given.power, 1.0 / variance.max(1e-12));
        scatter
    }
}

/// Normal equations.
struct System {
    /// Of the readings, and of what is known besides.
    sum: Scatter,
    /// Information with a known error: the clock's tolerance, the given idle power, and the assumption about columns that
    /// nothing tells apart.
    known: Symmetric,
    /// The assumption alone.
    prior: Symmetric,
    factor: Factor,
}

impl System {
    /// Creates the equations of the powers of `columns` columns, and of the clock.
    fn new(mut sum: Scatter, known: Scatter, columns: usize) -> Option<Self> {
        sum.add(&known, 1.0);
        sum.busy_busy.grow(columns + 1);
        grow(&mut sum.busy_power, columns + 1);
        // Power while busy if it were the same for all.
        let mut ones = vec![1.0; columns];
        ones.push(0.0);
        let common_weight = sum.busy_busy.quadratic(&ones);
        if columns == 0 || common_weight <= 0.0 {
            return None;
        }
        let common = dot(&ones, &sum.busy_power) / common_weight;
        let strength = 1.0 / (SPREAD * common).powi(2).max(1e-12);
        let mut prior = Symmetric::with_order(columns + 1);
        for row in 0..columns {
            prior.add_to(row, row, strength);
            (0..=row).for_each(|column| prior.add_to(row, column, -strength / columns as f64));
        }
        let mut whole = sum.busy_busy.clone();
        whole.add(&prior, 1.0);
        let factor = whole.factor()?;
        let mut known = known.busy_busy;
        known.add(&prior, 1.0);
        Some(Self { sum, prior, known, factor })
    }

    fn solve(&self) -> Vec<f64> {
        self.factor.solve(&self.sum.busy_power)
    }
}

/// Result of a regression, whose last unknown is the clock.
pub(super) struct Solution {
    system: System,
    noise: f64,
    powers: Vec<f64>,
    clusters: Vec<LeaveOneOut>,
}

/// A cluster, and the system without it.
struct LeaveOneOut {
    information: Symmetric,
    score: Vec<f64>,
    without: Option<Factor>,
}

/// A sum of the columns' powers, with factors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sum {
    pub(super) value: f64,
    /// Variance of its error, without what all readings share.
    pub(super) variance: f64,
    /// Degrees of freedom of the variance.
    pub(super) freedom: f64,
    /// Share that was apportioned by busy time, because the readings do not tell these columns from others: 0 to 1.
    pub(super) shared: f64,
}

impl Solution {
    fn new(clusters: &[Cluster], noise: &Noise, point: &Point, known: Scatter) -> Option<Self> {
        let weigh = |cluster: &Cluster| {
            let mut sum = Scatter::default();
            cluster.scales.iter().for_each(|(scale, scatter)| sum.add(scatter, 1.0 / noise.of(*scale)));
            point.reduce(&sum)
        };
        let weighed: Vec<Scatter> = clusters.iter().map(weigh).collect();
        let mut sum = Scatter::default();
        weighed.iter().for_each(|cluster| sum.add(cluster, 1.0));
        let system = System::new(sum, known, point.powers.len())?;
        let powers = system.solve();
        let clusters = weighed.into_iter().map(|cluster| system.leave_out(cluster, &powers)).collect();
        Some(Self { system, noise: noise.of_reading, powers, clusters })
    }

    /// Returns the variance of the noise of a single reading, in square watts.
    pub(super) fn noise(&self) -> f64 {
        self.noise
    }

    /// Returns the sum of the powers of the columns, each times its factor; `busy` are the busy times of all columns, by which
    /// the shared part is judged.
    pub(super) fn sum(&self, factors: &[f64], busy: &[f64]) -> Option<Sum> {
        let with_clock =
            |values: &[f64]| values.iter().copied().chain(std::iter::once(0.0)).collect::<Vec<_>>();
        let (factors, busy) = (&with_clock(factors), &with_clock(busy));
        let direction = self.system.factor.solve(factors);
        let (mut variance, mut contributions, mut squares) = (0.0, 0.0, 0.0);
        for cluster in &self.clusters {
            let without = cluster.without.as_ref()?.solve(factors);
            variance += dot(&direction, &cluster.score) * dot(&without, &cluster.score);
            let contribution = cluster.information.quadratic(&direction);
            contributions += contribution;
            squares += contribution * contribution;
        }
        let estimated = variance.max(0.0);
        let freedom = if squares > 0.0 { contributions * contributions / squares } else { 1.0 };
        // The variance of what is known is known as well: it adds no uncertainty of its own.
        let variance = estimated + self.system.known.quadratic(&direction);
        Some(Sum {
            value: dot(factors, &self.powers),
            variance,
            freedom: if estimated > 0.0 { freedom * (variance / estimated).powi(2) } else { f64::INFINITY },
            shared: self.shared(factors, busy),
        })
    }

    /// Returns the part of a sum that comes from other columns' busy times: 1 if it is merely the equal split by busy time, 0
    /// if the readings resolve it. It follows from the resolution matrix (Menke, "Geophysical Data Analysis", chapter 4).
    fn shared(&self, factors: &[f64], busy: &[f64]) -> f64 {
        let own = |at: usize| factors[at] != 0.0;
        let (mut of_own, mut of_all) = (0.0, 0.0);
        for (at, time) in busy.iter().enumerate() {
            of_all += time;
            of_own += if own(at) { *time } else { 0.0 };
        }
        if of_own <= 0.0 || of_own >= of_all {
            return 0.0;
        }
        let weights: Vec<f64> =
            busy.iter().enumerate().map(|(at, time)| if own(at) { time / of_own } else { 0.0 }).collect();
        let resolved = self.system.sum.busy_busy.times(&self.system.factor.solve(&weights));
        let kept: f64 =
            resolved.iter().enumerate().map(|(at, value)| if own(at) { *value } else { 0.0 }).sum();
        ((1.0 - kept) / (1.0 - of_own / of_all)).clamp(0.0, 1.0)
    }
}

impl System {
    fn leave_out(&self, cluster: Scatter, powers: &[f64]) -> LeaveOneOut {
        let expected = cluster.busy_busy.times(powers);
        let score = expected
            .iter()
            .enumerate()
            .map(|(at, expected)| cluster.busy_power.get(at).copied().unwrap_or(0.0) - expected)
            .collect();
        let mut rest = self.sum.busy_busy.clone();
        rest.add(&self.prior, 1.0);
        rest.add(&cluster.busy_busy, -1.0);
        LeaveOneOut { without: rest.factor(), information: cluster.busy_busy, score }
    }
}
