//! What Steps ask for, as elicitations, and the answers as the references that a Step gets.
//!
//! A Step asks when it is blocked for input or for a permission (CTX-05, CTX-06). The details of its reason may say
//! more: `schema` is the form of the answer, `questions` are several questions at once, and `url` is an address at
//! which the caller grants the permission.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use rmcp::model::{
    ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema,
    InputRequest,
};
use serde::Deserialize;
use serde_json::{Value as Json, json};
use tenure_core::id::{Ref, StepId, TaskId};
use tenure_core::record::Reason;
use tenure_core::status::{StepStatus, TaskStatus, WaitKind};
use tenure_core::view::{StepView, TaskView};

use super::schema::check_once;
use super::start::hash_of;

/// The most questions of one Step at once.
const QUESTIONS_MAX: usize = 16;

/// The field of the form that asks for a text.
const ANSWER: &str = "answer";

/// The answer of a caller who has nothing to say but that it agrees.
const ACCEPTED: &str = "accepted";

/// How the reference of a person's answer begins, as the SDK reads it: behind it stand what makes it unique, and the
/// text.
const ANSWER_PREFIX: &str = "data:text/plain;charset=utf-8;answer=";

/// How the reference begins of an answer that waits for those to other questions of its Step. Its key and the text
/// follow.
const KEPT: &str = "data:text/plain;charset=utf-8;mcp-answer=";

/// The same of an answer that is a blob, whose reference follows its key.
const KEPT_BLOB: &str = "data:text/plain;charset=utf-8;mcp-answer-at=";

/// What stands in a reference as it is.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// What a Step asks.
#[derive(Debug, Clone)]
pub(super) struct StepQuestions {
    pub(super) step_id: StepId,
    /// At least one.
    pub(super) questions: Vec<Question>,
}

/// A question.
#[derive(Debug, Clone)]
pub(super) struct Question {
    /// What tells it from all others of its Task, for ever.
    pub(super) key: String,
    prompt: String,
    form: QuestionForm,
    /// The answer, if it has come and others of the same Step have not.
    pub(super) kept: Option<Ref>,
}

/// In what form the answer is to come.
#[derive(Debug, Clone)]
enum QuestionForm {
    /// A text.
    Text,
    /// The fields of a flat schema.
    Fields { shown: Box<ElicitationSchema>, schema: Json },
    /// The caller does something at an address.
    Url(String),
}

/// How a client says that it can be asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct AskingModes {
    /// It shows forms to its user.
    pub(super) forms: bool,
    /// It opens addresses for its user.
    pub(super) urls: bool,
}

/// What came as an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum GivenAnswer {
    /// The text that the Step gets.
    Text(String),
    /// The caller does not want to say it.
    Declined,
    /// The caller has looked away: the question stays.
    Dismissed,
}

/// A question in the details of a reason.
#[derive(Debug, Default, Deserialize)]
struct QuestionEntry {
    prompt: Option<String>,
    schema: Option<Json>,
}

/// What the Steps of a Task ask for now, in their order. A Task that rests or is being closed asks for nothing.
pub(super) fn asked_in(task: &TaskView) -> Vec<StepQuestions> {
    let about = &task.task;
    let rests = !matches!(about.native_status, TaskStatus::Pending | TaskStatus::Running);
    if rests || about.cancel_requested.is_some() {
        return Vec::new();
    }
    let asks = |step: &&StepView| {
        step.status == StepStatus::Blocked
            && matches!(step.wait_kind, Some(WaitKind::Input | WaitKind::Permission))
    };
    task.steps.iter().filter(asks).map(|step| StepQuestions::of(task, step)).collect()
}

impl StepQuestions {
    fn of(task: &TaskView, step: &StepView) -> Self {
        let step_id = step.spec.step_id.clone();
        let of_step = task.attempts.iter().filter(|attempt| attempt.step_id == step_id);
        let ordinal = of_step.map(|attempt| attempt.ordinal).max().unwrap_or(0);
        // Each answer becomes one more reference of the Step, so no number comes twice, whoever blocks it.
        let before = step.facts.as_ref().map_or(0, |facts| facts.input_refs.len());
        let reason = step.facts.as_ref().and_then(|facts| facts.status_reason.as_ref());
        let number = |(at, (prompt, form)): (usize, (String, QuestionForm))| {
            let key = format!("{step_id}.{ordinal}.{}", before + at);
            let kept = task.input_refs.iter().find(|kept| is_kept_for(kept, &key)).cloned();
            Question { key, prompt, form, kept }
        };
        let questions = forms_of(reason).into_iter().enumerate().map(number).collect();
        Self { step_id, questions }
    }

    /// Whether all of them are answered.
    pub(super) fn are_answered(&self) -> bool {
        self.questions.iter().all(|question| question.kept.is_some())
    }

