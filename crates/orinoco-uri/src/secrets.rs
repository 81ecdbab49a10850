//! Finds text that may be a secret, and hides it.

use crate::scheme::without_slashes;

/// Settings whose values may be shown: those of Orinoco, and those of cameras that choose the stream and its format.
/// Any other value in a network address may be a key to it, whatever its name (`psw=`, `sig=`, `k=`).
const SHOWN_SETTINGS: [&str; 40] = [
    "action",
    "audio",
    "bitrate",
    "camera",
    "channel",
    "channelno",
    "codec",
    "compression",
    "format",
    "fps",
    "framerate",
    "h",
    "height",
    "input",
    "loop",
    "mode",
    "pace",
    "profile",
    "quality",
    "rate",
    "res",
    "resolution",
    "rotation",
    "size",
    "snapshot",
    "source",
    "stream",
    "streamid",
    "streamno",
    "streamtype",
    "subtype",
    "track",
    "transport",
    "transportmode",
    "trackid",
    "unicast",
    "user",
    "video",
    "videocodec",
    "width",
];

/// Schemes whose addresses never leave this machine and hold no password.
const LOCAL_SCHEMES: [&str; 5] = ["file", "v4l2", "csi", "stdin", "test"];

/// Hides possible secrets in the addresses that a message quotes.
pub fn hide_secrets(message: &str) -> String {
    let words = message.split_inclusive(char::is_whitespace).map(|word| match word.contains("://") {
        true => without_secrets(word.trim_end()) + &word[word.trim_end().len()..],
        false => word.to_owned(),
    });
    words.collect()
}

/// Returns the text with possible secrets replaced by stars.
///
/// It also works for texts that are not a valid URI: everything between the first colon and the last `@` may be a
/// password with unescaped characters, even if the scheme's colon or slashes are missing.
pub(crate) fn without_secrets(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else {
        return match without_slashes(text) {
            Some(scheme) => format!("{scheme}:***"),
            None => without_login(text),
        };
    };
    let lower = scheme.to_ascii_lowercase();
    // A misspelt scheme may be followed by a password too.
    if LOCAL_SCHEMES.contains(&lower.as_str()) {
        return text.to_owned();
    }
    // Settings come first, because an `@` in a setting does not end a login.
    let settings = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let rest = format!("{}{}", &rest[..settings], without_secret_settings(&rest[settings..]));
    let rest = match rest.rsplit_once('@') {
        None => rest.clone(),
        Some((login, host)) => match login.split_once(':') {
            None => rest.clone(),
            Some((user, _)) => format!("{user}:***@{host}"),
        },
    };
    format!("{scheme}://{rest}")
}

/// Hides a login in a text without a scheme, as in `rtsp//USER:PASSWORD@HOST`. In a path, only the text between a colon
/// and a later `@` is hidden.
pub(crate) fn without_login(text: &str) -> String {
    let hidden = text.split_once(':').and_then(|(user, rest)| Some((user, rest.rsplit_once('@')?.1)));
    hidden.map_or_else(
        || text.to_owned(),
        |(user, host)| format!("{user}:***@{}", without_secret_settings(host)),
    )
}

/// Hides the values of settings after a host name. Cameras take passwords in the query, and some in the path:
/// `/user=admin&password=secret&channel=1`.
fn without_secret_settings(text: &str) -> String {
    const ENDS: [char; 5] = ['/', '?', '&', ';', '#'];
    let mut shown = String::with_capacity(text.len());
    let mut in_query = false;
    for piece in text.split_inclusive(ENDS) {
        let (setting, end) = match piece.strip_suffix(ENDS) {
            Some(setting) => (setting, piece.get(setting.len()..).unwrap_or_default()),
            None => (piece, ""),
        };
        match setting.split_once('=') {
            // A second `=` belongs to another setting: `user=admin_password=secret`.
            Some((key, value)) if is_shown_setting(key) && !value.contains('=') => shown.push_str(setting),
            Some((key, _)) => shown.extend([key, "=***"]),
            // The whole query may be a token.
            None if in_query && !setting.is_empty() && !is_shown_setting(setting) => {
                shown.push_str("***");
                // The setting may contain the end of a login whose password has a `?` or `#` in it; the host after it
                // is shown.
                shown.extend(setting.rsplit_once('@').into_iter().flat_map(|(_, host)| ["@", host]));
            }
            None => shown.push_str(setting),
        }
        shown.push_str(end);
        in_query |= matches!(end, "?" | "#");
    }
    shown
}

fn is_shown_setting(key: &str) -> bool {
    SHOWN_SETTINGS.contains(&key.to_ascii_lowercase().as_str())
}
