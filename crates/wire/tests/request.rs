//! What stands around a request: the budget for its answer (CTRL-06), and the name of its operation. And that what
//! may be asked for can be told to a worker.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use serde_json::{Value, json};
use tenure_core::command::{Close, Operator};
use tenure_core::creation::Creation;
use tenure_core::event::ReleaseReason;
use tenure_core::id::DigestForm;
use tenure_core::status::{Policy, Role, TaskStatus};
use tenure_core::view::{ClaimResult, Look, ViewsInput};
use tenure_core::{Code, Command, Limits, Query as _};
use tenure_wire::bus::request::{Ask, GetInput, Request, Views};
use tenure_wire::bus::worker::{Delivery, Reports, Word};
use tenure_wire::bus::{decode, encode};
use tenure_wire::digest::digest_command;
use uuid::Uuid;

fn within(ask: Ask) -> Request {
    let mut request = Request::new(Some("t".parse().unwrap()), Some("c-1".parse().unwrap()), ask);
    request.head.max_bytes = Some(4_096);
    request
}

#[test]
fn a_budget_goes_with_what_is_read() {
    let golden = include_bytes!("golden/bus-v1/request-get-within.msgpack");
    assert_eq!(within(Ask::Get(GetInput {})).write().unwrap(), golden);
    assert_eq!(Request::read(golden).unwrap(), within(Ask::Get(GetInput {})));
}

#[test]
fn a_budget_goes_with_what_is_commanded() {
    let cancel = within(Ask::Command(Box::new(Command::TaskCancel(Close::default()))));
    assert_eq!(Request::read(&cancel.write().unwrap()).unwrap(), cancel);
}

#[test]
fn views_are_asked_for_of_some_tasks() {
    let input = ViewsInput {
        statuses: Some(vec![TaskStatus::Completed]),
        user_facing: true,
        ..ViewsInput::default()
    };
    let page = Views::page(input.clone(), Some("t".parse().unwrap()));
    assert_eq!(page.clone().into_input(), (input, page.after.clone()));
    let request =
        Request::new(Some("t".parse().unwrap()), Some("c-1".parse().unwrap()), Ask::Views(page));
    let golden = include_bytes!("golden/bus-v1/request-views-shown.msgpack");
    assert_eq!(request.write().unwrap(), golden);
    assert_eq!(Request::read(golden).unwrap(), request);
}

/// IDEM-07, EVOLVE-04: a creation in parts is these bytes, which have a digest of the first form of what
/// follows the create; docs/protocol.md has that of the second form. All were made by another program.
#[test]
fn a_creation_in_parts_is_asked_for_in_these_bytes() {
    let create = include_bytes!("golden/bus-v1/request-create-in-parts.msgpack");
    let part = include_bytes!("golden/bus-v1/request-part.msgpack");
    let [create, part] = [&create[..], part].map(|bytes| {
        let request = Request::read(bytes).unwrap();
        assert_eq!(request.write().unwrap(), bytes);
        request
    });
    let (Ask::Create(input), Ask::Command(update)) = (create.ask, part.ask) else {
        panic!("a create and a command")
    };
    let creation = input.creation.unwrap();
    let whole = Creation { digest: creation.digest, draft: false, steps: 2 };
    assert_eq!((input.draft, creation), (Some(true), whole));
    assert_eq!(part.head.command_id, Some(creation.part(1).unwrap()));
    let digest = |form| digest_command(form, &"boss".parse().unwrap(), &update).unwrap();
    assert_eq!(Creation::digest_of([digest(DigestForm::First)]), creation.digest);
    let page = include_str!("../../../docs/protocol.md");
    let second = digest(DigestForm::Second);
    for sample in [second, Creation::digest_of([second])] {
        assert!(page.contains(&format!("`{sample}`")), "{sample}");
    }
}

/// A request as any program writes it.
fn said(operation: &str, input: Value) -> Request {
    let fields = json!({"v": 1, "operation": operation, "task_id": "t", "input": input});
    Request::read(&encode(&fields).unwrap()).unwrap_or_else(|no| panic!("{operation}: {no}"))
}

