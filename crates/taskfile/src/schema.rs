//! The JSON Schema of the native format, for editors. The structs here only describe it and are
//! never filled, because the reader collects mistakes with their places, which derived code cannot.
//! A test checks that both have the same names.

#![expect(dead_code, reason = "the fields are read by the derive only")]

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::Value;

/// JSON Schema (2020-12) of a task file.
pub fn schema() -> Value {
    schemars::schema_for!(TaskFile).to_value()
}

/// A task: steps and what they depend on.
#[derive(JsonSchema)]
#[schemars(title = "Tenure task file", deny_unknown_fields)]
#[schemars(extend("patternProperties" = { "^x-": true }))]
struct TaskFile {
    /// The JSON Schema of the file, for editors; not read.
    #[schemars(rename = "$schema")]
    schema: Option<String>,
    /// Id of the task; the program that submits the file can give one instead.
    task_id: Option<Id>,
    /// Same as `task_id`.
    id: Option<Id>,
    /// For people; falls back to the id, then to the file's name.
    title: Option<Text>,
    /// Same as `title`.
    name: Option<Text>,
    /// For people; falls back to the title.
    summary: Option<Text>,
    /// Same as `summary`.
    description: Option<Text>,
    /// Who gives out ready steps. Default: auto.
    dispatch: Option<Or<Mode>>,
    /// Who ends the task. Default: auto.
    completion: Option<Or<Mode>>,
    /// The only principal whose workers may claim steps that name none of their own.
    claim_only_by: Option<Text>,
    /// Higher is sooner; a hint. Default: 0.
    priority: Option<Or<i32>>,
    /// When the task should be over: a duration from its creation, or a time with its offset.
    deadline: Option<Duration>,
    /// What the task does when a step that it needs has failed. Default: drain.
    on_failure: Option<Or<WhenFailing>>,
    /// How long the task waits for optional steps when all others are completed. Default: 1h.
    optional_wait: Option<Duration>,
    /// Names and values by which listings find the task: at most 16.
    labels: Option<BTreeMap<String, Text>>,
    /// Id of the step whose output is the task's. Default: the only step for which no other waits.
    output_from: Option<Id>,
    /// Stored with the task, not read by the scheduler.
    metadata: Option<BTreeMap<String, Value>>,
    /// Variables and their defaults; a variable with `null` must be given. Used as `${{ vars.NAME }}`.
    vars: Option<BTreeMap<String, Value>>,
    /// Settings for steps that do not have their own.
    defaults: Option<Defaults>,
    /// The steps: a list, or a map from id to step.
    steps: Steps,
}

/// Settings for steps that do not have their own.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Defaults {
    /// Handler of steps that name no action.
    handler: Option<Id>,
    /// Pool of workers.
    pool: Option<Id>,
    /// Environment of processes; a step adds to it. A value may be a secret of the worker.
    env: Option<BTreeMap<String, TextOrSecret>>,
    /// Folder of processes.
    cwd: Option<Text>,
    /// Longest time of one attempt.
    timeout: Option<Duration>,
    /// Attempts after a failed first one.
    retries: Option<Or<Count>>,
    /// The task's retry policy.
    retry: Option<Retry>,
    /// Whether the task needs its steps. Default: true.
    required: Option<Or<bool>>,
    /// The opposite of `required`.
    optional: Option<Or<bool>>,
}

/// One step. It has one of `run`, `command`, `handler`, `sleep` and `noop`, unless `defaults`
/// name a handler.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Step {
    /// Id of the step; in a map of steps the key is the id.
    id: Option<Id>,
    /// Same as `id`.
    step_id: Option<Id>,
    /// For people; falls back to the id.
    title: Option<Text>,
    /// Same as `title`.
    name: Option<Text>,
    /// For people; falls back to the id.
    summary: Option<Text>,
    /// Same as `summary`.
    description: Option<Text>,
    /// Steps that must complete before; the id of a repeated step stands for all of its steps.
    depends_on: Option<OneOrMany>,
    /// Same as `depends_on`.
    depends_on_step_ids: Option<OneOrMany>,
    /// Same as `depends_on`.
    needs: Option<OneOrMany>,
    /// Steps whose results this one gets, of those for which it waits, directly or through others.
    /// Default: those of `depends_on`.
    inputs_from: Option<OneOrMany>,
    /// A command line for the shell.
    run: Option<Text>,
    /// A program and its arguments, without a shell. An argument may be a secret of the worker.
    command: Option<Vec<TextOrSecret>>,
    /// The worker's handler that runs the step.
    handler: Option<Id>,
    /// Input of the handler: any JSON.
    input: Option<Value>,
    /// Wait this long.
    sleep: Option<Duration>,
    /// Do nothing; joins other steps.
    noop: Option<Or<bool>>,
    /// Environment of the process, over that of `defaults`. A value may be a secret of the worker.
    env: Option<BTreeMap<String, TextOrSecret>>,
    /// Folder of the process.
    cwd: Option<Text>,
    /// Longest time of one attempt.
    timeout: Option<Duration>,
    /// Attempts after a failed first one.
    retries: Option<Or<Count>>,
    /// Retry policy; what it leaves out comes from `defaults`.
    retry: Option<Retry>,
    /// Whether the task needs the step. Default: true.
    required: Option<Or<bool>>,
    /// The opposite of `required`.
    optional: Option<Or<bool>>,
    /// Pool of workers.
    pool: Option<Id>,
    /// The only principal whose workers may claim the step; the task's if it says nothing.
    claim_only_by: Option<Text>,
    /// Make this many steps, `ID-0000`, `ID-0001` and so on; `${{ index }}` and `${{ suffix }}`
    /// differ in each.
    repeat: Option<Or<Count>>,
}

