// The client of @a2a-js/sdk, over JSON-RPC and HTTP+JSON of 1.0 and of 0.3, against the agents of agents.toml.
//
// node js_sdk.mjs http://127.0.0.1:7677
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import http from "node:http";

import * as a2a from "@a2a-js/sdk";
import {
  ClientFactory,
  ClientFactoryOptions,
  DefaultAgentCardResolver,
  JsonRpcTransportFactory,
  RestTransportFactory,
} from "@a2a-js/sdk/client";
import { TaskNotCancelableError, TaskNotFoundError, UnsupportedOperationError } from "@a2a-js/sdk/errors";

const { COMPLETED, CANCELED, INPUT_REQUIRED } = Object.fromEntries(
  ["COMPLETED", "CANCELED", "INPUT_REQUIRED"].map((name) => [name, a2a.taskStateFromJSON(`TASK_STATE_${name}`)]),
);

function request(text, about = {}, configuration = {}) {
  const message = { messageId: randomUUID(), role: "ROLE_USER", parts: [{ text }], ...about };
  return a2a.SendMessageRequest.fromJSON({ message, configuration });
}

/** The text of a message or an artifact. */
function textOf({ parts }) {
  const texts = parts.map((part) => a2a.Part.toJSON(part).text);
  return texts.join("");
}

/** What a stream tells, as the JSON that goes over the network. */
async function all(stream) {
  const told = [];
  for await (const event of stream) told.push(a2a.StreamResponse.toJSON(event));
  return told;
}

async function send(client) {
  const task = await client.sendMessage(request("say hello"));
  assert.equal(task.status.state, COMPLETED);
  assert.equal(textOf(task.artifacts[0]), "hello");
  const again = await client.getTask(a2a.GetTaskRequest.fromJSON({ id: task.id, historyLength: 1 }));
  assert.deepEqual(again.artifacts, task.artifacts);
  assert.equal(again.history.length, 1);
  await assert.rejects(client.getTask(a2a.GetTaskRequest.fromJSON({ id: "absent" })), TaskNotFoundError);
  await assert.rejects(client.sendMessage(request("say more", { taskId: task.id })), UnsupportedOperationError);
  return task;
}

async function stream(client) {
  const told = await all(client.sendMessageStream(request("write poem")));
  assert.ok(told[0].task, JSON.stringify(told));
  const statuses = told.flatMap(({ statusUpdate }) => statusUpdate?.status ?? []);
  const said = statuses.flatMap(({ message }) => message?.parts?.map(({ text }) => text) ?? []);
  assert.ok(said.includes("I am looking for words."), JSON.stringify(told));
  const artifacts = told.flatMap(({ artifactUpdate }) => artifactUpdate?.artifact ?? []);
  const shown = artifacts.map(({ name, parts }) => [name, parts[0].text]);
  assert.deepEqual(shown, [["poem", "Roses are red."], ["output", "done"]]);
  assert.equal(told.at(-1).statusUpdate.status.state, "TASK_STATE_COMPLETED");
}

async function list(client, known) {
  const page = await client.listTasks(a2a.ListTasksRequest.fromJSON({ contextId: known.contextId }));
  assert.deepEqual(page.tasks.map(({ id }) => id), [known.id]);
  assert.equal(page.totalSize, 1);
  const asked = { status: "TASK_STATE_COMPLETED", pageSize: 1, includeArtifacts: true };
  const first = await client.listTasks(a2a.ListTasksRequest.fromJSON(asked));
  assert.equal(first.tasks.length, 1);
  assert.ok(first.tasks[0].artifacts.length > 0);
  const more = { ...asked, pageToken: first.nextPageToken };
  const second = await client.listTasks(a2a.ListTasksRequest.fromJSON(more));
  assert.notEqual(second.tasks[0].id, first.tasks[0].id);
}

async function followUp(client) {
  const asks = await client.sendMessage(request("ask Your name?"));
  assert.equal(asks.status.state, INPUT_REQUIRED);
  assert.equal(textOf(asks.status.message), "Your name?");
  const task = await client.sendMessage(request("Ann", { taskId: asks.id, contextId: asks.contextId }));
  assert.equal(task.id, asks.id);
  assert.equal(task.status.state, COMPLETED);
  assert.equal(textOf(task.artifacts[0]), "You said Ann.");
}

