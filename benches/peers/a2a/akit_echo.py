"""The agent that is measured, on a2akit with everything in Redis: PORT and REDIS_PORT in the environment.

It says again what it is told, and tells the time when it is asked for it, as echo.rs of the load generator does.
"""

import asyncio
import os
import time

import uvicorn
from a2akit import A2AServer, AgentCardConfig, CapabilitiesConfig, Worker

ASKS_TIME = "what time is it?"
THINKS_S = 0.15
AT_ONCE = 64


class Echo(Worker):
    async def handle(self, ctx):
        if ctx.user_text != ASKS_TIME:
            await ctx.complete(ctx.user_text)
            return
        await asyncio.sleep(THINKS_S)
        await ctx.emit_text_artifact(artifact_id="time", text=f"at:{time.time_ns()}")
        await ctx.complete()


def main():
    port, redis_port = os.environ["PORT"], os.environ["REDIS_PORT"]
    redis = f"redis://127.0.0.1:{redis_port}/0"
    card = AgentCardConfig(
        name="echo",
        description="Says again what it is told.",
        version="1",
        protocol="jsonrpc",
        capabilities=CapabilitiesConfig(streaming=True),
    )
    server = A2AServer(
        worker=Echo(),
        agent_card=card,
        storage=redis,
        broker=redis,
        event_bus=redis,
        max_concurrent_tasks=AT_ONCE,
    )
    uvicorn.run(server.as_fastapi_app(), host="127.0.0.1", port=int(port), log_level="error")


main()
