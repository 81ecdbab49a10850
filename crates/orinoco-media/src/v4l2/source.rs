//! Source of a V4L2 camera: opens it, reads frames, and opens it again after a loss.

#![expect(clippy::disallowed_methods, reason = "the driver's time stamps are of that clock")]

use std::io::{self, Cursor};
use std::sync::Arc;
use std::time::Duration;

use image::codecs::jpeg::JpegDecoder;
use image::{ColorType, DynamicImage, ImageDecoder};
use orinoco_core::{Clock, FrameDesc, Nanos, Pts, PtsClock};
use orinoco_pipeline::{Frame, Poll, Slot, SlotPool, Source, SourceError};
use orinoco_uri::V4l2Address;
use rustix::time::{ClockId, clock_gettime};

use super::cameras::control_name;
use super::errors::{BadFrame, CameraError, Operation};
use super::formats::{FORMATS, Payload, packed_desc, payload, raw_desc, strides};
use super::kernel::{Device, FilledBuffer, FourCc, Geometry, Ring};
use crate::cpu_time::with_cpu_time;
use crate::jpeg::LiveCheck;
use crate::pace::pause;
use crate::slots::{SLOTS_MAX, slots};

/// Minimum number of buffers that stay with the driver, whatever the pipeline holds: it fills one while the other is on
/// its way.
const DRIVER_BUFFERS_MIN: usize = 2;
/// Number of unusable frames in a row after which the camera is opened again: as many as it makes in a second. Some
/// cameras begin with a few.
const BAD_ROW_MAX: u32 = 30;

/// Source of a V4L2 camera such as `v4l2:///dev/video0`. Frames stay in the driver's buffers, unless their format must
/// be decoded or copied together, or the pipeline holds so many that the driver would have none left; then they are
/// copied.
pub struct V4l2Source {
    address: V4l2Address,
    shown: String,
    clock: Arc<dyn Clock>,
    /// Maximum number of frames in own memory that are in flight.
    slots: usize,
    session: Option<Session>,
    tally: LossCount,
    /// Time since which the device has refused this user at every attempt.
    refused_since: Option<Nanos>,
}

/// Open camera.
struct Session {
    ring: Arc<Ring>,
    payload: Payload,
    desc: FrameDesc,
    /// Bytes from one row to the next, for each memory plane of frames that are copied together.
    strides: Vec<usize>,
    pool: SlotPool,
    last_sequence: Option<u32>,
    jpegs: LiveCheck,
}

impl V4l2Source {
    /// Creates the source of the camera at `address`, which is not opened yet. `shown` is its name in messages.
    pub fn new(address: V4l2Address, shown: String, clock: Arc<dyn Clock>) -> Self {
        let (slots, tally) = (SLOTS_MAX, LossCount::default());
        Self { address, shown, clock, slots, session: None, tally, refused_since: None }
    }

    /// Sets the capacity of the stream's ring, `queue_frames`: with a short one the source needs fewer slots.
    pub fn with_ring(self, queue_frames: usize) -> Self {
        Self { slots: slots(queue_frames), ..self }
    }

