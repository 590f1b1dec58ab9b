//! Policies: what a session may ask for beyond the rules of the mode, read from a file.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use crate::code::invalid;
use crate::pb::PolicyDescriptor;
use crate::{MacpCode, MacpPool, MacpRefusal, TASK_MODE, is_reserved};

/// The policy of sessions that name none.
pub const DEFAULT_POLICY: &str = "policy.default";

/// Policies with a name that begins so are those of the protocol. None of them is one of Task mode.
const RESERVED: &str = "policy.std.";
/// Versions of the rules of policies that the protocol has.
const SCHEMA_VERSIONS: std::ops::RangeInclusive<u32> = 1..=3;
/// Groups of rules of the other modes, which a policy for all modes may have, too.
const OTHER_MODES: [&str; 8] = [
    "voting",
    "objection_handling",
    "evaluation",
    "acceptance",
    "counter_proposal",
    "rejection",
    "threshold",
    "abstention",
];

/// What is wrong with a file of policies.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MacpPolicyError {
    /// It is no JSON, or has not the form of policies.
    #[error("policies: {0}")]
    Form(String),
    /// A policy is not as the protocol asks.
    #[error("policies[{policy_id}]: {problem}")]
    Policy {
        /// The policy.
        policy_id: String,
        /// What is wrong, and what to write.
        problem: String,
    },
}

/// Who may commit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum MacpAuthority {
    /// The initiator alone.
    #[default]
    InitiatorOnly,
    /// The initiator and every participant.
    AnyParticipant,
    /// These alone.
    DesignatedRole(Vec<String>),
}

/// The rules of a policy that concern Task mode.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MacpRules {
    /// `assignment.allow_reassignment_on_reject`: the assignee may give the task back, and another may accept it.
    pub allow_reassignment_on_reject: bool,
    /// `completion.require_output`: a positive Commitment needs a report with an output.
    pub require_output: bool,
    /// `commitment.authority`: who may commit.
    pub authority: MacpAuthority,
}

/// A policy as it is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Definition {
    policy_id: String,
    mode: String,
    #[serde(default)]
    description: String,
    rules: Json,
    schema_version: u32,
}

/// A policy that was found to be well formed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MacpPolicy {
    definition: Definition,
    rules: MacpRules,
}

impl Default for MacpPolicy {
    /// `policy.default`: the rules of the mode and no others.
    fn default() -> Self {
        let definition = Definition {
            policy_id: DEFAULT_POLICY.to_owned(),
            mode: "*".to_owned(),
            description: "The rules of the mode, and no others".to_owned(),
            rules: serde_json::json!({
                "commitment": { "authority": "initiator_only", "designated_roles": [] }
            }),
            schema_version: 1,
        };
        Self { definition, rules: MacpRules::default() }
    }
}

impl MacpPolicy {
    /// Reads one policy from its text, as a record of a session has it.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, MacpPolicyError> {
        let definition = serde_json::from_str(text);
        Self::check(definition.map_err(|e| MacpPolicyError::Form(e.to_string()))?)
    }

    /// The policy as one line of JSON. [`MacpPolicy::parse`] reads it.
    pub fn text(&self) -> String {
        serde_json::to_string(&self.definition).unwrap_or_default()
    }

    /// Its name.
    pub fn policy_id(&self) -> &str {
        &self.definition.policy_id
    }

    /// The mode it is for, or `*`.
    pub fn mode(&self) -> &str {
        &self.definition.mode
    }

    /// What it says about Task mode.
    pub fn rules(&self) -> &MacpRules {
        &self.rules
    }

    /// The policy as clients see it.
    pub fn descriptor(&self, registered_at_ms: i64) -> PolicyDescriptor {
        PolicyDescriptor {
            policy_id: self.definition.policy_id.clone(),
            mode: self.definition.mode.clone(),
            description: self.definition.description.clone(),
            rules: self.definition.rules.to_string(),
            schema_version: self.definition.schema_version,
            registered_at_unix_ms: registered_at_ms,
        }
    }

    fn check(mut definition: Definition) -> Result<Self, MacpPolicyError> {
        let problem = |problem: String| MacpPolicyError::Policy {
            policy_id: definition.policy_id.clone(),
            problem,
        };
        // The protocol carries rules as a text with JSON; a file may have them as such or as JSON.
        let rules = match &definition.rules {
            Json::String(text) => serde_json::from_str(text)
                .map_err(|e| problem(format!("rules: the text is no JSON: {e}")))?,
            rules => rules.clone(),
        };
        let read = || {
            if definition.policy_id.trim().is_empty() {
                return Err("policy_id must not be empty".to_owned());
            }
            if definition.policy_id.starts_with(RESERVED) {
                return Err(format!(
                    "names that begin with {RESERVED} belong to the protocol: choose another"
                ));
            }
            if definition.mode.trim().is_empty() {
                return Err(format!("mode must be {TASK_MODE:?}, \"*\", or another mode"));
            }
            if !SCHEMA_VERSIONS.contains(&definition.schema_version) {
                return Err(format!(
                    "schema_version must be 1, 2 or 3, not {}",
                    definition.schema_version
                ));
            }
            let Json::Object(groups) = &rules else {
                return Err("rules must be a JSON object".to_owned());
            };
            match definition.mode.as_str() {
                TASK_MODE => read_rules(groups, &[]),
                "*" => read_rules(groups, &OTHER_MODES),
                // No session here can have it, so it is only listed.
                _ => Ok(MacpRules::default()),
            }
        };
        let read = read().map_err(problem)?;
        definition.rules = rules;
        Ok(Self { definition, rules: read })
    }
}

