//! Retry policies: what their fields mean, and how a policy is filled in (RETRY-14).

use alloc::borrow::Cow;
use alloc::sync::Arc;
use core::fmt;
use core::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::record::{Backoff, RetryPolicy};
use crate::rules::Rules;
use crate::status::Policy;

/// A limit, as a policy names it: a number, or the word `unlimited` (RETRY-14).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit<T> {
    /// There is none.
    Unlimited,
    /// So many.
    Of(T),
}

/// The word for no limit.
const UNLIMITED: &str = "unlimited";

impl<T> Limit<T> {
    /// The number; `None` for no limit.
    pub fn number(self) -> Option<T> {
        match self {
            Self::Unlimited => None,
            Self::Of(number) => Some(number),
        }
    }
}

impl<T: Serialize> Serialize for Limit<T> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Unlimited => s.serialize_str(UNLIMITED),
            Self::Of(number) => number.serialize(s),
        }
    }
}

impl<'de, T: TryFrom<u64>> Deserialize<'de> for Limit<T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Either<T>(PhantomData<T>);
        impl<T: TryFrom<u64>> Visitor<'_> for Either<T> {
            type Value = Limit<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number, or \"unlimited\"")
            }
            fn visit_u64<E: Error>(self, number: u64) -> Result<Limit<T>, E> {
                let fits = T::try_from(number).map(Limit::Of);
                fits.map_err(|_| E::custom(format_args!("{number} is too large")))
            }
            fn visit_i64<E: Error>(self, number: i64) -> Result<Limit<T>, E> {
                let number = u64::try_from(number);
                self.visit_u64(number.map_err(|_| E::custom("a limit is not negative"))?)
            }
            fn visit_str<E: Error>(self, word: &str) -> Result<Limit<T>, E> {
                match word {
                    UNLIMITED => Ok(Limit::Unlimited),
                    other => Err(E::invalid_value(serde::de::Unexpected::Str(other), &self)),
                }
            }
        }
        d.deserialize_any(Either(PhantomData))
    }
}

impl<T: JsonSchema> JsonSchema for Limit<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        alloc::format!("Limit_of_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [generator.subschema_for::<T>(), { "const": UNLIMITED }] })
    }
}

/// The fields of a [`Backoff`] that a policy gives; the others come from its default (RETRY-14).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BackoffFields {
    /// Before the first retry, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_ms: Option<u64>,
    /// Growth from one retry to the next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub factor: Option<f64>,
    /// Longest wait, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_ms: Option<u64>,
    /// Share of the wait that is random, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<f64>,
}

impl BackoffFields {
    /// The whole backoff, with fields that are not given from another.
    pub fn filled(&self, from: &Backoff) -> Backoff {
        Backoff {
            initial_ms: self.initial_ms.unwrap_or(from.initial_ms),
            factor: self.factor.unwrap_or(from.factor),
            max_ms: self.max_ms.unwrap_or(from.max_ms),
            jitter: self.jitter.unwrap_or(from.jitter),
        }
    }
}

impl From<Backoff> for BackoffFields {
    fn from(whole: Backoff) -> Self {
        Self {
            initial_ms: Some(whole.initial_ms),
            factor: Some(whole.factor),
            max_ms: Some(whole.max_ms),
            jitter: Some(whole.jitter),
        }
    }
}

impl RetryPolicy {
    /// The default of a Task by its `completion` at creation (RETRY-02, RETRY-14).
    pub fn of_completion(completion: Policy) -> Self {
        let (max_attempts, max_lost) = match completion {
            Policy::Auto => (Limit::Of(5), Limit::Of(3)),
            Policy::Manual => (Limit::Of(1), Limit::Unlimited),
        };
        let backoff = Some(Backoff::standard().into());
        let (max_attempts, max_lost) = (Some(max_attempts), Some(max_lost));
        Self { max_attempts, max_lost, backoff, ..Self::default() }
    }

