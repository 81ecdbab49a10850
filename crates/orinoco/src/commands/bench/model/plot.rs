//! Cards and comparisons as images.

use orinoco_api::{Measured, ModelCard, ModelComparison};
use orinoco_eval::plot::{self, BarChart, CardFigure, CardImage, TradeOff};

use super::tables;
use crate::output::mebibytes;

/// Draws a card as SVG.
pub(super) fn card(card: &ModelCard) -> String {
    plot::card(&card_image(card))
}

/// Draws the trade-off of several cards as SVG: accuracy over latency, with memory and energy as labels.
pub(super) fn comparison(comparison: &ModelComparison) -> String {
    let cards = &comparison.cards;
    let points: Vec<TradeOff> = cards.iter().map(|card| point(card, cards)).collect();
    let first = &cards[0];
    let metric =
        first.accuracy.value().map_or("accuracy (not measured)", |accuracy| accuracy.metric.as_str());
    let is_one_model = cards.iter().all(|card| card.model == first.model);
    let title = match is_one_model {
        true => format!("{} on {}", first.model, first.board.name),
        false => format!("models on {}", first.board.name),
    };
    plot::trade_off(&title, metric, &points)
}

fn point(card: &ModelCard, among: &[ModelCard]) -> TradeOff {
    let metric = |card: &ModelCard| card.accuracy.value().map(|accuracy| accuracy.metric.clone());
    let accuracy = card.accuracy.value().filter(|_| metric(card) == metric(&among[0]));
    let energy = match &card.energy_mj {
        Measured::Value(_) => tables::energy_value(card),
        Measured::NotMeasured(_) => "energy not measured".to_owned(),
    };
    let p50 = card.latency_us.value().map_or(0.0, |latency| latency.p50);
    let memory = card.memory_bytes.value().map_or_else(|| "-".to_owned(), |memory| mebibytes(memory.peak));
    TradeOff {
        latency_ms: p50 / 1e3,
        accuracy: accuracy.map(|accuracy| accuracy.value),
        label: vec![
            tables::short_title(card, among),
            format!("{} ms, {}", tables::ms(p50), tables::accuracy_text(card)),
            format!("{memory}, {energy}"),
        ],
    }
}

fn card_image(card: &ModelCard) -> CardImage {
    let figure = |name: &str, value: String, note: String| CardFigure { name: name.to_owned(), value, note };
    let board = &card.board;
    let processor = board.processor.as_ref().map_or_else(String::new, |processor| format!(", {processor}"));
    let p50 = card.latency_us.value().map(|latency| tables::ms(latency.p50) + " ms");
    let memory = card.memory_bytes.value().map(|memory| mebibytes(memory.peak));
    let (energy_note, power_note) = (tables::energy_details(card), tables::power_details(card));
    let note = if energy_note == power_note { energy_note } else { format!("{energy_note}; {power_note}") };
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    CardImage {
        title: tables::title(card),
        subtitle: format!("{}{processor}, {}", board.name, card.measured_at),
        figures: vec![
            figure("accuracy", tables::accuracy_text(card), tables::accuracy_details(card)),
            figure("median latency", or_dash(p50), tables::latency_details(card)),
            figure("memory", or_dash(memory), tables::memory_details(card)),
            figure("energy per inference", tables::energy_value(card), note),
        ],
        charts: vec![latency_chart(card), throughput_chart(card)],
    }
}

fn latency_chart(card: &ModelCard) -> BarChart {
    let latency = card.latency_us.value();
    let percentiles = latency.map(|latency| {
        [
            ("p50", latency.p50),
            ("p90", latency.p90),
            ("p99", latency.p99),
            ("p99.9", latency.p999),
            ("max", latency.max),
        ]
    });
    let bar = |(name, us): (&str, f64)| (name.to_owned(), us, tables::ms(us));
    let bars = percentiles.into_iter().flatten().map(bar).collect();
    BarChart { title: "latency of one inference, ms".to_owned(), bars }
}

fn throughput_chart(card: &ModelCard) -> BarChart {
    let bars = card
        .throughput
        .iter()
        .map(|row| (format!("batch {}", row.batch), row.images_per_s, format!("{:.1}", row.images_per_s)));
    BarChart { title: "throughput, images per second".to_owned(), bars: bars.collect() }
}

#[cfg(test)]
mod tests {
    use super::super::compare;
    use super::super::tables::tests::example;
    use super::*;

    #[test]
    fn a_card_has_four_figures_and_two_charts() {
        let image = card_image(&example("tract"));
        let values: Vec<&str> = image.figures.iter().map(|figure| figure.value.as_str()).collect();
        assert_eq!(values, ["AP 0.4000", "5.70 ms", "24.0 MiB", "18.200 ± 0.400 mJ"]);
        assert_eq!(image.charts[0].bars.len(), 5);
        assert_eq!(image.charts[1].bars[1], ("batch 2".to_owned(), 200.0, "200.0".to_owned()));
    }

    #[test]
    fn points_have_memory_and_energy_as_labels() {
        let mut other = example("tract");
        other.energy_mj = Measured::missing("no sensor");
        other.accuracy = Measured::missing("no dataset");
        let cards = [example("ort-cpu"), other];
        let label = |card| point(card, &cards).label;
        assert_eq!(label(&cards[0]), ["ort-cpu", "5.70 ms, AP 0.4000", "24.0 MiB, 18.200 ± 0.400 mJ"]);
        assert_eq!(label(&cards[1]), ["tract", "5.70 ms, -", "24.0 MiB, energy not measured"]);
        assert_eq!(point(&cards[1], &cards).accuracy, None);
        assert!(comparison(&compare::comparison(&cards)).contains("person-nano on a board"));
    }
}
