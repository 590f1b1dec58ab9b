//! The error of a refused task file, with its problems and their places.

use std::fmt;

use serde::Serialize;

/// Why a task file was refused. There is always a first problem; the other problems of the same
/// pass are in `others`, so that the author of a file with five mistakes sees them at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TaskFileError {
    /// The file as the caller named it.
    pub file: String,
    /// The first problem in the order of the file. In JSON its fields stand beside `file`.
    #[serde(flatten)]
    pub first: Box<Problem>,
    /// The other ones, in the order of the file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<Problem>,
    /// How many more there are than listed.
    pub omitted: usize,
}

/// One thing that is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// `validation_error`, or `dependency_cycle` for a cycle.
    pub code: &'static str,
    /// From 1; absent if the problem is about the file as a whole.
    pub line: Option<usize>,
    /// From 1, in characters.
    pub column: Option<usize>,
    /// Path of the field, as in `steps[2].retry.backoff`; empty if the problem is about no field.
    pub field: String,
    /// What is wrong.
    pub message: String,
    /// How to correct it.
    pub hint: Option<String>,
    /// The line itself, for people.
    #[serde(skip)]
    pub(super) excerpt: Option<Excerpt>,
}

/// A piece of a source line with the place to point at, in characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Excerpt {
    pub(super) text: String,
    pub(super) caret_at: usize,
    pub(super) caret_width: usize,
}

impl TaskFileError {
    /// Every listed problem, the first one first.
    pub fn problems(&self) -> impl Iterator<Item = &Problem> {
        std::iter::once(&*self.first).chain(&self.others)
    }

    /// An error that has no place in the text.
    pub(super) fn of_file(file: &str, message: String, hint: Option<String>) -> Self {
        let first = Problem {
            code: VALIDATION_ERROR,
            line: None,
            column: None,
            field: String::new(),
            message,
            hint,
            excerpt: None,
        };
        TaskFileError { file: file.into(), first: first.into(), others: Vec::new(), omitted: 0 }
    }
}

/// Code of every problem except a cycle.
pub(super) const VALIDATION_ERROR: &str = "validation_error";
/// Code of a cycle.
pub(super) const DEPENDENCY_CYCLE: &str = "dependency_cycle";

impl std::error::Error for TaskFileError {}

impl fmt::Display for TaskFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, problem) in self.problems().enumerate() {
            if n > 0 {
                f.write_str("\n\n")?;
            }
            problem.render(&self.file, f)?;
        }
        if self.omitted > 0 {
            write!(f, "\n\n{} more of these are not shown", self.omitted)?;
        }
        Ok(())
    }
}

impl Problem {
    fn render(&self, file: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.message)?;
        let margin = self.line.map_or(1, |line| line.to_string().len());
        write!(f, "\n{:margin$}--> {file}", "")?;
        if let (Some(line), Some(column)) = (self.line, self.column) {
            write!(f, ":{line}:{column}")?;
            self.render_excerpt(line, margin, f)?;
        }
        if !self.field.is_empty() {
            write!(f, "\n{:margin$} = field: {}", "", self.field)?;
        }
        if let Some(hint) = &self.hint {
            write!(f, "\n{:margin$} = help: {hint}", "")?;
        }
        Ok(())
    }

    fn render_excerpt(
        &self,
        line: usize,
        margin: usize,
        f: &mut fmt::Formatter<'_>,
    ) -> fmt::Result {
        let Some(excerpt) = &self.excerpt else { return Ok(()) };
        write!(f, "\n{:margin$} |\n{line} | {}\n", "", excerpt.text)?;
        let (indent, width) = (excerpt.caret_at, excerpt.caret_width);
        write!(f, "{:margin$} | {:indent$}{:^<width$}", "", "", "")
    }
}
