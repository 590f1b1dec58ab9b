"""The client of Tenure against agents: `tenure a2a`, and steps with the handler `a2a`."""
import json
import subprocess
from urllib import parse, request

from house import until


class Errands:
    """What is asked of one agent, in one version."""

    def __init__(self, house, name, url, version):
        self.house, self.name, self.url, self.version = house, name, url, version

    # On the command line.

    def a2a(self, verb, *arguments, code=0):
        command = (self.house.tenure, "a2a", verb, self.url, *arguments, "--a2a-version", self.version, "-o", "json")
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == code, (command, done)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def on_the_command_line(self):
        [task] = self.a2a("send", "say hello")
        assert text_of(task) == "hello", task
        [asks] = self.a2a("send", "ask Your name?")
        assert asks["status"]["state"] == "TASK_STATE_INPUT_REQUIRED", asks
        [task] = self.a2a("send", "Ann", "--task", asks["id"])
        assert (task["id"], text_of(task)) == (asks["id"], "You said Ann."), task
        [again] = self.a2a("get", asks["id"])
        assert again["artifacts"] == task["artifacts"], again
        [at_work] = self.a2a("send", "work 1", "--no-wait")
        told = self.a2a("watch", at_work["id"])
        last = told[-1].get("task") or told[-1]["statusUpdate"]
        assert last["status"]["state"] == "TASK_STATE_COMPLETED", told
        self.a2a("get", "absent", code=3)
        [task] = self.a2a("send", "fail it broke", code=1)
        assert task["status"]["state"] == "TASK_STATE_FAILED", task

    # As steps.

    def make(self, kind, message):
        """A task whose step hands this message on."""
        task = f"{kind}-{self.name}".replace(".", "-")
        given = {"data": {"card": self.url, "message": message, "version": self.version}}
        once = {"max_attempts": 1}
        step = {"step_id": "ask", "title": "Ask", "handler": "a2a", "input": given, "retry_policy": once}
        self.house.ask("POST", "/tasks", {"task_id": task, "title": "Errand", "steps": [step]})
        return task

    def step(self, task):
        return self.house.ask("GET", f"/tasks/{task}/steps/ask")

    def comes_to(self, task, status):
        return until(f"{status} of {task}", lambda: (step := self.step(task))["status"] == status and step)

    def output(self, task):
        step = self.comes_to(task, "completed")
        return json.loads(step["output"]["data"])

    def there(self, task):
        """The task of the agent, which the agent itself is asked for."""
        remote = until(f"the agent's task of {task}", lambda: self.step(task).get("remote"))
        [found] = self.a2a("get", remote["remote_task_id"])
        return found

    def as_steps(self):
        assert self.output(self.make("say", "say hello"))["text"] == "hello"
        assert self.output(self.make("reply", "reply hello"))["text"] == "hello"
        task = self.make("ask", "ask Your name?")
        asks = self.comes_to(task, "blocked")
        assert (asks["wait_kind"], asks["status_reason"]["message"]) == ("input", "Your name?"), asks
        answer = "data:text/plain;charset=utf-8;answer=1," + parse.quote("Ann")
        self.house.ask("POST", f"/tasks/{task}/steps/ask", {"status": "pending", "input_refs": [answer]})
        assert self.output(task)["text"] == "You said Ann."
        assert self.there(task)["status"]["state"] == "TASK_STATE_COMPLETED"

    def failures(self):
        for verb, code in (("fail", "a2a_failed"), ("reject", "rejected")):
            reason = self.comes_to(self.make(verb, f"{verb} it broke"), "failed")["status_reason"]
            assert (reason["code"], reason["message"]) == (code, "it broke"), reason

    def canceled(self):
        task = self.make("wait", "wait")
        until("the agent's work", lambda: self.there(task)["status"]["state"] == "TASK_STATE_WORKING")
        self.house.ask("POST", f"/tasks/{task}/cancel", {})
        self.comes_to(task, "cancelled")
        assert self.there(task)["status"]["state"] == "TASK_STATE_CANCELED"

    def tasks_of(self, context):
        """How many tasks of this context the agent has."""
        asked = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {"contextId": context}}
        headers = {"Content-Type": "application/json", "A2A-Version": "1.0"}
        [card] = self.a2a("card")
        url = card["interface"]["url"].replace("/rest", "/rpc").removesuffix("/v0.3")
        with request.urlopen(request.Request(url, json.dumps(asked).encode(), headers), timeout=30) as answer:
            return len(json.loads(answer.read())["result"]["tasks"])


def text_of(task):
    assert task["status"]["state"] == "TASK_STATE_COMPLETED", task
    return task["artifacts"][0]["parts"][0]["text"]


def check(house, agents):
    """Each of these is the name of an agent in a version, its address, and the version."""
    all_of_them = [Errands(house, *agent) for agent in agents]
    for errands in all_of_them:
        errands.on_the_command_line()
        errands.as_steps()
        errands.failures()
        errands.canceled()
        print(f"{errands.name}: tenure a2a card, send, get, watch; steps: done, answered, failed, canceled", flush=True)
    begun = {errands: errands.make("work", "work 4") for errands in all_of_them}
    for errands, task in begun.items():
        assert errands.there(task)["status"]["state"] == "TASK_STATE_WORKING"
    house.restart()
    for errands, task in begun.items():
        assert errands.output(task)["text"] == "done"
        there = errands.there(task)
        assert errands.tasks_of(there["contextId"]) == 1, there
        print(f"{errands.name}: the worker was killed and went on with the same task", flush=True)
