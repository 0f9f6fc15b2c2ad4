// One execution of JavaScript: run by Deno without any permission, for one run, and then killed (see bridge.py).
//
// There are two realms. This file's own one, the outer realm, has the pipes; the script runs in the inner one, a
// context of node:vm. The rules this file keeps:
// - No object of the outer realm reaches a script: not as a value, not as an error, not by a stack trace. Only
//   primitives cross, and the three functions that the prelude is given stay in its closure.
// - The outer realm looks into no object of the inner one: it hands them back to the prelude, as they are.
// - What the prelude needs it takes before a script runs. What a script changes afterwards harms itself alone; whatever
//   it has written to the pipe, the host takes for hostile.

import vm from "node:vm";
import { stripTypeScriptTypes } from "node:module";
import { Socket } from "node:net";

const FILE = "script.js";
const NEWLINE = 10;
const IDLE = 5; // milliseconds without anything that could happen, and then the script waits in vain

function prelude(write, arm, disarm, file) {
  "use strict";
  const MOST_TIMERS = 10_000;
  const AT_ONCE = 100; // console lines of one job
  const ROOM = 400; // frames of a small function
  const LONGEST_OUTBOX = 65_536; // characters that wait for the end of a job
  const LONGEST_STACK = 4_000; // characters
  const MOST_UNANSWERED = 1_048_576; // characters of calls; from then on the next waits for an answer
  const MOST_HELD = 33_554_432; // characters of calls that wait; where there are more, the first are written
  // Of seed 002, and beside them what its strict form leaves out.
  const OF_THE_SEED = [
    ..."JSON Math Date Array Map Set Promise Object String Number Boolean RegExp Error parseInt parseFloat".split(" "),
    ..."isNaN isFinite encodeURIComponent decodeURIComponent encodeURI decodeURI undefined NaN Infinity eval".split(" "),
  ];
  const EXTRAS = [
    ..."AggregateError EvalError RangeError ReferenceError SyntaxError TypeError URIError SuppressedError".split(" "),
    ..."Symbol BigInt WeakMap WeakSet".split(" "),
  ];
  // Names that are asked of any object; a server's tool of such a name is reached by `call`.
  const OF_OBJECTS = ["then", "toJSON", "toString", "valueOf", "constructor", "prototype", "__proto__"];

  const global = globalThis;
  const { create, freeze, defineProperty, getPrototypeOf, getOwnPropertyDescriptor } = Object;
  const { isArray } = Array;
  const { ownKeys } = Reflect;
  const { parse, stringify } = JSON;
  const { now } = Date;
  const { prototype: MAP } = Map;
  const { prototype: SET } = Set;
  const { prototype: REGEXP } = RegExp;
  const text = String;
  const [proxy, promise, error, typeError, rangeError] = [Proxy, Promise, Error, TypeError, RangeError];
  const unbound = Function.prototype.bind.bind(Function.prototype.call);
  const then = unbound(Promise.prototype.then);
  const forEachOfMap = unbound(MAP.forEach);
  const forEachOfSet = unbound(SET.forEach);
  const sourceOfRegExp = unbound(REGEXP.toString);
  const describeSymbol = unbound(Symbol.prototype.toString);
  const iterator = Symbol.iterator;
  const toStringTag = Symbol.toStringTag;
  const slice = unbound(String.prototype.slice);
  const wellFormed = unbound(String.prototype.toWellFormed);
  const indexOf = unbound(String.prototype.indexOf);
  const parseInteger = parseInt;
  const resolved = Promise.resolve();
  defineProperty(resolved, "constructor", { value: undefined }); // none that a script has put above it
  const isError = Error.isError;
  const list = () => ({ __proto__: null, length: 0 }); // an array that a script's accessors on Array.prototype do not see

  function own(object, name, value) {
    // Set, whatever a script has put above it.
    defineProperty(object, name, { __proto__: null, value, enumerable: true, writable: true, configurable: true });
  }

  let limits = { __proto__: null };
  let names = { __proto__: null }; // of each server's tools; null where they are not known
  let outbox = "";
  let isFlushing = false; // at the end of the job
  let lines = 0; // of the console, in this job
  let flushed = 0; // when the last of them was
  let isOver = true; // nothing that is sent counts any more
  let calls = 0;
  let callsLeft = 0; // of those that this run may make
  let waiting = 0;
  let begun = 0; // calls that are written
  let unanswered = 0; // characters of these
  let held = 0; // characters of the others
  const unwritten = { __proto__: null }; // the lines of the others, by number
  let armed = 0;
  let lastTimer = 0;
  const pending = { __proto__: null };
  const timers = { __proto__: null };

  // What is written. Every call of a function, even of a small one, may find the stack full. So what must happen whole is
  // made first, and then done without such a call; what waits for more room is done at the end of the job, which has it.

  function room(frames) {
    // Most of what finds the stack full ends here, before it has begun. How large a frame is differs with the compiler.
    return frames === 0 ? 0 : 1 + room(frames - 1);
  }

  function flush() {
    try {
      if (write(outbox)) outbox = "";
    } catch {
      // the stack was full in the outer realm: its error ends here, and the text stays
    }
  }

  function flushAtTheEnd() {
    isFlushing = false;
    lines = 0;
    writeCalls();
    flush();
  }

  function expectTheEnd() {
    if (isFlushing) return;
    then(resolved, flushAtTheEnd);
    isFlushing = true;
  }

  function send(line) {
    if (isOver) return;
    expectTheEnd();
    outbox += line + "\n";
    if (outbox.length > LONGEST_OUTBOX) flush();
  }

  function log(message) {
    room(ROOM);
    const most = limits.output + 1; // one more than it may be: then the host ends the run
    send('{"log":' + stringify(wellFormed(message.length > most ? slice(message, 0, most) : message)) + "}");
    // At once, or it would be lost where the script never ends; of many lines in one job, those of some milliseconds.
    lines += 1;
    if (lines > AT_ONCE && now() < flushed + 5) return;
    flush();
    flushed = now();
  }

  function finish(line) {
    if (isOver) return;
    send(line);
    isOver = true;
    flush();
  }

  function finishWith(value) {
    let line;
    try {
      const written = toText(value);
      line = written === undefined ? '{"done":{"absent":true}}' : '{"done":{"value":' + written + "}}";
    } catch (reason) {
      return failWith(reason);
    }
    finish(line);
  }

  function failWith(reason) {
    const { name, message, stack } = described(reason);
    const line = '{"failed":{"name":' + stringify(name) + ',"message":' + stringify(message);
    finish(line + (stack === "" ? "" : ',"stack":' + stringify(stack)) + "}}");
  }

  // Values as text.

  function toText(value, indent) {
    // JSON of anything: what JSON has no word for is written as it can be best read.
    const above = list(); // what is being written, and what is written in its place
    const places = list();
    return stringify(value, replace, indent);

    function replace(_key, item) {
      if (typeof item === "bigint") return text(item);
      if (typeof item !== "object" || item === null) return item;
      while (places.length && places[places.length - 1] !== this) places.length -= 1;
      for (let at = 0; at < places.length; at += 1) if (above[at] === item) return "[Circular]";
      const place = plain(item);
      above[places.length] = item;
      places[places.length] = place;
      places.length += 1;
      return place;
    }
  }

  function plain(value) {
    const kind = getPrototypeOf(value);
    const items = [];
    if (kind === MAP) {
      const members = { __proto__: null };
      let isNamed = true;
      forEachOfMap(value, (item, key) => {
        isNamed &&= typeof key === "string";
        own(items, items.length, [key, item]);
        if (typeof key === "string") members[key] = item;
      });
      return isNamed ? members : items;
    }
    if (kind === SET) {
      forEachOfSet(value, (item) => own(items, items.length, item));
      return items;
    }
    if (kind === REGEXP) return sourceOfRegExp(value);
    if (isError(value)) {
      const { name, message } = described(value);
      return { __proto__: null, name, message };
    }
    return value;
  }

  function described(reason) {
    const found = { __proto__: null, name: "Error", message: "", stack: "" };
    try {
      if (typeof reason === "object" && reason !== null && isError(reason)) {
        const { name, message, stack } = reason;
        if (typeof name === "string" && name !== "") found.name = slice(name, 0, 200);
        found.message = typeof message === "string" ? message : shown(message);
        if (typeof stack === "string") found.stack = frames(stack);
      } else {
        found.message = shown(reason);
      }
    } catch {
      found.message ||= "an error that cannot be read";
    }
    found.message = wellFormed(slice(found.message, 0, limits.output));
    return found;
  }

  function frames(stack) {
    // The lines of a stack that say where, without the message before them.
    const at = indexOf(stack, "\n    at ");
    return at < 0 ? "" : slice(stack, at + 1, at + 1 + LONGEST_STACK);
  }

  function shown(value, indent) {
    if (typeof value === "string") return value;
    if (typeof value === "symbol") return describeSymbol(value);
    if (typeof value === "bigint") return text(value) + "n";
    if (typeof value === "function") {
      const name = getOwnPropertyDescriptor(value, "name")?.value;
      return typeof name === "string" && name !== "" ? "[Function: " + name + "]" : "[Function]";
    }
    if (typeof value !== "object" || value === null) return text(value);
    try {
      if (isError(value)) {
        const { name, message, stack } = described(value);
        return name + (message === "" ? "" : ": " + message) + (stack === "" ? "" : "\n" + stack);
      }
      return toText(value, indent) ?? "undefined";
    } catch (reason) {
      const { message } = described(typeof reason === "object" ? reason : undefined);
      return "[cannot be shown: " + message + "]";
    }
  }

  function formatted(values) {
    // Console arguments; the first one may have %s, %d, %i, %f, %j, %o, %O and %%.
    let line = "";
    let next = 0;
    if (values.length > 1 && typeof values[0] === "string") {
      const form = values[0];
      next = 1;
      let begin = 0;
      for (let at = 0; at < form.length - 1; at += 1) {
        if (form[at] !== "%") continue;
        const sign = form[at + 1];
        let put;
        if (sign === "%") put = "%";
        else if (next >= values.length) continue;
        else if (sign === "s" || sign === "j" || sign === "o" || sign === "O") put = shown(values[next++]);
        else if (sign === "d" || sign === "f") put = asNumber(values[next++], (value) => +value);
        else if (sign === "i") put = asNumber(values[next++], parseInteger);
        else continue;
        line += slice(form, begin, at) + put;
        begin = at + 2;
        at += 1;
      }
      line += slice(form, begin);
    }
    for (; next < values.length; next += 1) line += (next ? " " : "") + shown(values[next]);
    return line;
  }

  function asNumber(value, read) {
    return typeof value === "object" || typeof value === "symbol" ? "NaN" : text(read(value));
  }

  // Calls of tools.

  function call(server, tool, given, isRaw) {
    return new promise((resolve, reject) => {
      if (typeof server !== "string" || typeof tool !== "string") {
        throw new typeError("the names of a server and of a tool are texts: servers.name.call('tool', { … })");
      }
      const object = given === undefined || given === null ? "{}" : stringify(given);
      if (typeof object !== "string" || object[0] !== "{") {
        throw new typeError("the arguments of " + tool + " on " + server + " must be an object");
      }
      room(ROOM);
      if (callsLeft <= 0) throw new error("a run may make " + limits.calls + " calls, and has made them");
      if (isOver) return;
      const target = '{"call":' + (calls + 1) + ',"server":' + stringify(server) + ',"tool":' + stringify(tool);
      const line = target + ',"arguments":' + object + (isRaw ? ',"raw":true}' : "}");
      expectTheEnd();
      callsLeft -= 1;
      calls += 1;
      pending[calls] = { __proto__: null, resolve, reject, size: line.length };
      unwritten[calls] = line;
      held += line.length;
      waiting += 1;
      try {
        writeCalls();
      } catch {
        // the stack is full: at the end of the job
      }
    });
  }

  function writeCalls() {
    // Who writes does not read: while many large calls are written, answers come for which there is no room.
    while (!isOver && begun < calls && (unanswered < MOST_UNANSWERED || held > MOST_HELD)) {
      begun += 1;
      const line = unwritten[begun];
      delete unwritten[begun];
      held -= line.length;
      unanswered += line.length;
      outbox += line + "\n";
      if (outbox.length > LONGEST_OUTBOX) flush();
    }
  }

  function batch(wanted) {
    if (!isArray(wanted)) {
      throw new typeError("servers.batch takes a list: servers.batch([{ server: 'name', tool: 'tool', arguments: {} }])");
    }
    const settled = list();
    const done = (value) => ({ ok: true, value });
    const failed = (reason) => {
      const { message } = described(reason);
      const code = getOwnPropertyDescriptor(reason, "code")?.value;
      return { ok: false, error: code === undefined ? { message } : { code, message } };
    };
    for (let at = 0; at < wanted.length; at += 1) {
      const each = wanted[at];
      const asked = isArray(each)
        ? call(each[0], each[1], each[2], false)
        : call(each?.server, each?.tool, each?.arguments ?? each?.args, each?.raw === true);
      settled[at] = then(asked, done, failed);
      settled.length = at + 1;
    }
    return inOrder(settled);
  }

  async function inOrder(settled) {
    const results = [];
    for (let at = 0; at < settled.length; at += 1) own(results, at, await settled[at]);
    return results;
  }

  function entries(keys, valueOf) {
    return function* () {
      for (let at = 0; at < keys.length; at += 1) yield [keys[at], valueOf(keys[at])];
    };
  }

  function handler(keys, valueOf) {
    // Of a proxy that has these names, and answers for others too.
    const has = (name) => typeof name === "string" && keys.set[name] === true;
    return {
      __proto__: null,
      get: (_target, name) => valueOf(name),
      has: (_target, name) => has(name),
      ownKeys: () => keys.names,
      getOwnPropertyDescriptor: (_target, name) =>
        has(name) ? { value: valueOf(name), enumerable: true, configurable: true, writable: false } : undefined,
      set: () => false,
      defineProperty: () => false,
      deleteProperty: () => false,
      setPrototypeOf: () => false,
      preventExtensions: () => false,
      getPrototypeOf: () => null,
    };
  }

  function keysOf(known) {
    const keys = { __proto__: null, names: [], set: { __proto__: null } };
    for (let at = 0; at < known.length; at += 1) {
      if (!keys.set[known[at]]) own(keys.names, keys.names.length, known[at]);
      keys.set[known[at]] = true;
    }
    return keys;
  }

  function isOfObjects(name) {
    for (let at = 0; at < OF_OBJECTS.length; at += 1) if (OF_OBJECTS[at] === name) return true;
    return false;
  }

  function serverOf(server, target) {
    const keys = keysOf(names[server] ?? []);
    const made = { __proto__: null };
    const own = {
      __proto__: null,
      call: (tool, given) => call(server, tool, given, false),
      callRaw: (tool, given) => call(server, tool, given, true),
      [iterator]: entries(keys.names, toolOf),
      [toStringTag]: "Server",
    };
    function toolOf(name) {
      return (made[name] ??= (given) => call(server, name, given, false));
    }
    const valueOf = (name) => {
      if (own[name] !== undefined || typeof name !== "string") return own[name];
      if (isOfObjects(name) && !(keys.set[name] && name !== "then" && name !== "toJSON")) return undefined;
      return toolOf(name);
    };
    return new proxy(target ?? create(null), handler(keys, valueOf));
  }

  function allServers() {
    const known = [];
    for (const name in names) own(known, known.length, name);
    const keys = keysOf(known);
    const made = { __proto__: null };
    const of = (name) => (made[name] ??= serverOf(name));
    // A server of that name has its tools beside it.
    const asBatch = (wanted) => batch(wanted);
    const both = keys.set.batch ? serverOf("batch", asBatch) : asBatch;
    const valueOf = (name) => {
      if (name === "batch") return both;
      if (name === iterator) return entries(known, of);
      if (name === toStringTag) return "Servers";
      return typeof name !== "string" || (isOfObjects(name) && !keys.set[name]) ? undefined : of(name);
    };
    return new proxy(create(null), handler(keys, valueOf));
  }

  // Time.

  function milliseconds(wanted, what) {
    const given = +wanted;
    if (given <= limits.sleep) return given > 0 ? given : 0;
    if (given !== given) return 0;
    log("warning: " + what + " waits at most " + limits.sleep + " ms, not " + given);
    return limits.sleep;
  }

  function schedule(action, wait) {
    room(ROOM);
    if (armed >= MOST_TIMERS) throw new rangeError("at most " + MOST_TIMERS + " timers may wait");
    const id = (lastTimer += 1);
    let isArmed = false;
    try {
      isArmed = arm(id, wait);
    } catch {
      // as in `flush`
    }
    if (!isArmed) throw new rangeError("Maximum call stack size exceeded");
    timers[id] = action;
    armed += 1;
    return id;
  }

  function cancel(id) {
    room(ROOM);
    if (typeof id !== "number" || timers[id] === undefined) return;
    delete timers[id];
    armed -= 1;
    try {
      disarm(id);
    } catch {
      // it comes, and finds nothing
    }
  }

  const given = {
    __proto__: null,
    sleep(ms) {
      const wait = milliseconds(ms, "sleep");
      return new promise((resolve) => schedule(() => resolve(), wait));
    },
    setTimeout(action, ms, ...values) {
      if (typeof action !== "function") throw new typeError("setTimeout takes a function");
      const wait = milliseconds(ms ?? 0, "setTimeout");
      return schedule(() => action(...values), wait);
    },
    clearTimeout(id) {
      cancel(id);
    },
  };

  const say = (...values) => log(formatted(values));
  const console = { __proto__: null };
  for (const name of ["log", "info", "debug", "warn", "error", "trace"]) console[name] = say;
  console.dir = (value) => log(shown(value, 2));
  console.table = (value) => log(shown(value));
  console.group = say;
  console.groupEnd = () => undefined;
  console.assert = (holds, ...values) => {
    if (!holds) log("Assertion failed" + (values.length ? ": " + formatted(values) : ""));
  };

  function lock(object, name, value, enumerable) {
    defineProperty(object, name, { __proto__: null, value, writable: false, configurable: false, enumerable });
  }

  function closed() {
    // Only what is on the list is left.
    delete Date.prototype.toTemporalInstant; // by which all of Temporal would be reached
    const kept = { __proto__: null };
    for (const name of [...OF_THE_SEED, ...EXTRAS]) kept[name] = true;
    for (const name of ownKeys(global)) if (!kept[name]) delete global[name];
    lock(error, "prepareStackTrace", (reason, sites) => {
      // Where it was, in the script alone: paths of this machine are none of its business.
      let lines = "";
      try {
        for (let at = 0; at < sites.length; at += 1) {
          const site = sites[at];
          if (site.getFileName() !== file) continue;
          const name = site.getFunctionName();
          const place = file + ":" + site.getLineNumber() + ":" + site.getColumnNumber();
          lines += "\n    at " + (typeof name === "string" && name ? name + " (" + place + ")" : place);
        }
      } catch {
        // as much as there is
      }
      let head = "Error";
      try {
        const { name, message } = reason;
        head = text(name) + (message === "" ? "" : ": " + text(message));
      } catch {
        // a hostile one
      }
      return head + lines;
    });
    for (const name in given) lock(global, name, given[name], false);
    lock(global, "console", freeze(console), false);
  }

  // What the outer realm calls. None of these throws.

  function begin(line) {
    // The code of the order.
    const { run } = parse(line);
    limits = run.limits;
    names = { __proto__: null };
    for (const name of ownKeys(run.servers)) names[name] = run.servers[name];
    callsLeft = limits.calls;
    isOver = false;
    lock(global, "servers", allServers(), false);
    if (run.data !== undefined) lock(global, "data", run.data, false);
    if (run.strict) for (const name of EXTRAS) delete global[name];
    // Nothing of that can be replaced by something that Deno would then ask.
    for (const name of ownKeys(global)) {
      if (getOwnPropertyDescriptor(global, name).configurable) lock(global, name, global[name], false);
    }
    return run.code;
  }

  function start(main) {
    running(main);
  }

  async function running(main) {
    try {
      finishWith(await main());
    } catch (reason) {
      try {
        failWith(reason);
      } catch {
        isOver = true;
      }
    }
  }

  function receive(number, isValue, written) {
    const asked = pending[number];
    if (asked === undefined) return;
    delete pending[number];
    waiting -= 1;
    unanswered -= asked.size;
    try {
      writeCalls();
      const value = parse(written);
      if (isValue) return asked.resolve(value);
      const failure = new error(value.message);
      lock(failure, "name", "ToolError", false);
      if (value.code !== undefined) own(failure, "code", value.code);
      asked.reject(failure);
    } catch (reason) {
      asked.reject(reason);
    }
  }

  function fire(id) {
    const action = timers[id];
    if (action === undefined) return;
    delete timers[id];
    armed -= 1;
    try {
      action();
    } catch (reason) {
      try {
        log("Uncaught " + shown(reason));
      } catch {
        // it cannot be told
      }
    }
  }

  return [begin, start, receive, fire, closed, () => !isOver && waiting + armed === 0, failWith, finish];
}

