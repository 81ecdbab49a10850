//! The demo: a real video through the demo model.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::steps::{command, step};
use crate::workspace::{root, target_dir};

/// The pedestrians video, where Debian's package has it.
const VIDEO_IN_PACKAGE: &str = "usr/share/doc/opencv-doc/examples/data/vtest.avi";

pub(crate) fn demo() -> Result<()> {
    let video = video()?;
    println!("video: {}", video.display());
    let out = root().join("target/demo");
    fs::create_dir_all(&out).with_context(|| format!("making {}", out.display()))?;
    let orinoco = target_dir().join("release/orinoco").display().to_string();
    let run = command(&[
        &orinoco,
        "run",
        "--board",
        "boards/devhost.toml",
        "--summary",
        "target/demo/summary.json",
    ]);
    step("demo", run)?;
    println!("\nannotated video  target/demo/pedestrians.mp4");
    println!("detections       target/demo/pedestrians.jsonl");
    println!("summary          target/demo/summary.json");
    Ok(())
}

pub(crate) fn bench() -> Result<()> {
    let video = video()?.display().to_string();
    let orinoco = target_dir().join("release/orinoco").display().to_string();
    step("bench", command(&[&orinoco, "bench", "pipeline", "--model", "person-nano", "--source", &video]))?;
    Ok(())
}

/// The demo video in the user's cache, made on first use.
fn video() -> Result<PathBuf> {
    let dir = cache_dir()?.join("demo");
    let video = dir.join("pedestrians.mp4");
    if video.is_file() {
        return Ok(video);
    }
    fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
    let scratch = dir.join("package");
    fs::create_dir_all(&scratch).with_context(|| format!("making {}", scratch.display()))?;
    let original = download(&scratch)?;
    transcode(&original, &video)?;
    fs::remove_dir_all(&scratch).with_context(|| format!("removing {}", scratch.display()))?;
    Ok(video)
}

/// Takes the package apart instead of installing it: many images leave `/usr/share/doc` out.
fn download(scratch: &Path) -> Result<PathBuf> {
    let original = scratch.join(VIDEO_IN_PACKAGE);
    if original.is_file() {
        return Ok(original);
    }
    let mut fetch = command(&["apt-get", "download", "-q", "opencv-doc"]);
    fetch.current_dir(scratch);
    step("fetching the demo video (Debian package opencv-doc)", fetch)?;
    let package = fs::read_dir(scratch)?.flatten().map(|entry| entry.path());
    let package = package.into_iter().find(|path| path.extension().is_some_and(|e| e == "deb"));
    let package = package.context("apt-get download left no package behind")?;
    let (package, into) = (package.display().to_string(), scratch.display().to_string());
    step("unpacking", command(&["dpkg-deb", "-x", &package, &into]))?;
    if !original.is_file() {
        bail!("the package opencv-doc does not hold {VIDEO_IN_PACKAGE}");
    }
    Ok(original)
}

/// MS-MPEG-4 in AVI to H.264 in MP4, once; renamed when whole.
fn transcode(original: &Path, video: &Path) -> Result<()> {
    let part = video.with_extension("part");
    let (from, to) = (format!("location={}", original.display()), format!("location={}", part.display()));
    let words = [
        "gst-launch-1.0",
        "-q",
        "filesrc",
        &from,
        "!",
        "decodebin",
        "!",
        "videoconvert",
        "!",
        "video/x-raw,format=I420",
        "!",
        "x264enc",
        "pass=qual",
        "quantizer=20",
        "speed-preset=veryfast",
        "!",
        "h264parse",
        "!",
        "mp4mux",
        "faststart=true",
        "!",
        "filesink",
        &to,
    ];
    step("transcoding it to H.264", command(&words))?;
    fs::rename(&part, video).with_context(|| format!("renaming {}", part.display()))
}

/// As `orinoco` finds it: `$XDG_CACHE_HOME/orinoco` or `~/.cache/orinoco`.
fn cache_dir() -> Result<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    Ok(base.context("set HOME or XDG_CACHE_HOME, where the demo video is kept")?.join("orinoco"))
}
