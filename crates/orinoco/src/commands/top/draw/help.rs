//! The help: keys, and the values that are not known, with the reasons.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::{Block, Clear, Paragraph};

use super::parts::{DIM, TITLE, elide};
use crate::commands::top::state::State;

const KEYS: [(&str, &str); 4] = [
    ("q, Esc, Ctrl-C", "quit"),
    ("p", "pause, and go on"),
    ("↑ ↓", "scroll the streams"),
    ("?", "show or hide this help"),
];

/// Greatest size of the help.
const WIDTH_MAX: u16 = 100;

pub(super) fn draw(frame: &mut Frame<'_>, state: &State) {
    let whole = frame.area();
    let width = whole.width.min(WIDTH_MAX);
    let room = usize::from(width.saturating_sub(2));
    let mut lines: Vec<Line<'_>> =
        KEYS.iter().map(|(key, what)| Line::from(elide(&format!("{key:<16}{what}"), room))).collect();
    let unknown = state.latest.as_ref().map_or(&[][..], |answer| &answer.status.sensors.unknown);
    if !unknown.is_empty() {
        lines.push(Line::default());
        lines.push(Line::styled("values that are not known", TITLE));
        lines.extend(
            unknown.iter().map(|one| Line::from(elide(&format!("{}: {}", one.value, one.why), room))),
        );
    }
    let height = (lines.len() as u16).saturating_add(2).min(whole.height);
    let fitting = usize::from(height.saturating_sub(2));
    if lines.len() > fitting && fitting > 0 {
        let hidden = lines.len() - fitting + 1;
        lines.truncate(fitting - 1);
        lines.push(Line::styled(format!("… {hidden} more: orinoco top --json --once"), DIM));
    }
    let area = Rect::new((whole.width - width) / 2, (whole.height - height) / 2, width, height);
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title("help")), area);
}