/// Reads the rules of Task mode. Rules are closed: a name that the protocol does not have is a mistake. Names that
/// begin with `_` or `$` are notes.
fn read_rules(groups: &Map<String, Json>, others: &[&str]) -> Result<MacpRules, String> {
    let mut rules = MacpRules::default();
    for (group, value) in groups.iter().filter(|(name, _)| !is_note(name)) {
        let path = format!("rules.{group}");
        let Json::Object(fields) = value else {
            return Err(format!("{path} must be a JSON object"));
        };
        let mut fields: Vec<(&String, &Json)> =
            fields.iter().filter(|(name, _)| !is_note(name)).collect();
        fields.sort_by_key(|(name, _)| *name);
        match group.as_str() {
            "assignment" => read_flag(&path, &fields, "allow_reassignment_on_reject", |yes| {
                rules.allow_reassignment_on_reject = yes;
            })?,
            "completion" => {
                read_flag(&path, &fields, "require_output", |yes| rules.require_output = yes)?
            }
            "commitment" => rules.authority = read_authority(&path, &fields, !others.is_empty())?,
            other if others.contains(&other) => {}
            _ => {
                return Err(format!(
                    "{path}: there is no such group; there are assignment, completion, commitment"
                ));
            }
        }
    }
    Ok(rules)
}

fn is_note(name: &str) -> bool {
    name.starts_with(['_', '$'])
}

/// Reads a group that has one field, which is true or false.
fn read_flag(
    path: &str,
    fields: &[(&String, &Json)],
    known: &str,
    mut set: impl FnMut(bool),
) -> Result<(), String> {
    for (name, value) in fields {
        match value {
            _ if *name != known => {
                return Err(format!("{path}.{name}: there is no such rule; there is {known}"));
            }
            Json::Bool(yes) => set(*yes),
            _ => return Err(format!("{path}.{name} must be true or false")),
        }
    }
    Ok(())
}

fn read_authority(
    path: &str,
    fields: &[(&String, &Json)],
    all_modes: bool,
) -> Result<MacpAuthority, String> {
    let (mut authority, mut roles) = ("initiator_only", Vec::new());
    for (name, value) in fields {
        match (name.as_str(), value) {
            ("authority", Json::String(text)) => authority = text,
            ("authority", _) => return Err(format!("{path}.authority must be a text")),
            ("designated_roles", Json::Array(list)) => {
                for role in list {
                    let Json::String(role) = role else {
                        return Err(format!("{path}.designated_roles must be a list of texts"));
                    };
                    roles.push(role.clone());
                }
            }
            ("designated_roles", _) => {
                return Err(format!("{path}.designated_roles must be a list of texts"));
            }
            ("require_vote_quorum" | "allow_decline_over_approval", Json::Bool(_)) if all_modes => {
            }
            _ => {
                return Err(format!(
                    "{path}.{name}: there is no such rule; there are authority, designated_roles"
                ));
            }
        }
    }
    match authority {
        "initiator_only" => Ok(MacpAuthority::InitiatorOnly),
        "any_participant" => Ok(MacpAuthority::AnyParticipant),
        "designated_role" if roles.is_empty() => Err(format!(
            "{path}.designated_roles must name somebody, as authority is designated_role"
        )),
        "designated_role" => Ok(MacpAuthority::DesignatedRole(roles)),
        other => Err(format!(
            "{path}.authority must be initiator_only, any_participant or designated_role, not {other:?}"
        )),
    }
}

