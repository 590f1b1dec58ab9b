//! Tables without lines, whose columns fit the terminal if there is one.

use std::fmt::Write as _;

use comfy_table::{Attribute, Cell, CellAlignment, Color, ContentArrangement, Table, presets};

use super::exit::Failure;
use super::output::{self, Paint, Stream, Tone};

/// A table under construction.
pub(crate) struct Sheet {
    table: Table,
    has_colour: bool,
    rows: usize,
}

/// One cell.
pub(crate) struct Text {
    text: String,
    tone: Option<Tone>,
    is_number: bool,
}

/// A cell.
pub(crate) fn text(text: impl ToString) -> Text {
    Text { text: text.to_string(), tone: None, is_number: false }
}

/// A cell in the colour of its meaning.
pub(crate) fn toned(text: impl ToString, tone: Tone) -> Text {
    Text { text: text.to_string(), tone: Some(tone), is_number: false }
}

/// A right-aligned cell.
pub(crate) fn number(text: impl ToString) -> Text {
    Text { text: text.to_string(), tone: None, is_number: true }
}

impl Text {
    /// The same in the colour of its meaning.
    pub(crate) fn in_tone(self, tone: Tone) -> Self {
        Self { tone: Some(tone), ..self }
    }
}

impl Sheet {
    /// A table with these column names.
    pub(crate) fn new(header: &[&str]) -> Self {
        let mut sheet = Self::bare();
        let names = header.iter().map(|name| toned(name, Tone::Faint));
        let names: Vec<Cell> = names.map(|name| sheet.cell(name)).collect();
        sheet.table.set_header(names);
        sheet
    }

    /// A table without column names.
    pub(crate) fn bare() -> Self {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        match Stream::Stdout.is_terminal() {
            true => table.set_content_arrangement(ContentArrangement::Dynamic),
            false => table.set_content_arrangement(ContentArrangement::Disabled),
        };
        let has_colour = Stream::Stdout.has_colour();
        if has_colour {
            table.enforce_styling();
        }
        Self { table, has_colour, rows: 0 }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = Text>) {
        let cells: Vec<Cell> = cells.into_iter().map(|cell| self.cell(cell)).collect();
        self.table.add_row(cells);
        self.rows += 1;
    }

    /// Adds a named value, unless it is empty.
    pub(crate) fn field(&mut self, name: &str, value: impl ToString) {
        let value = value.to_string();
        if !value.is_empty() {
            self.row([toned(name, Tone::Faint), text(value)]);
        }
    }

    /// Whether there are no rows yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows == 0
    }

    fn cell(&self, given: Text) -> Cell {
        let mut cell = Cell::new(given.text);
        if given.is_number {
            cell = cell.set_alignment(CellAlignment::Right);
        }
        match given.tone.filter(|_| self.has_colour) {
            None => cell,
            Some(Tone::Good) => cell.fg(Color::DarkGreen),
            Some(Tone::Bad) => cell.fg(Color::DarkRed).add_attribute(Attribute::Bold),
            Some(Tone::Caution) => cell.fg(Color::DarkYellow),
            Some(Tone::Active) => cell.fg(Color::DarkCyan),
            Some(Tone::Faint) => cell.add_attribute(Attribute::Dim),
            Some(Tone::Strong) => cell.add_attribute(Attribute::Bold),
        }
    }

    /// The table as text, each line ended.
    pub(crate) fn render(mut self) -> String {
        for column in self.table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        let mut out = String::new();
        for line in self.table.lines() {
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }

    /// Writes the table to stdout.
    pub(crate) fn print(self) -> Result<(), Failure> {
        output::print(self.render())
    }
}

/// A part of an answer under its name, unless it is empty.
pub(crate) fn section(out: &mut String, name: &str, body: &str) {
    if !body.is_empty() {
        let name = Paint::of(Stream::Stdout).text(Tone::Faint, name);
        let _ = write!(out, "\n{name}\n{body}"); // Writing to a String never fails.
    }
}
