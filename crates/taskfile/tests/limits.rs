//! Every limit, at it and over it. A task file is input from outside: it may be refused, and must
//! not exhaust stack, memory or patience.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs::File;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use tenure_taskfile::limits::{
    DEPTH_MAX, EDGES_MAX, FILE_BYTES_MAX, INPUT_BYTES_MAX, METADATA_BYTES_MAX, STEPS_MAX,
    TOML_BYTES_MAX, VALUES_MAX,
};
use tenure_taskfile::{Plan, ReadOptions, TaskFileError, parse, read};

/// A thread of a library may have no more.
const SMALL_STACK: usize = 2 * 1024 * 1024;

fn parsed(text: &str, name: &str) -> Result<Plan, TaskFileError> {
    parse(text.as_bytes(), name, &ReadOptions::default())
}

fn refusal(text: &str, name: &str) -> String {
    parsed(text, name).expect_err(name).first.message.clone()
}

/// How long this thread has computed: what else the machine does counts for nothing.
fn computed() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().into()
}

fn steps(count: usize) -> String {
    let steps: Vec<String> =
        (0..count).map(|n| format!("{{\"id\":\"s{n}\",\"noop\":true}}")).collect();
    format!("{{\"steps\":[{}]}}", steps.join(","))
}

#[test]
fn a_task_has_at_most_100_000_steps() {
    let too_many = "a task has at most 100000 steps";
    assert_eq!(parsed(&steps(STEPS_MAX), "t.json").unwrap().steps.len(), STEPS_MAX);
    assert_eq!(refusal(&steps(STEPS_MAX + 1), "t.json"), too_many);
    let map = steps(STEPS_MAX + 1).replace('[', "{").replace(']', "}").replace("{\"id\":", "");
    assert_eq!(refusal(&map.replace(",\"noop\":true}", ":{\"noop\":true}"), "t.json"), too_many);
}

#[test]
fn repeated_steps_count_each() {
    let repeated = |first: usize, second: usize| {
        format!(
            "steps: {{a: {{repeat: {first}, noop: true}}, b: {{repeat: {second}, noop: true}}}}"
        )
    };
    assert_eq!(parsed(&repeated(99_999, 1), "t.yaml").unwrap().steps.len(), STEPS_MAX);
    assert_eq!(refusal(&repeated(99_999, 2), "t.yaml"), "a task has at most 100000 steps");
}

#[test]
fn a_task_has_at_most_a_million_dependencies() {
    let between = |left: usize, right: usize| {
        format!(
            "steps: {{a: {{repeat: {left}, noop: true}}, b: {{repeat: {right}, noop: true, needs: a}}}}"
        )
    };
    let plan = parsed(&between(1_000, EDGES_MAX / 1_000), "t.yaml").unwrap();
    assert_eq!(plan.steps.iter().map(|step| step.depends_on.len()).sum::<usize>(), EDGES_MAX);
    let message = "a task has at most 1000000 dependencies";
    assert_eq!(refusal(&between(1_000, 1_001), "t.yaml"), message);
    let begun = computed();
    assert_eq!(refusal(&between(50_000, 50_000), "t.yaml"), message);
    let again = vec!["a"; 100_000].join(",");
    let again =
        format!("steps: {{a: {{repeat: 50000, noop: true}}, b: {{noop: true, needs: [{again}]}}}}");
    assert_eq!(refusal(&again, "t.yaml"), message);
    assert!(computed() - begun < Duration::from_secs(20));
}

#[test]
fn an_id_has_at_most_128_characters() {
    let file = |id: &str| format!("steps: [{{id: {id}, noop: true}}]");
    assert!(parsed(&file(&"a".repeat(128)), "t.yaml").is_ok());
    let message = refusal(&file(&"a".repeat(129)), "t.yaml");
    assert!(message.ends_with("is 129 characters long"), "{message}");
}