    /// Handles the result of opening the device.
    fn opened(&mut self, opened: io::Result<Device>) -> Result<Device, CameraError> {
        let now = self.clock.now();
        self.refused_since = match &opened {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                Some(self.refused_since.unwrap_or(now))
            }
            _ => None,
        };
        let refused = self.refused_since.map_or(Duration::ZERO, |since| now.since(since));
        opened.map_err(|error| CameraError::Kernel(Operation::Opening { refused }, error))
    }

    fn choose_format(&self, offered: Vec<FourCc>) -> Result<(FourCc, Payload), CameraError> {
        if let Some(wanted) = self.address.format {
            if !offered.contains(&wanted) {
                return Err(CameraError::NoFormat { wanted, offered });
            }
            let payload = payload(wanted).ok_or(CameraError::UnsupportedFormat(wanted))?;
            return Ok((wanted, payload));
        }
        let best = FORMATS.iter().find(|(fourcc, _)| offered.contains(fourcc));
        best.map(|(fourcc, payload)| (**fourcc, *payload)).ok_or(CameraError::NoSupportedFormat(offered))
    }

    fn set_format(&self, device: &Device) -> Result<(Payload, Geometry), CameraError> {
        let offered = device.formats().map_err(step("asking for its formats"))?;
        let (fourcc, payload) = self.choose_format(offered)?;
        let now = device.geometry().map_err(step("asking for the format"))?;
        let width = self.address.width.unwrap_or(now.width);
        let height = self.address.height.unwrap_or(now.height);
        let made = device.set_format(fourcc, width, height).map_err(step("setting the format"))?;
        let asked =
            [self.address.width.map(|w| w == made.width), self.address.height.map(|h| h == made.height)];
        if made.fourcc != fourcc || asked.contains(&Some(false)) {
            return Err(CameraError::OtherFormat {
                wanted: (fourcc, (width, height)),
                made: (made.fourcc, (made.width, made.height)),
                sizes: device.sizes(fourcc),
            });
        }
        Ok((payload, made))
    }

    fn set_rate(&self, device: &Device, geometry: &Geometry) -> Result<(), CameraError> {
        /// Tolerance for equal rates, as a share: 30 and 30000/1001 are equal.
        const SAME: f64 = 0.002;
        let Some(wanted) = self.address.rate else { return Ok(()) };
        let made =
            device.set_rate(wanted).map_err(|error| CameraError::Kernel(Operation::SettingRate, error))?;
        match made {
            Some(made) if (made.per_second() / wanted.per_second() - 1.0).abs() > SAME => {
                let rates = device.rates(geometry.fourcc, (geometry.width, geometry.height));
                Err(CameraError::OtherRate { wanted, made, rates })
            }
            _ => Ok(()),
        }
    }

    fn set_controls(&self, device: &Device) -> Result<(), CameraError> {
        if self.address.controls.is_empty() {
            return Ok(());
        }
        let (known, all) = device.controls();
        for (wanted, value) in &self.address.controls {
            let (name, value) = (wanted.clone(), *value);
            let Some(control) = known.iter().find(|control| control_name(&control.name) == name) else {
                // The control may be one that could not be queried.
                all.map_err(step("asking for its controls"))?;
                let known = known.iter().map(|control| control_name(&control.name)).collect();
                return Err(CameraError::NoControl { name, known });
            };
            let range = control.range;
            if !(range.0..=range.1).contains(&i64::from(value)) {
                return Err(CameraError::ControlRange { name, value, range });
            }
            device
                .set_control(control.id, value)
                .map_err(|error| CameraError::Kernel(Operation::SettingControl { name, value }, error))?;
        }
        Ok(())
    }

    fn start(&mut self) -> Result<Session, CameraError> {
        let device = self.opened(Device::open(&self.address.path))?;
        let (payload, geometry) = self.set_format(&device)?;
        self.set_rate(&device, &geometry)?;
        self.set_controls(&device)?;
        let (desc, strides) = match payload {
            Payload::Raw(format) => (raw_desc(format, &geometry), Vec::new()),
            Payload::Planes(format) => {
                let strides = strides(format, &geometry).ok_or_else(|| CameraError::OtherPlanes {
                    fourcc: geometry.fourcc,
                    planes: geometry.planes.len(),
                    wanted: format.planes(),
                })?;
                (packed_desc(format, &geometry), strides)
            }
            Payload::Jpeg => (packed_desc(payload.frame_format(), &geometry), Vec::new()),
        };
        let ring =
            Ring::start(device, self.address.buffers, geometry.planes.len()).map_err(step("starting it"))?;
        let desc = FrameDesc { clock: PtsClock::Monotonic, ..desc };
        let pool = SlotPool::new(self.slots, desc.bytes_needed());
        Ok(Session { ring, payload, desc, strides, pool, last_sequence: None, jpegs: LiveCheck::default() })
    }
}

impl Source for V4l2Source {
    /// Takes the time that the driver needs to set a format: milliseconds, for some USB cameras a second.
    fn open(&mut self) -> Result<(), SourceError> {
        self.session = Some(self.start().map_err(|error| error.about(&self.shown))?);
        Ok(())
    }

    fn next(&mut self, wait: Duration) -> Result<Poll, SourceError> {
        let Some(session) = &mut self.session else { return Ok(Poll::Pending) };
        let payload = session.payload;
        let polled = match session.next(wait, &*self.clock) {
            Ok(Some(taken)) => self.tally.count(taken).map_err(|why| CameraError::Unusable(payload, why)),
            Ok(None) => Ok(Poll::Pending),
            Err(error) => Err(step("reading it")(error)),
        };
        polled.map_err(|error| error.about(&self.shown))
    }

