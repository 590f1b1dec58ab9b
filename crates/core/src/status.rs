//! Native statuses (U1, U2, U3): closed sets with stable names.

macro_rules! names {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        pub enum $name {
            $($(#[$vdoc])* #[serde(rename = $text)] $variant,)+
        }

        impl $name {
            /// Every value, in the order of the contract.
            pub const ALL: &'static [$name] = &[$($name::$variant,)+];

            /// The stable name.
            pub const fn as_str(self) -> &'static str {
                match self { $($name::$variant => $text,)+ }
            }

            /// The value with this stable name.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|v| v.as_str() == name)
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}
pub(crate) use names;

names! {
    /// Native status of a Task (TASK-01).
    TaskStatus {
        /// Being built; nothing runs.
        Draft = "draft",
        /// Nothing is ready yet.
        Pending = "pending",
        /// Some Step is ready, claimed or running.
        Running = "running",
        /// Stopped by the orchestrator.
        Blocked = "blocked",
        /// Paused by the orchestrator.
        Paused = "paused",
        /// Ended successfully.
        Completed = "completed",
        /// Ended with a reason code.
        Failed = "failed",
        /// Ended on request.
        Cancelled = "cancelled",
    }
}

impl TaskStatus {
    /// Whether the Task has ended for ever (TERM-18).
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }

    /// Whether Steps may be claimed and dispatched (TASK-12).
    pub const fn is_dispatchable(self) -> bool {
        matches!(self, Self::Pending | Self::Running)
    }
}

names! {
    /// How a Task ended: its terminal status, with failures divided as readers see them (N03 to N07).
    End {
        /// Ended successfully.
        Completed = "completed",
        /// Ended on request.
        Cancelled = "cancelled",
        /// Failed by a time limit.
        TimedOut = "timed_out",
        /// Failed because workers were lost.
        Lost = "lost",
        /// Failed otherwise.
        Failed = "failed",
    }
}

impl End {
    /// The native status.
    pub const fn status(self) -> TaskStatus {
        match self {
            Self::Completed => TaskStatus::Completed,
            Self::Cancelled => TaskStatus::Cancelled,
            Self::TimedOut | Self::Lost | Self::Failed => TaskStatus::Failed,
        }
    }

    /// The end by a native status and, for a failure, its kind; `None` for a live Task.
    pub fn of_status(status: TaskStatus, failed_as: Option<FailedAs>) -> Option<Self> {
        match status {
            TaskStatus::Completed => Some(Self::Completed),
            TaskStatus::Cancelled => Some(Self::Cancelled),
            TaskStatus::Failed => Some(match failed_as.unwrap_or(FailedAs::Failed) {
                FailedAs::TimedOut => Self::TimedOut,
                FailedAs::Lost => Self::Lost,
                FailedAs::Failed => Self::Failed,
            }),
            _ => None,
        }
    }

    /// The kind of failure that the native status does not show; `None` if there is nothing to add.
    pub const fn failed_as(self) -> Option<FailedAs> {
        match self {
            Self::TimedOut => Some(FailedAs::TimedOut),
            Self::Lost => Some(FailedAs::Lost),
            Self::Completed | Self::Cancelled | Self::Failed => None,
        }
    }
}

names! {
    /// How readers see a failed Task, by its reason code.
    FailedAs {
        /// `timed_out`.
        TimedOut = "timed_out",
        /// `lost`.
        Lost = "lost",
        /// Any other.
        Failed = "failed",
    }
}

impl FailedAs {
    /// The kind of failure for a reason code.
    pub fn of(code: Option<&str>) -> Self {
        match code {
            Some("timed_out") => Self::TimedOut,
            Some("lost") => Self::Lost,
            _ => Self::Failed,
        }
    }
}

names! {
    /// Native status of a Step (STEP-01).
    StepStatus {
        /// Waits for dependencies or a backoff.
        Pending = "pending",
        /// May be claimed.
        Ready = "ready",
        /// Held by an Attempt that has not started.
        Claimed = "claimed",
        /// Held by an Attempt at work.
        Running = "running",
        /// No worker holds it; it waits for the orchestrator.
        Blocked = "blocked",
        /// Done; a fact of history.
        Completed = "completed",
        /// Failed; final only when its Task is terminal.
        Failed = "failed",
        /// Cancelled for ever.
        Cancelled = "cancelled",
    }
}

impl StepStatus {
    /// Claimed or running: an Attempt is open (ATT-07).
    pub const fn is_held(self) -> bool {
        matches!(self, Self::Claimed | Self::Running)
    }

    /// Completed, failed or cancelled: left out of queries by default (QUERY-07).
    pub const fn is_settled(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }

    /// Not settled: a Task that fails or is cancelled ends it (TERM-08).
    pub const fn is_unfinished(self) -> bool {
        !self.is_settled()
    }
}

names! {
    /// What a blocked Step waits for (U2).
    WaitKind {
        /// An answer from a person.
        Input = "input",
        /// A permission or credential.
        Permission = "permission",
        /// A resource.
        Resource = "resource",
        /// Something outside the DAG.
        Dependency = "dependency",
        /// Anything else.
        Other = "other",
    }
}

names! {
    /// Status of an Attempt (2.4).
    AttemptStatus {
        /// Claimed, not started.
        Claimed = "claimed",
        /// At work.
        Running = "running",
        /// Over; has exactly one outcome.
        Ended = "ended",
    }
}

names! {
    /// How an Attempt ended (3.3).
    Outcome {
        /// Its Step is completed.
        Completed = "completed",
        /// Its Step failed by a report.
        Failed = "failed",
        /// Its Step is blocked.
        Blocked = "blocked",
        /// Cancelled.
        Cancelled = "cancelled",
        /// Its lease ran out.
        Lost = "lost",
        /// A time limit passed.
        TimedOut = "timed_out",
        /// Given back, or its Run ended without a final report.
        Abandoned = "abandoned",
    }
}

names! {
    /// State of a Run (2.3).
    RunState {
        /// Nothing claimed yet.
        Dispatched = "dispatched",
        /// Its Attempt is open.
        Active = "active",
        /// Over.
        Ended = "ended",
    }
}

names! {
    /// Why a Run ended (3.4).
    EndReason {
        /// Its Attempt ended by its own report.
        Completed = "completed",
        /// It claimed nothing.
        NoStepClaimed = "no_step_claimed",
        /// The worker declined it.
        Declined = "declined",
        /// Cancelled.
        Cancelled = "cancelled",
        /// A time limit passed.
        TimedOut = "timed_out",
        /// It ended without a final Step status.
        FinishedWithoutTerminalStepStatus = "finished_without_terminal_step_status",
        /// Its lease ran out.
        Lost = "lost",
        /// It gave its Step back.
        Released = "released",
        /// The orchestrator ended its Attempt.
        Revoked = "revoked",
        /// The Task ended.
        TaskTerminal = "task_terminal",
    }
}

names! {
    /// What a worker does that cannot renew the lease of its Step (LEASE-17).
    LeaseDoubt {
        /// It ends the handler when the lease may be over, so that nobody runs the Step twice.
        Stop = "stop",
        /// It goes on and reports when it can; the fencing token decides.
        Finish = "finish",
    }
}

names! {
    /// Who moves a Task forward: its orchestrator, or the scheduler (U4).
    Policy {
        /// The orchestrator.
        Manual = "manual",
        /// The scheduler, as principal `system`.
        Auto = "auto",
    }
}

names! {
    /// What an automatic Task does when it is failing (POL-05).
    OnFailure {
        /// It fails at once, and what runs is stopped.
        Stop = "stop",
        /// It gives out nothing more, and fails when nothing runs any more.
        Drain = "drain",
        /// It goes on, and fails when nothing can run any more.
        Finish = "finish",
    }
}

names! {
    /// Who sees a Task in listings (VIEW-10).
    Visibility {
        /// Shown first.
        Foreground = "foreground",
        /// Shown.
        Background = "background",
        /// Left out of user-facing listings.
        Internal = "internal",
        /// Left out of user-facing listings.
        Hidden = "hidden",
    }
}

names! {
    /// Whether a result has reached those who wait for it (PROG-07).
    DeliveryState {
        /// Not yet.
        Pending = "pending",
        /// Yes.
        Delivered = "delivered",
        /// On its way.
        Queued = "queued",
        /// It could not be delivered.
        Failed = "failed",
        /// Nobody is left to deliver to.
        ParentMissing = "parent_missing",
        /// Nobody waits.
        NotApplicable = "not_applicable",
    }
}

names! {
    /// What a recorded intent will do to the Task (U1).
    Intent {
        /// Cancel it.
        Cancel = "cancel",
        /// Fail it.
        Fail = "fail",
    }
}

names! {
    /// Role of a principal (P17).
    Role {
        /// Creates and steers Tasks.
        Orchestrator = "orchestrator",
        /// Claims and reports.
        Worker = "worker",
        /// No Task tools.
        SubAgent = "sub_agent",
        /// Reads and replays.
        Observer = "observer",
        /// The scheduler itself.
        System = "system",
    }
}

names! {
    /// Kind of an artifact (2.7).
    ArtifactKind {
        /// Text.
        Text = "text",
        /// Structured data.
        Data = "data",
        /// A file.
        File = "file",
        /// Standard output of a command.
        Stdout = "stdout",
        /// Standard error of a command.
        Stderr = "stderr",
        /// A report.
        Report = "report",
        /// Evidence.
        Evidence = "evidence",
        /// Only named here, stored elsewhere.
        External = "external",
    }
}

names! {
    /// State of an artifact (2.7).
    ArtifactState {
        /// It can be read.
        Available = "available",
        /// It is announced but cannot be read yet.
        Pending = "pending",
        /// It is gone.
        Missing = "missing",
    }
}

names! {
    /// Kind of a fact that a gateway keeps with the Task (FACT-01).
    FactKind {
        /// Where somebody wants to be told of changes: the last of a key counts, and null removes it.
        A2aPushConfig = "a2a_push_config",
        /// An envelope that the gateway has accepted: each is kept.
        MacpEnvelope = "macp_envelope",
    }
}

impl FactKind {
    /// Whether only the last fact of a key counts.
    pub const fn last_counts(self) -> bool {
        matches!(self, Self::A2aPushConfig)
    }

    /// Whether a Task takes facts of this kind after its end, too (TERM-21).
    pub const fn passes_end(self) -> bool {
        matches!(self, Self::A2aPushConfig)
    }
}

names! {
    /// What becomes of a child when its parent completes (REL-09).
    ParentClose {
        /// It goes on.
        Abandon = "abandon",
        /// It is cancelled.
        Cancel = "cancel",
    }
}

#[allow(clippy::derivable_impls)] // The macro takes no attribute for a default.
impl Default for ParentClose {
    fn default() -> Self {
        Self::Abandon
    }
}

names! {
    /// Kind of a relation (2.7).
    EdgeKind {
        /// To the Task that created this one.
        Parent = "parent",
        /// To a Task that this one created.
        Child = "child",
        /// This Task blocks the other.
        Blocks = "blocks",
        /// This Task is blocked by the other.
        BlockedBy = "blocked_by",
        /// Continues another Task.
        SourceTask = "source_task",
        /// Uses another Attempt's result.
        SourceAttempt = "source_attempt",
        /// A sub agent.
        SpawnedSubagent = "spawned_subagent",
        /// A conversation thread.
        AssignedThread = "assigned_thread",
        /// Produced an artifact (derived, REL-08).
        ProducedArtifact = "produced_artifact",
        /// Used an artifact (derived, REL-08).
        ConsumedArtifact = "consumed_artifact",
        /// Evidence.
        Evidence = "evidence",
        /// A new Task for an ended one (RETRY-12).
        RetryOf = "retry_of",
    }
}

names! {
    /// Status of a relation (REL-02).
    EdgeStatus {
        /// In force.
        Active = "active",
        /// No longer in force.
        Removed = "removed",
    }
}

names! {
    /// The state of an acceptance criterion (P22).
    AcceptanceState {
        /// Not judged.
        Unknown = "unknown",
        /// Met.
        Met = "met",
        /// Waived.
        Waived = "waived",
        /// Not met.
        Unmet = "unmet",
    }
}

names! {
    /// What kind of answer a completing report gives (CTX-01).
    ReplyKind {
        /// A message beside the output.
        Message = "message",
        /// A direct message instead of an artifact.
        Direct = "direct",
    }
}
