//! The table of tools: what a model is told of each. Everything else comes from the catalog of operations.

/// A tool.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ToolEntry {
    /// Its name: that of the operation, without the dot that some hosts do not take.
    pub(crate) name: &'static str,
    /// The operation of the catalog that it is, or whose answer it is made of: the roles that have the one have the
    /// other.
    pub(crate) operation: &'static str,
    /// How it is carried out.
    pub(crate) does: ToolWork,
    /// For people.
    pub(crate) title: &'static str,
    /// For models.
    pub(crate) about: &'static str,
    /// Whether it may end or remove something.
    pub(crate) is_destructive: bool,
    /// Whether the same call once more changes nothing.
    pub(crate) is_idempotent: bool,
}

/// How a tool is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ToolWork {
    /// It is the operation.
    Operation,
    /// `explain` or `explain_task`.
    Explain,
    /// What waits for somebody, with the call that answers it.
    Inbox,
    /// Tasks in lines.
    Board,
    /// Answers a Step that asked for input.
    Answer,
    /// Waits for a Task.
    Wait,
}

const fn operation(name: &'static str, title: &'static str, about: &'static str) -> ToolEntry {
    let does = ToolWork::Operation;
    ToolEntry {
        name,
        operation: name,
        does,
        title,
        about,
        is_destructive: false,
        is_idempotent: false,
    }
}

impl ToolEntry {
    const fn destructive(self) -> Self {
        Self { is_destructive: true, ..self }
    }

    const fn idempotent(self) -> Self {
        Self { is_idempotent: true, ..self }
    }

    const fn doing(self, does: ToolWork, operation: &'static str) -> Self {
        Self { does, operation, ..self }
    }
}

/// The tools, in the order in which they are listed.
pub(crate) const TOOLS: [ToolEntry; 16] = [
    operation(
        "task_template",
        "How to write a task",
        "Returns the guide to writing a task: how to cut work into steps, and what each field is for. Read it once \
         before the first task_create.",
    ),
    operation(
        "task_create",
        "Create a task",
        "Creates a task: a graph of steps that workers do, which survives crashes and restarts. Without dispatch and \
         completion set to \"auto\" nothing runs by itself: you send workers with dispatch_worker and end the task \
         with task_complete. With \"auto\" steps run as soon as their dependencies are done. Give a task_id or an \
         idempotency_key, so that a repeated call does not make a second task.",
    ),
    operation(
        "task_get",
        "Read a task",
        "Reads a whole task: status, steps, runs, attempts, artifacts, and its version. A task that is too long for \
         the answer comes without its lists; task_query_steps reads its steps in pages. For a short overview use \
         board.",
    ),
    operation(
        "task_list",
        "List tasks",
        "Lists the tasks of the session, live ones by default. Filter by statuses or labels; include_terminal also \
         lists those that have ended. Go on with offset = next_offset.",
    ),
    operation(
        "task_query_steps",
        "Read steps",
        "Reads the steps of a task in pages, those that are not finished by default. Filter by statuses; \
         include_terminal_steps also reads finished ones. Go on with offset = next_offset.",
    ),
    operation(
        "task_update",
        "Change a task",
        "Changes a live task: adds, edits, cancels, reopens or deletes steps, changes dependencies, blocks or reopens \
         the task, edits its fields. All operations take effect, or none. Give expected_spec_version from your last \
         reading to be refused if another orchestrator has changed the task meanwhile.",
    )
    .destructive(),
    operation(
        "task_update_step",
        "Settle a step yourself",
        "Settles a step in place of a worker: completed with a result, failed with a reason, cancelled, blocked, or \
         pending again. Only for steps that no worker holds.",
    )
    .destructive(),
    operation(
        "dispatch_worker",
        "Send a worker",
        "Gives out a run: the licence for one worker of a pool to claim one ready step. allowed_step_ids limits the \
         run to these steps, and the worker can touch no other. With wait the answer comes when the run has ended. \
         Needed only for tasks whose dispatch is manual.",
    ),
    operation(
        "task_complete",
        "Complete a task",
        "Completes a task whose required steps are all completed. Only for tasks whose completion is manual, and \
         final: an ended task never changes again.",
    )
    .idempotent(),
    operation(
        "task_fail",
        "Fail a task",
        "Ends a task as failed, with a reason. Workers are told to stop first, and the answer comes when they have; \
         with wait set to false it comes at once. Final.",
    )
    .destructive()
    .idempotent(),
    operation(
        "task_cancel",
        "Cancel a task",
        "Cancels a task. Workers are told to stop first, and the answer comes when they have; with wait set to false \
         it comes at once. Final. Nothing else cancels a task: not the end of a call, and not the end of this \
         conversation.",
    )
    .destructive()
    .idempotent(),
    operation(
        "explain",
        "Explain why a step waits",
        "Says why a step does not run, the most decisive reason first, and which operations would change that. \
         Without step_id it explains all steps of the task, in groups.",
    )
    .doing(ToolWork::Explain, "explain"),
    operation(
        "inbox",
        "What waits for somebody",
        "Lists what waits for a person or for you, in all tasks of the session: questions of steps, permissions, \
         failed steps, tasks to complete. Each entry names the tool and the arguments that answer it.",
    )
    .doing(ToolWork::Inbox, "task_views"),
    operation(
        "answer",
        "Answer a question",
        "Answers a step that asked for input or permission: the step goes on, and its next attempt reads the text.",
    )
    .doing(ToolWork::Answer, "task_update"),
    operation(
        "board",
        "Tasks in short",
        "Summarises tasks in few lines of text: what is blocked, what runs, what is ready, what ended lately. The \
         cheapest way to see where things stand.",
    )
    .doing(ToolWork::Board, "task_board_summary"),
    operation(
        "wait",
        "Wait for a task",
        "Waits until a task has changed, has ended, or needs somebody, and answers with the task in short. The wait \
         is bounded; if the time is over, reached is false, and you call it again. Prefer it to polling.",
    )
    .doing(ToolWork::Wait, "task_get"),
];
