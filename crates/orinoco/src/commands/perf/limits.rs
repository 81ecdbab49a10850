//! Limits of TCP between ranks 0 and 1: a loop over one connection, without the library.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]

use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use orinoco_collective::{CollectiveError, Communicator, Limits, TcpGroup};

/// Exchanges that are timed, after a tenth as many that are not.
const EXCHANGES: usize = 2_000;
/// Bytes of a transfer.
const TRANSFER_BYTES: usize = 1 << 20;
/// Transfers that are timed, after a tenth as many that are not.
const TRANSFERS: usize = 100;

/// Longest time of an exchange: the other rank has stopped, or the network is cut.
const EXCHANGE_MAX: Duration = Duration::from_secs(2);
/// Attempts to send and receive between two looks at the clock.
const TURNS_PER_LOOK: u64 = 1 << 14;

/// Longest wait for the other rank's connection.
const CONNECT_TIME: Duration = Duration::from_secs(2);

/// Measures between ranks 0 and 1, at an address of rank 0. All ranks must call it; each gets the figures of rank 0, or `None` if
/// there was no connection.
pub(super) fn of_tcp(group: &mut TcpGroup, ip: IpAddr) -> Result<Option<Limits>, CollectiveError> {
    let rank = group.rank();
    let listener = (rank == 0).then(|| TcpListener::bind((ip, 0)).ok()).flatten();
    let address = listener.as_ref().and_then(|listener| listener.local_addr().ok());
    let mut port = [address.map_or(0, |address| u32::from(address.port()))];
    group.broadcast(0, &mut port)?;
    let port = u16::try_from(port[0]).unwrap_or(0);
    let stream = match (rank, listener) {
        _ if group.ranks() == 1 || port == 0 => None,
        (0, Some(listener)) => accept(&listener),
        (1, _) => TcpStream::connect_timeout(&(ip, port).into(), CONNECT_TIME).ok(),
        _ => None,
    };
    let mut found = match stream.map(|stream| measure(&stream)) {
        Some(Ok((exchange, transfer))) => [exchange, transfer],
        _ => [0.0, 0.0],
    };
    group.broadcast(0, &mut found)?;
    let [exchange, transfer] = found;
    let bytes_per_second = TRANSFER_BYTES as f64 / transfer;
    let limits = Limits { exchange: Duration::from_secs_f64(exchange), bytes_per_second };
    Ok((transfer > 0.0).then_some(limits))
}

/// The connection of rank 1, if it comes.
fn accept(listener: &TcpListener) -> Option<TcpStream> {
    listener.set_nonblocking(true).ok()?;
    let start = Instant::now();
    while start.elapsed() < CONNECT_TIME {
        match listener.accept() {
            Ok((stream, _)) => return Some(stream),
            Err(_) => std::thread::yield_now(),
        }
    }
    None
}

/// Median seconds of an exchange of 8 bytes, and of a transfer in both directions.
fn measure(stream: &TcpStream) -> io::Result<(f64, f64)> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    Ok((median(stream, 8, EXCHANGES)?, median(stream, TRANSFER_BYTES, TRANSFERS)?))
}

fn median(stream: &TcpStream, bytes: usize, count: usize) -> io::Result<f64> {
    let (out, mut into) = (vec![1u8; bytes], vec![0u8; bytes]);
    let mut times = Vec::with_capacity(count);
    for number in 0..count + count / 10 {
        // As a measured operation: timed after an exchange of the same kind.
        exchange(stream, &out[..8], &mut into[..8], EXCHANGE_MAX)?;
        let start = Instant::now();
        exchange(stream, &out, &mut into, EXCHANGE_MAX)?;
        if number >= count / 10 {
            times.push(start.elapsed());
        }
    }
    times.sort_unstable();
    Ok(times[count / 2].as_secs_f64())
}

/// Sends and receives as many bytes, and looks for both again and again. Ends with an error if the other end stops for longer than `max`.
fn exchange(mut stream: &TcpStream, out: &[u8], into: &mut [u8], max: Duration) -> io::Result<()> {
    let (mut sent, mut received) = (0, 0);
    let moved = |result: io::Result<usize>| match result {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Err(why) if matches!(why.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(0),
        other => other,
    };
    let start = Instant::now();
    for turn in 1u64.. {
        if sent == out.len() && received == into.len() {
            break;
        }
        // The clock is not read in each turn, which would be measured, too.
        if turn.is_multiple_of(TURNS_PER_LOOK) && start.elapsed() >= max {
            return Err(io::ErrorKind::TimedOut.into());
        }
        if sent < out.len() {
            sent += moved(stream.write(&out[sent..]))?;
        }
        if received < into.len() {
            received += moved(stream.read(&mut into[received..]))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exchange_ends_if_the_other_end_is_silent_or_gone() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let own = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        own.set_nonblocking(true).expect("a socket");
        let (other, _) = listener.accept().expect("a connection");
        let end = || exchange(&own, &[1; 8], &mut [0; 8], Duration::from_millis(20));
        assert_eq!(end().expect_err("it is silent").kind(), io::ErrorKind::TimedOut);
        drop(other);
        let gone = [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset, io::ErrorKind::BrokenPipe];
        assert!(gone.contains(&end().expect_err("it is gone").kind()));
    }
}
