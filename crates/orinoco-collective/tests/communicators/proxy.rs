//! A proxy between two ranks, which records and changes what they send.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};

use orinoco_collective::{CollectiveError, Communicator, ReduceOp, Rendezvous, TcpGroup, TcpSettings};

use crate::tcp::addresses;

/// Changes bytes on their way to rank 0. It is given the use of their connection, the place of the first in it, and the bytes.
pub(crate) type Change = fn(u8, usize, &mut [u8]);

/// Bytes of a connection, to rank 0 and from it.
pub(crate) type Carried = [Vec<u8>; 2];

/// Place of a connection's use in its hello.
const USE: usize = 10;

/// Two ranks that are connected through a proxy sum `vector`. Returns the bytes of both connections, and the results.
pub(crate) fn through_proxy(
    settings: &TcpSettings,
    vector: &[u64],
    change: Change,
) -> (Vec<Carried>, [Result<Vec<u64>, CollectiveError>; 2]) {
    through_busy_proxy(0, settings, vector, change)
}

/// As [`through_proxy`]. The proxy closes so many connections of rank 1 first, as a lobby that is full of strangers may.
pub(crate) fn through_busy_proxy(
    closed: usize,
    settings: &TcpSettings,
    vector: &[u64],
    change: Change,
) -> (Vec<Carried>, [Result<Vec<u64>, CollectiveError>; 2]) {
    let all = addresses(2);
    let (address, proxy) = proxy(all[0], closed, change);
    let join = |rank, all: Vec<SocketAddr>| {
        let group = TcpGroup::join(&Rendezvous::List(all), rank, 2, settings.clone());
        let mut vector = vector.to_vec();
        group.expect("both join").all_reduce(ReduceOp::Sum, &mut vector).map(|()| vector)
    };
    let results = thread::scope(|scope| {
        let first = scope.spawn(|| join(0, all.clone()));
        let second = scope.spawn(|| join(1, vec![address, all[1]]));
        [first.join().unwrap(), second.join().unwrap()]
    });
    (proxy.join().unwrap(), results)
}

/// Carries the two connections of a pair of ranks to an address until they end. Returns its own address, and the bytes.
fn proxy(to: SocketAddr, closed: usize, change: Change) -> (SocketAddr, JoinHandle<Vec<Carried>>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let thread = thread::spawn(move || {
        (0..closed).for_each(|_| drop(listener.accept().unwrap()));
        let connections: Vec<_> = (0..2)
            .map(|_| {
                let (near, _) = listener.accept().unwrap();
                let far = connect(to);
                let (far_again, near_again) = (far.try_clone().unwrap(), near.try_clone().unwrap());
                let out = thread::spawn(move || carry(near, far, change));
                (out, thread::spawn(move || carry(far_again, near_again, |_, _, _| {})))
            })
            .collect();
        connections.into_iter().map(|(out, back)| [out.join().unwrap(), back.join().unwrap()]).collect()
    });
    (address, thread)
}

/// Connects to a rank as soon as it listens.
pub(crate) fn connect(to: SocketAddr) -> TcpStream {
    loop {
        match TcpStream::connect(to) {
            Ok(stream) => return stream,
            Err(_) => thread::yield_now(),
        }
    }
}

fn carry(mut from: TcpStream, mut into: TcpStream, change: Change) -> Vec<u8> {
    let (mut bytes, mut carried) = ([0; 4096], Vec::new());
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        let purpose = *carried.get(USE).unwrap_or(&bytes[USE]);
        change(purpose, carried.len(), &mut bytes[..count]);
        carried.extend_from_slice(&bytes[..count]);
        if into.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    // It fails if the other end is closed, which is as good.
    let _ = into.shutdown(Shutdown::Write);
    carried
}
