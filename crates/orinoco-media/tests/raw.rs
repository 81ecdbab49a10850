//! Tests raw video from readers and from the real standard input.

#![expect(clippy::disallowed_methods, reason = "the test waits for real threads or processes")]

use std::io::{self, Cursor, Read, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use orinoco_core::{Clock, ColorMatrix, ColorRange, Diagnosis, FrameDesc, PixelFormat, codes};
use orinoco_media::{FrameMemory, RawSource, open};
use orinoco_pipeline::{MonotonicClock, Poll, Source, SourceError};
use orinoco_uri::{SourceKind, SourceUri};

/// Environment variable that is set for the process whose standard input is tested.
const CHILD: &str = "ORINOCO_TEST_STDIN";

fn clock() -> Arc<dyn Clock> {
    Arc::new(MonotonicClock::default())
}

fn source(uri: &str, reader: impl Read + Send + 'static) -> RawSource {
    let uri = SourceUri::parse(uri).unwrap_or_else(|fault| panic!("{fault}"));
    let SourceKind::Stdin(video) = *uri.kind() else { panic!("{uri} is raw video") };
    RawSource::from_reader(Box::new(reader), video, "pipe", clock())
}

/// Descriptor and bytes of each frame, and the fault with which the source ended.
type SourceOutput = (Vec<(FrameDesc, Vec<u8>)>, Option<Diagnosis>);

fn read(source: &mut dyn Source) -> SourceOutput {
    let begin = Instant::now();
    let mut frames = Vec::new();
    source.open().expect("it opens");
    loop {
        assert!(begin.elapsed() < Duration::from_secs(20), "no end after {} frames", frames.len());
        match source.next(Duration::from_millis(50)) {
            Ok(Poll::Frame(frame)) => {
                frames.push((frame.desc, frame.view().packed_rows().flatten().copied().collect()));
            }
            Ok(Poll::Pending | Poll::Waiting) => {}
            Ok(Poll::End) => return (frames, None),
            Err(SourceError::Permanent(fault)) => return (frames, Some(fault)),
            Err(error) => panic!("{error:?} is transient"),
        }
    }
}

/// Makes bytes that differ from position to position.
fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|place| (place * 7 + place / 251) as u8).collect()
}

#[test]
fn each_format_comes_frame_by_frame() {
    for (name, format, length) in [
        ("i420", PixelFormat::I420, 35 + 2 * 12),
        ("nv12", PixelFormat::Nv12, 35 + 24),
        ("rgb", PixelFormat::Rgb, 105),
        ("bgr", PixelFormat::Bgr, 105),
        ("gray8", PixelFormat::Gray8, 35),
    ] {
        let input = bytes(3 * length);
        let uri = format!("stdin://?format={name}&width=7&height=5&fps=50");
        let (frames, fault) = read(&mut source(&uri, Cursor::new(input.clone())));
        assert_eq!((frames.len(), fault.map(|fault| fault.to_string())), (3, None), "{name}");
        for (number, (desc, seen)) in frames.iter().enumerate() {
            assert_eq!((desc.format, desc.width, desc.height), (format, 7, 5));
            assert_eq!(desc.pts.0, number as u64 * 20_000_000);
            assert!(seen == &input[number * length..][..length], "{name}, frame {number}");
        }
    }
}

/// Reader that returns varying amounts of bytes, as pipes do.
struct Crumbs(Cursor<Vec<u8>>, usize);

impl Read for Crumbs {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.1 = self.1 % 5 + 1;
        match self.1 {
            2 => Err(io::ErrorKind::Interrupted.into()),
            3 => Err(io::ErrorKind::WouldBlock.into()),
            most => {
                let length = buffer.len().min(most);
                self.0.read(&mut buffer[..length])
            }
        }
    }
}

#[test]
fn crumbs_make_whole_frames() {
    let input = bytes(4 * 59);
    let crumbs = Crumbs(Cursor::new(input.clone()), 0);
    let (frames, fault) = read(&mut source("stdin://?format=i420&width=7&height=5", crumbs));
    assert!(fault.is_none(), "{fault:?}");
    assert_eq!(frames.iter().flat_map(|(_, seen)| seen.clone()).collect::<Vec<_>>(), input);
    let text =
        [&b"YUV4MPEG2 W7 H5 F25:1\n"[..], b"FRAME\n", &input[..59], b"FRAME Ip\n", &input[59..118]].concat();
    let (frames, fault) = read(&mut source("stdin://?format=y4m", Crumbs(Cursor::new(text), 0)));
    assert!(fault.is_none(), "{fault:?}");
    assert_eq!(frames.iter().flat_map(|(_, seen)| seen.clone()).collect::<Vec<_>>(), &input[..118]);
}

