//! Reads task files, in which a person describes a DAG of steps to run.
//!
//! [`read`] takes a path, [`parse`] bytes. Both accept YAML, TOML and JSON with one model, and
//! recorded workflows in WfFormat 1.5, and return a [`Plan`]: everything written out, checked and
//! ready to become a create command. Mistakes come back as a [`TaskFileError`], which names line,
//! column and field and says how to correct them; one pass finds up to twenty mistakes.
//!
//! The steps of reading: a reader per notation makes one tree of values with their places
//! (`syntax`, `node`). Then the fields of that tree are read (`fields`), and `${{ … }}` is replaced
//! on the way (`context`, `vars`), into steps without links (`step`, `draft`). At the end the names
//! of dependencies are looked up, and cycles searched (`graph`). A task file is input from outside,
//! so all of it is limited (`limits`), and no function recurses deeper than a tree may be nested.
//!
//! Deliberately absent: including other files, expressions, conditions and loops over data. A user
//! who needs a program to describe a DAG can let it write JSON.
//!
//! Step 1 of the walk in docs/architecture.md.

mod action;
mod context;
mod draft;
mod error;
mod fields;
mod format;
mod graph;
mod ids;
pub mod limits;
mod native;
mod node;
mod path;
mod plan;
mod report;
mod retry;
mod schema;
mod secret;
mod source;
mod step;
mod syntax;
mod value;
mod vars;
mod wfformat;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

pub use self::error::{Problem, TaskFileError};
pub use self::format::FileFormat;
pub use self::plan::{
    BackoffPlan, Deadline, DoubtMode, HANDLER_EXEC, HANDLER_NOOP, HANDLER_SLEEP, Mode, Plan,
    PlanStep, RetryPlan, WhenFailing,
};
pub use self::schema::schema;
pub use self::value::value;

use self::limits::FILE_BYTES_MAX;
use self::report::{FileFinding, FindingReport};
use self::source::Source;

const EMPTY_HINT: &str = "a task file has at least `steps`";

/// What the caller may specify about a file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReadOptions {
    /// The notation; `None`: it is detected from the name and the content.
    pub format: Option<FileFormat>,
    /// Values of variables that the file declares under `vars`.
    pub vars: BTreeMap<String, String>,
    /// For WfFormat: tasks sleep for their recorded time times this factor. `None`: they do nothing.
    pub time_scale: Option<f64>,
}

/// Reads the task file at `path`.
pub fn read(path: &Path, options: &ReadOptions) -> Result<Plan, TaskFileError> {
    let name = path.display().to_string();
    let bytes = contents(path, &name)?;
    parse(&bytes, &name, options)
}

/// Reads a task file from memory. Messages call it `name`, and the extension of `name` gives the notation.
pub fn parse(bytes: &[u8], name: &str, options: &ReadOptions) -> Result<Plan, TaskFileError> {
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(too_large(name));
    }
    let source = Source::decode(name, bytes)?;
    if source.text.trim().is_empty() {
        return Err(TaskFileError::of_file(
            name,
            "the file is empty".into(),
            Some(EMPTY_HINT.into()),
        ));
    }
    let format = options.format.unwrap_or_else(|| FileFormat::detect(name, source.text));
    let root = syntax::parse(source.text, format).map_err(|found| found.into_error(source))?;
    let report = FindingReport::new(source);
    let stem = stem(name);
    let plan = if format == FileFormat::WfFormat || wfformat::is_instance(&root) {
        check_time_scale(options, &report);
        wfformat::read(&root, options, &report, stem)
    } else if root.is_null() {
        report.add(|| FileFinding::of_file("the file is empty but for comments").hint(EMPTY_HINT));
        None
    } else {
        native::read(&root, &options.vars, &report, stem)
    };
    report.finish(plan)
}

/// The bytes of a file that is not too large. This checks the size before it reads anything; a pipe
/// has no size, so reading stops at the limit instead.
fn contents(path: &Path, name: &str) -> Result<Vec<u8>, TaskFileError> {
    let unreadable = |error: std::io::Error| {
        TaskFileError::of_file(name, format!("the file cannot be read: {error}"), None)
    };
    let file = File::open(path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    if metadata.is_dir() {
        let hint = "name a file in it".to_owned();
        return Err(TaskFileError::of_file(name, "this is a directory".into(), Some(hint)));
    }
    if metadata.len() > FILE_BYTES_MAX {
        return Err(too_large(name));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or_default());
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    Ok(bytes)
}

fn too_large(name: &str) -> TaskFileError {
    let message = format!("the file is larger than {} MiB", FILE_BYTES_MAX / 1024 / 1024);
    let hint = "give large data to steps by reference, not in the file".to_owned();
    TaskFileError::of_file(name, message, Some(hint))
}

fn check_time_scale(options: &ReadOptions, report: &FindingReport<'_>) {
    if options.time_scale.is_some_and(|scale| !scale.is_finite() || scale < 0.0) {
        report.add(|| FileFinding::of_file("the time scale must be a number from 0"));
    }
}

/// The name of a file without folder and extension, for a task that has no title.
fn stem(name: &str) -> &str {
    let stem = Path::new(name).file_stem().and_then(|stem| stem.to_str());
    stem.filter(|stem| !stem.is_empty() && *stem != "-").unwrap_or("task")
}
