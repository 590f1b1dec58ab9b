"""A worker with three handlers, written from docs/protocol.md alone."""
import argparse
import asyncio
import contextvars
import json
import os
import random
import signal
import time

import msgpack
import nats

IDS = ("session_id", "task_id", "run_id", "attempt_id", "fencing_token")
traceparent = contextvars.ContextVar("traceparent", default=None)  # Spans go below it.


class Failed(Exception):
    """A handler raises it with a reason: {"code": …, "message": …, "retryable": …}."""


async def fail(given):
    raise Failed(given)


def unpack(message):
    said = msgpack.unpackb(message.data) if message.data else {"v": 1}  # Empty: nobody is there.
    if said["v"] != 1 or "owned" in said and said.get("placement", 1) != 2:
        raise ValueError("this version of the protocol, or this placement, is not known")
    return said


class Worker:
    def __init__(self, options, handlers):
        name, self.partitions = f"{options.user}.{random.getrandbits(64):016x}", None
        self.top = f"{options.cluster.lower()}.v1"
        self.root, self.inbox = f"{self.top}.worker.{options.pool}.{name}", f"_INBOX.worker.{name}"
        self.options, self.handlers, self.leaving = options, handlers, asyncio.Event()
        self.links, self.heard, self.hungry = {}, {}, {}  # By node: counts, and when it spoke.
        self.open, self.known, self.tasks = {}, set(), set()  # Claims; ids that came; work.
        self.now, self.beat_at, self.state_at, self.room, self.why = 0, 0, 0, None, None

    async def run(self):
        self.nc = await nats.connect(
            self.options.nats, user=self.options.user, password=os.getenv("TENURE_PASSWORD", ""),
            inbox_prefix=self.inbox.encode(), max_reconnect_attempts=-1, ping_interval=2)
        await self.nc.subscribe(f"{self.inbox}.d.*", cb=self.on_deliveries)
        await self.nc.subscribe(f"{self.inbox}.hb.*", cb=self.on_pulses)
        await self.nc.subscribe(f"{self.top}.node.>", cb=self.on_node)
        await self.say("hello", handlers=list(self.handlers))
        loop = asyncio.get_running_loop()
        loop.call_later(2, lambda: self.links or print("no scheduler has answered yet", flush=True))
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.leaving.set)
        while self.tasks or not self.leaving.is_set():
            self.now = time.clock_gettime(time.CLOCK_BOOTTIME)  # Goes on while the machine sleeps.
            await self.keep_alive()
            await self.state_room()
            await asyncio.sleep(0.02)
            self.tasks = {task for task in self.tasks if not task.done()}
        if self.nc.is_connected:
            await self.say("bye")
            await self.nc.close()
        raise SystemExit(self.why)  # Without a reason that is success.

    async def say(self, to, reply="", **message):
        await self.nc.publish(f"{self.root}.{to}", msgpack.packb({"v": 1, **message}), reply=reply)

    async def on_node(self, message):
        it = unpack(message)
        self.heard[it["node"]], self.partitions = self.now, it.get("partitions", self.partitions)
        self.hungry |= {it["node"]: self.now} if it.get("pool") == self.options.pool else {}
        if it["node"] not in self.links:
            await self.say("hello", handlers=list(self.handlers))

    async def on_deliveries(self, message):
        said = unpack(message)
        if error := said.get("error"):  # One that is retryable is of a node that is full.
            self.why = None if error.get("retryable") else f"it gets no work: {error['message']}"
            return self.leaving.set() if self.why else None
        if said["link"] not in self.known:
            self.known.add(said["link"])
            self.links[said["node"]] = {"link": said["link"], "number": 0, "seen": 0, "got": 0}
            await self.say("hello", handlers=list(self.handlers))  # Else nothing may come on it.
        link, self.state_at, told = self.links[said["node"]], 0, asyncio.Event()
        for number, item in enumerate(said["deliveries"], said["first"]):
            if said["link"] != link["link"] or number != link["got"] + 1:
                continue  # Of an older link, or it came already, or one before it is missing.
            link.update(got=number, seen=link["seen"] + ("grant" in item or "run" in item))
            if "grant" in item:
                self.tasks.add(asyncio.create_task(self.attempt(item["grant"], told)))
            elif "run" in item:
                self.tasks.add(asyncio.create_task(self.report(item["run"], "decline_run")))
            elif "drain" in item:
                self.leaving.set()
            else:
                self.stop(item.get("cancel_requested") or item.get("lost"), "lost" in item)
        await asyncio.create_task(self.state_room())  # Before what came begins: it may end us.
        await asyncio.wait([asyncio.create_task(self.nc.flush())], timeout=0.2)
        told.set()

    async def state_room(self):  # Free slots go to the hungry nodes, or else to all, in turn.
        linked = [node for node in self.links if self.now - self.heard.get(node, 0) < 6]
        nodes = [node for node in linked if self.now - self.hungry.get(node, 0) < 1] or linked
        free = 0 if self.leaving.is_set() else self.options.concurrency - len(self.tasks)
        dealt = [nodes[(int(self.now / 2) + n) % len(nodes)] for n in range(free if nodes else 0)]
        room = dealt, sum(claim.get("was_lost", False) for claim in self.open.values())
        if (room != self.room or self.now >= self.state_at) and self.nc.is_connected:
            self.room, self.state_at = room, self.now + 2
            for node in linked:
                self.links[node].update(number=self.links[node]["number"] + 1, lost=room[1])
                await self.say(f"node.{node}", free=dealt.count(node), **self.links[node])

    async def keep_alive(self):
        for attempt_id in [it for it, claim in self.open.items() if self.now >= claim["fence_at"]]:
            self.stop(attempt_id, is_lost=True)
        if (held := list(self.open.values())) and self.now >= self.beat_at:
            self.beat_at = self.now + min(it["lease_ms"] / it.get("beats", 9) for it in held) / 1000
            held = [{name: claim[name] for name in IDS} for claim in held]
            await self.say("hb", f"{self.inbox}.hb.{int(1000 * self.now)}", holdings=held)

    async def on_pulses(self, message):
        asked = int(message.subject.rsplit(".", 1)[1]) / 1000  # A lease counts from then.
        for pulse in unpack(message).get("ok", {}).get("pulses", []):
            attempt_id, lease = pulse["attempt_id"], pulse.get("lease_ms")
            if lease is None or pulse.get("cancel_requested"):
                self.stop(attempt_id, is_lost=lease is None)
            if claim := self.open.get(attempt_id):  # Beats in a lease: more until it was heard of.
                claim.update(beats=3, fence_at=max(claim["fence_at"], asked + 0.9 * lease / 1000))

    def stop(self, attempt_id, is_lost):  # Once; of what is lost nothing more is said.
        if task := self.open.get(attempt_id, {}).pop("at_work", None):
            self.open.pop(attempt_id if is_lost else None, None)
            task.cancel()

    async def attempt(self, claim, told):
        attempt_id, step = claim["attempt_id"], claim["step"]
        if attempt_id in self.known or self.known.add(attempt_id):
            return  # It came twice.
        self.open[attempt_id], self.beat_at, claim["at_work"] = claim, 0, asyncio.current_task()
        traceparent.set(claim.get("trace"))
        goes_on = claim.get("retry_policy", {}).get("on_lease_doubt") == "finish"
        claim["fence_at"] = self.now + (float("inf") if goes_on else 0.3 * claim["lease_ms"] / 1000)
        try:
            await told.wait()
            if step["handler"] not in self.handlers or "ref" in step.get("input", {}):
                raise Failed({"code": "unknown_handler", "message": step["handler"] + " or ref"})
            given = json.loads(step["input"]["data"]) if "input" in step else None
            output = {"data": json.dumps(await self.handlers[step["handler"]](given))}
            word = self.report(claim, "task_update_step", status="completed", output=output)
        except asyncio.CancelledError:
            how = {"outcome": "cancelled"} if self.now < claim["fence_at"] else {"reason": "fenced"}
            word = self.report(claim, "release_step" if "reason" in how else "end_run", **how)
        except Exception as error:
            reason = {"code": "unhandled_exception", "message": repr(error)[:2000]}
            reason = error.args[0] if isinstance(error, Failed) and error.args else reason
            word = self.report(claim, "task_update_step", status="failed", reason=reason)
        claim.update(at_work=None, fence_at=float("inf"))  # Nothing runs that could run twice.
        try:
            error = await word
            if error and error["code"] not in ("stale_attempt", "task_terminal", "run_ended"):
                waits = {"status": "blocked", "wait_kind": "dependency"}  # For facts of its peer.
                how = waits if error["code"] == "facts_unreconciled" else {"status": "failed"}
                await self.report(claim, "task_update_step", **how, reason=error)
        finally:
            self.open.pop(attempt_id, None)  # Whatever happened, its lease may run out.

    async def report(self, of, operation, **given):  # Until recorded or refused: then the error.
        hashed = 0xCBF29CE484222325  # FNV-1a, then a mix, whose last step changes no high bit.
        for byte in f"{of['session_id']}\0{of['task_id']}".encode():
            hashed = (hashed ^ byte) * 0x100000001B3 % 2**64
        for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
            hashed = (hashed ^ hashed >> 33) * factor % 2**64
        subject = f"{self.root}.report.{(hashed >> 32) % self.partitions}"
        given |= {"step_id": of["step"]["step_id"]} if operation == "task_update_step" else {}
        given |= {it: of[it] for it in IDS[3:] if operation in ("task_update_step", "release_step")}
        report = {"word": dict(operation=operation, input=given), **{it: of[it] for it in IDS[:3]}}
        message, pause = msgpack.packb({"v": 1, "reports": [report]}), 10
        while operation in ("decline_run", "release_step") or of["attempt_id"] in self.open:
            try:
                answer = unpack(await self.nc.request(subject, message, timeout=5))
                error = answer.get("error") or answer["ok"]["results"][0].get("error")
            except (nats.errors.Error, ValueError) as failure:
                again = not isinstance(failure, nats.errors.MaxPayloadError)
                error = {"code": "unavailable", "message": repr(failure), "retryable": again}
            if not error or not error.get("retryable"):
                return error
            pause = error.get("details", {}).get("retry_after_ms") or min(2 * pause, 1000)
            await asyncio.sleep(pause / 1000 * random.uniform(1, 1.2))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nats", default="nats://127.0.0.1:4222")
    parser.add_argument("--user", default="worker-1", help="password: TENURE_PASSWORD")
    parser.add_argument("--pool", default="default")
    parser.add_argument("--cluster", default="TENURE")
    parser.add_argument("--concurrency", type=int, default=4)  # At most 1000.
    rest = asyncio.sleep
    known = dict(fail=fail, echo=lambda it: rest(0, it), sleep=lambda it: rest(it["ms"] / 1e3))
    asyncio.run(Worker(parser.parse_args(), known).run())
