"""The protocol of Tenure for workers, written from docs/protocol.md alone."""

import asyncio, contextlib, json, os, random, secrets, signal, sys, time
from collections import defaultdict

import msgpack, nats
from nats.errors import NoRespondersError, TimeoutError as NoAnswer

OVER = {"stale_attempt", "task_terminal", "run_ended"}  # Nothing said of the Attempt counts any more.

class Failed(Exception):
    """What a handler raises to fail its Step: code, message, and false if another try is useless."""

def clock():
    return time.clock_gettime(time.CLOCK_BOOTTIME)  # Goes on while the machine sleeps.

class Link:
    def __init__(self, name, older):
        self.name, self.older, self.named_twice, self.heard = name, older, False, clock()
        self.number = self.seen = self.got = self.hungry = 0

class Attempt:
    def __init__(self, claim, node):
        self.claim, self.node, self.lost, self.released, self.task = claim, node, False, False, None
        self.fence_at = clock() + 0.9 * claim["lease_ms"] / 3000  # Until a heartbeat is answered.

    def stop(self, lost=False, released=False):
        self.lost, self.released = self.lost or lost, self.released or released
        self.task.cancel()

class Worker:
    def __init__(self, options, handlers):
        self.options, self.handlers, boot = options, handlers, secrets.token_hex(8)
        self.root = f"tenure.v1.worker.{options.pool}.{options.user}.{boot}"
        self.inbox = f"_INBOX.worker.{options.user}.{boot}"
        self.links, self.open, self.known, self.beats = {}, {}, set(), {}
        self.at_work, self.leaving, self.partitions, self.soon = 0, False, None, asyncio.Event()
        self.stopped = asyncio.Event()
        self.words, self.pumps, self.tasks = defaultdict(list), set(), set()

    async def run(self):
        async def complain(error):
            print(f"nats: {error}", file=sys.stderr)  # A missing right is told here and nowhere else.
        self.nc = await nats.connect(
            self.options.nats, user=self.options.user, password=os.environ.get("TENURE_PASSWORD", ""),
            inbox_prefix=self.inbox.encode(), max_reconnect_attempts=-1, error_cb=complain)
        await self.nc.subscribe(f"{self.inbox}.d.*", cb=self.on_deliveries)
        await self.nc.subscribe(f"{self.inbox}.hb.*", cb=self.on_pulses)
        await self.nc.subscribe("tenure.v1.node.>", cb=self.on_node)
        await self.hello()
        loops = [asyncio.create_task(loop()) for loop in (self.beat, self.restate, self.fence)]
        stopped = self.stopped
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        await stopped.wait()
        self.leaving = True
        await self.tell()  # No room any more.
        if self.tasks:
            await asyncio.wait(self.tasks, timeout=self.options.grace)
        for attempt in self.open.values():
            attempt.stop(released=True)
        while self.tasks:
            await asyncio.wait(self.tasks)
        await self.say("bye", {})
        await self.nc.drain()
        for loop in loops:
            loop.cancel()

    async def say(self, to, message, reply=""):
        await self.nc.publish(f"{self.root}.{to}", msgpack.packb({"v": 1, **message}), reply=reply)

    async def hello(self):
        await self.say("hello", {"handlers": list(self.handlers)})

    async def ask(self, to, message):
        """An answer: what was asked for, and the error."""
        try:
            message = msgpack.packb({"v": 1, **message})
            answer = msgpack.unpackb((await self.nc.request(f"{self.root}.{to}", message, timeout=5)).data)
            return answer.get("ok"), answer.get("error")
        except (NoRespondersError, NoAnswer) as error:
            return None, {"code": "unavailable", "message": repr(error), "retryable": True}

    def spawn(self, work):
        self.tasks.add(task := asyncio.create_task(work))
        task.add_done_callback(self.tasks.discard)
        return task

    # Links, deliveries and room.

    async def on_node(self, message):
        said = msgpack.unpackb(message.data)
        link = self.links.get(said["node"])
        self.partitions = said.get("partitions", self.partitions)
        if link is None or not link.named_twice:
            return await self.hello()
        link.heard = clock()
        if said.get("pool") == self.options.pool:  # It is hungry: it gets what the others have.
            link.hungry = clock()
            await self.tell()

    async def on_deliveries(self, message):
        said = msgpack.unpackb(message.data)
        link, items = self.links.get(said["node"]), said["deliveries"]
        if link is None or link.name != said["link"]:
            if link is None or said["link"] not in link.older:
                self.links[said["node"]] = Link(said["link"], link.older | {link.name} if link else set())
                await self.hello()  # The node may not know the handlers: it names the link once more.
            return
        link.named_twice |= not items
        for item in items[max(0, link.got + 1 - said["first"]):] if said["first"] <= link.got + 1 else []:
            link.got += 1
            link.seen += "grant" in item or "run" in item
            if "grant" in item:
                self.begin(item["grant"], said["node"])
            elif "run" in item:
                why = {"reason": {"code": "declined", "message": "this worker takes no runs"}}
                self.spawn(self.report(item["run"], "decline_run", why))
            elif item.get("drain"):
                self.stopped.set()
            elif attempt := self.open.get(item.get("cancel_requested") or item.get("lost")):
                attempt.stop(lost="lost" in item)
        await self.tell()

    def room(self, node):
        """States a node's part of the free room. Hungry nodes share it, or else all; the rest goes round."""
        linked = sorted(name for name, link in self.links.items() if link.named_twice)
        parts = [name for name in linked if clock() - self.links[name].hungry < 1] or linked
        free = 0 if self.leaving or node not in parts else max(0, self.options.concurrency - self.at_work)
        turn = ((parts.index(node) if node in parts else 0) + int(clock() / 2)) % len(parts)
        link = self.links[node]
        link.number += 1
        return {"v": 1, "link": link.name, "number": link.number, "seen": link.seen, "got": link.got,
                "free": free // len(parts) + (turn < free % len(parts))}

    async def tell(self):
        for node in [name for name, link in self.links.items() if link.named_twice]:
            await self.say(f"node.{node}", self.room(node))

    async def restate(self):
        while await asyncio.sleep(2, True):
            self.links = {node: link for node, link in self.links.items() if clock() - link.heard < 6}
            await self.tell()

    # Attempts: begun, kept alive, ended.

    def begin(self, claim, node):
        if claim["attempt_id"] in self.known:
            return  # A message that came twice runs once.
        self.known.add(claim["attempt_id"])
        attempt = self.open[claim["attempt_id"]] = Attempt(claim, node)
        attempt.released = self.leaving or self.at_work >= self.options.concurrency  # No room: it goes back.
        self.at_work += 1
        attempt.task = asyncio.create_task(self.handle(claim["step"], attempt.released))
        self.spawn(self.finish(attempt))
        self.soon.set()

    async def handle(self, step, released):
        if released:
            raise asyncio.CancelledError
        if step["handler"] not in self.handlers:
            raise Failed("unknown_handler", f"this worker has no handler {step['handler']}", None)
        value = step.get("input")
        return await self.handlers[step["handler"]](json.loads(value["data"]) if value else None)

    async def finish(self, attempt):
        claim = attempt.claim
        proof = {name: claim[name] for name in ("attempt_id", "fencing_token")}
        step = {"step_id": claim["step"]["step_id"], **proof}
        def failed(code, message, again=None):
            reason = {"code": code, "message": message[:4000], "retryable": again}
            return "task_update_step", {**step, "status": "failed", "reason": reason}
        try:
            output = {"content_type": "application/json", "data": json.dumps(await attempt.task).encode()}
            word = "task_update_step", {**step, "status": "completed", "output": output}
        except asyncio.CancelledError:
            word = ("release_step", proof) if attempt.released else ("end_run", {"outcome": "cancelled"})
        except Failed as error:
            word = failed(*error.args)
        except Exception as error:
            word = failed("unhandled_exception", repr(error))
        self.at_work -= 1
        error = None if attempt.lost else await self.report(claim, *word, attempt)
        if error and not error.get("retryable") and error["code"] not in OVER:
            await self.report(claim, *failed(error["code"], error["message"], False), attempt)
        del self.open[claim["attempt_id"]]
        await self.tell()

    async def beat(self):
        names = ("session_id", "task_id", "run_id", "attempt_id", "fencing_token")
        while True:
            shortest = min((a.claim["lease_ms"] for a in self.open.values()), default=3_600_000)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.soon.wait(), shortest / 3000)
            self.soon.clear()
            held = [{name: a.claim[name] for name in names} for a in self.open.values() if not a.lost]
            for at in range(0, len(held), 1000):
                self.beats[number := secrets.token_hex(4)] = clock()
                await self.say("hb", {"holdings": held[at:at + 1000]}, f"{self.inbox}.hb.{number}")

    async def on_pulses(self, message):
        asked = self.beats[message.subject.rsplit(".", 1)[-1]]  # A lease counts from before the request.
        for pulse in msgpack.unpackb(message.data).get("ok", {}).get("pulses", []):
            if attempt := self.open.get(pulse["attempt_id"]):
                lease = pulse.get("lease_ms")
                attempt.fence_at = max(attempt.fence_at, asked + 0.9 * (lease or 0) / 1000)
                if lease is None or pulse.get("cancel_requested"):
                    attempt.stop(lost=lease is None)

    async def fence(self):
        """Stops what could not be kept alive, before somebody else may hold it."""
        while await asyncio.sleep(0.1, True):
            for attempt in [a for a in self.open.values() if not a.lost and clock() >= a.fence_at]:
                print(f"{attempt.claim['attempt_id']}: its lease could not be renewed", file=sys.stderr)
                attempt.stop(lost=True)

    # Reports: in batches, one at a time for each partition, repeated until recorded.

    async def report(self, of, operation, given, attempt=None):
        value = 0xCBF29CE484222325
        for byte in f"{of['session_id']}\0{of['task_id']}".encode():
            value = (value ^ byte) * 0x100000001B3 % 2**64
        partition = (value >> 32) % self.partitions
        report = {name: of[name] for name in ("session_id", "task_id", "run_id")}
        report["word"] = {"operation": operation, "input": given}
        answer = asyncio.get_running_loop().create_future()
        self.words[partition].append((report, attempt, answer))
        if partition not in self.pumps:
            self.pumps.add(partition)
            self.spawn(self.pump(partition))
        return await answer

    async def pump(self, partition):
        words, wait, most = self.words[partition], 0.05, 256
        while words:
            batch = words[:most]
            while len(batch) > 1 and sum(len(msgpack.packb(report)) for report, *_ in batch) > 2**19:
                batch = batch[:len(batch) // 2]
            del words[:len(batch)]
            message = {"reports": [report for report, _, _ in batch]}
            node = batch[0][1] and batch[0][1].node
            if node in self.links and self.links[node].named_twice:
                message["room"] = self.room(node)
            done, error = await self.ask(f"report.{partition}", message)
            results = done["results"] if done else [{"error": error}] * len(batch)
            if error and not error.get("retryable") and len(batch) > 1:  # One of them is to blame.
                most, results = 1, [{"error": {**error, "retryable": True}}] * len(batch)
            again = []
            for word, result in zip(batch, results):
                why = result.get("error")
                if why and why.get("retryable") and not (word[1] and word[1].lost):
                    again.append(word)
                else:
                    word[2].set_result(why)
            words[:0] = again
            if again:
                await asyncio.sleep(wait * random.uniform(0.5, 1))
            wait = min(2 * wait, 1) if again else 0.05
        self.pumps.discard(partition)
