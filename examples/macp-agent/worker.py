"""An agent that waits for sessions of MACP, takes what is requested of it, and reports.

python3 worker.py --name analyst-agent --target 127.0.0.1:50051
"""
import argparse
import json
import threading
import time

from macp.modes.task.v1 import task_pb2
from macp_sdk import AuthConfig, MacpClient
from macp_sdk.errors import MacpAckError
from macp_sdk.task import TaskSession
from macp_sdk.watchers import SessionLifecycleWatcher


def analyze(given):
    """The work itself: yields what part of it is done, and then the result."""
    for done, doing in ((0.3, "Loading datasets..."), (0.7, "Computing trends...")):
        time.sleep(0.2)
        yield done, doing
    yield 1.0, {"quarter": given.get("quarter"), "revenue": "$2.3M", "growth": "12%"}


class Agent:
    def __init__(self, client, name):
        self.client, self.name, self.auth = client, name, client.auth
        self.known = set()

    def watch(self):
        """Follows each session in which this agent takes part. Who begins later hears of all that are open."""
        for event in SessionLifecycleWatcher(self.client).changes():
            session = event.session
            if event.is_created and self.name in session.participants and session.session_id not in self.known:
                self.known.add(session.session_id)
                threading.Thread(target=self.follow, args=(session.session_id,), daemon=True).start()

    def follow(self, session_id):
        """Reads the session from its start. What an earlier start of this agent took and did not finish goes on."""
        session, request = TaskSession(self.client, session_id=session_id, auth=self.auth), None
        stream = session.open_stream()
        stream.send_subscribe(session_id)
        for envelope in stream.responses():
            try:
                if envelope.message_type == "TaskRequest":
                    request = task_pb2.TaskRequestPayload.FromString(envelope.payload)
                    if request.requested_assignee in ("", self.name):
                        session.accept_task(request.task_id)
                elif envelope.message_type == "TaskAccept" and envelope.sender == self.name:
                    self.work(session, request)
            except MacpAckError as refused:
                # It was said before, somebody else was faster, or the session is over.
                print(f"{session_id}: {refused.failure.code}: {refused.failure.message}", flush=True)
            if envelope.message_type == "Commitment":
                print(f"{session_id}: committed", flush=True)
                stream.cancel()
                return

    def work(self, session, request):
        task = request.task_id
        print(f"{session.session_id}: {request.title}", flush=True)
        try:
            for done, what in analyze(json.loads(request.input or b"{}")):
                if done < 1:
                    session.update_task(task, status="running", progress=done, message=what)
        except ValueError as error:
            session.fail_task(task, error_code="bad_input", reason=str(error), retryable=False)
            return
        session.complete_task(task, output=json.dumps(what).encode(), summary=f"Q4 revenue up {what['growth']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="127.0.0.1:50051", help="where the gateway speaks gRPC")
    parser.add_argument("--name", default="analyst-agent")
    parser.add_argument("--token", help="where logins are asked for; else the name is the token")
    args = parser.parse_args()
    auth = AuthConfig.for_bearer(args.token, sender_hint=args.name) if args.token \
        else AuthConfig.for_dev_agent(args.name)
    client = MacpClient(target=args.target, allow_insecure=True, auth=auth)
    print(f"{args.name} waits for sessions at {args.target}", flush=True)
    Agent(client, args.name).watch()


if __name__ == "__main__":
    main()
