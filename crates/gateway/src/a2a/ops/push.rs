//! Configurations of callbacks: each is a fact of its Task, and has a courier.

use std::sync::Arc;

use tenure_core::command::KeepFact;
use tenure_core::command::create::CreateTask;
use tenure_core::id::{CommandId, HandlerName, NAME_MAX, PoolId, TaskId};
use tenure_core::patch::StepInput;
use tenure_core::record::{Labels, RetryPolicy, Value};
use tenure_core::retry_policy::Limit;
use tenure_core::status::{FactKind, Policy, Visibility};
use tenure_core::view::{FactsInput, ListInput};
use tenure_core::{Code, Context, Limits, Rejection};
use tenure_mcp::Share;
use tenure_ports::ClientPort as _;
use uuid::Uuid;

use super::AgentCall;
use super::list::check_whole;
use crate::Backend;
use crate::a2a::error::{A2aError, A2aReason};
use crate::a2a::push::{COURIERS, PushOrder, PushRules, PushTarget, check_headers};
use crate::a2a::wire::{A2aPushConfig, A2aPushList, A2aPushName, A2aPushPage};

/// The labels of a courier: the task that it follows, and its configuration.
const FOLLOWS: &str = "a2a-push-task";
const CONFIG: &str = "a2a-push-config";

/// How many configurations a task has at most. Each of a live task has a courier, of which a gateway runs a limited
/// number.
const CONFIGS_MAX: usize = 16;

/// How many bytes the id of a configuration has at most.
const ID_MAX: usize = 63;

impl<B: Backend> AgentCall<B> {
    /// Sends updates of a task to an address from now on. A configuration of the same id is replaced. Of a task that
    /// has ended it is kept alone, as no updates will come: a caller cannot know when that happens.
    ///
    /// # Errors
    /// There is no such task, it or its caller has as many configurations as it may have, or nothing is sent to the
    /// address.
    pub(crate) async fn push_create(
        &self,
        config: A2aPushConfig,
    ) -> Result<A2aPushConfig, A2aError> {
        let config = self.checked(config)?;
        let (task, fold) = self.find(&config.task_id).await?;
        if fold.has_ended() {
            let config = A2aPushConfig { task_id: task.to_string(), ..config };
            self.check_room(&task, &config.id).await?;
            self.keep_config(&task, &config).await?;
            return Ok(config);
        }
        let _place = self.place_for_courier()?;
        self.keep_push(&task, fold.version(), config).await
    }

    /// A configuration.
    ///
    /// # Errors
    /// There is no such task or configuration.
    pub(crate) async fn push_get(&self, asked: &A2aPushName) -> Result<A2aPushConfig, A2aError> {
        let all = self.push_list(&A2aPushList { task_id: asked.task_id.clone() }).await?.configs;
        let found = all.into_iter().find(|config| config.id == asked.id);
        found.ok_or_else(|| {
            A2aError::new(A2aReason::TaskNotFound, "the task has no such configuration")
        })
    }

    /// The configurations of a task.
    ///
    /// # Errors
    /// There is no such task.
    pub(crate) async fn push_list(&self, asked: &A2aPushList) -> Result<A2aPushPage, A2aError> {
        self.push_rules()?;
        let (task, _) = self.find(&asked.task_id).await?;
        let mut configs = self.configs(&task).await?;
        if self.agent.shared {
            configs.iter_mut().for_each(hide_secrets); // Another caller may have made them.
        }
        Ok(A2aPushPage { configs, next_page_token: String::new() })
    }

    async fn configs(&self, task: &TaskId) -> Result<Vec<A2aPushConfig>, A2aError> {
        // Twice as many, because more than there may be get in if they come at once.
        let (kind, limit) = (Some(FactKind::A2aPushConfig), Some(2 * CONFIGS_MAX));
        let input = FactsInput { kind, limit, ..FactsInput::default() };
        let facts = self.client.facts(task, input).await?.facts;
        let read = |value: &Value| serde_json::from_slice(value.data()?).ok();
        Ok(facts.iter().filter_map(|fact| read(&fact.payload)).collect())
    }

    /// Refuses one configuration too many. Of several that come at once a few more may get in.
    pub(super) async fn check_room(&self, task: &TaskId, id: &str) -> Result<(), A2aError> {
        let all = self.configs(task).await?;
        let is_full = all.len() >= CONFIGS_MAX && all.iter().all(|config| config.id != id);
        let message = format!("a task has at most {CONFIGS_MAX} configurations");
        if is_full { Err(A2aError::new(A2aReason::UnsupportedOperation, message)) } else { Ok(()) }
    }

    async fn keep_config(&self, task: &TaskId, config: &A2aPushConfig) -> Result<(), A2aError> {
        let json = serde_json::to_vec(config).unwrap_or_default(); // It came as JSON.
        self.client.keep_fact(task, fact(&config.id, json)).await?;
        Ok(())
    }

    /// Sends no more updates. It does not matter whether there was such a configuration.
    ///
    /// # Errors
    /// There is no such task.
    pub(crate) async fn push_delete(&self, asked: &A2aPushName) -> Result<(), A2aError> {
        self.push_rules()?;
        let (task, _) = self.find(&asked.task_id).await?;
        let is_there = self.configs(&task).await?.iter().any(|config| config.id == asked.id);
        if is_there {
            self.client.keep_fact(&task, fact(&asked.id, b"null".to_vec())).await?;
        }
        self.dismiss(&task, &asked.id).await
    }