async function subscribeAndCancel(client) {
  const { id } = await client.sendMessage(request("wait", {}, { returnImmediately: true }));
  const events = client.resubscribeTask(a2a.SubscribeToTaskRequest.fromJSON({ id }));
  const first = await events.next();
  assert.equal(a2a.StreamResponse.toJSON(first.value).task.id, id);
  const cancel = () => client.cancelTask(a2a.CancelTaskRequest.fromJSON({ id }));
  assert.equal((await cancel()).id, id);
  const told = await all(events);
  assert.equal(told.at(-1).statusUpdate.status.state, "TASK_STATE_CANCELED");
  assert.equal((await client.getTask(a2a.GetTaskRequest.fromJSON({ id }))).status.state, CANCELED);
  await assert.rejects(cancel(), TaskNotCancelableError);
}

/** Takes updates on a free port, and resolves with them once the task has ended. */
async function receiver() {
  const told = [];
  let resolve;
  const done = new Promise((it) => (resolve = it));
  const server = http.createServer(async (asked, answer) => {
    let body = "";
    for await (const chunk of asked) body += chunk;
    const update = JSON.parse(body);
    told.push({ headers: asked.headers, update });
    answer.end();
    const { state } = (update.statusUpdate ?? update).status ?? {}; // 1.0 sends updates, and 0.3 tasks.
    if (state === "TASK_STATE_COMPLETED" || state === "completed") resolve(told);
  });
  await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
  const url = `http://127.0.0.1:${server.address().port}/updates`;
  return { url, told: done, close: () => server.close() };
}

async function push(client) {
  const callbacks = await receiver();
  const authentication = { scheme: "Bearer", credentials: "secret" };
  const config = { url: callbacks.url, token: "for me", authentication };
  const configuration = { taskPushNotificationConfig: config };
  const { id } = await client.sendMessage(request("write poem", {}, configuration));
  const told = await callbacks.told;
  callbacks.close();
  for (const { headers } of told) {
    assert.equal(headers["x-a2a-notification-token"], "for me");
    assert.equal(headers.authorization, "Bearer secret");
  }
  assert.ok(told.some(({ update }) => update.artifactUpdate ?? update.artifacts));
  await pushConfigurations(client, id, callbacks.url);
}

async function pushConfigurations(client, taskId, url) {
  const given = a2a.TaskPushNotificationConfig.fromJSON({ taskId, id: "second", url });
  const made = await client.createTaskPushNotificationConfig(given);
  assert.deepEqual([made.taskId, made.id, made.url], [taskId, "second", url]);
  const one = { taskId, id: "second", tenant: "" };
  assert.deepEqual(await client.getTaskPushNotificationConfig(one), made);
  const known = async () => {
    const asked = { taskId, tenant: "", pageSize: 0, pageToken: "" };
    const { configs } = await client.listTaskPushNotificationConfig(asked);
    return configs.map(({ id }) => id);
  };
  assert.equal((await known()).length, 2);
  await client.deleteTaskPushNotificationConfig(one);
  assert.equal((await known()).includes("second"), false);
}

/** Speaks to an agent as far as its version goes: this client has no lists in 0.3. */
async function talk(url, transport, version) {
  const options = ClientFactoryOptions.createFrom(ClientFactoryOptions.default, {
    transports: [transport],
    preferredTransports: [transport.protocolName],
    cardResolver: new DefaultAgentCardResolver({ legacyCompat }),
  });
  const client = await new ClientFactory(options).createFromUrl(url, ".well-known/agent-card.json");
  assert.deepEqual([client.transport.protocolName, client.protocolVersion], [transport.protocolName, version]);
  const known = await send(client);
  await stream(client);
  if (version !== "0.3") await list(client, known);
  await followUp(client);
  await subscribeAndCancel(client);
  await push(client);
}

const url = process.argv[2];
const legacyCompat = { enabled: true };
for (const transport of [new JsonRpcTransportFactory(), new RestTransportFactory()]) {
  await talk(`${url}/a2a/helper/`, transport, "1.0");
  console.log(`${transport.protocolName}: send, get, stream, list, follow-up, subscribe, cancel, push`);
}
for (const transport of [new JsonRpcTransportFactory({ legacyCompat }), new RestTransportFactory({ legacyCompat })]) {
  await talk(`${url}/a2a/helper/v0.3/`, transport, "0.3");
  console.log(`${transport.protocolName} of 0.3: send, get, stream, follow-up, subscribe, cancel, push`);
}
