"""What schemathesis does not know: which tasks and workers there are, and what no schema can say.

schemathesis calls `before_call` with each request before it sends it. About half of those that fit the document are
led to a task and a worker that are there; in the phase `stateful` the answers before them lead them. Requests
that do not fit the document stay as they are.
"""
import hashlib
import json
import os
import zlib
from urllib import request

import schemathesis

ROOT = os.environ["TENURE_URL"]
TASKS, POOL = "/v1/sessions/main/tasks", "/v1/pools/fuzz/workers"
REQUESTS_OF_A_TASK = 200  # After so many it has ended, been archived, or grown long.


def ask(method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    asked = request.Request(ROOT + path, data, {"Content-Type": "application/json"}, method=method)
    with request.urlopen(asked, timeout=30) as answer:
        return json.loads(answer.read() or b"{}")


class Place:
    """A task at work, and a worker with one of its steps in hand."""

    def __init__(self):
        self.asked, self.known = 0, {}

    def names(self):
        if self.asked % REQUESTS_OF_A_TASK == 0:
            self.renew()
        self.asked += 1
        return self.known

    def renew(self):
        def step(name, handler, pool, *after):
            return {"step_id": name, "title": name, "handler": handler, "worker_pool_id": pool,
                    "depends_on_step_ids": after, "input": {"data": {"run": "echo done"}}}

        made = ask("POST", TASKS, {"title": "House", "completion": "manual", "steps": [
            step("done", "exec", "default"), step("held", "any", "fuzz"), step("later", "any", "fuzz", "held")]})
        joined = ask("POST", POOL, {"concurrency": 4, "boot": f"b{self.asked}"})
        self.known = {"session": "main", "task_id": made["task"]["task_id"], "step_id": "held", "ordinal": 1,
                      "pool": "fuzz", "link": joined["link"]}
        after = joined["after"]
        for _ in range(5):
            page = ask("GET", f"{POOL}/{joined['link']}/deliveries?wait=2s&after={after}")
            after = page["last"]
            grants = [it["grant"] for it in page["deliveries"] if "grant" in it]
            mine = [it for it in grants if it["task_id"] == self.known["task_id"]]
            for grant in mine:
                claimed = {name: grant[name] for name in ("task_id", "run_id", "attempt_id", "fencing_token")}
                self.known |= claimed | {"session_id": "main", "step_id": grant["step"]["step_id"]}
                return


PLACE = Place()


def chance(case):  # The same for the same request, as it may be made again.
    return zlib.crc32(repr((case.path_parameters, case.query, case.body)).encode())


def lead(values, names):
    for name in values.keys() & names.keys():
        values[name] = names[name]


def whole(value):  # 3.0 is an integer to JSON Schema, and none to the gateway.
    if isinstance(value, dict):
        return {name: whole(each) for name, each in value.items()}
    if isinstance(value, list):
        return [whole(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 1 << 53 else value


def chained(steps):  # A task needs a step, names that differ, and no circles.
    steps = [step for step in steps if isinstance(step, dict)] or [{"title": "only"}]
    for number, step in enumerate(steps):
        step["step_id"] = f"s{number}"
        step["depends_on_step_ids"] = [f"s{number - 1}"] if number and step.get("depends_on_step_ids") else []
        step.pop("inputs_from", None)
    return steps


@schemathesis.hook
def before_call(context, case, kwargs):
    if not case.meta or not case.meta.generation.mode.is_positive:
        return
    path, query, body = case.path_parameters or {}, case.query or {}, case.body
    name = case.operation.definition.raw.get("operationId")
    if case.headers and not case.headers.get("If-Match", "*"):  # It takes an empty one for one of any pattern.
        case.headers.pop("If-Match")
    query.pop("page_token", None)  # Only an answer has one that is good.
    query.pop("follow", None)  # The answer would end with the attempt.
    if "wait" in query:
        query["wait"] = "20ms"
    if name == "task_create" and isinstance(body, dict):
        body["steps"] = chained(body.get("steps") or [])
    if name in ("task_cancel", "task_fail") and isinstance(body, dict):
        body["wait"] = False  # Nobody here stops a step when it is asked to.
    if case.operation.method.upper() == "PUT" and isinstance(body, bytes | str) and "digest" in path:
        data = body.encode() if isinstance(body, str) else body
        path["digest"] = "sha256:" + hashlib.sha256(data).hexdigest()
        query.pop("offset", None)  # Parts of a blob go together, and are as long as they say.
        query.pop("size_bytes", None)
    if isinstance(body, dict | list):
        case.body = whole(body)
    if case.meta.phase.name != "stateful" and chance(case) % 2 == 0:
        try:
            names = PLACE.names()
        except OSError:
            return  # The checks will say what is wrong.
        if name == "cancel_run":  # It would wait for the worker, which does not stop.
            names = {each: value for each, value in names.items() if each != "run_id"}
        lead(path, names)
        if "/workers/" in case.operation.path:
            lead(query, names)
            if isinstance(case.body, dict):
                lead(case.body, names)
