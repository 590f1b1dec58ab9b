//! Facts that a gateway keeps with the Task (FACT-01).

use alloc::boxed::Box;

use super::Task;
use super::apply::At;
use super::derived::Derived;
use super::undo::Note;
use crate::event::TaskFact;
use crate::record::{Fact, Value};

impl Task {
    /// Keeps a fact. Where the last of a key counts, the one before it goes, and null leaves none.
    pub(super) fn keep_fact(&mut self, p: &TaskFact, at: At) {
        let TaskFact { kind, key, payload } = p.clone();
        if !kind.last_counts() {
            return self.add_fact(Fact { kind, key, payload, wal_seq: at.seq });
        }
        if let Some(before) = self.derived.last_facts.get(&(kind, key.clone())).copied() {
            self.remove_fact(before);
        }
        if !is_null(&payload) {
            self.add_fact(Fact { kind, key, payload, wal_seq: at.seq });
        }
    }

    fn add_fact(&mut self, fact: Fact) {
        self.note(|_| Note::FactAdded(fact.wal_seq));
        self.put_fact(fact);
    }

    fn remove_fact(&mut self, wal_seq: u64) {
        if let Some(fact) = self.take_fact(wal_seq) {
            self.note(|_| Note::FactRemoved(Box::new(fact)));
        }
    }

    pub(super) fn put_fact(&mut self, fact: Fact) {
        self.derived.put_fact(&fact);
        self.facts.insert(fact.wal_seq, fact);
    }

    pub(super) fn take_fact(&mut self, wal_seq: u64) -> Option<Fact> {
        let fact = self.facts.remove(&wal_seq)?;
        self.derived.take_fact(&fact);
        Some(fact)
    }
}

impl Derived {
    pub(super) fn put_fact(&mut self, fact: &Fact) {
        if fact.kind.last_counts() {
            self.last_facts.insert((fact.kind, fact.key.clone()), fact.wal_seq);
        }
    }

    pub(super) fn take_fact(&mut self, fact: &Fact) {
        self.last_facts.remove(&(fact.kind, fact.key.clone()));
    }
}

fn is_null(payload: &Value) -> bool {
    let is_plain = payload.content_type == Value::JSON && payload.encoding.names().is_empty();
    is_plain && payload.data() == Some(b"null")
}