const { stdout, exit } = Deno;
const version = Deno.version.deno;
const encoder = new TextEncoder();
const decoder = new TextDecoder();
const timers = new Map();
const { setTimeout, clearTimeout } = globalThis;

// Errors of a script that nobody catches are its own business: Deno would print them, and end.
globalThis.addEventListener("unhandledrejection", (event) => event.preventDefault());
globalThis.addEventListener("error", (event) => event.preventDefault());
stripTypeScriptTypes("if (1) 1; else 2"); // it looks where the stack ends, once, and may not be able to later
const context = vm.createContext(vm.constants.DONT_CONTEXTIFY, { codeGeneration: { strings: false, wasm: false } });
// Here too nothing is left but JavaScript: what is not there cannot be found.
const ofTheLanguage = vm.runInContext("Object.getOwnPropertyNames(globalThis).join()", context).split(",");
for (const name of Object.getOwnPropertyNames(globalThis)) if (!ofTheLanguage.includes(name)) delete globalThis[name];

const made = new vm.Script(`(${prelude})`, { filename: "prelude.js" }).runInContext(context);
const [begin, start, receive, fire, close, isIdle, fail, finish] = made(write, arm, disarm, FILE);
close();

// The three that the prelude is given: primitives in, a primitive out.

let bytes = new Uint8Array(); // of the last text that was taken
let sent = 0; // of these

