// The official TypeScript SDKs as a client: `--sdk 2` (packages `client` and `core`) or `--sdk 1` (package `sdk`).
// Options and report are those of `plan.py`. `--modules FOLDER` is the folder that holds `node_modules`.

import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";

const ANSWER = { name: "Ada Lovelace", check: true, integer: 7 };
const SAMPLED = "a sampled sentence";
const MODEL = "interop-model";

const { values: plan } = parseArgs({
  options: {
    modules: { type: "string" },
    sdk: { type: "string", default: "2" },
    url: { type: "string" },
    stdio: { type: "string" },
    mode: { type: "string", default: "legacy" },
    root: { type: "string", default: "file:///roots/nobody" },
    prefix: { type: "string", default: "everything__" },
    calls: { type: "string", default: "[]" },
    read: { type: "string", default: "" },
    prompt: { type: "string", default: "" },
    capabilities: { type: "string", default: "elicitation,sampling,roots" },
    parts: { type: "string", default: "list,read,calls,elicitation,sampling,roots,progress" },
    lists: { type: "string", default: "tools,resources,templates,prompts" },
    deadline: { type: "string", default: "90" },
    barrier: { type: "boolean", default: false },
  },
});
const declared = new Set(plan.capabilities.split(",").filter(Boolean));
const timeout = Number(plan.deadline) * 1000;
const require = createRequire(join(resolve(plan.modules), "package.json"));
const asked = { elicitation: [], sampling: [], roots: [] };
const report = { errors: {} };
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

function capabilities() {
  const all = { elicitation: { form: {}, url: {} }, sampling: {}, roots: { listChanged: true } };
  return Object.fromEntries(Object.entries(all).filter(([name]) => declared.has(name)));
}

const handlers = {
  elicitation: (request) => {
    asked.elicitation.push(request.params.message);
    return { action: "accept", content: { ...ANSWER } };
  },
  sampling: (request) => {
    asked.sampling.push(request.params.messages.at(-1).content.text);
    return { role: "assistant", content: { type: "text", text: SAMPLED }, model: MODEL, stopReason: "endTurn" };
  },
  roots: () => {
    asked.roots.push(plan.root);
    return { roots: [{ uri: plan.root, name: "own root" }] };
  },
};

function generation1() {
  const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
  const { StreamableHTTPClientTransport } = require("@modelcontextprotocol/sdk/client/streamableHttp.js");
  const { StdioClientTransport } = require("@modelcontextprotocol/sdk/client/stdio.js");
  const types = require("@modelcontextprotocol/sdk/types.js");
  const client = new Client({ name: "interop-typescript1", version: "1" }, { capabilities: capabilities() });
  const schemas = {
    elicitation: types.ElicitRequestSchema,
    sampling: types.CreateMessageRequestSchema,
    roots: types.ListRootsRequestSchema,
  };
  for (const name of declared) client.setRequestHandler(schemas[name], handlers[name]);
  return {
    client,
    Http: StreamableHTTPClientTransport,
    Stdio: StdioClientTransport,
    version: manifestVersion("@modelcontextprotocol/sdk"),
    protocol: (transport) => transport.protocolVersion ?? null,
    call: (params, options) => client.callTool(params, undefined, options),
  };
}

function generation2() {
  const { Client, StreamableHTTPClientTransport } = require("@modelcontextprotocol/client");
  const { StdioClientTransport } = require("@modelcontextprotocol/client/stdio");
  const mode = plan.mode === "legacy" || plan.mode === "auto" ? plan.mode : { pin: plan.mode };
  const client = new Client(
    { name: "interop-typescript2", version: "1" },
    { capabilities: capabilities(), versionNegotiation: { mode } },
  );
  const methods = { elicitation: "elicitation/create", sampling: "sampling/createMessage", roots: "roots/list" };
  for (const name of declared) client.setRequestHandler(methods[name], handlers[name]);
  return {
    client,
    Http: StreamableHTTPClientTransport,
    Stdio: StdioClientTransport,
    version: manifestVersion("@modelcontextprotocol/client"),
    protocol: () => client.getNegotiatedProtocolVersion(),
    call: (params, options) => client.callTool(params, options),
  };
}

function manifestVersion(name) {
  // The package does not export its package.json, so it is read by its path.
  return require(join(resolve(plan.modules), "node_modules", name, "package.json")).version;
}

