//! The choices of the user: the section in focus, how far it is scrolled, and whether the screen is
//! paused.

use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// A part of the screen with rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Section {
    Nodes,
    Pools,
    Workers,
    Attempts,
}

impl Section {
    /// From top to bottom.
    pub(super) const ALL: [Self; 4] = [Self::Nodes, Self::Pools, Self::Workers, Self::Attempts];

    fn after(self) -> Self {
        Self::ALL[(self as usize + 1) % Self::ALL.len()]
    }

    fn before(self) -> Self {
        Self::ALL[(self as usize + Self::ALL.len() - 1) % Self::ALL.len()]
    }
}

/// How much of a section is shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Shown {
    /// How many rows there are.
    pub(super) rows: usize,
    /// How many rows fit.
    pub(super) room: usize,
}

impl Shown {
    /// The last row that may be on top, so that the section stays full.
    pub(super) fn first_max(self) -> usize {
        self.rows.saturating_sub(self.room)
    }
}

/// What a key asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    /// To leave `tenure top`.
    Leave,
    /// To draw the screen again.
    Look,
}

/// The choices of the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ui {
    /// The section that keys scroll.
    pub(super) focus: Section,
    /// The row on top of each section.
    pub(super) first: [usize; 4],
    /// How much of each section was shown last.
    pub(super) shown: [Shown; 4],
    pub(super) is_paused: bool,
    pub(super) has_help: bool,
}

impl Ui {
    pub(super) fn new() -> Self {
        Self {
            focus: Section::Pools,
            first: [0; 4],
            shown: [Shown::default(); 4],
            is_paused: false,
            has_help: false,
        }
    }

    /// Handles a key. After a change of the terminal's size, or any other event, the screen is
    /// drawn again.
    pub(super) fn take(&mut self, event: &Event) -> Wish {
        match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => self.press(*key),
            _ => Wish::Look,
        }
    }

    fn press(&mut self, key: KeyEvent) -> Wish {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        let room = self.shown[self.focus as usize].room.max(1);
        match key.code {
            KeyCode::Char('c') if is_control => return Wish::Leave,
            KeyCode::Char('q' | 'Q') | KeyCode::Esc => return Wish::Leave,
            KeyCode::Tab | KeyCode::Right => self.focus = self.focus.after(),
            KeyCode::BackTab | KeyCode::Left => self.focus = self.focus.before(),
            KeyCode::Down | KeyCode::Char('j') => self.scroll(|first| first.saturating_add(1)),
            KeyCode::Up | KeyCode::Char('k') => self.scroll(|first| first.saturating_sub(1)),
            KeyCode::PageDown | KeyCode::Char(' ') => {
                self.scroll(|first| first.saturating_add(room));
            }
            KeyCode::PageUp => self.scroll(|first| first.saturating_sub(room)),
            KeyCode::Home | KeyCode::Char('g') => self.scroll(|_| 0),
            KeyCode::End | KeyCode::Char('G') => self.scroll(|_| usize::MAX),
            KeyCode::Char('p') => self.is_paused = !self.is_paused,
            KeyCode::Char('?' | 'h') => self.has_help = !self.has_help,
            _ => {}
        }
        Wish::Look
    }

    /// Scrolls from the row that is shown on top, which may be above the one that was chosen
    /// earlier.
    fn scroll(&mut self, to: impl FnOnce(usize) -> usize) {
        let at = self.focus as usize;
        let most = self.shown[at].first_max();
        self.first[at] = to(self.first[at].min(most)).min(most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(ui: &mut Ui, code: KeyCode) -> Wish {
        ui.take(&Event::Key(KeyEvent::new(code, KeyModifiers::NONE)))
    }

    #[test]
    fn keys_scroll_the_section_in_focus_and_no_further_than_its_end() {
        let mut ui = Ui::new();
        ui.shown[Section::Workers as usize] = Shown { rows: 10, room: 4 };
        press(&mut ui, KeyCode::Tab);
        assert_eq!(ui.focus, Section::Workers);
        press(&mut ui, KeyCode::Char('j'));
        press(&mut ui, KeyCode::Down);
        assert_eq!(ui.first, [0, 0, 2, 0]);
        press(&mut ui, KeyCode::PageDown);
        press(&mut ui, KeyCode::PageDown);
        assert_eq!(ui.first[2], 6, "the last rows fill the room");
        press(&mut ui, KeyCode::Char('k'));
        assert_eq!(ui.first[2], 5);
        press(&mut ui, KeyCode::Home);
        assert_eq!(ui.first[2], 0);
        press(&mut ui, KeyCode::End);
        ui.shown[2].rows = 5; // Workers have left meanwhile.
        press(&mut ui, KeyCode::Up);
        assert_eq!(ui.first[2], 0);
        for section in [Section::Attempts, Section::Nodes, Section::Pools, Section::Workers] {
            press(&mut ui, KeyCode::Tab);
            assert_eq!(ui.focus, section);
        }
        press(&mut ui, KeyCode::BackTab);
        assert_eq!(ui.focus, Section::Pools);
    }

    #[test]
    fn three_keys_leave_and_others_do_not() {
        let mut ui = Ui::new();
        let control = |c| Event::Key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL));
        assert_eq!(press(&mut ui, KeyCode::Char('q')), Wish::Leave);
        assert_eq!(press(&mut ui, KeyCode::Esc), Wish::Leave);
        assert_eq!(ui.take(&control('c')), Wish::Leave);
        assert_eq!(press(&mut ui, KeyCode::Char('c')), Wish::Look);
        assert_eq!(ui.take(&Event::Resize(20, 5)), Wish::Look);
        press(&mut ui, KeyCode::Char('p'));
        press(&mut ui, KeyCode::Char('?'));
        assert!(ui.is_paused && ui.has_help);
    }
}
