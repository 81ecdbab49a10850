use std::sync::Arc;
use std::time::Duration;

use orinoco_core::{Clock, FrameDesc, FrameView, PixelFormat, Pts};
use orinoco_pipeline::{Frame, Poll, Slot, SlotPool, Source, SourceError};
use orinoco_uri::{SourceKind, SourceUri, TestPattern};

#[cfg(test)]
use super::suite::{Sample, Samples};
use super::{SourceDescriptor, no_check, no_files};
use crate::pace::Pacer;
use crate::slots::{SourceNeeds, slots};

/// Luma, U and V of the background and of the ball (limited range): dark grey and orange.
const GROUND: [u8; 3] = [60, 128, 128];
const BALL: [u8; 3] = [180, 70, 190];

/// Source of `test://ball`: a ball that moves over a plain background, the same on every run and every machine.
pub struct TestSource {
    pattern: TestPattern,
    clock: Arc<dyn Clock>,
    pacer: Pacer,
    pool: SlotPool,
    slots: usize,
    desc: FrameDesc,
    number: u64,
}

impl TestSource {
    /// Creates the source of `pattern` for a ring of `queue_frames`. Its slots are allocated here, once.
    pub fn new(pattern: TestPattern, queue_frames: usize, clock: Arc<dyn Clock>) -> Self {
        let (slots, desc) = (slots(queue_frames), desc(&pattern));
        let pool = SlotPool::new(slots, desc.bytes_needed());
        Self { pattern, pacer: Pacer::new(pattern.pace, clock.clone()), clock, pool, slots, desc, number: 0 }
    }

