//! Tests that the commands in the documentation and in `deploy` are ones that the command line
//! accepts.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clap::{Arg, Command, CommandFactory as _, Parser as _};
use granit_parser::{Event, Parser};
use serde_json::{Map, Value as Json};

use crate::Cli;
use crate::answer::{Exit, advice};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

/// Every text file in these places, as its path from the root and its content.
fn texts(places: &[&str]) -> Vec<(String, String)> {
    let (mut found, mut work) = (Vec::new(), Vec::new());
    work.extend(places.iter().map(|place| root().join(place)));
    while let Some(path) = work.pop() {
        if path.is_dir() {
            work.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else if let Ok(text) = std::fs::read_to_string(&path) {
            found.push((path.strip_prefix(root()).unwrap().display().to_string(), text));
        }
    }
    found
}

/// The commands in a text, without the word `tenure`: in backticks, or as a line for a shell.
fn commands(text: &str) -> Vec<String> {
    let text = text.replace("\\\n", " ");
    let marked = text.split("`tenure ").skip(1).filter_map(|rest| rest.split('`').next());
    let lines = text.lines().map(|line| line.trim_start_matches(['#', '$', ' ']));
    let lines = lines.filter_map(|line| line.strip_prefix("tenure "));
    marked.chain(lines).map(str::to_owned).collect()
}

/// The option of a command, or of one of its subcommands, as a text may leave out the subcommand.
fn option<'a>(command: &'a Command, is_it: &dyn Fn(&Arg) -> bool) -> Option<&'a Arg> {
    let own = command.get_arguments().find(|argument| is_it(argument));
    own.or_else(|| command.get_subcommands().find_map(|below| option(below, is_it)))
}

/// The first word that the command line does not know, if there is one.
fn unknown<'a>(tenure: &Command, said: &'a str) -> Option<&'a str> {
    let is_name = |word: &str| word.chars().all(|c| c.is_ascii_lowercase() || "-|".contains(c));
    let mut command = tenure;
    let mut words =
        said.split_whitespace().take_while(|word| !["|", ">", "#", "&&"].contains(word));
    while let Some(word) = words.next() {
        let found = if let Some(long) = word.strip_prefix("--") {
            let long = long.split('=').next();
            option(command, &|argument| argument.get_long() == long)
        } else if let Some(short) = word.strip_prefix('-') {
            option(command, &|argument| argument.get_short() == short.chars().next())
        } else if !command.has_subcommands() {
            continue; // An argument, such as TASK_ID.
        } else if is_name(word) {
            let mut each = word.split('|').map(|name| command.find_subcommand(name));
            if each.clone().any(|below| below.is_none()) {
                return Some(word);
            }
            command = each.next().flatten()?;
            continue;
        } else {
            return None; // The text means any of them.
        };
        match found {
            None => return Some(word),
            Some(option) if option.get_action().takes_values() && !word.contains('=') => {
                words.next();
            }
            Some(_) => {}
        }
    }
    None
}

fn tenure() -> Command {
    let mut tenure = Cli::command();
    tenure.build();
    tenure
}

#[test]
fn what_is_not_there_is_told_from_what_is() {
    let tenure = tenure();
    for said in ["task explain TASK_ID", "task|step --nats URL", "run a.yaml -o json | jq", "…"] {
        assert_eq!(unknown(&tenure, said), None, "{said}");
    }
    assert_eq!(unknown(&tenure, "step explain"), Some("explain"));
    assert_eq!(unknown(&tenure, "task|stop get"), Some("task|stop"));
    assert_eq!(unknown(&tenure, "worker --pool explain --many"), Some("--many"));
}

/// Pages, the lines of alerts that say what to do, dashboards, and the files of `deploy`.
#[test]
fn commands_that_are_named_are_there() {
    let (tenure, mut count) = (tenure(), 0);
    for (path, text) in texts(&["README.md", "docs", "deploy", "docker-compose.yml", "examples"]) {
        for said in commands(&text) {
            count += 1;
            let word = unknown(&tenure, &said);
            assert_eq!(word, None, "{path}: `tenure {said}`");
        }
    }
    assert!(count > 100, "{count} commands");
}

/// CTRL-09: the command line gives the same advice as the table of errors.
#[test]
fn errors_md_says_what_to_do_in_the_words_of_the_command_line() {
    let text = read("docs/errors.md");
    for &code in tenure_core::Code::ALL {
        let row = text.lines().find(|line| line.starts_with(&format!("| `{code}` |"))).unwrap();
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").collect();
        let mut said = cells[2].trim().trim_end_matches('.').to_owned();
        said[..1].make_ascii_lowercase();
        assert_eq!(said, advice(code), "{code}");
        let exit = Exit::of(code) as u8;
        assert_eq!(cells[3].trim(), exit.to_string(), "{code}");
    }
}

