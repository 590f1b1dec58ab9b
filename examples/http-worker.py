"""A worker over HTTP, in the standard library alone. docs/http.md has the requests.

TENURE_URL=http://… [TENURE_TOKEN=…] python3 examples/http-worker.py [POOL [CONCURRENCY]]
"""
import contextlib
import json
import os
import secrets
import signal
import sys
import threading
import time
from urllib import error, request

IDS = ("session_id", "task_id", "run_id", "attempt_id", "fencing_token", "lease_ms")
CLOCK = time.CLOCK_BOOTTIME  # Goes on while the machine sleeps.
HANDLERS = {  # Each gets its input, and an event that is set when it is to stop.
    "echo": lambda given, stopped: given,
    "sleep": lambda given, stopped: stopped.wait(given["ms"] / 1000),
}


class Refused(Exception):
    def __init__(self, code="unavailable", detail="nobody has answered", retryable=True, **_):
        super().__init__(detail)
        self.code, self.may_repeat = code, retryable or code == "worker_gone"


class Worker:
    def __init__(self, pool="default", concurrency="4"):
        self.root = os.getenv("TENURE_URL", "http://127.0.0.1:7677") + f"/v1/pools/{pool}/workers"
        token = os.getenv("TENURE_TOKEN")
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.me = {"concurrency": int(concurrency), "handlers": sorted(HANDLERS)}
        self.me["boot"], self.link, self.after = secrets.token_hex(8), None, 0
        self.claims, self.known, self.beat_at = {}, set(), 0  # In hand; all that came.
        self.leaving = threading.Event()

    def run(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.leaving.set())
        threading.Thread(target=self.beat, daemon=True).start()
        try:
            self.repeat(self.join, 0)
            while not self.leaving.is_set():
                self.repeat(self.fetch, 0)
        except Refused:
            if not self.leaving.is_set():
                raise
        while self.claims:
            time.sleep(0.02)
        with contextlib.suppress(Refused):  # What was not begun goes back, or its lease runs out.
            self.link and self.ask("DELETE", f"/{self.link}?after={self.after}")

    def ask(self, method, path, body=None, timeout=5):
        data = None if body is None else json.dumps(body).encode()
        headers = self.headers | ({"Content-Type": "application/json"} if data else {})
        asked = request.Request(self.root + path, data, headers, method=method)
        try:
            with request.urlopen(asked, timeout=timeout) as answer:
                return json.loads(answer.read() or b"{}")
        except error.HTTPError as refused:
            problem = refused.read()
            raise Refused(**json.loads(problem) if b'"code"' in problem else {}) from None
        except Exception:  # There is no connection, or it broke off.
            raise Refused() from None

    def repeat(self, call, patience=10):  # Until it is answered, or refused for good. Who leaves waits so many seconds.
        began = time.monotonic()
        for pause in (0.02, 0.1, 0.5, *[1] * 1_000_000):
            try:
                return call()
            except Refused as refused:
                is_late = self.leaving.is_set() and time.monotonic() - began >= patience
                if is_late or not refused.may_repeat:
                    raise
                if refused.code == "worker_gone":
                    self.repeat(self.join, patience)
            time.sleep(pause)

    def join(self):  # Always under the same boot: at another gateway, too, we keep what we have.
        joined = self.ask("POST", "", self.me, 20)
        if joined["link"] != self.link:
            self.after, self.link = joined["after"], joined["link"]

    def fetch(self):
        link = self.link
        page = self.ask("GET", f"/{link}/deliveries?wait=5s&after={self.after}", timeout=30)
        for it in page["deliveries"]:
            if "drain" in it:
                self.leaving.set()
            if self.leaving.is_set():
                return  # The rest is not acknowledged.
            if "grant" in it and it["grant"]["attempt_id"] not in self.known:  # It may come twice.
                self.begin(it["grant"])
            self.stop(it.get("lost") or it.get("cancel_requested"), "lost" in it)
        self.after = page["last"] if link == self.link else self.after

    def begin(self, claim):  # A third of the lease counts until a pulse confirms it.
        fence_at = time.clock_gettime(CLOCK) + 0.0003 * claim["lease_ms"]
        claim |= {"stopped": threading.Event(), "is_lost": False, "fence_at": fence_at}
        self.claims[claim["attempt_id"]], self.beat_at = claim, 0
        self.known.add(claim["attempt_id"])
        threading.Thread(target=self.handle, args=(claim,), daemon=True).start()

    def stop(self, attempt_id, is_lost):
        if claim := self.claims.get(attempt_id):
            claim["is_lost"] |= is_lost
            claim["stopped"].set()

    def beat(self):  # In a thread of its own, so that no handler and no report keeps it waiting.
        while True:
            time.sleep(0.05)
            asked, held = time.clock_gettime(CLOCK), list(self.claims.values())
            for claim in held:
                if asked >= claim["fence_at"]:
                    self.stop(claim["attempt_id"], False)
            if not held or asked < self.beat_at:
                continue
            pause = min(claim["lease_ms"] for claim in held) / 9000
            self.beat_at = asked + pause
            holdings = [{name: claim[name] for name in IDS} for claim in held]
            try:
                answer = self.ask("POST", f"/{self.link}/heartbeat", {"holdings": holdings}, pause / 2)
            except Refused:
                continue  # If the link has gone, whoever fetches joins again.
            for pulse in answer["pulses"]:
                if "lease_ms" not in pulse or pulse.get("cancel_requested"):
                    self.stop(pulse["attempt_id"], "lease_ms" not in pulse)
                if claim := self.claims.get(pulse["attempt_id"]):
                    lease = 0.0009 * pulse.get("lease_ms", 0)
                    claim["fence_at"] = max(claim["fence_at"], asked + lease)

    def work(self, claim):  # What to report of the step.
        value = json.loads(claim["step"].get("input", {"data": "null"})["data"])
        output = HANDLERS[claim["step"]["handler"]](value, claim["stopped"])
        return {"status": "completed", "output": {"data": json.dumps(output)}}

    def handle(self, claim):
        try:
            said = self.work(claim)
        except Exception as failure:
            reason = {"code": "unhandled_exception", "message": repr(failure)[:2000]}
            said = {"status": "failed", "reason": reason}
        claim["fence_at"], word = float("inf"), "report"  # Nothing runs that could run twice.
        if claim["stopped"].is_set():  # If nobody wanted that, the step goes back.
            word, said = "end", {"outcome": "cancelled"}
        said |= {name: claim[name] for name in IDS} | {"step_id": claim["step"]["step_id"]}
        path = f"attempts/{claim['attempt_id']}/{word}"
        try:  # Of what is lost nothing is said.
            claim["is_lost"] or self.repeat(lambda: self.ask("POST", f"/{self.link}/{path}", said))
        except Refused as refused:  # Its lease may run out.
            print(path, refused, file=sys.stderr, flush=True)
        finally:
            del self.claims[claim["attempt_id"]]


if __name__ == "__main__":
    Worker(*sys.argv[1:]).run()
