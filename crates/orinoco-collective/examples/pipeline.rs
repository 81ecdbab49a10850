//! A pipeline over two boards: one makes frames and sends them, the other computes a result of each and sends it back. Frames are under
//! way in both directions at the same time.
//!
//!     cargo run --release -p orinoco-collective --example pipeline
//!
//! The boards are two seats of a cluster, here both in this process. When a board fails, the epoch is over: the program would go on without
//! it, and join again.

use std::error::Error;
use std::net::{SocketAddr, TcpListener};
use std::thread;

use orinoco_collective::{
    Cluster, ClusterSettings, CollectiveError, Communicator, Epoch, KeyPair, MemberList, Queue, Seat,
};

const FRAMES: usize = 200;
/// Pixels of a frame.
const PIXELS: usize = 320 * 240;
/// Frames that are sent before the first result must have come.
const IN_FLIGHT: usize = 2;

#[expect(clippy::print_stdout, reason = "an example prints its result")]
fn main() -> Result<(), Box<dyn Error>> {
    let (list, keys) = two_seats()?;
    let boards = keys.map(|key| {
        let list = list.clone();
        thread::spawn(move || -> Result<usize, String> {
            let mut cluster =
                Cluster::open(list, key, ClusterSettings::default()).map_err(|why| why.to_string())?;
            let epoch = cluster.join().map_err(|why| why.to_string())?;
            let run = if cluster.seat() == 0 { camera(epoch) } else { analyser(epoch) };
            run.map_err(|why| why.to_string())
        })
    });
    let [sent, analysed] = boards.map(|board| board.join().map_err(|_| "a board panicked".to_owned()));
    println!("{} frames sent, {} analysed, all results right", sent??, analysed??);
    Ok(())
}

/// The first board: sends frames, and checks the results. A queue runs sends and receives while it makes the next frame.
fn camera(epoch: Epoch) -> Result<usize, Box<dyn Error>> {
    let queue = Queue::new(epoch.group)?;
    let mut results = Vec::new();
    for number in 0..FRAMES {
        let frame = vec![u8::try_from(number % 256)?; PIXELS];
        results.push(queue.start(move |group| group.send(1, &frame).map(|()| 0)));
        if number >= IN_FLIGHT {
            results.push(queue.start(result));
        }
    }
    results.extend((0..IN_FLIGHT).map(|_| queue.start(result)));
    // A send gives 0, a receive gives the sum of a frame's pixels.
    let sums = results.into_iter().map(|pending| pending.wait()).collect::<Result<Vec<u64>, _>>()?;
    let expected: u64 = (0..FRAMES).map(|number| (number % 256 * PIXELS) as u64).sum();
    if sums.iter().sum::<u64>() != expected {
        return Err("a result is wrong".into());
    }
    Ok(FRAMES)
}

fn result(group: &mut impl Communicator) -> Result<u64, CollectiveError> {
    let mut sum = [0];
    group.recv(1, &mut sum).map(|()| sum[0])
}

/// The other board: sums the pixels of each frame.
fn analyser(mut epoch: Epoch) -> Result<usize, Box<dyn Error>> {
    let mut frame = vec![0u8; PIXELS];
    for _ in 0..FRAMES {
        epoch.group.recv(0, &mut frame)?;
        let sum: u64 = frame.iter().map(|pixel| u64::from(*pixel)).sum();
        epoch.group.send(0, &[sum])?;
    }
    Ok(FRAMES)
}

fn two_seats() -> Result<(MemberList, [KeyPair; 2]), Box<dyn Error>> {
    let keys = [KeyPair::generate()?, KeyPair::generate()?];
    let seat = |name: &str, key: &KeyPair| -> Result<Seat, std::io::Error> {
        let address: SocketAddr = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        Ok(Seat { name: name.to_owned(), addresses: vec![address], key: key.public() })
    };
    let seats = vec![seat("gate", &keys[0])?, seat("yard", &keys[1])?];
    Ok((MemberList { name: "example".to_owned(), serial: 1, witness: None, seats }, keys))
}
