"""Workers of which each is unruly in its own way: the first argument says in which."""

import argparse
import asyncio
import sys
import time

from worker import Worker


async def echo(given):
    return given


async def pause(given):
    await asyncio.sleep(given["ms"] / 1000)


async def block(given):  # Nothing else of this process goes on meanwhile, no heartbeat either.
    time.sleep(given["ms"] / 1000)


class Liar(Worker):
    """Says that much is free, and leaves alone all but every second Step that it is given."""

    async def state_room(self):
        self.options.concurrency = 40
        await super().state_room()

    async def attempt(self, claim, told):
        if int(claim["attempt_id"][-1], 16) % 2:
            await super().attempt(claim, told)


class Refuser(Worker):
    """Says that it has all handlers, and gives back whatever it is given."""

    async def attempt(self, claim, told):
        await told.wait()
        self.open[claim["attempt_id"]] = claim | {"fence_at": self.now + 3600}
        given = {name: claim[name] for name in ("attempt_id", "fencing_token")}
        await self.report(claim, "release_step", **given)
        self.open.pop(claim["attempt_id"], None)


class Failing(Worker):
    """Fails whatever it is given at once."""

    async def attempt(self, claim, told):
        self.handlers = {name: self.fails for name in self.handlers}
        await super().attempt(claim, told)

    async def fails(self, given):
        raise RuntimeError("this machine is broken")


KINDS = {"blocks": Worker, "lies": Liar, "refuses": Refuser, "fails": Failing}

how, nats, user, pool = sys.argv[1:]
handlers = {"echo": echo, "sleep": pause} | ({"block": block} if how == "blocks" else {})
options = argparse.Namespace(nats=nats, cluster='TENURE', user=user, pool=pool, concurrency=4)
asyncio.run(KINDS[how](options, handlers).run())
