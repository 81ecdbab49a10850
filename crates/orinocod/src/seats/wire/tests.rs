use orinoco_core::{
    BoxF, ClassMap, ClassScore, Detection, Keypoint, Mask, Nanos, Point, RawTensor, Region, StreamId,
};
use orinoco_pipeline::{MonotonicClock, OwnedSlot, SlotPool};
use proptest::prelude::*;

use super::*;

/// Part of a frame whose rows have padding, and whose bytes are all different.
fn part(format: PixelFormat) -> Frame {
    let mut desc = FrameDesc::packed(format, 31, 22);
    desc.planes
        .iter_mut()
        .for_each(|plane| *plane = Plane { offset: 3 * plane.offset, stride: plane.stride + 5 });
    let mut slot: OwnedSlot = SlotPool::new(1, desc.bytes_needed()).try_take().expect("it is free");
    slot.bytes.iter_mut().zip(0_usize..).for_each(|(byte, value)| *byte = (value % 251) as u8);
    let desc = FrameDesc { range: ColorRange::Full, seq: 7, ..desc };
    let frame = Frame::new(desc, Slot::Owned(slot), Nanos(0)).expect("it fits");
    frame.part(Region { x: 3, y: 5, width: 20, height: 13 }).expect("it lies inside").0
}

fn request(images: &[Frame]) -> Vec<u8> {
    let mut message = vec![1; 9];
    encode_images("gate", &ModelIdentity([9; 32]), images, Duration::from_millis(40), &mut message);
    message
}

#[test]
fn a_request_arrives_as_it_was_sent() {
    let sent: Vec<Frame> = [PixelFormat::Nv12, PixelFormat::Rgb, PixelFormat::I420].map(part).into();
    let images = decode_request(request(&sent), &MonotonicClock::default()).expect("it is one");
    assert_eq!((images.model.as_str(), images.identity), ("gate", ModelIdentity([9; 32])));
    assert_eq!(images.time, Duration::from_millis(40));
    assert_eq!(images.frames.len(), sent.len());
    for (frame, sent) in images.frames.iter().zip(&sent) {
        let same = |frame: &Frame| {
            let FrameDesc { format, width, height, matrix, range, orientation, .. } = frame.desc;
            (format, width, height, matrix, range, orientation)
        };
        assert_eq!(same(frame), same(sent));
        assert_eq!(frame.desc.stream, StreamId::default());
        assert!(frame.view().packed_rows().eq(sent.view().packed_rows()), "{:?}", sent.desc.format);
    }
}

#[test]
fn images_that_are_not_upright_are_refused() {
    let mut desc = part(PixelFormat::Rgb).desc;
    assert!(ImageHead::of(&desc).desc(0).is_some());
    desc.orientation = Orientation::Rotate90;
    assert!(ImageHead::of(&desc).desc(0).is_none());
}

#[test]
fn a_request_of_another_version_is_answered_with_that() {
    let mut message = request(&[part(PixelFormat::Rgb)]);
    message[0] += 1;
    let why = decode_request(message, &MonotonicClock::default()).err().expect("it is refused");
    assert_eq!(why, DecodeError::Version);
    assert_eq!(why.diagnosis().code.id, codes::SEAT_FAILED.id);
}

fn full_result() -> InferenceResult {
    let at = |x: f32| Point { x, y: x + 0.1 };
    InferenceResult {
        detections: vec![Detection {
            class_id: 3,
            score: 0.1,
            bounds: BoxF { x1: 1.1, y1: -2.0, x2: 3.3, y2: 4.0 },
        }],
        corners: vec![[at(1.0), at(2.0), at(3.0), at(4.0)]],
        keypoints: vec![Keypoint { at: at(5.0), score: 0.7 }, Keypoint { at: at(6.0), score: 0.8 }],
        masks: vec![Mask { left: 1, top: 2, width: 2, height: 1, pixels: vec![0, 1] }],
        tracks: Vec::new(),
        classes: vec![ClassScore { class_id: 70_000, score: 1e-30 }],
        class_map: ClassMap { width: 1, height: 3, classes: vec![1, 2, 3] },
        embedding: vec![0.6, -0.8],
        tensors: vec![RawTensor { name: "y".to_owned(), shape: vec![1, 2], data: vec![f32::NAN, 1.0] }],
        not_finite: 1,
    }
}

