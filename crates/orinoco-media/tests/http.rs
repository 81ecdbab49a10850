//! Tests cameras and files over HTTP, with small servers in the test.

#![expect(clippy::disallowed_methods, reason = "the test waits for real threads or processes")]
#![cfg(feature = "gstreamer")]

mod common;

use std::fs;
use std::io::{Cursor, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::{gst_source, launch, note, read, read_from, run};
use image::{DynamicImage, ImageFormat, Rgb, RgbImage};
use orinoco_core::{ColorMatrix, ColorRange, PtsClock, codes};
use orinoco_pipeline::{Poll, Source, SourceError};

/// Maximum time of opening: the limit of the source, and a little for a busy machine.
const OPEN_MAX: Duration = Duration::from_millis(6_500);
/// Login `admin:hunter2`.
const LOGIN: &str = "Basic YWRtaW46aHVudGVyMg==";
const INTERVAL: Duration = Duration::from_millis(20);

/// Request: its first line, its headers in lower case, and the connection for the answer.
struct Request {
    path: String,
    head: String,
    number: usize,
    stream: TcpStream,
}

impl Request {
    fn header(&self, name: &str) -> Option<&str> {
        self.head
            .lines()
            .find_map(|line| line.split_once(':').filter(|(key, _)| key.eq_ignore_ascii_case(name)))
            .map(|(_, value)| value.trim())
    }

    fn answer(&mut self, text: &str) -> bool {
        self.stream.write_all(text.replace('\n', "\r\n").as_bytes()).is_ok()
    }

    fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }
}

/// Starts a web server that lives as long as the test's process. Returns its port.
fn serve(answer: impl Fn(Request) + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("it binds");
    let port = listener.local_addr().expect("it is bound").port();
    let (answer, requests) = (Arc::new(answer), AtomicUsize::new(0));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let number = requests.fetch_add(1, Ordering::Relaxed);
            let answer = Arc::clone(&answer);
            std::thread::spawn(move || {
                let mut head = Vec::new();
                let mut byte = [0];
                while !head.ends_with(b"\r\n\r\n") && head.len() < 10_000 {
                    match stream.read(&mut byte) {
                        Ok(1) => head.push(byte[0]),
                        _ => return,
                    }
                }
                let head = String::from_utf8_lossy(&head).into_owned();
                let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
                answer(Request { path, head, number, stream });
            });
        }
    });
    port
}

fn jpeg(red: u8) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    let image = DynamicImage::ImageRgb8(RgbImage::from_pixel(64, 48, Rgb([red, 40, 60])));
    image.write_to(&mut bytes, ImageFormat::Jpeg).expect("memory has room");
    bytes.into_inner()
}

/// Format in which a camera writes its parts.
#[derive(Clone, Copy)]
struct Style {
    kind: &'static str,
    length: bool,
    boundary: &'static str,
}

const PLAIN: Style = Style { kind: "image/jpeg", length: true, boundary: "frame" };

/// Sends `count` images. Returns whether the reader took all of them.
fn send_images(request: &mut Request, style: Style, count: usize) -> bool {
    let Style { kind, length, boundary } = style;
    let head = format!("HTTP/1.0 200 OK\nContent-Type: multipart/x-mixed-replace; boundary={boundary}\n\n");
    let mut open = request.answer(&head);
    for number in 0..count {
        let image = jpeg((number * 10 % 250) as u8);
        let length = if length { format!("Content-Length: {}\n", image.len()) } else { String::new() };
        open = open
            && request.answer(&format!("--{boundary}\nContent-Type: {kind}\n{length}\n"))
            && request.send(&image)
            && request.answer("\n");
        if !open {
            return false;
        }
        std::thread::sleep(INTERVAL);
    }
    open
}

