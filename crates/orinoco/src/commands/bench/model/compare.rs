//! Comparison of cards: ratios to the first, and what makes them hard to compare.

use std::path::Path;

use orinoco_api::{
    CardRatios, MODEL_CARD_SCHEMA, MODEL_COMPARISON_SCHEMA, Measured, ModelCard, ModelComparison,
};
use orinoco_config::FileKind;
use orinoco_core::text::count;
use orinoco_core::{Diagnosis, codes};

use super::card::software;
use super::power::rails_text;

/// Cards. They have some kilobytes.
const CARD: FileKind = FileKind {
    noun: "a model card",
    bytes_max: 4 << 20,
    code: &codes::CARD,
    next: "name a card.json of `orinoco bench model --output`",
};

/// Reads a card that was written before.
///
/// # Errors
/// `E0101` for a file that cannot be read, `E0603` for one that is no card of this version.
pub(super) fn read(file: &Path) -> Result<ModelCard, Diagnosis> {
    let text = CARD.read_text(file)?;
    let fault = |cause: String| Diagnosis::new(&codes::CARD, file.display(), cause, CARD.next);
    let value: serde_json::Value =
        serde_json::from_str(&text).map_err(|why| fault(format!("it is not JSON: {why}")))?;
    match value["schema"].as_str() {
        Some(MODEL_CARD_SCHEMA) => {}
        Some(other) => return Err(fault(format!("its schema is {other}, and not {MODEL_CARD_SCHEMA}"))),
        None => return Err(fault(format!("it has no schema; a card has {MODEL_CARD_SCHEMA}"))),
    }
    serde_json::from_value(value).map_err(|why| fault(format!("the card is incomplete: {why}")))
}

/// Compares each card with the first.
pub(super) fn comparison(cards: &[ModelCard]) -> ModelComparison {
    let (first, others) = cards.split_first().expect("there is a card");
    ModelComparison {
        schema: MODEL_COMPARISON_SCHEMA.to_owned(),
        cards: cards.to_vec(),
        ratios: others.iter().map(|other| ratios(first, other)).collect(),
        caveats: others.iter().flat_map(|other| caveats(first, other)).collect(),
    }
}

/// Returns the figures of `other` divided by those of `first`.
fn ratios(first: &ModelCard, other: &ModelCard) -> CardRatios {
    let of = |figure: &dyn Fn(&ModelCard) -> Option<f64>| ratio(figure(first)?, figure(other)?);
    let accuracies = first.accuracy.value().zip(other.accuracy.value());
    let comparable = accuracies.filter(|(first, other)| first.metric == other.metric);
    CardRatios {
        latency_p50: of(&|card| Some(card.latency_us.value()?.p50)),
        latency_p99: of(&|card| Some(card.latency_us.value()?.p99)),
        throughput: of(&best_throughput),
        memory: of(&|card| Some(card.memory_bytes.value()?.peak as f64)),
        energy: of(&|card| Some(card.energy_mj.value()?.value)),
        accuracy_difference: comparable.map(|(first, other)| other.value - first.value),
    }
}

/// Returns `other / first`; `None` where that is not a finite number.
fn ratio(first: f64, other: f64) -> Option<f64> {
    Some(other / first).filter(|ratio| ratio.is_finite())
}

/// Returns the greatest throughput of all batch sizes, in images per second.
pub(super) fn best_throughput(card: &ModelCard) -> Option<f64> {
    card.throughput.iter().map(|row| row.images_per_s).max_by(f64::total_cmp)
}

