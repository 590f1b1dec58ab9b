//! Reads queries of Prometheus, strictly: what this takes is a query, of things that go together.
//!
//! It knows no more of the language than dashboards need. What it does not know it refuses: then it is
//! to learn it.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, bail, ensure};

/// The names in a query.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Metrics.
    pub metrics: BTreeSet<String>,
    /// Labels.
    pub labels: BTreeSet<String>,
}

/// What a part of a query comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Scalar,
    Text,
    Instant,
    Range,
}

/// Functions: what they take, and what they come to.
const FUNCTIONS: [(&str, &[Kind], Kind); 13] = [
    ("rate", &[Kind::Range], Kind::Instant),
    ("increase", &[Kind::Range], Kind::Instant),
    ("resets", &[Kind::Range], Kind::Instant),
    ("last_over_time", &[Kind::Range], Kind::Instant),
    ("max_over_time", &[Kind::Range], Kind::Instant),
    ("avg_over_time", &[Kind::Range], Kind::Instant),
    ("quantile_over_time", &[Kind::Scalar, Kind::Range], Kind::Instant),
    ("histogram_quantile", &[Kind::Scalar, Kind::Instant], Kind::Instant),
    ("round", &[Kind::Instant], Kind::Instant),
    ("vector", &[Kind::Scalar], Kind::Instant),
    ("time", &[], Kind::Scalar),
    (
        "label_replace",
        &[Kind::Instant, Kind::Text, Kind::Text, Kind::Text, Kind::Text],
        Kind::Instant,
    ),
    (
        "label_join", // Of four labels.
        &[Kind::Instant, Kind::Text, Kind::Text, Kind::Text, Kind::Text, Kind::Text, Kind::Text],
        Kind::Instant,
    ),
];

/// What puts series together; those with `true` take a number first.
const AGGREGATIONS: [(&str, bool); 6] = [
    ("sum", false),
    ("max", false),
    ("min", false),
    ("avg", false),
    ("count", false),
    ("topk", true),
];

/// Operators between two, those that bind least first.
const OPERATORS: [&[&str]; 5] = [
    &["or"],
    &["and", "unless"],
    &["==", "!=", "<=", "<", ">=", ">"],
    &["+", "-"],
    &["*", "/", "%"],
];

/// Reads a query to its end.
///
/// # Errors
/// It is none.
pub fn names(query: &str) -> Result<Names> {
    let tokens = tokens(query).with_context(|| query.to_owned())?;
    let mut reader = Reader { tokens, at: 0, names: Names::default() };
    let read = reader.query();
    let place = reader.tokens[reader.at.min(reader.tokens.len())..].join(" ");
    read.with_context(|| format!("{query}\nbefore: {place}"))?;
    Ok(reader.names)
}

/// Words, numbers, texts and signs.
fn tokens(query: &str) -> Result<Vec<String>> {
    let mut tokens = Vec::new();
    let mut rest = query.trim_start();
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '$' || c == '.';
        let two = rest.get(..2).unwrap_or_default();
        let length = match first {
            '"' => text_length(rest).context("a text that does not end")?,
            c if is_word(c) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            _ if ["==", "!=", "<=", ">=", "=~", "!~"].contains(&two) => 2,
            '(' | ')' | '{' | '}' | '[' | ']' | ',' | ':' | '=' | '<' | '>' | '+' | '-' | '*'
            | '/' | '%' => 1,
            other => bail!("{other:?} is nothing"),
        };
        tokens.push(rest[..length].to_owned());
        rest = rest[length..].trim_start();
    }
    Ok(tokens)
}

fn text_length(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    let end = text.char_indices().skip(1).find(|&(_, c)| {
        let ends = c == '"' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        ends
    });
    end.map(|(at, _)| at + 1)
}

struct Reader {
    tokens: Vec<String>,
    at: usize,
    names: Names,
}

impl Reader {
    fn peek(&self) -> &str {
        self.tokens.get(self.at).map_or("", String::as_str)
    }

    fn take(&mut self, wanted: &str) -> bool {
        let is_it = self.peek() == wanted;
        self.at += usize::from(is_it);
        is_it
    }

