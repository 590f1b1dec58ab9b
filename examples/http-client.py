"""An orchestrator over HTTP, in the standard library alone. docs/http.md has the requests.

TENURE_URL=http://… [TENURE_TOKEN=…] python3 examples/http-client.py [SESSION [POOL]]

It makes a task, adds a step while the task runs, watches it, answers the step that waits for a person,
and completes it.
"""
import json
import os
import secrets
import sys
import time
from http.client import HTTPException
from urllib import error, parse, request


class Refused(Exception):
    def __init__(self, status, problem):
        super().__init__(f"{status} {problem.get('code')}: {problem.get('detail')}")
        self.status, self.may_repeat = status, problem.get("retryable", status == 503)


class Client:
    def __init__(self, session="default", pool="default"):
        self.root = os.getenv("TENURE_URL", "http://127.0.0.1:7677") + f"/v1/sessions/{session}/tasks"
        token = os.getenv("TENURE_TOKEN")
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.pool, self.place = pool, None  # The id of the last event that came.

    def open(self, method, path, headers, body=None, timeout=90):
        data = None if body is None else json.dumps(body).encode()
        kind = {"Content-Type": "application/json"} if data else {}
        asked = request.Request(self.root + path, data, self.headers | kind | headers, method=method)
        try:
            return request.urlopen(asked, timeout=timeout)
        except error.HTTPError as refused:
            problem = refused.read()
            is_problem = "problem+json" in refused.headers.get("Content-Type", "")
            raise Refused(refused.status, json.loads(problem) if is_problem else {}) from None

    def ask(self, method, path, body=None, tag=None):
        headers = {"If-Match": tag} if tag else {}
        if method != "GET":  # The same key each time, so that a command whose answer got lost counts once.
            headers["Idempotency-Key"] = secrets.token_hex(16)
        for pause in (0.1, 0.5, *[2] * 30):
            try:
                with self.open(method, path, headers, body) as answer:
                    return json.loads(answer.read() or b"{}"), answer.headers.get("ETag")
            except Refused as refused:
                if not refused.may_repeat:
                    raise
            except (OSError, HTTPException):  # There is no connection, or it broke off.
                pass
            time.sleep(pause)
        sys.exit(f"{self.root}: nobody answers")

    def change(self, task, command, body, method="POST"):  # Again, if another orchestrator was faster.
        while True:
            tag = self.ask("GET", task)[1]
            try:
                return self.ask(method, f"{task}/{command}".rstrip("/"), body, tag)
            except Refused as refused:
                if refused.status != 412:
                    raise

    def watch(self, task):  # All events behind the place, however often the connection breaks off.
        while True:
            headers = {"Accept": "text/event-stream"}
            if self.place:
                headers["Last-Event-ID"] = self.place
            try:
                with self.open("GET", f"{task}/events", headers, timeout=30) as stream:
                    if stream.status == 204:  # The last event of an ended task has come before.
                        return
                    for kind, place, data in frames(stream):
                        self.place = place or self.place
                        if kind == "end":
                            return
                        if kind == "message":
                            yield data
            except Refused as refused:
                if not refused.may_repeat:
                    raise
            except (OSError, HTTPException):
                pass
            time.sleep(2)

    def run(self):
        def step(name, run, *after):
            return {"step_id": name, "title": name, "handler": "exec", "worker_pool_id": self.pool,
                    "depends_on_step_ids": after, "input": {"data": {"run": run}}}

        made, _ = self.ask("POST", "", {"title": "Publish", "dispatch": "manual", "completion": "manual",
            "steps": [step("build", "sleep 1; echo built"), step("publish", "echo published", "build")]})
        task = "/" + made["task"]["task_id"]
        print("made", task, flush=True)
        # A worker says this where it cannot go on without a person. Here nobody else does.
        self.change(task, "steps/publish", {
            "status": "blocked", "wait_kind": "input", "reason": {"message": "Under which name?"}})
        self.change(task, "", {"dispatch": "auto"}, "PATCH")
        self.change(task, "patch", {"operations": [
            {"op": "add_step", "step": step("tell", "echo told", "publish")}]})
        for event in self.watch(task):
            print(self.place, event["event"], event.get("step_id", ""), flush=True)
            if event["event"] == "task.waiting":
                break
        answer = f"data:text/plain;charset=utf-8;answer={secrets.token_hex(8)},{parse.quote('Ann')}"
        self.change(task, f"steps/{event['step_id']}", {"status": "pending", "input_refs": [answer]})
        is_closed = False
        for event in self.watch(task):  # Goes on behind the event that asked.
            print(self.place, event["event"], event.get("step_id", ""), flush=True)
            if not is_closed and self.ask("GET", task)[0]["diagnostics"]["completeable"]:
                self.change(task, "complete", {"output": {"data": {"name": "Ann"}}})
                is_closed = True
        print("ended", self.ask("GET", task)[0]["native_status"], flush=True)


def frames(stream):  # An event, its id and its data; a blank line ends each.
    kind, place, data = "message", None, []
    for line in stream:
        name, _, value = line.decode().rstrip("\r\n").partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            kind = value
        elif name == "id":
            place = value
        elif name == "data":
            data.append(value)
        elif not name and not value:
            if data:
                yield kind, place, json.loads("\n".join(data))
            kind, place, data = "message", None, []


if __name__ == "__main__":
    Client(*sys.argv[1:]).run()