    /// The questions that nobody has answered.
    pub(super) fn open(&self) -> impl Iterator<Item = &Question> {
        self.questions.iter().filter(|question| question.kept.is_none())
    }
}

/// The questions in a reason, with their forms.
fn forms_of(reason: Option<&Reason>) -> Vec<(String, QuestionForm)> {
    let prompt = reason.map(|reason| reason.message.trim()).filter(|text| !text.is_empty());
    let prompt = prompt.unwrap_or("the work needs an answer to go on").to_owned();
    let details = reason.and_then(|reason| reason.details.as_ref());
    let detail = |name: &str| details.and_then(|details| details.get(name));
    let entries = detail("questions").cloned().map(serde_json::from_value::<Vec<QuestionEntry>>);
    if let Some(Ok(entries)) = entries
        && (1..=QUESTIONS_MAX).contains(&entries.len())
    {
        let form = |entry: QuestionEntry| {
            (entry.prompt.unwrap_or_else(|| prompt.clone()), QuestionForm::of(entry.schema))
        };
        return entries.into_iter().map(form).collect();
    }
    let url = detail("url").and_then(Json::as_str).filter(|url| {
        ["https://", "http://"].iter().any(|scheme| url.to_ascii_lowercase().starts_with(scheme))
    });
    let form = match url {
        Some(url) => QuestionForm::Url(url.to_owned()),
        None => QuestionForm::of(detail("schema").cloned()),
    };
    vec![(prompt, form)]
}

impl QuestionForm {
    /// The form of a schema. One that no client could show is as none.
    fn of(schema: Option<Json>) -> Self {
        let Some(Json::Object(words)) = schema else { return Self::Text };
        match ElicitationSchema::from_json_schema(words.clone()) {
            Ok(shown) => Self::Fields { shown: shown.into(), schema: Json::Object(words) },
            Err(_) => Self::Text,
        }
    }
}

impl Question {
    /// The question in words.
    pub(super) fn prompt(&self) -> &str {
        &self.prompt
    }

    /// Whether a client can be asked it.
    pub(super) const fn is_askable(&self, modes: AskingModes) -> bool {
        modes.forms || (modes.urls && matches!(self.form, QuestionForm::Url(_)))
    }

    /// The question as a client shows it, which may be one that opens addresses.
    ///
    /// # Errors
    /// There is no form for it.
    pub(super) fn params(&self, opens_urls: bool) -> Result<ElicitRequestParams, String> {
        let form = |message: String, requested_schema| ElicitRequestParams::FormElicitationParams {
            meta: None,
            message,
            requested_schema,
        };
        let text = || {
            let builder = ElicitationSchema::builder();
            builder.required_string(ANSWER).build().map_err(|why| why.to_string())
        };
        Ok(match &self.form {
            QuestionForm::Text => form(self.prompt.clone(), text()?),
            QuestionForm::Fields { shown, .. } => form(self.prompt.clone(), (**shown).clone()),
            QuestionForm::Url(url) if opens_urls => ElicitRequestParams::UrlElicitationParams {
                meta: None,
                message: self.prompt.clone(),
                url: url.clone(),
                elicitation_id: self.key.clone(),
            },
            QuestionForm::Url(url) => form(format!("{}\n{url}", self.prompt), text()?),
        })
    }

    /// The same for a map of questions.
    ///
    /// # Errors
    /// As [`params`](Self::params).
    pub(super) fn request(&self, opens_urls: bool) -> Result<InputRequest, String> {
        self.params(opens_urls).map(|params| InputRequest::Elicitation(ElicitRequest::new(params)))
    }

    /// What came as the answer.
    ///
    /// # Errors
    /// The field that is wrong, and what is wrong with it.
    pub(super) fn read(&self, response: &Json) -> Result<GivenAnswer, String> {
        let given: ElicitResult = serde_json::from_value(response.clone())
            .map_err(|error| format!("{} is no answer to an elicitation: {error}", self.key))?;
        match given.action {
            ElicitationAction::Accept => {}
            ElicitationAction::Decline => return Ok(GivenAnswer::Declined),
            _ => return Ok(GivenAnswer::Dismissed),
        }
        let content = given.content.unwrap_or(Json::Null);
        let wrong = |field: &str, why: &str| Err(format!("{}.content{field}: {why}", self.key));
        match &self.form {
            QuestionForm::Fields { schema, .. } => match check_once(schema, &content) {
                Ok(()) => Ok(GivenAnswer::Text(content.to_string())),
                Err(bad) if bad.field.is_empty() => wrong("", &bad.why),
                Err(bad) => wrong(&format!(".{}", bad.field), &bad.why),
            },
            form => match (content.get(ANSWER), form) {
                (Some(Json::String(text)), _) => Ok(GivenAnswer::Text(text.clone())),
                (None, QuestionForm::Url(_)) => Ok(GivenAnswer::Text(ACCEPTED.into())),
                _ => wrong(&format!(".{ANSWER}"), "a text is missing"),
            },
        }
    }
}

