//! Collects the mistakes in a file and turns them into an error with lines and columns.

use std::cell::{Cell, RefCell};

use super::error::{DEPENDENCY_CYCLE, Problem, TaskFileError, VALIDATION_ERROR};
use super::limits::PROBLEMS_MAX;
use super::source::{Source, printable};

/// How many characters of a name from the file a message repeats.
const NAME_CHARS: usize = 80;

/// Collects mistakes, so that one pass over the file finds more than one.
#[derive(Debug)]
pub(super) struct FindingReport<'a> {
    source: Source<'a>,
    found: RefCell<Vec<FileFinding>>,
    count: Cell<usize>,
}

/// A problem before line and column are computed.
#[derive(Debug)]
pub(super) struct FileFinding {
    at: Option<usize>,
    code: &'static str,
    field: String,
    message: String,
    hint: Option<String>,
}

impl FileFinding {
    pub(super) fn at(at: usize, message: impl Into<String>) -> Self {
        FileFinding { at: Some(at), ..FileFinding::of_file(message) }
    }

    pub(super) fn of_file(message: impl Into<String>) -> Self {
        FileFinding {
            at: None,
            code: VALIDATION_ERROR,
            field: String::new(),
            message: message.into(),
            hint: None,
        }
    }

    pub(super) fn field(mut self, path: impl ToString) -> Self {
        self.field = path.to_string();
        self
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(super) fn maybe_hint(mut self, hint: Option<String>) -> Self {
        self.hint = hint;
        self
    }

    pub(super) fn cycle(mut self) -> Self {
        self.code = DEPENDENCY_CYCLE;
        self
    }
}

impl<'a> FindingReport<'a> {
    pub(super) fn new(source: Source<'a>) -> Self {
        FindingReport { source, found: RefCell::default(), count: Cell::new(0) }
    }

    /// Adds a problem. The closure runs only for problems that will be shown, because it may search
    /// the nearest of 100,000 names.
    pub(super) fn add(&self, finding: impl FnOnce() -> FileFinding) {
        self.count.set(self.count.get() + 1);
        if self.found.borrow().len() < PROBLEMS_MAX {
            let finding = finding();
            self.found.borrow_mut().push(finding);
        }
    }

    /// The line of a place, for hints that name a second place.
    pub(super) fn line(&self, at: usize) -> usize {
        self.source.locate(at).line
    }

    pub(super) fn count(&self) -> usize {
        self.count.get()
    }

    /// `value`, if there are no problems.
    pub(super) fn finish<T>(self, value: Option<T>) -> Result<T, TaskFileError> {
        let source = self.source;
        let mut found = self.found.into_inner();
        let omitted = self.count.get() - found.len();
        found.sort_by_key(|finding| finding.at);
        let mut problems = found.into_iter().map(|finding| finding.into_problem(source));
        match (problems.next(), value) {
            (None, Some(value)) => Ok(value),
            (None, None) => Err(TaskFileError::of_file(source.name, "no task found".into(), None)),
            (Some(first), _) => Err(TaskFileError {
                file: source.name.into(),
                first: first.into(),
                others: problems.collect(),
                omitted,
            }),
        }
    }
}

impl FileFinding {
    /// The error of a file that the reader could not read further.
    pub(super) fn into_error(self, source: Source<'_>) -> TaskFileError {
        TaskFileError {
            file: source.name.into(),
            first: self.into_problem(source).into(),
            others: Vec::new(),
            omitted: 0,
        }
    }

    fn into_problem(self, source: Source<'_>) -> Problem {
        let place = self.at.map(|at| source.locate(at));
        Problem {
            code: self.code,
            line: place.as_ref().map(|place| place.line),
            column: place.as_ref().map(|place| place.column),
            field: self.field,
            message: self.message,
            hint: self.hint,
            excerpt: place.map(|place| place.excerpt),
        }
    }
}

/// A name from the file in a message: in backticks, short, harmless to a terminal.
pub(super) fn quoted(name: &str) -> String {
    let mut shown: String = name.chars().take(NAME_CHARS).map(printable).collect();
    if shown.len() < name.len() && name.chars().nth(NAME_CHARS).is_some() {
        shown.push('…');
    }
    format!("`{shown}`")
}

/// The candidate that `name` was probably meant to be.
pub(super) fn nearest<'c>(
    name: &str,
    candidates: impl IntoIterator<Item = &'c str>,
) -> Option<&'c str> {
    if name.len() > NAME_CHARS {
        return None;
    }
    let farthest = name.chars().count() / 3;
    let close = |candidate: &'c str| {
        let distance = match candidate.eq_ignore_ascii_case(name) {
            true => 0,
            false => strsim::osa_distance(name, candidate),
        };
        let begins = farthest > 0 && candidate.starts_with(name);
        (distance <= farthest || begins).then_some((distance, candidate))
    };
    candidates
        .into_iter()
        // The lengths are compared first, as this is cheap and there may be 100,000 candidates.
        .filter(|candidate| candidate.len().abs_diff(name.len()) <= 2 * farthest)
        .filter_map(close)
        // Of equally near ones the first by name; otherwise the advice would depend on the order of
        // a hash table.
        .min()
        .map(|(_, candidate)| candidate)
}

/// "did you mean", if some candidate is near.
pub(super) fn did_you_mean<'c>(
    name: &str,
    candidates: impl IntoIterator<Item = &'c str>,
) -> Option<String> {
    nearest(name, candidates).map(|candidate| format!("did you mean {}?", quoted(candidate)))
}
