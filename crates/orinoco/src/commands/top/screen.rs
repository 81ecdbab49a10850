//! The screen: threads that report answers, keys and signals, and the loop that draws.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use orinoco_config::Faults;
use orinoco_core::{Clock, Diagnosis, Exit, WithSubject, codes};
use orinoco_pipeline::MonotonicClock;
use ratatui::crossterm::event::{self, Event};
use ratatui::crossterm::terminal::is_raw_mode_enabled;

use super::draw::draw;
use super::feed::{Answer, Feed, Ticks};
use super::state::{Next, State};
use crate::signals;

/// Message to the loop.
enum Message {
    /// Status of the board, or the reason why there is none.
    Answer(Box<Result<Answer, Diagnosis>>),
    /// Key, or another size of the terminal.
    Input(Event),
    /// A signal ends the program.
    Signal,
    /// A thread has ended: the terminal is gone, or there is a fault of ours.
    Ended,
}

/// Restores the terminal, however the screen ends. A panic has restored it before, by ratatui's hook; a second time would put the
/// cursor back over the panic's message.
struct Restored;

impl Drop for Restored {
    fn drop(&mut self) {
        if is_raw_mode_enabled().unwrap_or(true) {
            let _ = ratatui::try_restore();
        }
    }
}

/// Reports the end of a thread, also after a panic.
struct Reporter(Sender<Message>);

impl Drop for Reporter {
    fn drop(&mut self) {
        let _ = self.0.send(Message::Ended);
    }
}

/// Shows the figures until the user or a signal ends it.
pub(crate) fn run(feed: Feed, clock: MonotonicClock, ticks: Ticks) -> Result<Exit, Faults> {
    let (sender, messages) = channel();
    let ended = sender.clone();
    signals::call_on_signals(move || drop(ended.send(Message::Signal)))?;
    let _restored = Restored;
    let mut terminal =
        ratatui::try_init().about(&codes::NO_TERMINAL, "the terminal", "try another terminal")?;
    let mut state = State::new(feed.name());
    ask_on_thread(feed, ticks, sender.clone());
    read_keys_on_thread(sender);
    loop {
        let next = "try another terminal, or `orinoco top --json`";
        terminal.draw(|frame| draw(frame, &state)).about(&codes::SINK_WRITE, "the terminal", next)?;
        match take(&messages, &mut state, &clock) {
            Next::Continue => {}
            Next::Quit => return Ok(Exit::Done),
            Next::Interrupted => return Ok(Exit::Interrupted),
            Next::Failed => return Ok(Exit::RunFailed),
        }
    }
}

/// Waits for a message, and takes those that came with it, so that a burst is drawn once.
fn take(messages: &Receiver<Message>, state: &mut State, clock: &MonotonicClock) -> Next {
    let Ok(first) = messages.recv() else { return Next::Failed };
    for message in std::iter::once(first).chain(messages.try_iter()) {
        let next = match message {
            Message::Answer(answer) => state.on_answer(clock.now(), *answer),
            Message::Input(Event::Key(key)) => state.on_key(key),
            Message::Input(_) => Next::Continue,
            Message::Signal => Next::Interrupted,
            Message::Ended => Next::Failed,
        };
        if next != Next::Continue {
            return next;
        }
    }
    Next::Continue
}

fn ask_on_thread(mut feed: Feed, mut ticks: Ticks, sender: Sender<Message>) {
    thread::spawn(move || {
        let reporter = Reporter(sender);
        while reporter.0.send(Message::Answer(Box::new(feed.next()))).is_ok() {
            ticks.wait();
        }
    });
}

fn read_keys_on_thread(sender: Sender<Message>) {
    thread::spawn(move || {
        let reporter = Reporter(sender);
        while let Ok(input) = event::read() {
            if reporter.0.send(Message::Input(input)).is_err() {
                return;
            }
        }
    });
}
