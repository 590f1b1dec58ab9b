//! Reads recorded workflows of WfCommons (WfFormat 1.5).

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::{Map, json};

use super::ReadOptions;
use super::context::{Expansion, ReadContext};
use super::draft::{Draft, DraftStep, Need, too_many_steps};
use super::graph;
use super::ids::{is_legal, slug};
use super::limits::{DURATION_MS_MAX, ID_CHARS_MAX, STEPS_MAX};
use super::node::{NodeKind, SyntaxNode, number};
use super::path::Path;
use super::plan::{HANDLER_NOOP, HANDLER_SLEEP, Mode, Plan, PlanStep};
use super::report::{FileFinding, FindingReport, did_you_mean, quoted};
use super::vars::Vars;

/// Characters of the hash that distinguishes tasks whose ids become the same.
const HASH_CHARS: usize = 8;

/// Whether a tree is a workflow instance of WfFormat, of any version.
pub(super) fn is_instance(root: &SyntaxNode<'_>) -> bool {
    let tasks =
        |node: &SyntaxNode<'_>| node.get("tasks").is_some_and(|tasks| tasks.as_list().is_some());
    root.get("workflow")
        .is_some_and(|workflow| workflow.get("specification").is_some_and(tasks) || tasks(workflow))
}

/// Reads a WfFormat 1.5 instance: the graph and, with a time scale, the recorded run times. It
/// ignores files, machines and whatever else an instance records.
pub(super) fn read<'a>(
    root: &SyntaxNode<'a>,
    options: &'a ReadOptions,
    report: &FindingReport<'a>,
    file_stem: &str,
) -> Option<Plan> {
    let vars = Vars::read(&[], &options.vars, report);
    let expanded = Expansion::default();
    let cx = ReadContext { report, vars: &vars, repetition: None, expanded: &expanded };
    let tasks = tasks(root, &cx)?;
    let draft = Instance::read(&cx, tasks)?.draft(&cx, &runtimes(root), options.time_scale);
    let text = |key| root.get(key).and_then(SyntaxNode::as_text).filter(|text| !text.is_empty());
    let title = text("name").unwrap_or(file_stem);
    Some(Plan {
        task_id: None,
        title: title.to_owned(),
        summary: text("description").unwrap_or(title).to_owned(),
        dispatch: Mode::Auto,
        completion: Mode::Auto,
        pool: None,
        claim_only_by: None,
        priority: None,
        deadline: None,
        on_failure: None,
        optional_wait_ms: None,
        retry: None,
        labels: BTreeMap::new(),
        output_from: None,
        metadata: Map::new(),
        steps: graph::resolve(draft, report),
    })
}

fn tasks<'n, 'a>(
    root: &'n SyntaxNode<'a>,
    cx: &ReadContext<'_, 'a>,
) -> Option<&'n [SyntaxNode<'a>]> {
    let version = root.get("schemaVersion");
    let known = |version: &SyntaxNode<'_>| match &version.kind {
        NodeKind::Text(text) | NodeKind::Number(text) => text.starts_with("1."),
        _ => false,
    };
    let list = root.get("workflow").and_then(|workflow| workflow.get("specification"));
    let Some(list) = list.filter(|_| version.is_none_or(known)) else {
        let at = version.unwrap_or(root).at();
        cx.report.add(|| {
            FileFinding::at(at, "this version of WfFormat is not read")
                .field("schemaVersion")
                .hint("WfFormat 1.5 is, with its tasks under `workflow.specification.tasks`")
        });
        return None;
    };
    let tasks = list.get("tasks")?.as_list()?;
    let problem = match tasks.len() {
        0 => FileFinding::at(list.at(), "the workflow has no tasks"),
        1..=STEPS_MAX => return Some(tasks),
        _ => too_many_steps(tasks[STEPS_MAX].at()),
    };
    cx.report.add(|| problem.field("workflow.specification.tasks"));
    None
}

/// Recorded seconds by task id. A time that cannot be read counts as not recorded.
fn runtimes<'n>(root: &'n SyntaxNode<'_>) -> HashMap<&'n str, f64> {
    let execution = root.get("workflow").and_then(|workflow| workflow.get("execution"));
    let tasks =
        execution.and_then(|execution| execution.get("tasks")).and_then(SyntaxNode::as_list);
    let runtime = |task: &'n SyntaxNode<'_>| {
        let seconds = match &task.get("runtimeInSeconds")?.kind {
            NodeKind::Number(literal) => number(literal)?.as_f64()?,
            _ => return None,
        };
        Some((task.get("id")?.as_text()?, seconds.max(0.0)))
    };
    tasks.unwrap_or_default().iter().filter_map(runtime).collect()
}