/// The policies that sessions may name, in the order of their names. [`DEFAULT_POLICY`] is always among them. And the
/// pools that may take part in sessions, of which there is none unless somebody says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MacpPolicies {
    all: Vec<MacpPolicy>,
    pools: Vec<MacpPool>,
}

impl Default for MacpPolicies {
    fn default() -> Self {
        Self { all: vec![MacpPolicy::default()], pools: Vec::new() }
    }
}

impl MacpPolicies {
    /// Reads a file of policies: a JSON list of definitions `{policy_id, mode, description, rules, schema_version}`.
    ///
    /// # Errors
    ///
    /// The first mistake in it.
    pub fn parse(text: &str) -> Result<Self, MacpPolicyError> {
        let definitions: Vec<Definition> =
            serde_json::from_str(text).map_err(|e| MacpPolicyError::Form(e.to_string()))?;
        let mut policies = Self::default();
        for definition in definitions {
            let policy = MacpPolicy::check(definition)?;
            if policies.get(policy.policy_id()).is_some() {
                let (policy_id, problem) =
                    (policy.policy_id().to_owned(), "the name is taken".to_owned());
                return Err(MacpPolicyError::Policy { policy_id, problem });
            }
            policies.all.push(policy);
        }
        policies.all.sort_by(|a, b| a.policy_id().cmp(b.policy_id()));
        Ok(policies)
    }

    /// The same, with these pools.
    #[must_use]
    pub fn with_pools(self, pools: Vec<MacpPool>) -> Self {
        Self { pools, ..self }
    }

    /// The pools that may take part in sessions.
    pub fn pools(&self) -> &[MacpPool] {
        &self.pools
    }

    /// A participant with a name of Tenure must be a pool that may take part (MACP-19).
    pub(crate) fn check_pools(&self, participants: &[String]) -> Result<(), MacpRefusal> {
        let may = |it: &String| {
            MacpPool::of_participant(it)
                .is_some_and(|asked| self.pools.contains(&asked) && asked.participant() == *it)
        };
        match participants.iter().find(|it| is_reserved(it) && !may(it)) {
            None => Ok(()),
            Some(other) => invalid(format!(
                "participants: {other:?} is no pool that takes part in sessions here; --macp-pool names those"
            )),
        }
    }

    /// The policy with this name.
    pub fn get(&self, policy_id: &str) -> Option<&MacpPolicy> {
        self.all.iter().find(|it| it.policy_id() == policy_id)
    }

    /// The policies for a mode, or all of them if the mode is empty.
    pub fn list<'a>(&'a self, mode: &'a str) -> impl Iterator<Item = &'a MacpPolicy> {
        self.all.iter().filter(move |it| mode.is_empty() || it.mode() == "*" || it.mode() == mode)
    }

    /// The policy of a session that asks for `policy_version`, where an empty one is [`DEFAULT_POLICY`].
    pub(crate) fn bind(&self, policy_version: &str) -> Result<&MacpPolicy, MacpRefusal> {
        let wanted = if policy_version.is_empty() { DEFAULT_POLICY } else { policy_version };
        let Some(policy) = self.get(wanted) else {
            let message =
                format!("there is no policy {wanted:?}; ListPolicies names those that are there");
            return Err(MacpRefusal::new(MacpCode::UnknownPolicyVersion, message));
        };
        if policy.mode() != "*" && policy.mode() != TASK_MODE {
            let message = format!("the policy {wanted:?} is one of the mode {:?}", policy.mode());
            return Err(MacpRefusal::new(MacpCode::InvalidPolicyDefinition, message));
        }
        Ok(policy)
    }
}
