//! Lines of the screen, shared among its sections.

/// Rows that sections have to show, without their headings; `None` for a section that is left out.
pub(super) struct SectionRows {
    pub(super) sensors: usize,
    pub(super) streams: Option<usize>,
    pub(super) models: Option<usize>,
    pub(super) events: Option<usize>,
}

/// Lines of each section, with its heading and an empty line after it where there is room; 0 for a section that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Heights {
    pub(super) sensors: u16,
    pub(super) streams: u16,
    pub(super) models: u16,
    pub(super) events: u16,
}

/// Rows that a section has before others get more: streams, sensors, models, events.
const FIRST: [usize; 4] = [3, 3, 1, 1];

impl SectionRows {
    /// Shares `lines` among the sections: first a few rows for each, then one row more in turn to those that want more, most
    /// important first.
    pub(super) fn share(&self, lines: u16) -> Heights {
        let wanted = [self.streams, Some(self.sensors), self.models, self.events];
        let mut rows = [0_usize; 4];
        let headings = wanted.iter().flatten().count();
        let mut left = usize::from(lines).saturating_sub(headings);
        for ((rows, wanted), first) in rows.iter_mut().zip(&wanted).zip(FIRST) {
            *rows = wanted.unwrap_or(0).min(first).min(left);
            left -= *rows;
        }
        loop {
            let before = left;
            for (rows, wanted) in rows.iter_mut().zip(&wanted) {
                let more = left.min(1).min(wanted.unwrap_or(0).saturating_sub(*rows));
                *rows += more;
                left -= more;
            }
            if left == before {
                break;
            }
        }
        // Where all is shown and lines are left, sections are separated.
        let gap = u16::from(left >= headings);
        let height = |index: usize| wanted[index].map_or(0, |_| rows[index] as u16 + 1 + gap);
        Heights { streams: height(0), sensors: height(1), models: height(2), events: height(3) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_go_to_who_wants_them_most_important_first() {
        let check = |lines, wanted: [Option<usize>; 4], expected: [u16; 4]| {
            let [streams, sensors, models, events] = wanted;
            let wanted = SectionRows { sensors: sensors.unwrap_or(0), streams, models, events };
            let heights = wanted.share(lines);
            let heights = [heights.streams, heights.sensors, heights.models, heights.events];
            assert_eq!(heights, expected, "{lines} lines");
            assert!(heights.iter().sum::<u16>() <= lines.max(4));
        };
        check(21, [Some(30), Some(9), Some(5), Some(20)], [7, 6, 4, 4]);
        check(12, [Some(30), Some(9), Some(5), Some(20)], [4, 4, 2, 2]);
        check(14, [Some(2), Some(3), Some(1), Some(4)], [3, 4, 2, 5]);
        check(17, [Some(2), Some(3), Some(1), Some(4)], [3, 4, 2, 5]);
        check(18, [Some(2), Some(3), Some(1), Some(4)], [4, 5, 3, 6]);
        check(21, [None, Some(30), None, Some(1)], [0, 19, 0, 2]);
        check(2, [Some(1), Some(1), Some(1), Some(1)], [1, 1, 1, 1]);
    }
}
