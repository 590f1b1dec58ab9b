//! Draws a snapshot of a cluster as lines on a screen.
//!
//! A screen is a function of the snapshot, the user's choices, and its size. The first lines show
//! the state of the cluster. The sections divide the rest: each gets as many lines as it needs if
//! there are enough, and otherwise the one in focus is the last to disappear.

mod sections;
mod table;
#[cfg(test)]
mod tests;

use std::time::Duration;

use ratatui::Frame;
use ratatui::text::{Line, Span};

use self::sections::{ScreenSection, counts, part, ranges, waits};
use self::table::{Theme, squeezed};
use super::snapshot::{NodeState, TopSnapshot, WorkerRow, WorkerState};
use super::ui::{Section, Shown, Ui};
use crate::answer::{Tone, human};

/// Lines of a section that has one row: its title, the names of its columns, the row.
const SECTION_MIN: usize = 3;

/// If less than this fits of a section's title, the section has no name.
const TITLE_MIN: usize = 10;

/// From this height on, there is space for more than rates.
const TALL: usize = 16;

/// From this height on, there is space for rates.
const LOW: usize = 9;

const KEYS: &str = "q leave   Tab section   j k scroll   p pause   ? help";

const HELP: [&str; 3] = [
    "q, Esc, Ctrl-C: leave   Tab, ← →: another section   j k, ↑ ↓, PgUp PgDn, g G: scroll   p: stand still",
    "FREE: steps that may still be sent   UNHEARD: sent, not yet acknowledged   OLDEST: wait of the next in line",
    "SILENT: since a node has heard of it, nothing more comes after 5 s   LEASE: was left when it was asked",
];

/// The input of a screen.
pub(super) struct ScreenInput<'a> {
    pub(super) snapshot: &'a TopSnapshot,
    pub(super) ui: &'a Ui,
    /// How often the cluster is asked; none if this is printed once.
    pub(super) every: Option<Duration>,
    pub(super) has_colour: bool,
}

/// Draws everything. Returns how much of each section is shown.
pub(super) fn draw(frame: &mut Frame<'_>, view: &ScreenInput<'_>) -> [Shown; 4] {
    let area = frame.area();
    let (lines, shown) = view.lines(area.width.into(), Some(area.height.into()));
    for (y, line) in (area.top()..area.bottom()).zip(&lines) {
        frame.buffer_mut().set_line(area.left(), y, line, area.width);
    }
    shown
}

/// Everything as text, with all rows.
pub(super) fn text(snapshot: &TopSnapshot, width: usize) -> String {
    let view = ScreenInput { snapshot, ui: &Ui::new(), every: None, has_colour: false };
    let (lines, _) = view.lines(width, None);
    lines.iter().fold(String::new(), |text, line| text + line.to_string().trim_end() + "\n")
}