#[test]
fn images_arrive_however_a_camera_writes_them() {
    let styles = [
        PLAIN,
        Style { length: false, boundary: "--myboundary", ..PLAIN },
        Style { kind: "image/jpg", ..PLAIN },
        Style { kind: "image/pjpeg", length: false, boundary: "0123456789" },
    ];
    let port = serve(move |mut request| {
        let style =
            request.path.trim_start_matches('/').parse::<usize>().map_or(PLAIN, |number| styles[number]);
        send_images(&mut request, style, 1000);
    });
    for style in 0..styles.len() {
        let mut source = gst_source(&format!("http://127.0.0.1:{port}/{style}"));
        let begin = Instant::now();
        let reading = read_from(&mut source, 20, |frame| {
            assert_eq!((frame.desc.width, frame.desc.height, frame.desc.clock), (64, 48, PtsClock::Arrival));
            assert_eq!((frame.desc.matrix, frame.desc.range), (ColorMatrix::Bt601, ColorRange::Full));
            (frame.desc.pts.0, frame.decode, frame.view().plane(0).row(0)[0])
        });
        assert!(reading.fault.is_none(), "style {style}: {:?}", reading.fault);
        assert!(reading.frames.len() == 20 && reading.frames.iter().all(|(_, decode, _)| decode.is_some()));
        assert!(reading.frames.windows(2).all(|pair| pair[0].0 < pair[1].0), "{:?}", reading.frames);
        let span = reading.frames[19].0 - reading.frames[0].0;
        assert!((300_000_000..2_000_000_000).contains(&span), "19 intervals of 20 ms took {span} ns");
        // Luma of the first image's colour by JFIF: 0.587 * 40 + 0.114 * 60; the red of later images makes them
        // brighter.
        assert!(reading.frames[0].2.abs_diff(30) <= 2 && reading.frames[10].2.abs_diff(60) <= 2);
        assert_eq!(source.frames_lent(), 0);
        assert!(begin.elapsed() < Duration::from_secs(5));
    }
}

/// Sends images, of which every fourth ends in its middle.
fn send_damaged_images(request: &mut Request) -> bool {
    let head = "HTTP/1.0 200 OK\nContent-Type: multipart/x-mixed-replace; boundary=frame\n\n";
    let mut open = request.answer(head);
    for number in 0..1000 {
        let mut image = jpeg((number * 10 % 250) as u8);
        if number % 4 == 1 {
            image.truncate(image.len() * 3 / 4);
        }
        let part = format!("--frame\nContent-Type: image/jpeg\nContent-Length: {}\n\n", image.len());
        open = open && request.answer(&part) && request.send(&image) && request.answer("\n");
        if !open {
            return false;
        }
        std::thread::sleep(INTERVAL);
    }
    open
}

#[test]
fn images_that_were_cut_off_are_lost_and_not_half_grey() {
    let port = serve(|mut request| {
        send_damaged_images(&mut request);
    });
    let mut source = gst_source(&format!("http://127.0.0.1:{port}/x"));
    let reading = read_from(&mut source, 12, |frame| {
        let (top, bottom) = (frame.view().plane(0).row(0)[0], frame.view().plane(0).row(47)[63]);
        assert!(top.abs_diff(bottom) <= 2, "luma {top} above and {bottom} below");
        frame.lost
    });
    assert!(reading.fault.is_none(), "{:?}", reading.fault);
    assert_eq!(reading.frames, [0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0]);
}

fn refuse_strangers(request: &mut Request) -> bool {
    if request.header("authorization") == Some(LOGIN) {
        return false;
    }
    request
        .answer("HTTP/1.0 401 Unauthorized\nWWW-Authenticate: Basic realm=\"camera\"\nContent-Length: 0\n\n");
    true
}

#[test]
fn a_camera_with_a_password() {
    let port = serve(|mut request| {
        if !refuse_strangers(&mut request) {
            send_images(&mut request, PLAIN, 1000);
        }
    });
    let reading = read(&format!("http://admin:hunter2@127.0.0.1:{port}/stream.mjpg"), 5, |_| ());
    assert_eq!(reading.frames.len(), 5, "{:?}", reading.fault);
    check_unreachable(
        &format!("http://admin:hunter22@127.0.0.1:{port}/stream.mjpg"),
        "user name and password",
    );
    check_unreachable(&format!("http://127.0.0.1:{port}/stream.mjpg"), "user name and password");
}

/// Opens a source that cannot be opened. The fault must be transient, within the time limit, and contain `cause`.
fn check_unreachable(uri: &str, cause: &str) {
    let mut source = gst_source(uri);
    let begin = Instant::now();
    let error = source.open().and_then(|()| {
        while source.next(Duration::from_millis(100)).is_ok() {
            assert!(begin.elapsed() < OPEN_MAX, "{uri} is open");
        }
        source.next(Duration::from_millis(100)).map(|_| ())
    });
    let error = error.expect_err("it cannot be read");
    let took = begin.elapsed();
    note(&format!("{} after {took:?}", error.diagnosis()));
    assert!(took < OPEN_MAX, "{took:?}");
    let SourceError::Transient(fault) = error else { panic!("{error:?} is permanent") };
    assert_eq!(fault.code.id, codes::SOURCE_UNREACHABLE.id);
    assert!(fault.cause.contains(cause), "{fault}");
    let text = format!("{fault} {fault:?}");
    assert!(!text.contains("hunter2") && fault.to_string().len() < 250 && !text.contains('\n'), "{fault}");
}

