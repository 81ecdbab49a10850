//! Presentation times of decoded frames that the container, parser or decoder does not give.
//!
//! A decoder outputs frames in presentation order, so the order is known; the time may be missing:
//!
//! - AVI, and Matroska in its compatibility mode for AVI, have one time for each packet, in decoding order. Frame `n`
//!   is shown when packet `n + d` is decoded, where `d` is the number of packets by which the decoder reorders. This
//!   difference is subtracted, so the first frame has the time of its own packet.
//! - A PES packet of MPEG-TS or MPEG-PS with several frames has the time of the first one. The others follow by their
//!   durations.
//! - Some decoders of libav give every frame the time of the first packet.
//!
//! GStreamer's decoders guess in these cases, and set a wrong guess to the time of the previous frame.

use std::collections::VecDeque;

/// Maximum number of packets that are remembered: a decoder holds at most 16 for reordering, and hardware queues as
/// many again. A packet that is forgotten has given no frame.
const PACKETS_MAX: usize = 64;
/// Time after the last known one where nothing gives an interval: 40 ms, in nanoseconds.
const INTERVAL_DEFAULT_NANOS: u64 = 40_000_000;

/// Presentation times of one decoder's frames. Times are nanoseconds of the container.
#[derive(Debug, Default)]
pub(super) struct PresentationTimes {
    packets: VecDeque<Packet>,
    /// Number of the next packet.
    next: u64,
    order: Order,
    last: Option<u64>,
    /// Duration of the last frame, if it is known.
    last_duration: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Packet {
    number: u64,
    pts: Option<u64>,
    duration: Option<u64>,
    /// Index of its decoding time.
    index: u64,
    /// Whether it has given a frame.
    shown: bool,
}

/// Times of a packet as the container gives them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PacketTimes {
    pub(super) pts: Option<u64>,
    pub(super) dts: Option<u64>,
    pub(super) duration: Option<u64>,
}

/// Times of a frame as the decoder gives them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FrameTimes {
    /// Number of the packet from which it was decoded.
    pub(super) packet: Option<u64>,
    pub(super) pts: Option<u64>,
    pub(super) duration: Option<u64>,
}

#[derive(Debug, Default)]
enum Order {
    /// All or most packets have presentation times.
    #[default]
    Presentation,
    /// Packets have decoding times only.
    Decoding(DecodingTimes),
}

/// Decoding times that are still needed, and the state from which the frames' times follow.
#[derive(Debug, Default)]
struct DecodingTimes {
    times: VecDeque<u64>,
    /// Index of the first entry of `times`.
    first: u64,
    reorder: Option<Reorder>,
    /// Index of the last frame in presentation order.
    frame: u64,
}

#[derive(Clone, Copy, Debug)]
struct Reorder {
    /// Number of packets that the decoder holds back.
    packets: u64,
    /// Duration of those packets, in nanoseconds.
    nanos: u64,
}

impl PresentationTimes {
    /// Records a packet on its way into the decoder, and returns its number. `decoding_order` is set for a container
    /// without presentation times: AVI's demuxer still gives some to key frames, but they are decoding times.
    pub(super) fn enter(&mut self, times: PacketTimes, decoding_order: bool) -> u64 {
        let number = self.next;
        self.next += 1;
        if number == 0 && times.dts.is_some() && (decoding_order || times.pts.is_none()) {
            self.order = Order::Decoding(DecodingTimes::default());
        }
        let index = match &mut self.order {
            Order::Decoding(decoding) => decoding.enter(times.dts),
            Order::Presentation => 0,
        };
        if self.packets.len() == PACKETS_MAX {
            self.packets.pop_front();
        }
        let PacketTimes { pts, duration, .. } = times;
        self.packets.push_back(Packet { number, pts, duration, index, shown: false });
        number
    }

    /// Whether packets have decoding times only, so that the decoder should not take them as presentation times.
    pub(super) fn is_decoding_order(&self) -> bool {
        matches!(self.order, Order::Decoding(_))
    }

