//! Looks up the dependencies of the steps, and finds duplicate ids, unknown names and cycles.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use super::draft::{Draft, DraftStep, Need};
use super::limits::EDGES_MAX;
use super::plan::PlanStep;
use super::report::{FileFinding, FindingReport, did_you_mean, quoted};

/// How many Steps of a long cycle a message names, from its beginning and from its end.
const CYCLE_SHOWN: usize = 6;
/// How many names are compared in the search for the nearest one, so that twenty mistakes in a file
/// of 100,000 steps are still reported at once, even if some come without advice.
pub(super) const NAMES_COMPARED_MAX: usize = 300_000;

/// Looks up the dependencies of the steps. Reports duplicate ids, unknown dependencies and a cycle.
pub(super) fn resolve(draft: Draft, report: &FindingReport<'_>) -> Vec<PlanStep> {
    let names = index(&draft, report);
    let Some(edges) = Edges::of(&draft, &names, report) else { return Vec::new() };
    if let Some(cycle) = edges.cycle() {
        report.add(|| describe(&cycle, &draft.steps));
    }
    let inputs = inputs(&draft, &names, report);
    drop(names);
    if report.count() > 0 {
        return Vec::new();
    }
    edges.write_into(draft.steps, inputs)
}

/// The steps whose results each step gets, each once, where a step names them.
fn inputs(
    draft: &Draft,
    names: &HashMap<&str, DependencyTarget>,
    report: &FindingReport<'_>,
) -> Vec<Option<Vec<usize>>> {
    let mut lookup = Lookup { draft, names, report, unknown: HashSet::new() };
    let mut of = |step: &DraftStep| {
        let mut taken = HashSet::new();
        let named = step.inputs.as_ref()?.iter().flat_map(|need| lookup.targets(step, need));
        Some(named.filter(|target| taken.insert(*target)).collect())
    };
    draft.steps.iter().map(&mut of).collect()
}

/// What the name in a `depends_on` means.
#[derive(Debug, Clone, Copy)]
enum DependencyTarget {
    Step(usize),
    /// All Steps that a repeated Step produced.
    Group(usize),
}

fn index<'d>(draft: &'d Draft, report: &FindingReport<'_>) -> HashMap<&'d str, DependencyTarget> {
    let mut names = HashMap::with_capacity(draft.steps.len() + draft.groups.len());
    let steps = draft.steps.iter().map(|step| (step.step.id.as_str(), step.at));
    let steps = steps.enumerate().map(|(n, (id, at))| (id, at, DependencyTarget::Step(n)));
    let groups = draft.groups.iter().enumerate();
    let groups = groups.map(|(n, group)| (group.id.as_str(), group.at, DependencyTarget::Group(n)));
    for (id, at, target) in steps.chain(groups) {
        if let Some(first) = names.insert(id, target) {
            report.add(|| duplicate(id, at, place(draft, first), report));
        }
    }
    names
}

fn place(draft: &Draft, target: DependencyTarget) -> usize {
    match target {
        DependencyTarget::Step(n) => draft.steps[n].at,
        DependencyTarget::Group(n) => draft.groups[n].at,
    }
}

fn duplicate(id: &str, one: usize, other: usize, report: &FindingReport<'_>) -> FileFinding {
    FileFinding::at(one.max(other), format!("the step id {} is taken", quoted(id)))
        .field("steps")
        .hint(format!(
            "line {} has it already; every step needs its own",
            report.line(one.min(other))
        ))
}

/// The dependencies of all Steps in one array: those of step `n` are
/// `targets[starts[n]..starts[n + 1]]`.
#[derive(Debug, Default)]
struct Edges {
    starts: Vec<usize>,
    targets: Vec<usize>,
}

impl Edges {
    /// `None` if there are more than [`EDGES_MAX`], which this reports. A repeated dependency
    /// counts each time for that limit, and is stored once.
    fn of(
        draft: &Draft,
        names: &HashMap<&str, DependencyTarget>,
        report: &FindingReport<'_>,
    ) -> Option<Self> {
        let mut lookup = Lookup { draft, names, report, unknown: HashSet::new() };
        let mut edges = Edges::default();
        let mut taken_by = vec![usize::MAX; draft.steps.len()];
        let mut written = 0;
        for (n, step) in draft.steps.iter().enumerate() {
            edges.starts.push(edges.targets.len());
            for need in &step.needs {
                let targets = lookup.targets(step, need);
                written += targets.len();
                if written > EDGES_MAX {
                    report.add(|| too_many_edges(need.at));
                    return None;
                }
                let new =
                    targets.filter(|target| std::mem::replace(&mut taken_by[*target], n) != n);
                edges.targets.extend(new);
            }
        }
        edges.starts.push(edges.targets.len());
        Some(edges)
    }

