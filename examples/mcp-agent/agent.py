#!/usr/bin/env python3
"""An agent that works on a step by MCP alone, as a model in a host does. A worker starts it for each run:

    tenure worker --http http://127.0.0.1:7677 --pool models --run-command 'python3 examples/mcp-agent/agent.py'

It has no login. It starts `tenure mcp`, which finds the socket of the worker in TENURE_RUN_SOCKET, looks at the steps
that the run may touch, claims one, reports, and completes it. It needs nothing but the standard library.
"""

import itertools
import json
import os
import subprocess
import sys

VERSION = "2026-07-28"


class Refused(Exception):
    """A tool has refused: the code says why."""


class Tools:
    """The tools of the run, of a server on the streams of a process: each line is a message."""

    def __init__(self, program):
        self.process = subprocess.Popen(
            [program, "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.ids = itertools.count(1)

    def call(self, name, **arguments):
        """Calls a tool, and returns its structured content."""
        number = next(self.ids)
        meta = {
            "io.modelcontextprotocol/protocolVersion": VERSION,
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        params = {"name": name, "arguments": arguments, "_meta": meta}
        message = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
        print(json.dumps(message), file=self.process.stdin, flush=True)
        for line in self.process.stdout:
            answer = json.loads(line)
            if answer.get("id") == number:
                content = answer["result"]["structuredContent"]
                if answer["result"].get("isError"):
                    raise Refused(content["error"]["code"])
                return content
        raise SystemExit("the server has ended")


def step_of(tools):
    """The step in hand, or one that is claimed now; none: there is nothing to do."""
    for step in tools.call("task_get")["steps"]:
        if step.get("claimed_by_run_id") == os.environ["TENURE_RUN_ID"]:
            return step
    for step in tools.call("task_query_steps", statuses=["ready"])["steps"]:
        try:
            return tools.call("task_claim_step", step_id=step["step_id"])["step"]
        except Refused as refused:
            print(step["step_id"], "is not for this run:", refused)
    return None


def main(program):
    tools = Tools(program)
    step = step_of(tools)
    if step is None:
        return
    print("works on", step["step_id"])
    tools.call("task_update_step", progress={"percent": 50, "summary": "half of it"})
    output = {"data": json.dumps({"title": step["title"]})}
    tools.call("task_update_step", status="completed", output=output)


if __name__ == "__main__":
    main(*sys.argv[1:] or ["tenure"])
