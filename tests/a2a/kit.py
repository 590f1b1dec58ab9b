"""Has the conformance kits of A2A try the agent in agents.toml, and compares what they find with the baselines.

python3 tests/a2a/kit.py PROGRAM KITS RESULTS NATS_SERVER REDIS_SERVER

PROGRAM is the program `tenure`. KITS is a folder with two checkouts of a2aproject/a2a-tck, named after their branches:
`1.0-dev` and `0.3.x`. What a kit finds is written into the folder RESULTS, a line for each requirement or test. It has
to be what the baseline beside this file says: a line too many there is as wrong as one that is missing.
"""
import difflib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree

from balancer import balance

HERE = Path(__file__).resolve().parent
SOON = 60  # Whatever is started answers sooner than this, in seconds.


class House:
    """Programs that end together, in a folder of their own."""

    def __init__(self, program, folder):
        self.program, self.folder, self.running = program, Path(folder), []

    def start(self, name, *command, **environment):
        log = self.folder / f"{name}.log"
        with log.open("wb") as output:
            self.running.append(
                subprocess.Popen(
                    [str(word) for word in command],
                    cwd=self.folder,
                    env=os.environ | environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
            )
        return log

    def work_at(self, port):
        self.start("worker", sys.executable, HERE / "worker.py", TENURE_URL=address(port))

    def end(self):
        for process in reversed(self.running):
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def house(program):
    with tempfile.TemporaryDirectory() as folder:
        new = House(program, folder)
        try:
            yield new
        except BaseException:
            for log in sorted(new.folder.glob("*.log")):
                print(f"--- {log.name}", log.read_text(errors="replace")[-4000:], sep="\n")
            raise
        finally:
            new.end()


def embedded(house):
    """One process; returns its port."""
    options = ("--http", "127.0.0.1:0", "--agents", HERE / "agents.toml")
    log = house.start("dev", house.program, "dev", "--data", "tasks", *options)
    port = int(said(log, r"^HTTP API at http://127.0.0.1:(\d+),"))
    house.work_at(port)
    return [port]


def cluster(house, nats, redis):
    """A node and two gateways; returns the ports of these."""
    nats_port, redis_port = free_port(), free_port()
    (house.folder / "nats.conf").write_text(f'listen: 127.0.0.1:{nats_port}\njetstream {{ store_dir: "js" }}\n')
    house.start("nats", nats, "-c", "nats.conf")
    house.start("redis", redis, "--port", redis_port, "--bind", "127.0.0.1", "--save", "")
    for port in (nats_port, redis_port):
        wait_for(lambda port=port: is_open(port), f"nothing listens on port {port}")
    to_nats = ("--nats", f"nats://127.0.0.1:{nats_port}")
    house.start("node", house.program, "serve", *to_nats, "--redis", f"redis://127.0.0.1:{redis_port}")
    gateways = []
    for name in ("gateway-1", "gateway-2"):
        port = free_port()
        options = ("--http", f"127.0.0.1:{port}", "--agents", HERE / "agents.toml")
        said(house.start(name, house.program, "gateway", *to_nats, *options), "listens at")
        gateways.append(port)
    house.work_at(gateways[0])
    return gateways


def address(port):
    return f"http://127.0.0.1:{port}"


def said(log, pattern):
    """Waits until a program says something, and returns the group in it, if there is one."""

    def find():
        return re.search(pattern, log.read_text(errors="replace"), re.MULTILINE)

    wait_for(find, f"{log.name} does not say {pattern!r}")
    found = find()
    return found[found.re.groups]


def wait_for(is_so, complaint):
    until = time.monotonic() + SOON
    while not is_so():
        if time.monotonic() > until:
            raise TimeoutError(complaint)
        time.sleep(0.1)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def is_open(port):
    with socket.socket() as way:
        return way.connect_ex(("127.0.0.1", port)) == 0


def pytest(kit, results, *arguments):
    """Runs tests of a kit; returns whether all went well, and each test with its outcome."""
    report = results / "junit.xml"
    quiet = ("-q", "--tb=short", "-p", "no:cacheprovider", f"--junitxml={report}")
    command = (sys.executable, "-m", "pytest", *quiet, *arguments)
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    status = subprocess.run(command, cwd=kit, env=environment, check=False).returncode
    return status == 0, [outcome_of(case) for case in ElementTree.parse(report).iter("testcase")]


def outcome_of(case):
    name = f"{case.get('classname')}::{case.get('name')}"
    for outcome in ("failure", "error", "skipped"):
        if (found := case.find(outcome)) is not None:
            is_expected = found.get("type") == "pytest.xfail"
            return name, "expected failure" if is_expected else outcome, found.get("message")
    return name, "passed", None


def run_1_0(kit, ports, results):
    """All levels; a line for each requirement."""
    url = address(ports[0]) if len(ports) == 1 else balance(ports)
    which = ("tests/compatibility", f"--sut-host={url}/a2a/tck", "--transport=jsonrpc,http_json")
    found = results / "compatibility.json"
    is_well, cases = pytest(kit, results, *which, f"--compatibility-report={found}")
    outcomes = [outcome for _, outcome, _ in cases]
    counts = [f"{outcomes.count(it)} {it}" for it in sorted(set(outcomes))]
    lines = [f"tests: {', '.join(counts)}"]
    for requirement, about in json.loads(found.read_text())["per_requirement"].items():
        transports = [f"{name}={it}" for name, it in sorted(about["transports"].items())]
        lines.append(" ".join([requirement, about["level"], about["status"], *transports]))
    return is_well, lines[:1] + sorted(lines[1:])


def run_0_3(kit, ports, results):
    """The category `mandatory` over JSON-RPC; a line for each test, with why it was skipped."""
    which = ("tests/mandatory", "-m", "mandatory_jsonrpc or mandatory_protocol", "--transports=jsonrpc")
    root = "/a2a/tck/v0.3"
    place = (f"--sut-url={balance(ports, root)}{root}", "--test-scope=all")
    is_well, cases = pytest(kit, results, *which, *place)
    lines = []
    for name, outcome, why in cases:
        name = name.removeprefix("tests.mandatory.")
        lines.append(f"{name} {outcome}" + (f": {why}" if outcome == "skipped" else ""))
    return is_well, sorted(lines)


def is_as_before(lines, found, baseline):
    found.write_text("\n".join(lines) + "\n")
    known = baseline.read_text().splitlines() if baseline.exists() else []
    differing = list(difflib.unified_diff(known, lines, str(baseline), str(found), lineterm="", n=0))
    print("\n".join(differing))
    return not differing


def try_kits(name, ports, kits, results):
    """Whether both kits find what they have always found."""
    is_well = True
    for branch, run in (("1.0-dev", run_1_0), ("0.3.x", run_0_3)):
        print(f"=== {name}: the kit {branch}", flush=True)
        place = results / name / branch
        place.mkdir(parents=True)
        passed, lines = run(kits / branch, ports, place)
        is_well &= is_as_before(lines, place / f"{branch}.txt", HERE / f"{branch}.txt") and passed
    return is_well


def main(*given):
    program, kits, results, nats, redis = (Path(path).absolute() for path in given)
    shutil.rmtree(results, ignore_errors=True)
    is_well = True
    with house(program) as one:
        is_well &= try_kits("embedded", embedded(one), kits, results)
    with house(program) as several:
        is_well &= try_kits("cluster", cluster(several, nats, redis), kits, results)
    return is_well


if __name__ == "__main__":
    sys.exit(not main(*sys.argv[1:]))
