"""An agent that is written with a2a-sdk for Python: the client of Tenure speaks to it.

python3 tests/outsiders/peer.py says its address, and serves until it is killed. The card at the address prefers
JSON-RPC, that below /rest HTTP+JSON. The first word of a message says what to do: say, ask, fail, reject, wait, work,
which goes on for so many seconds, or reply, which makes no task.
"""
import asyncio
import socket

import uvicorn
from a2a.helpers import get_message_text, new_task_from_user_message, new_text_message, new_text_part
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill
from starlette.applications import Starlette


class Peer(AgentExecutor):
    async def execute(self, context, events):
        verb, _, rest = get_message_text(context.message).partition(" ")
        if verb == "reply":
            return await events.enqueue_event(new_text_message(rest, context_id=context.context_id))
        if not context.current_task:
            await events.enqueue_event(new_task_from_user_message(context.message))
        updater = TaskUpdater(events, context.task_id, context.context_id)
        await updater.start_work()
        if context.current_task:
            return await self.complete(updater, f"You said {get_message_text(context.message)}.")
        said = updater.new_agent_message([new_text_part(rest)])
        match verb:
            case "ask":
                await updater.requires_input(said)
            case "fail":
                await updater.failed(said)
            case "reject":
                await updater.reject(said)
            case "wait":
                await asyncio.Event().wait()
            case "work":
                await updater.start_work(new_text_message(f"This takes {rest} s."))
                await asyncio.sleep(float(rest))
                await self.complete(updater, "done")
            case _:
                await self.complete(updater, rest)

    async def complete(self, updater, text):
        await updater.add_artifact([new_text_part(text)], name="output")
        await updater.complete()

    async def cancel(self, context, events):
        await TaskUpdater(events, context.task_id, context.context_id).cancel()


def card(url, *interfaces):
    skill = AgentSkill(id="help", name="Help", description="Does what it is told.", tags=["test"])
    return AgentCard(
        name="Peer", description="Does what it is told.", version="1.0", skills=[skill],
        default_input_modes=["text/plain"], default_output_modes=["text/plain"],
        capabilities=AgentCapabilities(streaming=True),
        supported_interfaces=[
            AgentInterface(url=f"{url}{path}", protocol_binding=binding, protocol_version=version)
            for path, binding, version in interfaces
        ],
    )


def routes(url):
    rpc, old = ("/rpc", "JSONRPC", "1.0"), ("/rpc", "JSONRPC", "0.3")
    rest = ("/rest", "HTTP+JSON", "1.0")
    first = card(url, rpc, rest, old)
    handler = DefaultRequestHandler(Peer(), InMemoryTaskStore(), first)
    return [
        *create_agent_card_routes(first),
        *create_agent_card_routes(card(url, rest, rpc), card_url="/rest/.well-known/agent-card.json"),
        *create_jsonrpc_routes(handler, "/rpc", enable_v0_3_compat=True),
        *create_rest_routes(handler, path_prefix="/rest"),
    ]


def main():
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes(url)), log_level="warning"))
    print(f"agent at {url}", flush=True)
    server.run(sockets=[listener])


main()
