//! Tables that fit the width: less important columns are left out, and long names lose their
//! middles.

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use crate::answer::Tone;

/// The space between columns.
const GAP: usize = 2;

/// A column that may shrink keeps at least so many characters.
const SHRUNK: usize = 8;

/// The styles of tones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Theme {
    pub(super) has_colour: bool,
}

impl Theme {
    pub(super) fn style(self, tone: Tone) -> Style {
        let style = Style::new();
        match tone {
            Tone::Strong => style.add_modifier(Modifier::BOLD),
            Tone::Faint => style.add_modifier(Modifier::DIM),
            Tone::Bad if self.has_colour => style.fg(Color::Red).add_modifier(Modifier::BOLD),
            Tone::Bad => style.add_modifier(Modifier::BOLD),
            Tone::Good if self.has_colour => style.fg(Color::Green),
            Tone::Caution if self.has_colour => style.fg(Color::Yellow),
            Tone::Active if self.has_colour => style.fg(Color::Cyan),
            Tone::Good | Tone::Caution | Tone::Active => style,
        }
    }

    pub(super) fn span(self, tone: Tone, text: impl Into<String>) -> Span<'static> {
        Span::styled(text.into(), self.style(tone))
    }
}

/// A column of a table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column {
    name: &'static str,
    /// Whether it is right-aligned.
    is_number: bool,
    /// If the width is too small, columns with the highest rank are left out first.
    rank: u8,
    /// Whether its texts may be abbreviated.
    shrinks: bool,
}

/// A column of names.
pub(super) const fn name(name: &'static str, rank: u8) -> Column {
    Column { name, is_number: false, rank, shrinks: true }
}

/// A column of words.
pub(super) const fn word(name: &'static str, rank: u8) -> Column {
    Column { name, is_number: false, rank, shrinks: false }
}

/// A column of numbers.
pub(super) const fn number(name: &'static str, rank: u8) -> Column {
    Column { name, is_number: true, rank, shrinks: false }
}

/// A text in a table.
#[derive(Debug, Clone)]
pub(super) struct Cell {
    text: String,
    tone: Option<Tone>,
}

pub(super) fn cell(text: impl ToString) -> Cell {
    Cell { text: text.to_string(), tone: None }
}

pub(super) fn toned(text: impl ToString, tone: Tone) -> Cell {
    Cell { text: text.to_string(), tone: Some(tone) }
}

/// The same in the colour of its meaning, where it has one.
pub(super) fn perhaps(text: impl ToString, tone: Option<Tone>) -> Cell {
    Cell { text: text.to_string(), tone }
}

/// Rows below the names of their columns.
#[derive(Debug, Clone)]
pub(super) struct TextTable {
    pub(super) columns: &'static [Column],
    pub(super) rows: Vec<Vec<Cell>>,
}

impl TextTable {
    /// The names of the columns.
    pub(super) fn header(&self, width: usize, theme: Theme) -> Line<'static> {
        let line = self.places(width).into_iter().map(|(at, room)| {
            let column = &self.columns[at];
            let name = squeezed(column.name, room);
            (theme.style(Tone::Faint), name, room, column.is_number)
        });
        joined(line)
    }

    /// The lines of some of the rows.
    pub(super) fn lines(
        &self,
        width: usize,
        (first, count): (usize, usize),
        theme: Theme,
    ) -> Vec<Line<'static>> {
        let places = self.places(width);
        let line = |row: &Vec<Cell>| {
            joined(places.iter().map(|&(at, room)| {
                let cell = &row[at];
                let style = cell.tone.map_or(Style::new(), |tone| theme.style(tone));
                (style, squeezed(&cell.text, room), room, self.columns[at].is_number)
            }))
        };
        self.rows.iter().skip(first).take(count).map(line).collect()
    }

    /// The columns that fit, and the width of each. They are the same for all rows, so that nothing
    /// jumps when the user scrolls.
    fn places(&self, width: usize) -> Vec<(usize, usize)> {
        let mut places: Vec<(usize, usize)> =
            (0..self.columns.len()).map(|at| (at, self.natural(at))).collect();
        loop {
            let wanted = total(&places);
            if wanted <= width {
                return places;
            }
            let is_wide = |&(at, room): &(usize, usize)| self.columns[at].shrinks && room > SHRUNK;
            let spare: usize =
                places.iter().copied().filter(is_wide).map(|(_, room)| room - SHRUNK).sum();
            if wanted - spare <= width {
                return self.shrunk(places, width);
            }
            let last = places.iter().enumerate().max_by_key(|(_, (at, _))| self.columns[*at].rank);
            match last.map(|(last, _)| last) {
                Some(last) if places.len() > 1 => drop(places.remove(last)),
                _ => return places.into_iter().map(|(at, room)| (at, room.min(width))).collect(),
            }
        }
    }

    /// Takes a character from the widest column again and again, until all fit.
    fn shrunk(&self, mut places: Vec<(usize, usize)>, width: usize) -> Vec<(usize, usize)> {
        while total(&places) > width {
            let shrinking = places.iter_mut().filter(|(at, _)| self.columns[*at].shrinks);
            let Some(widest) = shrinking.max_by_key(|(_, room)| *room) else { break };
            widest.1 -= 1;
        }
        places
    }

    /// The width of the longest text of a column.
    fn natural(&self, at: usize) -> usize {
        let texts = self.rows.iter().map(|row| row[at].text.chars().count());
        texts.max().unwrap_or_default().max(self.columns[at].name.len())
    }
}

