//! The reader of YAML.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use granit_parser::{ErrorKind, Event, Parser, ScalarStyle, ScanError, Span, Tag, options};

use super::Read;
use super::builder::{Builder, too_deep};
use crate::limits::{ALIAS_BYTES_MAX, DEPTH_MAX};
use crate::node::{MapEntry, NodeKind, SyntaxNode, number};
use crate::report::{FileFinding, quoted};

/// The key that merges the entries of another map into its own.
const MERGE_KEY: &str = "<<";

/// Reads one YAML 1.2 document. The core schema gives plain words their types, so `yes` is a text.
pub(super) fn parse(text: &str) -> Read<SyntaxNode<'_>> {
    let options = options! {
        // The scanner runs ahead of the builder, which has the same limit.
        flow_nesting_limit: DEPTH_MAX,
        block_nesting_limit: DEPTH_MAX,
        emit_comments: false,
    };
    let mut reader = YamlReader::default();
    for next in Parser::new_from_str_with_options(text, options) {
        let (event, span) = next.map_err(|error| refused(&error))?;
        reader.event(event, start(&span))?;
    }
    // A text with only comments has no document.
    Ok(reader.tree.finish().unwrap_or_else(|| SyntaxNode::new(0, NodeKind::Null)))
}

#[derive(Default)]
struct YamlReader<'a> {
    tree: Builder<'a>,
    /// Finished values by the number of their anchor.
    anchors: HashMap<usize, SyntaxNode<'a>>,
    /// Anchors of the open values, outermost first; 0 for none.
    open: Vec<usize>,
    copied: usize,
    documents: usize,
}

