//! A program in a terminal of its own, and what the terminal shows.

#![allow(clippy::unwrap_used)] // What fails here fails its test.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::num::NonZeroU16;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{Termios, tcgetattr};
use nix::unistd::Pid;
use vt100::{Color, Parser, Screen};

/// Longest that something may take on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(60);

/// A program in a terminal. It does not outlive its test.
#[allow(missing_debug_implementations)]
pub struct Pty {
    child: Child,
    /// The side of whoever sits before it.
    keys: File,
    /// The side of the program.
    inside: OwnedFd,
    before: Termios,
    parser: Arc<Mutex<Parser>>,
}

fn size(n: u16) -> NonZeroU16 {
    NonZeroU16::new(n).unwrap()
}

impl Pty {
    /// Runs a program in a terminal, which is its controlling one.
    pub fn run(command: &mut Command, columns: u16, rows: u16) -> Self {
        let window = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let pair = openpty(&window, None).unwrap();
        let before = tcgetattr(&pair.slave).unwrap();
        let inside = || Stdio::from(pair.slave.try_clone().unwrap());
        // A session of its own has a controlling terminal of its own: it is where sizes are asked for.
        let mut session = Command::new("setsid");
        session.arg("--ctty").arg(command.get_program()).args(command.get_args());
        if let Some(dir) = command.get_current_dir() {
            session.current_dir(dir);
        }
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => session.env(name, value),
                None => session.env_remove(name),
            };
        }
        if command.get_envs().all(|(name, _)| name != "TERM") {
            session.env("TERM", "xterm-256color");
        }
        let child = session.stdin(inside()).stdout(inside()).stderr(inside()).spawn().unwrap();
        let parser = Arc::new(Mutex::new(Parser::new(size(rows), size(columns), 0)));
        let keys = File::from(pair.master);
        let (mut output, shown) = (keys.try_clone().unwrap(), Arc::clone(&parser));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                shown.lock().unwrap().process(&bytes[..count]);
            }
        });
        drop(session); // It has ends of the terminal, too.
        Self { child, keys, inside: pair.slave, before, parser }
    }

    /// Types keys.
    pub fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Sends a signal to the program.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }

    /// Gives the terminal another size, of which the system tells the program.
    pub fn resize(&mut self, columns: u16, rows: u16) {
        self.parser.lock().unwrap().set_size(size(rows), size(columns));
        let mut stty = Command::new("stty");
        stty.args(["rows", &rows.to_string(), "cols", &columns.to_string()]);
        stty.stdin(Stdio::from(self.inside.try_clone().unwrap()));
        assert!(stty.status().unwrap().success());
    }

    /// The text on the screen.
    pub fn text(&self) -> String {
        self.parser.lock().unwrap().screen().contents()
    }

    /// Waits until the screen is as it must come to be. Answers with its text.
    #[track_caller]
    pub fn until(&self, what: &str, is_so: impl Fn(&Screen) -> bool) -> String {
        let begun = Instant::now();
        loop {
            {
                let parser = self.parser.lock().unwrap();
                if is_so(parser.screen()) {
                    return parser.screen().contents();
                }
            }
            let text = self.text();
            assert!(begun.elapsed() < PATIENCE, "it does not come to pass that {what}:\n{text}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until this stands on the screen.
    #[track_caller]
    pub fn shows(&self, text: &str) -> String {
        self.until(&format!("{text:?} is shown"), |screen| screen.contents().contains(text))
    }

    /// Waits until the program has ended. Answers with its exit code, if it ended by itself.
    #[track_caller]
    pub fn end(&mut self) -> Option<i32> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(begun.elapsed() < PATIENCE, "it does not end:\n{}", self.text());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The program took the terminal, and has given it back.
    #[track_caller]
    pub fn is_as_it_was(&self) {
        self.until("the screen that was there before is back, with its cursor", |screen| {
            !screen.alternate_screen() && !screen.hide_cursor()
        });
        assert_eq!(tcgetattr(&self.inside).unwrap(), self.before, "the modes of the terminal");
    }

    /// Something on the screen has a colour.
    pub fn has_colour(&self) -> bool {
        let parser = self.parser.lock().unwrap();
        let screen = parser.screen();
        let (rows, columns) = screen.size();
        let cells = (0..rows.get()).flat_map(|y| (0..columns.get()).map(move |x| (y, x)));
        let mut cells = cells.filter_map(|(y, x)| screen.cell(y, x));
        cells.any(|cell| cell.fgcolor() != Color::Default || cell.bgcolor() != Color::Default)
    }

    /// The program has the terminal for itself.
    pub fn is_taken(&self) -> bool {
        let parser = self.parser.lock().unwrap();
        parser.screen().alternate_screen() && tcgetattr(&self.inside).unwrap() != self.before
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
