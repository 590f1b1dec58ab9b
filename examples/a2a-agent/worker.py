"""The worker of agents that speak A2A, in the standard library alone: docs/a2a.md. It does what the first word of a
message says, and is examples/http-worker.py otherwise.

tenure dev --agents examples/a2a-agent/agents.toml
TENURE_URL=http://127.0.0.1:7677 python3 examples/a2a-agent/worker.py
"""
import importlib.util
import json
import pathlib
import sys
from urllib import parse

EXAMPLE = pathlib.Path(__file__).parents[1] / "http-worker.py"


def load(path):
    spec = importlib.util.spec_from_file_location("http_worker", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


http_worker = load(EXAMPLE)
http_worker.HANDLERS = {"help": None}  # What it joins with; `work` below does it.


def text_of(message):
    return "\n".join(part["text"] for part in message["parts"] if "text" in part)


def answer_in(claim):
    """The text of the last answer to a question of this step."""
    for reference in reversed(claim.get("input_refs", [])):
        if reference.startswith("data:"):
            data = parse.unquote(reference.partition(",")[2])
            return text_of(json.loads(data))
    return None


def completed(text):
    return {"status": "completed", "output": {"content_type": "text/plain", "data": text}}


class Helper(http_worker.Worker):
    def work(self, claim):
        message = json.loads(claim["step"]["input"]["data"])["message"]
        verb, _, rest = text_of(message).partition(" ")
        return getattr(self, f"do_{verb}", self.do_say)(claim, rest)

    def do_say(self, claim, text):
        return completed(text)

    def do_ask(self, claim, question):
        answer = answer_in(claim)
        if answer is not None:
            return completed(f"You said {answer}.")
        reason = {"code": "input_required", "message": question}
        return {"status": "blocked", "wait_kind": "input", "reason": reason}

    def do_login(self, claim, _):  # Credentials come on another way: what is said here stays in the log.
        if answer_in(claim) is not None:
            return completed("Welcome.")
        reason = {"code": "auth_required", "message": "Log in, and tell me when you have.",
                  "details": {"url": "https://example.org/login"}}
        return {"status": "blocked", "wait_kind": "permission", "reason": reason}

    def do_write(self, claim, title):
        self.tell(claim, {"progress": {"summary": "I am looking for words."}})
        poem = {"artifact_id": f"poem-{claim['attempt_id']}", "name": title, "kind": "text",
                "media_type": "text/plain", "data": "Roses are red.", "state": "available"}
        self.tell(claim, {"artifacts": [poem]})
        return completed("done")

    def do_reply(self, claim, text):
        return completed(text) | {"reply": "direct"}

    def do_fail(self, claim, why):
        return {"status": "failed", "reason": {"code": "broken", "message": why}}

    def do_reject(self, claim, why):
        return {"status": "failed", "reason": {"code": "rejected", "message": why, "retryable": False}}

    def do_wait(self, claim, _):
        claim["stopped"].wait()
        return completed("nobody has stopped me")

    def do_work(self, claim, seconds):
        claim["stopped"].wait(float(seconds))
        return completed("done")

    def tell(self, claim, said):
        """Reports something while the step runs."""
        ids = {name: claim[name] for name in http_worker.IDS}
        path = f"/{self.link}/attempts/{claim['attempt_id']}/report"
        said = said | ids | {"step_id": claim["step"]["step_id"], "status": "running"}
        self.repeat(lambda: self.ask("POST", path, said))


if __name__ == "__main__":
    Helper(*sys.argv[1:]).run()
