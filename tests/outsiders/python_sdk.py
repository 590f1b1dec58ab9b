"""The client of a2a-sdk for Python, over JSON-RPC and HTTP+JSON of 1.0 and of 0.3, against the agents of agents.toml.

python3 tests/outsiders/python_sdk.py http://127.0.0.1:7677
"""
import asyncio
import sys
from uuid import uuid4

from a2a.client import ClientConfig, create_client
from a2a.helpers import get_artifact_text, get_message_text
from a2a.types import (
    AuthenticationInfo,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
    TaskState,
)
from a2a.utils.errors import TaskNotCancelableError, TaskNotFoundError, UnsupportedOperationError

from receiver import Receiver

COMPLETED, CANCELED = TaskState.TASK_STATE_COMPLETED, TaskState.TASK_STATE_CANCELED


def request(text, task=None, context=None, **configuration):
    message = Message(message_id=str(uuid4()), role=Role.ROLE_USER, parts=[Part(text=text)],
                      task_id=task or "", context_id=context or "")
    return SendMessageRequest(message=message, configuration=SendMessageConfiguration(**configuration))


async def only(events):
    """The task, or the message, of an answer that is no stream."""
    told = [event async for event in events]
    assert len(told) == 1, told
    return told[0].task if told[0].HasField("task") else told[0].message


async def refused(error, call):
    try:
        await call
    except error:
        return
    raise AssertionError(f"{error.__name__} was due")


def kinds(events):
    return [event.WhichOneof("payload") for event in events]


def state_in(update):
    """The state that an update says, if it says one: 1.0 sends updates, and 0.3 tasks."""
    return update.get("statusUpdate", update).get("status", {}).get("state")


