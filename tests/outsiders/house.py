"""The programs that a run needs: `tenure dev`, a worker, an agent of others. They end with the run."""
import json
import os
import pathlib
import re
import subprocess
import sys
import time
from urllib import error, request

HERE = pathlib.Path(__file__).parent
AGENTS = HERE.parents[1] / "examples" / "a2a-agent"
SOON = 60


def until(what, look, seconds=SOON):
    """What `look` finds, as soon as it finds something."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := look():
            return found
        time.sleep(0.05)
    raise AssertionError(f"{what} was due within {seconds} s")


class Program:
    """A process whose output goes to a file."""

    all_of_them = []

    def __init__(self, log, *command, **env):
        self.log, self.command, self.env = pathlib.Path(log), command, os.environ | env
        self.start()
        self.all_of_them.append(self)

    def start(self):
        with self.log.open("w") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log, env=self.env)

    def said(self, pattern):
        def look():
            if self.process.poll() is not None:
                raise AssertionError(f"{self.command[0]} has ended:\n{self.log.read_text()}")
            found = re.search(pattern, self.log.read_text())
            return found and found[1]
        return until(pattern, look)

    def kill(self):
        self.process.kill()
        self.process.wait()

    @classmethod
    def kill_all(cls):
        for program in cls.all_of_them:
            program.kill()


class House:
    """One `tenure dev` with the agents and tools of a file, and the worker behind these."""

    def __init__(self, tenure, place, agents=AGENTS / "agents.toml", worker=AGENTS / "worker.py"):
        self.tenure, self.place, self.agents = tenure, pathlib.Path(place), agents
        self.place.mkdir(exist_ok=True)
        self.dev = Program(self.place / "dev.log", *self.dev_command("127.0.0.1:0"))
        self.url = self.address()
        self.dev.command = self.dev_command(self.url.removeprefix("http://"))
        self.worker = Program(self.place / "worker.log", sys.executable, str(worker), TENURE_URL=self.url)

    def dev_command(self, at):
        data, agents = str(self.place / "tasks"), str(self.agents)
        return (self.tenure, "dev", "--data", data, "--http", at, "--agents", agents)

    def address(self):
        return self.dev.said(r"HTTP API at (http://[^,]+),")

    def restart(self):
        """Kills the scheduler, the gateway and the worker in it at once, and starts them again."""
        self.dev.kill()
        self.dev.start()
        self.address()

    def ask(self, method, path, body=None):
        """A request to the API of tasks, in the session `default`."""
        data = None if body is None else json.dumps(body).encode()
        asked = request.Request(f"{self.url}/v1/sessions/default{path}", data,
                                {"Content-Type": "application/json"}, method=method)
        try:
            with request.urlopen(asked, timeout=30) as answer:
                return json.loads(answer.read())
        except error.HTTPError as refused:
            raise AssertionError(f"{method} {path}: {refused.read().decode()}") from None