/// VALUE-01
#[test]
fn an_input_has_at_most_16_mib() {
    let file = |bytes: usize| {
        format!(
            "{{\"steps\": {{\"a\": {{\"handler\": \"h\", \"input\": \"{}\"}}}}}}",
            "x".repeat(bytes - 2)
        )
    };
    assert!(parsed(&file(INPUT_BYTES_MAX), "t.json").is_ok());
    let message = format!("the input of the step takes {} bytes of JSON", INPUT_BYTES_MAX + 1);
    assert_eq!(refusal(&file(INPUT_BYTES_MAX + 1), "t.json"), message);
}

#[test]
fn metadata_have_at_most_64_kib() {
    let file = |bytes: usize| {
        format!("metadata: {{a: {}}}\nsteps: {{a: {{noop: true}}}}", "x".repeat(bytes - 8))
    };
    assert!(parsed(&file(METADATA_BYTES_MAX), "t.yaml").is_ok());
    let message = format!("the metadata takes {} bytes of JSON", METADATA_BYTES_MAX + 1);
    assert_eq!(refusal(&file(METADATA_BYTES_MAX + 1), "t.yaml"), message);
}

#[test]
fn a_file_over_256_mib_is_refused_before_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.json");
    // A hole in a file takes no room; reading it would take a while.
    File::create(&path).unwrap().set_len(FILE_BYTES_MAX + 1).unwrap();
    let begun = computed();
    let error = read(&path, &ReadOptions::default()).unwrap_err();
    assert_eq!(error.first.message, "the file is larger than 256 MiB");
    assert!(computed() - begun < Duration::from_millis(50));
}

#[test]
fn toml_has_a_smaller_limit() {
    let file = format!("[steps.a]\nrun = 'x'\n#{}", "x".repeat(TOML_BYTES_MAX));
    let message = format!("the file is larger than {TOML_BYTES_MAX} bytes");
    assert_eq!(refusal(&file, "t.toml"), message);
}

#[test]
fn the_number_of_values_is_bounded() {
    let file = format!("[{}0]", "0,".repeat(VALUES_MAX));
    let message = format!("the file has more than {VALUES_MAX} values");
    assert_eq!(refusal(&file, "t.json"), message);
}

#[test]
fn nesting_is_read_to_its_limit_in_every_notation() {
    let message = format!("lists and maps are nested more than {DEPTH_MAX} deep");
    let nested = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
    // The file and `metadata` are two levels.
    let files = |levels: usize| {
        let nested = nested(levels - 2);
        [
            (format!("metadata: {{a: {nested}}}\nsteps: {{a: {{noop: true}}}}"), "t.yaml"),
            (format!("metadata.a = {nested}\n[steps.a]\nnoop = true"), "t.toml"),
            (
                format!(
                    "{{\"metadata\":{{\"a\":{nested}}},\"steps\":{{\"a\":{{\"noop\":true}}}}}}"
                ),
                "t.json",
            ),
        ]
    };
    for (file, name) in files(DEPTH_MAX) {
        assert!(parsed(&file, name).is_ok(), "{name}: {:?}", parsed(&file, name));
    }
    for (file, name) in files(DEPTH_MAX + 1) {
        assert_eq!(refusal(&file, name), message, "{name}");
    }
}

#[test]
fn endless_nesting_is_an_error_on_a_small_stack() {
    let deep = 100_000;
    let files = [
        ("[".repeat(deep), "t.json"),
        ("{\"a\":".repeat(deep), "t.json"),
        ("[".repeat(deep), "t.yaml"),
        ("{a: ".repeat(deep), "t.yaml"),
        ("- ".repeat(deep), "t.yaml"),
        ("? ".repeat(deep), "t.yaml"),
        ((0..3_000).map(|n| format!("{}a:\n", " ".repeat(n))).collect(), "t.yaml"),
        (format!("a = {}", "[".repeat(deep)), "t.toml"),
        (format!("a = {}", "{ a = ".repeat(deep)), "t.toml"),
        (format!("a{} = 1", ".a".repeat(deep)), "t.toml"),
        (format!("[a{}]", ".a".repeat(deep)), "t.toml"),
        (format!("[[a{}]]", ".a".repeat(deep)), "t.toml"),
    ];
    for (file, name) in files {
        let start: String = file.chars().take(20).collect();
        let refused = move || parsed(&file, name).is_err();
        let thread = std::thread::Builder::new().stack_size(SMALL_STACK).spawn(refused).unwrap();
        assert!(thread.join().unwrap(), "{name}: {start}");
    }
}

