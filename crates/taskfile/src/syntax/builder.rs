use std::borrow::Cow;
use std::collections::HashMap;

use super::Read;
use crate::limits::{DEPTH_MAX, VALUES_MAX};
use crate::node::{Entry, Kind, Node, offset};
use crate::report::{Finding, quoted};

/// Maps up to this size are searched for duplicates without a table.
const SMALL_MAP: usize = 12;

/// Builds a tree from what a reader meets, in order, without recursion: nesting costs an entry of
/// `open`, never a stack frame, and is refused beyond [`DEPTH_MAX`].
#[derive(Debug, Default)]
pub(super) struct Builder<'a> {
    open: Vec<Frame<'a>>,
    root: Option<Node<'a>>,
    values: usize,
}

#[derive(Debug)]
struct Frame<'a> {
    at: usize,
    body: Body<'a>,
}

#[derive(Debug)]
enum Body<'a> {
    List(Vec<Node<'a>>),
    Map { entries: Vec<Entry<'a>>, key: Option<(Cow<'a, str>, usize)> },
}

impl<'a> Builder<'a> {
    pub(super) fn open_list(&mut self, at: usize) -> Read<()> {
        self.open(Frame { at, body: Body::List(Vec::new()) })
    }

    pub(super) fn open_map(&mut self, at: usize) -> Read<()> {
        self.open(Frame { at, body: Body::Map { entries: Vec::new(), key: None } })
    }

    fn open(&mut self, frame: Frame<'a>) -> Read<()> {
        if self.open.len() == DEPTH_MAX {
            return Err(too_deep(frame.at));
        }
        self.open.push(frame);
        Ok(())
    }

    /// Whether the next thing in the innermost map is a key.
    pub(super) fn wants_key(&self) -> bool {
        matches!(self.open.last(), Some(Frame { body: Body::Map { key: None, .. }, .. }))
    }

    pub(super) fn key(&mut self, text: Cow<'a, str>, at: usize) {
        if let Some(Frame { body: Body::Map { key, .. }, .. }) = self.open.last_mut() {
            *key = Some((text, at));
        }
    }

    /// How many lists and maps are open.
    pub(super) fn depth(&self) -> usize {
        self.open.len()
    }

    /// Whether the innermost open thing is a map; `None` where nothing is open.
    pub(super) fn in_map(&self) -> Option<bool> {
        self.open.last().map(|frame| matches!(frame.body, Body::Map { .. }))
    }

    /// Ends the innermost list or map and hands it out; [`Self::put`] places it.
    pub(super) fn close(&mut self) -> Read<Option<Node<'a>>> {
        let Some(frame) = self.open.pop() else { return Ok(None) };
        let kind = match frame.body {
            Body::List(items) => Kind::List(items),
            Body::Map { entries, .. } => {
                refuse_duplicates(&entries)?;
                Kind::Map(entries)
            }
        };
        Ok(Some(Node::new(frame.at, kind)))
    }

    /// Places a finished value in what is open.
    pub(super) fn put(&mut self, value: Node<'a>) -> Read<()> {
        self.values += 1;
        if self.values > VALUES_MAX {
            let message = format!("the file has more than {VALUES_MAX} values");
            return Err(Finding::at(value.at(), message));
        }
        match self.open.last_mut().map(|frame| &mut frame.body) {
            None => self.root = Some(value),
            Some(Body::List(items)) => items.push(value),
            Some(Body::Map { entries, key }) => {
                if let Some((key, key_at)) = key.take() {
                    entries.push(Entry { key, key_at: offset(key_at), value });
                }
            }
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Option<Node<'a>> {
        self.root
    }
}

pub(super) fn too_deep(at: usize) -> Finding {
    Finding::at(at, format!("lists and maps are nested more than {DEPTH_MAX} deep"))
}

fn refuse_duplicates(entries: &[Entry<'_>]) -> Read<()> {
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

fn repeated_in_large(entries: &[Entry<'_>]) -> Option<usize> {
    let mut seen = HashMap::with_capacity(entries.len());
    (0..entries.len()).find(|&n| seen.insert(entries[n].key.as_ref(), ()).is_some())
}

pub(super) fn duplicate_key(key: &str, at: usize) -> Finding {
    Finding::at(at, format!("duplicate key {}", quoted(key)))
        .hint("a key may stand only once in a map; remove or rename one of the two")
}