/// Where an answer is to be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AnswerPlace {
    /// In this reference.
    Inline(Ref),
    /// In a blob with these bytes, which its sender puts first.
    Blob(Vec<u8>),
}

/// The reference by which a Step gets an answer. The same answer to the same question has the same one, wherever it
/// comes in.
pub(super) fn answer_place(task: &TaskId, key: &str, text: &str) -> AnswerPlace {
    let unique = &hash_of(&[task.as_str(), key])[..32];
    place(&format!("{ANSWER_PREFIX}{unique}"), text)
}

/// The reference of an answer that waits for others. One that is too long for the reference by which its Step gets it
/// is a blob from the start.
pub(super) fn kept_place(task: &TaskId, key: &str, text: &str) -> AnswerPlace {
    match answer_place(task, key, text) {
        AnswerPlace::Inline(_) => place(&format!("{KEPT}{key}"), text),
        blob => blob,
    }
}

fn place(head: &str, text: &str) -> AnswerPlace {
    let reference = Ref::new(format!("{head},{}", utf8_percent_encode(text, ESCAPED)));
    reference.map_or_else(|_| AnswerPlace::Blob(text.into()), AnswerPlace::Inline)
}

/// The reference of an answer that waits for others, and is in a blob.
pub(super) fn kept_in_blob(key: &str, blob: &Ref) -> Option<Ref> {
    Ref::new(format!("{KEPT_BLOB}{key},{blob}")).ok()
}

/// The reference by which a Step gets an answer that was kept.
pub(super) fn kept_answer(task: &TaskId, key: &str, kept: &Ref) -> Option<Ref> {
    if let Some(blob) = kept.as_str().strip_prefix(KEPT_BLOB) {
        return Ref::new(blob.split_once(',')?.1).ok();
    }
    let (_, escaped) = kept.as_str().strip_prefix(KEPT)?.split_once(',')?;
    let text = percent_decode_str(escaped).decode_utf8().ok()?;
    match answer_place(task, key, &text) {
        AnswerPlace::Inline(reference) => Some(reference),
        AnswerPlace::Blob(_) => None, // `kept_place` keeps no such answer in a reference.
    }
}

fn is_kept_for(kept: &Ref, key: &str) -> bool {
    let of = |prefix: &str| kept.as_str().strip_prefix(prefix)?.split_once(',');
    [KEPT, KEPT_BLOB].iter().filter_map(|prefix| of(prefix)).any(|(known, _)| known == key)
}

/// What a client is told of a question that it cannot show.
pub(super) fn in_words(question: &Question) -> Json {
    json!({"key": question.key, "prompt": question.prompt})
}

#[cfg(test)]
mod tests {
    use tenure_core::record::Blob;

    use super::*;

    fn question(form: QuestionForm) -> Question {
        Question { key: "call.1.0".into(), prompt: "Where to?".into(), form, kept: None }
    }

    fn asked(details: Json) -> Vec<(String, QuestionForm)> {
        let Json::Object(details) = details else { panic!("{details}") };
        let reason =
            Reason { details: Some(details), ..Reason::new("input_required", "Where to?") };
        forms_of(Some(&reason))
    }

    /// CTX-05, CTX-06: a prompt is a form with one field, unless the details say more.
    #[test]
    fn details_say_what_is_asked() {
        let form = json!({"type": "object", "properties": {"city": {"type": "string"}}});
        assert!(
            matches!(&asked(json!({}))[..], [(prompt, QuestionForm::Text)] if prompt == "Where to?")
        );
        assert!(matches!(&asked(json!({"schema": form}))[..], [(_, QuestionForm::Fields { .. })]));
        assert!(matches!(&asked(json!({"url": "https://a"}))[..], [(_, QuestionForm::Url(_))]));
        let two = json!({"questions": [{"prompt": "Who?"}, {"schema": form}]});
        let two = asked(two);
        assert!(matches!(&two[..], [(_, QuestionForm::Text), (_, QuestionForm::Fields { .. })]));
        assert_eq!((&*two[0].0, &*two[1].0), ("Who?", "Where to?"));
        for odd in [
            json!({"schema": {"type": "array"}}),
            json!({"schema": {"type": "object", "properties": {"a": {"type": "object"}}}}),
            json!({"url": "javascript:alert(1)"}),
            json!({"questions": []}),
            json!({"questions": vec![json!({}); QUESTIONS_MAX + 1]}),
        ] {
            assert!(matches!(&asked(odd.clone())[..], [(_, QuestionForm::Text)]), "{odd}");
        }
        assert_eq!(forms_of(None).len(), 1);
    }

