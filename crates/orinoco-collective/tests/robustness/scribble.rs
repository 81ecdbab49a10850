//! A process that writes anything into the memory that ranks share: results may be wrong then, but nothing crashes, and no rank waits
//! without end.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::{Duration, Instant};

use orinoco_collective::{CollectiveError, Communicator, ReduceOp, Settings, ShmGroup};
use orinoco_core::Rng;

use crate::peer::repeat;
use crate::process::name;
use crate::{ALLOWANCE, seeds, turn};

const DEADLINE: Duration = Duration::from_millis(300);
/// Bytes of a group's header and of a rank's page, where the numbers are.
const PAGE_BYTES: u64 = 4096;
const RANK_BYTES: u64 = PAGE_BYTES + 4 * (64 << 10);

#[test]
fn numbers_in_shared_memory_may_be_anything() {
    let _turn = turn();
    let (mut errors, seeds) = (0, seeds(12));
    for seed in seeds.clone() {
        let path = name();
        let settings = Settings { deadline: DEADLINE, silence: DEADLINE / 2, single_copy: seed % 2 == 0 };
        thread::scope(|scope| {
            let join = |rank| {
                let path = &path;
                move || ShmGroup::join(path, rank, 2, settings)
            };
            let first = scope.spawn(join(0));
            let file = open(&path);
            let second = scope.spawn(join(1));
            let groups = [first, second].map(|thread| thread.join().unwrap().expect("both join"));
            let _scribbler = scribble(file, seed);
            let ranks = groups.map(|group| scope.spawn(move || operate(group)));
            for rank in ranks {
                errors += usize::from(rank.join().expect("no rank panics"));
            }
        });
    }
    println!("scribbled shared memory: {} seeds, {errors} errors", seeds.end - seeds.start);
    assert!(errors > 0, "nothing was scribbled over");
}

fn open(path: &std::path::Path) -> File {
    loop {
        match OpenOptions::new().write(true).open(path) {
            Ok(file) => return file,
            Err(_) => thread::yield_now(),
        }
    }
}

/// Writes numbers into the header, the ranks' pages, and the lines and slots of messages.
fn scribble(file: File, seed: u64) -> crate::peer::Beat {
    let mut rng = Rng::with_seed(seed);
    let len = file.metadata().unwrap().len();
    repeat(move || {
        let at = match rng.u32(..8) {
            // The word of the first failure, seldom: it ends everything.
            0 if rng.u32(..64) == 0 => 8 * rng.u64(..3),
            1 => PAGE_BYTES + 2 * RANK_BYTES + rng.u64(..len - PAGE_BYTES - 2 * RANK_BYTES - 8),
            _ => PAGE_BYTES + rng.u64(..2) * RANK_BYTES + 8 * rng.u64(..128),
        };
        let number = match rng.u32(..3) {
            0 => rng.u64(..8),
            1 => u64::MAX - rng.u64(..8),
            _ => rng.u64(..),
        };
        file.write_all_at(&number.to_le_bytes(), at).unwrap();
        // Some operations are to succeed in between.
        thread::sleep(Duration::from_micros(rng.u64(..200)));
        true
    })
}

/// Runs operations until one fails, or for some rounds. Returns whether one failed.
fn operate(mut group: ShmGroup) -> bool {
    let start = Instant::now();
    let result = catch_unwind(AssertUnwindSafe(|| rounds(&mut group))).expect("no operation panics");
    assert!(start.elapsed() < DEADLINE * 20 + ALLOWANCE, "it took {:?}", start.elapsed());
    result.is_err()
}

fn rounds(group: &mut ShmGroup) -> Result<(), CollectiveError> {
    for len in [1, 13, 1_000, 30_000, 200_000].into_iter().cycle().take(200) {
        let mut vector = vec![1i64; len];
        group.all_reduce(ReduceOp::Sum, &mut vector)?;
        group.broadcast(0, &mut vector)?;
        match group.rank() {
            0 => group.send(1, &vector)?,
            _ => group.recv(0, &mut vector)?,
        }
    }
    Ok(())
}