function write(text) {
  // Takes all of a text or, where the stack is full, nothing. What is taken and not sent goes before the next.
  let isTaken = false;
  try {
    sendRest();
    const written = text.replace(/[^\x00-\x7f]/g, (unit) => "\\u" + unit.charCodeAt(0).toString(16).padStart(4, "0"));
    bytes = encoder.encode(written);
    sent = 0;
    isTaken = true;
    sendRest();
  } catch {
    // the end of the job comes here again
  }
  return isTaken;
}

function sendRest() {
  while (sent < bytes.length) sent += stdout.writeSync(sent ? bytes.subarray(sent) : bytes);
}

function arm(id, wait) {
  try {
    timers.set(id, setTimeout(elapsed, wait, id));
    return true;
  } catch {
    return false;
  }
}

function disarm(id) {
  try {
    clearTimeout(timers.get(id));
    timers.delete(id);
    return true;
  } catch {
    return false;
  }
}

function elapsed(id) {
  timers.delete(id);
  fire(id);
  watch();
}

let isWatching = false;

function watch() {
  // All that a script can wait for is an answer or a timer: where it has neither, and no job is left, it waits in vain.
  if (isWatching || !isIdle()) return;
  isWatching = true;
  setTimeout(() => {
    isWatching = false;
    if (isIdle()) finish('{"deadlock":true}');
  }, IDLE);
}