/// Checks an input that ends with a fault: the number of frames before it, its code, and a part of its cause.
fn check_fault(uri: &str, input: &[u8], frames: usize, code: &str, cause: &str) {
    let (seen, fault) = read(&mut source(uri, Cursor::new(input.to_vec())));
    let fault = fault.unwrap_or_else(|| panic!("{uri}: {} frames and no fault", seen.len()));
    assert_eq!((seen.len(), fault.code.id), (frames, code), "{fault}");
    assert!(fault.cause.contains(cause) && !fault.to_string().contains('\n'), "{fault}");
}

#[test]
fn inputs_that_end_badly_are_told() {
    let raw = "stdin://?format=rgb&width=4&height=2";
    check_fault(raw, &[], 0, codes::SOURCE_NO_VIDEO.id, "before the first frame");
    check_fault(raw, &[0; 5], 0, codes::SOURCE_TRUNCATED.id, "(number 0) has 5 of 24 bytes");
    check_fault(raw, &[0; 71], 2, codes::SOURCE_TRUNCATED.id, "(number 2) has 23 of 24 bytes");
    let y4m = "stdin://?format=y4m";
    let head = "YUV4MPEG2 W4 H2 F30:1 Ip C420jpeg\n";
    let with = |rest: &[u8]| [head.as_bytes(), rest].concat();
    check_fault(y4m, &[], 0, codes::SOURCE_NO_VIDEO.id, "before the first frame");
    check_fault(y4m, &with(b""), 0, codes::SOURCE_NO_VIDEO.id, "before the first frame");
    check_fault(y4m, &with(b"FRAME\n"), 0, codes::SOURCE_TRUNCATED.id, "0 of 12 bytes");
    check_fault(
        y4m,
        &with(b"FRAME\n123456789012FRAME\n1234"),
        1,
        codes::SOURCE_TRUNCATED.id,
        "4 of 12 bytes",
    );
    check_fault(
        y4m,
        &with(b"FRAME\n123456789012345678"),
        1,
        codes::SOURCE_DECODE.id,
        "does not begin with FRAME",
    );
    check_fault(y4m, &[7; 5000], 0, codes::SOURCE_OPEN.id, "not Y4M");
    check_fault(y4m, b"YUV4MPEG2 W4 F30:1\nFRAME\n", 0, codes::SOURCE_OPEN.id, "no width and height");
    check_fault(y4m, b"YUV4MPEG2 W99999 H2\nFRAME\n", 0, codes::SOURCE_OPEN.id, "`99999`");
    check_fault(y4m, b"YUV4MPEG2 W4 H2 C444\nFRAME\n", 0, codes::SOURCE_OPEN.id, "`444`");
    check_fault(y4m, b"YUV4MPEG2 W4 H2 C420p10\nFRAME\n", 0, codes::SOURCE_OPEN.id, "`420p10`");
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("the cable is out"))
        }
    }
    let (_, fault) = read(&mut source(raw, Broken));
    let fault = fault.expect("it cannot be read");
    assert!(fault.code.id == codes::SOURCE_DECODE.id && fault.cause.contains("cable"), "{fault}");
}

#[test]
fn y4m_describes_itself() {
    let head = |text: &str| {
        let input = [text.as_bytes(), b"\nFRAME\n", &bytes(6 * 1080 * 8)].concat();
        let mut source = source("stdin://?format=y4m", Cursor::new(input));
        source.open().expect("it opens");
        let Ok(Poll::Frame(frame)) = source.next(Duration::from_secs(5)) else { panic!("{text}") };
        frame.desc
    };
    let ffmpeg = head("YUV4MPEG2 W5 H3 F30000:1001 Ip A1:1 C420jpeg XYSCSS=420JPEG XCOLORRANGE=LIMITED");
    assert_eq!((ffmpeg.format, ffmpeg.width, ffmpeg.height), (PixelFormat::I420, 5, 3));
    assert_eq!((ffmpeg.matrix, ffmpeg.range), (ColorMatrix::Bt601, ColorRange::Limited));
    let full = head("YUV4MPEG2 W16 H1080 F25:1 C420mpeg2 XCOLORRANGE=FULL");
    assert_eq!((full.matrix, full.range), (ColorMatrix::Bt709, ColorRange::Full));
    let grey = head("YUV4MPEG2 W16 H8 F0:0 Cmono");
    assert_eq!((grey.format, grey.range), (PixelFormat::Gray8, ColorRange::Full));
}

/// Reader that returns the bytes sent to it, and waits for more as long as the sender exists.
struct Pipe(Receiver<Vec<u8>>, Vec<u8>);

fn pipe() -> (SyncSender<Vec<u8>>, Pipe) {
    let (sender, receiver) = sync_channel(64);
    (sender, Pipe(receiver, Vec::new()))
}

impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.1.is_empty() {
            let Ok(next) = self.0.recv() else { return Ok(0) };
            self.1 = next;
        }
        let length = buffer.len().min(self.1.len());
        buffer[..length].copy_from_slice(&self.1[..length]);
        self.1.drain(..length);
        Ok(length)
    }
}

