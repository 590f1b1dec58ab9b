"""An agent that requests a task in a session of MACP, waits for the result, and commits it.

python3 requester.py --target 127.0.0.1:50051
"""
import argparse

from macp_sdk import AuthConfig, MacpClient
from macp_sdk.task import TaskSession


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="127.0.0.1:50051", help="where the gateway speaks gRPC")
    parser.add_argument("--assignee", default="analyst-agent")
    args = parser.parse_args()
    auth = AuthConfig.for_dev_agent("planner")
    client = MacpClient(target=args.target, allow_insecure=True, auth=auth)
    session = TaskSession(client, auth=auth)
    session.start(intent="analyze Q4 sales data", participants=["planner", args.assignee], ttl_ms=300_000)
    session.request_task("t1", "Q4 Sales Analysis", requested_assignee=args.assignee,
                         instructions="Run the sales pipeline, produce a summary with key metrics and trends",
                         input_data=b'{"quarter": "Q4", "year": 2025}')
    print(f"session {session.session_id}", flush=True)

    # The session tells what was accepted in it, in its order. Two of it are known here: they were sent above.
    stream = session.open_stream()
    stream.send_subscribe(session.session_id, after_sequence=2)
    seen = session.task_projection
    for envelope in stream.responses():
        seen.apply_envelope(envelope)
        print(f"{envelope.sender}: {envelope.message_type} {seen.latest_progress() or ''}".rstrip(), flush=True)
        if seen.is_completed("t1"):
            session.commit(action="task.completed", authority_scope="data-analysis", reason="the analysis is here")
            print(f"result: {seen.completions[0].output.decode()}")
            break
        if seen.is_failed("t1"):
            report = seen.failures[0]
            session.commit(action="task.failed", authority_scope="data-analysis", reason=report.error_code)
            print(f"failed: {report.error_code}: {report.reason}")
            break
    stream.cancel()
    print(f"phase: {seen.phase}")


if __name__ == "__main__":
    main()