    fn expect(&mut self, wanted: &str) -> Result<()> {
        ensure!(self.take(wanted), "{wanted:?} is expected");
        Ok(())
    }

    /// All of it. A range of values can be shown nowhere.
    fn query(&mut self) -> Result<()> {
        let kind = self.binary(0)?;
        ensure!(self.at == self.tokens.len(), "the end is expected");
        ensure!(matches!(kind, Kind::Scalar | Kind::Instant), "a query comes to {kind:?}");
        Ok(())
    }

    fn next_if(&mut self, what: &str, is_meant: impl Fn(&str) -> bool) -> Result<String> {
        let token = self.peek().to_owned();
        ensure!(!token.is_empty() && is_meant(&token), "{what} is expected");
        self.at += 1;
        Ok(token)
    }

    /// Parts between operators that bind at least so tightly.
    fn binary(&mut self, level: usize) -> Result<Kind> {
        let Some(operators) = OPERATORS.get(level) else { return self.unary() };
        let mut left = self.binary(level + 1)?;
        while operators.contains(&self.peek()) {
            let is_of_sets = level < 2;
            self.at += 1;
            let is_compared = level == 2 && self.take("bool");
            if ["on", "ignoring"].contains(&self.peek()) {
                self.at += 1;
                self.labels()?;
            }
            let right = self.binary(level + 1)?;
            let is_instant = |kind| kind == Kind::Instant;
            let is_number = |kind| kind == Kind::Scalar || is_instant(kind);
            ensure!(
                is_number(left) && is_number(right),
                "an operator between {left:?} and {right:?}"
            );
            ensure!(!is_of_sets || is_instant(left) && is_instant(right), "sets of numbers");
            let are_scalars = left == Kind::Scalar && right == Kind::Scalar;
            ensure!(level != 2 || is_compared || !are_scalars, "numbers are compared with `bool`");
            left = if are_scalars { Kind::Scalar } else { Kind::Instant };
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Kind> {
        if self.take("-") {
            let kind = self.unary()?;
            ensure!(matches!(kind, Kind::Scalar | Kind::Instant), "minus {kind:?}");
            return Ok(kind);
        }
        let mut kind = self.primary()?;
        if self.take("[") {
            ensure!(kind == Kind::Instant, "a range of {kind:?}");
            self.duration()?;
            if self.take(":") && self.peek() != "]" {
                self.duration()?;
            }
            self.expect("]")?;
            kind = Kind::Range;
        }
        if self.take("offset") {
            ensure!(matches!(kind, Kind::Instant | Kind::Range), "an offset of {kind:?}");
            self.duration()?;
        }
        Ok(kind)
    }

    fn primary(&mut self) -> Result<Kind> {
        if self.take("(") {
            let kind = self.binary(0)?;
            self.expect(")")?;
            return Ok(kind);
        }
        if self.peek().starts_with('"') {
            self.at += 1;
            return Ok(Kind::Text);
        }
        if self.peek().parse::<f64>().is_ok() {
            self.at += 1;
            return Ok(Kind::Scalar);
        }
        let name = self.next_if("a value", is_name)?;
        if let Some((_, takes_number)) = AGGREGATIONS.iter().find(|(known, _)| *known == name) {
            return self.aggregation(*takes_number);
        }
        if self.peek() == "(" {
            let function = FUNCTIONS.iter().find(|(known, ..)| *known == name);
            let (_, takes, gives) = function.with_context(|| format!("no function {name}"))?;
            self.arguments(takes)?;
            return Ok(*gives);
        }
        self.names.metrics.insert(name);
        if self.take("{") {
            while self.peek() != "}" {
                self.matcher()?;
                if !self.take(",") {
                    break;
                }
            }
            self.expect("}")?;
        }
        Ok(Kind::Instant)
    }

    fn matcher(&mut self) -> Result<()> {
        let label = self.next_if("a label", is_name)?;
        self.names.labels.insert(label);
        self.next_if("=, !=, =~ or !~", |token| ["=", "!=", "=~", "!~"].contains(&token))?;
        self.next_if("a text", |token| token.starts_with('"'))?;
        Ok(())
    }

    /// `by (…)` stands before what is put together, or behind it.
    fn aggregation(&mut self, takes_number: bool) -> Result<Kind> {
        let is_grouped = self.grouping()?;
        let number: &[Kind] = if takes_number { &[Kind::Scalar] } else { &[] };
        self.arguments(&[number, &[Kind::Instant]].concat())?;
        if !is_grouped {
            self.grouping()?;
        }
        Ok(Kind::Instant)
    }

    fn grouping(&mut self) -> Result<bool> {
        let is_grouped = self.take("by") || self.take("without");
        if is_grouped {
            self.labels()?;
        }
        Ok(is_grouped)
    }

    fn arguments(&mut self, takes: &[Kind]) -> Result<()> {
        self.expect("(")?;
        for (at, wanted) in takes.iter().enumerate() {
            if at > 0 {
                self.expect(",")?;
            }
            let kind = self.binary(0)?;
            ensure!(kind == *wanted, "{wanted:?} is expected before this, not {kind:?}");
        }
        self.expect(")")
    }

    fn labels(&mut self) -> Result<()> {
        self.expect("(")?;
        while self.peek() != ")" {
            let label = self.next_if("a label", is_name)?;
            self.names.labels.insert(label);
            if !self.take(",") {
                break;
            }
        }
        self.expect(")")
    }

    fn duration(&mut self) -> Result<()> {
        let is_given = |text: &str| {
            let units = ["ms", "s", "m", "h", "d", "w"];
            let number = units.iter().find_map(|unit| text.strip_suffix(unit));
            number.is_some_and(|number| number.parse::<u32>().is_ok())
        };
        let is_variable =
            |text: &str| ["$__rate_interval", "$__interval", "$__range"].contains(&text);
        self.next_if("a time such as 5m", |text| is_given(text) || is_variable(text))?;
        Ok(())
    }
}

fn is_name(token: &str) -> bool {
    let words = OPERATORS[..2].concat();
    let is_word =
        words.contains(&token) || ["by", "without", "on", "offset", "bool"].contains(&token);
    let is_first = |c: char| c.is_ascii_alphabetic() || c == '_';
    let is_other = |c: char| c.is_ascii_alphanumeric() || c == '_';
    token.starts_with(is_first) && token.chars().all(is_other) && !is_word
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

    use super::*;

    #[test]
    fn names_are_found_in_queries() {
        let query = r#"histogram_quantile(0.9, sum by (le, a_b) (rate(x_bucket{c="d", e=~"$f\""}[5m]))) > 2"#;
        let names = names(query).unwrap();
        assert_eq!(names.metrics.into_iter().collect::<Vec<_>>(), ["x_bucket"]);
        assert_eq!(names.labels.into_iter().collect::<Vec<_>>(), ["a_b", "c", "e", "le"]);
    }

    #[test]
    fn queries_are_taken() {
        for query in [
            "a",
            "-a{} + 2 * b or vector(0) / 0",
            "sum(a) by (x) / on (x) sum without (y) (b)",
            "(max_over_time(a[30m]) unless last_over_time(a[1h] offset 30m)) or increase(a[30m])",
            "quantile_over_time(0.9, sum(a)[1d:1m])",
            "topk(3, rate(a[$__rate_interval])) > bool 1",
            r#"label_replace(a, "who", "$1", "instance", "(.).*")"#,
        ] {
            names(query).unwrap();
        }
    }

    #[test]
    fn what_is_no_query_is_refused() {
        for query in [
            "",
            "a b",
            "sum(a",
            "sum(a))",
            "rate(a)",
            "sum(a[5m])",
            "a[5m]",
            "rate(a[5])",
            "rate(a[5 minutes])",
            "a{b=c}",
            r#"a{b="c}"#,
            r#"a{"b"}"#,
            "a > ",
            "a and 1",
            "1 > 2",
            "nonsense(a)",
            "sum by le (a)",
            "topk(a, 3)",
            "vector(a)",
            "a offset",
            "by (le) a",
            "a ! b",
        ] {
            assert!(names(query).is_err(), "{query}");
        }
    }
}