    fn close(&mut self) {
        if let Some(session) = self.session.take() {
            session.ring.stop();
        }
    }

    fn frames_max(&self) -> Option<usize> {
        let session = self.session.as_ref()?;
        Some(match session.payload {
            Payload::Raw(_) => self.slots + session.ring.len().saturating_sub(DRIVER_BUFFERS_MIN),
            Payload::Jpeg | Payload::Planes(_) => self.slots,
        })
    }
}

/// Returns a conversion of the kernel's error in a step, which is given in words.
fn step(words: &'static str) -> impl FnOnce(io::Error) -> CameraError {
    move |error| CameraError::Kernel(Operation::Step(words), error)
}

/// Result of a buffer that the driver has filled.
struct DequeuedBuffer {
    /// Number of frames that the driver lost just before it.
    missed: u64,
    made: Result<Frame, FrameFault>,
}

/// Reason why a buffer gives no frame.
#[derive(Debug)]
enum FrameFault {
    /// No free slot: the bytes must be copied, and the pipeline holds all slots for that.
    NoSlot,
    /// Bytes that are not a valid image.
    Bad(BadFrame),
}

impl From<BadFrame> for FrameFault {
    fn from(why: BadFrame) -> Self {
        Self::Bad(why)
    }
}

/// Counts buffers that gave no frame. It outlives a session, so that no loss is forgotten when the camera is opened
/// again, and a slow camera with bad frames does not count as stalled before they are too many.
#[derive(Debug, Default)]
struct LossCount {
    /// Number of frames lost since the last delivered one.
    lost: u64,
    /// Number of unusable frames in a row.
    bad: u32,
}

impl LossCount {
    /// Returns the frame with the number of frames lost before it; the error of the last one when too many in a
    /// row were unusable.
    fn count(&mut self, taken: DequeuedBuffer) -> Result<Poll, BadFrame> {
        self.lost += taken.missed;
        let unmade = match taken.made {
            Ok(mut frame) => {
                frame.lost = std::mem::take(&mut self.lost);
                self.bad = 0;
                return Ok(Poll::Frame(frame));
            }
            Err(unmade) => unmade,
        };
        self.lost += 1;
        let FrameFault::Bad(why) = unmade else { return Ok(Poll::Pending) };
        self.bad += 1;
        if self.bad < BAD_ROW_MAX {
            return Ok(Poll::Pending);
        }
        self.bad = 0;
        Err(why)
    }
}

impl Session {
    /// Handles the next buffer that the driver fills; `None` when it fills none within `wait`.
    fn next(&mut self, wait: Duration, clock: &dyn Clock) -> io::Result<Option<DequeuedBuffer>> {
        if !self.ring.wait(wait)? {
            return Ok(None);
        }
        let Some(filled) = self.ring.take()? else {
            // Ready but empty: the driver is about to report an error. The sleep avoids a busy loop.
            pause(Duration::from_millis(1).min(wait), clock);
            return Ok(None);
        };
        let missed = missed(self.last_sequence.replace(filled.sequence), filled.sequence);
        let now = monotonic_now();
        // A time stamp in the future (some drivers stamp the end of exposure before it comes) is not usable.
        let captured = filled.timestamp.and_then(|at| now.checked_sub(at));
        let pts = filled.timestamp.unwrap_or(now);
        let desc = FrameDesc { pts: Pts(u64::try_from(pts.as_nanos()).unwrap_or(u64::MAX)), ..self.desc };
        let started = clock.now();
        let (mut made, cpu) = with_cpu_time(|| self.make(desc, filled, clock));
        if let Ok(frame) = &mut made {
            frame.captured = captured;
            if self.payload == Payload::Jpeg {
                frame.decode = Some(frame.arrived.since(started));
                frame.decode_cpu = Some(cpu);
            }
        }
        Ok(Some(DequeuedBuffer { missed, made }))
    }

