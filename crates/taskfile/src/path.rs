use std::fmt;

/// Where a field stands, as in `steps[2].retry.backoff`. A chain on the stack: it costs nothing
/// until an error prints it.
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

/// A key comes from the file: short and harmless, as in every message.
fn shown(name: &str) -> String {
    super::report::quoted(name).trim_matches('`').to_owned()
}
