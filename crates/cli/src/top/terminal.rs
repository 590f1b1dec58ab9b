//! Takes the whole terminal, and restores it: at the end, after a panic, after a signal.

use std::io::{self, BufWriter, Stdout};
use std::panic;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::{Frame, Terminal};
use tokio::sync::mpsc;

/// How many keys may wait to be read.
const KEYS_MAX: usize = 64;

/// Whether the terminal is taken. To restore it twice would move the cursor onto text that was
/// printed meanwhile.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// A terminal that shows nothing but what is drawn on it, until this is dropped.
pub(super) struct Screen(Terminal<CrosstermBackend<BufWriter<Stdout>>>);

impl Screen {
    /// Takes the terminal.
    pub(super) fn open() -> io::Result<Self> {
        restore_on_panic();
        enable_raw_mode()?;
        TAKEN.store(true, Ordering::Release);
        let taken = execute!(io::stdout(), EnterAlternateScreen, Clear(ClearType::All))
            .and_then(|()| Terminal::new(CrosstermBackend::new(BufWriter::new(io::stdout()))));
        taken.map(Self).inspect_err(|_| restore())
    }

    /// Draws anew, in the size that the terminal has now.
    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.0.draw(draw).map(drop)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Restores the terminal, if it is still there.
fn restore() {
    if !TAKEN.swap(false, Ordering::AcqRel) {
        return;
    }
    let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
}

/// Restores the terminal before the panic hook prints, so that its message is visible.
fn restore_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let tell = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            restore();
            tell(info);
        }));
    });
}

/// Receives keys and changes of the terminal's size. Ends with an error, or when the receiver is
/// dropped.
pub(super) fn events() -> mpsc::Receiver<io::Result<Event>> {
    let (tell, events) = mpsc::channel(KEYS_MAX);
    // A thread that waits for a key cannot be stopped; it ends with the process.
    std::thread::spawn(move || {
        loop {
            let event = event::read();
            let is_last = event.is_err();
            if tell.blocking_send(event).is_err() || is_last {
                return;
            }
        }
    });
    events
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use tenure_tests::pty::Pty;

    use super::*;

    /// The test below runs this in a terminal of its own.
    #[test]
    #[ignore = "it takes the terminal"]
    #[should_panic = "a defect"]
    fn panics_on_the_screen() {
        let mut screen = Screen::open().unwrap();
        screen.draw(|frame| frame.render_widget("on the screen", frame.area())).unwrap();
        panic!("a defect");
    }

    #[test]
    fn a_panic_gives_the_terminal_back_and_is_told() {
        let mut test = Command::new(std::env::current_exe().unwrap());
        // A short output, so that the panic's lines are not scrolled away or overwritten.
        test.args(["--ignored", "--nocapture", "--exact"]).env("RUST_BACKTRACE", "0");
        test.arg(concat!(module_path!(), "::panics_on_the_screen").split_once("::").unwrap().1);
        let mut pty = Pty::run(&mut test, 80, 24);
        assert_eq!(pty.end(), Some(0), "the panic is the one that was to come");
        pty.until("the panic is told", |screen| screen.contents().contains("a defect"));
        pty.is_as_it_was();
    }
}