#[test]
fn a_chain_of_100_000_steps_needs_no_deep_stack() {
    let chain = |last: &str| {
        let step = |n: usize| {
            let needs = if n == 0 { last.to_owned() } else { format!("s{}", n - 1) };
            format!("{{\"id\":\"s{n}\",\"noop\":true,\"needs\":\"{needs}\"}}")
        };
        let steps: Vec<String> = (0..STEPS_MAX).map(step).collect();
        format!(
            "{{\"steps\":[{{\"id\":\"root\",\"noop\":true}},{}]}}",
            steps[..STEPS_MAX - 1].join(",")
        )
    };
    let (open, closed) = (chain("root"), chain("s99998"));
    let check = move || {
        assert!(parsed(&open, "t.json").is_ok());
        let error = parsed(&closed, "t.json").unwrap_err();
        assert_eq!(error.first.code, "dependency_cycle");
        let message = &error.first.message;
        assert!(message.len() < 300 && message.ends_with("(99999 steps)"), "{message}");
    };
    let thread = std::thread::Builder::new().stack_size(SMALL_STACK).spawn(check).unwrap();
    thread.join().unwrap();
}

#[test]
fn aliases_of_aliases_are_bounded() {
    let laughs: String = (1..12)
        .map(|n| format!("x-{n}: &a{n} [{}]\n", vec![format!("*a{}", n - 1); 9].join(", ")))
        .collect();
    let file = format!("x-0: &a0 [lol]\n{laughs}steps: *a11\n");
    assert_eq!(refusal(&file, "t.yaml"), "anchors and aliases expand to too much");
    let ladder: String = (1..300)
        .map(|n| format!("x-{n}: &a{n} {}*a{}{}\n", "[".repeat(40), n - 1, "]".repeat(40)))
        .collect();
    let message = format!("lists and maps are nested more than {DEPTH_MAX} deep");
    assert_eq!(refusal(&format!("x-0: &a0 [lol]\n{ladder}"), "t.yaml"), message);
}

#[test]
fn substitution_and_repetition_are_bounded() {
    let long = "x".repeat(60_000);
    let cases = [
        format!("vars: {{v: {long}}}\nsteps: {{a: {{repeat: 100000, run: '${{{{ vars.v }}}}'}}}}"),
        format!("steps: {{a: {{repeat: 100000, run: {long}}}}}"),
        format!("steps: {{a: {{repeat: 100000, noop: true, title: {long}}}}}"),
        format!(
            "vars: {{v: {long}}}\nsteps: {{a: {{noop: true, title: '{}'}}}}",
            "${{ vars.v }}".repeat(9_000)
        ),
    ];
    for file in cases {
        let message = refusal(&file, "t.yaml");
        assert!(message.starts_with("with `vars` and `repeat`, more than"), "{message}");
    }
}

#[test]
fn many_mistakes_are_answered_soon() {
    let step = |n: usize| format!("{{\"id\":\"step-{n}\",\"noop\":true,\"needs\":\"steb-{n}\"}}");
    let steps: Vec<String> = (0..50_000).map(step).collect();
    let begun = computed();
    let error = parsed(&format!("{{\"steps\":[{}]}}", steps.join(",")), "t.json").unwrap_err();
    assert_eq!((error.problems().count(), error.omitted), (20, 49_980));
    assert!(computed() - begun < Duration::from_secs(10));
}
