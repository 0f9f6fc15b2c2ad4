// Attempts to leave the sandbox, each with a name and what would count as an escape (see javascript.py).
// `look`, `escaped`, `never` and `deep` are there, but in those that close the function around them.

//// import of json by attribute
//// file
never(...Object.keys(await import('file:///etc/passwd', { with: { type: 'json' } }).catch((e) => (look(e), {}))))

//// import of text
//// file
never(...Object.keys(await import('file:///etc/hostname', { with: { type: 'text' } }).catch((e) => (look(e), {}))))

//// import with hostile text
//// realm
const s = { toString() { look(this);
throw { a: 1 } } };
await import(s).catch((e) => look(e))

//// import with a thenable
//// realm
const o = { then(a, b) { look(a, 'a'); look(b, 'b'); a({ then(c, d) { look(c); look(d); c(1) } }) } };
await o

//// a wrapper closed
//// realm
return 1
}); look(this, 'this'); (async function () {

//// a wrapper closed for another value
//// realm
}); ({ get name() { return look(arguments, 'a') } }); (async () => {

//// a wrapper closed with a throw
//// realm
}); throw { get stack() { look(this); return 1 } }; (async () => {

//// a wrapper closed for a hostile function
//// realm
}); (function f() { look(f.caller); look(f.arguments); look(arguments.callee); return look(new Error().stack) }); (async () => {

//// a wrapper closed with a global
//// bridge
}); var servers = 1; (async () => {

//// a wrapper and a comment
//// bridge
/*

//// a wrapper and an HTML comment
//// realm
<!-- 
--> 
return look(this, 'this')

//// a wrapper and a hashbang
//// bridge
#!/usr/bin/env node
return 1

//// a module
//// file
import fs from 'node:fs'; export default fs

//// import.meta
//// file
return import.meta.url

//// TypeScript that is a module
//// file
import fs = require('node:fs');
return fs as any

//// TypeScript with decorators
//// realm
function d(x, c) { look(c) } class A { @d m() {} } return 1 as any

//// eval
//// realm
for (const t of ['1', 'this', 'Deno']) try { escaped(eval(t)) } catch (e) { look(e) }

//// an indirect eval
//// realm
for (const e of [eval, (0, eval)]) try { never(e('this')) } catch (x) { look(x) }

//// a template for eval
//// realm
try { never(eval`1`.x) } catch (e) { look(e) }

//// a timer with text
//// realm
try { setTimeout('console.log("ESCAPED")', 0) } catch (e) { look(e) } await sleep(20)

//// all makers of functions
//// realm
for (const f of [() => 1, async () => 1, function* () {}, async function* () {}, class {}, console.log, sleep]) try { never(f.constructor('return this')()) } catch (e) { look(e) }

//// makers of functions by bind and apply
//// realm
const F = (() => 1).constructor;
for (const m of ['call', 'apply', 'bind']) try { never(F[m](null, 'return this')?.()) } catch (e) { look(e) }

//// a function of a subclass
//// realm
try { class G extends (() => 1).constructor {} never(new G('return this')()) } catch (e) { look(e) }

//// text that is no string
//// realm
const o = { toString: () => 'this' };
try { const x = eval(o);
if (x !== o) escaped('eval') } catch (e) { look(e) }

//// sleep.constructor
//// realm
try { never(sleep.constructor('return process')()) } catch (e) { look(e) }

//// constructors of constructors
//// realm
let x = servers.shop.call;
for (let n = 0; n < 9; n++) { x = x.constructor; look(x, 'c' + n) }

//// another prepareStackTrace
//// realm
try { Error.prepareStackTrace = (e, s) => s } catch {} const s = new Error().stack;
if (typeof s !== 'string') look(s, 's')

//// a strict prepareStackTrace
//// realm
(function () { 'use strict';
try { Error.prepareStackTrace = (e, s) => look(s) } catch (e) { look(e) } new Error().stack })()

//// prepareStackTrace by define
//// realm
try { Object.defineProperty(Error, 'prepareStackTrace', { value: (e, s) => look(s, 's') }) } catch {} look(new Error().stack)

//// another Error
//// realm
try { Error = class { static prepareStackTrace(e, s) { look(s, 'sites') } } } catch {} try { null.x } catch (e) { e.stack }

//// another Error by this
//// realm
const g = (function () { return this })();
try { Object.defineProperty(g, 'Error', { value: { prepareStackTrace: (e, s) => look(s, 'sites') } }) } catch {} try { null.x } catch (e) { look(e.stack, 'stack') }

//// prepareStackTrace of each error
//// realm
for (const E of [TypeError, RangeError, SyntaxError, EvalError]) { E.prepareStackTrace = (e, s) => look(s, 's');
new E().stack } try { null.x } catch (e) { e.stack }

//// prepareStackTrace of the prototype
//// realm
Object.prototype.prepareStackTrace = (e, s) => look(s, 's'); (() => 1).__proto__.prepareStackTrace = (e, s) => look(s);
new Error().stack;
try { null.x } catch (e) { e.stack }

//// sites through the arrays of the trace
//// realm
const saved = [];
Object.defineProperty(Array.prototype, 'length', { get() { look(this, 'length') } , configurable: true});
new Error().stack

//// sites through a hostile name
//// realm
const e = new Error('x');
Object.defineProperty(e, 'name', { get() { look(new Error().stack); look(arguments);
return 'x' } }); Error.captureStackTrace(e); look(e.stack)

//// paths of this machine in a stack
//// path
let all = ''; Error.stackTraceLimit = Infinity;
for (const f of [() => servers.batch(1), () => sleep(Symbol())]) try { f() } catch (e) { all += e.stack } await import('x').catch((e) => { all += e.stack });
if (/worker|prelude|ext:|\/(home|root|usr|tmp|work)/.test(all)) escaped(all)

//// a stack of an asynchronous job
//// path
Error.stackTraceLimit = 100;
let s;
setTimeout(() => { s = new Error('x').stack }, 1);
await sleep(20);
if (/worker|prelude|ext:/.test(s)) escaped(s)

//// callers
//// realm
function f() { look(f.caller, 'caller'); look(arguments.callee.caller, 'caller');
return 1 } f();
setTimeout(f, 1);
await servers.shop.echo({ toJSON: f });
await sleep(20)

//// callers of hooks
//// realm
const f = function () { look(f.caller, 'c'); look(f.arguments, 'a'); look(this, 'this');
return 1 };
Object.defineProperty(Object.prototype, 'then', { get: f, configurable: true });
await servers.shop.echo({});
delete Object.prototype.then

//// this of a timer
//// realm
setTimeout(function () { look(this, 'this'); look(arguments, 'arguments') }, 1, {});
await sleep(20)

//// valueOf of milliseconds
//// realm
const o = { valueOf() { look(this); look(arguments);
return 1 } };
await sleep(o);
setTimeout(() => 1, o); clearTimeout(o)

//// constructor of promises
//// realm
Object.defineProperty(Promise.prototype, 'constructor', { get() { look(this);
return class { constructor(f) { look(f, 'executor'); f(look, look) } static get [Symbol.species]() { return this } } } });
try { await servers.shop.echo({}) } catch (e) { look(e) } console.log('x')

//// species of promises
//// realm
Object.defineProperty(Promise, Symbol.species, { get() { look(this);
return Promise } }); look(servers.shop.echo({}).then(look), 'p');
await sleep(5)

//// globals replaced
//// bridge
const g = (function () { return this })();
let n = 0;
for (const k of Object.getOwnPropertyNames(g)) try { g[k] = 1;
if (g[k] === 1 && k !== 'x') n++ } catch {} for (const k of ['console', 'sleep', 'servers', 'setTimeout']) { try { Object.defineProperty(g, k, { value: 1 }) } catch {} try { delete g[k] } catch {} if (g[k] === 1 || !(k in g)) escaped(k) }

//// members of servers replaced
//// bridge
for (const f of [() => { servers.shop = 1 }, () => { servers.shop.call = 1 }, () => { Object.setPrototypeOf(servers, {}) }, () => Object.defineProperty(servers.shop, 'call', { value: 1 }), () => { delete servers.shop }, () => Object.freeze(servers)]) try { f() } catch (e) { look(e) } if (servers.shop.call === 1 || typeof servers.shop.call !== 'function') escaped('servers')

//// members of console replaced
//// bridge
try { console.log = 1 } catch {} try { Object.setPrototypeOf(console, {}) } catch {} console.log('still here');
if (typeof console.log !== 'function') escaped('console')

//// a result with a hostile toJSON
//// realm
return { toJSON(k) { look(this, 'this'); look(arguments, 'a');
return { toJSON() { throw look(new Error('x')) } } } }

//// a result with getters
//// realm
return { get a() { look(this);
throw { get message() { look(this);
throw 1 } } } }

//// a throw with getters
//// realm
throw { get name() { look(arguments);
throw 1 }, get message() { throw 2 }, get stack() { throw 3 }, toString() { throw 4 } }

//// an error with hostile members
//// realm
const e = new Error('x');
for (const k of ['name', 'message', 'stack', 'cause', 'code']) Object.defineProperty(e, k, { get() { look(this); look(arguments);
return { toString() { throw e } } } });
throw e

//// a result that is a thenable
//// realm
return { then(a, b) { look(a, 'a'); look(b, 'b'); b({ then: 1 }) } }

//// a result in a circle
//// bridge
const m = new Map(), s = new Set(), a = [m, s]; m.set('m', m); m.set(1, s); s.add(m); a.push(a);
return { a, m, s }

//// a result nested without end
//// host
let a = [];
for (let n = 0; n < 3000; n++) a = [a];
return a

//// a result nested further
//// host
let a = [];
for (let n = 0; n < 1e6; n++) a = [a];
return a

//// arguments nested without end
//// host
let a = {};
for (let n = 0; n < 3000; n++) a = { a };
try { await servers.shop.echo(a) } catch (e) { look(e) } return 1

//// a number without end
//// host
return 10n ** 6000n

//// a raw number without end
//// host
return JSON.rawJSON('9'.repeat(6000))

//// raw JSON in arguments
//// host
const r = JSON.rawJSON;
for (const t of ['1}\n{"done":{"value":"FORGED"}}', '{}', '1,"x":2']) try { await servers.shop.echo({ a: r(t) }) } catch (e) { look(e) } return 1

//// a symbol as a result
//// bridge
return Symbol('x')

//// a function as a result
//// bridge
return servers.shop.call

//// servers as a result
//// bridge
return [servers, servers.shop, sleep, console]

//// a promise that never settles
//// bridge
return new Promise(() => {})

//// a forged line by the console
//// host
console.log('x\n{"done":{"value":"FORGED"}}\n');
return 1

//// a forged line by the console with other breaks
//// host
console.log('\r{"done":1}\u2028{"done":1}\u2029\0\x1b[2J');
return 1

//// a forged line by a tool's name
//// host
try { await servers.shop['a\n{"done":{"value":"FORGED"}}']({}) } catch (e) { look(e) } return 1

//// a forged line by a server's name
//// host
try { await servers['a","tool":"x'].echo({}) } catch (e) { look(e) } return 1

//// a forged line by arguments
//// host
await servers.shop.echo({ ['\n{"done":1}\n']: '"}}\n{"call":9}' });
return 1

//// a forged line by the result
//// host
return '\n{"done":{"value":"FORGED"}}\n'

//// a forged line by an error
//// host
throw new Error('\n{"done":{"value":"FORGED"}}\n')

//// a forged line by lone surrogates
//// host
console.log('\ud800\udfff\udc00');
await servers.shop.echo({ '\ud83d': '\udc00' });
return '\ud83d'

//// a forged line by many lone surrogates
//// host
console.log('\ud800'.repeat(1e5));
return 1

//// a forged line by NUL
//// host
console.log('\0'.repeat(1000));
return '\0'

//// hostile names
//// realm
for (const n of ['__proto__', 'constructor', 'prototype', 'then', 'toJSON', 'hasOwnProperty', '', ' ', '\0', '\u202e', '../x']) { try { look(servers[n], n) } catch (e) { look(e) } try { await servers.call?.(n) } catch (e) { look(e) } try { await servers.shop.call(n, {}) } catch (e) { look(e) } try { look(servers.shop[n], n) } catch (e) { look(e) } }

//// names that are no text
//// realm
for (const n of [1, null, undefined, {}, [], Symbol(), () => 1, { toString() { look(arguments);
return 'echo' } }]) { try { await servers.shop.call(n, {}) } catch (e) { look(e) } try { look(servers[n], 'x') } catch (e) { look(e) } }

//// calls after the end
//// late
(async () => { for (;;) { await null; servers.shop.late({}).catch(() => 1) } })();
return 'over'

//// a timer after the end
//// late
setTimeout(() => { servers.shop.late({}); console.log('ESCAPED') }, 1);
return 'over'

//// a getter that calls while the result is written
//// bridge
return { get a() { servers.shop.echo({}); console.log('in between');
return 1 } }

//// an answer for another call
//// bridge
const all = await Promise.all([1, 2, 3].map((n) => servers.shop.echo({ n })));
if (all.some((a, i) => a.n !== i + 1)) escaped('mixed')

//// buffers by detours
//// name
for (const f of [() => new (Object.getPrototypeOf(Int8Array))(), () => new Response(), () => structuredClone(1), () => 'x'.toBuffer(), () => Array.fromAsync.constructor('return ArrayBuffer')(), () => new Date().toTemporalInstant()]) try { never(f()) } catch (e) { look(e) }

//// Temporal by a date
//// name
if ('toTemporalInstant' in Date.prototype) never(new Date().toTemporalInstant().constructor.name)

//// unhandled rejections with hostile reasons
//// realm
for (const r of [{ get stack() { look(this);
throw 1 } }, Object.create(null), Symbol(), null, servers, () => 1]) Promise.reject(r);
new Promise((a, b) => { a(); b(); a() });
await sleep(20)

//// rejections that are handled late
//// realm
const p = Promise.reject(new Error('x'));
await sleep(5);
await p.catch((e) => look(e));
await sleep(5)

//// an uncaught error of a timer
//// realm
setTimeout(() => { throw { get message() { return look(this) } } }, 1);
setTimeout(() => { throw null }, 1);
await sleep(20)

//// the secret of the gateway
//// secret
look([servers, console, sleep, (function () { return this })()], 'all');
return JSON.stringify([servers, Object.keys(servers)])

//// custom inspection of a rejection
//// realm
const hooks = {};
for (const name of ['nodejs.util.inspect.custom', 'Deno.customInspect', 'Deno.privateCustomInspect'])
  hooks[Symbol.for(name)] = function (...all) { look(this, 'this'); look(all, 'all'); return 'x' };
Promise.reject(hooks);
Promise.reject(Object.assign(new Error('x'), hooks));
console.log(hooks);
setTimeout(() => { throw hooks }, 1);
await sleep(20);
throw hooks

//// custom inspection of all objects
//// realm
for (const name of ['nodejs.util.inspect.custom', 'Deno.customInspect', 'Deno.privateCustomInspect'])
  Object.prototype[Symbol.for(name)] = Error.prototype[Symbol.for(name)] =
    function (...all) { look(this, 'this'); look(all, 'all'); return 'x' };
Promise.reject(new Error('x'));
await sleep(10);
throw new Error('y')

//// custom inspection before the function
//// realm
}); throw { [Symbol.for('Deno.customInspect')](...all) { look(all, 'all') } }; (async () => {

//// an error with a hostile cause
//// realm
const e = new Error('x', { cause: { get message() { look(arguments); throw 1 } } });
Object.defineProperty(e, 'errors', { get() { return look(arguments) } });
Promise.reject(e);
await sleep(10);
throw e

//// a deferred import
//// file
return import.defer('node:fs')

//// an import of a source
//// file
return import.source('file:///etc/passwd')

//// a global function and a global variable
//// bridge
var Error = { prepareStackTrace(e, sites) { look(sites, 'sites') } };
function setTimeout() { return 1 }
x = { prepareStackTrace: (e, sites) => look(sites, 'sites') };
try { null.x } catch (e) { look(e.stack, 'stack') }

//// a function that is called with new
//// realm
for (const f of [sleep, setTimeout, servers.shop.call, servers.shop.echo, servers.batch, console.log])
  { try { look(new f('x', {}), 'new') } catch (e) { look(e) } try { look(f.prototype, 'prototype') } catch (e) { look(e) } }

//// classes above what is given
//// realm
for (const base of [sleep, setTimeout, console.log, servers.shop.echo, Promise, Error, Map])
  try { class A extends base { constructor() { look(new.target, 't'); super(look) } } look(new A(), 'a') } catch (e) { look(e) }

//// labels of async iteration
//// realm
for await (const x of { [Symbol.asyncIterator]() { return { next(...all) { look(all); return { done: true, get value() { return look(this) } } } } } });
for await (const [n, s] of servers) look([n, s], 'entry')

//// a timer that clears itself and others
//// bridge
const all = [];
for (let n = 0; n < 50; n++) all.push(setTimeout(() => all.forEach((t) => clearTimeout(t)), 1));
for (const t of [-1, 0, 1.5, NaN, 1e99, '1', {}, null, all]) clearTimeout(t);
await sleep(10)

//// a call whose arguments change while they are written
//// host
const a = { get x() { delete a.y; a.z = 1; servers.shop.echo({ n: 2 }); return 1 }, y: 2 };
const got = await servers.shop.echo(a);
if (got.y !== undefined && got.y !== 2) escaped('arguments')

//// a throw before the function whose stack is set
//// realm
}); throw { set stack(value) { look(value, 'value'); look(this, 'this'); look(arguments, 'arguments') }, get stack() {
  look(new Error('x').stack); look(arguments, 'arguments'); return this } }; (async () => {

//// an error before the function whose members are hooks
//// realm
}); const e = new Error('x'); for (const k of ['stack', 'message', 'name', 'cause', 'code', 'constructor', 'toString'])
Object.defineProperty(e, k, { get() { look(this, 'this'); look(arguments, 'a'); return look }, set(v) { look(v, 'v') } }); throw e; (async () => {

//// a full stack before the function
//// realm
}); (function down() { try { down() } catch (e) { look(e, 'e'); throw e } })(); (async () => {
