//! The commands that a user can type next.

use std::path::Path;

use tenure_core::id::TaskId;

use super::args::RunArgs;

/// The command that goes on with a Task, even if its file has changed.
pub(super) fn resume_task(args: &RunArgs, task_id: &TaskId) -> String {
    format!("{} run --resume={task_id}{}{}", program(), tools(args), place(args))
}

/// The command that goes on with the Task of the file.
pub(super) fn resume_file(args: &RunArgs) -> String {
    run_file(args, "--resume")
}

/// The command that runs again what failed in the Task of the file.
pub(super) fn retry_failed(args: &RunArgs) -> String {
    run_file(args, "--retry-failed")
}

fn run_file(args: &RunArgs, option: &str) -> String {
    let file = args.file.as_deref().unwrap_or(Path::new("FILE")).to_string_lossy();
    let vars = args
        .vars
        .iter()
        .map(|(key, value)| format!(" --var {}", quoted(&format!("{key}={value}"))));
    let scale = args.time_scale.map(|scale| format!(" --time-scale {scale}")).unwrap_or_default();
    format!(
        "{} run {} {option}{}{}{}{scale}",
        program(),
        quoted(&file),
        vars.collect::<String>(),
        tools(args),
        place(args),
    )
}

/// The command that says why a Task does not go on.
pub(super) fn explain(args: &RunArgs, task_id: &TaskId) -> String {
    format!("{} task explain {task_id}{}", program(), place(args))
}

/// The name under which this program was called.
fn program() -> String {
    std::env::args().next().map_or_else(|| "tenure".into(), |name| quoted(&name))
}

/// The option that names the servers of tools, if it was given.
fn tools(args: &RunArgs) -> String {
    let file = args.tools.file().map(|file| quoted(&file.to_string_lossy()));
    file.map(|file| format!(" --mcp-servers {file}")).unwrap_or_default()
}

fn place(args: &RunArgs) -> String {
    let mut text = String::new();
    if args.data.path != Path::new(".tenure") {
        text.push_str(&format!(" --data {}", quoted(&args.data.path.to_string_lossy())));
    }
    if args.session != "default" {
        text.push_str(&format!(" --session {}", quoted(&args.session)));
    }
    text
}

/// Quotes a text so that a shell reads it as one word.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:@%+,".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_survives_the_shell() {
        assert_eq!(quoted("a/b-c.yaml"), "a/b-c.yaml");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