/// The README and the pages that it links install the command before they use it.
#[test]
fn pages_say_how_to_get_the_command_before_they_use_it() {
    for page in ["README.md", "docs/cluster.md", "docs/orchestrate.md"] {
        let text = read(page);
        let said = text.find("cargo install --locked --path crates/tenure").unwrap();
        assert!(said < text.find("\ntenure ").unwrap(), "{page}");
    }
    assert!(root().join("crates/tenure/src/main.rs").exists());
}

#[test]
fn units_start_with_what_the_command_line_takes() {
    for unit in ["tenure-serve.service", "tenure-worker@.service", "tenure-gateway.service"] {
        let text = read(&format!("deploy/systemd/{unit}"));
        let mut lines = text.lines();
        let line = lines.find_map(|line| line.strip_prefix("ExecStart=/usr/local/bin/")).unwrap();
        let line = line.replace("${CREDENTIALS_DIRECTORY}", "/run/credentials");
        let mut line = line.replace("%i", "default");
        for (name, value) in environment_of(&text) {
            line = line.replace(&format!("${{{name}}}"), &value);
        }
        assert!(!line.contains(['$', '%']), "{line}");
        Cli::try_parse_from(line.split_whitespace()).unwrap();
    }
}

/// The environment that the head of a unit asks for.
fn environment_of(unit: &str) -> HashMap<String, String> {
    let lines = unit.lines().filter_map(|line| line.strip_prefix("#   TENURE_"));
    let pairs = lines.filter_map(|line| line.split_once('='));
    pairs.map(|(name, value)| (format!("TENURE_{name}"), value.to_owned())).collect()
}

/// PERM-02: the worker of the unit is one of the shipped roles, with its pool, and the command line
/// reads the settings in the unit's environment.
#[test]
fn the_worker_of_the_unit_is_a_user_of_the_roles() {
    let unit = read("deploy/systemd/tenure-worker@.service");
    let environment = environment_of(&unit);
    let principal = &environment["TENURE_PRINCIPAL"];
    let at = &environment["TENURE_NATS_URL"];
    assert!(at.starts_with(&format!("tls://{principal}:")), "{at}");
    let line = unit.lines().find(|line| line.starts_with("ExecStart=")).unwrap();
    assert!(line.contains("--name ${TENURE_PRINCIPAL} ") && line.contains("--pool %i "), "{line}");
    // Commands of one pool cannot read what those of another have.
    assert!(unit.contains("\nUser=tenure-worker-%i\n"), "{unit}");
    let roles = read("deploy/nats/roles.conf");
    let (_, user) = roles.split_once(&format!("user: {principal}\n")).unwrap();
    let user = user.split("user: ").next().unwrap();
    assert!(user.contains(&format!("\"tenure.v1.worker.default.{principal}.>\"")), "{principal}");
    let tenure = tenure();
    let worker = tenure.find_subcommand("worker").unwrap();
    let known: Vec<_> = worker.get_arguments().filter_map(Arg::get_env).collect();
    for set in environment.keys() {
        assert!(known.contains(&OsStr::new(set)), "{set} says nothing to it");
    }
}

/// Reads a YAML document, with all scalars as texts, and with aliases replaced by what their
/// anchors name.
fn yaml(text: &str) -> Json {
    let mut nodes = Parser::new_from_str(text).map(|next| next.unwrap().0).filter(|event| {
        use Event as E;
        let is_end = matches!(event, E::SequenceEnd | E::MappingEnd | E::Alias(..));
        is_end || matches!(event, E::Scalar(..) | E::SequenceStart(..) | E::MappingStart(..))
    });
    let first = nodes.next().unwrap();
    node(first, &mut nodes, &mut HashMap::new())
}

fn node<'a, I: Iterator<Item = Event<'a>>>(
    first: Event<'a>,
    rest: &mut I,
    anchors: &mut HashMap<usize, Json>,
) -> Json {
    let (anchor, made) = match first {
        Event::Alias(anchor) => return anchors[&anchor].clone(),
        Event::Scalar(text, _, anchor, _) => (anchor, Json::String(text.into_owned())),
        Event::SequenceStart(_, anchor, _) => {
            let mut all = Vec::new();
            while let Some(next) = rest.next().filter(|next| *next != Event::SequenceEnd) {
                all.push(node(next, rest, anchors));
            }
            (anchor, Json::Array(all))
        }
        Event::MappingStart(_, anchor, _) => {
            let mut all = Map::new();
            while let Some(next) = rest.next().filter(|next| *next != Event::MappingEnd) {
                let key = node(next, rest, anchors);
                let value = rest.next().unwrap();
                match (key.as_str().unwrap(), node(value, rest, anchors)) {
                    ("<<", Json::Object(more)) => all.extend(more),
                    (key, value) => drop(all.insert(key.to_owned(), value)),
                }
            }
            (anchor, Json::Object(all))
        }
        other => panic!("{other:?}"),
    };
    anchors.insert(anchor, made.clone()); // Without an anchor the id is 0, which no alias uses.
    made
}

fn words(list: &Json) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().map(|word| word.as_str().unwrap())
}

