//! A daemon's part of sharing its port: programs on its board register, and the daemon passes accepted TCP sockets to them (`SCM_RIGHTS`).
//! It reads only the routing header of such a connection ([`Target`]). Authentication and everything else is up to the programs.
//!
//! Protocol at the Unix socket (a stream):
//!
//! | From | Message |
//! |---|---|
//! | program | a target, 48 bytes: once |
//! | daemon | one byte: 0 registered, 1 another program has registered for this target, 2 no room for further programs. After 1 and 2 it closes the connection |
//! | daemon | for each connection one byte, 3, with the descriptor of its TCP socket, from which 48 bytes were read |
//!
//! A program ends its registration by closing the connection.

use std::collections::BTreeMap;
use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::socket::wait_for;
use super::target::{TARGET_BYTES, Target};
use crate::clock::{Ticks, pause};

/// Reply to a program: it gets the connections from now on.
pub(super) const REGISTERED: u8 = 0;
/// Reply to a program: another one gets them.
pub(super) const TAKEN: u8 = 1;
/// Reply to a program: there are too many.
pub(super) const FULL: u8 = 2;
/// Content of the message with which a connection is handed over.
const HANDED_OVER: u8 = 3;

/// Most programs that are connected at a time.
const PROGRAMS_MAX: usize = 256;
/// Buffer of the connection with a program, in bytes: a few dozen connections on their way. The system bounds their number for all programs
/// together, so that one program that takes none must not use up the room of the others.
const BUFFER_BYTES: usize = 12 << 10;
/// Time in which a program that has connected is to say what it asks for.
const REQUEST_TIME: Duration = Duration::from_secs(2);
/// Time until programs are accepted again after the system could not.
const EXHAUSTED_TIME: Duration = Duration::from_millis(50);

/// Programs that share a daemon's port.
#[derive(Default)]
pub(crate) struct PortSharing(Mutex<BTreeMap<Target, Arc<UnixStream>>>);

