"""Clients of others against the agents and the tools of Tenure, and the client of Tenure against agents of others.

python3 tests/outsiders/run.py TENURE TOOLS [NAME...]: the program, the folder into which ./check fetches the clients,
and which to run: by default all. A line says what was done, and how long it took.
"""
import functools
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import delegation
from house import HERE, House, Program

LONGEST = 120
MCP = HERE.parent / "mcp"


class Run:
    def __init__(self, tenure, tools, place):
        self.tools, self.place = pathlib.Path(tools).absolute(), place
        self.tenure = pathlib.Path(tenure).absolute()
        self.all = {
            "a2a-sdk": lambda: self.python("a2a-sdk", "python_sdk.py"),
            "a2akit": lambda: self.python("a2akit", "a2akit_client.py"),
            "a2a-js": lambda: self.client(self.tools / "node", "js_sdk.mjs", cwd=self.tools / "js"),
            "a2a-rs": lambda: self.client(self.tools / "a2a-rs" / "debug" / "rust-client"),
            "tenure": self.delegate,
            "mcp": lambda: self.python_mcp("mcp_python.py"),
            "mcp-js": lambda: self.mcp_client(self.tools / "node", "mcp_sdk.mjs", cwd=self.tools / "js"),
            "mcp-inspector": lambda: self.python_mcp("mcp_inspector.py", self.tools / "node", self.inspector),
        }

    def client(self, *command, **more):
        subprocess.run([*command, self.house.url], check=True, timeout=LONGEST, **more)

    def python(self, packages, script):
        self.client(sys.executable, HERE / script, env=self.python_env(packages))

    def python_env(self, packages):
        return os.environ | {"PYTHONPATH": str(self.tools / packages), "PYTHONDONTWRITEBYTECODE": "1"}

    @functools.cached_property
    def house(self):
        return House(self.tenure, self.place)

    @functools.cached_property
    def mcp_house(self):
        return House(self.tenure, self.place / "mcp", MCP / "tools.toml", MCP / "worker.py")

    @property
    def inspector(self):
        return self.tools / "js" / "node_modules" / "@modelcontextprotocol" / "inspector"

    def mcp_client(self, *command, **more):
        subprocess.run([*command, self.mcp_house.url], check=True, timeout=LONGEST, **more)

    def python_mcp(self, script, *more):
        command = (sys.executable, HERE / script, self.mcp_house.url, self.tenure, *more)
        subprocess.run(command, check=True, timeout=LONGEST, env=self.python_env("mcp"))

    def delegate(self):
        peer = Program(self.place / "peer.log", sys.executable, str(HERE / "peer.py"), **self.python_env("a2a-sdk"))
        theirs, ours = peer.said(r"agent at (\S+)"), f"{self.house.url}/a2a/helper"
        delegation.check(self.house, [
            ("theirs", theirs, "1.0"),
            ("theirs-over-http", f"{theirs}/rest", "1.0"),
            ("theirs-of-0.3", theirs, "0.3"),
            ("ours", ours, "1.0"),
            ("ours-of-0.3", f"{ours}/v0.3", "0.3"),
        ])


def show_logs():
    for program in Program.all_of_them:
        print(f"--- {program.log.name}\n{program.log.read_text()[-4000:]}", file=sys.stderr)


def main(tenure, tools, *names):
    with tempfile.TemporaryDirectory() as place:
        try:
            run = Run(tenure, tools, pathlib.Path(place))
            for name in names or run.all:
                print(f"{name}:", flush=True)
                started = time.monotonic()
                run.all[name]()
                print(f"  ({time.monotonic() - started:.1f} s)", flush=True)
        except BaseException:
            show_logs()
            raise
        finally:
            Program.kill_all()


if __name__ == "__main__":
    main(*sys.argv[1:])
