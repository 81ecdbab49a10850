//! Measurement of a link between two seats, over an encrypted connection of its own. The seat that connects asks, the other answers.
//!
//! Wire format, version 1: requests of 24 bytes, numbers in little-endian order.
//!
//! | Bytes | Content |
//! |---|---|
//! | 0 | kind: 1 upload (as many bytes as bytes 8-15 say follow; the answer comes when all have arrived), 2 download (the answer is that many bytes), 3 measured results |
//! | 1-7 | 0 |
//! | 8-15 | of 1 and 2 the number of bytes, whose content is ignored; of 3 the round trip in nanoseconds |
//! | 16-23 | of 3 the bytes per second |
//!
//! The answer to 1 and 3 echoes bytes 8-15.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::links::{LinkFigures, SeatLink};
use super::seats::SeatSet;
use super::shared::{Shared, describe};
use crate::clock::Ticks;
use crate::tcp::{Connection, Use};

const REQUEST_BYTES: usize = 24;
const ANSWER_BYTES: usize = 8;
const UPLOAD: u8 = 1;
const DOWNLOAD: u8 = 2;
const FIGURES: u8 = 3;

/// Time until a seat has answered at an address. It is short: the other addresses wait for it.
const CONNECT_TIME: Duration = Duration::from_millis(500);
/// Time for one request. A link of 1 Mb/s needs 0.5 s for the shortest stream.
const REQUEST_TIME: Duration = Duration::from_secs(2);
/// Round trips, of which the median counts.
const ROUND_TRIPS: usize = 9;
/// Shortest and longest stream. Each is twice as long as the one before, until one takes long enough.
const STREAM_MIN: u64 = 64 << 10;
const STREAM_MAX: u64 = 8 << 20;
/// Time after which a stream is long enough: much longer than a round trip, and than the wait for a core.
const STREAM_TIME: Duration = Duration::from_millis(20);
/// Streams of each direction, from the shortest to the longest.
const STREAMS: usize = (STREAM_MAX / STREAM_MIN).ilog2() as usize + 1;
/// Requests of a measurement: round trips, streams in both directions, and the figures.
const REQUESTS_MAX: usize = ROUND_TRIPS + 2 * STREAMS + 1;
/// Bytes that are sent or read at once.
const BLOCK: usize = 64 << 10;

struct Request {
    kind: u8,
    first: u64,
    second: u64,
}

impl Request {
    fn encode(&self) -> [u8; REQUEST_BYTES] {
        let mut bytes = [0; REQUEST_BYTES];
        bytes[0] = self.kind;
        bytes[8..16].copy_from_slice(&self.first.to_le_bytes());
        bytes[16..].copy_from_slice(&self.second.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; REQUEST_BYTES]) -> Self {
        let eight =
            |start: usize| u64::from_le_bytes(bytes[start..start + 8].try_into().expect("eight bytes"));
        Self { kind: bytes[0], first: eight(8), second: eight(16) }
    }
}

/// Measures the link with a lower seat at one of its addresses, and sends that seat the results.
pub(super) fn measure(shared: &Shared, seat: usize, address: SocketAddr) -> SeatLink {
    let link =
        |local, figures| SeatLink { local, peer: address.ip().to_canonical(), figures, is_used: false };
    let attempt = shared.introduction(0, SeatSet::default(), CONNECT_TIME);
    let connection = match attempt.try_dial(Use::Probe, 0, seat, address) {
        Ok(connection) => connection,
        Err(why) => return link(None, Err(describe(&why, address))),
    };
    let local = ends(&connection).map(|(local, _)| local);
    let figures = Probe { connection }.measure();
    link(local, figures.map_err(|why| format!("the measurement at {address} failed: {why}")))
}

/// The seat that measures.
struct Probe {
    connection: Connection,
}

impl Probe {
    fn measure(mut self) -> io::Result<LinkFigures> {
        let mut round_trips = [Duration::ZERO; ROUND_TRIPS];
        for time in &mut round_trips {
            *time = self.upload(0)?;
        }
        round_trips.sort_unstable();
        let round_trip = round_trips[ROUND_TRIPS / 2];
        let out = rate(round_trip, |bytes| self.upload(bytes))?;
        let back = rate(round_trip, |bytes| self.download(bytes))?;
        let figures = LinkFigures { round_trip, bytes_per_second: out.min(back) };
        let nanos = u64::try_from(round_trip.as_nanos()).unwrap_or(u64::MAX);
        self.ask(&Request { kind: FIGURES, first: nanos, second: figures.bytes_per_second })?;
        self.connection.receive_all(&mut [0; ANSWER_BYTES], REQUEST_TIME)?;
        Ok(figures)
    }