    /// What is to be kept for a message that asks for callbacks, checked before the message begins anything.
    pub(super) fn checked(&self, config: A2aPushConfig) -> Result<A2aPushConfig, A2aError> {
        PushTarget::read(&config.url, &self.push_rules()?)?;
        check_headers(&config)?;
        check_size(&config)?;
        let id = match config.id.len() {
            0 => Uuid::now_v7().to_string(),
            length if length <= ID_MAX => config.id,
            _ => return Err(A2aError::invalid("id", "an id has at most 63 bytes")),
        };
        Ok(A2aPushConfig { id, ..config })
    }

    /// A place for one more courier of this caller, for as long as the courier is being made.
    ///
    /// # Errors
    /// The caller has its share of them already, and leaves the others to others.
    pub(super) fn place_for_courier(&self) -> Result<Share, A2aError> {
        let couriers = &self.gateway.couriers;
        // The courier takes the second of these places while the first is held here.
        let places = couriers.take(self.caller()).zip(couriers.take(self.caller()));
        places.map(|(place, _)| place).ok_or_else(|| {
            let message = "this caller has as many callbacks as one may have here: delete configurations of other \
                           tasks, or wait until these tasks have ended";
            Rejection::new(Code::QuotaExceeded, message).into()
        })
    }

    /// Keeps a configuration of a Task. The courier comes first: a configuration that is shown is carried out.
    pub(super) async fn keep_push(
        &self,
        task: &TaskId,
        since: u64,
        config: A2aPushConfig,
    ) -> Result<A2aPushConfig, A2aError> {
        let config = A2aPushConfig { task_id: task.to_string(), ..config };
        self.check_room(task, &config.id).await?;
        self.dismiss(task, &config.id).await?;
        let order = PushOrder {
            task_id: task.clone(),
            caller: self.caller().to_owned(),
            since,
            dialect: self.dialect,
            config: config.clone(),
        };
        let command = CommandId::new(Uuid::now_v7().to_string()).map_err(Rejection::from)?;
        self.client.create_under(Context::new(command), courier(order)?).await?;
        self.keep_config(task, &config).await?;
        Ok(config)
    }

    /// Cancels the couriers of a configuration.
    ///
    /// # Errors
    /// One of them may go on: a part of the cluster, which may have it, does not answer.
    async fn dismiss(&self, task: &TaskId, id: &str) -> Result<(), A2aError> {
        let labels = labels(task, id);
        let page = self.client.port().tasks(ListInput { labels, ..ListInput::default() }).await?;
        check_whole(&page)?;
        for courier in page.tasks {
            match self.client.cancel(&courier.task_id, "the configuration was deleted").await {
                Err(refused)
                    if matches!(refused.code, Code::TaskTerminal | Code::TaskCancelling) => {}
                cancelled => drop(cancelled?),
            }
        }
        Ok(())
    }

    /// An agent whose callers see no tasks has no updates to send (A2A-07).
    fn push_rules(&self) -> Result<PushRules, A2aError> {
        let message = "this agent does not call back";
        let none = || A2aError::new(A2aReason::PushNotSupported, message);
        let rules = self.gateway.settings.agents.push();
        rules.filter(|_| self.agent.shows_tasks()).ok_or_else(none)
    }
}

/// Removes the token and the credentials, by which a receiver knows that an update is real.
fn hide_secrets(config: &mut A2aPushConfig) {
    config.token = None;
    if let Some(authentication) = &mut config.authentication {
        authentication.credentials = None;
    }
}

/// Refuses a configuration that is too long to be kept as a fact (FACT-01), whatever the name of its task is.
fn check_size(config: &A2aPushConfig) -> Result<(), A2aError> {
    let most = Limits::default().fact_bytes_max - NAME_MAX;
    let config = A2aPushConfig { task_id: String::new(), ..config.clone() };
    if serde_json::to_vec(&config).is_ok_and(|json| json.len() <= most) {
        return Ok(());
    }
    let message = format!("a configuration has at most {most} bytes");
    Err(A2aError::invalid("taskPushNotificationConfig", message))
}

fn fact(id: &str, json: Vec<u8>) -> KeepFact {
    KeepFact::alone(FactKind::A2aPushConfig, id.into(), Value::json(json))
}

fn labels(task: &TaskId, id: &str) -> Labels {
    Labels::from([(FOLLOWS.into(), task.as_str().into()), (CONFIG.into(), id.into())])
}

/// The Task of a courier. It is lost and fails as often as need be.
fn courier(order: PushOrder) -> Result<CreateTask, Rejection> {
    let labels = labels(&order.task_id, &order.config.id);
    let json = serde_json::to_vec(&order);
    let json = json.map_err(|error| Rejection::invalid("url", error.to_string()))?;
    let retry_policy = RetryPolicy {
        max_attempts: Some(Limit::Unlimited),
        max_lost: Some(Limit::Unlimited),
        ..RetryPolicy::default()
    };
    let step = StepInput {
        handler: Some(HandlerName::new(COURIERS)?),
        input: Some(Value::json(json)),
        ..StepInput::bare("carry".parse()?)
    };
    Ok(CreateTask {
        title: "updates of a task".into(),
        default_worker_pool_id: Some(PoolId::new(COURIERS)?),
        dispatch: Some(Policy::Auto),
        completion: Some(Policy::Auto),
        visibility: Some(Visibility::Hidden),
        retry_policy: Some(Arc::new(retry_policy)),
        labels,
        steps: vec![step],
        ..CreateTask::default()
    })
}