/// CTRL-01, 5.2, 5.3: every name is read as its operation, with the same input.
#[test]
fn operations_are_known_by_all_their_names() {
    let step = json!({"step_id": "a", "title": "A", "summary": "", "depends_on_step_ids": []});
    let update = json!({"operations": [{"op": "update_task", "title": "new"}]});
    let run = "01900000-0000-7000-8000-000000000001";
    let input = |operation| match operation {
        Operator::TaskCreate => {
            json!({"task_id": "t", "title": "", "summary": "", "steps": [step]})
        }
        Operator::TaskUpdate => update.clone(),
        Operator::TaskClaimStep => json!({"run_id": run, "step_id": "a"}),
        Operator::TaskUpdateStep => json!({"step_id": "a", "status": "failed"}),
        Operator::DispatchWorker => json!({"worker_pool_id": "p"}),
        _ => json!({}),
    };
    let mut names = Operator::TOOLS.iter().chain(&Operator::CONTROL_PLANE).collect::<Vec<_>>();
    names.retain(|(name, _)| !["agent.task_create", "update_task"].contains(name));
    for &(name, operation) in names {
        let own = said(operation.as_str(), input(operation));
        let other = said(name, input(operation));
        assert_eq!((&other.ask, other.head.operation.as_str()), (&own.ask, name));
        assert_eq!(other.ask.operation(), operation.as_str());
    }
    // 5.3: the patch of one operation, by its fields.
    let patch = said("update_task", json!({"title": "new"}));
    assert_eq!(patch.ask, said("task_update", update).ask);
    let unknown =
        encode(&json!({"v": 1, "operation": "agent.retry_task", "task_id": "t"})).unwrap();
    assert_eq!(
        Request::read(&unknown).unwrap_err().code,
        Code::ValidationError,
        "no tool of agents"
    );
}

/// CTRL-09: an operation that would change nothing without its input must have one, and no request has two: who reads
/// the first and who reads the last would see another.
#[test]
fn an_input_is_there_once() {
    let refused = |fields: &[(&str, Value)]| {
        let fields: Vec<_> = fields.iter().map(|(name, value)| (*name, value)).collect();
        let mut bytes = vec![0x80 | u8::try_from(fields.len()).unwrap()];
        for (name, value) in fields {
            bytes.extend(encode(&name).unwrap());
            bytes.extend(encode(value).unwrap());
        }
        Request::read(&bytes).unwrap_err()
    };
    let head = [("v", json!(1)), ("operation", json!("update_task")), ("task_id", json!("t"))];
    let nil = [&head[..], &[("input", Value::Null)]].concat();
    for fields in [&head[..], &nil] {
        let refused = refused(fields);
        assert_eq!(refused.code, Code::ValidationError);
        assert!(refused.message.contains("missing field `input`"), "{refused}");
    }
    let input = ("input", json!({"title": "new"}));
    let refused = refused(&[&head[..], &[input.clone(), input]].concat());
    assert_eq!(refused.code, Code::ValidationError);
    assert!(refused.message.contains("duplicate field `input`"), "{refused}");
}

/// POL-01, P38, P40: what a tool of an agent makes does nothing by itself, if nothing else is said; whoever
/// repeats it by another name and says so asks for the same.
#[test]
fn an_agent_creates_by_hand() {
    let create = |name: &str, more: Value| {
        let mut input = json!({"task_id": "t", "title": "", "summary": "", "steps": []});
        input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let Ask::Create(input) = said(name, input).ask else { panic!("{name} is a create") };
        input
    };
    let policies = |name: &str, more: Value| {
        let input = create(name, more);
        (input.dispatch, input.completion)
    };
    let (manual, auto) = (Some(Policy::Manual), Some(Policy::Auto));
    assert_eq!(policies("agent.task_create", json!({})), (manual, manual));
    assert_eq!(policies("agent.task_create", json!({"dispatch": "auto"})), (auto, manual));
    for name in ["create_task", "task_create"] {
        assert_eq!(policies(name, json!({})), (None, None), "{name}");
    }
    let by_hand = json!({"dispatch": "manual", "completion": "manual"});
    assert_eq!(create("create_task", by_hand), create("agent.task_create", json!({})));
}