/// The tasks of an instance, by their ids and by their names.
struct Instance<'n, 'a> {
    tasks: Vec<Task<'n, 'a>>,
    by_id: HashMap<&'n str, usize>,
    /// `None` if several tasks have the name.
    by_name: HashMap<&'n str, Option<usize>>,
}

struct Task<'n, 'a> {
    node: &'n SyntaxNode<'a>,
    id: &'n str,
    name: &'n str,
}

impl<'n, 'a> Instance<'n, 'a> {
    fn read(cx: &ReadContext<'_, 'a>, nodes: &'n [SyntaxNode<'a>]) -> Option<Self> {
        let mut instance =
            Instance { tasks: Vec::new(), by_id: HashMap::new(), by_name: HashMap::new() };
        for (n, node) in nodes.iter().enumerate() {
            match task(node) {
                Some(task) => instance.add(cx, task),
                None => cx.report.add(|| {
                    FileFinding::at(node.at(), "the task has neither `id` nor `name`")
                        .field(format!("workflow.specification.tasks[{n}]"))
                }),
            }
        }
        (cx.report.count() == 0).then_some(instance)
    }

    fn add(&mut self, cx: &ReadContext<'_, 'a>, task: Task<'n, 'a>) {
        let n = self.tasks.len(); // Behind a task that could not be read, this is not its place in the file.
        if let Some(first) = self.by_id.insert(task.id, n) {
            cx.report.add(|| {
                let line = cx.report.line(self.tasks[first].node.at());
                FileFinding::at(task.node.at(), format!("the task id {} is taken", quoted(task.id)))
                    .field("id")
                    .hint(format!("line {line} has it already"))
            });
        }
        self.by_name.entry(task.name).and_modify(|known| *known = None).or_insert(Some(n));
        self.tasks.push(task);
    }

    fn draft(
        &self,
        cx: &ReadContext<'_, 'a>,
        runtimes: &HashMap<&str, f64>,
        time_scale: Option<f64>,
    ) -> Draft {
        let originals: Vec<&str> = self.tasks.iter().map(|task| task.id).collect();
        let ids = step_ids(&originals);
        let mut draft = Draft::default();
        for (task, id) in self.tasks.iter().zip(&ids) {
            let seconds = time_scale.and_then(|scale| Some(scale * runtimes.get(task.id)?));
            draft.steps.push(step(task, id, seconds));
        }
        for n in 0..self.tasks.len() {
            for (relative, at) in self.relatives(cx, n, "parents") {
                draft.steps[n].needs.push(Need { name: ids[relative].clone(), at });
            }
            for (relative, at) in self.relatives(cx, n, "children") {
                draft.steps[relative].needs.push(Need { name: ids[n].clone(), at });
            }
        }
        draft
    }

    /// Tasks that task `n` names as its parents or children. Existing files have ids there, or names.
    fn relatives(&self, cx: &ReadContext<'_, 'a>, n: usize, kind: &str) -> Vec<(usize, usize)> {
        let task = &self.tasks[n];
        let Some(list) = task.node.get(kind).filter(|list| !list.is_null()) else {
            return Vec::new();
        };
        let field = || Path::Root.key(task.id).key(kind).to_string();
        let Some(items) = list.as_list() else {
            let message = format!("expected a list of task ids, found {}", list.describe());
            cx.report.add(|| FileFinding::at(list.at(), message).field(field()));
            return Vec::new();
        };
        let known = |item: &SyntaxNode<'_>| {
            let found = item.as_text().map_or(Lookup::Unknown, |name| self.find(name));
            if let Lookup::Task(relative) = found {
                return Some((relative, item.at()));
            }
            cx.report.add(|| self.unknown_relative(item, kind, found).field(field()));
            None
        };
        items.iter().filter_map(known).collect()
    }

    fn find(&self, name: &str) -> Lookup {
        match (self.by_id.get(name), self.by_name.get(name)) {
            (Some(n), _) | (None, Some(Some(n))) => Lookup::Task(*n),
            (None, Some(None)) => Lookup::Several,
            (None, None) => Lookup::Unknown,
        }
    }

    fn unknown_relative(&self, item: &SyntaxNode<'_>, kind: &str, found: Lookup) -> FileFinding {
        let name = item.as_text().unwrap_or(item.describe());
        let relative = if kind == "parents" { "parent" } else { "child" };
        match found {
            Lookup::Several => {
                let message =
                    format!("several tasks have the name of the {relative} {}", quoted(name));
                FileFinding::at(item.at(), message).hint("write the id of the one that is meant")
            }
            _ => FileFinding::at(item.at(), format!("the {relative} {} is no task", quoted(name)))
                .maybe_hint(did_you_mean(name, self.tasks.iter().map(|task| task.id))),
        }
    }
}

