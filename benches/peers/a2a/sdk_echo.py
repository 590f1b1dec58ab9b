"""The agent that is measured, on a2a-sdk with everything in memory: PORT in the environment.

It says again what it is told, and tells the time when it is asked for it, as echo.rs of the load generator does.
"""

import asyncio
import os
import time

import uvicorn
from a2a.helpers.proto_helpers import new_task_from_user_message
from a2a.server.agent_execution.agent_executor import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Part
from starlette.applications import Starlette

ASKS_TIME = "what time is it?"
THINKS_S = 0.15


class Echo(AgentExecutor):
    async def execute(self, context, event_queue):
        text = context.get_user_input()
        await event_queue.enqueue_event(new_task_from_user_message(context.message))
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        await updater.start_work()
        if text == ASKS_TIME:
            await asyncio.sleep(THINKS_S)
            text = f"at:{time.time_ns()}"
        await updater.add_artifact([Part(text=text)], name="output")
        await updater.complete()

    async def cancel(self, context, event_queue):
        raise NotImplementedError


def main():
    port = int(os.environ["PORT"])
    interface = AgentInterface(
        url=f"http://127.0.0.1:{port}/", protocol_binding="JSONRPC", protocol_version="1.0"
    )
    card = AgentCard(
        name="echo",
        description="Says again what it is told.",
        version="1",
        supported_interfaces=[interface],
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="say", name="Say", description="Says it again.", tags=["demo"])],
    )
    handler = DefaultRequestHandler(
        agent_executor=Echo(), task_store=InMemoryTaskStore(), agent_card=card
    )
    routes = create_jsonrpc_routes(handler, rpc_url="/")
    uvicorn.run(Starlette(routes=routes), host="127.0.0.1", port=port, log_level="error")


main()