impl PortSharing {
    /// Hands a connection over to the program that has asked for it. Returns whether there is one, and it can take more.
    pub(super) fn hand_over(&self, target: &Target, stream: &TcpStream) -> bool {
        let Some(program) = self.lock().get(target).map(Arc::clone) else { return false };
        let descriptors = [stream.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        let has_room = rights.push(SendAncillaryMessage::ScmRights(&descriptors));
        assert!(has_room, "there is room for one descriptor");
        // A program that does not take its connections must not keep the daemon waiting.
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        sendmsg(&program, &[IoSlice::new(&[HANDED_OVER])], &mut rights, flags).is_ok()
    }

    /// Serves the programs that connect to a Unix socket, until `is_ending`, which is asked every `interval`.
    pub(crate) fn run(&self, listener: &UnixListener, interval: Duration, is_ending: impl Fn() -> bool) {
        // One that blocks would keep the thread from its end.
        if listener.set_nonblocking(true).is_err() {
            return;
        }
        let mut programs: Vec<Program> = Vec::new();
        while !is_ending() {
            let is_exhausted = accept(listener, &mut programs);
            programs.retain_mut(|program| self.serve(program));
            if is_exhausted {
                pause(EXHAUSTED_TIME);
                continue;
            }
            let mut awaited = vec![PollFd::new(listener, PollFlags::IN)];
            awaited.extend(programs.iter().map(|program| PollFd::new(&program.stream, PollFlags::IN)));
            wait_for(&mut awaited, interval);
        }
        self.lock().clear();
    }

    /// Reads what a program has sent, and replies. Returns whether it stays connected.
    fn serve(&self, program: &mut Program) -> bool {
        let stays = self.advance(program).is_some();
        if !stays && let Some(target) = &program.target {
            self.lock().remove(target);
        }
        stays
    }

    /// Reads what a program has sent, and replies. `None` if it has ended, says something else than a request, or nothing for too long.
    fn advance(&self, program: &mut Program) -> Option<()> {
        let mut bytes = [0; TARGET_BYTES];
        // A program says nothing more after its request.
        let rest = if program.target.is_some() { 1 } else { TARGET_BYTES - program.bytes.len() };
        match (&*program.stream).read(&mut bytes[..rest]) {
            Ok(0) => return None,
            Ok(_) if program.target.is_some() => return None,
            Ok(count) => program.bytes.extend_from_slice(&bytes[..count]),
            Err(why) if why.kind() != std::io::ErrorKind::WouldBlock => return None,
            Err(_) => {}
        }
        let is_late = program.target.is_none() && Ticks::now().since(program.since) >= REQUEST_TIME;
        let Ok(request) = <&[u8; TARGET_BYTES]>::try_from(program.bytes.as_slice()) else {
            return (!is_late).then_some(());
        };
        if program.target.is_some() {
            return Some(());
        }
        let target = Target::decode(request)?;
        let mut registered = self.lock();
        let reply = if registered.contains_key(&target) { TAKEN } else { REGISTERED };
        // It is the first byte on this connection, for which there is room.
        (&*program.stream).write_all(&[reply]).ok()?;
        if reply == TAKEN {
            return None;
        }
        registered.insert(target.clone(), Arc::clone(&program.stream));
        program.target = Some(target);
        Some(())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Target, Arc<UnixStream>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A program that is connected.
struct Program {
    stream: Arc<UnixStream>,
    /// Bytes of its request that have come.
    bytes: Vec<u8>,
    since: Ticks,
    /// Its request, if that was granted.
    target: Option<Target>,
}

/// Accepts programs, some at a time. Returns whether the system refuses to.
fn accept(listener: &UnixListener, programs: &mut Vec<Program>) -> bool {
    for _ in 0..PROGRAMS_MAX {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(why) => return why.kind() != std::io::ErrorKind::WouldBlock,
        };
        let is_set_up = stream.set_nonblocking(true).is_ok()
            && set_socket_send_buffer_size(&stream, BUFFER_BYTES).is_ok();
        if programs.len() == PROGRAMS_MAX {
            // One that does not read it learns nothing: it is refused all the same.
            let _ = (&stream).write_all(&[FULL]);
        } else if is_set_up {
            let stream = Arc::new(stream);
            programs.push(Program { stream, bytes: Vec::new(), since: Ticks::now(), target: None });
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::net::{Ipv4Addr, TcpListener};
    use std::path::Path;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::super::program_port::ProgramPort;
    use super::*;
    use crate::JoinError;

    /// Runs a test with a daemon's part, at a socket.
    fn with_sharing(test: impl FnOnce(&PortSharing, &Path)) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("programs.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let (sharing, is_ending) = (PortSharing::default(), AtomicBool::new(false));
        thread::scope(|scope| {
            let daemon = scope.spawn(|| {
                sharing.run(&listener, Duration::from_millis(5), || is_ending.load(Ordering::Relaxed));
            });
            let tested = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(&sharing, &path)));
            is_ending.store(true, Ordering::Relaxed);
            daemon.join().expect("no panic");
            tested.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        });
    }

    fn target(number: usize) -> Target {
        Target::of_rank("group", number).unwrap()
    }

    fn open(path: &Path, target: Target) -> Result<ProgramPort, JoinError> {
        ProgramPort::open(path, target, Duration::from_secs(20))
    }

    /// Both ends of a connection.
    fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let caller = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (caller, listener.accept().unwrap().0)
    }

    fn next(port: &mut ProgramPort) -> TcpStream {
        loop {
            match port.accept() {
                Ok(stream) => return stream,
                Err(why) => assert_eq!(why.kind(), ErrorKind::WouldBlock),
            }
        }
    }

    /// Waits until the daemon's part has noticed something.
    fn eventually(is_so: impl Fn() -> bool) {
        for _ in 0..4000 {
            if is_so() {
                return;
            }
            pause(Duration::from_millis(5));
        }
        panic!("it does not notice");
    }

    #[test]
    fn each_program_gets_the_connections_of_its_group_with_the_bytes_that_follow() {
        with_sharing(|sharing, path| {
            let mut ports = [0, 1].map(|number| open(path, target(number)).unwrap());
            let error = open(path, target(1)).err().expect("it is taken");
            assert!(matches!(error, JoinError::GroupTaken { .. }), "{error}");
            for number in [1, 0, 1] {
                let (mut caller, accepted) = connection();
                caller.write_all(b"hello").unwrap();
                assert!(sharing.hand_over(&target(number), &accepted));
                drop(accepted);
                let mut handed_over = next(&mut ports[number]);
                let mut bytes = [0; 5];
                handed_over.read_exact(&mut bytes).unwrap();
                assert_eq!(&bytes, b"hello");
            }
            assert!(!sharing.hand_over(&target(2), &connection().1), "nobody asked for it");
            drop(ports);
            eventually(|| sharing.lock().is_empty());
            open(path, target(1)).expect("it is free again");
        });
    }

    #[test]
    fn a_program_that_takes_nothing_keeps_nobody_waiting() {
        with_sharing(|sharing, path| {
            let (idle, mut other) = (open(path, target(0)).unwrap(), open(path, target(1)).unwrap());
            let (_caller, accepted) = connection();
            let taken = (0..100_000).take_while(|_| sharing.hand_over(&target(0), &accepted)).count();
            assert!((1..100_000).contains(&taken), "{taken}");
            assert!(sharing.hand_over(&target(1), &accepted), "another program gets its connections");
            next(&mut other);
            drop(idle);
        });
    }

    #[test]
    fn what_is_no_request_ends_its_connection_and_no_other() {
        with_sharing(|sharing, path| {
            let _port = open(path, target(0)).unwrap();
            let mut damaged = target(1).encode();
            damaged[20] ^= 1;
            let twice = [target(2).encode(), target(3).encode()].concat();
            for bytes in [&[b'x'; 48][..], &damaged, &twice] {
                let mut stranger = UnixStream::connect(path).unwrap();
                stranger.write_all(bytes).unwrap();
                let mut replies = Vec::new();
                // Something was left unread.
                let _ = stranger.read_to_end(&mut replies);
                assert!(replies.len() <= 1, "{replies:?}");
            }
            let mut silent = UnixStream::connect(path).unwrap();
            silent.write_all(&target(4).encode()[..20]).unwrap();
            assert_eq!(silent.read(&mut [0]).unwrap(), 0, "it is not waited for without end");
            eventually(|| sharing.lock().len() == 1);
            assert!(sharing.hand_over(&target(0), &connection().1));
        });
    }

    #[test]
    fn a_program_asks_the_next_daemon_when_its_own_has_ended() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("programs.sock");
        let start = |is_ending: &AtomicBool, body: &mut dyn FnMut(&PortSharing)| {
            let listener = UnixListener::bind(&path).unwrap();
            let sharing = PortSharing::default();
            thread::scope(|scope| {
                scope.spawn(|| {
                    sharing.run(&listener, Duration::from_millis(5), || is_ending.load(Ordering::Relaxed));
                });
                body(&sharing);
                is_ending.store(true, Ordering::Relaxed);
            });
            std::fs::remove_file(&path).unwrap();
        };
        let mut port = None;
        start(&AtomicBool::new(false), &mut |_| port = Some(open(&path, target(0)).unwrap()));
        let mut port = port.unwrap();
        for _ in 0..3 {
            let error = port.accept().expect_err("no daemon");
            assert_ne!(error.kind(), ErrorKind::WouldBlock);
        }
        start(&AtomicBool::new(false), &mut |sharing| {
            while port.accept().is_err_and(|why| why.kind() != ErrorKind::WouldBlock) {}
            assert!(sharing.hand_over(&target(0), &connection().1));
            next(&mut port);
        });
        let error = open(&path, target(0)).err().expect("no daemon");
        assert!(matches!(error, JoinError::Daemon { .. }), "{error}");
    }