#[test]
fn servers_without_a_stream_are_told_apart() {
    let port = serve(|mut request| {
        let part = "--a\nContent-Type: text/plain\nContent-Length: 5\n\nhello\n";
        let multipart = "HTTP/1.0 200 OK\nContent-Type: multipart/x-mixed-replace; boundary=a\n\n";
        let text = match request.path.as_str() {
            "/404" => "HTTP/1.0 404 Not Found\nContent-Length: 0\n\n",
            "/500" => "HTTP/1.0 500 Oh\nContent-Length: 0\n\n",
            "/html" => "HTTP/1.0 200 OK\nContent-Type: text/html\n\n<html>Log in</html>",
            "/empty" => "HTTP/1.0 200 OK\n\n",
            "/nonsense" => "nonsense\0\u{1}\n\n",
            "/text" => &format!("{multipart}{part}{part}"),
            "/endless" => &format!("{multipart}--a\nContent-Type: image/jpeg\n\n"),
            "/silent" => return std::thread::sleep(Duration::from_secs(20)),
            _ => return,
        };
        request.answer(text);
        while request.path == "/endless" && request.send(&[0; 65_536]) {}
    });
    let free =
        TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("it binds").port();
    let checks = [
        (port, "404", "no stream at this path"),
        (port, "500", "offered no video stream"),
        (port, "html", "no MJPEG stream"),
        (port, "empty", "no MJPEG stream"),
        (port, "nonsense", "no"),
        (port, "closed", "no"),
        (port, "text", "no MJPEG stream"),
        (port, "endless", "no MJPEG stream"),
        (port, "silent", "no video within 5 s"),
        (free, "x", "cannot connect"),
    ];
    // All at the same time, because most of the time is waiting.
    std::thread::scope(|scope| {
        for (port, path, cause) in checks {
            scope.spawn(move || {
                check_unreachable(&format!("http://admin:hunter2@127.0.0.1:{port}/{path}"), cause)
            });
        }
    });
}

#[test]
fn a_camera_that_is_lost_is_seen_again() {
    let port = serve(|mut request| match request.number {
        // Ends, reports an error, stops sending, works.
        0 => _ = send_images(&mut request, PLAIN, 10),
        1 => _ = request.answer("HTTP/1.0 503 Later\nContent-Length: 0\n\n"),
        2 => {
            send_images(&mut request, PLAIN, 5);
            std::thread::sleep(Duration::from_secs(20));
        }
        _ => _ = send_images(&mut request, PLAIN, 10_000),
    });
    let running = run(&format!("http://127.0.0.1:{port}/live"), Duration::from_secs(1));
    running.wait(Instant::now(), 40, Duration::from_secs(20));
    let states = running.states();
    let count = |name: &str| states.iter().filter(|text| text.starts_with(name)).count();
    // Of losses in a row, the third is not reported.
    assert_eq!((count("live"), count("backing-off"), count("stalled")), (3, 2, 1), "{states:#?}");
    running.end();
}

#[test]
fn a_stop_is_heard_while_connecting() {
    let port = serve(|_request| std::thread::sleep(Duration::from_secs(20)));
    let running = run(&format!("http://127.0.0.1:{port}/x"), Duration::from_secs(3));
    std::thread::sleep(Duration::from_millis(300));
    let begin = Instant::now();
    running.end();
    assert!(begin.elapsed() < OPEN_MAX, "{:?}", begin.elapsed());
}

/// Sends a file, or the requested part of it if the server supports `ranges`, but at most `most` bytes.
fn send_file(request: &mut Request, file: &[u8], ranges: bool, most: usize) {
    let range = request.header("range").and_then(|range| range.strip_prefix("bytes="));
    let start = range.and_then(|range| range.split('-').next()).and_then(|start| start.parse::<usize>().ok());
    let (status, start) = match start.filter(|_| ranges) {
        Some(start) => ("206 Partial Content", start.min(file.len())),
        None => ("200 OK", 0),
    };
    let mut head = format!("HTTP/1.1 {status}\nContent-Length: {}\nConnection: close\n", file.len() - start);
    if ranges {
        let last = file.len() - 1;
        head.push_str(&format!("Accept-Ranges: bytes\nContent-Range: bytes {start}-{last}/{}\n", file.len()));
    }
    request.answer(&format!("{head}\n"));
    request.send(&file[start..][..most.min(file.len() - start)]);
}