/// The compose file, and the files that it includes.
fn compose_files() -> Vec<String> {
    let cluster = yaml(&read("docker-compose.yml"));
    let included = words(&cluster["include"]).map(str::to_owned);
    ["docker-compose.yml".to_owned()].into_iter().chain(included).collect()
}

/// Their services, each with its name and the directory to which its paths are relative.
fn services() -> Vec<(PathBuf, String, Json)> {
    let mut all = Vec::new();
    for file in compose_files() {
        let dir = root().join(&file).parent().unwrap().to_owned();
        let services = yaml(&read(&file));
        let services = services["services"].as_object().unwrap();
        all.extend(services.iter().map(|(name, it)| (dir.clone(), name.clone(), it.clone())));
    }
    all
}

#[test]
fn what_compose_files_name_is_there() {
    let cluster = yaml(&read("docker-compose.yml"));
    for (dir, name, service) in services() {
        for mount in words(&service["volumes"]) {
            let (source, _) = mount.split_once(':').unwrap();
            let is_there = match source.starts_with("./") {
                true => dir.join(source).exists(),
                false => cluster["volumes"].get(source).is_some(),
            };
            assert!(is_there, "{name}: {mount}");
        }
        for server in service["depends_on"].as_object().into_iter().flat_map(Map::keys) {
            let is_looked_at = cluster["services"][server]["healthcheck"].is_object();
            assert!(is_looked_at, "{name} waits until {server} is well, which nobody asks");
        }
        if let Some(file) = service["build"]["dockerfile"].as_str() {
            assert!(root().join(file).exists(), "{name}: {file}");
        }
    }
}

/// The command line accepts the commands of scheduler, worker and gateway, and health checks look for connections to
/// the ports of their servers.
#[test]
fn services_of_tenure_start_and_are_looked_at() {
    let (tenure, services) = (tenure(), services());
    let ours = services.iter().filter(|(.., service)| service["image"] == "tenure");
    let ours: Vec<_> = ours.map(|(_, name, service)| (name, service)).collect();
    assert_eq!(ours.len(), 3, "{ours:?}");
    let established = |port: u16| format!(":{port:04X} 01 ");
    for (name, service) in &ours {
        Cli::try_parse_from(["tenure"].into_iter().chain(words(&service["command"]))).unwrap();
        let command = words(&service["command"]).next().unwrap();
        let command = tenure.find_subcommand(command).unwrap();
        let known: Vec<_> = command.get_arguments().filter_map(Arg::get_env).collect();
        let environment = service["environment"].as_object().unwrap();
        for set in environment.keys().filter(|set| set.starts_with("TENURE_")) {
            assert!(known.contains(&OsStr::new(set)), "{name}: {set} says nothing to it");
        }
        let check = words(&service["healthcheck"]["test"]).last().unwrap_or_default();
        // Beside a worker, commands of Steps would read the login in the environment of a check.
        let (is_scheduler, is_worker) = (*name == "scheduler", *name == "worker");
        assert_eq!(service["healthcheck"].is_null(), is_worker, "{name}: {check}");
        assert_eq!(check.contains(&established(4222)), !is_worker, "{name}: {check}");
        assert_eq!(check.contains(&established(6379)), is_scheduler, "{name}: {check}");
        // It sends telemetry to the collector of the compose file.
        let to = &service["environment"]["OTEL_EXPORTER_OTLP_ENDPOINT"];
        assert_eq!(to, "http://collector:4318", "{name}");
    }
    for brought in ["collector", "prometheus", "tempo", "loki", "grafana"] {
        assert!(services.iter().any(|(_, name, _)| name == brought), "{brought}");
    }
    let worker = ours.iter().find(|(name, _)| *name == "worker").unwrap().1;
    let at = worker["environment"]["TENURE_NATS_URL"].as_str().unwrap();
    assert!(at.starts_with("nats://worker-1:") && at.ends_with("@nats:4222"), "{at}");
    assert!(words(&worker["command"]).any(|word| word == "worker-1"));
    let gateway = ours.iter().find(|(name, _)| *name == "gateway").unwrap().1;
    let at = gateway["environment"]["TENURE_NATS_URL"].as_str().unwrap();
    assert!(at.starts_with("nats://gateway:") && at.ends_with("@nats:4222"), "{at}");
    for user in ["worker-1", "gateway"] {
        let block = format!("\n        user: {user}\n");
        assert!(read("deploy/nats/roles.conf").contains(&block), "{user}");
    }
    assert!(read("deploy/nats/local.conf").contains("\nlisten: \"0.0.0.0:4222\"\n"));
    assert!(read("deploy/redis/redis.conf").contains("\nport 6379\n"));
}

#[test]
fn every_file_of_yaml_is_read() {
    let is_yaml = |path: &str| path.ends_with(".yml") || path.ends_with(".yaml");
    let files = texts(&["docker-compose.yml", "deploy"]).into_iter().filter(|it| is_yaml(&it.0));
    let read = files.map(|(path, text)| assert!(yaml(&text).is_object(), "{path}")).count();
    assert!(read >= 7, "{read} files");
}
