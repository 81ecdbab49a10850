//! State of the screen: the latest status, the power of the last minutes, and what the user has chosen.

use std::collections::VecDeque;

use orinoco_api::Status;
use orinoco_core::{Diagnosis, Nanos};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::feed::{Answer, Origin};

/// Values of a rail that are kept. No terminal has room for more.
const HISTORY_MAX: usize = 256;

/// Next step after a key or an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The screen is drawn again.
    Continue,
    /// The user wants to end.
    Quit,
    /// A signal ends the program.
    Interrupted,
    /// A thread of the screen has ended.
    Failed,
}

/// State of the screen.
#[derive(Debug)]
pub(crate) struct State {
    /// Name of what is shown: the address of a daemon, or this machine.
    pub(crate) name: String,
    /// Latest status, and who gave it.
    pub(crate) latest: Option<Answer>,
    /// Time since which no status came, and the reason.
    pub(crate) outage: Option<Outage>,
    /// Whether answers are ignored.
    pub(crate) is_paused: bool,
    /// Whether the help is shown.
    pub(crate) is_help_shown: bool,
    /// Number of streams above the first that is shown.
    pub(crate) scrolled: usize,
    histories: Vec<History>,
    answered_at: Option<Nanos>,
}

/// Time without an answer.
#[derive(Debug)]
pub(crate) struct Outage {
    /// Time since the latest answer, in seconds; `None` if there was none so far.
    pub(crate) for_s: Option<f64>,
    /// The reason.
    pub(crate) fault: Diagnosis,
}

/// Power of a rail, in milliwatts, newest first.
#[derive(Debug)]
struct History {
    rail: String,
    milliwatts: VecDeque<Option<u64>>,
}

impl State {
    pub(crate) fn new(name: String) -> Self {
        Self {
            name,
            latest: None,
            outage: None,
            is_paused: false,
            is_help_shown: false,
            scrolled: 0,
            histories: Vec::new(),
            answered_at: None,
        }
    }

    /// Takes an answer. While the screen is paused it does not change.
    pub(crate) fn on_answer(&mut self, now: Nanos, answer: Result<Answer, Diagnosis>) -> Next {
        if self.is_paused {
            return Next::Continue;
        }
        match answer {
            Ok(answer) => {
                self.outage = None;
                self.answered_at = Some(now);
                self.remember_power(&answer.status);
                self.scrolled = self.scrolled.min(answer.status.streams.len().saturating_sub(1));
                self.latest = Some(answer);
            }
            Err(fault) => {
                let for_s = self.answered_at.map(|at| now.since(at).as_secs_f64());
                self.outage = Some(Outage { for_s, fault });
            }
        }
        Next::Continue
    }

    pub(crate) fn on_key(&mut self, key: KeyEvent) -> Next {
        if key.kind == KeyEventKind::Release {
            return Next::Continue;
        }
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if is_control => return Next::Quit,
            KeyCode::Esc if self.is_help_shown => self.is_help_shown = false,
            KeyCode::Char('q') | KeyCode::Esc => return Next::Quit,
            KeyCode::Char('p') => self.is_paused = !self.is_paused,
            KeyCode::Char('?') => self.is_help_shown = !self.is_help_shown,
            KeyCode::Up => self.scrolled = self.scrolled.saturating_sub(1),
            KeyCode::Down => self.scrolled = (self.scrolled + 1).min(self.streams().saturating_sub(1)),
            _ => {}
        }
        Next::Continue
    }

    /// Returns the power of a rail in milliwatts, newest first; `None` for a time at which it was not known.
    pub(crate) fn history(&self, rail: &str) -> impl Iterator<Item = Option<u64>> {
        let history = self.histories.iter().find(|history| history.rail == rail);
        history.into_iter().flat_map(|history| history.milliwatts.iter().copied())
    }

    /// Whether this machine is shown alone.
    pub(crate) fn is_local(&self) -> bool {
        self.latest.as_ref().is_some_and(|answer| matches!(answer.origin, Origin::Local { .. }))
    }

    fn streams(&self) -> usize {
        self.latest.as_ref().map_or(0, |answer| answer.status.streams.len())
    }

    fn remember_power(&mut self, status: &Status) {
        let rails = &status.sensors.rails;
        self.histories.retain(|history| rails.iter().any(|rail| rail.name == history.rail));
        for rail in rails {
            let known = self.histories.iter_mut().position(|history| history.rail == rail.name);
            let index = known.unwrap_or_else(|| {
                self.histories.push(History { rail: rail.name.clone(), milliwatts: VecDeque::new() });
                self.histories.len() - 1
            });
            let milliwatts = &mut self.histories[index].milliwatts;
            milliwatts.truncate(HISTORY_MAX - 1);
            milliwatts.push_front(rail.watts.map(|watts| (watts.max(0.0) * 1e3) as u64));
        }
    }
}