#[derive(Clone, Copy)]
enum Lookup {
    Task(usize),
    Several,
    Unknown,
}

fn task<'n, 'a>(node: &'n SyntaxNode<'a>) -> Option<Task<'n, 'a>> {
    let text = |key| node.get(key).and_then(SyntaxNode::as_text).filter(|text| !text.is_empty());
    let (id, name) = (text("id"), text("name"));
    Some(Task { node, id: id.or(name)?, name: name.or(id)? })
}

fn step(task: &Task<'_, '_>, id: &str, seconds: Option<f64>) -> DraftStep {
    let (handler, input) = match seconds {
        Some(seconds) => (HANDLER_SLEEP, Some(json!({ "ms": scaled_ms(seconds) }))),
        None => (HANDLER_NOOP, None),
    };
    let step = PlanStep {
        id: id.to_owned(),
        title: task.id.to_owned(),
        summary: task.name.to_owned(),
        depends_on: Vec::new(),
        inputs_from: None,
        handler: handler.to_owned(),
        input,
        required: true,
        pool: None,
        claim_only_by: None,
        retry: None,
    };
    DraftStep { step, at: task.node.at(), needs: Vec::new(), inputs: None }
}

/// Seconds as milliseconds, at least 0 and at most the longest duration.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
fn scaled_ms(seconds: f64) -> u64 {
    (seconds * 1_000.0).round().clamp(0.0, DURATION_MS_MAX as f64) as u64
}

/// A legal and unique step id for each original. A legal original stays as it is. Ids that several
/// originals would share are distinguished by a hash of the original, not by its place, so that the
/// ids do not change when another task is added.
fn step_ids(originals: &[&str]) -> Vec<String> {
    let slugs: Vec<String> =
        originals.iter().map(|id| slug(id).unwrap_or_else(|| "task".into())).collect();
    let mut wanted: HashMap<&str, usize> = HashMap::new();
    for slug in &slugs {
        *wanted.entry(slug).or_default() += 1;
    }
    let mut taken: HashSet<String> =
        originals.iter().filter(|id| is_legal(id)).map(|id| id.to_string()).collect();
    let choose = |(original, slug): (&&str, &String)| {
        if is_legal(original) {
            return original.to_string();
        }
        let whole = original.len() <= ID_CHARS_MAX;
        if whole && wanted[slug.as_str()] == 1 && taken.insert(slug.clone()) {
            return slug.clone();
        }
        hashed(original, slug, &mut taken)
    };
    originals.iter().zip(&slugs).map(choose).collect()
}

fn hashed(original: &str, slug: &str, taken: &mut HashSet<String>) -> String {
    let head = &slug[..slug.len().min(ID_CHARS_MAX - 1 - HASH_CHARS)];
    let mut hash = fnv1a(original.as_bytes());
    loop {
        let id = format!("{head}-{:08x}", hash >> 32);
        if taken.insert(id.clone()) {
            return id;
        }
        hash = fnv1a(&hash.to_le_bytes());
    }
}

/// FNV-1a, 64 bits: small, and the same on every machine and in every version.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_foreign_id_becomes_a_legal_one_that_still_looks_like_it() {
        let ids = step_ids(&["NFCORE_A.B C_9", "blastall_00000002", "Ünïcode", "…"]);
        assert_eq!(ids, ["nfcore_a-b-c_9", "blastall_00000002", "n-code", "task"]);
    }

    #[test]
    fn ids_that_would_collide_are_told_apart_whatever_their_order() {
        let ids = step_ids(&["A.b", "a-b", "A b"]);
        assert_eq!(ids[1], "a-b");
        assert!(ids[0].starts_with("a-b-") && ids[2].starts_with("a-b-") && ids[0] != ids[2]);
        let turned = step_ids(&["A b", "A.b", "a-b"]);
        assert_eq!((&turned[0], &turned[1]), (&ids[2], &ids[0]));
    }

    #[test]
    fn long_ids_with_the_same_begin_stay_unique_within_the_limit() {
        let long: Vec<String> = (0..100).map(|n| format!("{}{n}", "X".repeat(200))).collect();
        let originals: Vec<&str> = long.iter().map(String::as_str).collect();
        let ids = step_ids(&originals);
        assert!(ids.iter().all(|id| is_legal(id)));
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), 100);
    }
}