impl<'a> YamlReader<'a> {
    fn event(&mut self, event: Event<'a>, at: usize) -> Read<()> {
        match event {
            Event::DocumentStart(..) => self.document(at),
            Event::Scalar(text, style, anchor, tag) => self.scalar(text, style, anchor, tag, at),
            Event::SequenceStart(_, anchor, tag) => {
                self.collection(anchor, tag.as_deref(), "seq", at)?;
                self.tree.open_list(at)
            }
            Event::MappingStart(_, anchor, tag) => {
                self.collection(anchor, tag.as_deref(), "map", at)?;
                self.tree.open_map(at)
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(),
            Event::Alias(anchor) => self.alias(anchor, at),
            _ => Ok(()),
        }
    }

    fn document(&mut self, at: usize) -> Read<()> {
        self.documents += 1;
        match self.documents {
            1 => Ok(()),
            _ => Err(FileFinding::at(at, "a second document begins here")
                .hint("one file holds one task; put the other one into a file of its own")),
        }
    }

    fn collection(&mut self, anchor: usize, tag: Option<&Tag>, kind: &str, at: usize) -> Read<()> {
        if self.tree.wants_key() {
            return Err(FileFinding::at(at, "a key must be a text, not a list or a map"));
        }
        if let Some(tag) = tag.filter(|tag| !tag.is_yaml_core_schema_tag(kind)) {
            return Err(unknown_tag(tag, at));
        }
        self.open.push(anchor);
        Ok(())
    }

    fn close(&mut self) -> Read<()> {
        let anchor = self.open.pop().unwrap_or_default();
        match self.tree.close()? {
            Some(node) => self.finished(merged(node)?, anchor),
            None => Ok(()),
        }
    }

    fn scalar(
        &mut self,
        text: Cow<'a, str>,
        style: ScalarStyle,
        anchor: usize,
        tag: Option<Cow<'a, Tag>>,
        at: usize,
    ) -> Read<()> {
        if self.tree.wants_key() {
            self.tree.key(text, at);
            return Ok(());
        }
        let kind = match tag {
            None if style == ScalarStyle::Plain => plain(text),
            None => NodeKind::Text(text),
            Some(tag) => tagged(text, &tag, at)?,
        };
        self.finished(SyntaxNode::new(at, kind), anchor)
    }

    /// Stores a value if it has an anchor, and adds it to the tree.
    fn finished(&mut self, node: SyntaxNode<'a>, anchor: usize) -> Read<()> {
        if anchor != 0 {
            let kept = self.copy(&node, node.at())?;
            self.anchors.insert(anchor, kept);
        }
        self.tree.put(node)
    }

    fn alias(&mut self, anchor: usize, at: usize) -> Read<()> {
        if self.tree.wants_key() {
            return Err(FileFinding::at(at, "a key must be a text, not an alias"));
        }
        match self.anchors.remove(&anchor) {
            Some(kept) => {
                if self.tree.depth() + kept.depth() > DEPTH_MAX {
                    return Err(too_deep(at));
                }
                let copy = self.copy(&kept, at)?;
                self.anchors.insert(anchor, kept);
                self.tree.put(copy)
            }
            None => Err(FileFinding::at(at, "the alias stands inside the value that it names")),
        }
    }

    /// Copies the value of an anchor. The sum of all copies is limited: otherwise a few lines of
    /// aliases of aliases would fill any memory.
    fn copy(&mut self, node: &SyntaxNode<'a>, at: usize) -> Read<SyntaxNode<'a>> {
        self.copied += node.weight();
        if self.copied > ALIAS_BYTES_MAX {
            return Err(FileFinding::at(at, "anchors and aliases expand to too much")
                .hint(format!("at most {ALIAS_BYTES_MAX} bytes may come from them")));
        }
        Ok(node.clone())
    }
}

fn start(span: &Span) -> usize {
    span.start.byte_offset().unwrap_or_else(|| span.start.index())
}

fn refused(error: &ScanError) -> FileFinding {
    let mark = error.marker();
    let at = mark.byte_offset().unwrap_or_else(|| mark.index());
    if matches!(error.kind(), ErrorKind::RecursionLimitExceeded) {
        return too_deep(at);
    }
    let message = error.info();
    let hint = match message.as_str() {
        m if m.starts_with("mapping values are not allowed") => {
            Some("put a text with `: ` into quotes, or behind `|` on lines of its own")
        }
        m if m.starts_with("tabs disallowed") => Some("indent with spaces"),
        _ => None,
    };
    FileFinding::at(at, message).maybe_hint(hint.map(Into::into))
}

/// The type of a word without quotes.
fn plain(text: Cow<'_, str>) -> NodeKind<'_> {
    match text.as_ref() {
        "" | "~" | "null" | "Null" | "NULL" => NodeKind::Null,
        "true" | "True" | "TRUE" => NodeKind::Bool(true),
        "false" | "False" | "FALSE" => NodeKind::Bool(false),
        word if is_number(word) => NodeKind::Number(text),
        _ => NodeKind::Text(text),
    }
}

/// Whether a plain word is a number: YAML's core schema has neither `1_000` nor `0b1`, as TOML has.
fn is_number(word: &str) -> bool {
    !word.contains('_') && !word.starts_with("0b") && number(word).is_some()
}

fn tagged<'a>(text: Cow<'a, str>, tag: &Tag, at: usize) -> Read<NodeKind<'a>> {
    if tag.is_yaml_core_schema_tag("str") {
        return Ok(NodeKind::Text(text));
    }
    let kind = plain(text);
    let fits = match &kind {
        NodeKind::Null => tag.is_yaml_core_schema_tag("null"),
        NodeKind::Bool(_) => tag.is_yaml_core_schema_tag("bool"),
        NodeKind::Number(_) => {
            tag.is_yaml_core_schema_tag("int") || tag.is_yaml_core_schema_tag("float")
        }
        _ => false,
    };
    if fits { Ok(kind) } else { Err(unknown_tag(tag, at)) }
}

fn unknown_tag(tag: &Tag, at: usize) -> FileFinding {
    FileFinding::at(at, format!("the tag {} does not fit here", quoted(&tag.original())))
        .hint("leave the tag out; `!!str` makes a text of a word that looks like a number")
}

/// Merges the entries that the merge key of a map names into it; the map's own entries win.
fn merged(mut node: SyntaxNode<'_>) -> Read<SyntaxNode<'_>> {
    let NodeKind::Map(entries) = &mut node.kind else { return Ok(node) };
    let Some(place) = entries.iter().position(|entry| entry.key == MERGE_KEY) else {
        return Ok(node);
    };
    let merge = entries.remove(place);
    let mut known: HashSet<_> = entries.iter().map(|entry| entry.key.clone()).collect();
    for entry in merge_sources(merge)?.into_iter().flatten() {
        if known.insert(entry.key.clone()) {
            entries.push(entry);
        }
    }
    Ok(node)
}

fn merge_sources(merge: MapEntry<'_>) -> Read<Vec<Vec<MapEntry<'_>>>> {
    let sources = match merge.value.kind {
        NodeKind::List(items) => items,
        kind => vec![SyntaxNode { at: merge.value.at, kind }],
    };
    sources.into_iter().map(map_entries).collect()
}

fn map_entries(source: SyntaxNode<'_>) -> Read<Vec<MapEntry<'_>>> {
    match source.kind {
        NodeKind::Map(entries) => Ok(entries),
        _ => Err(FileFinding::at(source.at(), "`<<` takes the alias of a map, or a list of them")),
    }
}
