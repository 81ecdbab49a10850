//! Messages between a board and a seat that executes its models. A request has the version, the length of its head, the head in the
//! format of postcard, and then the pixels of all images, packed, one after the other. An answer is in the format of postcard.

use std::sync::Arc;
use std::time::Duration;

use orinoco_core::{
    Clock, ColorMatrix, ColorRange, Diagnosis, FrameDesc, InferenceResult, Orientation, PixelFormat, Plane,
    codes,
};
use orinoco_pipeline::{Frame, Lease, Slot};
use orinoco_runtime::{ModelIdentity, SeatBatch};
use orinoco_telemetry::MissCause;
use serde::{Deserialize, Serialize};

use super::faults::SeatError;

/// Version of these messages, the first bytes of a request. A seat of another version answers that.
const VERSION: u32 = 2;
/// Longest side of an image, in pixels: more would overflow sizes in bytes.
const SIDE_MAX: u32 = 1 << 15;
/// Most images of one request: the largest batch of a board file.
const IMAGES_MAX: usize = 64;
/// Bytes of the length of the head.
const LEN_BYTES: usize = 4;

#[derive(Serialize, Deserialize)]
struct RequestHead<'a> {
    model: &'a str,
    identity: [u8; 32],
    /// Time in which the answer is needed, in microseconds.
    micros: u64,
    images: Vec<ImageHead>,
}

/// Image without its pixels.
#[derive(Serialize, Deserialize)]
struct ImageHead {
    format: PixelFormat,
    width: u32,
    height: u32,
    matrix: ColorMatrix,
    range: ColorRange,
    orientation: Orientation,
}

#[derive(Serialize, Deserialize)]
enum AnswerMessage {
    Results(Vec<InferenceResult>),
    Failed { code: String, cause: String, next: String },
}

/// Request as the seat has received it.
pub(super) struct Images {
    pub(super) model: String,
    pub(super) identity: ModelIdentity,
    pub(super) frames: Vec<Frame>,
    /// Time in which the answer is needed.
    pub(super) time: Duration,
}

/// Writes a request whose answer is needed within `time` into `message`.
pub(super) fn encode_request(batch: &SeatBatch, time: Duration, message: &mut Vec<u8>) {
    encode_images(&batch.model, &batch.identity, &batch.images, time, message);
}

fn encode_images(
    model: &str,
    identity: &ModelIdentity,
    images: &[Frame],
    time: Duration,
    message: &mut Vec<u8>,
) {
    let head = RequestHead {
        model,
        identity: identity.0,
        micros: u64::try_from(time.as_micros()).unwrap_or(u64::MAX),
        images: images.iter().map(|image| ImageHead::of(&image.desc)).collect(),
    };
    let head = postcard::to_stdvec(&head).expect("numbers and texts");
    message.clear();
    message.extend(VERSION.to_le_bytes());
    message.extend(u32::try_from(head.len()).expect("a head is short").to_le_bytes());
    message.extend(head);
    for row in images.iter().flat_map(|image| image.view().packed_rows()) {
        message.extend(row);
    }
}

impl ImageHead {
    fn of(desc: &FrameDesc) -> Self {
        let &FrameDesc { format, width, height, matrix, range, orientation, .. } = desc;
        Self { format, width, height, matrix, range, orientation }
    }

    /// Descriptor of the image whose pixels begin at `offset`; `None` if its size is none.
    fn desc(&self, offset: usize) -> Option<FrameDesc> {
        let &Self { format, width, height, matrix, range, orientation } = self;
        // Sources turn their frames upright, and models on a CPU expect it.
        if orientation != Orientation::Upright {
            return None;
        }
        let is_size = |side: u32| (1..=SIDE_MAX).contains(&side);
        if !is_size(width) || !is_size(height) {
            return None;
        }
        let packed = FrameDesc::packed(format, width, height);
        let planes = packed.planes.map(|plane| Plane { offset: plane.offset + offset, ..plane });
        Some(FrameDesc { planes, matrix, range, orientation, ..packed })
    }
}

/// Message that several frames share.
struct SharedMessage(Arc<Vec<u8>>);

impl Lease for SharedMessage {
    fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Reads a request.
///
/// # Errors
/// A request of another version, or a message that is none.
pub(super) fn decode_request(message: Vec<u8>, clock: &dyn Clock) -> Result<Images, DecodeError> {
    let (version, rest) = message.split_first_chunk().ok_or(DecodeError::Empty)?;
    if u32::from_le_bytes(*version) != VERSION {
        return Err(DecodeError::Version);
    }
    let offset = message.len() - rest.len();
    decode_images(message, offset, clock).ok_or(DecodeError::Malformed)
}

/// Reason why a request cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DecodeError {
    /// The message has no version.
    Empty,
    /// The other seat has another version of these messages.
    Version,
    /// The message is not a request.
    Malformed,
}

