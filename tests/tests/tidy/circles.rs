//! Files of a crate that import each other in a circle have their reason in docs/architecture.md.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::sources::{code_lines, is_for_tests};
use super::{assert_none, files, root};

/// A path of modules below the top of a crate: `["command", "tx"]`.
type Module = Vec<String>;

/// The files of one crate, by their modules, with what each of them says.
struct CrateFiles {
    texts: BTreeMap<Module, (String, String)>,
    /// What modules show of others: name, and what it is the name of.
    shown: BTreeMap<Module, BTreeMap<String, Module>>,
}

impl CrateFiles {
    fn read(paths: &[PathBuf]) -> Self {
        let mut texts = BTreeMap::new();
        for path in paths {
            let text = std::fs::read_to_string(root().join(path)).unwrap();
            let lines = code_lines(&text).into_iter();
            let code: Vec<&str> = lines.map(|(_, it)| it.split("//").next().unwrap()).collect();
            let parts = path.iter().skip(3).map(|part| part.to_string_lossy().into_owned());
            let mut module: Module = parts.collect();
            let name = module.pop().unwrap().trim_end_matches(".rs").to_owned();
            module.extend((!["mod", "lib", "main"].contains(&name.as_str())).then_some(name));
            texts.entry(module).or_insert((path.display().to_string(), code.join("\n")));
        }
        let mut all = Self { texts, shown: BTreeMap::new() };
        for (module, (_, text)) in &all.texts {
            let shown = uses(text).0.into_iter().filter(|(is_public, _)| *is_public);
            let shown = shown.filter_map(|(_, path)| all.absolute(&path, module));
            let named = shown.filter_map(|path| Some((path.last()?.clone(), path)));
            all.shown.insert(module.clone(), named.collect());
        }
        all
    }

    /// A path that begins with `crate`, `self`, `super` or the name of a module below, from the top of the crate.
    fn absolute(&self, path: &[String], module: &[String]) -> Option<Module> {
        let (first, rest) = path.split_first()?;
        let mut from = match first.as_str() {
            "crate" => return Some(rest.to_vec()),
            "self" | "super" => module.to_vec(),
            _ => {
                let path = [module, path].concat();
                return self.texts.contains_key(&path[..=module.len()]).then_some(path);
            }
        };
        let ups = path.iter().take_while(|it| *it == "super").count();
        from.truncate(from.len().saturating_sub(ups));
        from.extend_from_slice(&path[ups.max(1)..]);
        Some(from)
    }

    /// The module in whose file a name stands.
    fn home<'a>(&'a self, path: &[String], depth: usize) -> Option<&'a Module> {
        let longest = (0..=path.len()).rev().find(|n| self.texts.contains_key(&path[..*n]))?;
        let (module, _) = self.texts.get_key_value(&path[..longest])?;
        let shown = path.get(longest).and_then(|name| self.shown[module].get(name));
        match shown {
            Some(of) if depth < 6 && of[..] != *path => {
                self.home(&[&of[..], &path[longest + 1..]].concat(), depth + 1)
            }
            _ => Some(module),
        }
    }

    /// Which modules each module imports from, without those above it.
    fn imports(&self) -> BTreeMap<&Module, BTreeSet<&Module>> {
        let mut imports = BTreeMap::new();
        for (module, (_, text)) in &self.texts {
            let (named, others) = uses(text);
            let named = named.into_iter().filter(|(is_public, _)| !is_public);
            let paths = named.map(|(_, path)| path).chain(inline(&others));
            let paths = paths.filter_map(|path| self.absolute(&path, module));
            let homes = paths.filter_map(|path| self.home(&path, 0));
            imports.insert(module, homes.filter(|home| !module.starts_with(home)).collect());
        }
        imports
    }

    /// The files that import each other, directly or through others.
    fn circles(&self) -> BTreeSet<BTreeSet<String>> {
        let imports = self.imports();
        let reached = |from: &Module| {
            let (mut seen, mut next) = (BTreeSet::new(), vec![from.clone()]);
            while let Some(module) = next.pop() {
                for to in &imports[&module] {
                    if seen.insert((*to).clone()) {
                        next.push((*to).clone());
                    }
                }
            }
            seen
        };
        let reached: BTreeMap<&Module, BTreeSet<Module>> =
            imports.keys().map(|module| (*module, reached(module))).collect();
        let circle = |module: &Module| {
            let back = reached[module].iter().filter(|other| reached[other].contains(module));
            back.map(|it| self.texts[it].0.clone()).collect::<BTreeSet<String>>()
        };
        reached.keys().map(|module| circle(module)).filter(|circle| circle.len() > 1).collect()
    }
}

