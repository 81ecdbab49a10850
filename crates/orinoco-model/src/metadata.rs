//! Notes (metadata) that trainers leave in an ONNX file.

use orinoco_vision::heads::KeypointShape;

/// Parses the class names that Ultralytics writes as a Python dictionary: `{0: 'person', 1: "driver's cab"}`.
pub(crate) fn class_names(text: &str) -> Option<Vec<String>> {
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

/// Parses the keypoints that Ultralytics notes as a Python list, their number and the values of each: `[17, 3]`.
pub(crate) fn keypoint_shape(text: &str) -> Option<KeypointShape> {
    let (count, values) = text.trim().strip_prefix('[')?.strip_suffix(']')?.split_once(',')?;
    Some(KeypointShape { count: count.trim().parse().ok()?, values: values.trim().parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn python_lists_are_read() {
        assert_eq!(keypoint_shape("[17, 3]"), Some(KeypointShape { count: 17, values: 3 }));
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
