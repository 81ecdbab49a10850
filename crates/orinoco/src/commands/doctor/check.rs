//! Result of a check, and the table of all results.

use orinoco_api::{MachinePart, PartState};

use crate::output;

/// Groups of checks, in the order in which they are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    Board,
    Engines,
    Sources,
    Sensors,
    Machine,
    BoardFile,
}

impl Group {
    /// Returns the name in the report.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Board => "board",
            Self::Engines => "engines",
            Self::Sources => "sources",
            Self::Sensors => "sensors",
            Self::Machine => "machine",
            Self::BoardFile => "board file",
        }
    }
}

/// Correction of what is missing or broken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fix {
    /// Commands for a shell, each one a step.
    pub(super) commands: Vec<String>,
    /// Next step in words.
    pub(super) next: Option<String>,
}

impl Fix {
    /// Creates a correction by commands.
    pub(super) fn commands(commands: impl IntoIterator<Item = String>) -> Self {
        Self { commands: commands.into_iter().collect(), next: None }
    }

    /// Creates a correction in words.
    pub(super) fn words(next: impl Into<String>) -> Self {
        Self { commands: Vec::new(), next: Some(next.into()) }
    }
}

/// Creates the result of a check.
pub(super) fn part(
    group: Group,
    kind: &str,
    name: impl Into<String>,
    state: PartState,
    says: impl Into<String>,
) -> MachinePart {
    MachinePart {
        kind: kind.to_owned(),
        name: name.into(),
        ok: state == PartState::Ok,
        says: says.into(),
        group: group.name().to_owned(),
        state,
        fix: Vec::new(),
        next: None,
    }
}

/// Adds a correction to the result of a check.
pub(super) fn with_fix(part: MachinePart, Fix { commands, next }: Fix) -> MachinePart {
    MachinePart { fix: commands, next, ..part }
}

/// Returns the table of all results, with a mark on each line.
pub(super) fn table(parts: &[MachinePart]) -> String {
    let mut rows: Vec<Vec<String>> = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        let is_first = index == 0 || parts[index - 1].group != part.group;
        let group = if is_first { part.group.clone() } else { String::new() };
        let mark = mark(part.state).to_owned();
        rows.push(vec![group, mark, part.kind.clone(), part.name.clone(), part.says.clone()]);
    }
    output::table(&["group", "state", "part", "name", "details, or the reason"], 5, rows)
}

/// Returns the corrections as a list, each with the parts that it corrects; `None` if there is none.
pub(super) fn corrections(parts: &[&MachinePart]) -> Option<String> {
    let mut known: Vec<(&MachinePart, Vec<String>)> = Vec::new();
    for &part in parts.iter().filter(|part| !part.fix.is_empty() || part.next.is_some()) {
        let name = format!("{} {}", part.kind, part.name);
        match known.iter_mut().find(|(one, _)| (&one.fix, &one.next) == (&part.fix, &part.next)) {
            Some((_, names)) => names.push(name),
            None => known.push((part, vec![name])),
        }
    }
    let one = |(part, names): &(&MachinePart, Vec<String>)| {
        let commands = part.fix.iter().map(|command| format!("\n  $ {command}"));
        let next = part.next.as_ref().map(|next| format!("\n  {next}"));
        format!("{}{}", names.join(", "), commands.chain(next).collect::<String>())
    };
    (!known.is_empty()).then(|| known.iter().map(one).collect::<Vec<_>>().join("\n"))
}

fn mark(state: PartState) -> &'static str {
    match state {
        PartState::Ok => "ok",
        PartState::Missing => "missing",
        PartState::Broken => "broken",
        PartState::NotChecked => "not checked",
    }
}
