//! What the fields of a task file mean.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tenure_taskfile::{
    BackoffPlan, Deadline, DoubtMode, Mode, Plan, PlanStep, ReadOptions, RetryPlan, TaskFileError,
    WhenFailing, parse,
};

fn plan(yaml: &str) -> Plan {
    parse(yaml.as_bytes(), "t.yaml", &ReadOptions::default()).unwrap_or_else(|e| panic!("{e}"))
}

fn step(yaml: &str) -> PlanStep {
    plan(&format!("steps:\n  a: {yaml}\n")).steps.remove(0)
}

fn with_vars(yaml: &str, vars: &[(&str, &str)]) -> Result<Plan, TaskFileError> {
    let vars: BTreeMap<_, _> = vars.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    parse(yaml.as_bytes(), "t.yaml", &ReadOptions { vars, ..ReadOptions::default() })
}

fn ids(plan: &Plan) -> Vec<&str> {
    plan.steps.iter().map(|step| step.id.as_str()).collect()
}

#[test]
fn a_step_with_nothing_but_an_action_has_defaults_for_all_else() {
    let expected = PlanStep {
        id: "a".into(),
        title: "a".into(),
        summary: "a".into(),
        depends_on: vec![],
        inputs_from: None,
        handler: "exec".into(),
        input: Some(json!({ "run": "make" })),
        required: true,
        pool: None,
        claim_only_by: None,
        retry: None,
    };
    assert_eq!(step("{run: make}"), expected);
}

#[test]
fn a_task_without_texts_is_called_by_its_id_and_else_by_its_file() {
    let named = plan("task_id: nightly\nsteps: {a: {noop: true}}");
    assert_eq!((&*named.title, &*named.summary), ("nightly", "nightly"));
    let unnamed = parse(b"steps: {a: {noop: true}}", "/dir/build.yaml", &ReadOptions::default());
    let unnamed = unnamed.unwrap();
    assert_eq!((unnamed.task_id, &*unnamed.title), (None, "build"));
}

#[test]
fn every_field_of_a_task_is_taken_over() {
    let plan = plan(
        "$schema: x\nid: t\nname: Title\ndescription: Words\ndispatch: manual\ncompletion: manual\n\
         priority: -3\ndeadline: 2h\nmetadata: {a: [1, 2.5, true, null, {b: c}]}\nx-mine: 1\n\
         labels: {team: blue, year: 2026}\nclaim_only_by: eve\n\
         defaults: {pool: gpu}\nsteps: [{step_id: a, noop: true, claim_only_by: bob}]",
    );
    assert_eq!(plan.task_id.as_deref(), Some("t"));
    assert_eq!((&*plan.title, &*plan.summary), ("Title", "Words"));
    assert_eq!((plan.dispatch, plan.completion), (Mode::Manual, Mode::Manual));
    assert_eq!((plan.priority, plan.pool.as_deref()), (Some(-3), Some("gpu")));
    assert_eq!(plan.deadline, Some(Deadline::AfterMs(7_200_000)));
    let labels: Vec<_> = plan.labels.iter().map(|(key, value)| (&**key, &**value)).collect();
    assert_eq!(labels, [("team", "blue"), ("year", "2026")]);
    assert_eq!(plan.claim_only_by.as_deref(), Some("eve"));
    assert_eq!(plan.steps[0].claim_only_by.as_deref(), Some("bob"));
    let metadata = json!({ "a": [1, 2.5, true, null, { "b": "c" }] });
    assert_eq!(Value::Object(plan.metadata), metadata);
}

/// LABEL-01: a file with too many or too long labels is refused where they stand.
#[test]
fn labels_are_few_and_short() {
    let file = |labels: &str| format!("labels: {{{labels}}}\nsteps: {{a: {{noop: true}}}}");
    let read = |labels: &str| parse(file(labels).as_bytes(), "t.yaml", &ReadOptions::default());
    let many = |n: usize| (0..n).map(|n| format!("k{n}: v")).collect::<Vec<_>>().join(", ");
    let one = |key: usize, value: usize| format!("{}: {}", "k".repeat(key), "v".repeat(value));
    assert!(read(&many(16)).is_ok() && read(&one(63, 128)).is_ok());
    for bad in [many(17), one(64, 1), one(63, 129), "\"a=b\": c".to_owned(), "\"\": c".to_owned()] {
        let refused = read(&bad).unwrap_err().to_string();
        assert!(refused.contains("labels"), "{refused}");
    }
}

