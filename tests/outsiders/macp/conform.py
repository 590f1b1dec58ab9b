"""Has macp-conform try a `tenure dev` that serves MACP.

python3 tests/outsiders/macp/conform.py TENURE ORACLE FIXTURES

TENURE is a program that is built with the feature `grpc`, ORACLE the program of this folder, and FIXTURES the folder
`tests/conformance` of macp-runtime. The fixtures of Task mode must pass over gRPC, all of them, and one that is spoiled
must fail: else the run would say nothing.
"""
import json
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from house import Program, until  # noqa: E402


def free_port():
    with socket.socket() as it:
        it.bind(("127.0.0.1", 0))
        return it.getsockname()[1]


def listens(port):
    with socket.socket() as it:
        return it.connect_ex(("127.0.0.1", port)) == 0


def conform(oracle, port, fixtures, place):
    """The report of macp-conform on a folder of fixtures."""
    report = place / "report.json"
    done = subprocess.run(
        [oracle, "conform", "--target", f"grpc://127.0.0.1:{port}", "--fixtures", str(fixtures), "--report", str(report)],
        timeout=120,
    )
    return done.returncode, json.loads(report.read_text())


def main(tenure, oracle, fixtures):
    with tempfile.TemporaryDirectory() as place:
        place, port = pathlib.Path(place), free_port()
        right, wrong = place / "right", place / "wrong"
        right.mkdir(), wrong.mkdir()
        files = sorted(pathlib.Path(fixtures).glob("task_*.json"))
        for file in files:
            shutil.copy(file, right)
        spoiled = json.loads((right / "task_happy_path.json").read_text())
        spoiled["expected_final_state"] = "Open"
        (wrong / "task_spoiled.json").write_text(json.dumps(spoiled))
        try:
            dev = Program(
                place / "dev.log", tenure, "dev", "--data", str(place / "tasks"), "--http", "127.0.0.1:0",
                "--grpc", f"127.0.0.1:{port}", "--macp", "agents", "--macp-trust-tokens",
            )
            dev.said(r"HTTP API at (http://[^,]+),")
            until(f"gRPC at port {port}", lambda: listens(port))
            code, report = conform(oracle, port, right, place)
            passed = report["totals"]["passed"]
            assert code == 0 and passed == len(files) >= 3, f"{passed} of {len(files)} fixtures pass: {report}"
            code, report = conform(oracle, port, wrong, place)
            assert code == 1 and report["totals"]["failed"] == 1, f"a spoiled fixture passes: {report}"
        except BaseException:
            print((place / "dev.log").read_text() if (place / "dev.log").exists() else "", file=sys.stderr)
            raise
        finally:
            Program.kill_all()
    print(f"{passed} fixtures of Task mode pass over gRPC, and a spoiled one fails")


if __name__ == "__main__":
    main(*sys.argv[1:])
