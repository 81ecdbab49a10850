//! Headers of each request, which may be secret.

use std::fmt;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use hyper::HeaderMap;
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderName, HeaderValue, TRANSFER_ENCODING,
};
use orinoco_config::FileKind;
use orinoco_core::{Diagnosis, WithSubject, codes};

/// Headers that the exporter sets itself.
const OWN: [HeaderName; 5] = [CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, TRANSFER_ENCODING];

/// Bits of a file's mode by which others than its owner may use it.
const OTHERS: u32 = 0o077;

/// Kind of a headers file.
const FILE: FileKind = FileKind {
    noun: "a headers file",
    bytes_max: 64 << 10,
    code: &codes::OTLP_SETTINGS,
    next: "check headers_file in [otlp]",
};

/// Headers of each request. Their values may be secret: no message and no debug form has them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Headers(Vec<(HeaderName, HeaderValue)>);

/// Reason why a text is no header. It does not quote the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderFault {
    Name,
    Value,
    Own,
}

impl Headers {
    /// Reads a file with a header in each line, `name: value`. Empty lines and those that begin with `#` are skipped.
    ///
    /// # Errors
    ///
    /// Those of [`FileKind::open`]; [`codes::OTLP_SETTINGS`], if others than its owner may use the file, or a line is no header.
    pub(crate) fn from_file(path: &Path) -> Result<Self, Diagnosis> {
        let mut file = FILE.open(path)?;
        let failed =
            |result: std::io::Result<_>| result.about(&codes::FILE_MISSING, path.display(), FILE.next);
        let mode = failed(file.metadata().map(|data| data.permissions().mode()))?;
        if mode & OTHERS != 0 {
            let cause = format!("its mode is {:03o}, and it may hold a secret", mode & 0o777);
            let next = format!("run `chmod 600 {}`", path.display());
            return Err(Diagnosis::new(&codes::OTLP_SETTINGS, path.display(), cause, next));
        }
        let mut text = String::new();
        let read = (&mut file).take(FILE.bytes_max).read_to_string(&mut text);
        read.about(&codes::OTLP_SETTINGS, path.display(), "save it as UTF-8 text")?;
        let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
        let mut headers = Self::default();
        for (number, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            headers.add(name, value).map_err(|fault| {
                let subject = format!("{}:{number}", path.display());
                let next = fault.next("write `name: value` in each line");
                Diagnosis::new(&codes::OTLP_SETTINGS, subject, fault.cause(), next)
            })?;
        }
        Ok(headers)
    }

    /// Adds a header.
    pub(crate) fn add(&mut self, name: &str, value: &str) -> Result<(), HeaderFault> {
        let name = HeaderName::try_from(name.trim()).map_err(|_| HeaderFault::Name)?;
        let mut value = HeaderValue::try_from(value.trim()).map_err(|_| HeaderFault::Value)?;
        if value.is_empty() {
            return Err(HeaderFault::Value);
        }
        if OWN.contains(&name) {
            return Err(HeaderFault::Own);
        }
        value.set_sensitive(true);
        self.0.push((name, value));
        Ok(())
    }

    /// Returns the headers of a request.
    pub(crate) fn to_map(&self) -> HeaderMap {
        self.0.iter().cloned().collect()
    }
}

impl HeaderFault {
    pub(crate) fn cause(self) -> &'static str {
        match self {
            Self::Name => "the name of a header is missing or has a character that is not allowed there",
            Self::Value => "the value of a header is missing or has a character that is not allowed there",
            Self::Own => "the exporter sets this header itself",
        }
    }

    /// Returns the next step; `form` is how headers are written there.
    pub(crate) fn next(self, form: &'static str) -> &'static str {
        match self {
            Self::Name | Self::Value => form,
            Self::Own => "remove this header",
        }
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name.as_str())).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};

    fn check(text: &str, mode: u32) -> Result<Headers, String> {
        let dir = tempfile::tempdir().expect("temporary folder");
        let path = dir.path().join("headers");
        fs::write(&path, text).expect("written");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("its owner may");
        let read = Headers::from_file(&path);
        read.map_err(|fault| fault.to_string().replace(&format!("{}/", dir.path().display()), ""))
    }

    #[test]
    fn a_file_has_a_header_in_each_line() {
        let headers =
            check("# of the yard\nAuthorization: Bearer abc:def==\n\nx-tenant:7\n", 0o600).expect("valid");
        assert_eq!(headers.to_map()["authorization"], "Bearer abc:def==");
        assert_eq!(headers.to_map()["x-tenant"], "7");
        assert_eq!(
            format!("{headers:?} {:?}", headers.to_map()["authorization"]),
            r#"["authorization", "x-tenant"] Sensitive"#
        );
    }

    #[test]
    fn others_may_not_read_it() {
        for mode in [0o640, 0o604, 0o660] {
            let fault = check("a: b", mode).expect_err("too open");
            let expected =
                format!("headers: its mode is {mode:o}, and it may hold a secret; run `chmod 600 headers`");
            assert_eq!(fault, expected);
        }
        assert!(check("a: b", 0o400).is_ok());
    }

    #[test]
    fn a_fault_names_the_line_and_not_the_secret() {
        for text in
            ["a: b\nsecret token", "a: b\nsecret token: x", "a: b\nx: s\u{1}ecret", "a: b\nhost: secret"]
        {
            let fault = check(text, 0o600).expect_err("not headers");
            assert!(fault.starts_with("headers:2: ") && !fault.contains("ecret"), "{fault}");
        }
    }
}