/// The `use`s of a file, each path by itself, and whether the file shows it to others; and the text without them.
fn uses(text: &str) -> (Vec<(bool, Vec<String>)>, String) {
    let (mut found, mut others) = (Vec::new(), String::new());
    let mut rest = text;
    while let Some(at) = rest.find("use ") {
        let line = rest[..at].rsplit('\n').next().unwrap().trim();
        let is_use = line.is_empty() || (line.starts_with("pub") && !line.contains(' '));
        let (before, after) = rest.split_at(at + 4);
        others.push_str(before);
        rest = after;
        let Some((tree, behind)) = after.split_once(';').filter(|_| is_use) else { continue };
        found.extend(paths(tree).into_iter().map(|path| (!line.is_empty(), path)));
        rest = behind;
    }
    (found, others + rest)
}

/// `a::{b, c::d}` as `a::b` and `a::c::d`.
fn paths(tree: &str) -> Vec<Vec<String>> {
    let Some((before, inner)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap().split("::").map(|it| it.trim().to_owned());
        return vec![path.filter(|it| it != "*" && !it.is_empty()).collect()];
    };
    let inner = inner.rsplit_once('}').map_or(inner, |(inner, _)| inner);
    let (mut depth, mut parts) = (0_usize, vec![String::new()]);
    for c in inner.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        parts.last_mut().unwrap().push(c);
    }
    let parts = parts.iter().map(|part| part.trim()).filter(|part| !part.is_empty());
    parts.flat_map(|part| paths(&format!("{before}{part}"))).collect()
}

/// Paths that stand in the code itself: `crate::a::b`, `super::b`, `a::b`.
fn inline(text: &str) -> Vec<Vec<String>> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let words = text.split(|c: char| !is_part(c)).filter(|word| word.contains("::"));
    let words = words.map(|word| word.split("::").map(str::to_owned).collect::<Vec<String>>());
    words.filter(|path| !path[0].is_empty()).collect()
}

/// The folders whose circles docs/architecture.md gives a reason for.
fn explained() -> BTreeSet<String> {
    let page = std::fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let (_, table) = page.split_once("**Files that import each other.**").expect("it is there");
    let table = table.split("\n## ").next().unwrap();
    let cells = table.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    let folders = cells.flat_map(|cell| cell.split('`').filter(|part| part.contains("/src")));
    folders.map(|folder| format!("crates/{folder}/")).collect()
}

#[test]
fn circles_of_files_have_a_reason() {
    let mut of_crate: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for path in files(&["crates"], &[".rs"]).into_iter().filter(|path| !is_for_tests(path)) {
        let parts: Vec<String> = path.iter().map(|it| it.to_string_lossy().into_owned()).collect();
        if parts[2] == "src" && !parts.iter().any(|part| part == "tests") {
            of_crate.entry(parts[1].clone()).or_default().push(path);
        }
    }
    let explained = explained();
    let (mut wrong, mut used, mut count) = (Vec::new(), BTreeSet::new(), 0);
    for circle in of_crate.values().flat_map(|paths| CrateFiles::read(paths).circles()) {
        count += 1;
        let holds = |folder: &&String| circle.iter().all(|file| file.starts_with(folder.as_str()));
        match explained.iter().filter(holds).max_by_key(|folder| folder.len()) {
            Some(folder) => drop(used.insert(folder.clone())),
            None => wrong.push(circle.into_iter().collect::<Vec<_>>().join(" ")),
        }
    }
    assert!(count > 5, "{count}: this test finds circles that are there");
    assert_none(&wrong, "have these files import one way; or say in docs/architecture.md why not");
    let gone: Vec<String> = explained.difference(&used).cloned().collect();
    assert_none(&gone, "no circle is there any more: take it out of docs/architecture.md");
}

/// What decides does not know what is shown: no command and no change of a Task imports a view.
#[test]
fn commands_and_state_know_no_views() {
    let mut wrong = Vec::new();
    for path in files(&["crates/core/src/command", "crates/core/src/task"], &[".rs"]) {
        let text = std::fs::read_to_string(root().join(&path)).unwrap();
        let imports =
            code_lines(&text).into_iter().filter(|(_, line)| line.contains("crate::view"));
        wrong.extend(imports.map(|(at, line)| format!("{}:{at}: {}", path.display(), line.trim())));
    }
    assert_none(&wrong, "what both need stands below, as in crates/core/src/read");
}

#[test]
fn imports_are_read_as_they_are_meant() {
    let text =
        "use crate::a::{self, b::C};\npub(crate) use self::d::E as F;\nlet x = super::g::h();\n";
    let path = |text: &str| text.split("::").map(str::to_owned).collect::<Vec<String>>();
    let (found, others) = uses(text);
    assert_eq!(
        found,
        [
            (false, path("crate::a::self")),
            (false, path("crate::a::b::C")),
            (true, path("self::d::E")),
        ]
    );
    assert_eq!(inline(&others), [path("super::g::h")]);
}
