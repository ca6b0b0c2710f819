// `-e` makes every built-in module a global and leaves itself in execArgv: both are undone.
const fs = require('fs'), modules = require('module'), web = require('crypto').webcrypto;
const take = (size) => {
  const data = Buffer.alloc(size);
  for (let at = 0; at < size; ) {
    const count = fs.readSync(0, data, at, size - at, null);
    if (!count) process.exit(0);
    at += count;
  }
  return data;
};
const kept = new Set(['console', 'process', 'global']);
for (const name of [...modules.builtinModules, 'module', 'require', 'exports', '__filename',
  '__dirname'])
  if (!kept.has(name)) delete globalThis[name];
if (!globalThis.crypto)
  Object.defineProperty(globalThis, 'crypto', { value: web, configurable: true, writable: true });
process.execArgv = [];
try { modules._load('/nothing', null, true); } catch {} // gets the loader ready
const words = take(+take(8).toString()).toString().split('\0').slice(1, -1);
process.argv.splice(1, process.argv.length, ...words);
modules.runMain();
