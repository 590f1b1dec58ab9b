//! What was told of a trouble, held against what had to be told, and against the table of the documentation.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use crate::alerts::Fired;
use crate::rules::{FACTOR, names};
use crate::troubles::{TROUBLES, Trouble};

/// The head of the table.
const HEAD: &str = "| Trouble | Alerts, and after how long | `tenure doctor`: exit code, and what is bad \
                    | Steps wait for | `tenure task explain` |";

/// Where it stands.
const FILE: &str = "../docs/observability.md";

/// What commands answered.
#[derive(Debug)]
pub(crate) struct Answers {
    pub(crate) doctor: (Vec<String>, i32),
    pub(crate) explain: Option<String>,
    /// What Steps wait for, by `tenure pool list` and by `tenure top`.
    pub(crate) waits: Option<String>,
    pub(crate) of_top: Option<String>,
    pub(crate) has_silent_node: bool,
}

impl Answers {
    /// Where they are not as they must be.
    pub(crate) fn wrong(&self, trouble: &Trouble) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut must = |what: &str, is: String, must: String| {
            if is != must {
                wrong.push(format!("{what} says {is}, and must say {must}"));
            }
        };
        let (bad, exit) = trouble.doctor;
        let (found, code) = &self.doctor;
        must(
            "doctor",
            format!("{code}: {}", found.join(", ")),
            format!("{exit}: {}", bad.join(", ")),
        );
        must("explain", format!("{:?}", self.explain.as_deref()), format!("{:?}", trouble.explain));
        must("pool list", format!("{:?}", self.waits.as_deref()), format!("{:?}", trouble.waits));
        must("top", format!("{:?}", self.of_top.as_deref()), format!("{:?}", trouble.waits));
        must(
            "top on silent nodes",
            self.has_silent_node.to_string(),
            trouble.has_silent_node.to_string(),
        );
        wrong
    }
}

/// A line of the table.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) told: Answers,
    pub(crate) fired: Fired,
}

impl Row {
    /// Where it is not as it must be.
    pub(crate) fn wrong(&self, trouble: &Trouble) -> Vec<String> {
        let mut wrong = self.told.wrong(trouble);
        let fired: Vec<&str> = self.fired.keys().map(String::as_str).collect();
        if fired != trouble.alerts {
            wrong.push(format!("{fired:?} fire, and {:?} must", trouble.alerts));
        }
        wrong
    }

    /// The line. Times are those that the rules take as they are shipped, roughly: half minutes.
    pub(crate) fn line(&self) -> String {
        let minutes = |ms: u128| {
            let halves = (ms * u128::from(FACTOR)).div_ceil(30_000);
            format!("{}{} min", halves / 2, if halves % 2 == 1 { ".5" } else { "" })
        };
        let alerts = self
            .fired
            .iter()
            .map(|(name, after)| format!("`{name}` ({})", minutes(after.as_millis())));
        let (bad, code) = &self.told.doctor;
        let bad: Vec<&str> = bad.iter().map(String::as_str).collect();
        let told = (self.told.waits.as_deref(), self.told.explain.as_deref());
        line_of(self.name, alerts.collect(), (&bad, *code), told)
    }
}

fn line_of(
    name: &str,
    alerts: Vec<String>,
    (bad, code): (&[&str], i32),
    (waits, explain): (Option<&str>, Option<&str>),
) -> String {
    let bad = bad.iter().map(|check| format!("`{check}`"));
    let listed = |all: Vec<String>| if all.is_empty() { "–".to_owned() } else { all.join(", ") };
    let (alerts, bad) = (listed(alerts), listed(bad.collect()));
    let [waits, explain] = [waits, explain].map(|it| it.unwrap_or("nobody answers"));
    format!("| {name} | {alerts} | {code}: {bad} | {waits} | {explain} |")
}

/// The line of a trouble of which all is told that must be, without times.
fn due_line(trouble: &Trouble) -> String {
    let alerts = trouble.alerts.iter().map(|name| format!("`{name}`"));
    line_of(trouble.name, alerts.collect(), trouble.doctor, (trouble.waits, trouble.explain))
}

/// A line without the times, which are others each time.
fn timeless(line: &str) -> String {
    let mut parts = line.split(" (");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |line, part| line + part.split_once(')').map_or(part, |(_, rest)| rest))
}

/// What stands before the lines of the table, these lines, and what stands behind its head.
fn table(text: &str) -> Result<(&str, Vec<&str>, &str)> {
    let (before, rest) =
        text.split_once(HEAD).context("docs/observability.md has no table of troubles")?;
    let lines = rest.lines().skip(2).take_while(|line| line.starts_with('|')).collect();
    Ok((before, lines, rest))
}

/// Holds these lines against the table, or writes them there.
pub(crate) fn is_documented(rows: &[Row]) -> Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE);
    let text = std::fs::read_to_string(&path)?;
    let (before, old, rest) = table(&text)?;
    let name = |line: &str| line.split('|').nth(1).unwrap_or_default().trim().to_owned();
    let known: BTreeMap<String, &str> = old.iter().map(|line| (name(line), *line)).collect();
    let is_same = |row: &Row| {
        let known = known.get(row.name).map(|line| timeless(line));
        known == Some(timeless(&row.line()))
    };
    let others: Vec<String> = rows.iter().filter(|row| !is_same(row)).map(Row::line).collect();
    if std::env::var_os("TENURE_WRITE_GOLDEN").is_none() {
        ensure!(
            others.is_empty(),
            "docs/observability.md says otherwise; TENURE_WRITE_GOLDEN=1 writes it there:\n{}",
            others.join("\n")
        );
        return Ok(());
    }
    let mut lines: Vec<String> = old.iter().map(|line| (*line).to_owned()).collect();
    for row in rows {
        match lines.iter_mut().find(|line| name(line) == row.name) {
            Some(line) => *line = row.line(),
            None => lines.push(row.line()),
        }
    }
    let after: Vec<&str> = rest.lines().skip(2 + old.len()).collect();
    let table = format!("{HEAD}\n|---|---|---|---|---|\n{}", lines.join("\n"));
    Ok(std::fs::write(&path, format!("{before}{table}\n{}\n", after.join("\n")))?)
}

/// The suite is run by hand; this holds always what it would hold the table against.
#[test]
fn the_documentation_has_each_trouble_as_the_suite_wants_it_told() -> Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE);
    let text = std::fs::read_to_string(path)?;
    let (_, lines, _) = table(&text)?;
    let lines: Vec<String> = lines.into_iter().map(timeless).collect();
    let due: Vec<String> = TROUBLES.iter().map(due_line).collect();
    assert_eq!(lines, due);
    let there = names()?;
    for name in TROUBLES.iter().flat_map(|trouble| trouble.alerts) {
        ensure!(there.contains(name), "there is no alert {name}");
    }
    Ok(())
}

#[test]
fn times_are_left_out_where_lines_are_compared() {
    assert_eq!(timeless("| a | `X` (2.5 min), `Y` (1 min) | b |"), "| a | `X`, `Y` | b |");
    assert_eq!(timeless("| a | – | b |"), "| a | – | b |");
}
