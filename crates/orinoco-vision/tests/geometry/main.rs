//! Compares the position of a frame in a model's input with the published code of each family in Python
//! (`published.py`), and maps boxes there and back.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "tests say what they skip and what they compared"
)]

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use orinoco_core::{BoxF, Choice, ColorOrder, Layout, Resize};
use orinoco_vision::{Align, Fit, HeadKind, InputSpec, Mapping, Rounding};

/// Maximum side of a frame that is compared.
const FRAME_SIDE_MAX: u32 = 4096;
/// Widths and heights of cameras, videos and photos.
const CAMERAS: [(u32, u32); 40] = [
    (160, 120),
    (176, 144),
    (320, 180),
    (320, 240),
    (352, 240),
    (352, 288),
    (424, 240),
    (480, 270),
    (480, 320),
    (640, 360),
    (640, 400),
    (640, 426),
    (640, 427),
    (640, 480),
    (640, 512),
    (704, 576),
    (720, 480),
    (720, 576),
    (768, 432),
    (768, 576),
    (800, 600),
    (848, 480),
    (960, 540),
    (960, 720),
    (1024, 768),
    (1280, 720),
    (1280, 800),
    (1280, 960),
    (1280, 1024),
    (1440, 1080),
    (1536, 864),
    (1600, 1200),
    (1920, 1080),
    (1920, 1200),
    (2048, 1536),
    (2560, 1440),
    (2592, 1944),
    (3264, 2464),
    (3840, 2160),
    (4096, 2160),
];
/// Widths and heights of models' inputs.
const MODELS: [(u32, u32); 24] = [
    (192, 192),
    (224, 224),
    (256, 256),
    (300, 300),
    (320, 320),
    (320, 240),
    (352, 352),
    (384, 384),
    (384, 640),
    (416, 416),
    (416, 256),
    (448, 448),
    (480, 480),
    (512, 512),
    (512, 288),
    (576, 1024),
    (608, 608),
    (640, 640),
    (640, 384),
    (672, 672),
    (800, 800),
    (960, 544),
    (1024, 1024),
    (1280, 1280),
];
/// Number of pairs of random sizes, for each rule.
const RANDOM_PAIRS: usize = 20_000;
const SEED: u64 = 0x6f72_696e_6f63_6f01;

/// splitmix64 (Steele et al. 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % u64::from(bound)) as u32
    }
}

/// Size of a frame, and of a model's input.
type Sizes = ((u32, u32), (u32, u32));

/// Returns every camera in both orientations with every model, every width and every height to 4096, and random pairs.
fn sizes() -> Vec<Sizes> {
    let mut random = Random(SEED);
    let turned = CAMERAS.into_iter().map(|(width, height)| (height, width));
    let cameras: Vec<(u32, u32)> = CAMERAS.into_iter().chain(turned).collect();
    let mut sizes: Vec<Sizes> =
        cameras.iter().flat_map(|camera| MODELS.map(|model| (*camera, model))).collect();
    let mut any = || {
        let mut side = || 1 + random.below(FRAME_SIDE_MAX);
        let frame = (side(), side());
        (frame, (192 + random.below(1280 - 192 + 1), 192 + random.below(1280 - 192 + 1)))
    };
    for side in 1..=FRAME_SIDE_MAX {
        let ((width, height), model) = any();
        let usual = MODELS[side as usize % MODELS.len()];
        sizes.extend([((side, height), usual), ((width, side), usual), ((side, side), model)]);
    }
    sizes.extend((0..RANDOM_PAIRS).map(|_| any()));
    sizes
}

fn spec((width, height): (u32, u32), fit: Fit, align: Align, rounding: Rounding) -> InputSpec {
    InputSpec {
        layout: Layout::Nchw,
        width,
        height,
        color: ColorOrder::Rgb,
        resize: Resize::Bilinear,
        fit,
        align,
        rounding,
        fill: 114,
        mean: [0.0; 3],
        scale: [1.0; 3],
    }
}

/// Returns the answers of `published.py`, or the reason why it cannot run.
fn published(rule: &str, sizes: &[Sizes]) -> Result<Vec<[i64; 4]>, String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/geometry/published.py");
    let python = std::env::var("ORINOCO_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let command = Command::new(&python).arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = command.map_err(|why| format!("{python}: {why}"))?;
    let mut input = child.stdin.take().expect("it is piped");
    let lines: String =
        sizes.iter().map(|((w, h), (mw, mh))| format!("{rule} {w} {h} {mw} {mh}\n")).collect();
    // The script reads everything before it answers, so writing it all first cannot block.
    input.write_all(lines.as_bytes()).expect("the script reads its input");
    drop(input);
    let output = child.wait_with_output().expect("the script ends");
    assert!(output.status.success(), "published.py failed");
    let text = String::from_utf8(output.stdout).expect("the script answers in ASCII");
    let answer = |line: &str| {
        let values: Vec<i64> = line.split(' ').map(|value| value.parse().expect("an integer")).collect();
        <[i64; 4]>::try_from(values).expect("four values")
    };
    Ok(text.lines().map(answer).collect())
}