    /// Returns the number of the packet with this presentation time.
    pub(super) fn packet_at(&self, pts: u64) -> Option<u64> {
        self.packets.iter().find(|packet| packet.pts == Some(pts)).map(|packet| packet.number)
    }

    /// Returns the presentation time of a frame that leaves the decoder, which is always later than the one before.
    /// `None` where nothing is known.
    pub(super) fn leave(&mut self, frame: FrameTimes) -> Option<u64> {
        let packet =
            self.packets.iter_mut().find(|packet| Some(packet.number) == frame.packet && !packet.shown);
        let packet = packet.map(|packet| {
            packet.shown = true;
            *packet
        });
        let duration = packet.and_then(|packet| packet.duration).or(frame.duration);
        let follows =
            self.last.map(|last| last + self.last_duration.or(duration).unwrap_or(INTERVAL_DEFAULT_NANOS));
        let time = match &mut self.order {
            Order::Decoding(decoding) => {
                let index = packet.map(|packet| packet.index);
                let step = decoding.leave(index, self.last.is_none());
                step.or(follows).or(frame.pts)
            }
            Order::Presentation => match packet {
                Some(packet) => packet.pts.or(follows).or(frame.pts),
                // The decoder names no packet, or one that has already given a frame.
                None => frame
                    .pts
                    .filter(|pts| self.last.is_none_or(|last| *pts > last))
                    .or_else(|| self.next_shown())
                    .or(follows),
            },
        };
        let time = time.map(|time| self.last.map_or(time, |last| time.max(last + 1)));
        if let (Some(time), Some(last), Order::Decoding(_)) = (time, self.last, &self.order) {
            self.last_duration = Some(time - last);
        } else {
            self.last_duration = duration;
        }
        self.last = time.or(self.last);
        time
    }

    /// Takes the earliest time after the last frame's of a packet that has given no frame.
    fn next_shown(&mut self) -> Option<u64> {
        let last = self.last?;
        let waiting = self
            .packets
            .iter_mut()
            .filter(|packet| !packet.shown && packet.pts.is_some_and(|pts| pts > last));
        let packet = waiting.min_by_key(|packet| packet.pts)?;
        packet.shown = true;
        packet.pts
    }
}

impl DecodingTimes {
    /// Records a packet's time, and returns its index. Parsers give parts of a packet the same time, or guess a second
    /// one.
    fn enter(&mut self, dts: Option<u64>) -> u64 {
        if let Some(dts) = dts.filter(|dts| self.times.back().is_none_or(|last| dts > last)) {
            if self.times.len() == 2 * PACKETS_MAX {
                self.times.pop_front();
                self.first += 1;
            }
            self.times.push_back(dts);
        }
        (self.first + self.times.len() as u64).saturating_sub(1)
    }

    /// Returns the time of the next frame, which was decoded from the packet at `index`; `None` where its time has not
    /// arrived yet.
    fn leave(&mut self, index: Option<u64>, is_first: bool) -> Option<u64> {
        let newest = (self.first + self.times.len() as u64).checked_sub(1)?;
        let reorder = match self.reorder {
            Some(reorder) => reorder,
            None => {
                // The first frame comes out when the decoder knows that no frame is shown before it.
                self.frame = index.unwrap_or(self.first).max(self.first);
                let packets = newest.saturating_sub(self.frame);
                let nanos = self.time(newest)?.saturating_sub(self.time(self.frame)?);
                *self.reorder.insert(Reorder { packets, nanos })
            }
        };
        if !is_first {
            // No frame is held back by more than the decoder reorders: an earlier packet that is missing gave no frame.
            let earliest = index.map_or(0, |index| index.saturating_sub(reorder.packets));
            self.frame = earliest.max(self.frame + 1);
        }
        self.time(self.frame + reorder.packets).map(|time| time.saturating_sub(reorder.nanos))
    }

