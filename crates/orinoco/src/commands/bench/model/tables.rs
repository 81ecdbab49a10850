//! Cards and comparisons as tables, for a terminal and as Markdown.

use orinoco_api::{
    CardPower, CardRatios, Conditions, Latency, Measured, ModelCard, ModelComparison, StageSummary, Uncertain,
};

use super::card::software;
use super::compare::best_throughput;
use super::power::rails_text;
use crate::output::{self, count, mebibytes};

/// Fewest inferences of which the 99.9th percentile is not just the longest one.
const INFERENCES_FOR_P999: u64 = 1000;

/// Text of a card or comparison.
pub(super) struct Page {
    title: String,
    /// Lines below the title.
    about: Vec<String>,
    tables: Vec<Table>,
    /// Sentences below the tables.
    notes: Vec<String>,
}

/// Table whose columns after the first are numbers.
struct Table {
    headings: Vec<String>,
    /// First column that is aligned right.
    right_from: usize,
    rows: Vec<Vec<String>>,
}

/// Returns the page of a card.
pub(super) fn card(card: &ModelCard) -> Page {
    let mut tables =
        vec![Table { headings: texts(["figure", "value", "details"]), right_from: 3, rows: figures(card) }];
    if let Some(latency) = card.latency_us.value() {
        tables.push(latency_table(latency));
    }
    tables.push(throughput_table(card));
    if let Some(conditions) = conditions_table(&card.before, &card.after) {
        tables.push(conditions);
    }
    Page { title: title(card), about: about(card), tables, notes: notes(card) }
}

/// Returns the page of a comparison.
pub(super) fn comparison(comparison: &ModelComparison) -> Page {
    let cards = &comparison.cards;
    let mut headings = texts(["figure"]);
    headings.extend(cards.iter().map(|card| short_title(card, cards)));
    headings.extend(comparison.ratios.iter().zip(&cards[1..]).map(|(_, card)| match cards.len() {
        2 => "ratio".to_owned(),
        _ => format!("{} / {}", short_title(card, cards), short_title(&cards[0], cards)),
    }));
    let rows = ROWS.iter().map(|(name, value, ratio)| {
        let mut row = vec![(*name).to_owned()];
        row.extend(cards.iter().map(value));
        row.extend(comparison.ratios.iter().map(|ratios| ratio(ratios).unwrap_or_else(|| "-".to_owned())));
        row
    });
    let table = Table { headings, right_from: 1, rows: rows.collect() };
    let mut notes: Vec<String> = cards.iter().flat_map(missing).collect();
    notes.sort();
    notes.dedup();
    notes.extend(comparison.caveats.iter().cloned());
    let models: Vec<&str> = cards.iter().map(|card| card.model.as_str()).collect();
    let title = match models.iter().all(|model| *model == models[0]) {
        true => format!("{} on {}", models[0], cards[0].board.name),
        false => models.join(" compared with "),
    };
    Page { title, about: Vec::new(), tables: vec![table], notes }
}

