//! Reads an operation of a patch, whatever the order of its fields. It reads each field where it
//! stands, so that an error names the right place; serde's own code would first put all fields aside.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use serde::de::value::StrDeserializer;
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor,
};
use smol_str::SmolStr;

use super::{Operation, StepFields, StepInput, TaskFields};
use crate::id::{Ref, StepId};

/// Names of the operations, each with its fields; those of `update_task` are the Task's.
const OPERATIONS: [(&str, &[&str]); 10] = [
    ("update_task", &[]),
    ("add_step", &["reason", "step"]),
    ("update_step", &["fields", "reason", "step_id"]),
    ("delete_step", &["reason", "step_id"]),
    ("add_dependency", &["depends_on_step_id", "reason", "step_id"]),
    ("remove_dependency", &["depends_on_step_id", "reason", "step_id"]),
    ("cancel_step", &["reason", "step_id"]),
    ("reopen_step", &["input_refs", "reason", "step_id"]),
    ("block_task", &["reason"]),
    ("reopen_task", &["reason"]),
];

const NAMES: &[&str] = &{
    let mut names = [""; OPERATIONS.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = OPERATIONS[at].0;
        at += 1;
    }
    names
};

impl<'de> Deserialize<'de> for Operation {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_map(OperationVisitor)
    }
}

struct OperationVisitor;

impl<'de> Visitor<'de> for OperationVisitor {
    type Value = Operation;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an operation, a map with `op`")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Operation, A::Error> {
        let mut own = Own::default();
        let task = TaskFields::deserialize(Split { map, own: &mut own })?;
        own.operation(task)
    }
}

/// The fields of operations, except those of a Task.
#[derive(Default)]
struct Own {
    op: Option<SmolStr>,
    step: Option<StepInput>,
    fields: Option<StepFields>,
    step_id: Option<StepId>,
    depends_on_step_id: Option<StepId>,
    input_refs: Option<Vec<Ref>>,
    /// Names of all fields that came, except `op`.
    came: Vec<SmolStr>,
    /// The names of the fields that an operation on the Task has.
    of_task: &'static [&'static str],
}

impl Own {
    /// Reads the field of this name. Returns whether there is such a field.
    fn read<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<bool, A::Error> {
        match name {
            "op" => once("op", &mut self.op, map)?,
            "step" => once("step", &mut self.step, map)?,
            "fields" => once("fields", &mut self.fields, map)?,
            "step_id" => once("step_id", &mut self.step_id, map)?,
            "depends_on_step_id" => once("depends_on_step_id", &mut self.depends_on_step_id, map)?,
            "input_refs" => once("input_refs", &mut self.input_refs, map)?,
            name if self.of_task.contains(&name) => return Ok(false),
            _ => drop(map.next_value::<IgnoredAny>()?), // `operation` refuses it.
        }
        Ok(true)
    }

    fn operation<E: Error>(self, task: TaskFields) -> Result<Operation, E> {
        let name = needed("op", self.op)?;
        let Some((name, fields)) = OPERATIONS.iter().find(|(known, _)| *known == name) else {
            return Err(E::unknown_variant(&name, NAMES));
        };
        let fields = if *name == "update_task" { self.of_task } else { fields };
        if let Some(other) = self.came.iter().find(|came| !fields.contains(&came.as_str())) {
            return Err(E::unknown_field(other, fields));
        }
        let reason = task.reason.clone();
        let step_id = || needed("step_id", self.step_id);
        let depends_on_step_id = || needed("depends_on_step_id", self.depends_on_step_id);
        Ok(match *name {
            "update_task" => Operation::UpdateTask(Box::new(task)),
            "add_step" => Operation::AddStep { step: needed("step", self.step)?, reason },
            "update_step" => Operation::UpdateStep {
                fields: needed("fields", self.fields)?,
                reason,
                step_id: step_id()?,
            },
            "delete_step" => Operation::DeleteStep { reason, step_id: step_id()? },
            "add_dependency" => Operation::AddDependency {
                depends_on_step_id: depends_on_step_id()?,
                reason,
                step_id: step_id()?,
            },
            "remove_dependency" => Operation::RemoveDependency {
                depends_on_step_id: depends_on_step_id()?,
                reason,
                step_id: step_id()?,
            },
            "cancel_step" => Operation::CancelStep { reason, step_id: step_id()? },
            "reopen_step" => Operation::ReopenStep {
                input_refs: self.input_refs.unwrap_or_default(),
                reason,
                step_id: step_id()?,
            },
            "block_task" => Operation::BlockTask { reason },
            _ => Operation::ReopenTask { reason },
        })
    }
}

/// Reads the value of a field that may come only once.
fn once<'de, T: Deserialize<'de>, A: MapAccess<'de>>(
    name: &'static str,
    field: &mut Option<T>,
    map: &mut A,
) -> Result<(), A::Error> {
    let value = map.next_value()?;
    match field.replace(value) {
        None => Ok(()),
        Some(_) => Err(A::Error::duplicate_field(name)),
    }
}

fn needed<T, E: Error>(name: &'static str, field: Option<T>) -> Result<T, E> {
    field.ok_or_else(|| E::missing_field(name))
}

/// Passes on the fields of a Task among those of an operation, and puts the others aside on the way.
struct Split<'a, A> {
    map: A,
    own: &'a mut Own,
}

impl<'de, A: MapAccess<'de>> Deserializer<'de> for Split<'_, A> {
    type Error = A::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, A::Error> {
        visitor.visit_map(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        self.own.of_task = fields;
        visitor.visit_map(self)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Split<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        while let Some(name) = self.map.next_key::<SmolStr>()? {
            let is_own = self.own.read(&name, &mut self.map)?;
            if name != "op" {
                self.own.came.push(name.clone());
            }
            if !is_own {
                return seed.deserialize(StrDeserializer::new(&name)).map(Some);
            }
        }
        Ok(None)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.map.next_value_seed(seed)
    }
}
