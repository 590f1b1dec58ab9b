"""The worker of the agent that the conformance kits of A2A try. What it does is said by how the id of a message
begins: `scenarios/*.feature` of the kit for 1.0 lists what the kit expects of each.

TENURE_URL=http://… python3 tests/a2a/worker.py
"""
import importlib.util
import json
import sys
import uuid
from pathlib import Path
from urllib.parse import unquote_to_bytes

ROOT = Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("http_worker", ROOT / "examples/http-worker.py")
example = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(example)

ARTIFACT = "application/vnd.tenure.a2a-artifact+json"
ANSWER = "data:application/json;a2a-message="
DONE = {"status": "completed"}


def says(text):
    return DONE | {"reply": "message", "result_summary": text}


def makes(part, **more):
    return {"artifact": {"artifactId": "made", "parts": [part], "lastChunk": True} | more}


def asks(text):
    reason = {"code": "input_required", "message": text}
    return {"status": "blocked", "wait_kind": "input", "reason": reason}


FILE = {"filename": "output.txt", "mediaType": "text/plain"}
DIRECT = {"content_type": "text/plain", "data": "Direct message response"}
REJECTED = {"code": "rejected", "message": "rejected", "retryable": False}

# What is reported one after another, by the beginning of the id: the longest one counts. A number is a pause in
# seconds.
SCENARIOS = {
    "tck-": [says("Hello from TCK")],
    "tck-artifact-text": [makes({"text": "Generated text content"}), DONE],
    "tck-artifact-file": [makes({"raw": "dGNr"} | FILE), DONE],
    "tck-artifact-file-url": [makes({"url": "https://example.com/output.txt"} | FILE), DONE],
    "tck-artifact-data": [makes({"data": {"key": "value", "count": 42}}), DONE],
    "tck-message-response": [DONE | {"reply": "direct", "output": DIRECT}],
    "tck-input-required": [asks("What else?")],
    "tck-reject-task": [{"status": "failed", "reason": REJECTED}],
    "tck-stream-001": [makes({"text": "Stream hello from TCK"}), DONE],
    "tck-stream-002": [DONE],
    "tck-stream-003": [makes({"text": "Stream task lifecycle"}), DONE],
    "tck-stream-ordering-001": [makes({"text": "Ordered output"}), DONE],
    "tck-stream-artifact-text": [makes({"text": "Streamed text content"}), DONE],
    "tck-stream-artifact-file": [makes({"raw": "dGNr"} | FILE), DONE],
    "tck-stream-artifact-chunked": [
        makes({"text": "chunk-1 "}, lastChunk=False),
        makes({"text": "chunk-2"}, append=True),
        DONE,
    ],
    "test-resubscribe-message-id": [4, DONE],
    # The kit for 0.3 says more to tasks, and cancels them, while they are at work.
    "": [3, says("Hello from TCK")],
}


class KitWorker(example.Worker):
    def handle(self, claim):
        try:
            for said in scenario(message_of(claim)["messageId"]):
                if isinstance(said, dict):
                    self.say(claim, "report", said)
                elif claim["stopped"].wait(said):
                    self.say(claim, "end", {"outcome": "cancelled"})
                    return
        except example.Refused as refused:  # The lease may run out.
            print(claim["attempt_id"], refused, file=sys.stderr, flush=True)
        finally:
            del self.claims[claim["attempt_id"]]

    def say(self, claim, word, said):
        said = dict(said)
        if made := said.pop("artifact", None):
            said["artifacts"] = [artifact(made)]
        said |= {name: claim[name] for name in example.IDS} | {"step_id": claim["step"]["step_id"]}
        path = f"/{self.link}/attempts/{claim['attempt_id']}/{word}"
        claim["is_lost"] or self.repeat(lambda: self.ask("POST", path, said))


def scenario(message_id):
    return SCENARIOS[max(filter(message_id.startswith, SCENARIOS), key=len)]


def message_of(claim):
    """The message that the Step was given last: the newest answer, or the one that began the Task."""
    answers = [ref for ref in claim.get("input_refs", []) if ref.startswith(ANSWER)]
    if answers:
        return json.loads(unquote_to_bytes(answers[-1].split(",", 1)[1]))
    return json.loads(claim["step"]["input"]["data"])["message"]


def artifact(made):
    about = {"artifact_id": uuid.uuid4().hex, "name": "made", "kind": "data", "state": "available"}
    return about | {"media_type": ARTIFACT, "data": json.dumps(made)}


if __name__ == "__main__":
    example.HANDLERS = {"tck": None}
    KitWorker(concurrency="16").run()
