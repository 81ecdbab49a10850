use std::fmt;

use url::Url;

/// Address of a server to which data is sent by HTTP without TLS: `http://HOST:PORT/PATH`. It holds no password, so it may appear
/// in any message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpEndpoint {
    host: String,
    port: u16,
    path: String,
}

/// Reason why a text is no [`HttpEndpoint`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointFault {
    /// It is no address with a host.
    Malformed,
    /// It asks for TLS.
    Tls,
    /// Its scheme is neither `http` nor `https`.
    Scheme,
    /// It contains a user name or a password.
    Login,
    /// It has a query or a fragment.
    Query,
}

impl HttpEndpoint {
    /// Parses an address. Without a port it is 80, as in every URL.
    ///
    /// # Errors
    ///
    /// Says what the address has that it may not have, or lacks.
    pub fn parse(text: &str) -> Result<Self, EndpointFault> {
        let url = Url::parse(text).map_err(|_| EndpointFault::Malformed)?;
        match url.scheme() {
            "http" => {}
            "https" => return Err(EndpointFault::Tls),
            _ => return Err(EndpointFault::Scheme),
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(EndpointFault::Login);
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(EndpointFault::Query);
        }
        let host = url.host_str().ok_or(EndpointFault::Malformed)?.to_owned();
        let port = url.port_or_known_default().ok_or(EndpointFault::Malformed)?;
        Ok(Self { host, port, path: url.path().to_owned() })
    }

    /// Returns the address of `path` below this one: `v1/traces` below `http://a:4318/otlp` is `http://a:4318/otlp/v1/traces`.
    #[must_use]
    pub fn below(&self, path: &str) -> Self {
        let path = format!("{}/{path}", self.path.trim_end_matches('/'));
        Self { path, ..self.clone() }
    }

    /// Returns the host to look up or connect to: an address of IPv6 without its brackets.
    pub fn host(&self) -> &str {
        self.host.trim_start_matches('[').trim_end_matches(']')
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the path, which begins with a slash.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns host and port as the header `Host` has them.
    pub fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

impl fmt::Display for HttpEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}:{}{}", self.host, self.port, self.path.trim_end_matches('/'))
    }
}

impl EndpointFault {
    /// Returns the cause. It does not quote the address, which may hold a password.
    pub fn cause(self) -> &'static str {
        match self {
            Self::Malformed => "it is not an address with a host",
            Self::Tls => "https is not supported",
            Self::Scheme => "the address does not begin with http://",
            Self::Login => "it contains a user name or a password",
            Self::Query => "it has a query or a fragment",
        }
    }

    /// Returns what to write instead.
    pub fn next(self) -> &'static str {
        match self {
            Self::Malformed | Self::Scheme => "write an address such as http://127.0.0.1:4318",
            Self::Tls => {
                "run an OpenTelemetry Collector on this board or its local network, send to it with http://, and let it forward over TLS"
            }
            Self::Login => "put the header `authorization` into a file, and name it in headers_file",
            Self::Query => "write only http://HOST:PORT/PATH",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<&str, EndpointFault>) {
        let shown = HttpEndpoint::parse(text).map(|endpoint| endpoint.to_string());
        assert_eq!(shown.as_deref().map_err(|fault| *fault), expected, "{text}");
    }

    #[test]
    fn an_endpoint_has_host_port_and_path() {
        check("http://127.0.0.1:4318", Ok("http://127.0.0.1:4318"));
        check("http://collector/otlp/", Ok("http://collector:80/otlp"));
        check("http://[::1]:4318/", Ok("http://[::1]:4318"));
        check("https://collector:4318", Err(EndpointFault::Tls));
        check("grpc://collector:4317", Err(EndpointFault::Scheme));
        check("collector:4318", Err(EndpointFault::Scheme));
        check("127.0.0.1:4318", Err(EndpointFault::Malformed));
        check("http://", Err(EndpointFault::Malformed));
        check("http://me:secret@collector", Err(EndpointFault::Login));
        check("http://collector/?token=1", Err(EndpointFault::Query));
    }

    #[test]
    fn paths_are_added_below() {
        for base in ["http://[::1]:4318", "http://[::1]:4318/"] {
            let traces = HttpEndpoint::parse(base).expect("valid").below("v1/traces");
            let parts = (traces.host(), traces.port(), traces.path(), traces.authority());
            assert_eq!(parts, ("::1", 4318, "/v1/traces", "[::1]:4318".to_owned()));
        }
        let below = HttpEndpoint::parse("http://a/otlp").expect("valid").below("v1/metrics");
        assert_eq!(below.to_string(), "http://a:80/otlp/v1/metrics");
    }
}
