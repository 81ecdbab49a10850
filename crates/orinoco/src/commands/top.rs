//! `orinoco top`: the figures of a board, updated all the time, on a screen or as JSON lines.

mod draw;
mod feed;
mod local;
mod screen;
mod state;

use std::io::IsTerminal;

use orinoco_api::ErrorReport;
use orinoco_config::Faults;
use orinoco_core::{Diagnosis, Exit, codes};
use orinoco_pipeline::MonotonicClock;

use crate::args::TopArgs;
use crate::{output, signals};
use feed::{Feed, Origin, Ticks};

pub(crate) fn run(args: &TopArgs, json: bool) -> Result<Exit, Faults> {
    let clock = MonotonicClock::default();
    let ticks = Ticks::new(clock, args.interval);
    if json {
        signals::end_on_signals()?;
        return print_lines(Feed::new(args, clock)?, ticks, args.once);
    }
    if !std::io::stdout().is_terminal() {
        let next = "use `orinoco top --json`";
        let cause = "standard output is not a terminal";
        return Err(Diagnosis::new(&codes::NO_TERMINAL, "orinoco top", cause, next).into());
    }
    screen::run(Feed::new(args, clock)?, clock, ticks)
}

/// Prints the status at each tick, until nobody reads it any more. When the daemon goes away, its error is printed in place of
/// its status.
fn print_lines(mut feed: Feed, mut ticks: Ticks, once: bool) -> Result<Exit, Faults> {
    let first = feed.next()?;
    if let Origin::Local { no_daemon: Some(fault) } = &first.origin {
        output::warn(&format!("sensors of this machine only: {fault}"));
    }
    output::print_json(&first.status);
    while !once && !output::is_unread() {
        ticks.wait();
        match feed.next() {
            Ok(answer) => output::print_json(&answer.status),
            Err(fault) => output::print_json(&ErrorReport::new(&[fault])),
        }
    }
    Ok(Exit::Done)
}
