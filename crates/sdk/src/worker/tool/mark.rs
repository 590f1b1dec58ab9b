//! What an Attempt leaves in checkpoints for the next one: which task of the server is its own, what the server asks,
//! and which answers were sent.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use tenure_core::id::Ref;

use crate::mcp::ToolQuestions;

/// How such a checkpoint begins; JSON follows.
const PREFIX: &str = "tenure-mcp:";

/// How much of a text goes into one checkpoint: with each character escaped, it fits into a reference.
const PART_BYTES: usize = 1_900;

/// The most checkpoints that the questions of a server take.
const PARTS_MAX: usize = 32;

/// A checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ToolMark {
    /// The server has begun a task.
    Begun {
        /// How often the work has begun before.
        round: u32,
        /// The task.
        task: String,
    },
    /// The server asks something, and wants to be called again with the answers.
    Asked {
        /// How often the work has begun before.
        round: u32,
        /// How often the server has asked before in this round.
        turn: u32,
        /// Which part of the questions this is, and of how many.
        part: (usize, usize),
        /// The part.
        text: String,
    },
    /// These answers of people have come to the server, or cannot be used.
    Sent(Vec<String>),
    /// These questions of the task are answered.
    Answered(Vec<String>),
    /// The call of this round has failed: another try begins anew.
    Ended(u32),
}

impl ToolMark {
    /// The checkpoint as a reference.
    pub(super) fn to_text(&self) -> String {
        let json = serde_json::to_string(self).unwrap_or_default(); // It has texts as keys, and so a form.
        format!("{PREFIX}{json}")
    }

    fn of(reference: &Ref) -> Option<Self> {
        serde_json::from_str(reference.as_str().strip_prefix(PREFIX)?).ok()
    }

    /// The checkpoints of what a server asks; none if that is too long.
    pub(super) fn asked(round: u32, turn: u32, questions: &ToolQuestions) -> Option<Vec<Self>> {
        let whole = serde_json::to_string(questions).ok()?;
        let mut parts = Vec::new();
        let mut rest = whole.as_str();
        while !rest.is_empty() {
            let (text, after) = rest.split_at(rest.floor_char_boundary(PART_BYTES));
            parts.push(text.to_owned());
            rest = after;
        }
        let of = parts.len();
        let mark = |(at, text)| Self::Asked { round, turn, part: (at, of), text };
        (of <= PARTS_MAX).then(|| parts.into_iter().enumerate().map(mark).collect())
    }
}

/// What is known of the work of earlier Attempts.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct PriorCall {
    /// How often the work has ended with a failure.
    pub(super) round: u32,
    /// The task that goes on.
    pub(super) task: Option<String>,
    /// What the server asked last, and how often it has asked.
    pub(super) asked: Option<ToolQuestions>,
    pub(super) turns: u32,
    /// The answers of people that were sent, or cannot be used.
    pub(super) sent: BTreeSet<String>,
    /// The questions of the task that are answered.
    pub(super) answered: BTreeSet<String>,
}

impl PriorCall {
    /// What the checkpoints say, in any order.
    pub(super) fn of(checkpoints: &[Ref]) -> Self {
        let marks: Vec<ToolMark> = checkpoints.iter().filter_map(ToolMark::of).collect();
        let ended = |mark: &ToolMark| {
            if let ToolMark::Ended(round) = mark { Some(round + 1) } else { None }
        };
        let round = marks.iter().filter_map(ended).max().unwrap_or(0);
        let mut prior = Self { round, ..Self::default() };
        let mut asked: BTreeMap<u32, BTreeMap<usize, (usize, String)>> = BTreeMap::new();
        for mark in marks {
            match mark {
                ToolMark::Begun { round, task } if round == prior.round => prior.task = Some(task),
                ToolMark::Asked { round, turn, part: (at, of), text } if round == prior.round => {
                    asked.entry(turn).or_default().insert(at, (of, text));
                }
                ToolMark::Sent(answers) => prior.sent.extend(answers),
                ToolMark::Answered(names) => prior.answered.extend(names),
                ToolMark::Begun { .. } | ToolMark::Asked { .. } | ToolMark::Ended(_) => {}
            }
        }
        let whole = asked.into_iter().rev().find_map(|(turn, parts)| Some((turn, joined(&parts)?)));
        if let Some((turn, questions)) = whole {
            (prior.asked, prior.turns) = (Some(questions), turn + 1);
        }
        prior
    }

    /// Whether another try would go on with something, and not begin anew.
    pub(super) const fn goes_on(&self) -> bool {
        self.task.is_some() || self.turns > 0
    }
}

/// The questions, if all their parts are here.
fn joined(parts: &BTreeMap<usize, (usize, String)>) -> Option<ToolQuestions> {
    let of = parts.values().next()?.0;
    if parts.len() != of {
        return None;
    }
    let whole: String = parts.values().map(|(_, text)| text.as_str()).collect();
    serde_json::from_str(&whole).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn prior(marks: &[ToolMark]) -> PriorCall {
        let refs: Vec<Ref> = marks.iter().map(|mark| Ref::new(mark.to_text()).unwrap()).collect();
        let mut backwards = refs.clone();
        backwards.reverse();
        let prior = PriorCall::of(&refs);
        assert_eq!(PriorCall::of(&backwards), prior, "their order says nothing");
        prior
    }

    /// Another Attempt goes on with the task of the one before, and begins another one only after a failure.
    #[test]
    fn work_goes_on_until_it_has_failed() {
        let begun = |round, task: &str| ToolMark::Begun { round, task: task.into() };
        assert_eq!(prior(&[]), PriorCall::default());
        let answered = ToolMark::Answered(vec!["k".into()]);
        let goes_on = prior(&[begun(0, "t"), ToolMark::Sent(vec!["a".into()]), answered]);
        assert_eq!(
            (goes_on.task.as_deref(), goes_on.sent.len(), goes_on.answered.len()),
            (Some("t"), 1, 1)
        );
        let anew = prior(&[begun(0, "t"), ToolMark::Ended(0)]);
        assert_eq!((anew.round, anew.task), (1, None));
    }

    /// Questions of any length come back whole, the last ones, and only if nothing is missing.
    #[test]
    fn questions_come_back_whole() {
        let long = "\"\\ü€".repeat(2_000);
        let of = |text: &str| ToolQuestions {
            input_requests: [("k".to_owned(), json!({"params": {"message": text}}))].into(),
            request_state: Some(text.to_owned()),
        };
        let (first, last) = (of("one"), of(&long));
        let mut marks = ToolMark::asked(0, 0, &first).unwrap();
        assert_eq!(marks.len(), 1);
        marks.extend(ToolMark::asked(0, 1, &last).unwrap());
        let whole = prior(&marks);
        assert_eq!((whole.asked, whole.turns), (Some(last), 2));
        marks.pop();
        assert_eq!(prior(&marks).asked, Some(first), "a part of the last is missing");
        assert!(ToolMark::asked(0, 0, &of(&"x".repeat(40_000))).is_none());
    }
}
