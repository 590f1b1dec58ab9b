"""The command line of MCP Inspector, in both eras, over HTTP and over standard streams.

python3 tests/outsiders/mcp_inspector.py http://127.0.0.1:7677 TENURE NODE INSPECTOR
"""
import json
import subprocess
import sys
from pathlib import Path
from uuid import uuid4


class Inspector:
    def __init__(self, node, package, *target):
        self.command = (node, Path(package) / "clients" / "launcher" / "build" / "index.js", "--cli", *target)

    def ask(self, method, *more):
        command = [str(word) for word in (*self.command, "--method", method, *more)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode:
            raise AssertionError(f"{method} {more}: {done.returncode}\n{done.stdout}\n{done.stderr}")
        return json.loads(done.stdout)

    def call(self, tool, **arguments):
        texts = {name: it if isinstance(it, str) else json.dumps(it) for name, it in arguments.items()}
        pairs = [f"{name}={text}" for name, text in texts.items()]
        result = self.ask("tools/call", "--tool-name", tool, *(["--tool-arg", *pairs] if pairs else []))
        assert not result.get("isError"), result
        return result["structuredContent"]


def run(inspector):
    tools = inspector.ask("tools/list", "--strict")["tools"]  # Fails where the schema of a tool is not portable.
    assert len(tools) >= 16, tools
    assert inspector.ask("prompts/list")["prompts"]
    assert inspector.ask("resources/templates/list")["resourceTemplates"]
    task = f"inspector-{uuid4()}"
    value = {"content_type": "application/json", "data": json.dumps({"name": "Ann"})}
    steps = [{"step_id": "a", "title": "a", "handler": "greet", "input": value}]
    inspector.call("task_create", task_id=task, title="From the Inspector", dispatch="auto",
                   completion="auto", default_worker_pool_id="kit", steps=steps)
    assert inspector.call("wait", task_id=task, until="end")["ended"]
    assert inspector.call("task_get", task_id=task)["native_status"] == "completed"


def main(url, tenure, node, package):
    for era in ("legacy", "modern"):
        at = (f"{url}/mcp", "--transport", "http", "--protocol-era", era)
        run(Inspector(node, package, *at))
        print(f"  over HTTP, {era}: lists and a task", flush=True)
    streams = Inspector(node, package, tenure, "mcp", "--http", url)
    assert len(streams.ask("tools/list")["tools"]) >= 16
    print("  over standard streams: the tools", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
