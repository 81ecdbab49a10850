use std::collections::VecDeque;

/// The order of one stream's frames behind those that wait for an answer: results leave it in the order in which the frames
/// came. Bounded by the mux, which hands out no more frames of a stream while too many are here.
#[derive(Debug)]
pub(super) struct FrameOrder<T> {
    /// Frames by their number, in ascending order.
    held: VecDeque<(u64, Held<T>)>,
}

#[derive(Debug)]
enum Held<T> {
    Suspended,
    Done(T),
    Dropped,
}

/// Change of the number of frames in a [`FrameOrder`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// None is here that was not here before, and none has left.
    Unchanged,
    /// One more is held, behind frames that wait.
    Held,
    /// So many have left.
    Released(usize),
}

impl<T> Default for FrameOrder<T> {
    fn default() -> Self {
        Self { held: VecDeque::new() }
    }
}

impl<T> FrameOrder<T> {
    /// Adds a frame that waits for an answer.
    pub(super) fn suspend(&mut self, number: u64) {
        self.push(number, Held::Suspended);
    }

    /// Adds the result of a frame that did not wait, behind those that do.
    fn track(&mut self, number: u64, result: T) {
        self.push(number, Held::Done(result));
    }

    /// Takes the result of a frame whose batch is over, or `None` if the frame is dropped, and forwards the results that
    /// wait for no frame before them. `was_suspended` says whether it is here already, because it waited for an answer.
    pub(super) fn settle(
        &mut self,
        number: u64,
        was_suspended: bool,
        result: Option<T>,
        mut forward: impl FnMut(T),
    ) -> Settled {
        if was_suspended {
            let before = self.len();
            self.finish(number, result);
            while let Some(result) = self.pop() {
                forward(result);
            }
            return Settled::Released(before - self.len());
        }
        match result {
            Some(result) if self.is_empty() => forward(result),
            Some(result) => {
                self.track(number, result);
                return Settled::Held;
            }
            None => {}
        }
        Settled::Unchanged
    }

    /// Sets the result of a frame that waited, or drops it.
    fn finish(&mut self, number: u64, result: Option<T>) {
        let (_, held) = self.held.iter_mut().find(|(held, _)| *held == number).expect("it was suspended");
        assert!(matches!(held, Held::Suspended), "frame {number} is finished once");
        *held = result.map_or(Held::Dropped, Held::Done);
    }

    /// Takes the next result, unless frames before it still wait.
    fn pop(&mut self) -> Option<T> {
        while let Some((number, held)) = self.held.pop_front() {
            match held {
                Held::Done(result) => return Some(result),
                Held::Dropped => {}
                Held::Suspended => {
                    self.held.push_front((number, held));
                    return None;
                }
            }
        }
        None
    }

    /// Takes all results, whatever waits before them.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = T> {
        self.held
            .drain(..)
            .filter_map(|(_, held)| if let Held::Done(result) = held { Some(result) } else { None })
    }

    /// Number of frames here.
    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether no frame is here, so that the next result can go on at once.
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    fn push(&mut self, number: u64, held: Held<T>) {
        assert!(self.held.back().is_none_or(|(last, _)| *last < number), "frame {number} comes too late");
        self.held.push_back((number, held));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "frame 1 is finished once")]
    fn a_frame_is_finished_once() {
        let mut order = FrameOrder::default();
        (0..2).for_each(|number| order.suspend(number));
        order.settle(1, true, Some('b'), |_| {});
        order.settle(1, true, Some('c'), |_| {});
    }

    #[test]
    #[should_panic(expected = "frame 1 comes too late")]
    fn a_frame_comes_once() {
        let mut order = FrameOrder::default();
        order.suspend(1);
        order.settle(1, false, Some('b'), |_| {});
    }

    #[test]
    fn results_leave_in_the_order_of_frames() {
        let (mut order, mut left) = (FrameOrder::default(), Vec::new());
        assert_eq!(order.settle(0, false, Some('a'), |result| left.push(result)), Settled::Unchanged);
        (1..3).for_each(|number| order.suspend(number));
        assert_eq!(order.settle(3, false, Some('d'), |result| left.push(result)), Settled::Held);
        assert_eq!(order.settle(4, false, None, |result| left.push(result)), Settled::Unchanged);
        order.suspend(5);
        assert_eq!(order.settle(2, true, Some('c'), |result| left.push(result)), Settled::Released(0));
        assert_eq!((&left[..], order.len()), (&['a'][..], 4), "nothing passes frame 1");
        assert_eq!(order.settle(1, true, None, |result| left.push(result)), Settled::Released(3));
        assert_eq!((&left[..], order.len()), (&['a', 'c', 'd'][..], 1));
        assert_eq!(order.settle(6, false, Some('g'), |result| left.push(result)), Settled::Held);
        assert!(order.drain().eq(['g']));
        assert!(order.is_empty());
    }
}
