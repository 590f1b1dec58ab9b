#!/usr/bin/env python3
"""An orchestrator that knows Tenure by MCP alone, as a model in a host does.

It starts the server that its arguments name, by default `tenure mcp` on a directory of its own, and drives a task
to its end with tools: it reads the guide, creates, dispatches workers with a scope, patches, asks a person, answers
and completes. It needs nothing but the standard library.

    python3 examples/mcp-orchestrator/main.py tenure mcp --data ./demo
"""

import itertools
import json
import subprocess
import sys

VERSION = "2026-07-28"
TASK = "mcp-report"


class Refused(Exception):
    """A tool has refused: what to do next is in the error."""


class Server:
    """A server of MCP on the streams of a process: each line is a message."""

    def __init__(self, command):
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.ids = itertools.count(1)

    def ask(self, method, **params):
        """Sends a request, and returns its result. What the server tells meanwhile is printed."""
        params["_meta"] = {
            "io.modelcontextprotocol/protocolVersion": VERSION,
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": "mcp-orchestrator", "version": "1"},
            "progressToken": method,
        }
        number = next(self.ids)
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        print(json.dumps(message), file=self.process.stdin, flush=True)
        for line in self.process.stdout:
            answer = json.loads(line)
            if answer.get("id") == number:
                if "error" in answer:
                    raise Refused(answer["error"]["message"])
                return answer["result"]
            if answer.get("method") == "notifications/progress":
                print("  progress:", answer["params"]["message"])
        raise SystemExit("the server has ended")

    def tool(self, name, **arguments):
        """Calls a tool, and returns its structured content."""
        result = self.ask("tools/call", name=name, arguments=arguments)
        content = result["structuredContent"]
        if result.get("isError"):
            error = content["error"]
            raise Refused(f"{name}: {error['code']}: {error['message']} ({error['next']})")
        return content

    def close(self):
        """Closes its input, which ends it, and returns how it has ended."""
        self.process.stdin.close()
        return self.process.wait(timeout=20)


def step(step_id, command, *after):
    """A step that runs a command."""
    return {
        "step_id": step_id,
        "title": step_id.capitalize(),
        "handler": "exec",
        "input": {"data": json.dumps({"run": command}), "content_type": "application/json"},
        "depends_on_step_ids": list(after),
    }


def run(server, *steps):
    """Sends a worker for each of these steps, which may touch no other, and waits until they are done."""
    for step_id in steps:
        run = server.tool(
            "dispatch_worker",
            task_id=TASK,
            worker_pool_id="default",
            allowed_step_ids=[step_id],
            wait=True,
        )
        print("run of", step_id, "ended:", run["run_end"]["end_reason"])


def main(command):
    server = Server(command)
    known = server.ask("server/discover")
    print("speaks", ", ".join(known["supportedVersions"]))
    print("tools:", ", ".join(tool["name"] for tool in server.ask("tools/list")["tools"]))
    print(server.tool("task_template")["text"].splitlines()[0])

    # Nothing of it runs by itself: this program gives out the steps, and ends the task.
    steps = [step("collect", "echo 3 > rows.txt"), step("write", "cat rows.txt", "collect")]
    server.tool("task_create", task_id=TASK, title="A report", steps=steps)
    run(server, "collect")

    # The plan changes: a person has to agree before what is written is printed.
    task = server.tool("task_get", task_id=TASK)
    server.tool(
        "task_update",
        task_id=TASK,
        expected_spec_version=task["spec_version"],
        operations=[{"op": "add_step", "step": step("publish", "echo published", "write")}],
    )
    server.tool(
        "task_update_step",
        task_id=TASK,
        step_id="publish",
        status="blocked",
        wait_kind="input",
        reason={"message": "Is the report good enough to publish?"},
    )
    run(server, "write")

    waiting = server.tool("wait", task_id=TASK, until="settled", seconds=20)
    assert waiting["reached"] and not waiting["ended"], waiting
    [question] = server.tool("inbox")["waiting"]
    print("asked:", question["reason"]["message"])
    server.tool(question["tool"], **{**question["arguments"], "text": "Yes."})
    run(server, "publish")

    try:
        server.tool("task_update", task_id=TASK, operations=[{"op": "delete_step", "step_id": "collect"}])
    except Refused as refused:
        print("refused:", refused)
    print(server.tool("board", task_ids=[TASK])["text"].splitlines()[0])
    ended = server.tool("task_complete", task_id=TASK, result_summary="published")
    print("ended", ended["task"]["native_status"])
    return server.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["tenure", "mcp", "--data", "mcp-demo"]))
