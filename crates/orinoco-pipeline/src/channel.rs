//! A bounded channel whose waits are on a clock.

use std::collections::VecDeque;
use std::fmt;
use std::sync::mpsc::{RecvTimeoutError, TrySendError};
use std::sync::{Arc, PoisonError, Weak};

use orinoco_core::{Clock, Nanos, Signal};

use crate::sync::{Mutex, MutexGuard};

/// Makes a channel in which `items_max` items may wait. Its ends are notified, and wait, at signals of `clock`.
pub fn channel<T>(items_max: usize, clock: Arc<dyn Clock>) -> (Sender<T>, Receiver<T>) {
    assert!(items_max > 0, "nothing could ever be sent");
    let state = State {
        items: VecDeque::with_capacity(items_max),
        items_max,
        senders: 0,
        room_came: Vec::new(),
        is_received: true,
    };
    let shared = Arc::new(Shared { state: Mutex::new(state), item_came: clock.signal(), clock });
    (Sender::new(&shared), Receiver { shared })
}

struct Shared<T> {
    state: Mutex<State<T>>,
    /// Wakes the receiver.
    item_came: Arc<dyn Signal>,
    clock: Arc<dyn Clock>,
}

struct State<T> {
    items: VecDeque<T>,
    items_max: usize,
    senders: usize,
    /// Wakes each sender.
    room_came: Vec<Weak<dyn Signal>>,
    /// Whether there still is a receiver.
    is_received: bool,
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> State<T> {
    fn wake_senders(&self) {
        self.room_came.iter().filter_map(Weak::upgrade).for_each(|room_came| room_came.notify());
    }
}

/// The end of a [`channel`] into which one thread sends; others have a clone each.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
    room_came: Arc<dyn Signal>,
}

impl<T> Sender<T> {
    fn new(shared: &Arc<Shared<T>>) -> Self {
        let room_came = shared.clock.signal();
        let mut state = shared.lock();
        state.senders += 1;
        state.room_came.retain(|room_came| room_came.strong_count() > 0);
        state.room_came.push(Arc::downgrade(&room_came));
        drop(state);
        Self { shared: Arc::clone(shared), room_came }
    }

    /// Sends an item if there is room.
    pub fn try_send(&self, item: T) -> Result<(), TrySendError<T>> {
        let mut state = self.shared.lock();
        if !state.is_received {
            return Err(TrySendError::Disconnected(item));
        }
        if state.items.len() >= state.items_max {
            return Err(TrySendError::Full(item));
        }
        state.items.push_back(item);
        drop(state);
        self.shared.item_came.notify();
        Ok(())
    }

    /// Sends an item, and waits for room. Gives it back where nobody receives any more.
    pub fn send(&self, mut item: T) -> Result<(), T> {
        loop {
            item = match self.try_send(item) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Disconnected(item)) => return Err(item),
                Err(TrySendError::Full(item)) => item,
            };
            self.wait_for_room(None);
        }
    }

    /// Waits until something has changed since an item was refused, and at most until `until`. May return earlier.
    pub fn wait_for_room(&self, until: Option<Nanos>) {
        self.room_came.wait(until);
    }

    /// Ends the waits of all senders: they look again.
    pub fn wake_senders(&self) {
        self.shared.lock().wake_senders();
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self::new(&self.shared)
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.shared.lock().senders -= 1;
        self.shared.item_came.notify();
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sender({} items wait)", self.shared.lock().items.len())
    }
}

/// The end of a [`channel`] from which one thread receives.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
}

impl<T> Receiver<T> {
    /// Returns the next item, and waits for it, at most until `until`.
    pub fn receive(&self, until: Option<Nanos>) -> Result<T, RecvTimeoutError> {
        loop {
            let mut state = self.shared.lock();
            if let Some(item) = state.items.pop_front() {
                state.wake_senders();
                return Ok(item);
            }
            let has_senders = state.senders > 0;
            drop(state);
            if !has_senders {
                return Err(RecvTimeoutError::Disconnected);
            }
            if until.is_some_and(|until| self.shared.clock.now() >= until) {
                return Err(RecvTimeoutError::Timeout);
            }
            self.shared.item_came.wait(until);
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.is_received = false;
        let left = std::mem::take(&mut state.items);
        state.wake_senders();
        drop(state);
        drop(left);
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Receiver({} items wait)", self.shared.lock().items.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MonotonicClock;
    use std::time::Duration;

    fn clock() -> Arc<dyn Clock> {
        Arc::new(MonotonicClock::default())
    }

    #[test]
    fn items_come_in_order_and_then_the_end() {
        let (sender, receiver) = channel(2, clock());
        let other = sender.clone();
        assert_eq!(receiver.receive(Some(Nanos(0))), Err(RecvTimeoutError::Timeout));
        assert_eq!((sender.try_send(1), other.try_send(2)), (Ok(()), Ok(())));
        assert_eq!(sender.try_send(3), Err(TrySendError::Full(3)));
        drop((sender, other));
        let all: Vec<_> = (0..3).map(|_| receiver.receive(None)).collect();
        assert_eq!(all, [Ok(1), Ok(2), Err(RecvTimeoutError::Disconnected)]);
    }

    #[test]
    fn a_sender_waits_for_room_and_not_for_a_receiver_that_is_gone() {
        let (sender, receiver) = channel(1, clock());
        std::thread::scope(|scope| {
            let sender = scope.spawn(move || (0..9).take_while(|item| sender.send(*item).is_ok()).count());
            assert_eq!((receiver.receive(None), receiver.receive(None)), (Ok(0), Ok(1)));
            drop(receiver);
            assert!(sender.join().expect("it only sends") < 9);
        });
    }

    #[test]
    fn a_wait_for_an_item_ends_in_time() {
        let clock = clock();
        let (_sender, receiver) = channel::<u8>(1, clock.clone());
        let until = clock.now() + Duration::from_millis(20);
        assert_eq!(receiver.receive(Some(until)), Err(RecvTimeoutError::Timeout));
        assert!(clock.now() >= until);
    }
}
