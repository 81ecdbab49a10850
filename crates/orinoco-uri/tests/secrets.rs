//! Hides every password, and shows everything else.

use orinoco_uri::{SourceUri, hide_secrets};

#[test]
fn no_form_shows_a_password() {
    let texts = [
        "rtsp://u:hunter2@h/x",
        "rtsp://u:hunter2/@h/x",
        "rtsp://u:a#hunter2@h/x",
        "rtsp://u:hunter2@h:bad/x",
        "rtsp://u:%hunter2@h/x",
        "rtsp://h/x?password=hunter2&a=b",
        "rtsp://h/user=u_password=hunter2/x",
        "rtsp://u:hunter2@h/x?transport=no",
        "RTSP://u:hunter2@h/x",
        "http://u:hunter2@h/x",
        "https://u:hunter2@h/clip.mp4?loop=7",
        "http://u:hunter2/@h/x",
        "http://h/x?user=a&password=hunter2",
        "http://h:bad@x:hunter2@h:bad/x",
        "http://h:80/x?user=a&password=a@hunter2",
        "rstp://u:hunter2@h/x",
        "rtmp://u:hunter2@h/x",
        " rtsp://u:hunter2@h/x",
        "rtsp:/u:hunter2@h/x",
        "rtsp//u:hunter2@h/x",
        "rtsp;//u:hunter2@h/x",
        "rtsp//u:hunter2@h/x?loop=1",
        "rtsp//u:hunter2@h/x?k=hunter2",
        "//u:hunter2@h/x",
        "rtsp:///u:hunter2@h/x",
        "rtsp://u:hunter2#x@h/x",
        "rtsp://u:hunter2?x@h/x?channel=1",
        "rtsp://h/x?key=hunter2",
        "rtsp://h/x?a=1&sig=hunter2#t",
        "rtsp://h/x?psw=hunter2&channel=1",
        "http://h/x.mp4?X-Amz-Signature=hunter2&loop=1",
        "http://h/x?usr=admin&k=hunter2",
        "http://h/x?k=1=hunter2",
        "http://h/x#access=hunter2",
        "http://h/x?hunter2",
        "http://h/x?action=stream&hunter2",
        " http:u:hunter2@h/x",
    ];
    for text in texts {
        let seen = match SourceUri::parse(text) {
            Ok(uri) => format!("{uri} {uri:?} {:?}", uri.kind()),
            Err(fault) => format!("{fault} {fault:?}"),
        };
        assert!(!seen.contains("hunter2"), "{seen}");
    }
    let uri = SourceUri::parse("u:hunter2@h:554/x").expect("it may be a path");
    let seen = format!("{uri} {uri:?}");
    assert!(!seen.contains("hunter2"), "{seen}");
}

#[test]
fn harmless_settings_stay_and_paths_too() {
    for text in [
        "rtsp://h/cam/realmonitor?channel=1&subtype=0",
        "http://h:8080/?action=stream",
        "http://h/mjpg/video.cgi?resolution=640x480&fps=15",
        "rtsp://admin@h/Streaming/Channels/101?transportmode=unicast",
        "rtsp://h/live/ch00_0",
        "mail@host/clip.mp4",
        "a//b/clip.mp4",
        "rtsp/clip.mp4",
        "http-log.mp4",
    ] {
        assert_eq!(SourceUri::parse(text).expect("it is valid").to_string(), text);
    }
}

#[test]
fn addresses_in_messages_hide_their_secrets() {
    let message =
        "Could not open http://u:hunter2@h/x?key=hunter2 (rtsp://h/x?sig=hunter2): no route\nat all";
    let hidden = "Could not open http://u:***@h/x?key=*** (rtsp://h/x?sig=*** no route\nat all";
    assert_eq!(hide_secrets(message), hidden);
    assert_eq!(hide_secrets("Internal data stream error."), "Internal data stream error.");
}
