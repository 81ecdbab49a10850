//! Parses texts, valid ones and others.

use expect_test::{Expect, expect};
use orinoco_core::codes;
use orinoco_uri::{Scheme, SourceUri};

/// Parses each line of `texts`, and shows the kind of source or the fault.
fn check(texts: &[&str], expect: Expect) {
    let mut seen = String::new();
    for text in texts {
        let line = match SourceUri::parse(text) {
            Ok(uri) => format!("{uri} -> {:?}", uri.kind()),
            Err(fault) => {
                assert_eq!(fault.code.id, codes::SOURCE_URI.id);
                fault.to_string()
            }
        };
        seen.push_str(&line);
        seen.push('\n');
    }
    expect.assert_eq(&seen);
}

#[test]
fn files() {
    let texts = [
        "clip.mp4",
        "/a b/clip%20.mp4?loop=1&pace=pts",
        "file:///a%20b/%C3%A9.mp4?loop=0",
        "FILE://clip.mkv?pace=none",
        "photo.JPEG",
        "file://img_%04i.jpg",
        "img_%d.png?loop=1",
        "file://my%20dog%d0%b0.mp4",
        "file://what%3Fnow.mp4?loop=1",
        "file:///data/frames/?loop=1",
        "frames/",
    ];
    check(
        &texts,
        expect![[r#"
            clip.mp4 -> Video { path: "clip.mp4", repeat: false, pace: Free }
            /a b/clip%20.mp4 -> Video { path: "/a b/clip%20.mp4", repeat: true, pace: Pts }
            /a b/é.mp4 -> Video { path: "/a b/é.mp4", repeat: false, pace: Free }
            clip.mkv -> Video { path: "clip.mkv", repeat: false, pace: Free }
            photo.JPEG -> Images { paths: One("photo.JPEG"), repeat: false, pace: Free }
            img_%04i.jpg -> Images { paths: Numbered(NumberedPath { before: "img_", digits: 4, after: ".jpg" }), repeat: false, pace: Free }
            img_%i.png -> Images { paths: Numbered(NumberedPath { before: "img_", digits: 0, after: ".png" }), repeat: true, pace: Free }
            my dogа.mp4 -> Video { path: "my dogа.mp4", repeat: false, pace: Free }
            what?now.mp4 -> Video { path: "what?now.mp4", repeat: true, pace: Free }
            /data/frames/ -> Images { paths: Folder("/data/frames/"), repeat: true, pace: Free }
            frames/ -> Images { paths: Folder("frames/"), repeat: false, pace: Free }
        "#]],
    );
}

#[test]
fn files_that_cannot_be() {
    let texts = [
        "",
        "file://",
        "file://a%zz.mp4",
        "file://a%00.mp4",
        "file://a_%i_%i.jpg",
        "file://clip_%02d.mp4",
        "clip.mp4?speed=2",
        "clip.mp4?loop=yes",
        "clip.mp4?pace=fast",
        "ftp://host/clip.mp4",
        "v4l2:///dev/video0",
    ];
    check(
        &texts,
        expect![[r#"
            source: it is empty; name a file, a folder of images, csi://, v4l2://, rtsp://, http://, stdin:// or test://ball
            file://: it names no file; write the path after file://
            file://a%zz.mp4: a `%` is not followed by two hex digits; write % itself as %25
            file://a%00.mp4: it contains a NUL character; remove %00
            file://a_%i_%i.jpg: it has more than one number; keep one %i or %04i
            file://clip_%02d.mp4: numbers in a file name are for images only; end the name in .jpg, .png or .webp, or name one file
            clip.mp4?speed=2: `speed` is not a setting of a file; supported settings: loop and pace; if `?` is part of the file name, write file://PATH with %3F
            clip.mp4?loop=yes: `loop=yes` is neither on nor off; write loop=1 or loop=0
            clip.mp4?pace=fast: `pace=fast` is not a pace; write pace=pts or pace=none
            ftp://host/clip.mp4: `ftp://` is not a kind of source; use file://, csi://, v4l2://, rtsp://, http://, stdin:// or test://ball, or a plain path
            v4l2:///dev/video0 -> Camera(V4l2Address { path: "/dev/video0", format: None, width: None, height: None, rate: None, buffers: 8, controls: [] })
        "#]],
    );
}

#[test]
fn rtsp() {
    let texts = [
        "rtsp://camera/stream",
        "rtsps://camera:8322/stream?transport=tcp",
        "rtsp://admin:secret@10.0.0.2:554/cam/real?channel=1&transport=udp&subtype=0",
        "rtsp://admin@camera",
        "rtsp://admin:se%40ret@camera/",
        "rtsp://admin:se@ret@camera/",
        "rtsp://[::1]:8554/x",
        "rtsp://camera/user=admin&password=secret&channel=1",
        "rtsp://",
        "rtsp://camera:port/x",
        "rtsp://camera/x?transport=pigeon",
        "rtsp://admin:se/secret@camera/x",
        "rtsp://admin:se#secret@camera/x",
        "rtsp://admin:%zzsecret@camera/x",
    ];
    check(
        &texts,
        expect![[r#"
            rtsp://camera/stream -> Rtsp(RtspAddress(rtsp://camera/stream, Tcp))
            rtsps://camera:8322/stream?transport=tcp -> Rtsp(RtspAddress(rtsps://camera:8322/stream, Tcp))
            rtsp://admin:***@10.0.0.2:554/cam/real?channel=1&transport=udp&subtype=0 -> Rtsp(RtspAddress(rtsp://10.0.0.2:554/cam/real?channel=1&subtype=0, Udp))
            rtsp://admin@camera -> Rtsp(RtspAddress(rtsp://camera, Tcp))
            rtsp://admin:***@camera/ -> Rtsp(RtspAddress(rtsp://camera/, Tcp))
            rtsp://admin:***@camera/ -> Rtsp(RtspAddress(rtsp://camera/, Tcp))
            rtsp://[::1]:8554/x -> Rtsp(RtspAddress(rtsp://[::1]:8554/x, Tcp))
            rtsp://camera/user=admin&password=***&channel=1 -> Rtsp(RtspAddress(rtsp://camera/user=admin&password=***&channel=1, Tcp))
            rtsp://: it has no valid host and port; write rtsp://USER:PASSWORD@HOST:PORT/PATH, and special characters of the password as %XX
            rtsp://camera:port/x: it has no valid host and port; write rtsp://USER:PASSWORD@HOST:PORT/PATH, and special characters of the password as %XX
            rtsp://camera/x?transport=pigeon: its transport is not known; write transport=tcp or transport=udp
            rtsp://admin:***@camera/x: it has no valid host and port; write rtsp://USER:PASSWORD@HOST:PORT/PATH, and special characters of the password as %XX
            rtsp://admin:***@camera/***: it has no valid host and port; write rtsp://USER:PASSWORD@HOST:PORT/PATH, and special characters of the password as %XX
            rtsp://admin:***@camera/x: a `%` is not followed by two hex digits; write % itself as %25
        "#]],
    );
}

#[test]
fn test_patterns() {
    let texts = [
        "test://ball",
        "test://ball?width=320&height=240&fps=25&frames=100&pace=pts",
        "test://bars",
        "test://ball?width=8",
        "test://ball?width=-1",
        "test://ball?fps=0",
        "test://ball?colour=red",
    ];
    check(
        &texts,
        expect![[r#"
        test://ball -> Test(TestPattern { width: 640, height: 480, fps: 30, frames: None, pace: Free })
        test://ball?width=320&height=240&fps=25&frames=100&pace=pts -> Test(TestPattern { width: 320, height: 240, fps: 25, frames: Some(100), pace: Pts })
        test://bars: there is no test pattern `bars`; use test://ball
        test://ball?width=8: `width=8` is not valid; write a whole number from 16 to 8192
        test://ball?width=-1: `width=-1` is not valid; write a whole number from 16 to 8192
        test://ball?fps=0: `fps=0` is not valid; write a whole number from 1 to 1000
        test://ball?colour=red: `colour` is not a setting of a test pattern; supported settings: width, height, fps, frames and pace
    "#]],
    );
}

#[test]
fn http() {
    let texts = [
        "http://camera/stream.mjpg?fps=5&loop=1",
        "https://admin:se%40cret@camera:8443/cgi?user=a&pwd=secret",
        "HTTP://host/clips/a.MP4?loop=1&key=7&pace=pts",
        "http://host/a.mkv",
        "http:///x",
        "http://host:port/x",
        "http://host/a.mp4?loop=2",
    ];
    check(
        &texts,
        expect![[r#"
            http://camera/stream.mjpg?fps=5&loop=1 -> HttpCamera(HttpAddress(http://camera/stream.mjpg?fps=5&loop=1))
            https://admin:***@camera:8443/cgi?user=a&pwd=*** -> HttpCamera(HttpAddress(https://camera:8443/cgi?user=a&pwd=***))
            HTTP://host/clips/a.MP4?loop=1&key=***&pace=pts -> HttpVideo { address: HttpAddress(http://host/clips/a.MP4?key=***), repeat: true, pace: Pts }
            http://host/a.mkv -> HttpVideo { address: HttpAddress(http://host/a.mkv), repeat: false, pace: Free }
            http:///x: it has no valid host and port; write http://USER:PASSWORD@HOST:PORT/PATH, and special characters of the password as %XX
            http://host:port/x: it has no valid host and port; write http://USER:PASSWORD@HOST:PORT/PATH, and special characters of the password as %XX
            http://host/a.mp4?loop=2: `loop=2` is neither on nor off; write loop=1 or loop=0
        "#]],
    );
}

#[test]
fn cameras() {
    let texts = [
        "v4l2:///dev/video0",
        "v4l2:///dev/video2?format=NV12&width=640&height=360&fps=30&buffers=4",
        "v4l2:///dev/video0?format=GREY&control.brightness=-5",
        "csi://0",
        "csi://1?width=1920&height=1080&fps=30",
        "csi://front",
        "csi://0?gain=2",
        "v4l2://video0",
        "v4l2:///dev/video0?format=RGB24",
        "v4l2:///dev/video0?buffers=1",
        "v4l2:///dev/video0?control.gain=high",
        "v4l2:///dev/video0?rate=30",
    ];
    check(
        &texts,
        expect![[r#"
            v4l2:///dev/video0 -> Camera(V4l2Address { path: "/dev/video0", format: None, width: None, height: None, rate: None, buffers: 8, controls: [] })
            v4l2:///dev/video2?format=NV12&width=640&height=360&fps=30&buffers=4 -> Camera(V4l2Address { path: "/dev/video2", format: Some([78, 86, 49, 50]), width: Some(640), height: Some(360), rate: Some(Rate { frames: 30, seconds: 1 }), buffers: 4, controls: [] })
            v4l2:///dev/video0?format=GREY&control.brightness=-5 -> Camera(V4l2Address { path: "/dev/video0", format: Some([71, 82, 69, 89]), width: None, height: None, rate: None, buffers: 8, controls: [("brightness", -5)] })
            csi://0 -> Csi(CsiAddress { sensor: 0, width: None, height: None, rate: None })
            csi://1?width=1920&height=1080&fps=30 -> Csi(CsiAddress { sensor: 1, width: Some(1920), height: Some(1080), rate: Some(Rate { frames: 30, seconds: 1 }) })
            csi://front: it has no sensor number; write csi://0 for the first camera
            csi://0?gain=2: `gain` is not a setting of a CSI camera; supported settings: width, height and fps
            v4l2://video0: it does not name a device node; write v4l2:///dev/video0; `orinoco cameras` lists what there is
            v4l2:///dev/video0?format=RGB24: `format=RGB24` is not a format of V4L2; write the four characters that `orinoco cameras` shows, as format=NV12
            v4l2:///dev/video0?buffers=1: `buffers=1` is not valid; write a whole number from 2 to 32
            v4l2:///dev/video0?control.gain=high: `control.gain=high` is not valid; write a whole number, as control.brightness=100
            v4l2:///dev/video0?rate=30: `rate` is not a setting of a camera; supported settings: format, width, height, fps, buffers and control.NAME
        "#]],
    );
}

#[test]
fn raw_video() {
    let texts = [
        "stdin://?format=i420&width=640&height=480&fps=30",
        "stdin://?format=nv12&width=1280&height=720&fps=30000/1001&pace=pts",
        "stdin://?format=rgb&width=5&height=3",
        "stdin://?format=i420&width=64&height=48&matrix=bt2020&range=full",
        "stdin://?format=y4m",
        "stdin://",
        "stdin://?format=yuv9&width=640&height=480",
        "stdin://?format=i420&width=640",
        "stdin://?format=i420&width=0&height=480",
        "stdin://?format=i420&width=640&height=480&fps=0",
        "stdin://?format=i420&width=640&height=480&fps=30/0",
        "stdin://?format=i420&width=640&height=480&loop=1",
        "stdin://?format=i420&width=640&height=480&size=7",
        "stdin://?format=rgb&width=640&height=480&matrix=bt709",
        "stdin://?format=i420&width=640&height=480&range=half",
        "stdin://?format=y4m&width=640",
        "stdin://clip.raw?format=y4m",
    ];
    check(
        &texts,
        expect![[r#"
            stdin://?format=i420&width=640&height=480&fps=30 -> Stdin(RawVideo { layout: Frames(RawFrames { format: I420, width: 640, height: 480, rate: Rate { frames: 30, seconds: 1 }, matrix: Bt601, range: Limited }), pace: Free })
            stdin://?format=nv12&width=1280&height=720&fps=30000/1001&pace=pts -> Stdin(RawVideo { layout: Frames(RawFrames { format: Nv12, width: 1280, height: 720, rate: Rate { frames: 30000, seconds: 1001 }, matrix: Bt709, range: Limited }), pace: Pts })
            stdin://?format=rgb&width=5&height=3 -> Stdin(RawVideo { layout: Frames(RawFrames { format: Rgb, width: 5, height: 3, rate: Rate { frames: 30, seconds: 1 }, matrix: Bt601, range: Full }), pace: Free })
            stdin://?format=i420&width=64&height=48&matrix=bt2020&range=full -> Stdin(RawVideo { layout: Frames(RawFrames { format: I420, width: 64, height: 48, rate: Rate { frames: 30, seconds: 1 }, matrix: Bt2020, range: Full }), pace: Free })
            stdin://?format=y4m -> Stdin(RawVideo { layout: Y4m, pace: Free })
            stdin://: it does not say what the bytes are; write stdin://?format=i420&width=640&height=480&fps=30, or stdin://?format=y4m
            stdin://?format=yuv9&width=640&height=480: `format=yuv9` is not known; write format=i420, nv12, yuy2, uyvy, rgb, bgr, gray8 or y4m
            stdin://?format=i420&width=640: it has no height; add height= and the pixels
            stdin://?format=i420&width=0&height=480: `width=0` is not valid; write a whole number from 1 to 8192
            stdin://?format=i420&width=640&height=480&fps=0: `fps=0` is not valid; write frames per second as fps=30 or fps=30000/1001
            stdin://?format=i420&width=640&height=480&fps=30/0: `fps=30/0` is not valid; write frames per second as fps=30 or fps=30000/1001
            stdin://?format=i420&width=640&height=480&loop=1: standard input cannot start again; remove loop
            stdin://?format=i420&width=640&height=480&size=7: `size` is not a setting of raw video; supported settings: format, width, height, fps, matrix, range and pace
            stdin://?format=rgb&width=640&height=480&matrix=bt709: matrix and range are for i420 and nv12 only; remove them
            stdin://?format=i420&width=640&height=480&range=half: `range=half` is not known; write range=limited or range=full
            stdin://?format=y4m&width=640: `width` is given by the Y4M header; remove width
            stdin://clip.raw?format=y4m: standard input has no path; write stdin://?format=FORMAT, and the other settings after it
        "#]],
    );
}

#[test]
fn other_schemes_are_those_that_were_named() {
    let others = [Scheme { name: "gige", is_live: true }, Scheme { name: "rosbag", is_live: false }];
    let seen =
        ["GIGE://cam-1/left?fps=30&key", "rosbag://a.bag", "gige://u:secret@cam?token=x", "rstp://camera/x"]
            .map(|text| match SourceUri::parse_with(text, &others) {
                Ok(uri) => format!("{uri} {:?} live={}", uri.kind(), uri.is_live()),
                Err(fault) => fault.to_string(),
            });
    expect![[r#"
        GIGE://cam-1/left?fps=30&*** Other(OtherAddress(gige://cam-1/left?fps=30&key=***)) live=true
        rosbag://a.bag Other(OtherAddress(rosbag://a.bag)) live=false
        gige://u:***@cam?token=*** Other(OtherAddress(gige://u:***@cam?token=***)) live=true
        rstp://camera/x: `rstp://` is not a kind of source; use file://, csi://, v4l2://, rtsp://, http://, gige://, rosbag://, stdin:// or test://ball, or a plain path"#]]
    .assert_eq(&seen.join("\n"));
    // Nobody is asked about a scheme that was not named, and a typing error stays one.
    for text in ["rstp://camera/x", "gige://cam-1/left"] {
        let fault = SourceUri::parse(text).expect_err("it was not named");
        let named =
            SourceUri::parse_with("gige://cam-1/left", &others).expect("it was named").unknown_scheme();
        assert_eq!((fault.code.id, named.code.id), (codes::SOURCE_URI.id, codes::SOURCE_URI.id));
        assert_eq!(fault.next, named.next);
    }
}
