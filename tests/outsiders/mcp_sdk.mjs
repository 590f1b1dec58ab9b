// The client of @modelcontextprotocol/sdk, which speaks versions of MCP up to 2025-11-25.
//
// node mcp_sdk.mjs http://127.0.0.1:7677
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const task_id = `js-${randomUUID()}`;
const client = new Client({ name: "outsider", version: "1" });
const transport = new StreamableHTTPClientTransport(new URL(`${process.argv[2]}/mcp`));
await client.connect(transport);

const { tools } = await client.listTools(); // Learns their output schemas, against which results are checked.
assert.ok(tools.length >= 16, tools.map(({ name }) => name).join());
const { prompts } = await client.listPrompts();
assert.ok(prompts.length > 0);
const { resourceTemplates } = await client.listResourceTemplates();
assert.ok(resourceTemplates.length > 0);

async function call(name, more = {}, onprogress = undefined) {
  const result = await client.callTool({ name, arguments: { task_id, ...more } }, undefined, { onprogress });
  assert.ok(!result.isError, JSON.stringify(result));
  return result.structuredContent;
}

const input = { content_type: "application/json", data: JSON.stringify({ name: "Ann" }) };
const steps = [{ step_id: "a", title: "a", handler: "greet", input }];
const auto = { dispatch: "auto", completion: "auto", default_worker_pool_id: "kit" };
await call("task_create", { title: "From JavaScript", ...auto, steps });
const waited = await call("wait", { until: "end", seconds: 30 }, () => {});
assert.ok(waited.ended, JSON.stringify(waited));

// Any resource of one task will do.
const uris = resourceTemplates.map(({ uriTemplate }) => uriTemplate);
const ofTask = uris.find((uri) => uri.endsWith("{task_id}") || uri.endsWith("{task_id}/board"));
assert.ok(ofTask, uris.join());
const uri = ofTask.replace("{session}", "default").replace("{session_id}", "default").replace("{task_id}", task_id);
const { contents } = await client.readResource({ uri });
assert.match(contents[0].text, /From JavaScript/);

const offered = await client.callTool({ name: "greet", arguments: { name: "Bob" } });
assert.equal(offered.content[0].text, "Hello, Bob!");
await client.close();
console.log(`  over HTTP, ${transport.protocolVersion}: a task, its resource, an offered tool`);
