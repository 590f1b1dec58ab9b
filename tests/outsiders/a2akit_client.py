"""The client of a2akit, which speaks 0.3, over JSON-RPC and HTTP+JSON, against the agents of agents.toml.

python3 tests/outsiders/a2akit_client.py http://127.0.0.1:7677
"""
import asyncio
import sys

from a2akit.client import A2AClient
from a2akit.client.errors import TaskNotCancelableError, TaskNotFoundError, TaskTerminalError

from receiver import Receiver


async def refused(error, call):
    try:
        await call
    except error:
        return
    raise AssertionError(f"{error.__name__} was due")


async def send(client):
    done = await client.send("say hello")
    assert done.completed and done.text == "hello", done
    assert (await client.get_task(done.task_id)).artifacts == done.artifacts
    assert len((await client.get_task(done.task_id, history_length=1)).raw_task.history) == 1
    await refused(TaskNotFoundError, client.get_task("absent"))
    await refused(TaskTerminalError, client.send("say more", task_id=done.task_id))
    return done


async def stream(client):
    told = [event async for event in client.stream("write poem")]
    assert told[0].kind == "task" and told[-1].is_final, told
    assert told[-1].state == "completed", told
    assert "I am looking for words." in [event.text for event in told if event.kind == "status"], told
    assert [event.text for event in told if event.kind == "artifact"] == ["Roses are red.", "done"], told
    texts = [text async for text in client.stream_text("write poem")]
    assert texts == ["Roses are red.", "done"], texts


async def list_tasks(client, known):
    page = await client.list_tasks(context_id=known.context_id)
    assert [task.task_id for task in page.tasks] == [known.task_id], page
    page = await client.list_tasks(status="completed", page_size=1)
    assert len(page.tasks) == 1 and page.next_page_token, page


async def follow_up(client):
    asks = await client.send("ask Your name?")
    assert asks.input_required and asks.text == "Your name?", asks
    done = await client.send("Ann", task_id=asks.task_id)
    assert done.task_id == asks.task_id and done.text == "You said Ann.", done


async def subscribe_and_cancel(client):
    task = await client.send("wait", blocking=False)
    events = client.subscribe(task.task_id)
    first = await anext(events)
    assert first.kind == "task" and first.task_id == task.task_id, first
    assert (await client.cancel(task.task_id)).task_id == task.task_id
    told = [event async for event in events]
    assert told[-1].state == "canceled" and told[-1].is_final, told
    assert (await client.get_task(task.task_id)).canceled
    await refused(TaskNotCancelableError, client.cancel(task.task_id))
    # A reader that lost its connection gets what it missed, and nothing twice.
    missed = [event async for event in client.subscribe(task.task_id, last_event_id=first.event_id)]
    assert [event.event_id for event in missed] == [event.event_id for event in told], missed


async def push(client):
    receiver = Receiver()
    done = await client.send("write poem", push_url=receiver.url, push_token="for me")
    told = receiver.until(lambda task: task["status"]["state"] == "completed")
    assert {headers["X-A2A-Notification-Token"] for headers, _ in told} == {"for me"}
    assert {task["id"] for _, task in told} == {done.task_id}
    await client.set_push_config(done.task_id, url=receiver.url, config_id="second")
    made = await client.get_push_config(done.task_id, "second")
    assert made["pushNotificationConfig"]["url"] == receiver.url, made
    known = await client.list_push_configs(done.task_id)
    assert len(known) == 2, known
    await client.delete_push_config(done.task_id, "second")
    assert len(await client.list_push_configs(done.task_id)) == 1


async def talk(url, protocol):
    async with A2AClient(url, protocol=protocol) as client:
        assert client.protocol == protocol
        known = await send(client)
        await stream(client)
        await list_tasks(client, known)
        await follow_up(client)
        await subscribe_and_cancel(client)
        await push(client)


async def main(url):
    for protocol in ("jsonrpc", "http+json"):
        await talk(f"{url}/a2a/helper/v0.3", protocol)
        print(f"{protocol}: send, get, stream, list, follow-up, subscribe, cancel, push")


asyncio.run(main(sys.argv[1]))