#[test]
fn a_deadline_may_be_a_time_with_its_offset() {
    let text = "deadline: 2026-05-01T14:00:00+02:00\nsteps: {a: {noop: true}}";
    assert_eq!(plan(text).deadline, Some(Deadline::AtMs(1_777_636_800_000)));
    let toml = b"deadline = 2026-05-01T12:00:00Z\n[steps.a]\nnoop = true\n";
    let toml = parse(toml, "t.toml", &ReadOptions::default()).unwrap();
    assert_eq!(toml.deadline, Some(Deadline::AtMs(1_777_636_800_000)));
}

#[test]
fn each_action_has_its_handler_and_input() {
    let cases = [
        ("{run: ls}", "exec", json!({ "run": "ls" })),
        ("{command: [ls, -l, 7, true]}", "exec", json!({ "command": ["ls", "-l", "7", "true"] })),
        ("{sleep: 2s}", "sleep", json!({ "ms": 2000 })),
        ("{sleep: 15}", "sleep", json!({ "ms": 15 })),
        ("{noop: true}", "noop", Value::Null),
        ("{handler: mail, input: [1, {a: null}]}", "mail", json!([1, { "a": null }])),
        ("{handler: mail}", "mail", Value::Null),
    ];
    for (yaml, handler, input) in cases {
        let step = step(yaml);
        assert_eq!((&*step.handler, step.input.unwrap_or_default()), (handler, input), "{yaml}");
    }
}

#[test]
fn a_process_takes_environment_folder_and_timeout_over_from_the_defaults() {
    let plan = plan(
        "defaults: {env: {A: 1, B: 2}, cwd: /srv, timeout: 1m}\nsteps:\n  \
         a: {run: x}\n  b: {run: x, env: {B: 3, V: 1.10, Z: 007}, cwd: sub, timeout: 5s}\n",
    );
    let inputs: Vec<_> = plan.steps.iter().map(|step| step.input.clone().unwrap()).collect();
    let env = json!({ "A": "1", "B": "2" });
    let first = json!({ "run": "x", "cwd": "/srv", "timeout_ms": 60_000, "env": env });
    assert_eq!(inputs[0], first);
    let env = json!({ "A": "1", "B": "3", "V": "1.10", "Z": "007" });
    let second = json!({ "run": "x", "cwd": "sub", "timeout_ms": 5_000, "env": env });
    assert_eq!(inputs[1], second);
    assert_eq!(plan.retry.unwrap().start_to_close_ms, Some(60_000));
    assert_eq!(plan.steps[0].retry, None);
    assert_eq!(plan.steps[1].retry.as_ref().unwrap().start_to_close_ms, Some(5_000));
}

#[test]
fn a_default_handler_makes_steps_without_an_action_possible() {
    let plan = plan("defaults: {handler: mail}\nsteps: {a: {input: 1}, b: {run: x}}");
    assert_eq!(plan.steps[0].handler, "mail");
    assert_eq!(plan.steps[0].input, Some(json!(1)));
    assert_eq!(plan.steps[1].handler, "exec");
}

#[test]
fn dependencies_are_one_or_many_by_any_of_three_names_and_stored_once() {
    let plan = plan(
        "steps:\n  a: {noop: true}\n  b: {noop: true, needs: a}\n  \
         c: {noop: true, depends_on: [b, a, b]}\n  d: {noop: true, depends_on_step_ids: [c]}\n",
    );
    let edges: Vec<_> = plan.steps.iter().map(|step| step.depends_on.join(",")).collect();
    assert_eq!(edges, ["", "a", "b,a", "c"]);
}

/// STEP-37, TASK-22
#[test]
fn a_step_names_whose_results_it_gets_and_a_task_whose_output_it_has() {
    let plan = plan(
        "output_from: c\nsteps:\n  a: {noop: true, repeat: 2}\n  b: {noop: true, needs: a}\n  \
         c: {noop: true, needs: b, inputs_from: [b, a, b]}\n  d: {noop: true, needs: b, inputs_from: []}\n",
    );
    let named: Vec<_> =
        plan.steps.iter().map(|step| step.inputs_from.as_ref().map(|ids| ids.join(","))).collect();
    let c = Some("b,a-0000,a-0001".to_owned());
    assert_eq!(named, [None, None, None, c, Some(String::new())]);
    assert_eq!(plan.output_from.as_deref(), Some("c"));
}