    #[test]
    fn an_answer_has_the_form_of_its_question() {
        let accept = |content: Json| json!({"action": "accept", "content": content});
        let text = question(QuestionForm::Text);
        let said = |text: &str| Ok(GivenAnswer::Text(text.into()));
        assert_eq!(text.read(&accept(json!({"answer": "Rome"}))), said("Rome"));
        assert_eq!(text.read(&json!({"action": "decline"})), Ok(GivenAnswer::Declined));
        assert_eq!(text.read(&json!({"action": "cancel"})), Ok(GivenAnswer::Dismissed));
        for wrong in [json!("Rome"), accept(json!({})), accept(json!({"answer": 1})), json!({})] {
            assert!(text.read(&wrong).unwrap_err().starts_with("call.1.0"), "{wrong}");
        }
        let schema = json!({
            "type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
        });
        let fields = question(QuestionForm::of(Some(schema)));
        assert_eq!(fields.read(&accept(json!({"n": 3}))), said("{\"n\":3}"));
        let wrong = fields.read(&accept(json!({"n": "x"}))).unwrap_err();
        assert!(wrong.starts_with("call.1.0.content.n: "), "{wrong}");
        let url = question(QuestionForm::Url("https://a/b".into()));
        assert_eq!(url.read(&json!({"action": "accept"})), said("accepted"));
    }

    /// A client is asked by what it has declared, and by nothing else.
    #[test]
    fn a_question_is_for_clients_that_can_be_asked_it() {
        let url = question(QuestionForm::Url("https://a/b".into()));
        let text = question(QuestionForm::Text);
        for (forms, urls, asked) in [
            (false, false, (false, false)),
            (true, false, (true, true)),
            (false, true, (false, true)),
            (true, true, (true, true)),
        ] {
            let modes = AskingModes { forms, urls };
            assert_eq!((text.is_askable(modes), url.is_askable(modes)), asked, "{modes:?}");
        }
    }

    #[test]
    fn an_address_is_opened_by_clients_that_do() {
        let url = question(QuestionForm::Url("https://a/b".into()));
        let shown = |opens| serde_json::to_value(url.request(opens).unwrap()).unwrap();
        assert_eq!(shown(true)["params"]["url"], "https://a/b");
        assert_eq!(shown(false)["params"]["mode"], "form");
        assert_eq!(shown(false)["params"]["message"], "Where to?\nhttps://a/b");
        let text =
            serde_json::to_value(question(QuestionForm::Text).request(true).unwrap()).unwrap();
        assert_eq!(text["method"], "elicitation/create");
        assert_eq!(text["params"]["requestedSchema"]["required"], json!(["answer"]));
    }

    /// The same answer has the same reference at every gateway, so that its command is the same one (IDEM-02).
    #[test]
    fn an_answer_that_was_kept_comes_to_its_step() {
        let task: TaskId = "t".parse().unwrap();
        let AnswerPlace::Inline(kept) = kept_place(&task, "call.1.0", "50 % – yes,") else {
            panic!()
        };
        assert!(is_kept_for(&kept, "call.1.0") && !is_kept_for(&kept, "call.1.1"));
        let AnswerPlace::Inline(given) = answer_place(&task, "call.1.0", "50 % – yes,") else {
            panic!()
        };
        assert_eq!(kept_answer(&task, "call.1.0", &kept), Some(given.clone()));
        assert!(given.as_str().starts_with("data:text/plain;charset=utf-8;answer="));
        assert_ne!(answer_place(&task, "call.1.1", "50 % – yes,"), AnswerPlace::Inline(given));
        let long = "ü".repeat(2_000);
        assert_eq!(kept_place(&task, "call.1.0", &long), AnswerPlace::Blob(long.clone().into()));
        let blob = Blob::of(long.as_bytes()).reference();
        let kept = kept_in_blob("call.1.0", &blob).unwrap();
        assert!(is_kept_for(&kept, "call.1.0"));
        assert_eq!(kept_answer(&task, "call.1.0", &kept), Some(blob));
    }

    /// No answer is lost between the two references, whose heads are of different length.
    #[test]
    fn an_answer_of_any_length_comes_to_its_step() {
        let task: TaskId = "t".parse().unwrap();
        let (mut inline, mut blobs) = (0, 0);
        for length in 3_900..4_100 {
            for key in ["c.1.0", &format!("{}.1.0", "c".repeat(80))] {
                match kept_place(&task, key, &"x".repeat(length)) {
                    AnswerPlace::Inline(kept) => {
                        inline += 1;
                        assert!(kept_answer(&task, key, &kept).is_some(), "{key}: {length}");
                    }
                    AnswerPlace::Blob(_) => blobs += 1,
                }
            }
        }
        assert!(inline > 0 && blobs > 0, "{inline} {blobs}");
    }
}
