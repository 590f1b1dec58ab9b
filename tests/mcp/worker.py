"""The worker behind tools.toml. The kit says what it expects of each tool in the descriptions of its scenarios.

TENURE_URL=http://… python3 tests/mcp/worker.py
"""
import importlib.util
import json
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("http_worker", ROOT / "examples/http-worker.py")
example = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(example)

ANSWER = "data:text/plain;charset=utf-8;answer="


class Question(Exception):
    """What a tool asks: the Step is blocked with these questions."""

    def __init__(self, *questions):
        super().__init__(questions)
        self.questions = questions


def question(prompt, field, kind="string"):
    schema = {"type": "object", "properties": {field: {"type": kind}}, "required": [field]}
    return {"prompt": prompt, "schema": schema}


def greet(given, answers, stopped):
    return f"Hello, {given.get('name', 'you')}!"


def slow_compute(given, answers, stopped):
    stopped.wait(given.get("seconds", 1))
    return f"{given.get('label')} is computed"


def failing_job(given, answers, stopped):
    stopped.wait(1)
    raise ValueError("this job always fails")


def confirm_delete(given, answers, stopped):
    if not answers:
        raise Question(question(f"Delete {given.get('filename')}?", "confirm", "boolean"))
    return "deleted" if json.loads(answers[-1])["confirm"] else "kept"


def multi_input(given, answers, stopped):
    if not answers:
        raise Question(question("What is your name?", "name"), question("Are you sure?", "confirm", "boolean"))
    return f"heard {', '.join(answers)}"


def test_tool_with_task(given, answers, stopped):
    if not answers:
        raise Question(question("What is your name?", "name"))
    return f"Hello, {json.loads(answers[-1])['name']}!"


TOOLS = {tool.__name__: tool for tool in (
    greet, slow_compute, failing_job, confirm_delete, multi_input, test_tool_with_task)}


class KitWorker(example.Worker):
    def work(self, claim):
        if claim["step"]["handler"] == "protocol_error_job":
            reason = {"code": "jsonrpc_error", "message": "out of order", "details": {"code": -32603}}
            return {"status": "failed", "reason": reason}
        given = json.loads(claim["step"].get("input", {"data": "{}"})["data"])
        said = [ref for ref in claim.get("input_refs", []) if ref.startswith(ANSWER)]
        answers = [unquote(ref.split(",", 1)[1]) for ref in said]
        try:
            text = TOOLS[claim["step"]["handler"]](given, answers, claim["stopped"])
        except Question as asked:
            return blocked(asked.questions)
        return {"status": "completed", "output": {"content_type": "text/plain", "data": text}}


def blocked(questions):
    details = questions[0] if len(questions) == 1 else {"questions": questions}
    reason = {"code": "input_required", "message": questions[0]["prompt"], "details": details}
    return {"status": "blocked", "wait_kind": "input", "reason": reason}


if __name__ == "__main__":
    example.HANDLERS = TOOLS | {"protocol_error_job": None}
    KitWorker("kit", "16").run()