/// Compares the mappings of `spec_of` with the rule's.
fn check(rule: &str, sizes: &[Sizes], spec_of: impl Fn((u32, u32)) -> InputSpec) {
    let expected = match published(rule, sizes) {
        Ok(expected) => expected,
        Err(why) => return println!("skipped: {rule} of published.py: {why}"),
    };
    assert_eq!(expected.len(), sizes.len());
    let mut wrong = Vec::new();
    for ((frame, model), [width, height, left, top]) in sizes.iter().zip(expected) {
        let map = spec_of(*model).mapping(frame.0, frame.1);
        // A side of zero pixels fails in the published code. Here it has one pixel, and the position follows from that.
        if width == 0 || height == 0 {
            assert!(map.size.0 >= 1 && map.size.1 >= 1, "{frame:?} into {model:?}: {map:?}");
            continue;
        }
        let seen: [i64; 4] = [map.size.0.into(), map.size.1.into(), map.offset.0.into(), map.offset.1.into()];
        if seen != [width, height, left, top] {
            wrong.push(format!(
                "{frame:?} into {model:?}: {seen:?}, published {:?}",
                [width, height, left, top]
            ));
        }
    }
    println!("{rule}: {} sizes compared", sizes.len());
    let first: Vec<&String> = wrong.iter().take(10).collect();
    assert!(wrong.is_empty(), "{rule}: {} of {} differ: {first:#?}", wrong.len(), sizes.len());
}

/// Returns the rounding of the head `name`.
fn rounding(name: &str) -> Rounding {
    HeadKind::from_name(name).expect("a head has this name").rounding
}

#[test]
fn letterboxes_of_yolox_have_the_published_size() {
    check("yolox", &sizes(), |model| spec(model, Fit::Letterbox, Align::TopLeft, rounding("yolox")));
}

#[test]
fn letterboxes_of_ultralytics_have_the_published_size_and_place() {
    let sizes = sizes();
    for head in ["yolov5", "yolov8", "end2end"] {
        check("ultralytics", &sizes, |model| spec(model, Fit::Letterbox, Align::Center, rounding(head)));
    }
}

#[test]
fn letterboxes_of_nvinfer_have_the_published_size_and_place() {
    // Rounding that `models import` sets, and that heads have whose trainers do not letterbox.
    assert_eq!(rounding("nanodet"), Rounding::Exact);
    check("nvinfer", &sizes(), |model| spec(model, Fit::Letterbox, Align::Center, Rounding::Exact));
}

#[test]
fn stretched_images_fill_the_input() {
    check("stretch", &sizes(), |model| spec(model, Fit::Stretch, Align::TopLeft, Rounding::Down));
}

#[test]
fn crops_have_torchvision_s_size_and_place() {
    // The shorter side of the resize, and the side of the square that is cropped.
    let pairs =
        [(256, 224), (224, 224), (232, 224), (292, 256), (342, 299), (384, 384), (248, 225), (201, 224)];
    let frames = sizes().into_iter().map(|(frame, _)| frame);
    // Beyond this ratio a thin frame becomes an image of more pixels than memory; only the model's input is computed.
    let frames = frames.filter(|(width, height)| width.max(height) / width.min(height) < 100);
    let sizes: Vec<Sizes> =
        frames.enumerate().map(|(index, frame)| (frame, pairs[index % pairs.len()])).collect();
    check("torchvision", &sizes, |(shorter, cut)| {
        spec((cut, cut), Fit::Crop { shorter }, Align::Center, Rounding::Down)
    });
}

#[test]
fn rows_that_single_precision_lost_are_there() {
    let rows = |frame: (u32, u32)| {
        let map = spec((416, 416), Fit::Letterbox, Align::TopLeft, Rounding::Down).mapping(frame.0, frame.1);
        assert_eq!(map.size.0, 416);
        map.size.1
    };
    let frames = [(1280, 720), (640, 360), (2560, 1440)];
    assert_eq!(frames.map(rows), [234; 3]);
}

/// Maps a point of the frame to the model's input in double precision, by the final size in pixels.
fn forward(map: &Mapping, x: f64, y: f64) -> (f32, f32) {
    let axis = |at: f64, source: u32, size: u32, offset: i32| {
        (at * f64::from(size) / f64::from(source) + f64::from(offset)) as f32
    };
    (axis(x, map.source.0, map.size.0, map.offset.0), axis(y, map.source.1, map.size.1, map.offset.1))
}

#[test]
fn boxes_come_back_within_a_thousandth_of_a_pixel() {
    let shapes = [
        (Fit::Letterbox, Align::TopLeft, Rounding::Down),
        (Fit::Letterbox, Align::Center, Rounding::Nearest),
        (Fit::Letterbox, Align::Center, Rounding::Exact),
        (Fit::Stretch, Align::TopLeft, Rounding::Down),
    ];
    let mut worst: f64 = 0.0;
    for ((width, height), model) in sizes() {
        for (fit, align, rounding) in shapes {
            let map = spec(model, fit, align, rounding).mapping(width, height);
            let (w, h) = (f64::from(width), f64::from(height));
            let corners = [(w * 0.1, h * 0.2), (w, h), (w * 0.637, h * 0.911)];
            for (x, y) in corners {
                let (near, far) = (forward(&map, 0.0, 0.0), forward(&map, x, y));
                let back = map.to_source(BoxF { x1: near.0, y1: near.1, x2: far.0, y2: far.1 });
                let pairs = [(back.x1, 0.0), (back.y1, 0.0), (back.x2, x), (back.y2, y)];
                let off = pairs.map(|(seen, exact)| (f64::from(seen) - exact).abs());
                let most = off.into_iter().fold(0.0, f64::max);
                // The limit holds for frames of up to 4096; single precision has 1/4096 there.
                assert!(
                    most < 1e-3,
                    "{width}x{height} into {model:?}, {fit:?}: off by {most}: {back:?}, {map:?}"
                );
                worst = worst.max(most);
            }
        }
    }
    println!("worst: {worst:.6} pixels");
}
