//! The variables of a file, and the replacement of `${{ … }}` in its texts.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::limits::ID_CHARS_MAX;
use super::node::{MapEntry, NodeKind, SyntaxNode, number};
use super::path::Path;
use super::report::{FileFinding, FindingReport, did_you_mean, quoted};
use super::syntax::parse_json;

const OPEN: &str = "${{";
const CLOSE: &str = "}}";
/// Written before [`OPEN`], it makes [`OPEN`] literal text.
const ESCAPE: char = '$';

/// The variables of a file with their values: those of the command line, else the defaults.
#[derive(Debug, Default)]
pub(super) struct Vars<'a> {
    values: BTreeMap<Cow<'a, str>, SyntaxNode<'a>>,
}

/// Which of the Steps of a repeated Step is being read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Repetition<'r> {
    /// Its index, from 0.
    pub(super) index: usize,
    /// The index as it stands at the end of the Step's id.
    pub(super) suffix: &'r str,
}

/// A text after its references were replaced.
#[derive(Debug)]
pub(super) enum Expanded<'v, 'a> {
    /// The text was exactly one reference: the value keeps its type.
    Value(&'v SyntaxNode<'a>),
    Text(String),
}

/// Whether a text has a reference to replace.
pub(super) fn has_reference(text: &str) -> bool {
    text.contains(OPEN)
}

impl<'a> Vars<'a> {
    /// Declared variables, with `given` values instead of defaults.
    pub(super) fn read(
        declared: &[MapEntry<'a>],
        given: &'a BTreeMap<String, String>,
        report: &FindingReport<'_>,
    ) -> Self {
        let mut vars = Vars::default();
        for entry in declared {
            vars.declare(entry, given.get(entry.key.as_ref()), report);
        }
        vars.refuse_undeclared(given, report);
        vars
    }

    fn declare(
        &mut self,
        entry: &MapEntry<'a>,
        given: Option<&'a String>,
        report: &FindingReport<'_>,
    ) {
        let at = entry.at();
        if !is_name(&entry.key) {
            report.add(|| bad_name(entry, at));
        }
        if entry.value.as_text().is_some_and(has_reference) {
            report.add(|| {
                FileFinding::at(entry.value.at(), "a default cannot refer to other variables")
                    .field(Path::Root.key("vars").key(&entry.key))
            });
        }
        let value = given.map_or_else(|| Ok(entry.value.clone()), |text| typed(text, &entry.value));
        let value = value.unwrap_or_else(|expected| {
            report.add(|| wrong_value(entry, expected));
            entry.value.clone()
        });
        self.values.insert(entry.key.clone(), value);
    }

    fn refuse_undeclared(&self, given: &BTreeMap<String, String>, report: &FindingReport<'_>) {
        for name in given.keys().filter(|name| !self.values.contains_key(name.as_str())) {
            report.add(|| {
                let message = format!("the file has no variable {}", quoted(name));
                FileFinding::of_file(message).field("vars").hint(self.known(name))
            });
        }
    }

    /// Replaces every reference in a text; the error is a message and a hint.
    pub(super) fn expand(
        &self,
        text: &str,
        repetition: Option<Repetition<'_>>,
    ) -> Result<Expanded<'_, 'a>, (String, Option<String>)> {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(open) = rest.find(OPEN) {
            let before = &rest[..open];
            let inside = &rest[open + OPEN.len()..];
            if let Some(before) = before.strip_suffix(ESCAPE) {
                out.push_str(before);
                out.push_str(OPEN);
                rest = inside;
                continue;
            }
            let Some(close) = inside.find(CLOSE) else { return Err(unclosed()) };
            let name = inside[..close].trim();
            out.push_str(before);
            rest = &inside[close + CLOSE.len()..];
            match self.lookup(name, repetition)? {
                VarReference::Value(node) if out.is_empty() && rest.is_empty() => {
                    return Ok(Expanded::Value(node));
                }
                VarReference::Value(node) => out.push_str(inline(name, node)?),
                VarReference::Text(text) => out.push_str(&text),
            }
        }
        out.push_str(rest);
        Ok(Expanded::Text(out))
    }

    fn lookup(
        &self,
        name: &str,
        repetition: Option<Repetition<'_>>,
    ) -> Result<VarReference<'_, 'a>, (String, Option<String>)> {
        match (name, repetition) {
            ("index", Some(repetition)) => Ok(VarReference::Text(repetition.index.to_string())),
            ("suffix", Some(repetition)) => Ok(VarReference::Text(repetition.suffix.to_owned())),
            ("index" | "suffix", None) => {
                Err((format!("{} has a value only in a step with `repeat`", quoted(name)), None))
            }
            _ => self.variable(name).map(VarReference::Value),
        }
    }

    fn variable(&self, name: &str) -> Result<&SyntaxNode<'a>, (String, Option<String>)> {
        let Some(key) = name.strip_prefix("vars.") else {
            let message = format!("{} cannot be substituted", quoted(name));
            let hint = "write `${{ vars.NAME }}`, or `${{ index }}` and `${{ suffix }}` in a \
                        step with `repeat`; `$${{` stands for the characters themselves";
            return Err((message, Some(hint.into())));
        };
        match self.values.get(key) {
            None => Err((format!("there is no variable {}", quoted(key)), Some(self.known(key)))),
            Some(node) if node.is_null() => Err((
                format!("the variable {} has no value", quoted(key)),
                Some(format!("give one with `--var {key}=…`, or a default under `vars`")),
            )),
            Some(node) => Ok(node),
        }
    }

