//! Executes the schedules of all ranks on symbols instead of numbers.
//!
//! A value is an expression over the inputs: which element of which rank, combined in which order. Messages are exchanged only
//! when both sides have come to their round (no buffering at all), so what makes progress here makes progress on every transport.

use std::collections::{BTreeMap, HashMap, HashSet};

use orinoco_collective::{
    Algorithm, Buffer, Collective, Local, Region, Schedule, Topology, Transfer, schedule,
};

/// One operation, as each rank calls it.
pub(crate) struct Case {
    pub(crate) collectives: Vec<Collective>,
    pub(crate) algorithm: Algorithm,
    pub(crate) topology: Topology,
}

/// Proves a case, with separate inputs and outputs and, where that is allowed, in place.
///
/// # Panics
/// With the fault.
pub(crate) fn prove(case: &Case) {
    let fault = run(case, false).err().or_else(|| match case.collectives[0] {
        Collective::AllReduce { .. } | Collective::Reduce { .. } | Collective::Broadcast { .. } => {
            run(case, true).err().map(|fault| format!("in place: {fault}"))
        }
        _ => None,
    });
    if let Some(fault) = fault {
        let (collective, ranks) = (&case.collectives[0], case.topology.ranks());
        panic!("{} of {ranks} ranks, {collective:?}, {:?}: {fault}", case.algorithm, case.topology);
    }
}

