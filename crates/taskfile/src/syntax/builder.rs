//! Builds the tree of values for the readers of all notations, and keeps its limits.

use std::borrow::Cow;
use std::collections::HashMap;

use super::Read;
use crate::limits::{DEPTH_MAX, VALUES_MAX};
use crate::node::{MapEntry, NodeKind, SyntaxNode, offset};
use crate::report::{FileFinding, quoted};

/// Maps up to this size are searched for duplicates without a hash table.
const SMALL_MAP: usize = 12;

/// Builds a tree from the values that a reader finds, in order and without recursion: nesting costs
/// an entry of `open`, never a stack frame, and fails beyond [`DEPTH_MAX`].
#[derive(Debug, Default)]
pub(super) struct Builder<'a> {
    open: Vec<OpenNode<'a>>,
    root: Option<SyntaxNode<'a>>,
    values: usize,
}

#[derive(Debug)]
struct OpenNode<'a> {
    at: usize,
    body: Container<'a>,
}

#[derive(Debug)]
enum Container<'a> {
    List(Vec<SyntaxNode<'a>>),
    Map { entries: Vec<MapEntry<'a>>, key: Option<(Cow<'a, str>, usize)> },
}

impl<'a> Builder<'a> {
    pub(super) fn open_list(&mut self, at: usize) -> Read<()> {
        self.open(OpenNode { at, body: Container::List(Vec::new()) })
    }

    pub(super) fn open_map(&mut self, at: usize) -> Read<()> {
        self.open(OpenNode { at, body: Container::Map { entries: Vec::new(), key: None } })
    }

    fn open(&mut self, frame: OpenNode<'a>) -> Read<()> {
        if self.open.len() == DEPTH_MAX {
            return Err(too_deep(frame.at));
        }
        self.open.push(frame);
        Ok(())
    }

    /// Whether a key comes next in the innermost map.
    pub(super) fn wants_key(&self) -> bool {
        matches!(self.open.last(), Some(OpenNode { body: Container::Map { key: None, .. }, .. }))
    }

    pub(super) fn key(&mut self, text: Cow<'a, str>, at: usize) {
        if let Some(OpenNode { body: Container::Map { key, .. }, .. }) = self.open.last_mut() {
            *key = Some((text, at));
        }
    }

    /// How many lists and maps are open.
    pub(super) fn depth(&self) -> usize {
        self.open.len()
    }

    /// Whether the innermost open value is a map; `None` if none is open.
    pub(super) fn in_map(&self) -> Option<bool> {
        self.open.last().map(|frame| matches!(frame.body, Container::Map { .. }))
    }

    /// Ends the innermost list or map and returns it; [`Self::put`] adds it to the tree.
    pub(super) fn close(&mut self) -> Read<Option<SyntaxNode<'a>>> {
        let Some(frame) = self.open.pop() else { return Ok(None) };
        let kind = match frame.body {
            Container::List(items) => NodeKind::List(items),
            Container::Map { entries, .. } => {
                refuse_duplicates(&entries)?;
                NodeKind::Map(entries)
            }
        };
        Ok(Some(SyntaxNode::new(frame.at, kind)))
    }

    /// Adds a finished value to the innermost open list or map.
    pub(super) fn put(&mut self, value: SyntaxNode<'a>) -> Read<()> {
        self.values += 1;
        if self.values > VALUES_MAX {
            let message = format!("the file has more than {VALUES_MAX} values");
            return Err(FileFinding::at(value.at(), message));
        }
        match self.open.last_mut().map(|frame| &mut frame.body) {
            None => self.root = Some(value),
            Some(Container::List(items)) => items.push(value),
            Some(Container::Map { entries, key }) => {
                if let Some((key, key_at)) = key.take() {
                    entries.push(MapEntry { key, key_at: offset(key_at), value });
                }
            }
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Option<SyntaxNode<'a>> {
        self.root
    }
}

pub(super) fn too_deep(at: usize) -> FileFinding {
    FileFinding::at(at, format!("lists and maps are nested more than {DEPTH_MAX} deep"))
}

fn refuse_duplicates(entries: &[MapEntry<'_>]) -> Read<()> {
    let repeated = match entries.len() {
        0..=SMALL_MAP => {
            (1..entries.len()).find(|&n| entries[..n].iter().any(|e| e.key == entries[n].key))
        }
        _ => repeated_in_large(entries),
    };
    match repeated {
        None => Ok(()),
        Some(n) => Err(duplicate_key(&entries[n].key, entries[n].at())),
    }
}

fn repeated_in_large(entries: &[MapEntry<'_>]) -> Option<usize> {
    let mut seen = HashMap::with_capacity(entries.len());
    (0..entries.len()).find(|&n| seen.insert(entries[n].key.as_ref(), ()).is_some())
}

pub(super) fn duplicate_key(key: &str, at: usize) -> FileFinding {
    FileFinding::at(at, format!("duplicate key {}", quoted(key)))
        .hint("a key may stand only once in a map; remove or rename one of the two")
}
