"""The SDK of MACP for Python, as it is, against `tenure dev` with gRPC, which is killed in the middle.

python3 tests/outsiders/macp_agents.py TENURE PLACE: a program that was built with the feature `grpc`, and a folder.
"""
import pathlib
import queue
import subprocess
import sys
import threading
import time

from macp_sdk import AuthConfig, MacpClient
from macp_sdk.errors import MacpAckError, MacpTransportError
from macp_sdk.task import TaskSession
from macp_sdk.watchers import SessionLifecycleWatcher

from house import HERE, Program, until

AGENT = HERE.parents[1] / "examples" / "macp-agent"
WORK = b'{"revenue": "$2.3M", "growth": "12%", "top_product": "Widget Pro"}'


class Site:
    """A `tenure dev` that speaks MACP, at the same address after each start."""

    def __init__(self, tenure, place):
        self.log = pathlib.Path(place) / "tenure.log"
        dev = [tenure, "dev", "--data", str(pathlib.Path(place) / "data"), "--http", "127.0.0.1:0"]
        self.macp = ["--macp", "agents", "--macp-trust-tokens"]
        self.program = Program(self.log, *dev, "--grpc", "127.0.0.1:0", *self.macp)
        self.target = self.program.said(r"gRPC is spoken at (\S+)")
        self.program.command = (*dev, "--grpc", self.target, *self.macp)
        self.url = self.program.said(r"HTTP API at (\S+?),")

    def kill(self):
        """As if the power had failed; and on again."""
        self.program.kill()
        self.program.start()
        self.program.said(r"gRPC is spoken at (\S+)")

    def client(self, name):
        return MacpClient(target=self.target, allow_insecure=True, auth=AuthConfig.for_dev_agent(name))


def patiently(call):
    """Repeats a call while the gateway is not there."""
    def look():
        try:
            return call() or True
        except MacpTransportError as error:
            if error.code not in ("UNAVAILABLE", None):
                raise
            return None
    return until("an answer", look)


def refused(code, call):
    try:
        call()
    except MacpAckError as error:
        assert error.failure.code == code, error.failure
        return
    raise AssertionError(f"{code} was due")


def sessions_of(site, start):
    """The same session for each of the actors, as the SDK asks each to bring its own login."""
    planner = TaskSession(site.client("planner"))
    start(planner)
    theirs = [TaskSession(site.client(name), session_id=planner.session_id) for name in ("analyst-agent", "other")]
    return planner, *theirs


def started(session, **more):
    session.start(intent="analyze Q4 sales data", participants=["planner", "analyst-agent", "other"], ttl_ms=300_000,
                  **more)


def the_example(site):
    """The example of the SDK's documentation, with what its releases ask for."""
    session, analyst, other = sessions_of(site, started)
    client = session.client
    client.initialize()
    assert [mode.mode for mode in client.list_modes().modes] == ["macp.mode.task.v1"]
    refused("FORBIDDEN", lambda: analyst.request_task("t1", "mine"))
    session.request_task(
        "t1", "Q4 Sales Analysis",
        instructions="Run the sales pipeline, produce a summary with key metrics and trends",
        requested_assignee="analyst-agent",
        input_data=b'{"quarter": "Q4", "year": 2025}',
        deadline_unix_ms=1735689600000,
    )
    refused("INVALID_ENVELOPE", lambda: session.request_task("t2", "another"))
    refused("FORBIDDEN", lambda: other.accept_task("t1"))
    analyst.accept_task("t1")
    refused("FORBIDDEN", lambda: other.update_task("t1", progress=0.1))
    analyst.update_task("t1", status="running", progress=0.3, message="Loading datasets...")
    analyst.update_task("t1", status="running", progress=0.7, message="Computing trends...")
    refused("INVALID_ENVELOPE",
            lambda: session.commit(action="task.completed", authority_scope="data-analysis", reason="early"))
    analyst.complete_task("t1", output=WORK, summary="Q4 revenue up 12% YoY, driven by Widget Pro")

    # A late reader has all of it, as the projection shows.
    stream = session.client.open_stream()
    stream.send_subscribe(session.session_id)
    late = TaskSession(session.client, session_id=session.session_id).task_projection
    for envelope in stream.responses(timeout=20):
        late.apply_envelope(envelope)
        if late.is_completed("t1"):
            break
    stream.cancel()
    assert (late.latest_progress(), len(late.updates), late.phase) == (0.7, 2, "Completed"), late.phase
    assert late.completions[0].output == WORK
    refused("FORBIDDEN",
            lambda: analyst.commit(action="task.completed", authority_scope="data-analysis", reason="mine"))
    session.commit(action="task.completed", authority_scope="data-analysis", reason="analyst-agent delivered")
    refused("SESSION_NOT_OPEN", lambda: analyst.update_task("t1", progress=0.9))
    metadata = session.metadata().metadata
    assert (metadata.state, metadata.initiator) == (2, "planner"), metadata