impl ScreenInput<'_> {
    /// All lines; without a height, as many as there are.
    fn lines(&self, width: usize, height: Option<usize>) -> (Vec<Line<'static>>, [Shown; 4]) {
        let mut lines = vec![self.title(width)];
        lines.extend(self.state(width));
        let room = height.unwrap_or(usize::MAX);
        let theme = self.theme();
        let counts = counts(self.snapshot);
        if room >= LOW {
            lines.push(counts.header(width, theme));
            lines.extend(counts.lines(width, (0, if room >= TALL { 2 } else { 1 }), theme));
        }
        if room >= TALL {
            lines.extend(self.waits(width));
        }
        let foot =
            if height.is_some() && room > LOW / 2 { self.foot(width, room) } else { Vec::new() };
        let parts = Section::ALL.map(|section| part(section, self.snapshot));
        let left = room.saturating_sub(lines.len() + foot.len());
        let heights = self.heights(&parts, left);
        let mut shown = [Shown::default(); 4];
        for (section, part) in Section::ALL.into_iter().zip(&parts) {
            let at = section as usize;
            let rows = heights[at].saturating_sub(SECTION_MIN - 1);
            shown[at] = Shown { rows: part.table.rows.len(), room: rows };
            if rows > 0 {
                lines.extend(self.section(section, part, shown[at], width));
            }
        }
        if let Some(height) = height {
            lines.truncate(height.saturating_sub(foot.len()));
            lines.resize_with(height.saturating_sub(foot.len()), Line::default);
            lines.extend(foot);
        }
        (lines, shown)
    }

    fn theme(&self) -> Theme {
        Theme { has_colour: self.has_colour }
    }

    /// The title: the cluster, and how often it is asked.
    fn title(&self, width: usize) -> Line<'static> {
        let theme = self.theme();
        let how = match self.every {
            None => theme.span(Tone::Faint, human::local(self.snapshot.at)),
            Some(_) if self.ui.is_paused => theme.span(Tone::Caution, "paused"),
            Some(every) => {
                theme.span(Tone::Faint, format!("every {}", humantime::format_duration(every)))
            }
        };
        let name = "tenure top  ";
        let beside = width.checked_sub(name.len() + how.width() + 2).filter(|room| *room >= 16);
        let room = beside.unwrap_or_else(|| width.saturating_sub(name.len()));
        let address = squeezed(&self.snapshot.address, room);
        apart(vec![theme.span(Tone::Strong, name), address.into()], how, width)
    }

    /// The state of the cluster in one line, and its troubles in another.
    fn state(&self, width: usize) -> Vec<Line<'static>> {
        let (snapshot, theme) = (self.snapshot, self.theme());
        let ago = snapshot.age_ms.map(human::duration);
        let Some(ago) = ago else {
            let text = snapshot.trouble.clone();
            let (tone, text) = match text {
                Some(why) => (Tone::Bad, format!("no answer yet: {}", human::one_line(&why))),
                None => (Tone::Faint, "asking".into()),
            };
            return vec![theme.span(tone, squeezed_end(&text, width)).into()];
        };
        let mut lines = Vec::new();
        if let Some(why) = &snapshot.trouble {
            let text = format!("no answer for {ago}: {}", human::one_line(why));
            lines.push(theme.span(Tone::Bad, squeezed_end(&text, width)).into());
        } else if !snapshot.missing_partitions.is_empty() {
            let missing = ranges(&snapshot.missing_partitions);
            let text = format!("nobody answers for partitions {missing}");
            lines.push(theme.span(Tone::Bad, squeezed_end(&text, width)).into());
        }
        let here = snapshot.nodes.iter().filter(|node| node.state == NodeState::Here).count();
        let is_there = |worker: &&WorkerRow| worker.state != WorkerState::Gone;
        let workers = snapshot.workers.iter().filter(is_there).count();
        let text = [
            human::plural(here, "node"),
            human::plural(snapshot.partitions as usize, "partition"),
            format!("{} in memory", human::plural(usize_of(snapshot.tasks), "task")),
            human::plural(workers, "worker"),
        ];
        lines.push(squeezed_end(&text.join("   "), width).into());
        lines
    }

    /// Why Steps wait, in one line; none if nodes do not report it.
    fn waits(&self, width: usize) -> Option<Line<'static>> {
        let (theme, waits) = (self.theme(), waits(self.snapshot));
        self.snapshot.waits.as_ref()?;
        let mut line = Line::from(theme.span(Tone::Faint, "waiting"));
        if waits.is_empty() {
            line.push_span(theme.span(Tone::Faint, "  nothing"));
        }
        for (tone, text) in waits {
            if line.width() + text.chars().count() + 4 > width {
                line.push_span(" …");
                break;
            }
            line.push_span("  ");
            line.push_span(
                tone.map_or_else(|| text.clone().into(), |tone| theme.span(tone, &*text)),
            );
        }
        Some(line)
    }

    fn foot(&self, width: usize, room: usize) -> Vec<Line<'static>> {
        let lines = match self.ui.has_help {
            true if room >= TALL => &HELP[..],
            true => &HELP[..1],
            false => &[KEYS],
        };
        let theme = self.theme();
        let line = |text: &&str| theme.span(Tone::Faint, squeezed_end(text, width)).into();
        lines.iter().map(line).collect()
    }

    /// How many lines each section gets.
    fn heights(&self, parts: &[ScreenSection; 4], room: usize) -> [usize; 4] {
        let wanted = |at: usize| SECTION_MIN - 1 + parts[at].table.rows.len().max(1);
        let mut heights = [0; 4];
        let mut left = room;
        // In the order of their importance.
        let others = [Section::Pools, Section::Workers, Section::Attempts, Section::Nodes];
        let others = others.into_iter().filter(|section| *section != self.ui.focus);
        for section in [self.ui.focus].into_iter().chain(others) {
            if left >= SECTION_MIN {
                heights[section as usize] = SECTION_MIN;
                left -= SECTION_MIN;
            }
        }
        // Each further line goes to the section that has least and wants more.
        let wants = |heights: &[usize; 4], at: usize| heights[at] > 0 && heights[at] < wanted(at);
        while left > 0 {
            let least = (0..4).filter(|at| wants(&heights, *at)).min_by_key(|at| heights[*at]);
            let Some(least) = least else { break };
            heights[least] += 1;
            left -= 1;
        }
        heights
    }

    fn section(
        &self,
        section: Section,
        part: &ScreenSection,
        shown: Shown,
        width: usize,
    ) -> Vec<Line<'static>> {
        let theme = self.theme();
        let first = self.ui.first[section as usize].min(shown.first_max());
        let mut lines = vec![self.rule(section, part, (first, shown), width)];
        lines.push(part.table.header(width, theme));
        if part.table.rows.is_empty() {
            lines.push(theme.span(Tone::Faint, squeezed_end(part.nothing, width)).into());
        }
        lines.extend(part.table.lines(width, (first, shown.room), theme));
        lines
    }

    /// `── workers 12 ──────────────────── 3-6 of 12, 6 more ──`
    fn rule(
        &self,
        section: Section,
        part: &ScreenSection,
        (first, shown): (usize, Shown),
        width: usize,
    ) -> Line<'static> {
        let theme = self.theme();
        let Shown { rows, room } = shown;
        let has_focus = self.ui.focus == section && self.every.is_some();
        let (tone, title_tone, mark) = match has_focus {
            true => (Tone::Active, Tone::Active, "▸"),
            false => (Tone::Faint, Tone::Strong, "─"),
        };
        let last = (first + room).min(rows);
        let place = (rows > room).then(|| match rows - last {
            0 => format!("{}-{last} of {rows}", first + 1),
            more => format!("{}-{last} of {rows}, {} more", first + 1, human::len(more)),
        });
        let title = match &place {
            None if rows > 0 => format!(" {} ({}) ", part.title, human::len(rows)),
            _ => format!(" {} ", part.title),
        };
        let note = part.note.clone();
        let notes = note.into_iter().chain(place.map(|place| (Tone::Caution, place)));
        let notes: Vec<Span<'static>> =
            notes.map(|(tone, text)| theme.span(tone, format!(" {text} "))).collect();
        let used: usize = 4 + notes.iter().map(|note| note.width() + 1).sum::<usize>();
        let Some(room) = width.checked_sub(used).filter(|room| *room >= TITLE_MIN) else {
            return theme.span(title_tone, squeezed_end(title.trim(), width)).into();
        };
        let title = match title.chars().count() > room {
            true => squeezed_end(title.trim_end(), room - 1) + " ",
            false => title,
        };
        let dashes = room - title.chars().count();
        let dash = |count: usize| theme.span(tone, "─".repeat(count));
        let mark = theme.span(tone, mark);
        let mut line = Line::from(vec![dash(1), mark, theme.span(title_tone, title), dash(dashes)]);
        for note in notes {
            line.push_span(note);
            line.push_span(dash(1));
        }
        line.push_span(dash(2));
        line
    }
}

fn usize_of(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// One text at each end of a line.
fn apart(one: Vec<Span<'static>>, other: Span<'static>, width: usize) -> Line<'static> {
    let used: usize = one.iter().map(Span::width).sum::<usize>() + other.width();
    let mut line = Line::from(one);
    if let Some(blank @ 1..) = width.checked_sub(used) {
        line.push_span(" ".repeat(blank));
        line.push_span(other);
    }
    line
}

/// Cuts a sentence to so many characters, at its end.
fn squeezed_end(text: &str, max: usize) -> String {
    human::cut(text, max)
}