    fn ask(&mut self, request: &Request) -> io::Result<()> {
        self.connection.send_all(&request.encode(), REQUEST_TIME)
    }

    fn upload(&mut self, bytes: u64) -> io::Result<Duration> {
        let start = Ticks::now();
        self.ask(&Request { kind: UPLOAD, first: bytes, second: 0 })?;
        send_stream(&mut self.connection, bytes)?;
        self.connection.receive_all(&mut [0; ANSWER_BYTES], REQUEST_TIME)?;
        Ok(Ticks::now().since(start))
    }

    fn download(&mut self, bytes: u64) -> io::Result<Duration> {
        let start = Ticks::now();
        self.ask(&Request { kind: DOWNLOAD, first: bytes, second: 0 })?;
        receive_stream(&mut self.connection, bytes)?;
        Ok(Ticks::now().since(start))
    }
}

/// Bytes per second of the first stream that takes long enough, or of the longest.
fn rate(round_trip: Duration, mut stream: impl FnMut(u64) -> io::Result<Duration>) -> io::Result<u64> {
    let mut bytes = STREAM_MIN;
    loop {
        let time = stream(bytes)?;
        if time >= STREAM_TIME || bytes == STREAM_MAX {
            // Subtract the round trip of the request from the time of the stream.
            let own = time.saturating_sub(round_trip).max(time / 2);
            return Ok((bytes as f64 / own.as_secs_f64().max(1e-9)) as u64);
        }
        bytes *= 2;
    }
}

fn send_stream(connection: &mut Connection, bytes: u64) -> io::Result<()> {
    let block = [0; BLOCK];
    let mut left = bytes;
    while left > 0 {
        let count = left.min(BLOCK as u64);
        connection.send_all(&block[..count as usize], REQUEST_TIME)?;
        left -= count;
    }
    Ok(())
}

fn receive_stream(connection: &mut Connection, bytes: u64) -> io::Result<()> {
    let mut block = [0; BLOCK];
    let mut left = bytes;
    while left > 0 {
        let count = left.min(BLOCK as u64);
        connection.receive_all(&mut block[..count as usize], REQUEST_TIME)?;
        left -= count;
    }
    Ok(())
}

/// Answers the requests of a higher seat. Returns the link that it has measured, or `None` if it did not come to the end.
pub(super) fn answer(mut connection: Connection) -> Option<SeatLink> {
    let (local, peer) = ends(&connection)?;
    for _ in 0..REQUESTS_MAX {
        match answer_one(&mut connection) {
            Ok(None) => {}
            Ok(Some(figures)) => {
                return Some(SeatLink { local: Some(local), peer, figures: Ok(figures), is_used: false });
            }
            Err(_) => return None,
        }
    }
    None
}

fn answer_one(connection: &mut Connection) -> io::Result<Option<LinkFigures>> {
    let mut bytes = [0; REQUEST_BYTES];
    connection.receive_all(&mut bytes, REQUEST_TIME)?;
    let Request { kind, first, second } = Request::decode(&bytes);
    match kind {
        UPLOAD if first <= STREAM_MAX => receive_stream(connection, first)?,
        DOWNLOAD if first <= STREAM_MAX => return send_stream(connection, first).map(|()| None),
        FIGURES => {}
        _ => return Err(ErrorKind::InvalidData.into()),
    }
    connection.send_all(&first.to_le_bytes(), REQUEST_TIME)?;
    let figures = LinkFigures { round_trip: Duration::from_nanos(first), bytes_per_second: second };
    Ok((kind == FIGURES).then_some(figures))
}

/// Ends of a connection: this board's address and the other's.
pub(super) fn ends(connection: &Connection) -> Option<(IpAddr, IpAddr)> {
    let stream = connection.stream();
    let (local, peer) = (stream.local_addr().ok()?, stream.peer_addr().ok()?);
    Some((local.ip().to_canonical(), peer.ip().to_canonical()))
}