    /// Makes a frame from a filled buffer.
    fn make(
        &mut self,
        desc: FrameDesc,
        filled: FilledBuffer,
        clock: &dyn Clock,
    ) -> Result<Frame, FrameFault> {
        if filled.damaged {
            return Err(BadFrame::Flagged.into());
        }
        let pool = &self.pool;
        let free = || pool.try_take().ok_or(FrameFault::NoSlot);
        let needed = desc.bytes_needed();
        let slot = match self.payload {
            Payload::Jpeg => {
                let mut slot = free()?;
                let jpeg = filled.plane(0);
                decode(jpeg, &desc, &mut self.jpegs, &mut slot.bytes)?;
                Slot::Owned(slot)
            }
            Payload::Planes(_) => {
                let mut slot = free()?;
                let strides = self.strides.iter().enumerate();
                let planes: Vec<(&[u8], usize)> =
                    strides.map(|(index, stride)| (filled.plane(index), *stride)).collect();
                put_together(&planes, &desc, &mut slot.bytes)?;
                Slot::Owned(slot)
            }
            Payload::Raw(_) if self.ring.leased() + DRIVER_BUFFERS_MIN > self.ring.len() => {
                let mut slot = free()?;
                slot.bytes.copy_from_slice(whole(filled.plane(0), needed)?);
                Slot::Owned(slot)
            }
            Payload::Raw(_) => {
                whole(filled.plane(0), needed)?;
                Slot::Leased(Box::new(filled))
            }
        };
        let frame = Frame::new(desc, slot, clock.now());
        frame.ok_or(FrameFault::Bad(BadFrame::Misfit))
    }
}

/// Returns the number of frames that the driver counted between the last one and this one. Its count starts at 0 again
/// after a restart.
fn missed(last: Option<u32>, sequence: u32) -> u64 {
    let gap = last.map_or(0, |last| sequence.wrapping_sub(last).wrapping_sub(1));
    if gap > u32::MAX / 2 { 0 } else { u64::from(gap) }
}

/// Returns the time of the clock by which drivers stamp frames.
fn monotonic_now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_nanos(u64::try_from(now.tv_nsec).unwrap_or(0))
}

/// Returns the first `needed` bytes of an image; more may follow.
fn whole(bytes: &[u8], needed: usize) -> Result<&[u8], BadFrame> {
    bytes.get(..needed).ok_or(BadFrame::Short { bytes: bytes.len(), needed })
}

/// Decodes a JPEG image to the RGB frame that `desc` describes.
fn decode(jpeg: &[u8], desc: &FrameDesc, check: &mut LiveCheck, out: &mut [u8]) -> Result<(), BadFrame> {
    if !check.is_whole(jpeg) {
        return Err(BadFrame::JpegCutOff);
    }
    let decoder = JpegDecoder::new(Cursor::new(jpeg)).map_err(BadFrame::JpegCorrupt)?;
    let (made, wanted) = (decoder.dimensions(), (desc.width, desc.height));
    if made != wanted {
        return Err(BadFrame::JpegSize { made, wanted });
    }
    if decoder.color_type() == ColorType::Rgb8 {
        return decoder.read_image(out).map_err(BadFrame::JpegCorrupt);
    }
    let grey = DynamicImage::from_decoder(decoder).map_err(BadFrame::JpegCorrupt)?;
    out.copy_from_slice(&grey.into_rgb8());
    Ok(())
}

