use std::time::Duration;

use orinoco_core::Nanos;

/// Pictures that may be between a decoder's entry and our taking them: H.264 and H.265 reorder at most 16, hardware
/// decoders queue as many again. One that falls out is merely not timed.
const PICTURES_MAX: usize = 64;

/// When each picture entered and left the decoder. A ring of fixed size: timing never allocates.
pub(super) struct DecodeTimes {
    ring: [Option<Picture>; PICTURES_MAX],
    next: usize,
}

#[derive(Clone, Copy)]
struct Picture {
    pts: u64,
    entered: Nanos,
    took: Option<Duration>,
}

impl Default for DecodeTimes {
    fn default() -> Self {
        Self { ring: [None; PICTURES_MAX], next: 0 }
    }
}

impl DecodeTimes {
    /// A compressed picture goes into the decoder. A picture in several pieces counts from its first.
    pub(super) fn enter(&mut self, pts: u64, now: Nanos) {
        if self.picture(pts).is_some_and(|picture| picture.took.is_none()) {
            return;
        }
        self.ring[self.next] = Some(Picture { pts, entered: now, took: None });
        self.next = (self.next + 1) % PICTURES_MAX;
    }

    /// A raw picture comes out.
    pub(super) fn leave(&mut self, pts: u64, now: Nanos) {
        if let Some(picture) = self.picture(pts) {
            picture.took.get_or_insert(now.since(picture.entered));
        }
    }

    /// The time the picture took, once.
    pub(super) fn take(&mut self, pts: u64) -> Option<Duration> {
        let index = self.ring.iter().position(|entry| entry.is_some_and(|picture| picture.pts == pts))?;
        self.ring[index].take()?.took
    }

    fn picture(&mut self, pts: u64) -> Option<&mut Picture> {
        self.ring.iter_mut().flatten().find(|picture| picture.pts == pts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_timed_by_their_pts_whatever_their_order() {
        let mut times = DecodeTimes::default();
        for (pts, now) in [(0, 10), (80, 20), (40, 30), (40, 35)] {
            times.enter(pts, Nanos(now));
        }
        for (pts, now) in [(0, 15), (40, 50), (80, 60), (120, 70)] {
            times.leave(pts, Nanos(now));
        }
        let took = [0, 40, 80, 120].map(|pts| times.take(pts).map(|time| time.as_nanos()));
        assert_eq!(took, [Some(5), Some(20), Some(40), None]);
        assert_eq!(times.take(0), None);
    }

    #[test]
    fn what_never_leaves_is_forgotten() {
        let mut times = DecodeTimes::default();
        for pts in 0..1000 {
            times.enter(pts, Nanos(pts));
        }
        times.leave(1, Nanos(2000));
        times.leave(999, Nanos(2000));
        assert_eq!(times.take(1), None);
        assert_eq!(times.take(999), Some(Duration::from_nanos(1001)));
    }
}
