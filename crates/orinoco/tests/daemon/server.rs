//! A daemon that gives one fixed answer, to any number of clients, one after another.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::thread;

use tempfile::TempDir;

/// Status of a synthetic board; no value in it was measured.
pub(crate) const STATUS: &str = include_str!("status.json");

/// Treatment of a connection by the daemon.
#[derive(Clone)]
pub(crate) enum Answer {
    /// Writes these bytes, and closes.
    Bytes(Vec<u8>),
    /// Writes these bytes, and keeps the connection open.
    Unfinished(Vec<u8>),
}

impl Answer {
    /// Answer with an HTTP code and a JSON body.
    pub(crate) fn json(code: &str, body: &str) -> Self {
        let head = format!(
            "HTTP/1.1 {code}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        Self::Bytes((head + body).into_bytes())
    }

    /// Status 200 with this body, sent in chunks.
    pub(crate) fn chunked(body: &str) -> Self {
        let mut text = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_owned();
        for chunk in body.as_bytes().chunks(1000) {
            text.push_str(&format!(
                "{:x}\r\n{}\r\n",
                chunk.len(),
                std::str::from_utf8(chunk).expect("ASCII")
            ));
        }
        Self::Bytes((text + "0\r\n\r\n").into_bytes())
    }

    fn give(&self, mut stream: impl Read + Write + Send + 'static) {
        let mut request = Vec::new();
        let mut byte = [0];
        while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read == 1) {
            request.push(byte[0]);
        }
        let bytes = match self {
            Self::Bytes(bytes) | Self::Unfinished(bytes) => bytes,
        };
        match stream.write_all(bytes) {
            Err(why) if why.kind() != ErrorKind::BrokenPipe => panic!("the client reads: {why}"),
            _ => {}
        }
        if matches!(self, Self::Unfinished(_)) {
            // Waits for the client to give up.
            let _ = stream.read(&mut byte);
        }
    }
}

/// Starts a daemon at a socket in a folder of its own. Its thread ends with the test.
pub(crate) fn serve(answer: Answer) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("orinoco.sock");
    serve_at(&path, answer);
    (folder, path)
}

/// Starts a daemon at a path.
pub(crate) fn serve_at(path: &Path, answer: Answer) {
    let listener = UnixListener::bind(path).expect("a socket");
    thread::spawn(move || listener.incoming().flatten().for_each(|stream| answer.give(stream)));
}

/// Starts a daemon on loopback TCP, and returns its port.
pub(crate) fn serve_tcp(answer: Answer) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    thread::spawn(move || listener.incoming().flatten().for_each(|stream| answer.give(stream)));
    port
}