    #[test]
    fn one_program_too_many_is_told_so_and_gets_its_turn() {
        with_sharing(|sharing, path| {
            let mut ports: Vec<ProgramPort> =
                (0..PROGRAMS_MAX).map(|number| open(path, target(number)).unwrap()).collect();
            let one_more = target(PROGRAMS_MAX);
            let error = ProgramPort::open(path, one_more.clone(), Duration::from_millis(50)).err().unwrap();
            let JoinError::Daemon { source, .. } = &error else { panic!("{error}") };
            assert_eq!(source.kind(), ErrorKind::TimedOut);
            thread::scope(|scope| {
                let waiting = scope.spawn(|| open(path, one_more.clone()).expect("room"));
                ports.pop();
                let mut port = waiting.join().unwrap();
                let (_caller, accepted) = connection();
                assert!(sharing.hand_over(&one_more, &accepted));
                next(&mut port);
            });
        });
    }

    #[test]
    fn a_daemon_that_does_not_answer_is_not_waited_for_beyond_the_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("programs.sock");
        // Its backlog fills up, too.
        let _silent = UnixListener::bind(&path).unwrap();
        let start = Ticks::now();
        for number in 0..200 {
            let opened = ProgramPort::open(&path, target(number), Duration::from_millis(5));
            let error = opened.err().expect("no answer");
            let JoinError::Daemon { source, .. } = &error else { panic!("{error}") };
            assert_eq!(source.kind(), ErrorKind::TimedOut, "{number}");
        }
        assert!(Ticks::now().since(start) < Duration::from_secs(20));
    }
}