impl DecodeError {
    /// Returns the fault that the other seat gets.
    pub(super) fn diagnosis(self) -> Diagnosis {
        let cause = match self {
            Self::Empty => "it is empty",
            Self::Version => "the seat has another version of orinocod",
            Self::Malformed => "the seat cannot read the request",
        };
        let next = "install the same version of orinocod on both boards";
        Diagnosis::new(&codes::SEAT_FAILED, "a request", cause, next)
    }
}

/// Reads the images of a request, whose head begins at `offset`.
fn decode_images(message: Vec<u8>, offset: usize, clock: &dyn Clock) -> Option<Images> {
    let (len, rest) = message.get(offset..)?.split_first_chunk::<LEN_BYTES>()?;
    let len = u32::from_le_bytes(*len) as usize;
    let head: RequestHead<'_> = postcard::from_bytes(rest.get(..len)?).ok()?;
    if !(1..=IMAGES_MAX).contains(&head.images.len()) {
        return None;
    }
    let (mut offset, mut descs) = (offset + LEN_BYTES + len, Vec::with_capacity(head.images.len()));
    for image in &head.images {
        let desc = image.desc(offset)?;
        offset = offset.checked_add(desc.bytes_packed())?;
        descs.push(desc);
    }
    if offset != message.len() {
        return None;
    }
    let (model, identity) = (head.model.to_owned(), ModelIdentity(head.identity));
    let time = Duration::from_micros(head.micros);
    let (now, message) = (clock.now(), Arc::new(message));
    let frame = |desc| Frame::new(desc, Slot::Leased(Box::new(SharedMessage(Arc::clone(&message)))), now);
    let frames = descs.into_iter().map(frame).collect::<Option<Vec<_>>>()?;
    Some(Images { model, identity, frames, time })
}

/// Writes the answer to a request into `message`.
pub(super) fn encode_answer(answer: &Result<Vec<InferenceResult>, Diagnosis>, message: &mut Vec<u8>) {
    let answer = match answer {
        Ok(results) => AnswerMessage::Results(results.clone()),
        Err(why) => {
            let Diagnosis { code, cause, next, .. } = why.clone();
            AnswerMessage::Failed { code: code.id.to_owned(), cause, next }
        }
    };
    message.clear();
    *message = postcard::to_extend(&answer, std::mem::take(message)).expect("numbers and texts");
}

/// Reads the answer to a request of so many images.
pub(super) fn decode_answer(message: &[u8], images: usize) -> Result<Vec<InferenceResult>, SeatError> {
    match postcard::from_bytes(message) {
        Ok(AnswerMessage::Results(results)) if results.len() == images && results.iter().all(is_sound) => {
            Ok(results)
        }
        Ok(AnswerMessage::Failed { code, cause, next }) => {
            Err(SeatError::Answered { miss: miss_of(&code), cause, next })
        }
        Ok(AnswerMessage::Results(_)) | Err(_) => Err(SeatError::Unreadable),
    }
}

/// Returns the cause for which images are missed, by the code in the seat's answer.
fn miss_of(id: &str) -> MissCause {
    let known = [
        (&codes::REQUEST_OVERLOAD, MissCause::Overloaded),
        (&codes::REQUEST_EXPIRED, MissCause::Late),
        (&codes::SEAT_OFFLINE, MissCause::Offline),
    ];
    known.into_iter().find(|(code, _)| code.id == id).map_or(MissCause::Failed, |(_, miss)| miss)
}

/// Whether the parts of a result fit together, and its numbers are finite, as those of a head are.
fn is_sound(result: &InferenceResult) -> bool {
    let found = result.detections.len();
    let is_of_each = |len: usize| len == 0 || len == found;
    let area = |width: u32, height: u32| (width as usize).checked_mul(height as usize);
    let points = result.corners.iter().flatten().chain(result.keypoints.iter().map(|keypoint| &keypoint.at));
    result.detections.iter().all(orinoco_core::Detection::is_finite)
        && is_of_each(result.corners.len())
        && is_of_each(result.masks.len())
        && result.tracks.is_empty()
        && (result.keypoints.is_empty() || found > 0 && result.keypoints.len().is_multiple_of(found))
        && points.into_iter().all(|point| point.x.is_finite() && point.y.is_finite())
        && result.keypoints.iter().all(|keypoint| keypoint.score.is_finite())
        && result.masks.iter().all(|mask| {
            mask.left.max(mask.top) <= SIDE_MAX && area(mask.width, mask.height) == Some(mask.pixels.len())
        })
        && result.classes.iter().all(|class| class.score.is_finite())
        && area(result.class_map.width, result.class_map.height) == Some(result.class_map.classes.len())
        && result.embedding.iter().all(|value| value.is_finite())
        && result.tensors.iter().all(|tensor| {
            let product = tensor.shape.iter().try_fold(1_usize, |product, side| product.checked_mul(*side));
            product == Some(tensor.data.len())
        })
}

#[cfg(test)]
mod tests;
