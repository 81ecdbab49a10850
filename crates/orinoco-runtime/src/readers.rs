//! Detection of outputs that have lost their reader. A pipe or a socket loses its reader (`| head -1`), or a terminal goes
//! away; output from then on reaches nobody. That is no fault: the reader has seen enough.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Whether the reader of a pipe, of a socket or of a terminal has gone; never true for a file. The check writes nothing.
/// The peer of a TCP connection has gone when it refuses data: a peer that only closed its sending side may still read.
pub fn reader_is_gone(output: impl AsFd) -> bool {
    // poll(2) reports errors and hangups without a request for them.
    let mut asked = [PollFd::new(&output, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut asked, Some(&now)).is_ok() && asked[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
}

/// Output that may lose its reader. After that, writes to it are discarded.
#[derive(Debug)]
pub(crate) struct ReaderOutput(Arc<Shared>);

/// Reader of a [`ReaderOutput`], watched by the run. It does not keep the output open.
#[derive(Clone, Debug)]
pub(crate) struct OutputReader {
    /// Output that it reads, as messages show it.
    pub(crate) shown: String,
    output: Weak<Shared>,
    gone: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Shared {
    target: Target,
    gone: Arc<AtomicBool>,
}

#[derive(Debug)]
enum Target {
    Stdout,
    File(File),
}

impl ReaderOutput {
    /// Opens standard output, with its reader.
    pub(crate) fn stdout() -> (Self, OutputReader) {
        Self::new(Target::Stdout, "standard output".to_owned())
    }

    /// Wraps an open file, with its reader, if it has one.
    pub(crate) fn file(file: File, path: &Path) -> (Self, OutputReader) {
        Self::new(Target::File(file), path.display().to_string())
    }

    fn new(target: Target, shown: String) -> (Self, OutputReader) {
        let gone = Arc::<AtomicBool>::default();
        let shared = Arc::new(Shared { target, gone: Arc::clone(&gone) });
        let reader = OutputReader { shown, output: Arc::downgrade(&shared), gone };
        (Self(shared), reader)
    }
}

impl OutputReader {
    /// Whether the reader has gone.
    pub(crate) fn is_gone(&self) -> bool {
        // An output that is already closed kept its reader to the end, unless the loss was noticed before.
        self.output.upgrade().is_some_and(|output| output.look()) || self.gone.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn look(&self) -> bool {
        let is_gone = match &self.target {
            Target::Stdout => reader_is_gone(io::stdout()),
            Target::File(file) => reader_is_gone(file),
        };
        if is_gone {
            self.gone.store(true, Ordering::Relaxed);
        }
        self.gone.load(Ordering::Relaxed)
    }

    /// Returns the result `done`, or `discarded` if it failed because the reader has gone. A terminal that has gone returns
    /// an error of its own, as a broken disk does, so that the output is looked at again.
    fn unless_gone<T>(&self, done: io::Result<T>, discarded: T) -> io::Result<T> {
        match done {
            Err(why) if why.kind() == ErrorKind::BrokenPipe => self.gone.store(true, Ordering::Relaxed),
            Err(why) if why.kind() == ErrorKind::Interrupted || !self.look() => return Err(why),
            Err(_) => {}
            done => return done,
        }
        Ok(discarded)
    }
}

impl Write for ReaderOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.gone.load(Ordering::Relaxed) {
            return Ok(bytes.len());
        }
        let written = match &self.0.target {
            Target::Stdout => io::stdout().write(bytes),
            Target::File(file) => (&mut &*file).write(bytes),
        };
        self.0.unless_gone(written, bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = match &self.0.target {
            Target::Stdout => io::stdout().flush(),
            Target::File(file) => (&mut &*file).flush(),
        };
        self.0.unless_gone(flushed, ())
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the test waits for real threads or processes")]
mod tests {
    use super::*;
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::os::fd::OwnedFd;
    use std::os::unix::fs::OpenOptionsExt;
    use std::os::unix::net::UnixStream;
    use std::thread;
    use std::time::Duration;

    fn output(end: impl Into<OwnedFd>) -> (ReaderOutput, OutputReader) {
        ReaderOutput::file(File::from(end.into()), Path::new("test"))
    }

    /// Checks that the loss of a reader is noticed without a write, and that writing then is no fault.
    fn check(writer: impl Into<OwnedFd>, reader: impl Into<OwnedFd>) {
        let (mut output, watched) = output(writer);
        output.write_all(b"seen").expect("it is read");
        assert!(!watched.is_gone());
        drop(reader.into());
        wait_until_gone(|| watched.is_gone());
        output.write_all(b"discarded").expect("no fault");
        output.flush().expect("no fault");
        drop(output);
        assert!(watched.is_gone(), "the output is complete, and was seen to lose its reader");
    }

    /// Waits until the loss is noticed. A child process that another test starts holds the ends of all pipes until it
    /// executes its program.
    fn wait_until_gone(mut is_gone: impl FnMut() -> bool) {
        for _ in 0..1000 {
            if is_gone() {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("its reader has gone, and nobody noticed");
    }

    #[test]
    fn a_reader_that_goes_is_noticed_without_writing() {
        let (reader, writer) = io::pipe().expect("made");
        check(writer, reader);
        let (one, other) = UnixStream::pair().expect("made");
        check(one, other);
    }

    #[test]
    fn a_write_that_nobody_reads_is_no_fault() {
        let (reader, writer) = io::pipe().expect("made");
        let (mut output, watched) = output(writer);
        drop(reader);
        wait_until_gone(|| {
            output.write_all(b"discarded").expect("no fault");
            watched.gone.load(Ordering::Relaxed)
        });
    }

    #[test]
    fn a_peer_that_only_sends_no_more_still_reads() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let peer = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        let (ours, _) = listener.accept().expect("connected");
        let (mut output, watched) = output(ours);
        peer.shutdown(Shutdown::Write).expect("shut");
        output.write_all(b"seen").expect("it is read");
        assert!(!watched.is_gone());
    }

    #[test]
    fn a_terminal_that_goes_away_is_noticed_without_writing() {
        use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&controller).and_then(|()| unlockpt(&controller)).expect("ours");
        let name = ptsname(&controller, Vec::new()).expect("named").into_string().expect("text");
        let mut options = File::options();
        let terminal =
            options.read(true).write(true).custom_flags(libc::O_NOCTTY).open(name).expect("opened");
        check(terminal, controller);
    }

    #[test]
    fn files_keep_their_faults() {
        let full = File::options().write(true).open("/dev/full").expect("Linux has it");
        let (mut output, watched) = ReaderOutput::file(full, Path::new("full"));
        assert!(output.write_all(b"no space").is_err());
        assert!(!watched.is_gone());
        let (mut output, watched) =
            ReaderOutput::file(tempfile::tempfile().expect("made"), Path::new("file"));
        output.write_all(b"kept").expect("written");
        assert!(!watched.is_gone());
    }
}
