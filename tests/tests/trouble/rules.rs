//! The alert rules with all times shortened, so that a trouble need not last for minutes.

use anyhow::{Context as _, Result, ensure};

/// As they are shipped.
const RULES: &str = include_str!("../../../deploy/grafana/alerts.yaml");

/// So many times shorter: what takes a minute takes three seconds.
pub(crate) const FACTOR: u64 = 20;

/// The units of times, in milliseconds; longer names first.
const UNITS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// The threshold of a wait, in seconds.
const WAIT: &str = "> 600";

/// The rules, with shortened times in what decides, and as they are in what they say.
pub(crate) fn shortened() -> Result<String> {
    let mut text = String::new();
    let (mut says, mut has_wait) = (false, false);
    for line in RULES.lines() {
        says = match line.trim_start() {
            rest if rest.starts_with("- alert:") => false,
            rest if rest.starts_with("annotations:") => true,
            _ => says,
        };
        let is_comment = line.trim_start().starts_with('#');
        let mut line = if says || is_comment { line.to_owned() } else { shorten(line) };
        if line.contains("oldest_wait_seconds[") {
            has_wait = line.contains(WAIT);
            line = line.replace(WAIT, &format!("> {}", 600 / FACTOR));
        }
        text.push_str(&line);
        text.push('\n');
    }
    ensure!(has_wait, "the rule about waits is another than it was");
    Ok(text)
}

/// The names of all alerts.
pub(crate) fn names() -> Result<Vec<&'static str>> {
    let names: Vec<&str> =
        RULES.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    names.first().context("there are no alerts")?;
    Ok(names)
}

/// A line in which each time is shortened.
fn shorten(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    let mut before = ' ';
    while let Some(first) = rest.chars().next() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let time = (digits > 0 && !is_word(before)).then(|| time_at(rest, digits)).flatten();
        let taken = match time {
            Some((ms, length)) => {
                out.push_str(&format!("{}ms", ms / FACTOR));
                length
            }
            None => {
                let length = digits.max(first.len_utf8());
                out.push_str(&rest[..length]);
                length
            }
        };
        before = rest[..taken].chars().next_back().unwrap_or(' ');
        rest = &rest[taken..];
    }
    out
}

/// The time that a text begins with, in milliseconds, and how long its text is.
fn time_at(text: &str, digits: usize) -> Option<(u64, usize)> {
    let number: u64 = text[..digits].parse().ok()?;
    let (unit, ms) = UNITS.iter().find(|(unit, _)| text[digits..].starts_with(unit))?;
    let length = digits + unit.len();
    let is_end = text[length..].chars().next().is_none_or(|c| !is_word(c));
    is_end.then_some((number * ms, length))
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '.'
}

#[test]
fn times_are_shortened_and_nothing_else() {
    assert_eq!(shorten("for: 5m"), "for: 15000ms");
    assert_eq!(
        shorten("rate(a_2m{le=\"0.5\"}[5m:1m] offset 30m) > 0.05"),
        "rate(a_2m{le=\"0.5\"}[15000ms:3000ms] offset 90000ms) > 0.05"
    );
    let text = shortened().unwrap();
    assert!(
        text.contains("> 30\n") && !text.contains("[2m]") && text.contains("for ten minutes"),
        "{text}"
    );
    assert_eq!(names().unwrap().len(), RULES.matches("- alert:").count());
}
