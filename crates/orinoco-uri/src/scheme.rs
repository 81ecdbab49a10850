//! Scheme of a URI: the text before `://`.

pub(crate) fn is_scheme(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
}

pub(crate) fn has_scheme(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, _)| is_scheme(scheme))
}

/// Whether a text is a network address without a scheme, or whose scheme lacks its colon or slashes.
pub(crate) fn is_mistyped(text: &str) -> bool {
    let text = text.trim_start();
    let schemes = ["rtsps", "rtsp", "https", "http"];
    let is_scheme =
        |scheme: &&str| text.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
    let behind = schemes.iter().find(|scheme| is_scheme(scheme)).map_or("", |scheme| &text[scheme.len()..]);
    let mut junk = behind.chars();
    let is_near = behind.starts_with("//") || (junk.next().is_some() && junk.as_str().starts_with("//"));
    without_slashes(text).is_some() || is_near || (text.starts_with("//") && text.contains('@'))
}

/// Returns the scheme of a network address without slashes.
pub(crate) fn without_slashes(text: &str) -> Option<&str> {
    let (scheme, rest) = text.trim_start().split_once(':')?;
    let is_network = ["rtsp", "rtsps", "http", "https"].contains(&scheme.to_ascii_lowercase().as_str());
    (is_network && !rest.starts_with("//")).then_some(scheme)
}
