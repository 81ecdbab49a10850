//! A rank made by hand, which speaks the protocol of TCP without encryption as far as the test wants it to.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use orinoco_collective::{MessageSettings, Notice, Rendezvous, Security, TcpGroup, TcpSettings};

use crate::{SILENCE, addresses};

/// Bytes of a hello and of its answer, and where the use of the connection and its number or the capabilities are in it.
const HELLO_BYTES: usize = 48;
const USE: usize = 10;
const DETAIL: std::ops::Range<usize> = 28..30;
pub(crate) const NOTICES: u8 = 2;
pub(crate) const MESSAGES: u8 = 3;

/// Rank 1 of 2.
pub(crate) struct Peer {
    pub(crate) notices: TcpStream,
    pub(crate) messages: TcpStream,
}

impl Peer {
    /// Joins the group of the rank 0 that listens at an address.
    pub(crate) fn join(address: SocketAddr) -> Self {
        let hello = hello();
        let greet = |purpose| {
            let mut stream = connect(address);
            stream.write_all(&for_use(hello, purpose)).unwrap();
            stream.read_exact(&mut [0; HELLO_BYTES]).unwrap();
            stream
        };
        Self { notices: greet(NOTICES), messages: greet(MESSAGES) }
    }

    /// Gives signs of life until the handle is dropped.
    pub(crate) fn beat(&self) -> Beat {
        let mut stream = self.notices.try_clone().unwrap();
        repeat(move || {
            thread::sleep(SILENCE / 10);
            stream.write_all(&Notice::Alive { awaited: None, call: None }.encode(0)).is_ok()
        })
    }
}

/// Settings of a group without encryption.
pub(crate) fn plain(deadline: Duration) -> TcpSettings {
    let messages = MessageSettings { deadline, silence: SILENCE, ..MessageSettings::default() };
    TcpSettings { security: Security::Plaintext, messages }
}

/// Something that is done again and again by a thread, until this is dropped.
pub(crate) struct Beat {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

pub(crate) fn repeat(mut work: impl FnMut() -> bool + Send + 'static) -> Beat {
    let is_over = Arc::new(AtomicBool::new(false));
    let thread = thread::spawn({
        let is_over = Arc::clone(&is_over);
        move || while !is_over.load(Ordering::Relaxed) && work() {}
    });
    Beat { is_over, thread: Some(thread) }
}

impl Drop for Beat {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.take().into_iter().for_each(|thread| thread.join().expect("it does not panic"));
    }
}

/// Connects to a rank as soon as it listens.
pub(crate) fn connect(to: SocketAddr) -> TcpStream {
    loop {
        match TcpStream::connect(to) {
            Ok(stream) => return stream,
            Err(_) => thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// An address of this machine at which nobody listens.
pub(crate) fn free_address() -> SocketAddr {
    addresses::free_address(Ipv4Addr::LOCALHOST)
}

/// The hello that a rank 1 of 2 says: a real one's, to a listener that hangs up.
pub(crate) fn hello() -> [u8; HELLO_BYTES] {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let rendezvous = Rendezvous::List(vec![listener.local_addr().unwrap(), free_address()]);
    let rank =
        thread::spawn(move || TcpGroup::join(&rendezvous, 1, 2, plain(Duration::from_secs(5))).is_ok());
    let mut hello = [0; HELLO_BYTES];
    listener.accept().unwrap().0.read_exact(&mut hello).unwrap();
    // It would come again otherwise.
    drop(listener);
    assert!(!rank.join().unwrap(), "nobody answers");
    hello
}

/// Changes a hello to name another use of its connection.
pub(crate) fn for_use(mut hello: [u8; HELLO_BYTES], purpose: u8) -> [u8; HELLO_BYTES] {
    hello[USE] = purpose;
    if purpose == MESSAGES {
        // The number of the connection, in place of the capabilities.
        hello[DETAIL].fill(0);
    }
    let (checked, checksum) = hello.split_at_mut(HELLO_BYTES - 4);
    checksum.copy_from_slice(&crc32c::crc32c(checked).to_le_bytes());
    hello
}