fn total(places: &[(usize, usize)]) -> usize {
    places.iter().map(|(_, room)| room + GAP).sum::<usize>().saturating_sub(GAP)
}

fn joined(cells: impl Iterator<Item = (Style, String, usize, bool)>) -> Line<'static> {
    let mut line = Line::default();
    for (count, (style, text, room, is_number)) in cells.enumerate() {
        if count > 0 {
            line.push_span(" ".repeat(GAP));
        }
        let blank = " ".repeat(room.saturating_sub(text.chars().count()));
        let text = Span::styled(text, style);
        let (one, other) = if is_number { (blank.into(), text) } else { (text, blank.into()) };
        line.push_span(one);
        line.push_span(other);
    }
    line
}

/// Cuts a name to so many characters, in its middle.
pub(super) fn squeezed(text: &str, max: usize) -> String {
    let count = text.chars().count();
    if count <= max {
        return text.to_owned();
    }
    let Some(kept) = max.checked_sub(1) else { return String::new() };
    let end = kept / 3;
    let head = text.chars().take(kept - end);
    head.chain(['…']).chain(text.chars().skip(count - end)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &[Column] = &[name("NAME", 0), word("STATUS", 2), number("FREE", 1)];

    fn table() -> TextTable {
        let row = |name: &str, free: u32| vec![cell(name), cell("here"), cell(free)];
        TextTable { columns: COLUMNS, rows: vec![row("a-worker-with-a-name", 7), row("b", 12)] }
    }

    fn text(lines: &[Line<'_>]) -> Vec<String> {
        lines.iter().map(|line| line.to_string().trim_end().to_owned()).collect()
    }

    fn drawn(width: usize) -> Vec<String> {
        let (table, theme) = (table(), Theme { has_colour: false });
        let mut lines = vec![table.header(width, theme)];
        lines.extend(table.lines(width, (0, 9), theme));
        assert!(lines.iter().all(|line| line.width() <= width), "{width}: {lines:?}");
        text(&lines)
    }

    #[test]
    fn columns_give_way_to_those_that_say_more() {
        let all = ["NAME                  STATUS  FREE", "a-worker-with-a-name  here       7"];
        assert_eq!(drawn(80)[..2], all);
        assert_eq!(drawn(26)[1], "a-worker…ame  here       7");
        assert_eq!(drawn(15), ["NAME       FREE", "a-work…me     7", "b            12"]);
        assert_eq!(drawn(9), ["NAME", "a-work…me", "b"]);
        for width in 0..40 {
            drawn(width);
        }
    }

    #[test]
    fn names_lose_their_middles() {
        assert_eq!(squeezed("worker.9f602f73cc60", 10), "worker…c60");
        assert_eq!(squeezed("short", 5), "short");
        assert_eq!((squeezed("abc", 1), squeezed("abc", 0)), ("…".into(), String::new()));
    }

    #[test]
    fn colours_are_left_out_where_they_are_not_wanted() {
        let tones = [Tone::Good, Tone::Bad, Tone::Caution, Tone::Active, Tone::Faint, Tone::Strong];
        for tone in tones {
            assert_eq!(Theme { has_colour: false }.style(tone).fg, None);
        }
        assert_eq!(Theme { has_colour: true }.style(Tone::Bad).fg, Some(Color::Red));
    }
}