    fn pts(&self) -> Pts {
        let nanos = u128::from(self.number) * 1_000_000_000 / u128::from(self.pattern.fps);
        Pts(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl Source for TestSource {
    /// Returns at once.
    fn open(&mut self) -> Result<(), SourceError> {
        self.number = 0;
        self.pacer.restart();
        Ok(())
    }

    fn next(&mut self, wait: Duration) -> Result<Poll, SourceError> {
        if self.pattern.frames.is_some_and(|frames| self.number >= frames) {
            return Ok(Poll::End);
        }
        let pts = self.pts();
        if !self.pacer.wait(pts, wait) {
            return Ok(Poll::Waiting);
        }
        let Some(mut slot) = self.pool.take(wait, &*self.clock) else { return Ok(Poll::Waiting) };
        draw(&mut slot.bytes, &self.desc, Ball::at(&self.pattern, self.number));
        self.number += 1;
        let desc = FrameDesc { pts, ..self.desc };
        let frame = Frame::new(desc, Slot::Owned(slot), self.clock.now());
        Ok(Poll::Frame(frame.expect("slots are as large as the pattern's frames")))
    }

    fn close(&mut self) {}

    fn frames_max(&self) -> Option<usize> {
        Some(self.slots)
    }
}

/// Returns the descriptor of the pattern's frames.
fn desc(pattern: &TestPattern) -> FrameDesc {
    FrameDesc::packed(PixelFormat::I420, pattern.width, pattern.height)
}

/// Place of the test pattern's ball, in pixels: what a detector should find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ball {
    /// Column of the centre.
    pub x: u32,
    /// Row of the centre.
    pub y: u32,
    /// Radius in pixels.
    pub radius: u32,
}

impl Ball {
    /// Returns the position of the ball of `pattern` in frame `number`.
    pub fn at(pattern: &TestPattern, number: u64) -> Self {
        let radius = (pattern.width.min(pattern.height) / 8).max(1);
        // Different speeds across and down make the path long before it repeats.
        let x = bounce(number.wrapping_mul(5), pattern.width - 2 * radius);
        let y = bounce(number.wrapping_mul(3), pattern.height - 2 * radius);
        Self { x: radius + x, y: radius + y, radius }
    }
}

/// Returns a position that runs from 0 to below `span` and back.
fn bounce(travelled: u64, span: u32) -> u32 {
    let turn = u64::from(span.max(2) - 1);
    let position = travelled % (2 * turn);
    let position = if position <= turn { position } else { 2 * turn - position };
    u32::try_from(position).expect("it is below the span")
}

/// Draws the background and the ball into a packed I420 image.
fn draw(bytes: &mut [u8], desc: &FrameDesc, ball: Ball) {
    assert!(FrameView::new(desc, bytes).is_some(), "{} bytes for {desc:?}", bytes.len());
    for (index, plane) in desc.planes.iter().enumerate().take(desc.format.planes()) {
        let (row, rows) = desc.format.plane_size(index, desc.width, desc.height);
        let shift = if index == 0 { 0 } else { 1 };
        let pixels = &mut bytes[plane.offset..][..row * rows];
        pixels.fill(GROUND[index]);
        for (y, line) in pixels.chunks_exact_mut(row).enumerate() {
            let Some(span) = chord(ball, y << shift) else { continue };
            let (start, end) = (span.start >> shift, (span.end >> shift).min(row));
            line[start..end].fill(BALL[index]);
        }
    }
}

/// Returns the columns that the ball covers in row `y`.
fn chord(ball: Ball, y: usize) -> Option<std::ops::Range<usize>> {
    let (x, radius) = (ball.x as usize, ball.radius as usize);
    let dy = y.abs_diff(ball.y as usize);
    let half = (radius * radius).checked_sub(dy * dy)?.isqrt();
    Some(x - half..x + half + 1)
}

/// `test://ball`.
pub(super) static PATTERN: SourceDescriptor = SourceDescriptor {
    scheme: None,
    opens: |uri| matches!(uri.kind(), SourceKind::Test(_)),
    needs: |uri, queue_frames| {
        SourceNeeds::of_slots(slots(queue_frames), desc(&pattern_of(uri)).bytes_needed())
    },
    check: no_check,
    files: no_files,
    make: |uri, settings| {
        Ok(Box::new(TestSource::new(pattern_of(uri), settings.queue_frames, settings.clock)))
    },
    #[cfg(test)]
    samples: |_| {
        Samples::Here(vec![
            Sample::new("test://ball?width=16&height=16&frames=40", 40),
            Sample::new("test://ball?width=17&height=33&frames=20&fps=200&pace=pts", 20),
        ])
    },
};

fn pattern_of(uri: &SourceUri) -> TestPattern {
    let SourceKind::Test(pattern) = *uri.kind() else { unreachable!("{uri} is a test pattern") };
    pattern
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the test waits for real threads or processes")]
mod tests {
    use super::*;
    use crate::slots::SLOTS_MAX;
    use orinoco_pipeline::MonotonicClock;

    /// Default capacity of a board's ring, in frames.
    const RING_FRAMES: usize = 4;

    fn source(uri: &str) -> TestSource {
        let uri = SourceUri::parse(uri).expect("it is valid");
        let SourceKind::Test(pattern) = *uri.kind() else { panic!("{uri} is a test pattern") };
        TestSource::new(pattern, RING_FRAMES, Arc::new(MonotonicClock::default()))
    }

    fn frames(uri: &str) -> Vec<Frame> {
        let mut source = source(uri);
        source.open().expect("it always opens");
        let next = || match source.next(Duration::from_secs(1)).expect("it never fails") {
            Poll::Frame(frame) => Some(frame),
            Poll::Pending | Poll::Waiting => panic!("a slot is free and the time has come"),
            Poll::End => None,
        };
        std::iter::from_fn(next).collect()
    }

    fn pixels(frame: &Frame) -> Vec<u8> {
        frame.view().packed_rows().flatten().copied().collect()
    }

    #[test]
    fn it_is_the_same_every_time_and_moves() {
        let (first, second) = (frames("test://ball?frames=5"), frames("test://ball?frames=5"));
        assert_eq!(
            first.iter().map(pixels).collect::<Vec<_>>(),
            second.iter().map(pixels).collect::<Vec<_>>()
        );
        assert_ne!(pixels(&first[0]), pixels(&first[1]));
        assert_eq!(first.iter().map(|f| f.desc.pts.0).collect::<Vec<_>>()[..3], [0, 33_333_333, 66_666_666]);
    }

    #[test]
    fn the_ball_is_where_it_says_at_any_size() {
        for size in
            ["width=16&height=16", "width=17&height=33", "width=640&height=480", "width=321&height=16"]
        {
            let mut source = source(&format!("test://ball?{size}"));
            source.open().expect("it always opens");
            for number in 0..500 {
                let Ok(Poll::Frame(frame)) = source.next(Duration::ZERO) else { panic!("a slot is free") };
                let ball = Ball::at(&source.pattern, number);
                let luma = frame.view().plane(0).row(ball.y as usize)[ball.x as usize];
                assert_eq!(luma, BALL[0], "{size} frame {number}: {ball:?}");
                assert!(ball.x + ball.radius < frame.desc.width && ball.y + ball.radius < frame.desc.height);
            }
        }
    }

    #[test]
    fn held_frames_hold_the_source_back() {
        let mut source = source("test://ball?width=16&height=16");
        let mut next = || source.next(Duration::from_millis(1)).expect("it never fails");
        let held: Vec<_> = (0..SLOTS_MAX).map(|_| next()).collect();
        assert!(held.iter().all(|poll| matches!(poll, Poll::Frame(_))));
        assert!(matches!(next(), Poll::Waiting));
        drop(held);
        assert!(matches!(next(), Poll::Frame(_)));
    }

    #[test]
    fn pace_keeps_real_time() {
        let begin = std::time::Instant::now();
        assert_eq!(frames("test://ball?frames=6&fps=50&pace=pts").len(), 6);
        let took = begin.elapsed();
        assert!((95..500).contains(&took.as_millis()), "five intervals of 20 ms took {took:?}");
    }
}