async function barrier(word) {
  if (!plan.barrier) return;
  process.stderr.write(word + "\n");
  await lines.next();
}

async function follow(listPage, pick) {
  const items = [];
  let pages = 0;
  let cursor;
  do {
    const page = await listPage(cursor ? { cursor } : undefined, { timeout });
    items.push(...pick(page));
    cursor = page.nextCursor;
    pages += 1;
  } while (cursor);
  return { items, pages };
}

function asData(result) {
  return {
    isError: result.isError ?? false,
    text: result.content.filter((block) => block.type === "text").map((block) => block.text),
    structured: result.structuredContent ?? null,
  };
}

async function run() {
  const sdk = plan.sdk === "1" ? generation1() : generation2();
  const { client } = sdk;
  const command = plan.stdio ? JSON.parse(plan.stdio) : [];
  const transport = plan.url
    ? new sdk.Http(new URL(plan.url))
    : new sdk.Stdio({ command: command[0], args: command.slice(1), env: { ...process.env }, stderr: "inherit" });
  await client.connect(transport, { timeout });
  report.client = `typescript ${sdk.version} ${plan.sdk === "1" ? "" : plan.mode}`.trim();
  report.protocol = sdk.protocol(transport);
  report.server = client.getServerVersion()?.name ?? null;

  const call = async (name, args, options = {}) =>
    asData(await sdk.call({ name, arguments: args }, { timeout, ...options }));
  const pages = {
    tools: [(...a) => client.listTools(...a), (page) => page.tools.map((tool) => tool.name)],
    resources: [(...a) => client.listResources(...a), (page) => page.resources.map((resource) => resource.uri)],
    templates: [
      (...a) => client.listResourceTemplates(...a),
      (page) => page.resourceTemplates.map((template) => template.uriTemplate),
    ],
    prompts: [(...a) => client.listPrompts(...a), (page) => page.prompts.map((prompt) => prompt.name)],
  };
  const parts = {
    list: async () => {
      const found = {};
      for (const kind of plan.lists.split(",").filter(Boolean)) found[kind] = await follow(...pages[kind]);
      return found;
    },
    read: async () => {
      const found = {};
      if (plan.read) {
        const { contents } = await client.readResource({ uri: plan.read }, { timeout });
        found.resource = contents.map((content) => [content.uri, content.text ?? null]);
      }
      if (plan.prompt) {
        const { messages } = await client.getPrompt({ name: plan.prompt }, { timeout });
        found.prompt = messages.map((message) => message.content.text ?? null);
      }
      return found;
    },
    calls: async () => {
      const results = {};
      for (const [name, args] of JSON.parse(plan.calls)) results[name] = await call(name, args);
      return results;
    },
    elicitation: async () => {
      const result = await call(plan.prefix + "trigger-elicitation-request", {});
      return { asked: asked.elicitation, ...result };
    },
    sampling: async () => {
      const args = { prompt: "say something", maxTokens: 20 };
      const result = await call(plan.prefix + "trigger-sampling-request", args);
      return { asked: asked.sampling, ...result };
    },
    roots: async () => {
      const result = await call(plan.prefix + "get-roots-list", {});
      return { asked: asked.roots, ...result };
    },
    progress: async () => {
      const seen = [];
      const onprogress = ({ progress, total }) => seen.push([progress, total ?? null]);
      const args = { duration: 0.5, steps: 5 };
      const result = await call(plan.prefix + "trigger-long-running-operation", args, { onprogress });
      return { seen, ...result };
    },
  };

  await barrier("ready");
  for (const name of plan.parts.split(",").filter(Boolean)) {
    try {
      report[name] = await parts[name]();
    } catch (error) {
      report.errors[name] = `${error.name}: ${error.message}`;
    }
  }
  await barrier("done");
  if (plan.url && transport.sessionId) await transport.terminateSession();
  await client.close();
}

let failed = false;
const late = new Promise((_, reject) =>
  setTimeout(() => reject(new Error(`not done after ${plan.deadline} s`)), timeout).unref(),
);
try {
  await Promise.race([run(), late]);
} catch (error) {
  failed = true;
  report.errors.connection = `${error.name}: ${error.message}`;
}
process.stdout.write(JSON.stringify(report) + "\n", () => process.exit(failed ? 1 : 0));