#[test]
fn a_silent_input_keeps_nobody_and_loses_nothing_over_a_reopening() {
    let (sender, reader) = pipe();
    let mut source = source("stdin://?format=gray8&width=4&height=1&fps=10", reader);
    source.open().expect("it opens");
    for wait in [0, 20, 70] {
        let begin = Instant::now();
        assert!(matches!(source.next(Duration::from_millis(wait)), Ok(Poll::Pending)));
        assert!(begin.elapsed() < Duration::from_millis(wait + 60), "{:?}", begin.elapsed());
    }
    let next = |source: &mut RawSource| match source.next(Duration::from_secs(5)) {
        Ok(Poll::Frame(frame)) => (frame.view().plane(0).row(0)[0], frame.desc.pts.0 / 1_000_000),
        other => panic!("{other:?}"),
    };
    // Half a frame before the source counts as stalled, the other half after.
    sender.send(vec![1, 1, 1, 1, 2, 2]).expect("it is read");
    assert_eq!(next(&mut source), (1, 0));
    source.close();
    source.open().expect("it opens again");
    assert!(matches!(source.next(Duration::from_millis(20)), Ok(Poll::Pending)));
    sender.send(vec![2, 2, 3, 3, 3, 3]).expect("it is read");
    assert_eq!((next(&mut source), next(&mut source)), ((2, 100), (3, 200)));
    drop(sender);
    assert!(matches!(source.next(Duration::from_secs(5)), Ok(Poll::End)));
    assert!(matches!(source.next(Duration::ZERO), Ok(Poll::End)));
}

/// Endless reader that counts the bytes taken.
struct Endless(Arc<AtomicU64>);

impl Read for Endless {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        Ok(buffer.len())
    }
}

#[test]
fn a_slow_reader_holds_the_input_back() {
    let taken = Arc::new(AtomicU64::new(0));
    let mut source = source("stdin://?format=gray8&width=1000&height=10", Endless(Arc::clone(&taken)));
    source.open().expect("it opens");
    std::thread::sleep(Duration::from_millis(200));
    let before = taken.load(Ordering::Relaxed);
    assert!(before <= 20 * 10_000, "{before} bytes are read ahead");
    let mut held = Vec::new();
    while let Ok(Poll::Frame(frame)) = source.next(Duration::from_millis(100)) {
        held.push(frame);
        assert!(held.len() < 100, "there is no bound");
    }
    assert_eq!(held.len(), 16, "held frames hold the source back");
    let poll = source.next(Duration::from_millis(20));
    assert!(matches!(poll, Ok(Poll::Waiting)), "{poll:?} blames the input");
    drop(held);
    for _ in 0..5000 {
        assert!(matches!(source.next(Duration::from_secs(5)), Ok(Poll::Frame(_))));
    }
    drop(source);
    std::thread::sleep(Duration::from_millis(300));
    let end = taken.load(Ordering::Relaxed);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(end, taken.load(Ordering::Relaxed), "the thread ends with its source");
}

#[test]
fn pace_keeps_real_time() {
    let begin = Instant::now();
    let uri = "stdin://?format=gray8&width=4&height=1&fps=50&pace=pts";
    let (frames, fault) = read(&mut source(uri, Cursor::new(bytes(24))));
    assert!(fault.is_none() && frames.len() == 6, "{fault:?}");
    assert!((95..600).contains(&begin.elapsed().as_millis()), "{:?}", begin.elapsed());
    let mut source = source("stdin://?format=gray8&width=4&height=1&fps=1&pace=pts", Cursor::new(bytes(8)));
    source.open().expect("it opens");
    assert!(matches!(source.next(Duration::from_secs(5)), Ok(Poll::Frame(_))));
    let poll = source.next(Duration::from_millis(200));
    assert!(matches!(poll, Ok(Poll::Waiting)), "the second frame is due after a second: {poll:?}");
}

#[test]
fn the_real_standard_input_is_read_by_one_stream() {
    let program = std::env::current_exe().expect("it has a path");
    let mut child = Command::new(program)
        .args(["--exact", "the_process", "--ignored", "--nocapture"])
        .env(CHILD, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("it starts");
    child.stdin.take().expect("it is piped").write_all(&bytes(59 * 3)).expect("it reads");
    assert!(child.wait().expect("it ends").success());
}

#[test]
#[ignore = "the process whose standard input is read: another test starts it"]
fn the_process() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let uri = SourceUri::parse("stdin://?format=i420&width=7&height=5").expect("it is valid");
    let open = || open(&uri, "test", FrameMemory::Host, 4, clock()).expect("there is nothing to check");
    let (mut first, mut second) = (open(), open());
    let (frames, fault) = read(&mut *first);
    assert!(fault.is_none(), "{fault:?}");
    assert_eq!(frames.into_iter().flat_map(|(_, seen)| seen).collect::<Vec<_>>(), bytes(59 * 3));
    let Err(SourceError::Permanent(fault)) = second.open() else { panic!("it opens twice") };
    assert!(fault.code.id == codes::SOURCE_OPEN.id && fault.cause.contains("another stream"), "{fault}");
}
