// The official TypeScript client (npm @modelcontextprotocol/sdk), driven by the same plan as client.py, and with the same answer.
//   usage: node client.mjs NODE_MODULES <PLAN     (`mode` has no meaning here: this client opens with a handshake)
import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";

const sdk = createRequire(join(process.argv[2], "client.js"));
const { Client } = sdk("@modelcontextprotocol/sdk/client/index.js");
const { StdioClientTransport } = sdk("@modelcontextprotocol/sdk/client/stdio.js");
const { StreamableHTTPClientTransport } = sdk("@modelcontextprotocol/sdk/client/streamableHttp.js");
const { McpError } = sdk("@modelcontextprotocol/sdk/types.js");

const plan = JSON.parse(readFileSync(0, "utf8"));
const client = new Client({ name: "helmdeck-tests", version: "1" });

function transport({ url, headers, command, env }) {
  if (url) return new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } });
  return new StdioClientTransport({ command: command[0], args: command.slice(1), env });
}

async function pages(fetch, field) {
  const found = [];
  for (let cursor; ; ) {
    const page = await fetch({ cursor });
    found.push(...page[field]);
    cursor = page.nextCursor;
    if (cursor === undefined) return { ...page, [field]: found };
  }
}

// This client hands a report of progress on only later than it takes it in, and no more once the result is there; of what comes
// with the result in one go nothing would be seen. So it is noted as it comes in; `onprogress` is what makes the client ask for it.
const progress = [];

async function call({ name, arguments: input, meta }) {
  progress.length = 0;
  const result = await client.callTool({ name, arguments: input, _meta: meta }, undefined, { onprogress() {} });
  return { result, progress: [...progress] };
}

async function cancel({ name, arguments: input, once }) {
  const giveUp = new AbortController();
  const running = client.callTool({ name, arguments: input }, undefined, { signal: giveUp.signal });
  const ended = running.then((result) => ({ cancelled: false, result }));
  const started = (async () => {
    while (!existsSync(once)) await wait(10);
  })();
  const first = await Promise.race([ended, started]);
  if (first) return first;
  giveUp.abort("the test gives up");
  return ended.catch(() => ({ cancelled: true }));
}

const actions = {
  tools: async () => ({ result: await pages((page) => client.listTools(page), "tools") }),
  resources: async () => ({ result: await pages((page) => client.listResources(page), "resources") }),
  read: async ({ uri }) => ({ result: await client.readResource({ uri }) }),
  call,
  cancel,
};

async function take(step) {
  try {
    return await actions[step.do](step);
  } catch (error) {
    if (!(error instanceof McpError)) throw error;
    return { error: { code: error.code, message: error.message, data: error.data } };
  }
}

const connection = transport(plan.target);
let protocol;
const tell = connection.setProtocolVersion?.bind(connection);
connection.setProtocolVersion = (version) => {
  protocol = version;
  tell?.(version);
};
await client.connect(connection);
const takeIn = connection.onmessage;
connection.onmessage = (message, extra) => {
  if (message.method === "notifications/progress") progress.push(message.params);
  takeIn(message, extra);
};
const steps = [];
for (const step of plan.steps) steps.push(await take(step));
const answer = JSON.stringify({ protocol, server: client.getServerVersion(), steps });
// What is longer than a pipe takes at once would be cut off by the exit.
await new Promise((written) => process.stdout.write(`${answer}\n`, written));
await connection.terminateSession?.();
await client.close();
// A timer of the client that waits to take up a lost stream again outlives it for some seconds.
process.exit(0);
