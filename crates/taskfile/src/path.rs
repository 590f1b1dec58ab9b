//! The path of a field in a task file, for messages.

use std::fmt;

/// The path of a field, as in `steps[2].retry.backoff`. It is a chain on the stack, which costs
/// nothing until an error prints it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Path<'p> {
    Root,
    Key(&'p Path<'p>, &'p str),
    Item(&'p Path<'p>, usize),
}

impl<'p> Path<'p> {
    pub(super) fn key(&'p self, name: &'p str) -> Path<'p> {
        Path::Key(self, name)
    }

    pub(super) fn item(&'p self, index: usize) -> Path<'p> {
        Path::Item(self, index)
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Root => Ok(()),
            Path::Key(Path::Root, name) => f.write_str(&shown(name)),
            Path::Key(parent, name) => write!(f, "{parent}.{}", shown(name)),
            Path::Item(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// A key in a message. It comes from the file, so it is shortened, and made harmless to a terminal.
fn shown(name: &str) -> String {
    super::report::quoted(name).trim_matches('`').to_owned()
}
