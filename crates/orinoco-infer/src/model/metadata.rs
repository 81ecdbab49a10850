//! What an ONNX file says of itself beside its graph: the notes that trainers leave.

use std::collections::BTreeMap;
use std::path::Path;

use prost::Message;

/// `ModelProto` of onnx.proto, without the graph: fields that are not named are skipped.
#[derive(Clone, PartialEq, Message)]
struct ModelProto {
    #[prost(message, repeated, tag = "14")]
    metadata_props: Vec<StringStringEntryProto>,
}

#[derive(Clone, PartialEq, Message)]
struct StringStringEntryProto {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    value: String,
}

/// The notes in `file`, by key; none where there are none or the file is not ONNX, which the engines report better.
pub(super) fn notes(file: &Path) -> BTreeMap<String, String> {
    let bytes = std::fs::read(file).unwrap_or_default();
    let model = ModelProto::decode(bytes.as_slice()).unwrap_or_default();
    model.metadata_props.into_iter().map(|entry| (entry.key, entry.value)).collect()
}

/// The class names that Ultralytics writes as a Python dictionary: `{0: 'person', 1: "driver's cab"}`.
pub(super) fn class_names(text: &str) -> Option<Vec<String>> {
    let mut rest = text.trim().strip_prefix('{')?.strip_suffix('}')?.trim();
    let mut names = Vec::new();
    while !rest.is_empty() {
        let (index, after) = rest.split_once(':')?;
        if index.trim().parse() != Ok(names.len()) {
            return None;
        }
        let after = after.trim_start();
        let quote = after.chars().next().filter(|quote| ['\'', '"'].contains(quote))?;
        let (name, after) = after[1..].split_once(quote)?;
        names.push(name.to_owned());
        rest = after.trim_start().trim_start_matches(',').trim_start();
    }
    (!names.is_empty()).then_some(names)
}

/// The keypoints that Ultralytics notes as a Python list, their number and the values of each: `[17, 3]`.
pub(super) fn keypoint_shape(text: &str) -> Option<(usize, usize)> {
    let (count, values) = text.trim().strip_prefix('[')?.strip_suffix(']')?.split_once(',')?;
    Some((count.trim().parse().ok()?, values.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn python_lists_are_read() {
        assert_eq!(keypoint_shape("[17, 3]"), Some((17, 3)));
        for odd in ["", "[17]", "[17, 3, 1]", "(17, 3)", "[17, x]"] {
            assert_eq!(keypoint_shape(odd), None, "{odd}");
        }
    }

    #[test]
    fn python_dictionaries_are_read() {
        let names = class_names(r#"{0: 'person', 1: "driver's cab"}"#);
        assert_eq!(names, Some(vec!["person".to_owned(), "driver's cab".to_owned()]));
        for odd in ["", "{}", "{1: 'late'}", "{0: person}", "[0]"] {
            assert_eq!(class_names(odd), None, "{odd}");
        }
    }
}