fn answer(answer: &Result<Vec<InferenceResult>, Diagnosis>) -> Vec<u8> {
    let mut message = vec![1; 9];
    encode_answer(answer, &mut message);
    message
}

#[test]
fn results_arrive_to_the_bit() {
    let sent = vec![full_result(), InferenceResult::default()];
    let received = decode_answer(&answer(&Ok(sent.clone())), 2).expect("results");
    // NaN is equal to nothing.
    assert_eq!(format!("{received:?}"), format!("{sent:?}"));
    let why = decode_answer(&answer(&Ok(sent)), 1).expect_err("results of other images");
    assert!(matches!(why, SeatError::Unreadable), "{why:?}");
}

#[test]
fn faults_arrive_with_the_codes_that_matter() {
    for (code, expected) in [
        (&codes::REQUEST_EXPIRED, &codes::REQUEST_EXPIRED),
        (&codes::REQUEST_OVERLOAD, &codes::REQUEST_OVERLOAD),
        (&codes::SEAT_OFFLINE, &codes::SEAT_OFFLINE),
        (&codes::ENGINE_RUN, &codes::SEAT_FAILED),
    ] {
        let why = Diagnosis::new(code, "model x", "it failed", "look");
        let received = decode_answer(&answer(&Err(why)), 1).expect_err("a fault").diagnosis("b");
        assert_eq!(received.to_string(), "seat b: it failed; look");
        assert_eq!(received.code.id, expected.id);
    }
}

#[test]
fn results_whose_parts_do_not_fit_are_refused() {
    let refused = |change: &dyn Fn(&mut InferenceResult)| {
        let mut result = full_result();
        assert!(is_sound(&result));
        change(&mut result);
        assert!(decode_answer(&answer(&Ok(vec![result.clone()])), 1).is_err(), "{result:?}");
    };
    refused(&|result| result.detections[0].score = f32::NAN);
    refused(&|result| result.corners.push(result.corners[0]));
    refused(&|result| result.corners[0][1].x = f32::INFINITY);
    refused(&|result| result.detections.clear());
    refused(&|result| result.masks[0].height = 7);
    refused(&|result| result.masks[0].left = u32::MAX);
    refused(&|result| result.tracks.push(None));
    refused(&|result| result.classes[0].score = f32::NAN);
    refused(&|result| result.class_map.width = u32::MAX);
    refused(&|result| result.embedding[0] = f32::NAN);
    refused(&|result| result.tensors[0].shape = vec![usize::MAX, 2]);
}

proptest! {
    #[test]
    fn changed_requests_are_refused_or_read_within_their_bytes(
        at in 0_usize..400, value: u8, cut in 0_usize..3000, format in 0_usize..2,
    ) {
        let mut message = request(&[part([PixelFormat::Nv12, PixelFormat::Rgb][format])]);
        let len = message.len();
        message[at % len] = value;
        message.truncate(len.saturating_sub(cut));
        if let Ok(images) = decode_request(message, &MonotonicClock::default()) {
            // All rows can be read.
            let bytes: usize = images.frames.iter().flat_map(|frame| frame.view().packed_rows()).map(<[u8]>::len).sum();
            prop_assert!(bytes <= len);
        }
    }

    #[test]
    fn any_bytes_are_no_reason_to_panic(message: Vec<u8>) {
        let _ = decode_answer(&message, 1);
        let _ = decode_request(message, &MonotonicClock::default());
    }
}
