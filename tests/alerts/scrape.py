"""Has Debian's Prometheus read /metrics of `tenure dev` and of a `tenure worker`: scrape.py TENURE

Prometheus must take all that it is told, with no name or value that it refuses, and the rules of
deploy/grafana must load beside it.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATIENCE = 60.0


def await_line(log: pathlib.Path, pattern: str) -> str:
    """The first group of a pattern, once a line of a log has it."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        found = re.search(pattern, log.read_text())
        if found:
            return found.group(1)
        time.sleep(0.05)
    sys.exit(f"{log} never had {pattern}:\n{log.read_text()}")


def is_ready(prometheus: str) -> bool:
    """Whether Prometheus answers queries: it listens before it does."""
    try:
        with urllib.request.urlopen(f"{prometheus}/-/ready", timeout=5):
            return True
    except OSError:
        return False


def ask(prometheus: str, query: str) -> list:
    """What Prometheus answers to a query."""
    url = f"{prometheus}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    with urllib.request.urlopen(url, timeout=5) as answer:
        return json.load(answer)["data"]["result"]


def main(tenure: str) -> None:
    place = pathlib.Path(tempfile.mkdtemp(prefix="tenure-scrape-"))
    dev_log, worker_log, prometheus_log = (place / f"{it}.log" for it in ("dev", "worker", "prometheus"))
    processes = []

    def start(log: pathlib.Path, *command: str) -> None:
        processes.append(subprocess.Popen(command, stdout=log.open("w"), stderr=subprocess.STDOUT))

    try:
        start(dev_log, tenure, "dev", "--data", str(place / "tasks"), "--http", "127.0.0.1:0")
        url = await_line(dev_log, r"HTTP API at ([^,\s]*),")
        config = place / "prometheus.yml"
        host = urllib.parse.urlsplit(url).netloc
        start(worker_log, tenure, "worker", "--http", url, "--metrics", "127.0.0.1:0")
        worker = await_line(worker_log, r"metrics are served at http://([^/\s]*)/metrics")
        config.write_text(
            f"global: {{scrape_interval: 1s}}\n"
            f"rule_files: ['{ROOT}/deploy/grafana/alerts.yaml']\n"
            f"scrape_configs: [{{job_name: tenure, static_configs: [{{targets: ['{host}', '{worker}']}}]}}]\n"
        )
        start(
            prometheus_log,
            "prometheus",
            f"--config.file={config}",
            f"--storage.tsdb.path={place / 'tsdb'}",
            "--web.listen-address=127.0.0.1:0",
        )
        # It says its address in a line of its own, whichever port it was given.
        address = await_line(prometheus_log, r'Listening on" address=(\S+)')
        prometheus = f"http://{address}"
        deadline = time.monotonic() + PATIENCE
        while not is_ready(prometheus):
            if time.monotonic() > deadline:
                sys.exit(f"Prometheus does not answer queries:\n{prometheus_log.read_text()}")
            time.sleep(0.2)
        while [it["value"][1] for it in ask(prometheus, 'up{job="tenure"}')] != ["1", "1"]:
            if time.monotonic() > deadline:
                sys.exit(f"Prometheus cannot read {host} and {worker}:\n{prometheus_log.read_text()}")
            time.sleep(0.2)
        names = {it["metric"]["__name__"] for it in ask(prometheus, '{__name__=~"tenure_.*"}')}
        if not names >= {"tenure_tasks_in_memory", "tenure_worker_slots", "tenure_build_info"}:
            sys.exit(f"Prometheus has only {sorted(names)}")
        lost = ask(prometheus, "sum(prometheus_target_scrapes_sample_duplicate_timestamp_total) > 0")
        if lost:
            sys.exit(f"series were told twice: {lost}")
        print(f"Prometheus has {len(names)} metrics of {host} and {worker}")
    finally:
        for process in processes:
            process.terminate()
            process.wait(PATIENCE)


if __name__ == "__main__":
    main(sys.argv[1])
