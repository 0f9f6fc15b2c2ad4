// What each attempt has at hand.
const { look, escaped, deep } = (() => {
  const { getPrototypeOf, getOwnPropertyDescriptor, getOwnPropertyNames, getOwnPropertySymbols } = Object;
  const has = Function_call(Object.prototype.hasOwnProperty), say = console.log, ours = Object.prototype;
  function Function_call(f) { return (...all) => f.call(...all) }
  const escaped = (why) => say('ESCAPED ' + why);
  const seen = new Set();
  function look(value, path) {
    const ahead = [[value, path]];
    while (ahead.length && seen.size < 4000) {
      const [x, at] = ahead.pop();
      if (x === null || (typeof x !== 'object' && typeof x !== 'function') || seen.has(x)) continue;
      seen.add(x);
      try {
        let top = x;
        for (let next; (next = getPrototypeOf(top)) !== null; ) top = next;
        if (top !== ours && has(top, 'hasOwnProperty') && has(top, '__defineGetter__')) escaped('another realm at ' + at);
        if (typeof x === 'function') {
          let made;
          try { made = x.constructor('return 1'); } catch (e) { ahead.push([e, at + '.constructor()!']); }
          if (typeof made === 'function') escaped('code out of text at ' + at);
        }
        for (const key of [...getOwnPropertyNames(x), ...getOwnPropertySymbols(x)]) {
          const part = getOwnPropertyDescriptor(x, key);
          if (!part) continue;
          for (const kind of ['value', 'get', 'set']) ahead.push([part[kind], at + '.' + String(key)]);
        }
        ahead.push([getPrototypeOf(x), at + '.__proto__']);
      } catch (e) { ahead.push([e, at + '!']); }
    }
    return value;
  }
  const deep = (act) => {
    // At each of the last depths before the stack is full.
    const caught = [];
    (function down() { try { down(); } catch (e) { caught.push(e); } try { act(); } catch (e) { caught.push(e); } })();
    for (const e of caught.slice(0, 40)) look(e, 'full stack');
  };
  return { look, escaped, deep };
})();
const never = (...names) => { for (const n of names) if (n !== undefined) escaped('found ' + n) };