    /// A hint for an unknown `name`.
    fn known(&self, name: &str) -> String {
        if self.values.is_empty() {
            return "declare it with its default under `vars`".into();
        }
        let names = || self.values.keys().map(Cow::as_ref);
        did_you_mean(name, names()).unwrap_or_else(|| {
            let list: Vec<_> = names().take(10).map(quoted).collect();
            format!("declared under `vars`: {}", list.join(", "))
        })
    }
}

enum VarReference<'v, 'a> {
    Value(&'v SyntaxNode<'a>),
    Text(String),
}

/// A variable's value inside a longer text.
fn inline<'v>(name: &str, node: &'v SyntaxNode<'_>) -> Result<&'v str, (String, Option<String>)> {
    match &node.kind {
        NodeKind::Text(text) | NodeKind::Number(text) => Ok(text),
        NodeKind::Bool(true) => Ok("true"),
        NodeKind::Bool(false) => Ok("false"),
        NodeKind::Null | NodeKind::List(_) | NodeKind::Map(_) => Err((
            format!("{} is {} and cannot stand inside a text", quoted(name), node.describe()),
            Some("a list or a map can only be a whole value, as in `input: ${{ vars.x }}`".into()),
        )),
    }
}

/// A value from the command line, with the type of the default; the error names the expected type.
fn typed<'a>(text: &'a str, default: &SyntaxNode<'_>) -> Result<SyntaxNode<'a>, &'static str> {
    let kind = match &default.kind {
        NodeKind::Null | NodeKind::Text(_) => NodeKind::Text(text.into()),
        NodeKind::Number(_) if number(text).is_some() => NodeKind::Number(text.into()),
        NodeKind::Number(_) => return Err("a number"),
        NodeKind::Bool(_) => NodeKind::Bool(text.parse().map_err(|_| "`true` or `false`")?),
        NodeKind::List(_) => {
            parse_json(text)
                .ok()
                .filter(|node| node.as_list().is_some())
                .ok_or("a list in JSON")?
                .kind
        }
        NodeKind::Map(_) => {
            parse_json(text)
                .ok()
                .filter(|node| node.as_map().is_some())
                .ok_or("a map in JSON")?
                .kind
        }
    };
    Ok(SyntaxNode { at: default.at, kind })
}

fn is_name(name: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    !name.is_empty() && name.len() <= ID_CHARS_MAX && name.chars().all(legal)
}

fn bad_name(entry: &MapEntry<'_>, at: usize) -> FileFinding {
    FileFinding::at(at, format!("{} is no name for a variable", quoted(&entry.key)))
        .field("vars")
        .hint(format!("letters, digits, `-` and `_`, at most {ID_CHARS_MAX}"))
}

fn wrong_value(entry: &MapEntry<'_>, expected: &str) -> FileFinding {
    let message = format!("the value given for {} is not {expected}", quoted(&entry.key));
    FileFinding::at(entry.value.at(), message)
        .field(Path::Root.key("vars").key(&entry.key))
        .hint("the default decides the type of a variable")
}

fn unclosed() -> (String, Option<String>) {
    ("`${{` without `}}`".into(), Some("write `$${{` for the characters themselves".into()))
}