    fn dependencies(&self, step: usize) -> &[usize] {
        &self.targets[self.starts[step]..self.starts[step + 1]]
    }

    /// The steps of a cycle in the order of their dependencies. The search is depth first with a
    /// stack of its own, so that a chain of 100,000 Steps needs no deep call stack.
    fn cycle(&self) -> Option<Vec<usize>> {
        let mut seen = vec![VisitMark::Never; self.starts.len() - 1];
        let mut trail: Vec<(usize, usize)> = Vec::new();
        for root in 0..seen.len() {
            if seen[root] == VisitMark::Never {
                seen[root] = VisitMark::OnTrail;
                trail.push((root, 0));
            }
            while let Some((step, next)) = trail.last_mut() {
                let Some(&dependency) = self.dependencies(*step).get(*next) else {
                    seen[*step] = VisitMark::Done;
                    trail.pop();
                    continue;
                };
                *next += 1;
                match seen[dependency] {
                    VisitMark::Done => {}
                    VisitMark::Never => {
                        seen[dependency] = VisitMark::OnTrail;
                        trail.push((dependency, 0));
                    }
                    VisitMark::OnTrail => {
                        let steps = trail.iter().map(|(step, _)| *step);
                        return Some(steps.skip_while(|step| *step != dependency).collect());
                    }
                }
            }
        }
        None
    }

    fn write_into(self, drafts: Vec<DraftStep>, inputs: Vec<Option<Vec<usize>>>) -> Vec<PlanStep> {
        let ids: Vec<String> = drafts.iter().map(|draft| draft.step.id.clone()).collect();
        let mut steps: Vec<PlanStep> = drafts.into_iter().map(|draft| draft.step).collect();
        let named = |targets: &[usize]| targets.iter().map(|&target| ids[target].clone()).collect();
        for ((n, step), inputs) in steps.iter_mut().enumerate().zip(&inputs) {
            step.depends_on = named(self.dependencies(n));
            step.inputs_from = inputs.as_deref().map(named);
        }
        steps
    }
}

struct Lookup<'l> {
    draft: &'l Draft,
    names: &'l HashMap<&'l str, DependencyTarget>,
    report: &'l FindingReport<'l>,
    /// Places of unknown names that were reported: a repeated Step has the same name at the same
    /// place many times.
    unknown: HashSet<usize>,
}

impl Lookup<'_> {
    /// The Steps that a dependency names; empty if a mistake was reported.
    fn targets(&mut self, step: &DraftStep, need: &Need) -> Range<usize> {
        match self.names.get(need.name.as_str()) {
            Some(DependencyTarget::Step(target)) => *target..*target + 1,
            Some(DependencyTarget::Group(group)) => self.draft.groups[*group].steps.clone(),
            None => {
                if self.unknown.insert(need.at) {
                    self.report.add(|| self.unknown_dependency(step, need));
                }
                0..0
            }
        }
    }

    fn unknown_dependency(&self, step: &DraftStep, need: &Need) -> FileFinding {
        let (id, name) = (quoted(&step.step.id), quoted(&need.name));
        let search = self.unknown.len() * self.names.len() <= NAMES_COMPARED_MAX;
        let names = self.names.keys().copied().filter(|_| search);
        let hint = did_you_mean(&need.name, names)
            .unwrap_or_else(|| "add the step, or remove the dependency".into());
        let (what, field) = match step.needs.iter().any(|one| one.at == need.at) {
            true => ("depends on", "depends_on"),
            false => ("takes inputs from", "inputs_from"),
        };
        FileFinding::at(need.at, format!("{id} {what} {name}, which is no step"))
            .field(format!("{}.{field}", step.step.id))
            .hint(hint)
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum VisitMark {
    Never,
    OnTrail,
    Done,
}

fn too_many_edges(at: usize) -> FileFinding {
    FileFinding::at(at, format!("a task has at most {EDGES_MAX} dependencies"))
        .field("steps")
        .hint("where many steps wait for many others, put a step with `noop: true` between the two")
}

fn describe(cycle: &[usize], steps: &[DraftStep]) -> FileFinding {
    let id = |step: &usize| steps[*step].step.id.as_str();
    let mut path: Vec<&str> = cycle.iter().chain(cycle.first()).map(id).collect();
    let skipped = path.len().saturating_sub(2 * CYCLE_SHOWN);
    if skipped > 0 {
        path.splice(CYCLE_SHOWN..CYCLE_SHOWN + skipped, ["…"]);
    }
    let at = cycle.first().map_or(0, |step| steps[*step].at);
    let count = if skipped > 0 { format!(" ({} steps)", cycle.len()) } else { String::new() };
    let path = path.join(" -> ");
    FileFinding::at(at, format!("the steps wait for each other in a circle: {path}{count}"))
        .field("steps")
        .hint("each step depends on the next one; remove one of these dependencies")
        .cycle()
}