/// Returns the differences of two cards, as sentences, that make their figures hard to compare.
fn caveats(first: &ModelCard, other: &ModelCard) -> Vec<String> {
    let source = |card: &ModelCard| match &card.accuracy {
        Measured::Value(accuracy) => format!("{} on {}", accuracy.metric, accuracy.source),
        Measured::NotMeasured(_) => "nothing".to_owned(),
    };
    let board = |card: &ModelCard| match &card.board.power_mode {
        Some(mode) => format!("{} in power mode {mode}", card.board.name),
        None => card.board.name.clone(),
    };
    let processor = |card: &ModelCard| {
        let name = card.board.processor.as_deref().unwrap_or("unknown");
        format!("{name} ({})", count(card.board.cores as u64, "core"))
    };
    // Models of different names are different files.
    let has_one_name = first.model == other.model;
    let file = |card: &ModelCard| match has_one_name {
        true => format!("SHA-256 {}", card.sha256),
        false => String::new(),
    };
    // Different engines have different versions, which is no reason not to compare them.
    let has_one_engine = first.engine == other.engine;
    let versions = |card: &ModelCard| {
        let mut versions = software(&card.versions);
        versions.extend(has_one_engine.then(|| format!("{} {}", card.engine, card.versions.engine)));
        versions.join(", ")
    };
    // A power that was not measured has its reason elsewhere, and no ratio.
    let powers = first.power_w.value().zip(other.power_w.value());
    let (rails, other_rails) =
        powers.map(|(first, other)| (rails_text(first), rails_text(other))).unwrap_or_default();
    let aspects = [
        ("models", first.model.clone(), other.model.clone()),
        ("model files", file(first), file(other)),
        ("boards", board(first), board(other)),
        ("processors", processor(first), processor(other)),
        ("threads", first.threads.to_string(), other.threads.to_string()),
        ("inputs", first.input.clone(), other.input.clone()),
        ("sources of the accuracy", source(first), source(other)),
        ("versions", versions(first), versions(other)),
        ("rails", rails, other_rails),
        ("durations", format!("{} s", first.seconds), format!("{} s", other.seconds)),
    ];
    let differ = aspects.into_iter().filter(|(_, first, other)| first != other);
    differ.map(|(aspect, first, other)| format!("different {aspect}: {first}, and {other}")).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tables::tests::example;
    use super::*;

    #[test]
    fn ratios_are_to_the_first_card() {
        let (first, mut other) = (example("ort-cpu"), example("tract"));
        if let (Measured::Value(latency), Measured::Value(memory)) =
            (&mut other.latency_us, &mut other.memory_bytes)
        {
            (latency.p50, memory.peak) = (latency.p50 * 2.5, memory.peak / 4);
        }
        other.throughput.iter_mut().for_each(|row| row.images_per_s /= 2.0);
        other.energy_mj = Measured::missing("no sensor");
        if let Measured::Value(accuracy) = &mut other.accuracy {
            accuracy.value -= 0.125;
        }
        let found = comparison(&[first, other]);
        let ratios = &found.ratios[0];
        assert_eq!((ratios.latency_p50, ratios.latency_p99), (Some(2.5), Some(1.0)));
        assert_eq!((ratios.throughput, ratios.memory), (Some(0.5), Some(0.25)));
        assert_eq!((ratios.energy, ratios.accuracy_difference), (None, Some(-0.125)));
        assert_eq!(found.caveats, Vec::<String>::new(), "only the engine differs");
    }

    #[test]
    fn different_conditions_are_listed() {
        let (first, mut other) = (example("ort-cpu"), example("ort-cpu"));
        (other.threads, other.seconds) = (4, 1.0);
        other.accuracy = Measured::missing("no dataset");
        let caveats = comparison(&[first, other]).caveats;
        let expected = [
            "different threads: 1, and 4",
            "different sources of the accuracy: AP on coco, and nothing",
            "different durations: 10 s, and 1 s",
        ];
        assert_eq!(caveats, expected);
        assert_eq!((ratio(0.0, 1.0), ratio(2.0, 1.0)), (None, Some(0.5)));
    }

    #[test]
    fn different_versions_and_rails_are_listed() {
        let check = |change: fn(&mut ModelCard), expected: &[&str]| {
            let (first, mut other) = (example("ort-cpu"), example("ort-cpu"));
            change(&mut other);
            assert_eq!(comparison(&[first, other]).caveats, expected);
        };
        check(
            |card| card.versions.engine = "1.2.4".into(),
            &[
                "different versions: orinoco 0.1.0, JetPack 6.2, L4T 36.4.3, kernel 5.15, ort-cpu 1.2.3, and orinoco 0.1.0, \
               JetPack 6.2, L4T 36.4.3, kernel 5.15, ort-cpu 1.2.4",
            ],
        );
        check(|card| (card.engine, card.versions.engine) = ("tract".into(), "0.22".into()), &[]);
        check(
            |card| card.board.cores = 4,
            &["different processors: a processor (6 cores), and a processor (4 cores)"],
        );
        check(|card| card.sha256 = "cd".into(), &["different model files: SHA-256 00, and SHA-256 cd"]);
        check(
            |card| (card.model, card.sha256) = ("small".into(), "cd".into()),
            &["different models: person-nano, and small"],
        );
        check(
            |card| {
                (card.engine, card.versions.engine) = ("tract".into(), "0.22".into());
                (card.versions.jetpack, card.versions.l4t) = (None, None);
            },
            &[
                "different versions: orinoco 0.1.0, JetPack 6.2, L4T 36.4.3, kernel 5.15, and orinoco 0.1.0, kernel 5.15",
            ],
        );
        check(
            |card| {
                if let Measured::Value(power) = &mut card.power_w {
                    (power.rails, power.covers) = (vec!["GPU".into()], "named-rails".into());
                }
            },
            &["different rails: VDD_IN: the whole input, and GPU: only these rails"],
        );
        check(
            |card| {
                if let Measured::Value(power) = &mut card.power_w {
                    power.covers = "named-rails".into();
                }
            },
            &["different rails: VDD_IN: the whole input, and VDD_IN: only these rails"],
        );
        check(|card| card.power_w = Measured::missing("no sensor"), &[]);
    }

    #[test]
    fn a_file_that_is_no_card_is_refused() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let check = |text: &str, expected: &str| {
            std::fs::write(file.path(), text).expect("written");
            let fault = read(file.path()).expect_err("no card");
            assert_eq!((fault.code.id, fault.cause.as_str()), ("E0603", expected));
        };
        check("{}", "it has no schema; a card has orinoco.model-card/1");
        check(
            r#"{"schema": "orinoco.eval/1"}"#,
            "its schema is orinoco.eval/1, and not orinoco.model-card/1",
        );
        check(r#"{"schema": "orinoco.model-card/1"}"#, "the card is incomplete: missing field `model`");
        check("[", "it is not JSON: EOF while parsing a list at line 1 column 1");
        let card = example("tract");
        std::fs::write(file.path(), serde_json::to_string(&card).expect("serialises")).expect("written");
        assert_eq!(read(file.path()).expect("a card"), card);
        assert_eq!(read(Path::new("no such file")).expect_err("missing").code.id, "E0101");
    }
}