#[test]
fn required_and_optional_are_opposites_with_a_default() {
    let required =
        |yaml: &str| -> Vec<bool> { plan(yaml).steps.iter().map(|step| step.required).collect() };
    let steps = "steps: {a: {noop: true}, b: {noop: true, optional: true}, \
                 c: {noop: true, required: true}, d: {noop: true, optional: false}}";
    assert_eq!(required(steps), [true, false, true, true]);
    let defaults = format!("defaults: {{optional: true}}\n{steps}");
    assert_eq!(required(&defaults), [false, false, true, true]);
}

#[test]
fn retries_is_short_for_one_more_attempt() {
    let standard = RetryPlan::standard(Mode::Auto);
    assert_eq!((standard.max_attempts, standard.max_lost), (Some(3), Some(3)));
    let expected = RetryPlan { max_attempts: Some(6), ..standard };
    assert_eq!(step("{run: x, retries: 5}").retry, Some(expected));
    assert_eq!(step("{run: x, retries: 0}").retry.unwrap().max_attempts, Some(1));
}

#[test]
fn every_field_of_a_policy_is_taken_over() {
    let yaml = "{run: x, retry: {max_attempts: 7, max_lost: null, non_retryable: [a.b, rejected], \
                schedule_to_start: 1m, start_to_close: 2m, heartbeat: 3s, \
                on_lease_doubt: finish, accept_late: false, \
                schedule_to_close: 4m, blocked_timeout: 1h, grace: 30s, \
                backoff: {initial: 5ms, factor: 1.5, max: 10, jitter: 0}}}";
    let backoff = BackoffPlan { initial_ms: 5, factor: 1.5, max_ms: 10, jitter: 0.0 };
    let expected = RetryPlan {
        max_attempts: Some(7),
        max_lost: None,
        backoff,
        non_retryable: vec!["a.b".into(), "rejected".into()],
        schedule_to_start_ms: Some(60_000),
        start_to_close_ms: Some(120_000),
        schedule_to_close_ms: Some(240_000),
        blocked_ms: Some(3_600_000),
        cancel_grace_ms: Some(30_000),
        heartbeat_ms: Some(3_000),
        on_lease_doubt: Some(DoubtMode::Finish),
        accept_late: Some(false),
    };
    assert_eq!(step(yaml).retry, Some(expected));
}

#[test]
fn a_step_changes_the_policy_of_the_defaults_field_by_field() {
    let plan = plan(
        "defaults: {retries: 9, retry: {backoff: {factor: 3}, heartbeat: 1s}}\n\
         steps: {a: {noop: true}, b: {noop: true, retry: {max_attempts: null}}}",
    );
    let task = plan.retry.unwrap();
    assert_eq!(
        (task.max_attempts, task.backoff.factor, task.heartbeat_ms),
        (Some(10), 3.0, Some(1_000))
    );
    assert_eq!(plan.steps[0].retry, None);
    assert_eq!(plan.steps[1].retry, Some(RetryPlan { max_attempts: None, ..task }));
}

/// POL-05, POL-06
#[test]
fn a_file_says_what_a_failing_task_does_and_how_long_optional_steps_have() {
    let said = plan("on_failure: finish\noptional_wait: 5m\nsteps: {a: {run: x}}");
    assert_eq!(said.on_failure, Some(WhenFailing::Finish));
    assert_eq!(said.optional_wait_ms, Some(300_000));
    let unsaid = plan("steps: {a: {run: x}}");
    assert_eq!((unsaid.on_failure, unsaid.optional_wait_ms), (None, None));
    let wrong = "on_failure: explode\nsteps: {a: {run: x}}";
    let Err(error) = parse(wrong.as_bytes(), "f.yaml", &ReadOptions::default()) else {
        panic!("no such way")
    };
    assert!(error.to_string().contains("expected `stop`, `drain` or `finish`"), "{error}");
}