/// What happens after a failed or lost attempt.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Retry {
    /// Attempts that may fail; null: no limit.
    max_attempts: Option<Or<Count>>,
    /// Attempts that may be lost with their worker; null: no limit.
    max_lost: Option<Or<Count>>,
    /// The wait before each further attempt.
    backoff: Option<Backoff>,
    /// Error codes that end the step at once.
    non_retryable: Option<OneOrMany>,
    /// Longest wait of a ready step for a worker.
    schedule_to_start: Option<Duration>,
    /// Longest time of one attempt.
    start_to_close: Option<Duration>,
    /// Longest time of all attempts together, from the first ready on.
    schedule_to_close: Option<Duration>,
    /// Longest time for which the step may be blocked.
    blocked_timeout: Option<Duration>,
    /// How long the worker may take to stop when the step is cancelled. Default: 10s.
    grace: Option<Duration>,
    /// The lease duration: the worker must renew the lease within it.
    heartbeat: Option<Duration>,
    /// What a worker does that cannot renew the lease. Default: stop.
    on_lease_doubt: Option<Or<DoubtMode>>,
    /// Whether a result counts that comes after the loss, while nobody else has had the step. Default: with
    /// automatic completion.
    accept_late: Option<Or<bool>>,
}

/// `min(max, initial * factor^(n-1))` before retry n, less at most the share `jitter` of it.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Backoff {
    /// Wait before the first retry. Default: 1s.
    initial: Option<Duration>,
    /// Growth, from 1. Default: 2.
    factor: Option<Or<f64>>,
    /// Longest wait. Default: 1m.
    max: Option<Duration>,
    /// Share of the wait that is random, 0 to 1. Default: 0.1.
    jitter: Option<Or<f64>>,
}

/// What the task does when a step that it needs has failed.
#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase")]
enum WhenFailing {
    /// It stops what runs.
    Stop,
    /// It starts nothing more.
    Drain,
    /// It runs all that can run.
    Finish,
}

/// Who moves the task forward.
#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase")]
enum Mode {
    /// The scheduler, by itself.
    Auto,
    /// The program that submitted the task, by commands.
    Manual,
}

/// What a worker does that cannot renew the lease of a step.
#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase")]
enum DoubtMode {
    /// It stops the step, so that nobody runs it twice.
    Stop,
    /// It finishes the step.
    Finish,
}

/// A list of steps with their ids, or a map from id to step.
#[derive(JsonSchema)]
#[schemars(untagged)]
enum Steps {
    List(#[schemars(length(min = 1))] Vec<Step>),
    Map(#[schemars(extend("minProperties" = 1))] BTreeMap<String, Option<Step>>),
}

/// A text, or a secret of the worker.
#[derive(JsonSchema)]
#[schemars(untagged)]
enum TextOrSecret {
    Text(Text),
    Secret(SecretReference),
}

/// What stands for a secret: the worker that runs the step puts its value there.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct SecretReference {
    /// The name of the secret.
    #[schemars(regex(pattern = "^[a-zA-Z0-9_][a-zA-Z0-9_.-]*$|\\$\\{\\{"), length(max = 128))]
    secret: String,
}

/// One text, or several.
#[derive(JsonSchema)]
#[schemars(untagged)]
enum OneOrMany {
    One(Text),
    Many(Vec<Text>),
}

/// A type whose schema is written out by hand.
macro_rules! written_out {
    ($(#[doc = $doc:literal])+ $name:ident = $schema:tt) => {
        $(#[doc = $doc])+
        struct $name;

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    };
}

written_out! {
    /// An id, or a text with variables that becomes one.
    Id = {
        "description": "1 to 128 characters of a-z, 0-9, - and _",
        "type": ["string", "integer"],
        "pattern": "^[a-z0-9_-]{1,128}$|\\$\\{\\{"
    }
}

written_out! {
    /// A text.
    Text = {
        "description": "A text; numbers and booleans are taken as written",
        "type": ["string", "number", "boolean"]
    }
}

written_out! {
    /// A duration.
    Duration = {
        "description": "A duration such as 500ms, 30s or 1h 30m, or a number of milliseconds",
        "type": ["string", "integer"],
        "minimum": 0
    }
}

written_out! {
    /// A number of things.
    Count = { "type": "integer", "minimum": 0 }
}

/// `T`, or a text with one reference to a value of this type.
struct Or<T>(PhantomData<T>);

impl<T: JsonSchema> JsonSchema for Or<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("{}_or_reference", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let value = generator.subschema_for::<T>();
        let reference = json_schema!({ "type": "string", "pattern": "^\\$\\{\\{.*\\}\\}$" });
        json_schema!({ "anyOf": [value, reference] })
    }
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::fields::KnownFields;
    use crate::{native, retry, step};

    #[test]
    fn the_schema_has_the_fields_that_the_reader_knows() {
        let schema = schema();
        let definitions = &schema["$defs"];
        let pairs: [(&Value, &KnownFields); 5] = [
            (&schema, &native::TASK),
            (&definitions["Defaults"], &step::DEFAULTS),
            (&definitions["Step"], &step::STEP),
            (&definitions["Retry"], &retry::RETRY),
            (&definitions["Backoff"], &retry::BACKOFF),
        ];
        for (object, known) in pairs {
            let described: BTreeSet<&str> = object["properties"]
                .as_object()
                .expect("properties")
                .keys()
                .map(String::as_str)
                .collect();
            let read: BTreeSet<&str> = known.names.iter().copied().collect();
            assert_eq!(described, read);
            assert_eq!(object["additionalProperties"], false);
        }
    }
}
