//! Words that the project has given up: identifiers and phrases for which a reader of DeepStream's, Triton's or GStreamer's
//! documentation has another name, and openings of doc comments that say nothing by themselves.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::steps::command;
use crate::workspace::root;

/// Retired identifiers, each with its successor. They are found as whole words, in code, comments and documents.
const IDENTIFIERS: &[(&str, &str)] = &[
    ("Brought", "PlanFacts"),
    ("FeedValue", "ExtraInputValue"),
    ("Findings", "InferenceResult"),
    ("Effect::Look", "Effect::Sample"),
    ("Follower", "ModelTrackers, StreamTracker"),
    ("FrameMaker", "FrameBuilder"),
    ("Heard", "WindowResult"),
    ("Inlet", "FrameSender"),
    ("KnownModel", "ModelEntry"),
    ("LeftOut", "SkippedSetting"),
    ("NoCache", "CacheUnavailable"),
    ("NotJoined", "JoinFailure"),
    ("ObjectsSpec", "ObjectSelectionSpec"),
    ("OutcomeOffer", "ResultOffer"),
    ("PictureDifference", "ImageDifference"),
    ("PictureTensor", "ImageTensor"),
    ("ReplayFailed", "ExecutionFailed"),
    ("Unsure", "UncertainKey"),
    ("WayIn", "SinkBranch"),
    ("Wishes", "StopRequests"),
    ("accept_padded_pictures", "accept_padded_frames"),
    ("give_back_freed", "trim_heap"),
    ("give_up_hung", "abandon_hung"),
    ("give_up_proof", "drop_probe"),
    ("hand_on", "forward_results"),
    ("let_go", "remove_stream"),
    ("note_maker", "note_decoder"),
    ("pictures_done", "inputs_done"),
    ("plan_with_rooms", "plan_with_scratch_sizes"),
    ("shows_pictures", "reads_pixels"),
    ("struct Joining", "JoinAttempt"),
    ("struct Left", "the noun of the thing"),
    ("struct Life", "Heartbeat, ConnectionState"),
    ("struct Wanted", "the noun of the thing"),
    ("take_in", "admit_streams"),
    ("take_pictures", "take_frames"),
    ("why_not", "shortfall, or the noun of the reason"),
];

/// Retired phrases in comments, strings and documents, each with what to write. Case does not matter.
const PHRASES: &[(&str, &str)] = &[
    ("anew", "again"),
    ("beside a", "next to, compared with, during, in addition to"),
    ("beside it", "next to, compared with, during, in addition to"),
    ("beside its", "next to, compared with, during, in addition to"),
    ("beside the", "next to, compared with, during, in addition to"),
    ("compressed picture", "compressed frame, access unit"),
    ("damaged picture", "corrupt frame"),
    ("for ever", "without limit, without end"),
    ("frames a second", "frames per second"),
    ("from here on", "at least, afterwards"),
    ("give up its proof", "drop the probe"),
    ("hand on", "forward"),
    ("hands on", "forwards"),
    ("handed on", "forwarded"),
    ("let go of", "remove, release"),
    ("mend", "fix, correct"),
    ("mended", "fixed, corrected"),
    ("nvidia's memory", "NVMM"),
    ("oftener", "more often"),
    ("picture format", "pixel format"),
    ("take in streams", "admit streams"),
    ("the wish to", "the request to"),
    ("who follows", "the tracker"),
    ("who is followed", "the tracked object"),
];

/// Openings of a doc comment that leave the noun out: "What it needs", "Who reads it".
const OPENINGS: &[&str] = &["What", "Who", "Whose", "How", "Why", "Where", "Which"];

/// Files that have to name retired words, or whose words are a record of the past.
const EXEMPT: &[&str] = &[
    "crates/xtask/src/words.rs",
    "CHANGELOG.md",
    "docs/measurements.md",
    // Their contents name cached parts of the emulated boards: an edit builds those anew.
    "tests/rig/kernel.sh",
    "tests/rig/modules.sh",
];

/// Fails on a retired word in a tracked file.
pub(crate) fn check() -> Result<()> {
    let tracked =
        command(&["git", "ls-files", "-z", "--", "*.rs", "*.md", "*.toml", "*.cu", "*.sh", "*.service"])
            .output()
            .context("listing the tracked files")?;
    let names = String::from_utf8(tracked.stdout).context("names of tracked files")?;
    let files = names.split('\0').filter(|name| !name.is_empty() && !EXEMPT.contains(name));
    let (mut faults, mut count) = (Vec::new(), 0);
    for name in files {
        let Ok(text) = fs::read_to_string(root().join(name)) else { continue };
        let is_source = Path::new(name).extension().is_some_and(|extension| extension == "rs");
        faults.extend(faults_of(&text, is_source).map(|(line, fault)| format!("{name}:{line}: {fault}")));
        count += 1;
    }
    if !faults.is_empty() {
        let (number, list) = (faults.len(), faults.join("\n  "));
        bail!("{number} retired words (crates/xtask/src/words.rs):\n  {list}");
    }
    println!("no retired word in {count} files");
    Ok(())
}

/// Retired words of a file, each with its line.
fn faults_of(text: &str, is_source: bool) -> impl Iterator<Item = (usize, String)> {
    let mut before = "";
    text.lines().enumerate().flat_map(move |(index, line)| {
        let begins_comment = is_source && !is_doc(before);
        before = line;
        let words = IDENTIFIERS.iter().filter(|(word, _)| contains_word(line, word));
        let lower = line.to_lowercase();
        let phrases = PHRASES.iter().filter(move |(phrase, _)| contains_word(&lower, phrase));
        let opening = OPENINGS.iter().filter(move |word| begins_comment && opens_with(line, word));
        let retired = words.chain(phrases).map(|(old, new)| format!("`{old}`: write {new}"));
        let opening =
            opening.map(|word| format!("a comment opens with `{word}`: begin with a noun or a verb"));
        retired.chain(opening).map(move |fault| (index + 1, fault)).collect::<Vec<_>>()
    })
}

fn is_doc(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("///") || line.starts_with("//!")
}

fn opens_with(line: &str, word: &str) -> bool {
    let line = line.trim_start();
    let comment = line.strip_prefix("/// ").or_else(|| line.strip_prefix("//! "));
    comment.and_then(|comment| comment.strip_prefix(word)).is_some_and(|rest| !begins_in_a_word(rest))
}

/// Whether `line` has `wanted` with no letter, digit or underscore on either side.
fn contains_word(line: &str, wanted: &str) -> bool {
    line.match_indices(wanted).any(|(at, _)| {
        let is_part = |char: char| char.is_alphanumeric() || char == '_';
        !line[..at].chars().next_back().is_some_and(is_part) && !begins_in_a_word(&line[at + wanted.len()..])
    })
}

fn begins_in_a_word(rest: &str) -> bool {
    rest.chars().next().is_some_and(|char| char.is_alphanumeric() || char == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retired_words_are_found_whole_and_openings_where_a_comment_begins() {
        let text = "/// What it needs.\n/// Who cares.\nlet a = Findings; // MyFindings, findings\n//! Whatever\n// we mend it";
        let found: Vec<_> = faults_of(text, true).map(|(line, fault)| format!("{line} {fault}")).collect();
        expect_test::expect![[r#"
            [
                "1 a comment opens with `What`: begin with a noun or a verb",
                "3 `Findings`: write InferenceResult",
                "5 `mend`: write fix, correct",
            ]"#]]
        .assert_eq(&format!("{found:#?}"));
        assert_eq!(faults_of("What is new", false).count(), 0);
    }
}
