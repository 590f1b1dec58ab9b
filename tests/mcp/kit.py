"""Has the conformance kit of MCP try Tenure, and compares what it finds with the baseline.

python3 tests/mcp/kit.py TENURE FIXTURES NODE KIT RESULTS

TENURE is the program `tenure`. FIXTURES is the example `mcp_fixtures` of crates/gateway, which serves what the kit asks
for and a scheduler has no use for, over the transport of Tenure. NODE runs the kit, which is the folder KIT. What the
kit finds is written into the folder RESULTS. Each check that fails must stand in baseline.txt, and each line there must fail.
"""
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "outsiders"))

from house import Program  # noqa: E402

REVISIONS = ("2025-11-25", "2026-07-28")
# What the fixtures are not tried with: the tools of tasks, which are Tenure's, and what the guard before all of the
# gateway does.
NOT_OF_FIXTURES = ("tasks-", "dns-rebinding-protection")
# What the product itself is tried with: no scenario that wants tools, prompts or resources of fixed names. Those of
# the extension Tasks do, and tools.toml offers such tools.
OF_PRODUCT = {
    "2025-11-25": {
        "server-initialize", "server-session-lifecycle", "ping", "tools-list", "resources-list", "prompts-list",
        "server-sse-multiple-streams", "dns-rebinding-protection",
    },
    "2026-07-28": {
        "server-stateless", "tools-list", "resources-list", "prompts-list", "sep-2164-resource-not-found",
        "server-sse-multiple-streams", "dns-rebinding-protection", "caching", "http-header-validation",
        "input-required-result-unsupported-methods", "tasks-lifecycle", "tasks-capability-negotiation",
        "tasks-wire-fields", "tasks-request-state-removal", "tasks-mrtr-input", "tasks-request-headers",
        "tasks-dispatch-and-envelope", "tasks-status-notifications", "tasks-required-task-error",
        "tasks-mrtr-composition",
    },
}
LONGEST = 120  # Seconds for one run of the kit.


class Kit:
    def __init__(self, node, kit, results):
        package = Path(kit) / "node_modules" / "@modelcontextprotocol" / "conformance"
        self.command, self.package, self.results = (node, package / "dist" / "index.js"), package, Path(results)
        shutil.rmtree(self.results, ignore_errors=True)

    def scenarios(self, revision):
        """What a revision requires of a server, and what the kit has beside that."""
        text = (self.package / "requirements" / f"{revision}.yaml").read_text()
        required = re.search(r"^server:\n((?:  - .*\n)+)", text, re.MULTILINE)[1]
        beside = re.findall(r"^  - scenario: (\S+)\n    leg: server$", text, re.MULTILINE)
        return set(re.findall(r"- (\S+)", required)) | set(beside)

    def run(self, name, url, revision):
        """All that a revision has; returns the checks of each scenario."""
        found = self.results / f"{name}-{revision}"
        command = (*self.command, "server", "--url", url, "--requirements", revision, "-o", found)
        found.mkdir(parents=True)
        with (self.results / f"{name}-{revision}.log").open("w") as log:
            subprocess.run([str(word) for word in command], stdout=log, stderr=log, timeout=LONGEST, check=False)
        folders = [path.parent for path in sorted(found.glob("*/checks.json"))]
        return {scenario_of(it): json.loads((it / "checks.json").read_text()) for it in folders}


def scenario_of(folder):
    """The kit names a folder after the scenario and the time."""
    return re.fullmatch(r"server-(.+)-\d{4}-\d\d-\d\dT[\d-]+Z", folder.name)[1]


def wrong(checks):
    return {check["id"]: check.get("errorMessage") for check in checks if check["status"] == "FAILURE"}


def try_server(kit, name, url, which):
    """What is wrong with a server: a line for each check that fails, with what the kit says of it."""
    lines = {}
    for revision in REVISIONS:
        wanted, started = which(revision), time.monotonic()
        found = kit.run(name, url, revision)
        if missing := wanted - found.keys():
            raise AssertionError(f"the kit has not run {sorted(missing)}: see {name}-{revision}.log in {kit.results}")
        checks = sum(len(found[it]) for it in wanted)
        for scenario in wanted:
            failed = wrong(found[scenario])
            lines |= {f"{name} {revision} {scenario} {check}": why for check, why in failed.items()}
        seconds = time.monotonic() - started
        print(f"{name} {revision}: {len(wanted)} scenarios, {checks} checks ({seconds:.1f} s)", flush=True)
    return lines


def baseline():
    """The lines of the baseline. What follows a colon is the reason."""
    lines = (HERE / "baseline.txt").read_text().splitlines()
    lines = [line for line in lines if line and not line.startswith("#")]
    if unexplained := [line for line in lines if not line.partition(": ")[2]]:
        raise AssertionError(f"baseline.txt gives no reason for {unexplained}")
    return {line.partition(": ")[0] for line in lines}


def product(program, place):
    """`tenure dev` with the tools of tools.toml, and the worker behind them; returns its address."""
    options = ("--data", str(place / "tasks"), "--http", "127.0.0.1:0", "--agents", str(HERE / "tools.toml"))
    url = Program(place / "dev.log", program, "dev", *options).said(r"HTTP API at (http://[^,]+),")
    Program(place / "worker.log", sys.executable, str(HERE / "worker.py"), TENURE_URL=url)
    return f"{url}/mcp"


def main(program, fixtures, node, kit, results):
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        try:
            kit = Kit(node, kit, results)
            beside = Program(place / "fixtures.log", fixtures).said(r"listens at (\S+)")
            found = try_server(kit, "fixtures", beside, lambda revision: {
                it for it in kit.scenarios(revision) if not it.startswith(NOT_OF_FIXTURES)})
            found |= try_server(kit, "tenure", product(program, place), OF_PRODUCT.get)
            known = baseline()
            for line, why in sorted(found.items()):
                print(f"{'known' if line in known else 'NEW'}: {line}: {why}")
            for line in sorted(known - found.keys()):
                print(f"PASSES NOW: {line}")
            return found.keys() == known
        except BaseException:
            for program in Program.all_of_them:
                print(f"--- {program.log.name}\n{program.log.read_text()[-4000:]}", file=sys.stderr)
            raise
        finally:
            Program.kill_all()


if __name__ == "__main__":
    sys.exit(not main(*sys.argv[1:]))
