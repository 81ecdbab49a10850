use std::fmt;

use crate::fault::Fault;
use crate::secrets::without_secrets;
use crate::settings::settings;

/// Scheme of a kind of source that has no typed form in this crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheme {
    /// Text before `://`, in lower case.
    pub name: &'static str,
    /// Whether its sources run whether or not anybody takes their frames.
    pub is_live: bool,
}

/// Address of a source whose scheme is no variant of its own. Its debug form hides the password.
#[derive(Clone, PartialEq, Eq)]
pub struct OtherAddress {
    scheme: Scheme,
    place: String,
    settings: Vec<(String, String)>,
}

impl OtherAddress {
    /// Returns its scheme.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Returns the text between `://` and the settings, as it was written.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Returns the `key=value` pairs behind the `?`, in the order in which they were written.
    pub fn settings(&self) -> impl Iterator<Item = (&str, &str)> {
        self.settings.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }
}

impl fmt::Debug for OtherAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = format!("{}://{}", self.scheme.name, self.place);
        for (index, (key, value)) in self.settings.iter().enumerate() {
            text.extend([if index == 0 { "?" } else { "&" }, key, "=", value]);
        }
        write!(f, "OtherAddress({})", without_secrets(&text))
    }
}

/// Reads what stands behind `://`.
pub(crate) fn read_other(scheme: Scheme, rest: &str) -> OtherAddress {
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let settings = settings(query).map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    OtherAddress { scheme, place: place.to_owned(), settings }
}

/// The fault of a scheme that is none of ours, nor one of `others`.
pub(crate) fn unknown_scheme(scheme: &str, others: &[Scheme]) -> Fault {
    let others: String = others.iter().map(|other| format!("{}://, ", other.name)).collect();
    Fault::new(
        format!("`{scheme}://` is not a kind of source"),
        format!(
            "use file://, csi://, v4l2://, rtsp://, http://, {others}stdin:// or test://ball, or a plain path"
        ),
    )
}