#[test]
fn without_automatic_completion_a_policy_starts_from_no_retry() {
    let plan = plan("completion: manual\nsteps: {a: {run: x, timeout: 1s}}");
    let expected =
        RetryPlan { start_to_close_ms: Some(1_000), ..RetryPlan::standard(Mode::Manual) };
    assert_eq!((expected.max_attempts, expected.max_lost), (Some(1), None));
    assert_eq!(plan.steps[0].retry, Some(expected));
}

#[test]
fn a_first_wait_over_the_standard_longest_one_raises_it() {
    let backoff = step("{run: x, retry: {backoff: {initial: 5m}}}").retry.unwrap().backoff;
    assert_eq!((backoff.initial_ms, backoff.max_ms), (300_000, 300_000));
    let backoff = step("{run: x, retry: {backoff: {max: 100ms}}}").retry.unwrap().backoff;
    assert_eq!((backoff.initial_ms, backoff.max_ms), (100, 100));
}

#[test]
fn durations_are_rounded_up_to_milliseconds() {
    for (written, ms) in [("1h 30m", 5_400_000), ("1us", 1), ("1500us", 2), ("0s", 0)] {
        assert_eq!(step(&format!("{{sleep: {written}}}")).input, Some(json!({ "ms": ms })));
    }
}

#[test]
fn a_repeated_step_becomes_many_and_its_id_means_all_of_them() {
    let plan = plan(
        "steps:\n  s: {noop: true}\n  w: {repeat: 3, needs: s, title: 'N ${{ index }}', \
         run: 'echo ${{ suffix }} $${{ x }}'}\n  j: {noop: true, needs: w}\n  \
         one: {noop: true, needs: [w-0002, w]}\n",
    );
    assert_eq!(ids(&plan), ["s", "w-0000", "w-0001", "w-0002", "j", "one"]);
    assert_eq!(plan.steps[2].title, "N 1");
    assert_eq!(plan.steps[2].input, Some(json!({ "run": "echo 0001 ${{ x }}" })));
    assert_eq!(plan.steps[2].depends_on, ["s"]);
    assert_eq!(plan.steps[4].depends_on, ["w-0000", "w-0001", "w-0002"]);
    assert_eq!(plan.steps[5].depends_on, ["w-0002", "w-0000", "w-0001"]);
}

#[test]
fn repeated_steps_can_depend_on_each_other_one_by_one() {
    let plan = plan(
        "steps:\n  a: {repeat: 2, noop: true}\n  b: {repeat: 2, noop: true, needs: 'a-${{ suffix }}'}\n",
    );
    assert_eq!(plan.steps[2].depends_on, ["a-0000"]);
    assert_eq!(plan.steps[3].depends_on, ["a-0001"]);
}

#[test]
fn a_variable_has_its_default_until_a_value_is_given() {
    let file = "vars: {name: you, n: 2}\nsteps: {a: {run: 'hi ${{vars.name}} ${{ vars.n }}'}}";
    let run = |vars: &[(&str, &str)]| with_vars(file, vars).unwrap().steps[0].input.clone();
    assert_eq!(run(&[]), Some(json!({ "run": "hi you 2" })));
    assert_eq!(run(&[("name", "Ada"), ("n", "0x10")]), Some(json!({ "run": "hi Ada 0x10" })));
}

#[test]
fn a_value_that_is_one_reference_keeps_the_type_of_the_variable() {
    let file = "vars: {n: 2, on: true, list: [a], map: {k: 1}, none: null}\nsteps: {a: {repeat: \
                '${{ vars.n }}', optional: '${{ vars.on }}', handler: h, input: {l: '${{ \
                vars.list }}', m: '${{ vars.map }}', n: '${{ vars.n }}', s: '${{ vars.none }}'}}}";
    let given = [("none", "x"), ("n", "3"), ("list", "[1, 2]")];
    let plan = with_vars(file, &given).unwrap();
    assert_eq!((plan.steps.len(), plan.steps[0].required), (3, false));
    let input = json!({ "l": [1, 2], "m": { "k": 1 }, "n": 3, "s": "x" });
    assert_eq!(plan.steps[0].input, Some(input));
}

