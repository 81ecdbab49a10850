use std::fmt;

use crate::escapes::escape_at;
use crate::fault::Fault;
use crate::names::is_http_video_name;
use crate::secrets::without_secrets;
use crate::settings::{Playback, read_pace, read_switch};

/// Address of an RTSP stream, and the way to reach it. Its debug form hides the password.
#[derive(Clone, PartialEq, Eq)]
pub struct RtspAddress {
    /// URI without user name and password.
    pub location: String,
    /// User name, with escapes decoded.
    pub user: Option<String>,
    /// Password, with escapes decoded.
    pub password: Option<String>,
    /// Transport of the video.
    pub transport: Transport,
}

/// Address of an HTTP stream. Its debug form hides the password.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpAddress {
    /// URI without user name and password.
    pub location: String,
    /// User name, with escapes decoded.
    pub user: Option<String>,
    /// Password, with escapes decoded.
    pub password: Option<String>,
}

/// Transport of an RTSP stream's video.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// The RTSP connection itself: no packet is lost, and firewalls let it through.
    #[default]
    Tcp,
    /// UDP: lost packets are not waited for.
    Udp,
}

impl fmt::Debug for RtspAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RtspAddress({}, {:?})", without_secrets(&self.location), self.transport)
    }
}

impl fmt::Debug for HttpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HttpAddress({})", without_secrets(&self.location))
    }
}

/// Parses the text after `rtsp://`.
pub(crate) fn read_rtsp(scheme: &str, rest: &str) -> Result<RtspAddress, Fault> {
    let server = read_server(rest)?;
    let (path, transport) = split_transport(server.path)?;
    let location = read_location(scheme, server.host, &path)?;
    Ok(RtspAddress { location, user: server.user, password: server.password, transport })
}

/// Kind of an HTTP address.
pub(crate) enum HttpSource {
    /// MJPEG camera. All settings in the address are the camera's own.
    Camera(HttpAddress),
    /// Video file on a web server.
    Video(HttpAddress, Playback),
}

/// Parses the text after `http://`.
pub(crate) fn read_http(scheme: &str, rest: &str) -> Result<HttpSource, Fault> {
    let Server { user, password, host, path } = read_server(rest)?;
    let name = path.split(['?', '#']).next().unwrap_or_default();
    if is_http_video_name(name) {
        let (path, playback) = split_file_settings(path)?;
        let location = read_location(scheme, host, &path)?;
        return Ok(HttpSource::Video(HttpAddress { location, user, password }, playback));
    }
    let location = read_location(scheme, host, path)?;
    Ok(HttpSource::Camera(HttpAddress { location, user, password }))
}

/// The parts of `USER:PASSWORD@HOST:PORT/PATH`.
struct Server<'a> {
    user: Option<String>,
    password: Option<String>,
    host: &'a str,
    path: &'a str,
}

fn read_server(rest: &str) -> Result<Server<'_>, Fault> {
    let authority_end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(authority_end);
    let (login, host) = match authority.rsplit_once('@') {
        Some((login, host)) => (Some(login), host),
        None => (None, authority),
    };
    let (user, password) = match login.map(|login| login.split_once(':').unwrap_or((login, ""))) {
        Some((user, password)) => (read_login(user)?, read_login(password)?),
        None => (None, None),
    };
    Ok(Server { user, password, host, path })
}

fn read_location(scheme: &str, host: &str, path: &str) -> Result<String, Fault> {
    let location = format!("{scheme}://{host}{path}");
    // An empty host would let an HTTP path slip into its place.
    let valid = !host.is_empty()
        && url::Url::parse(&location).is_ok_and(|url| url.host_str().is_some_and(|host| !host.is_empty()));
    if !valid {
        let next = format!(
            "write {scheme}://USER:PASSWORD@HOST:PORT/PATH, and special characters of the password as %XX"
        );
        return Err(Fault::new("it has no valid host and port", next));
    }
    Ok(location)
}

fn read_login(text: &str) -> Result<Option<String>, Fault> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let escaped = byte == b'%';
        bytes.push(if escaped { escape_at(tail)? } else { byte });
        rest = if escaped { &tail[2..] } else { tail };
    }
    let fault =
        || Fault::new("user name or password is not UTF-8", "write special characters as %XX of UTF-8");
    let text = String::from_utf8(bytes).map_err(|_| fault())?;
    Ok((!text.is_empty()).then_some(text))
}

/// Removes Orinoco's `transport` from the query; all other settings belong to the camera.
fn split_transport(path: &str) -> Result<(String, Transport), Fault> {
    let Some((path, query)) = path.split_once('?') else { return Ok((path.to_owned(), Transport::Tcp)) };
    let mut transport = Transport::Tcp;
    let mut kept = Vec::new();
    for setting in query.split('&') {
        match setting.split_once('=') {
            Some(("transport", "tcp")) => transport = Transport::Tcp,
            Some(("transport", "udp")) => transport = Transport::Udp,
            Some(("transport", _)) => {
                return Err(Fault::new("its transport is not known", "write transport=tcp or transport=udp"));
            }
            _ => kept.push(setting),
        }
    }
    let query = kept.join("&");
    let path = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
    Ok((path, transport))
}

/// Removes Orinoco's `loop` and `pace` from the query; all other settings belong to the server.
fn split_file_settings(path: &str) -> Result<(String, Playback), Fault> {
    let mut playback = Playback::default();
    let Some((path, query)) = path.split_once('?') else { return Ok((path.to_owned(), playback)) };
    let mut kept = Vec::new();
    for setting in query.split('&') {
        match setting.split_once('=') {
            Some(("loop", value)) => playback.repeat = read_switch("loop", value)?,
            Some(("pace", value)) => playback.pace = read_pace(value)?,
            _ => kept.push(setting),
        }
    }
    let query = kept.join("&");
    let path = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
    Ok((path, playback))
}
