//! Tests RTSP with a real server, which runs as its own process so that it can be killed.

#![expect(clippy::disallowed_methods, reason = "the test waits for real threads or processes")]
#![cfg(feature = "gstreamer")]

mod common;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{gst_source, note, read_from, run};
use gstreamer as gst;
use gstreamer::glib;
use gstreamer_rtsp_server as server;
use gstreamer_rtsp_server::prelude::*;
use orinoco_core::{PtsClock, codes};
use orinoco_pipeline::{Poll, Source, SourceError};

/// Environment variables with the port of the server's process, and the file that it writes when it is ready.
const PORT: &str = "ORINOCO_TEST_RTSP_PORT";
const READY: &str = "ORINOCO_TEST_RTSP_READY";
/// Maximum time of opening: the limit of the source, and a little for a busy machine.
const OPEN_MAX: Duration = Duration::from_millis(6_500);

/// Server on loopback; killed when dropped.
struct Server {
    child: Child,
    port: u16,
    folder: tempfile::TempDir,
}

impl Server {
    /// Starts the server on `port`, or on any free one for 0.
    fn start(port: u16) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let ready = folder.path().join("port");
        let program = std::env::current_exe().expect("it has a path");
        let child = Command::new(program)
            .args(["--exact", "the_server", "--ignored", "--nocapture"])
            .env(PORT, port.to_string())
            .env(READY, &ready)
            .stdout(Stdio::null())
            .spawn()
            .expect("it starts");
        let mut server = Self { child, port, folder };
        let begin = Instant::now();
        loop {
            if let Some(port) = fs::read_to_string(&ready).ok().and_then(|text| text.parse().ok()) {
                server.port = port;
                return server;
            }
            assert!(begin.elapsed() < Duration::from_secs(20), "no server in {:?}", server.folder);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn uri(&self, path: &str) -> String {
        format!("rtsp://127.0.0.1:{}{path}", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "the server's process: the other tests start it"]
fn the_server() {
    let (Ok(port), Some(ready)) = (std::env::var(PORT), std::env::var_os(READY).map(PathBuf::from)) else {
        return;
    };
    gst::init().expect("GStreamer starts");
    let server = server::RTSPServer::new();
    server.set_address("127.0.0.1");
    server.set_service(&port);
    let video = "video/x-raw,width=320,height=240,framerate=25/1 ! x264enc tune=zerolatency key-int-max=10 \
                 speed-preset=ultrafast ! rtph264pay name=pay0 pt=96";
    // The server unlinks streams that nobody requested. Without the tee that would be an error, and end the video as
    // well.
    let sound = "audiotestsrc is-live=true ! tee allow-not-linked=true ! alawenc ! rtppcmapay";
    let rare_keys = video.replace("key-int-max=10", "key-int-max=50");
    // So short that missing a key frame at the beginning would leave little of it.
    let only_keys = video.replace("key-int-max=10", "key-int-max=1");
    for (path, launch) in [
        ("/shared", format!("( videotestsrc is-live=true pattern=ball ! {rare_keys} )")),
        ("/ball", format!("( videotestsrc is-live=true pattern=ball ! {video} )")),
        ("/short", format!("( videotestsrc is-live=true num-buffers=30 ! {only_keys} )")),
        ("/sound", format!("( {sound} name=pay0 pt=8 )")),
        ("/both", format!("( videotestsrc is-live=true ! {video} {sound} name=pay1 pt=8 )")),
    ] {
        let factory = server::RTSPMediaFactory::new();
        factory.set_launch(&launch);
        factory.set_shared(path == "/shared");
        server.mount_points().expect("a server has mount points").add_factory(path, factory);
    }
    let _keep = server.attach(None).expect("the port is free");
    let unfinished = ready.with_extension("new");
    fs::write(&unfinished, server.bound_port().to_string()).expect("the folder is writable");
    fs::rename(&unfinished, &ready).expect("the folder is writable");
    glib::MainLoop::new(None, false).run();
}

#[test]
fn frames_arrive_over_tcp_and_udp() {
    let server = Server::start(0);
    for path in ["/ball", "/ball?transport=udp", "/both"] {
        let mut source = gst_source(&server.uri(path));
        let begin = Instant::now();
        let mut first = None;
        let reading = read_from(&mut source, 20, |frame| {
            first.get_or_insert(begin.elapsed());
            assert!(frame.desc.clock == PtsClock::Arrival && frame.desc.width == 320);
            (frame.desc.pts.0, frame.decode)
        });
        assert!(reading.fault.is_none(), "{:?}", reading.fault);
        note(&format!("{path}: first frame after {first:?}, at {} ms", reading.frames[0].0 / 1_000_000));
        assert_eq!(reading.frames.len(), 20);
        assert!(reading.frames.windows(2).all(|pair| pair[0].0 < pair[1].0), "{:?}", reading.frames);
        assert!(reading.frames[19].0 < 5_000_000_000, "{:?}", reading.frames);
        assert!(reading.frames.iter().all(|(_, decode)| decode.is_some()));
        assert_eq!(source.frames_lent(), 0);
    }
}

#[test]
fn a_stream_joined_between_key_frames_begins_with_a_whole_frame() {
    let server = Server::start(0);
    let mut first = gst_source(&server.uri("/shared"));
    first.open().expect("it opens");
    // Key frames come every 2 s, so the second client joins between two.
    let mut shown = 0;
    while shown < 15 {
        shown += usize::from(matches!(first.next(Duration::from_secs(1)), Ok(Poll::Frame(_))));
    }
    let reading = read_from(&mut gst_source(&server.uri("/shared")), 3, |frame| {
        let luma = frame.view().plane(0);
        let sum: u64 = (0..luma.rows()).flat_map(|row| luma.row(row)).map(|value| u64::from(*value)).sum();
        (sum / (320 * 240), frame.lost)
    });
    assert!(reading.fault.is_none(), "{:?}", reading.fault);
    note(&format!("mean luma and frames left out: {:?}", reading.frames));
    // A white ball on black; frames without their key frame are grey.
    assert!(reading.frames.iter().all(|(mean, _)| *mean < 40), "{:?}", reading.frames);
    first.close();
}

/// Opens a source that cannot be opened. The fault must be transient, within the time limit, and contain `cause`.
fn check_unreachable(uri: &str, cause: &str) {
    let mut source = gst_source(uri);
    let begin = Instant::now();
    let error = source.open().expect_err("it cannot be reached");
    let took = begin.elapsed();
    note(&format!("{:?} after {took:?}", error.diagnosis()));
    assert!(took < OPEN_MAX, "{took:?}");
    let SourceError::Transient(fault) = error else { panic!("{error:?} is permanent") };
    assert_eq!(fault.code.id, codes::SOURCE_UNREACHABLE.id);
    assert!(fault.cause.contains(cause), "{fault}");
    assert!(!fault.to_string().contains("hunter2") && fault.to_string().len() < 250, "{fault}");
}

#[test]
fn a_port_that_nobody_listens_on() {
    let port =
        TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("it binds").port();
    check_unreachable(&format!("rtsp://admin:hunter2@127.0.0.1:{port}/x"), "cannot connect");
}

#[test]
fn a_server_that_accepts_and_never_answers() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("it binds");
    let port = listener.local_addr().expect("it is bound").port();
    check_unreachable(&format!("rtsp://admin:hunter2@127.0.0.1:{port}/x"), "no video within 5 s");
}

/// Starts a server that answers each request with `status`. Returns its port.
fn canned(status: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("it binds");
    let port = listener.local_addr().expect("it is bound").port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            std::thread::spawn(move || {
                let mut request = [0; 4096];
                while let Ok(read @ 1..) = stream.read(&mut request) {
                    let text = String::from_utf8_lossy(&request[..read]).into_owned();
                    let number = text.lines().find_map(|line| line.strip_prefix("CSeq: ")).unwrap_or("1");
                    let answer = format!("RTSP/1.0 {status}\r\nCSeq: {}\r\n\r\n", number.trim());
                    if stream.write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    port
}

#[test]
fn servers_that_refuse() {
    let refusing = "401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"camera\"";
    for (status, cause) in [
        (refusing, "user name and password"),
        ("404 Not Found", "no stream at this path"),
        ("500 Internal Server Error", "offered no video stream"),
        ("", "offered no video stream"),
        ("nonsense\0\u{1}", "offered no video stream"),
    ] {
        let port = canned(status);
        check_unreachable(&format!("rtsp://admin:hunter2@127.0.0.1:{port}/x"), cause);
    }
}

#[test]
fn servers_without_what_is_asked_for() {
    let server = Server::start(0);
    check_unreachable(&server.uri("/nothing"), "no stream at this path");
    let mut source = gst_source(&server.uri("/sound"));
    let error = source.open().expect_err("it has no video");
    let SourceError::Permanent(fault) = error else { panic!("{error:?} is transient") };
    assert_eq!(fault.code.id, codes::SOURCE_NO_VIDEO.id, "{fault}");
}

#[test]
fn a_server_that_ends_the_stream() {
    let server = Server::start(0);
    let reading = read_from(&mut gst_source(&server.uri("/short")), usize::MAX, |frame| frame.lost);
    let fault = reading.fault.expect("the stream ended");
    note(&format!("{} frames, {:?} left out, then {fault}", reading.frames.len(), reading.frames.first()));
    assert_eq!(fault.code.id, codes::SOURCE_UNREACHABLE.id);
    assert!(reading.frames.len() > 15, "{}", reading.frames.len());
}

#[test]
fn opening_and_closing_leaves_nothing_behind() {
    let server = Server::start(0);
    let mut source = gst_source(&server.uri("/ball"));
    let mut counts = Vec::new();
    for _ in 0..6 {
        source.open().expect("it opens");
        while !matches!(source.next(Duration::from_millis(100)).expect("it lives"), Poll::Frame(_)) {}
        let begin = Instant::now();
        source.close();
        assert!(begin.elapsed() < Duration::from_secs(1), "closing took {:?}", begin.elapsed());
        counts.push(common::threads());
    }
    note(&format!("threads after closing: {counts:?}"));
    assert_eq!(source.frames_lent(), 0);
}

#[test]
fn a_server_that_is_killed_and_restarted_is_seen_again() {
    let server = Server::start(0);
    let port = server.port;
    let running = run(&server.uri("/ball"), Duration::from_secs(3));
    running.wait(Instant::now(), 20, Duration::from_secs(20));
    drop(server);
    // Frames that were already sent still arrive.
    std::thread::sleep(Duration::from_millis(300));
    let down = Instant::now();
    std::thread::sleep(Duration::from_millis(700));
    let _server = Server::start(port);
    let up = Instant::now();
    let back = running.wait(down, 20, Duration::from_secs(20));
    note(&format!("first frame {:?} after the server was up again", back.saturating_duration_since(up)));
    assert!(back < up + Duration::from_secs(5));
    running.end();
}

#[test]
fn a_server_that_falls_silent_is_stalled_and_seen_again() {
    let server = Server::start(0);
    let running = run(&server.uri("/ball"), Duration::from_secs(1));
    running.wait(Instant::now(), 20, Duration::from_secs(20));
    let signal = |name: &str| {
        let status = Command::new("kill").args([name, &server.child.id().to_string()]).status();
        assert!(status.expect("kill is there").success());
    };
    signal("-STOP");
    std::thread::sleep(Duration::from_millis(2_500));
    signal("-CONT");
    let awake = Instant::now();
    let back = running.wait(awake, 20, Duration::from_secs(20));
    note(&format!("first frame {:?} after the server went on", back - awake));
    assert!(running.states().iter().any(|text| text.starts_with("stalled")));
    running.end();
}

#[test]
fn a_stop_is_heard_while_connecting() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("it binds");
    let port = listener.local_addr().expect("it is bound").port();
    let running = run(&format!("rtsp://127.0.0.1:{port}/x"), Duration::from_secs(3));
    std::thread::sleep(Duration::from_millis(500));
    let begin = Instant::now();
    running.end();
    assert!(begin.elapsed() < OPEN_MAX, "{:?}", begin.elapsed());
}