/// Row of a comparison: its name, the value of a card, and the ratio.
type Row = (&'static str, fn(&ModelCard) -> String, fn(&CardRatios) -> Option<String>);

const ROWS: [Row; 6] = [
    ("accuracy", accuracy_text, |ratios| ratios.accuracy_difference.map(difference_text)),
    ("latency p50, ms", |card| latency_text(card, |latency| latency.p50), |ratios| times(ratios.latency_p50)),
    ("latency p99, ms", |card| latency_text(card, |latency| latency.p99), |ratios| times(ratios.latency_p99)),
    ("throughput, images/s", throughput_text, |ratios| times(ratios.throughput)),
    (
        "peak memory",
        |card| shown(&card.memory_bytes, |memory| mebibytes(memory.peak)),
        |ratios| times(ratios.memory),
    ),
    ("energy, mJ", energy_text, |ratios| times(ratios.energy)),
];

/// Returns the page for a terminal.
pub(super) fn text(page: &Page) -> String {
    let head = std::iter::once(&page.title).chain(&page.about).cloned().collect::<Vec<_>>().join("\n");
    let tables = page.tables.iter().map(|table| {
        let headings: Vec<&str> = table.headings.iter().map(String::as_str).collect();
        output::table(&headings, table.right_from, table.rows.clone())
    });
    let notes = (!page.notes.is_empty()).then(|| page.notes.join("\n"));
    std::iter::once(head).chain(tables).chain(notes).collect::<Vec<_>>().join("\n\n")
}

/// Returns the page as Markdown.
pub(super) fn markdown(page: &Page) -> String {
    let mut parts = vec![format!("# {}", page.title), page.about.join("  \n")];
    parts.extend(page.tables.iter().map(|table| {
        let line = |cells: &[String]| {
            let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
            format!("| {} |", cells.join(" | "))
        };
        let rule = |index: usize| if index < table.right_from { "---" } else { "---:" };
        let rules: Vec<&str> = (0..table.headings.len()).map(rule).collect();
        let mut lines = vec![line(&table.headings), format!("|{}|", rules.join("|"))];
        lines.extend(table.rows.iter().map(|row| line(row)));
        lines.join("\n")
    }));
    parts.extend(page.notes.iter().cloned());
    parts.retain(|part| !part.is_empty());
    parts.join("\n\n") + "\n"
}

fn texts<const N: usize>(texts: [&str; N]) -> Vec<String> {
    texts.map(str::to_owned).to_vec()
}

/// Returns model, engine and precision in one line.
pub(super) fn title(card: &ModelCard) -> String {
    let precision = card.precision.as_ref().map_or_else(String::new, |precision| format!(", {precision}"));
    let threads = count(card.threads as u64, "thread");
    format!("{} on {} {}{precision}, {threads}", card.model, card.engine, card.versions.engine)
}

/// Returns the shortest name of a card that tells it from the others.
pub(super) fn short_title(card: &ModelCard, among: &[ModelCard]) -> String {
    let is_alone = |same: fn(&ModelCard, &ModelCard) -> bool| {
        among.iter().filter(|other| same(other, card)).count() == 1
    };
    if is_alone(|other, card| other.engine == card.engine) {
        card.engine.clone()
    } else if is_alone(|other, card| other.model == card.model) {
        card.model.clone()
    } else {
        format!("{} on {}", card.model, card.engine)
    }
}

/// Returns board and conditions in some lines.
fn about(card: &ModelCard) -> Vec<String> {
    let board = &card.board;
    let mut parts = vec![board.name.clone()];
    parts.extend(board.processor.clone());
    parts.push(count(board.cores as u64, "core"));
    parts.extend(board.power_mode.as_ref().map(|mode| format!("power mode {mode}")));
    let mut software = software(&card.versions);
    software.push(card.measured_at.clone());
    vec![parts.join(", "), software.join(", ")]
}

/// Returns the rows of the figures, each with its details.
fn figures(card: &ModelCard) -> Vec<Vec<String>> {
    let row = |name: &str, value: String, details: String| vec![name.to_owned(), value, details];
    let warm_up = &card.warm_up;
    vec![
        row("accuracy", accuracy_text(card), accuracy_details(card)),
        row("latency", shown(&card.latency_us, |latency| ms(latency.p50) + " ms"), latency_details(card)),
        row("memory", shown(&card.memory_bytes, |memory| mebibytes(memory.peak)), memory_details(card)),
        row("power", power_value(&card.power_w), power_details(card)),
        row("energy", energy_value(card), energy_row_details(card)),
        row(
            "warm-up",
            ms(warm_up.first_us) + " ms",
            format!(
                "first inference; loaded in {} ms, {} discarded as warm-up",
                ms(warm_up.load_us),
                count(warm_up.discarded, "inference")
            ),
        ),
    ]
}

/// Returns a measured value as text, or a dash.
fn shown<T>(figure: &Measured<T>, text: impl Fn(&T) -> String) -> String {
    figure.value().map_or_else(|| "-".to_owned(), text)
}

/// Returns the details of a figure, or the reason why it is not measured.
fn details<T>(figure: &Measured<T>, text: impl Fn(&T) -> String) -> String {
    match figure {
        Measured::Value(value) => text(value),
        Measured::NotMeasured(reason) => format!("not measured: {}", reason.not_measured),
    }
}

pub(super) fn ms(us: f64) -> String {
    // Models of microseconds need more digits.
    if us < 1000.0 { format!("{:.3}", us / 1e3) } else { format!("{:.2}", us / 1e3) }
}

pub(super) fn accuracy_text(card: &ModelCard) -> String {
    shown(&card.accuracy, |accuracy| format!("{} {:.4}", accuracy.metric, accuracy.value))
}

pub(super) fn accuracy_details(card: &ModelCard) -> String {
    details(&card.accuracy, |accuracy| match &accuracy.differences {
        Some(differences) => format!(
            "with {} in {}; relative error {:.2e}, largest difference {:.2e}",
            count(accuracy.images as u64, "reference"),
            accuracy.source,
            differences.relative,
            differences.max
        ),
        None => format!("{} of {}", count(accuracy.images as u64, "image"), accuracy.source),
    })
}

fn latency_text(card: &ModelCard, figure: fn(&Latency) -> f64) -> String {
    shown(&card.latency_us, |latency| ms(figure(latency)))
}

pub(super) fn latency_details(card: &ModelCard) -> String {
    details(&card.latency_us, |latency| {
        format!(
            "p99 {} ms, p99.9 {} ms, max {} ms of {} on {}",
            ms(latency.p99),
            ms(latency.p999),
            ms(latency.max),
            count(latency.count, "inference"),
            card.input
        )
    })
}

pub(super) fn memory_details(card: &ModelCard) -> String {
    details(&card.memory_bytes, |memory| {
        let device =
            memory.device_peak.map_or_else(String::new, |bytes| format!(", {} on the GPU", mebibytes(bytes)));
        format!(
            "peak; {} still in use afterwards; peak of the whole process {}{device}",
            mebibytes(memory.steady),
            mebibytes(memory.process_peak)
        )
    })
}

fn with_bar(figure: &Uncertain) -> String {
    format!("{:.2} ± {:.2}", figure.value, figure.half_width)
}

fn power_value(power: &Measured<CardPower>) -> String {
    shown(power, |power| match &power.busy {
        Measured::Value(busy) => format!("{} W", with_bar(busy)),
        Measured::NotMeasured(_) => "-".to_owned(),
    })
}

pub(super) fn power_details(card: &ModelCard) -> String {
    details(&card.power_w, |power| {
        let idle = with_bar(&power.idle);
        format!("idle {idle} W; {}; {}", rails_text(power), count(power.readings, "reading"))
    })
}

fn energy_text(card: &ModelCard) -> String {
    shown(&card.energy_mj, |energy| format!("{:.3} ± {:.3}", energy.value, energy.half_width))
}

pub(super) fn energy_value(card: &ModelCard) -> String {
    match &card.energy_mj {
        Measured::Value(_) => energy_text(card) + " mJ",
        Measured::NotMeasured(_) => "-".to_owned(),
    }
}

pub(super) fn energy_details(card: &ModelCard) -> String {
    details(&card.energy_mj, |energy| {
        format!("per inference above idle; {}", count(energy.inferences, "inference"))
    })
}

/// Returns the details of the energy; a reason that is that of the power is not repeated.
fn energy_row_details(card: &ModelCard) -> String {
    match card.energy_mj.reason() {
        Some(reason) if Some(reason) == card.power_w.reason() => {
            "not measured, for the same reason as the power".to_owned()
        }
        _ => energy_details(card),
    }
}

fn throughput_text(card: &ModelCard) -> String {
    best_throughput(card).map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1}"))
}