    /// The policy of a new Task (RETRY-14); `None`: it is one of rules 1 without a policy (RETRY-01).
    pub fn of_task(
        given: Option<&Arc<Self>>,
        completion: Policy,
        rules: Rules,
    ) -> Option<Arc<Self>> {
        let policy = match (rules, given) {
            (Rules::First, Some(given)) => given.in_first_rules(),
            (Rules::First, None) if completion == Policy::Auto => Self::automatic(),
            (Rules::First, None) => return None,
            (Rules::Second, Some(given)) => given.filled(&Self::of_completion(completion)),
            (Rules::Second, None) => Self::of_completion(completion),
        };
        Some(Arc::new(policy))
    }

    /// The policy of a Step as its Task stores it: as it was given, but for Tasks of rules 1.
    pub fn of_step(self: Arc<Self>, rules: Rules) -> Arc<Self> {
        match rules {
            Rules::First => Arc::new(self.in_first_rules()),
            Rules::Second => self,
        }
    }

    /// This policy, with the fields that it does not give from another (RETRY-14).
    #[must_use]
    pub fn filled(&self, from: &Self) -> Self {
        let backoff = match &self.backoff {
            Some(own) => Some(own.filled(&from.backoff()).into()),
            None => from.backoff.clone(),
        };
        Self {
            max_attempts: self.max_attempts.or(from.max_attempts),
            max_lost: self.max_lost.or(from.max_lost),
            backoff,
            non_retryable: self.non_retryable.clone().or_else(|| from.non_retryable.clone()),
            schedule_to_start_ms: self.schedule_to_start_ms.or(from.schedule_to_start_ms),
            start_to_close_ms: self.start_to_close_ms.or(from.start_to_close_ms),
            schedule_to_close_ms: self.schedule_to_close_ms.or(from.schedule_to_close_ms),
            blocked_ms: self.blocked_ms.or(from.blocked_ms),
            cancel_grace_ms: self.cancel_grace_ms.or(from.cancel_grace_ms),
            heartbeat_ms: self.heartbeat_ms.or(from.heartbeat_ms),
            on_lease_doubt: self.on_lease_doubt.or(from.on_lease_doubt),
            accept_late: self.accept_late.or(from.accept_late),
        }
    }

    /// The policy as a Task of rules 1 stores it, in which no number means no limit (RETRY-14), and which
    /// has no field of POL-12.
    #[must_use]
    pub fn in_first_rules(&self) -> Self {
        fn number<T>(limit: Option<Limit<T>>) -> Option<Limit<T>> {
            limit.and_then(Limit::number).map(Limit::Of)
        }
        Self {
            max_attempts: number(self.max_attempts),
            max_lost: number(self.max_lost),
            backoff: Some(self.backoff().into()),
            non_retryable: self.non_retryable.clone().filter(|codes| !codes.is_empty()),
            schedule_to_start_ms: number(self.schedule_to_start_ms),
            start_to_close_ms: number(self.start_to_close_ms),
            schedule_to_close_ms: None,
            blocked_ms: None,
            cancel_grace_ms: None,
            heartbeat_ms: self.heartbeat_ms,
            on_lease_doubt: self.on_lease_doubt,
            accept_late: self.accept_late,
        }
    }

    /// The policy of a Task of rules 1, in which no number means no limit, in words that mean the
    /// same in every Task (RETRY-12).
    #[must_use]
    pub fn spelled_out(&self) -> Self {
        Self {
            max_attempts: self.max_attempts.or(Some(Limit::Unlimited)),
            max_lost: self.max_lost.or(Some(Limit::Unlimited)),
            backoff: Some(self.backoff().into()),
            non_retryable: Some(self.non_retryable.clone().unwrap_or_default()),
            schedule_to_start_ms: self.schedule_to_start_ms.or(Some(Limit::Unlimited)),
            start_to_close_ms: self.start_to_close_ms.or(Some(Limit::Unlimited)),
            schedule_to_close_ms: None,
            blocked_ms: None,
            cancel_grace_ms: None,
            heartbeat_ms: self.heartbeat_ms,
            on_lease_doubt: self.on_lease_doubt,
            accept_late: self.accept_late,
        }
    }

    /// The waiting time between attempts.
    pub fn backoff(&self) -> Backoff {
        let given = self.backoff.clone().unwrap_or_default();
        given.filled(&Backoff::default())
    }
}