/// The words and looks of a worker have the names of an agent's tools, too.
#[test]
fn a_worker_may_call_its_tools_by_their_names() {
    let read = |name: &str, input: Value| -> Word {
        decode(&encode(&json!({"operation": name, "input": input})).unwrap()).unwrap()
    };
    let done = json!({"step_id": "a", "status": "completed"});
    assert_eq!(read("agent.task_update_step", done.clone()), read("task_update_step", done));
    for (name, own) in [
        ("agent.task_get", "task_get"),
        ("get_task", "task_get"),
        ("agent.task_list", "task_list"),
        ("list_tasks", "task_list"),
        ("agent.task_query_steps", "task_query_steps"),
    ] {
        let look = |name: &str| -> Look {
            let message = match own {
                "task_get" => json!({"operation": name}),
                _ => json!({"operation": name, "input": {}}),
            };
            decode(&encode(&message).unwrap()).unwrap()
        };
        assert_eq!(look(name), look(own));
    }
}

/// LEASE-18: why a Step is given back. A reason that is not known, and none, are `unfit`.
#[test]
fn a_worker_says_why_it_gives_a_step_back() {
    let golden = include_bytes!("golden/bus-v1/reports-given-back.msgpack");
    let said: Reports = decode(golden).unwrap();
    assert_eq!(encode(&said).unwrap(), golden);
    let why = |reports: &Reports| -> Vec<(ReleaseReason, Option<u64>)> {
        let words = reports.reports.iter().map(|report| match &report.word {
            Word::ReleaseStep { reason, retry_after_ms, .. } => (*reason, *retry_after_ms),
            other => panic!("{other:?}"),
        });
        words.collect()
    };
    use ReleaseReason::{Draining, Fenced, Surplus, Unfit};
    let all = [(Draining, None), (Surplus, None), (Fenced, None), (Unfit, Some(3_600_000))];
    assert_eq!(why(&said), all);
    let at = golden.windows(8).position(|word| word == b"draining").unwrap();
    let mut newer = golden.to_vec();
    newer[at..at + 8].copy_from_slice(b"sleeping");
    assert_eq!(why(&decode(&newer).unwrap())[0], (Unfit, None));
}

/// P30: what a worker is told of a Step or a Run is bounded so that it fits a message, with texts, refs and names
/// beside it that are as long as they may be: names cost most, of whatever length.
#[test]
fn what_a_worker_is_told_at_most_fits_a_message() {
    let limits = Limits::default();
    let text = "x".repeat(limits.progress_bytes_max);
    for length in [1, 31, 32, 64, 128] {
        let most = limits.told_bytes_max / (length + 2);
        let names: Vec<String> = vec!["x".repeat(length); most];
        let claim = json!({
            "session_id": "s".repeat(128), "task_id": "t".repeat(128), "run_id": Uuid::max(),
            "attempt_id": Uuid::max(), "ordinal": u32::MAX, "fencing_token": u64::MAX,
            "lease_expires_at": i64::MAX, "lease_ms": u64::MAX, "input_refs": [],
            "instructions": text, "bindings": {"thread_id": text, "environment_ref": text},
            "step": {"step_id": "a".repeat(128), "title": "", "summary": "", "required": true,
                     "worker_pool_id": "p".repeat(128), "handler": "h".repeat(128),
                     "depends_on_step_ids": names},
        });
        let claim: ClaimResult = serde_json::from_value(claim).unwrap();
        let grant = Delivery { grant: Some(Box::new(claim)), ..Delivery::default() };
        let told = encode(&grant).expect("it fits a message");
        assert!(length < 32 || told.len() > limits.told_bytes_max, "each byte is counted");
    }
}

macro_rules! all {
    ($($group:ident { $($ask:ident($query:ty))* })*) => {
        [$($((<$query>::NAME, <$query>::TOOL),)*)*]
    };
}

/// PERM-04 to PERM-08: docs/protocol.md says of every query who may ask it. What is for nodes alone is not in the
/// table of operations.
#[test]
fn every_query_is_described_with_those_who_may_ask_it() {
    let page = include_str!("../../../docs/protocol.md");
    for (name, tool) in tenure_wire::queries!(all) {
        // The operations of workers have a table without this column.
        let is_row = |line: &&str| line.starts_with(&format!("| `{name}` |"));
        let row = page.lines().filter(is_row).find(|line| line.split(" | ").count() > 3);
        let who = row.map(|row| row.split(" | ").nth(2).unwrap().to_owned());
        let expected = match (tool.is_open_to(Role::Orchestrator), tool.is_open_to(Role::Observer))
        {
            (true, true) => Some("O, observer"),
            (true, false) => Some("O"),
            (false, _) => None,
        };
        assert_eq!(who.as_deref(), expected, "{name}");
        assert!(page.contains(&format!("`{name}`")), "{name}");
    }
}