function compiled(code) {
  const wrapped = `(async function () {\n${code}\n})`;
  const options = { filename: FILE, lineOffset: -1 };
  try {
    return new vm.Script(wrapped, options);
  } catch (refusal) {
    if (!(refusal instanceof SyntaxError)) throw refusal; // it is nested too deep
    try {
      return new vm.Script(stripTypeScriptTypes(wrapped), options);
    } catch {
      throw refusal;
    }
  }
}

function run(line) {
  const code = begin(line);
  let script;
  try {
    script = compiled(code);
  } catch (refusal) {
    finish(JSON.stringify({ failed: { name: refusal.name, message: refusal.message } }));
    return;
  }
  let main;
  try {
    main = script.runInContext(context, { displayErrors: false }); // else Deno would write into what is thrown
  } catch (reason) {
    fail(reason); // of code that has closed the function around it
    return;
  }
  start(main);
  watch();
}

function take(line) {
  if (line === "") {
    write(`{"ready":"deno ${version}"}\n`); // the way is warm: the first line on it takes 10 ms
    return;
  }
  const answer = /^\{"answer":(\d+),"(value|error)":/.exec(line);
  if (answer) {
    receive(+answer[1], answer[2] === "value", line.slice(answer[0].length, -1));
    watch();
  } else {
    run(line);
  }
}

// A socket, since it wakes this thread alone: Deno.stdin reads in a thread of its own, which takes twice as long. Its
// bytes come by `onread`: as a stream, each read would cost as much again.
const onread = { buffer: new Uint8Array(65_536), callback: hear };
new Socket({ fd: 0, onread }).on("close", () => exit());
let parts = []; // of a line that has not ended

function hear(size, buffer) {
  let rest = buffer.subarray(0, size);
  for (let end = rest.indexOf(NEWLINE); end >= 0; end = rest.indexOf(NEWLINE)) {
    const last = rest.subarray(0, end);
    rest = rest.subarray(end + 1);
    take(decoder.decode(parts.length ? joined(last) : last)); // in one piece, which is quicker than as a stream
  }
  if (rest.length) parts.push(rest.slice());
  return true; // more is to be read
}

function joined(last) {
  const all = [...parts, last];
  parts = [];
  const bytes = new Uint8Array(all.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of all) {
    bytes.set(part, at);
    at += part.length;
  }
  return bytes;
}