/// Returns the percentiles of the whole inference and of its stages.
fn latency_table(latency: &Latency) -> Table {
    let whole = StageSummary {
        stage: "total".to_owned(),
        count: latency.count,
        p50_us: latency.p50,
        p90_us: latency.p90,
        p99_us: latency.p99,
        p999_us: latency.p999,
        max_us: latency.max,
    };
    let row = |stage: &StageSummary| {
        let figures = [stage.p50_us, stage.p90_us, stage.p99_us, stage.p999_us, stage.max_us].map(ms);
        std::iter::once(stage.stage.clone()).chain(figures).collect()
    };
    let rows = latency.stages.iter().chain([&whole]).map(row).collect();
    Table { headings: texts(["stage, ms", "p50", "p90", "p99", "p99.9", "max"]), right_from: 1, rows }
}

fn throughput_table(card: &ModelCard) -> Table {
    let rows = card.throughput.iter().map(|row| {
        vec![
            row.batch.to_string(),
            format!("{:.1}", row.images_per_s),
            ms(row.p50_us),
            row.inferences.to_string(),
        ]
    });
    let headings = texts(["batch", "images/s", "p50 of a batch, ms", "inferences"]);
    Table { headings, right_from: 1, rows: rows.collect() }
}

/// Returns clocks, temperatures and counters before and after; `None` where the board reports none.
fn conditions_table(before: &Conditions, after: &Conditions) -> Option<Table> {
    let number = |value: Option<f64>, unit: &str| match value {
        Some(value) => format!("{value:.0} {unit}"),
        None => "-".to_owned(),
    };
    let mut rows = Vec::new();
    for (before, after) in before.clocks.iter().zip(&after.clocks) {
        rows.push(vec![
            format!("clock of {}", before.name),
            number(before.mhz, "MHz"),
            number(after.mhz, "MHz"),
        ]);
    }
    for (before, after) in before.temperatures.iter().zip(&after.temperatures) {
        rows.push(vec![before.name.clone(), number(before.celsius, "°C"), number(after.celsius, "°C")]);
    }
    for (before, after) in before.throttling.iter().zip(&after.throttling) {
        let text = |count: Option<u64>| count.map_or_else(|| "-".to_owned(), |count| count.to_string());
        rows.push(vec![format!("throttled by {}", before.name), text(before.count), text(after.count)]);
    }
    let headings = texts(["board", "before", "after"]);
    (!rows.is_empty()).then_some(Table { headings, right_from: 1, rows })
}

