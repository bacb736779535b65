// The official package for tasks (npm @modelcontextprotocol/ext-tasks) on the official TypeScript client of the newest revision:
// calls one tool and settles what comes of it.
//   usage: node tasks.mjs NODE_MODULES <PLAN     with {"url": ..., "name": ..., "arguments": {...}}
// The answer: {"kind": "task" or "immediate", "statuses": [...], "result": ...}
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const load = (file) => import(pathToFileURL(join(process.argv[2], "@modelcontextprotocol", file)));
const { Client, StreamableHTTPClientTransport } = await load("client/dist/index.mjs");
const { createTaskSessionFromClient, resultFromTaskOutcome } = await load("ext-tasks/dist/client/index.js");

const plan = JSON.parse(readFileSync(0, "utf8"));
const clientInfo = { name: "helmdeck-tests", version: "1" };
const clientCapabilities = { extensions: { "io.modelcontextprotocol/tasks": {} } };
const protocolVersion = "2026-07-28";

// The client itself cannot send what belongs to tasks yet; its host does (see the package's "rawDispatch").
let last = 0;
async function rawDispatch(request, { signal } = {}) {
  const { name, uri, taskId } = request.params;
  const headers = {
    "content-type": "application/json",
    accept: "application/json, text/event-stream",
    "mcp-protocol-version": protocolVersion,
    "mcp-method": request.method,
    "mcp-name": name ?? uri ?? taskId,
  };
  const body = JSON.stringify({ jsonrpc: "2.0", id: `raw-${++last}`, ...request });
  const answer = await (await fetch(plan.url, { method: "POST", headers, body, signal })).json();
  return answer.error ? { kind: "error", error: answer.error } : { kind: "result", result: answer.result };
}

const client = new Client(clientInfo, { capabilities: clientCapabilities, versionNegotiation: { mode: "auto" } });
await client.connect(new StreamableHTTPClientTransport(new URL(plan.url)));
const session = createTaskSessionFromClient(client, {
  endpointId: "helmdeck",
  rawDispatch,
  v2RequestFraming: { protocolVersion, clientInfo, clientCapabilities },
});
const execution = await session.callTool(plan.name, plan.arguments);
const { outcome } = await execution.settle();
const answer = JSON.stringify({ kind: execution.kind, result: resultFromTaskOutcome(outcome) });
// What is longer than a pipe takes at once would be cut off by the exit.
await new Promise((written) => process.stdout.write(`${answer}\n`, written));
await session.close();
await client.close();
process.exit(0);