def a_failure_and_a_retry(site):
    session, analyst, _ = sessions_of(site, started)
    session.request_task("t1", "Q4", requested_assignee="analyst-agent")
    analyst.accept_task("t1")
    analyst.fail_task("t1", error_code="no_data", reason="there is none", retryable=True)
    retry = TaskSession(session.client)
    retry.start(intent=f"retry: {session.session_id}", participants=["analyst-agent"], ttl_ms=60_000)
    session.commit(action="task.failed", authority_scope="data-analysis", reason="no_data")
    retry.cancel(reason="enough")
    assert retry.metadata().metadata.state == 5


def suspended_and_listed(site):
    session, analyst, _ = sessions_of(site, started)
    session.suspend(reason="lunch")
    refused("SESSION_NOT_OPEN", lambda: session.request_task("t1", "now"))
    session.resume()
    session.request_task("t1", "now")
    analyst.reject_task("t1", reason="no time")
    listed = [one.session_id for one in session.client.list_sessions()]
    assert session.session_id in listed and listed == sorted(listed)
    assert not list(site.client("stranger").list_sessions())
    session.cancel()


def killed_in_the_middle(site):
    """`kill -9` after each message: history, repetitions and the assignee are as they were."""
    session, analyst, other = sessions_of(site, started)
    site.kill()
    patiently(lambda: session.request_task("t1", "Q4"))
    site.kill()
    patiently(lambda: analyst.accept_task("t1"))
    site.kill()
    patiently(lambda: analyst.update_task("t1", progress=0.5))
    refused("INVALID_ENVELOPE", lambda: other.accept_task("t1"))
    site.kill()
    patiently(lambda: analyst.complete_task("t1", output=WORK, summary="done"))
    site.kill()
    patiently(lambda: session.commit(action="task.completed", authority_scope="all", reason="done"))
    assert session.metadata().metadata.state == 2


def the_agents(site):
    """The example of this repository, and a watcher beside it."""
    work = [sys.executable, str(AGENT / "worker.py"), "--target", site.target]
    worker = Program(site.log.with_name("worker.log"), *work)
    worker.said(r"(waits) for sessions")
    events = queue.Queue()

    def watch():
        try:
            SessionLifecycleWatcher(site.client("planner")).watch(events.put)
        except MacpTransportError:
            pass  # The gateway is killed later.

    threading.Thread(target=watch, daemon=True).start()
    there, _, _ = sessions_of(site, started)
    while events.get(timeout=30).session.session_id != there.session_id:
        pass
    told = subprocess.run([sys.executable, str(AGENT / "requester.py"), "--target", site.target], text=True,
                          check=True, capture_output=True, timeout=60).stdout
    assert '"revenue": "$2.3M"' in told and "phase: Committed" in told, told
    session = told.split()[1]
    kinds = []
    while "RESOLVED" not in kinds:
        event = events.get(timeout=30)
        if event.session.session_id == session:
            kinds.append(event.event_type)
    assert kinds == ["CREATED", "RESOLVED"], kinds
    worker.said(rf"({session}: committed)")


def main(tenure, place):
    site = Site(tenure, place)
    try:
        for part in (the_example, a_failure_and_a_retry, suspended_and_listed, the_agents, killed_in_the_middle):
            begun = time.monotonic()
            part(site)
            print(f"  {part.__name__} ({time.monotonic() - begun:.1f} s)", flush=True)
    except BaseException:
        print(site.log.read_text()[-4000:], file=sys.stderr)
        raise
    finally:
        Program.kill_all()


if __name__ == "__main__":
    main(*sys.argv[1:])
