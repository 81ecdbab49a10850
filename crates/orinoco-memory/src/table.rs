//! Tables of plans, refusals and changes.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

use crate::area::{Area, Kind};
use crate::budget::Budget;
use crate::size::Mib;

/// Headings of the columns that [`area_row`] fills.
pub(crate) const HEADINGS: [&str; 5] = ["NAME", "KIND", "DOMAIN", "MIB", "BYTES"];
/// Columns of [`HEADINGS`] that hold numbers.
const NUMBERS: std::ops::Range<usize> = 3..5;

/// Makes the row of an area: name, kind, domain, MiB, bytes. A lane's scratch also shows the model that determines its
/// size.
pub(crate) fn area_row(area: &Area) -> Vec<String> {
    let largest = area.shares.iter().max_by_key(|share| share.bytes).filter(|_| area.kind == Kind::Scratch);
    let name = match largest {
        Some(share) => format!("{} ({})", area.name, share.name),
        None => area.name.clone(),
    };
    let (mib, bytes) = (Mib(area.bytes).to_string(), area.bytes.to_string());
    vec![name, area.kind.name().to_owned(), area.domain.name().to_owned(), mib, bytes]
}

/// Makes a row for each part of a budget.
pub(crate) fn total_rows(what: &str, budget: Budget) -> Vec<Vec<String>> {
    let row = |(part, bytes): (&str, u64)| {
        vec![what.to_owned(), String::new(), part.to_owned(), Mib(bytes).to_string(), bytes.to_string()]
    };
    budget.parts().into_iter().map(row).collect()
}

/// Formats rows below [`HEADINGS`] and one more heading, with numbers right-aligned and all else left-aligned.
pub(crate) fn table(last_heading: &str, rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(HEADINGS.into_iter().chain([last_heading])).add_rows(rows);
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if NUMBERS.contains(&index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}