#[test]
fn video_files_come_over_http_as_from_disk() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let make = |name: &str, how: &str| {
        let path = folder.path().join(name);
        launch(&format!(
            "videotestsrc num-buffers=25 ! video/x-raw,format=I420,width=160,height=120,framerate=25/1 ! {how} ! \
             filesink location={}",
            path.display()
        ));
        fs::read(path).expect("just written")
    };
    let h264 = "x264enc speed-preset=ultrafast";
    let early_index = make("early-index.mp4", &format!("{h264} ! mp4mux faststart=true"));
    // Bytes after the last frame are an index in other files, which the client need not fetch.
    let padding = [&(1u32 << 20).to_be_bytes()[..], b"free", &[0; (1 << 20) - 8]].concat();
    let files = [
        ("padded.mp4", [early_index.clone(), padding].concat()),
        ("late-index.mp4", make("late-index.mp4", &format!("{h264} ! mp4mux"))),
        ("early-index.mp4", early_index),
        ("clip.mkv", make("clip.mkv", "vp8enc deadline=1 cpu-used=8 ! matroskamux")),
        ("clip.ts", make("clip.ts", &format!("{h264} ! mpegtsmux"))),
    ];
    let names = files.each_ref().map(|(name, _)| *name);
    let port = serve(move |mut request| {
        if refuse_strangers(&mut request) {
            return;
        }
        let (kind, name) = request.path.trim_start_matches('/').split_once('/').expect("two parts");
        let (kind, name) = (kind.to_owned(), name.split('?').next().unwrap_or_default().to_owned());
        let Some((_, file)) = files.iter().find(|(known, _)| *known == name) else {
            request.answer("HTTP/1.1 404 Not Found\nContent-Length: 0\nConnection: close\n\n");
            return;
        };
        let most = if kind == "cut" || kind == "stuck" { file.len() * 2 / 3 } else { usize::MAX };
        send_file(&mut request, file, kind == "ranges", most);
        if kind == "stuck" {
            std::thread::sleep(Duration::from_secs(20));
        }
    });
    let uri = |path: &str| format!("http://admin:hunter2@127.0.0.1:{port}/{path}");
    for (kind, name) in names.iter().flat_map(|name| [("ranges", name), ("plain", name)]) {
        // Without ranges the client cannot fetch the index first.
        if (kind, *name) == ("plain", "late-index.mp4") {
            continue;
        }
        let reading = read(&uri(&format!("{kind}/{name}?key=1")), usize::MAX, |frame| frame.desc.pts.0);
        assert!(reading.fault.is_none(), "{kind} {name}: {:?}", reading.fault);
        let expected: Vec<u64> = (0..25).map(|number| number * 40_000_000).collect();
        assert_eq!(reading.frames, expected, "{kind} {name}");
        let reading = read(&uri(&format!("{kind}/{name}?loop=1")), 60, |frame| frame.desc.pts.0);
        let odd = reading.frames.windows(2).filter(|pair| pair[1] - pair[0] != 40_000_000).count();
        assert_eq!((reading.frames.len(), odd), (60, 0), "{kind} {name}: {:?}", reading.fault);
    }
    check_unreachable(&uri("plain/missing.mp4"), "no stream at this path");
    let strange = format!("http://127.0.0.1:{port}/plain/clip.mkv");
    check_unreachable(&strange, "user name and password");
    for name in ["clip.mkv", "clip.ts", "early-index.mp4"] {
        let reading = read(&uri(&format!("cut/{name}")), usize::MAX, |_| ());
        let fault = reading.fault.expect("the connection was lost");
        note(&format!("{} frames, then {fault}", reading.frames.len()));
        assert!(!reading.frames.is_empty() && reading.frames.len() < 25);
        assert_eq!(fault.code.id, codes::SOURCE_UNREACHABLE.id);
        assert!(!fault.to_string().contains("hunter2") && fault.cause.contains("before the end"), "{fault}");
    }
    let mut source = gst_source(&uri("stuck/clip.mkv"));
    source.open().expect("it opens");
    let mut frames = 0;
    for _ in 0..60 {
        let poll = source.next(Duration::from_millis(10)).expect("it is only silent");
        frames += usize::from(matches!(poll, Poll::Frame(_)));
    }
    assert!(frames > 0 && frames < 25, "{frames}");
    let Err(SourceError::Permanent(fault)) = source.open() else { panic!("it would begin again") };
    assert!(fault.cause.contains("stopped sending"), "{fault}");
}