class Talk:
    """One agent, over one binding. A client of this SDK either streams or does not."""

    def __init__(self, plain, streaming):
        self.plain, self.streaming = plain, streaming

    async def say(self, *args, **more):
        return await only(self.plain.send_message(request(*args, **more)))

    async def get(self, task, **more):
        return await self.plain.get_task(GetTaskRequest(id=task, **more))

    async def cancel(self, task):
        return await self.plain.cancel_task(CancelTaskRequest(id=task))

    async def send(self):
        task = await self.say("say hello")
        assert task.status.state == COMPLETED, task
        assert get_artifact_text(task.artifacts[0]) == "hello"
        assert (await self.get(task.id)).artifacts == task.artifacts
        assert len((await self.get(task.id, history_length=1)).history) == 1
        await refused(TaskNotFoundError, self.get("absent"))
        await refused(UnsupportedOperationError, self.say("say more", task.id))
        return task

    async def stream(self):
        events = self.streaming.send_message(request("write poem"))
        told = [event async for event in events]
        assert kinds(told)[0] == "task" and "artifact_update" in kinds(told), told
        said = [get_message_text(it.status_update.status.message) for it in told
                if it.HasField("status_update") and it.status_update.status.HasField("message")]
        assert "I am looking for words." in said, told
        artifacts = [it.artifact_update.artifact for it in told if it.HasField("artifact_update")]
        assert [(it.name, get_artifact_text(it)) for it in artifacts] == [
            ("poem", "Roses are red."), ("output", "done")], artifacts
        assert told[-1].status_update.status.state == COMPLETED, told[-1]

    async def list(self, known):
        page = await self.plain.list_tasks(ListTasksRequest(context_id=known.context_id))
        assert [task.id for task in page.tasks] == [known.id] and page.total_size == 1, page
        assert not page.tasks[0].artifacts
        page = await self.plain.list_tasks(ListTasksRequest(status=COMPLETED, page_size=1, include_artifacts=True))
        assert len(page.tasks) == 1 and page.tasks[0].artifacts and page.next_page_token, page
        following = await self.plain.list_tasks(
            ListTasksRequest(status=COMPLETED, page_size=1, page_token=page.next_page_token))
        assert following.tasks[0].id != page.tasks[0].id

    async def follow_up(self):
        asks = await self.say("ask Your name?")
        assert asks.status.state == TaskState.TASK_STATE_INPUT_REQUIRED, asks
        assert get_message_text(asks.status.message) == "Your name?"
        task = await self.say("Ann", asks.id, asks.context_id)
        assert task.status.state == COMPLETED and task.id == asks.id, task
        assert get_artifact_text(task.artifacts[0]) == "You said Ann."

    async def listen_to_a_question(self):
        """A stream stays open at a question, and goes on with what comes of the answer."""
        asks = await self.say("ask Your name?")
        events = self.streaming.subscribe(SubscribeToTaskRequest(id=asks.id))
        assert (await anext(events)).task.status.state == asks.status.state
        answering = self.streaming.send_message(request("Ann", asks.id, asks.context_id))
        answered = [event async for event in answering]
        told = [event async for event in events]
        assert told[-1] == answered[-1] and told[-1].status_update.status.state == COMPLETED, told

    async def subscribe_and_cancel(self):
        task = await self.say("wait", return_immediately=True)
        events = self.streaming.subscribe(SubscribeToTaskRequest(id=task.id))
        first = await anext(events)
        assert first.task.id == task.id, first
        canceled = await self.cancel(task.id)
        assert canceled.id == task.id
        told = [event async for event in events]
        assert told[-1].status_update.status.state == CANCELED, told
        assert (await self.get(task.id)).status.state == CANCELED
        await refused(TaskNotCancelableError, self.cancel(task.id))

    async def push(self, has_lists=True):
        receiver = Receiver()
        config = TaskPushNotificationConfig(
            url=receiver.url, token="for me",
            authentication=AuthenticationInfo(scheme="Bearer", credentials="secret"))
        task = await self.say("write poem", task_push_notification_config=config)
        told = receiver.until(lambda body: state_in(body) in ("TASK_STATE_COMPLETED", "completed"))
        for headers, _ in told:
            assert headers["X-A2A-Notification-Token"] == "for me"
            assert headers["Authorization"] == "Bearer secret"
        assert any("artifactUpdate" in body or "artifacts" in body for _, body in told), told
        await self.push_configurations(task.id, receiver.url, has_lists)

    async def push_configurations(self, task, url, has_lists):
        given = TaskPushNotificationConfig(task_id=task, id="second", url=url)
        made = await self.plain.create_task_push_notification_config(given)
        assert (made.id, made.task_id, made.url) == ("second", task, url), made
        one = GetTaskPushNotificationConfigRequest(task_id=task, id="second")
        assert await self.plain.get_task_push_notification_config(one) == made
        if not has_lists:
            return
        all_of = ListTaskPushNotificationConfigsRequest(task_id=task)
        page = await self.plain.list_task_push_notification_configs(all_of)
        assert len(page.configs) == 2 and made in page.configs, page
        gone = DeleteTaskPushNotificationConfigRequest(task_id=task, id="second")
        await self.plain.delete_task_push_notification_config(gone)
        page = await self.plain.list_task_push_notification_configs(all_of)
        assert len(page.configs) == 1, page


async def talk(url, binding, is_old=False):
    """Speaks to an agent as far as this client goes: in 0.3 it has no lists, over HTTP+JSON none of callbacks."""
    clients = [
        await create_client(url, ClientConfig(
            streaming=streaming, supported_protocol_bindings=[binding], use_client_preference=True))
        for streaming in (False, True)
    ]
    talk = Talk(*clients)
    known = await talk.send()
    await talk.stream()
    if not is_old:
        await talk.list(known)
        await talk.listen_to_a_question()
    await talk.follow_up()
    await talk.subscribe_and_cancel()
    await talk.push(has_lists=not is_old or binding == "JSONRPC")
    for client in clients:
        await client.close()


async def ask_the_oracle(url):
    client = await create_client(url, ClientConfig(streaming=False))
    message = await only(client.send_message(request("say hello")))
    assert get_message_text(message) == "hello", message
    await client.close()


async def main(url):
    for binding in ("JSONRPC", "HTTP+JSON"):
        await talk(f"{url}/a2a/helper", binding)
        print(f"{binding}: send, get, stream, list, follow-up, subscribe, cancel, push")
        await talk(f"{url}/a2a/helper/v0.3", binding, is_old=True)
        print(f"{binding} of 0.3: send, get, stream, follow-up, subscribe, cancel, push")
    await ask_the_oracle(f"{url}/a2a/oracle")
    print("a message in place of a task")


asyncio.run(main(sys.argv[1]))
