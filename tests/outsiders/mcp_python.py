"""The client of `mcp` for Python as an orchestrator: over HTTP in the newest version and in an older one, and over the
standard streams of `tenure mcp`. It checks what comes against the schemas of the protocol and of each tool.

python3 tests/outsiders/mcp_python.py http://127.0.0.1:7677 TENURE
"""
import asyncio
import json
import sys
from typing import Literal
from uuid import uuid4

from mcp import Client, StdioServerParameters
from mcp.client.extension import ClientExtension, ResultClaim
from mcp_types import CallToolResult, ElicitResult, Request, RequestParams, Result

TOOLS = {
    "task_template", "task_create", "task_get", "task_list", "task_query_steps", "task_update", "task_update_step",
    "dispatch_worker", "task_complete", "task_fail", "task_cancel", "explain", "inbox", "answer", "board", "wait",
}
TASKS = "io.modelcontextprotocol/tasks"


class Orchestrator:
    """A Task from its creation to its end, by tools alone. Each tool is called at least once."""

    def __init__(self, client):
        self.client, self.task, self.called = client, f"mcp-{uuid4()}", set()

    async def call(self, name, is_refused=False, **arguments):
        self.called.add(name)
        result = await self.client.call_tool(name, arguments)
        assert result.is_error == is_refused, (name, result)
        assert isinstance(result.structured_content, dict), (name, result)
        return result.structured_content

    async def on_task(self, name, **arguments):
        return await self.call(name, task_id=self.task, **arguments)

    async def status(self):
        steps = (await self.on_task("task_query_steps", include_terminal_steps=True))["steps"]
        return {step["step_id"]: step["status"] for step in steps}

    async def run(self):
        template = await self.call("task_template")
        assert template["text"], template
        refused = await self.call("task_get", is_refused=True, task_id=self.task)
        assert refused["error"]["code"] == "task_not_found", refused
        await self.create()
        await self.steer()
        await self.answer()
        await self.close()
        await self.end_others()
        assert self.called == TOOLS, TOOLS - self.called

    async def create(self):
        first, ask = step("first", "echo first"), step("ask", "echo asked", "first")
        made = await self.on_task("task_create", title="By hand", dispatch="manual", completion="manual",
                                  steps=[first, ask], command_id="create")
        again = await self.on_task("task_create", title="By hand", dispatch="manual", completion="manual",
                                   steps=[first, ask], command_id="create")
        assert made["version"] == again["version"], (made, again)
        whole = await self.on_task("explain")
        why = await self.on_task("explain", step_id="ask")
        assert whole != why, why
        listed = (await self.call("task_list"))["tasks"]
        assert self.task in [task["task_id"] for task in listed], listed

    async def steer(self):
        """A worker gets the one step that is in its scope; what is left is changed meanwhile."""
        ran = await self.on_task("dispatch_worker", **scope("first"))
        assert ran["run_end"]["end_reason"] == "completed", ran
        assert await self.status() == {"first": "completed", "ask": "ready"}
        more = step("more", "echo more", "first")
        patched = await self.on_task("task_update", operations=[{"op": "add_step", "step": more}])
        assert patched["spec_version"], patched
        await self.on_task("task_update_step", step_id="more", status="completed", result_summary="by hand")

    async def answer(self):
        """Somebody has to say something before the last step runs."""
        reason = {"code": "input_required", "message": "Is that right?"}
        await self.on_task("task_update_step", step_id="ask", status="blocked", wait_kind="input", reason=reason)
        waited = await self.on_task("wait", until="settled", seconds=20)
        assert waited["reached"] and not waited["ended"], waited
        waiting = (await self.on_task("inbox"))["waiting"]
        assert [(it["step_id"], it["tool"]) for it in waiting] == [("ask", "answer")], waiting
        await self.on_task("answer", step_id="ask", text="it is")
        ran = await self.on_task("dispatch_worker", **scope("ask"))
        assert ran["run_end"]["end_reason"] == "completed", ran
        assert set((await self.status()).values()) == {"completed"}

    async def close(self):
        await self.on_task("task_complete", result_summary="done by hand")
        board = await self.call("board", task_ids=[self.task])
        assert "By hand" in board["text"], board
        ended = await self.on_task("task_get")
        assert (ended["native_status"], ended["result_summary"]) == ("completed", "done by hand"), ended
        assert (await self.on_task("wait", until="end"))["ended"]

    async def end_others(self):
        for tool, status, more in (("task_fail", "failed", {"reason": {"code": "no", "message": "No."}}),
                                   ("task_cancel", "cancelled", {})):
            task = f"{self.task}-{status}"
            await self.call("task_create", task_id=task, title=status, dispatch="manual", steps=[step("a", "true")])
            await self.call(tool, task_id=task, **more)
            assert (await self.call("task_get", task_id=task))["native_status"] == status