/// An expression: equal numbers are equal expressions.
type Expression = u32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Value {
    Undefined,
    /// An element of the data type, not reduced.
    Element(Expression),
    /// An accumulator.
    Partial(Expression),
    /// A reduction that has been rounded to the data type.
    Final(Expression),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Node {
    Leaf { rank: usize, index: usize },
    Combined(Expression, Expression),
}

#[derive(Default)]
struct Expressions {
    nodes: Vec<Node>,
    numbers: HashMap<Node, Expression>,
}

impl Expressions {
    fn add(&mut self, node: Node) -> Expression {
        *self.numbers.entry(node).or_insert_with(|| {
            self.nodes.push(node);
            Expression::try_from(self.nodes.len() - 1).expect("fewer than 2^32 expressions")
        })
    }

    /// Combines expressions as the documentation of the reduction tree says.
    fn reduce(&mut self, mut operands: Vec<Expression>) -> Expression {
        let nodes = 1 << operands.len().ilog2();
        let pairs = operands.len() - nodes;
        let rest = operands.split_off(2 * pairs);
        let mut level: Vec<Expression> =
            operands.chunks(2).map(|pair| self.add(Node::Combined(pair[0], pair[1]))).collect();
        level.extend(rest);
        while level.len() > 1 {
            level = level.chunks(2).map(|pair| self.add(Node::Combined(pair[0], pair[1]))).collect();
        }
        level[0]
    }

    /// Leaves of an expression, from left to right.
    fn leaves(&self, expression: Expression) -> Vec<(usize, usize)> {
        match self.nodes[expression as usize] {
            Node::Leaf { rank, index } => vec![(rank, index)],
            Node::Combined(left, right) => [self.leaves(left), self.leaves(right)].concat(),
        }
    }
}

struct Rank {
    schedule: Schedule,
    round: usize,
    sent: Vec<bool>,
    received: Vec<bool>,
    memory: [Vec<Value>; 4],
    in_place: bool,
}

impl Rank {
    fn slot(&self, buffer: Buffer) -> usize {
        match buffer {
            Buffer::Input if self.in_place => 1,
            Buffer::Input => 0,
            Buffer::Output => 1,
            Buffer::Scratch => 2,
            Buffer::Partial => 3,
        }
    }

    fn read(&self, region: Region) -> Result<&[Value], String> {
        let values = self.memory[self.slot(region.buffer)]
            .get(region.start..region.start + region.len)
            .ok_or_else(|| format!("{region:?} is outside its buffer"))?;
        if values.contains(&Value::Undefined) {
            return Err(format!("{region:?} is read before it is written"));
        }
        Ok(values)
    }

    fn write(&mut self, region: Region, values: &[Value]) -> Result<(), String> {
        if region.buffer == Buffer::Input {
            return Err(format!("the input is written: {region:?}"));
        }
        let is_partial = |value: &Value| matches!(value, Value::Partial(_));
        if values.iter().any(|value| is_partial(value) != (region.buffer == Buffer::Partial)) {
            return Err(format!("{region:?} would hold values of another kind: {values:?}"));
        }
        let slot = self.slot(region.buffer);
        self.memory[slot]
            .get_mut(region.start..region.start + region.len)
            .ok_or_else(|| format!("{region:?} is outside its buffer"))?
            .copy_from_slice(values);
        Ok(())
    }

    /// Begins the round, and checks that its messages do not touch one another.
    fn begin(&mut self) -> Result<(), String> {
        let Some(round) = self.schedule.rounds.get(self.round) else { return Ok(()) };
        self.sent = vec![false; round.sends.len()];
        self.received = vec![false; round.receives.len()];
        let regions = |transfers: &[Transfer]| -> Vec<(usize, usize, usize)> {
            let all = transfers.iter().flat_map(|transfer| &transfer.regions).filter(|region| region.len > 0);
            all.map(|region| (self.slot(region.buffer), region.start, region.start + region.len)).collect()
        };
        let (sent, received) = (regions(&round.sends), regions(&round.receives));
        let overlap =
            |a: &(usize, usize, usize), b: &(usize, usize, usize)| a.0 == b.0 && a.1 < b.2 && b.1 < a.2;
        for (i, one) in received.iter().enumerate() {
            if sent.iter().chain(&received[i + 1..]).any(|other| overlap(one, other)) {
                return Err(format!(
                    "round {}: a message arrives where another is sent or arrives",
                    self.round
                ));
            }
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.round == self.schedule.rounds.len()
    }

    fn run_locals(&mut self, expressions: &mut Expressions) -> Result<(), String> {
        for local in self.schedule.rounds[self.round].locals.clone() {
            match local {
                Local::Copy { from, into } => {
                    let values = self.read(from)?.to_vec();
                    self.write(into, &values)?;
                }
                Local::Reduce { into, operands } => self.reduce(into, &operands, expressions)?,
            }
        }
        Ok(())
    }

    fn reduce(
        &mut self,
        into: Region,
        operands: &[Region],
        expressions: &mut Expressions,
    ) -> Result<(), String> {
        let slot = |region: &Region| (self.slot(region.buffer), region.start, region.len);
        for operand in operands {
            let (a, b) = (slot(&into), slot(operand));
            if a != b && a.0 == b.0 && a.1 < b.1 + b.2 && b.1 < a.1 + a.2 {
                return Err(format!("{into:?} overlaps its operand {operand:?} in part"));
            }
        }
        let columns: Vec<&[Value]> =
            operands.iter().map(|region| self.read(*region)).collect::<Result<_, _>>()?;
        let mut results = Vec::with_capacity(into.len);
        for i in 0..into.len {
            let mut leaves = Vec::with_capacity(columns.len());
            for column in &columns {
                match column[i] {
                    Value::Element(expression) | Value::Partial(expression) => leaves.push(expression),
                    other => return Err(format!("{other:?} is reduced again")),
                }
            }
            let reduced = expressions.reduce(leaves);
            results.push(if into.buffer == Buffer::Partial {
                Value::Partial(reduced)
            } else {
                Value::Final(reduced)
            });
        }
        self.write(into, &results)
    }
}

fn run(case: &Case, in_place: bool) -> Result<(), String> {
    let mut expressions = Expressions::default();
    let mut ranks = start(case, in_place, &mut expressions)?;
    for (number, rank) in ranks.iter_mut().enumerate() {
        rank.begin().map_err(|fault| format!("rank {number}: {fault}"))?;
    }
    loop {
        let exchanged = exchange(&mut ranks)?;
        let mut advanced = false;
        for (number, rank) in ranks.iter_mut().enumerate() {
            while !rank.is_done() && !rank.sent.contains(&false) && !rank.received.contains(&false) {
                let round = rank.round;
                rank.run_locals(&mut expressions)
                    .map_err(|fault| format!("rank {number}, round {round}: {fault}"))?;
                rank.round += 1;
                rank.begin().map_err(|fault| format!("rank {number}: {fault}"))?;
                advanced = true;
            }
        }
        if ranks.iter().all(Rank::is_done) {
            return check_outputs(case, &ranks, &mut expressions);
        }
        if !exchanged && !advanced {
            let rounds: Vec<usize> = ranks.iter().map(|rank| rank.round).collect();
            return Err(format!("no rank can go on; their rounds are {rounds:?}"));
        }
    }
}

fn start(case: &Case, in_place: bool, expressions: &mut Expressions) -> Result<Vec<Rank>, String> {
    let mut ranks = Vec::new();
    for (number, collective) in case.collectives.iter().enumerate() {
        let schedule = schedule(collective, case.algorithm, &case.topology, number)
            .map_err(|refused| refused.to_string())?;
        let input: Vec<Value> = (0..collective.input_len(number))
            .map(|index| Value::Element(expressions.add(Node::Leaf { rank: number, index })))
            .collect();
        let mut output = vec![Value::Undefined; collective.output_len(number)];
        if in_place {
            // A rank that has no output of its own, as all but the root of a reduce, lends its input.
            output.resize(output.len().max(input.len()), Value::Undefined);
            output[..input.len()].copy_from_slice(&input);
        }
        let scratch = vec![Value::Undefined; schedule.scratch_len];
        let partial = vec![Value::Undefined; schedule.partial_len];
        ranks.push(Rank {
            schedule,
            round: 0,
            sent: Vec::new(),
            received: Vec::new(),
            memory: [input, output, scratch, partial],
            in_place,
        });
    }
    Ok(ranks)
}

/// Exchanges all messages of which both sides are in their round. Returns whether there was one.
fn exchange(ranks: &mut [Rank]) -> Result<bool, String> {
    let mut receives: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
    for (number, rank) in ranks.iter().enumerate().filter(|(_, rank)| !rank.is_done()) {
        for (i, receive) in rank.schedule.rounds[rank.round].receives.iter().enumerate().rev() {
            if !rank.received[i] {
                receives.entry((receive.peer, number)).or_default().push(i);
            }
        }
    }
    let mut any = false;
    for from in 0..ranks.len() {
        if ranks[from].is_done() {
            continue;
        }
        for i in 0..ranks[from].sent.len() {
            let send = ranks[from].schedule.rounds[ranks[from].round].sends[i].clone();
            let waiting = receives.get_mut(&(from, send.peer)).filter(|_| !ranks[from].sent[i]);
            let Some(index) = waiting.and_then(Vec::pop) else { continue };
            deliver(ranks, from, &send, index)
                .map_err(|fault| format!("from {from} to {}: {fault}", send.peer))?;
            ranks[from].sent[i] = true;
            ranks[send.peer].received[index] = true;
            any = true;
        }
    }
    Ok(any)
}

fn deliver(ranks: &mut [Rank], from: usize, send: &Transfer, index: usize) -> Result<(), String> {
    let mut values = Vec::with_capacity(send.len());
    for region in &send.regions {
        values.extend_from_slice(ranks[from].read(*region)?);
    }
    let to = &mut ranks[send.peer];
    let receive = to.schedule.rounds[to.round].receives[index].clone();
    if receive.len() != values.len() {
        return Err(format!("{} elements are sent, {} expected", values.len(), receive.len()));
    }
    let mut start = 0;
    for region in &receive.regions {
        to.write(*region, &values[start..start + region.len])?;
        start += region.len;
    }
    Ok(())
}

fn check_outputs(case: &Case, ranks: &[Rank], expressions: &mut Expressions) -> Result<(), String> {
    let mut proved = HashSet::new();
    for (number, (rank, collective)) in ranks.iter().zip(&case.collectives).enumerate() {
        let output = &rank.memory[1][..collective.output_len(number)];
        for (i, value) in output.iter().enumerate() {
            let fault = |what: &str| Err(format!("rank {number}, element {i}: {what}: {value:?}"));
            match (expected(case, number, i), value) {
                (Expected::Copy(rank, index), Value::Element(found)) => {
                    if expressions.add(Node::Leaf { rank, index }) != *found {
                        return fault("not the element of that rank");
                    }
                }
                (Expected::Reduction(index), Value::Final(found)) => {
                    let leaves: Vec<Expression> =
                        (0..ranks.len()).map(|rank| expressions.add(Node::Leaf { rank, index })).collect();
                    if case.algorithm.is_reproducible() && expressions.reduce(leaves) != *found {
                        return fault("not in the order of the reduction tree");
                    }
                    if proved.insert((index, *found))
                        && !is_sum(expressions.leaves(*found), index, ranks.len())
                    {
                        return fault("not each rank's element once");
                    }
                }
                _ => return fault("of another kind"),
            }
        }
    }
    Ok(())
}

/// Whether the leaves are element `index` of each rank, once.
fn is_sum(mut leaves: Vec<(usize, usize)>, index: usize, ranks: usize) -> bool {
    leaves.sort_unstable();
    leaves == (0..ranks).map(|rank| (rank, index)).collect::<Vec<_>>()
}

enum Expected {
    Copy(usize, usize),
    Reduction(usize),
}

/// Expected element `i` of the output of `rank`.
fn expected(case: &Case, rank: usize, i: usize) -> Expected {
    // Finds the block that holds element `i`, and the element's index in it.
    let block = |counts: &[usize]| {
        let mut start = 0;
        let member = counts.iter().position(|count| {
            start += count;
            i < start
        });
        let member = member.expect("an element of a block");
        (member, i + counts[member] - start)
    };
    match &case.collectives[rank] {
        Collective::Barrier => unreachable!("a barrier has no output"),
        Collective::Broadcast { root, .. } => Expected::Copy(*root, i),
        Collective::Reduce { .. } | Collective::AllReduce { .. } => Expected::Reduction(i),
        Collective::ReduceScatter { counts } => Expected::Reduction(counts[..rank].iter().sum::<usize>() + i),
        Collective::Scatter { root, counts } => {
            Expected::Copy(*root, counts[..rank].iter().sum::<usize>() + i)
        }
        Collective::AllGather { counts } | Collective::Gather { counts, .. } => {
            let (member, index) = block(counts);
            Expected::Copy(member, index)
        }
        Collective::Send { from, .. } => Expected::Copy(*from, i),
        Collective::AllToAll { receive, .. } => {
            let (member, index) = block(receive);
            let Collective::AllToAll { send, .. } = &case.collectives[member] else {
                unreachable!("all alike")
            };
            Expected::Copy(member, send[..rank].iter().sum::<usize>() + index)
        }
    }
}