/// Copies memory planes, each with the bytes from one of its rows to the next, one after another without padding.
fn put_together(planes: &[(&[u8], usize)], desc: &FrameDesc, out: &mut [u8]) -> Result<(), BadFrame> {
    for (index, (plane, stride)) in planes.iter().enumerate() {
        let (row, rows) = desc.format.plane_size(index, desc.width, desc.height);
        let target = &mut out[desc.planes[index].offset..][..row * rows];
        for (y, target) in target.chunks_exact_mut(row).enumerate() {
            let bytes = plane.get(y * *stride..).and_then(|rest| rest.get(..row));
            target.copy_from_slice(bytes.ok_or(BadFrame::ShortPlane { bytes: plane.len() })?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use orinoco_core::{PixelFormat, Signal, WallTime};
    use orinoco_pipeline::MonotonicClock;
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicU64, Ordering};

    const ENOENT: i32 = 2;
    const EACCES: i32 = 13;

    #[test]
    fn gaps_are_what_the_driver_counted() {
        for (last, sequence, gap) in [
            (None, 7, 0),
            (Some(6), 7, 0),
            (Some(6), 9, 2),
            (Some(u32::MAX), 0, 0),
            (Some(u32::MAX), 2, 2),
            (Some(90), 0, 0),
        ] {
            assert_eq!(missed(last, sequence), gap, "{last:?} {sequence}");
        }
    }

    #[test]
    fn planes_are_put_together_without_their_padding() {
        let desc = FrameDesc::packed(PixelFormat::Nv12, 6, 4);
        let packed: Vec<u8> = (1..=36).collect();
        // Rows of 8 bytes, and extra bytes as at the end of a plane that fills a page.
        let padded = |rows: &[u8]| {
            let mut plane = Vec::new();
            for row in rows.chunks(6) {
                plane.extend_from_slice(row);
                plane.extend_from_slice(&[0xee; 2]);
            }
            plane.extend_from_slice(&[0xee; 100]);
            plane
        };
        let (luma, chroma) = (padded(&packed[..24]), padded(&packed[24..]));
        let mut out: Vec<u8> = vec![0; desc.bytes_needed()];
        put_together(&[(luma.as_slice(), 8), (chroma.as_slice(), 8)], &desc, &mut out).expect("whole");
        assert_eq!(out, packed);
        // The last row needs no padding, but all of its own bytes.
        for (bytes, whole) in [(14, true), (13, false)] {
            let put = put_together(&[(luma.as_slice(), 8), (&chroma[..bytes], 8)], &desc, &mut out);
            assert_eq!(put.is_ok(), whole, "{bytes}: {put:?}");
        }
    }

    #[test]
    fn a_jpeg_that_is_no_frame_is_told_from_one() {
        let mut jpeg = Cursor::new(Vec::new());
        image::RgbImage::new(64, 48).write_to(&mut jpeg, image::ImageFormat::Jpeg).expect("memory has room");
        let jpeg = jpeg.into_inner();
        let check = |jpeg: &[u8], width: u32, expected: Result<(), &str>| {
            let desc = FrameDesc::packed(PixelFormat::Rgb, width, 48);
            let mut slot = vec![0; desc.bytes_needed()];
            match (decode(jpeg, &desc, &mut LiveCheck::default(), &mut slot), expected) {
                (Ok(()), Ok(())) => {}
                (Err(why), Err(expected)) => assert!(why.to_string().starts_with(expected), "{why}"),
                (found, expected) => panic!("{found:?} instead of {expected:?}"),
            }
        };
        check(&jpeg, 64, Ok(()));
        check(&jpeg, 80, Err("it sent a JPEG of 64x48, not 80x48"));
        check(&jpeg[..100], 64, Err("it sent a JPEG that was cut off"));
        check(&jpeg[..jpeg.len() - 20], 64, Err("it sent a JPEG that was cut off"));
        // Drivers pad their buffers.
        check(&[&jpeg[..], &[0; 64]].concat(), 64, Ok(()));
        check(&[], 64, Err("it sent a JPEG that cannot be decoded: "));
    }

    #[test]
    fn a_jpeg_is_decoded_into_the_slot_whether_it_has_colours_or_not() {
        let desc = FrameDesc::packed(PixelFormat::Rgb, 64, 48);
        let check = |image: DynamicImage, expected: [u8; 3]| {
            let mut jpeg = Cursor::new(Vec::new());
            image.write_to(&mut jpeg, image::ImageFormat::Jpeg).expect("memory has room");
            let mut slot = vec![0; desc.bytes_needed()];
            decode(jpeg.get_ref(), &desc, &mut LiveCheck::default(), &mut slot).expect("it is whole");
            let is_near = |pixel: &[u8]| pixel.iter().zip(expected).all(|(a, b)| a.abs_diff(b) <= 3);
            assert!(slot.chunks_exact(3).all(is_near), "{:?} instead of {expected:?}", &slot[..3]);
        };
        check(image::RgbImage::from_pixel(64, 48, image::Rgb([200, 40, 90])).into(), [200, 40, 90]);
        check(image::GrayImage::from_pixel(64, 48, image::Luma([120])).into(), [120; 3]);
    }

    #[test]
    fn a_frame_may_be_followed_by_more_but_not_be_cut() {
        assert_eq!(whole(&[1, 2, 3], 2).expect("it is whole"), [1_u8, 2]);
        let cut = whole(&[1, 2, 3], 4).expect_err("it is cut off");
        assert!(matches!(cut, BadFrame::Short { bytes: 3, needed: 4 }), "{cut}");
    }

    fn taken(missed: u64, fault: Option<FrameFault>) -> DequeuedBuffer {
        let made = match fault {
            Some(fault) => Err(fault),
            None => Ok(small_frame()),
        };
        DequeuedBuffer { missed, made }
    }

    fn small_frame() -> Frame {
        let slot = SlotPool::new(1, 1).try_take().expect("one slot is free");
        let desc = FrameDesc::packed(PixelFormat::Gray8, 1, 1);
        Frame::new(desc, Slot::Owned(slot), Nanos(0)).expect("it fits")
    }

    fn bad() -> Option<FrameFault> {
        Some(FrameFault::Bad(BadFrame::Flagged))
    }

    #[test]
    fn what_became_no_frame_is_counted_at_the_next_one() {
        let mut tally = LossCount::default();
        for (missed, fault) in [(2, bad()), (0, Some(FrameFault::NoSlot)), (1, bad())] {
            let poll = tally.count(taken(missed, fault)).expect("these are few");
            assert!(matches!(poll, Poll::Pending), "{poll:?}");
        }
        for lost in [6 + 4, 4] {
            let Ok(Poll::Frame(frame)) = tally.count(taken(4, None)) else { panic!("it was made") };
            assert_eq!(frame.lost, lost);
        }
    }

    #[test]
    fn a_camera_whose_frames_are_none_says_why() {
        let mut tally = LossCount::default();
        for round in 0..2 {
            for _ in 1..BAD_ROW_MAX {
                let poll = tally.count(taken(0, bad())).expect("these are few");
                assert!(matches!(poll, Poll::Pending), "{poll:?}");
            }
            // A lack of own memory is not a fault of the camera.
            tally.count(taken(0, Some(FrameFault::NoSlot))).expect("it is no bad frame");
            let why = tally.count(taken(0, bad())).expect_err("these are enough");
            assert!(matches!(why, BadFrame::Flagged), "round {round}: {why}");
        }
        let Ok(Poll::Frame(frame)) = tally.count(taken(0, None)) else { panic!("it was made") };
        assert_eq!(frame.lost, 2 * (u64::from(BAD_ROW_MAX) + 1));
    }

    /// Clock that shows the time to which it is set.
    #[derive(Default)]
    struct Hand(AtomicU64);

    impl Clock for Hand {
        fn now(&self) -> Nanos {
            Nanos(self.0.load(Ordering::Relaxed))
        }
        fn wall(&self) -> WallTime {
            WallTime::from_unix_nanos(self.0.load(Ordering::Relaxed))
        }

        fn signal(&self) -> Arc<dyn Signal> {
            MonotonicClock::default().signal()
        }
    }

    #[test]
    fn a_device_may_refuse_its_user_for_a_moment() {
        let hand = Arc::new(Hand::default());
        let address = V4l2Address::default();
        let clock: Arc<dyn Clock> = hand.clone();
        let mut source = V4l2Source::new(address, "camera".to_owned(), clock);
        for (second, errno, lasts) in [
            (1, EACCES, false),
            (5, EACCES, false),
            // The camera was removed meanwhile, so the time starts again.
            (6, ENOENT, false),
            (7, EACCES, false),
            (11, EACCES, false),
            (12, EACCES, true),
        ] {
            hand.0.store(second * 1_000_000_000, Ordering::Relaxed);
            let said = source.opened(Err(io::Error::from_raw_os_error(errno)));
            let said = said.map(drop).map_err(|error| error.about("camera"));
            let permanent = matches!(said, Err(SourceError::Permanent(_)));
            assert_eq!(permanent, lasts, "after {second} s");
        }
    }

    #[test]
    fn what_is_no_camera_is_said_in_a_sentence() {
        let open = |path: &str| {
            let address = V4l2Address { path: PathBuf::from(path), ..V4l2Address::default() };
            V4l2Source::new(address, path.to_owned(), Arc::new(MonotonicClock::default())).open()
        };
        let gone = open("/dev/video-that-is-not-there").expect_err("it is not there");
        assert!(matches!(gone, SourceError::Transient(_)), "{gone:?}");
        let null = open("/dev/null").expect_err("it is not a camera");
        assert!(matches!(null, SourceError::Permanent(_)), "{null:?}");
    }
}