#[test]
fn a_given_value_must_fit_its_variable() {
    let file = "vars: {n: 2, on: true, list: [a], map: {}}\nsteps: {a: {noop: true}}";
    let cases = [
        ("n", "many", "the value given for `n` is not a number"),
        ("on", "yes", "the value given for `on` is not `true` or `false`"),
        ("list", "{}", "the value given for `list` is not a list in JSON"),
        ("map", "[", "the value given for `map` is not a map in JSON"),
        ("lisd", "[]", "the file has no variable `lisd`"),
    ];
    for (name, value, message) in cases {
        let error = with_vars(file, &[(name, value)]).unwrap_err();
        assert_eq!(error.first.message, message);
    }
    let error = with_vars(file, &[("lisd", "[]")]).unwrap_err();
    assert_eq!(error.first.hint.as_deref(), Some("did you mean `list`?"));
}

#[test]
fn a_substituted_value_is_not_substituted_again() {
    let file = "vars: {a: x}\nsteps: {s: {run: '${{ vars.a }}'}}";
    let plan = with_vars(file, &[("a", "${{ vars.a }}")]).unwrap();
    assert_eq!(plan.steps[0].input, Some(json!({ "run": "${{ vars.a }}" })));
}

#[test]
fn yaml_anchors_and_merge_keys_share_what_steps_have_in_common() {
    let plan = plan(
        "x-common: &common {env: {A: b}, retries: 1}\nsteps:\n  a: {<<: *common, run: x}\n  \
         b:\n    <<: [*common, {cwd: /tmp}]\n    retries: 4\n    run: y\n",
    );
    assert_eq!(plan.steps[0].input, Some(json!({ "run": "x", "env": { "A": "b" } })));
    let input = json!({ "run": "y", "env": { "A": "b" }, "cwd": "/tmp" });
    assert_eq!(plan.steps[1].input, Some(input));
    assert_eq!(plan.steps[1].retry.as_ref().unwrap().max_attempts, Some(5));
}

#[test]
fn yaml_words_are_typed_as_in_yaml_1_2() {
    let yaml = "metadata: {a: yes, b: 0o17, c: 0x1F, d: .5, e: ~, f: 1_000, g: '7', h: !!str 7, \
                i: 2026-01-01, j: True, k: -7, l: .inf, m: 12e3}\nsteps: {a: {noop: true}}";
    let expected = json!({
        "a": "yes", "b": 15, "c": 31, "d": 0.5, "e": null, "f": "1_000", "g": "7", "h": "7",
        "i": "2026-01-01", "j": true, "k": -7, "l": ".inf", "m": 12000.0,
    });
    assert_eq!(Value::Object(plan(yaml).metadata), expected);
}

/// A secret is a name in the plan, as the worker has the value; only where a process has one.
#[test]
fn a_value_may_be_left_to_the_worker() {
    let both = step("{command: [curl, {secret: url}, plain], env: {TOKEN: {secret: a.b}, N: 7}}");
    let input = json!({
        "command": ["curl", {"secret": "url"}, "plain"],
        "env": {"TOKEN": {"secret": "a.b"}, "N": "7"},
    });
    assert_eq!(both.input, Some(input));
    let all = plan(
        "defaults: {env: {A: {secret: a}, B: b}}\nsteps: {x: {run: x, env: {B: {secret: b}}}}",
    );
    let env = json!({"A": {"secret": "a"}, "B": {"secret": "b"}});
    assert_eq!(all.steps[0].input.as_ref().unwrap()["env"], env);
    let named = with_vars(
        "vars: {token: null}\nsteps: {x: {run: x, env: {A: {secret: \"${{ vars.token }}\"}}}}",
        &[("token", "db")],
    );
    assert_eq!(
        named.unwrap().steps[0].input.as_ref().unwrap()["env"]["A"],
        json!({"secret": "db"})
    );
    for (wrong, told) in [
        ("{run: x, env: {A: {secret: ../a}}}", "is not the name of a secret"),
        ("{run: x, env: {A: {secret: a, more: b}}}", "expected a text"),
        ("{run: x, env: {A: {secrets: a}}}", "expected a text"),
        ("{command: [{secret: a}, b]}", "expected a text"),
        ("{run: {secret: a}}", "expected a text"),
    ] {
        let yaml = format!("steps:\n  a: {wrong}\n");
        let error = parse(yaml.as_bytes(), "t.yaml", &ReadOptions::default()).unwrap_err();
        assert!(error.to_string().contains(told), "{wrong}: {error}");
    }
}