fn notes(card: &ModelCard) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(limit) = &card.throughput_limit {
        notes.push(format!("no larger batches: {limit}"));
    }
    if card.latency_us.value().is_some_and(|latency| latency.count < INFERENCES_FOR_P999) {
        notes.push(format!("p99.9 is the longest of fewer than {INFERENCES_FOR_P999} inferences"));
    }
    notes.extend(card.before.unknown.iter().map(|unknown| format!("{}: {}", unknown.value, unknown.why)));
    notes
}

/// Returns the reasons of the figures that a card does not have.
fn missing(card: &ModelCard) -> Vec<String> {
    let of = [("accuracy", card.accuracy.reason()), ("energy", card.energy_mj.reason())];
    let known = of.into_iter().filter_map(|(figure, reason)| Some((figure, reason?)));
    known.map(|(figure, reason)| format!("{figure} not measured: {reason}")).collect()
}

/// Returns a difference with its sign; one that is rounded to 0 has that of 0.
fn difference_text(difference: f64) -> String {
    let rounded = (1e4 * difference).round() / 1e4;
    format!("{:+.4}", if rounded == 0.0 { 0.0 } else { rounded })
}

fn times(ratio: Option<f64>) -> Option<String> {
    ratio.map(|ratio| format!("{ratio:.3}"))
}

#[cfg(test)]
pub(super) mod tests;
