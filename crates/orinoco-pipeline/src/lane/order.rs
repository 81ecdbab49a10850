use std::collections::VecDeque;

/// The order of one stream's frames behind those that wait for an answer: results leave it in the order in which the frames
/// came. Bounded by the mux, which hands out no more frames of a stream while too many are here.
#[derive(Debug)]
pub struct FrameOrder<T> {
    /// Frames by their number, in ascending order.
    held: VecDeque<(u64, Held<T>)>,
}

#[derive(Debug)]
enum Held<T> {
    Suspended,
    Done(T),
    Dropped,
}

impl<T> Default for FrameOrder<T> {
    fn default() -> Self {
        Self { held: VecDeque::new() }
    }
}

impl<T> FrameOrder<T> {
    /// Adds a frame that waits for an answer.
    pub fn suspend(&mut self, number: u64) {
        self.push(number, Held::Suspended);
    }

    /// Adds the result of a frame that did not wait, behind those that do.
    pub fn track(&mut self, number: u64, result: T) {
        self.push(number, Held::Done(result));
    }

    /// Sets the result of a frame that waited, or drops it.
    pub fn finish(&mut self, number: u64, result: Option<T>) {
        let (_, held) = self.held.iter_mut().find(|(held, _)| *held == number).expect("it was suspended");
        assert!(matches!(held, Held::Suspended), "frame {number} is finished once");
        *held = result.map_or(Held::Dropped, Held::Done);
    }

    /// Takes the next result, unless frames before it still wait.
    pub fn pop(&mut self) -> Option<T> {
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
    pub fn drain(&mut self) -> impl Iterator<Item = T> {
        self.held
            .drain(..)
            .filter_map(|(_, held)| if let Held::Done(result) = held { Some(result) } else { None })
    }

    /// Number of frames here.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether no frame is here, so that the next result can go on at once.
    pub fn is_empty(&self) -> bool {
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
    fn results_leave_in_the_order_of_frames() {
        let mut order = FrameOrder::default();
        (0..2).for_each(|number| order.suspend(number));
        order.track(2, 'c');
        order.suspend(3);
        order.finish(1, Some('b'));
        assert_eq!((order.pop(), order.len()), (None, 4));
        order.finish(0, None);
        assert_eq!([order.pop(), order.pop(), order.pop()], [Some('b'), Some('c'), None]);
        order.track(4, 'e');
        assert!(order.drain().eq(['e']));
        assert!(order.is_empty());
    }
}