    fn time(&self, index: u64) -> Option<u64> {
        self.times.get(usize::try_from(index.checked_sub(self.first)?).ok()?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Step of a decoder: a packet goes in, or the frame of a packet comes out.
    enum Step {
        In(Option<u64>, Option<u64>),
        Out(Option<u64>),
    }
    use Step::{In, Out};

    /// Runs the steps (in milliseconds), and checks the frames' times.
    fn check(decoding_order: bool, steps: &[Step], expected: &[u64]) {
        let mut times = PresentationTimes::default();
        let mut seen = Vec::new();
        for step in steps {
            match step {
                In(pts, dts) => {
                    let (pts, dts) = (pts.map(|pts| pts * MS), dts.map(|dts| dts * MS));
                    times.enter(PacketTimes { pts, dts, duration: Some(40 * MS) }, decoding_order);
                }
                Out(packet) => {
                    let frame = FrameTimes { packet: *packet, ..FrameTimes::default() };
                    seen.push(times.leave(frame).expect("it is known") / MS);
                }
            }
        }
        assert_eq!(seen, expected);
    }

    fn dts(time: u64) -> Step {
        In(None, Some(time))
    }

    #[test]
    fn frames_of_decoding_times_are_shown_in_the_order_of_presentation() {
        // I P B B P B B, one packet held back; key frames have a time that is not theirs.
        let steps = [
            In(Some(0), Some(0)),
            dts(40),
            Out(Some(0)),
            dts(80),
            Out(Some(2)),
            dts(120),
            Out(Some(3)),
            In(Some(160), Some(160)),
            Out(Some(1)),
            dts(200),
            Out(Some(5)),
            dts(240),
            Out(Some(6)),
            Out(Some(4)),
        ];
        check(true, &steps, &[0, 40, 80, 120, 160, 200, 240]);
    }

    #[test]
    fn a_gap_between_decoding_times_is_one_between_frames() {
        let steps = [
            dts(0),
            dts(40),
            Out(Some(0)),
            dts(80),
            Out(Some(2)),
            dts(200),
            Out(Some(1)),
            dts(240),
            Out(Some(4)),
            Out(Some(3)),
        ];
        check(false, &steps, &[0, 40, 160, 200, 240]);
    }

    #[test]
    fn packets_that_give_no_frame_leave_their_time_empty() {
        // The two frames before the first P cannot be decoded.
        let steps = [
            dts(0),
            dts(40),
            Out(Some(0)),
            dts(80),
            dts(120),
            dts(160),
            Out(Some(1)),
            dts(200),
            Out(Some(5)),
        ];
        check(true, &steps, &[0, 40, 160]);
        // Nothing is reordered.
        check(true, &[dts(0), Out(Some(0)), dts(40), dts(80), Out(Some(2))], &[0, 80]);
    }

    #[test]
    fn a_packet_without_a_time_follows_the_frame_before() {
        let steps = [
            In(Some(40), Some(0)),
            In(Some(160), Some(40)),
            Out(Some(0)),
            In(None, Some(80)),
            Out(Some(2)),
            In(None, Some(120)),
            Out(Some(3)),
            Out(Some(1)),
        ];
        check(false, &steps, &[40, 80, 120, 160]);
    }

    #[test]
    fn a_decoder_that_names_the_first_packet_only_gives_the_next_time() {
        let steps = [
            In(Some(0), None),
            Out(Some(0)),
            In(Some(40), None),
            Out(Some(0)),
            In(Some(120), None),
            Out(Some(0)),
        ];
        check(false, &steps, &[0, 40, 120]);
    }

    #[test]
    fn memory_is_bounded_whatever_a_decoder_does() {
        for decoding_order in [true, false] {
            let mut times = PresentationTimes::default();
            for number in 0..10_000 {
                let (pts, dts) = ((!decoding_order).then_some(number), Some(number));
                times.enter(PacketTimes { pts, dts, duration: None }, decoding_order);
            }
            assert!(times.packets.len() <= PACKETS_MAX);
            assert_eq!(times.leave(FrameTimes { packet: Some(9_999), ..FrameTimes::default() }), Some(9_999));
        }
    }
}