def step(step_id, command, *after):
    value = {"content_type": "application/json", "data": json.dumps({"run": command})}
    return {"step_id": step_id, "title": step_id, "summary": "", "handler": "exec", "input": value,
            "depends_on_step_ids": list(after)}


def scope(*steps):
    return {"worker_pool_id": "default", "allowed_step_ids": steps, "wait": True}


async def read_all(client, task):
    """Tools, resources and prompts, as far as they can be read without knowing more than a task."""
    tools = (await client.list_tools()).tools
    missing = TOOLS - {tool.name for tool in tools}
    assert not missing, missing
    for tool in tools:
        assert tool.description and tool.input_schema["type"] == "object", tool
    templates = (await client.list_resource_templates()).resource_templates
    assert templates, "there are addresses of tasks"
    for resource in (await client.list_resources()).resources:
        assert (await client.read_resource(resource.uri)).contents, resource
    prompts = (await client.list_prompts()).prompts
    assert prompts, "there are prompts"
    for prompt in prompts:
        given = {it.name: task if it.name == "task_id" else "Ship it" for it in prompt.arguments or []}
        assert (await client.get_prompt(prompt.name, given)).messages, prompt


class CreateTask(Result):
    """What a call answers that became a task."""

    result_type: Literal["task"] = "task"
    task_id: str
    status: str
    created_at: str
    last_updated_at: str
    ttl_ms: int | None
    poll_interval_ms: int | None = None


class OneTask(RequestParams):
    task_id: str


class Answers(OneTask):
    input_responses: dict


class Tasks(ClientExtension):
    """The extension Tasks, as far as it takes to wait for a result and to answer on the way."""

    identifier = TASKS

    def __init__(self):
        self.seen = []

    def claims(self):
        return [ResultClaim(result_type="task", model=CreateTask, resolve=self.resolve)]

    async def resolve(self, made, context):
        while True:
            task = await self.send(context, "tasks/get", OneTask(task_id=made.task_id))
            self.seen.append(task.status)
            if task.status == "input_required":
                given = {key: {"action": "accept", "content": {"confirm": True}} for key in task.inputRequests}
                answers = Answers(task_id=made.task_id, input_responses=given)
                await self.send(context, "tasks/update", answers)
            elif task.status != "working":
                return CallToolResult.model_validate(task.result)
            await asyncio.sleep(0.1)

    @staticmethod
    async def send(context, method, params):
        return await context.session.send_request(OfTask(method=method, params=params), AnyResult)


class OfTask(Request):
    name_param = "taskId"


class AnyResult(Result, extra="allow"):
    status: str | None = None


async def use_offered(url):
    """A tool whose work is a task, by a client that knows tasks and by one that does not."""
    tasks = Tasks()
    async with Client(url, extensions=[tasks], elicitation_callback=confirm) as client:
        result = await client.call_tool("confirm_delete", {"filename": "b.txt"})
        assert said(result) == "deleted", result
        assert tasks.seen[-1] == "completed" and "input_required" in tasks.seen, tasks.seen
        failed = await client.call_tool("failing_job", {})
        assert failed.is_error, failed
    async with Client(url) as client:
        assert said(await client.call_tool("greet", {"name": "Ann"})) == "Hello, Ann!"


async def confirm(_context, _params):
    return ElicitResult(action="accept", content={"confirm": True})


def said(result):
    assert not result.is_error, result
    return result.content[0].text


async def main(url, tenure):
    at, streams = f"{url}/mcp", StdioServerParameters(command=tenure, args=["mcp", "--http", url])
    for server, mode, version in ((at, "auto", "2026-07-28"), (at, "legacy", "2025-11-25"),
                                  (streams, "auto", "2026-07-28"), (streams, "legacy", "2025-11-25")):
        async with Client(server, mode=mode) as client:
            assert client.protocol_version == version, client.protocol_version
            orchestrator = Orchestrator(client)
            await orchestrator.run()
            await read_all(client, orchestrator.task)
        print(f"  {'over HTTP' if server == at else 'over standard streams'}, {version}: every tool", flush=True)
    await use_offered(at)
    print("  offered tools, with the extension Tasks and without", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
