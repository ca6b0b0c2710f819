"""Interpreters that are up before there is anything to run: what they wait with, and for what.

Each reads its order from stdin, as exactly so many bytes, and then is what a fresh one would have
been: the rest of stdin belongs to the script. Python and node run the script themselves; for
everything else a shell waits, which turns into the command: then only the sandbox was warm.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from apexbridge.sandbox.interpreters import Interpreter

Kind = Literal["python", "node", "other"]

_LENGTH_DIGITS = 8
_MAX_WORD_BYTES = 128 * 1024 - 1
_MAX_ORDER_BYTES = 1024 * 1024
"""What is longer goes to a cold start, where the kernel says no."""

# Python takes longer to end than to run a small script, so it is not made to: what its end would
# do for a script (threads, exit functions, files left open, __del__) is done, and then it is gone.
_PYTHON = """
def wait():
    import sys
    fresh = set(sys.modules)
    if not sys.flags.safe_path:
        sys.path.pop(0)  # the folder we wait in is nobody's yet
    import atexit, gc, importlib.machinery, io, os, threading, types
    import argparse, csv, datetime, json, pathlib, re, subprocess, tempfile
    def take(size):
        data = b""
        while len(data) < size:
            piece = os.read(0, size - len(data))
            if not piece:
                os._exit(0)
            data += piece
        return data
    def run(path):
        main = types.ModuleType("__main__")
        main.__dict__.update(
            __file__=path, __builtins__=__builtins__, __cached__=None, __annotations__={},
            __loader__=importlib.machinery.SourceFileLoader("__main__", path),
        )
        sys.modules["__main__"] = main
        try:
            with open(path, "rb") as file:
                source = file.read()
            exec(compile(source, path, "exec", dont_inherit=True), main.__dict__)
        except SystemExit as error:
            return error.code
        except BaseException as error:
            trace = error.__traceback__.tb_next
            sys.excepthook(type(error), error.with_traceback(trace), trace)
            return 130 if isinstance(error, KeyboardInterrupt) else 1
    def end(folder):
        threading._shutdown()
        atexit._run_exitfuncs()
        for name, module in list(sys.modules.items()):
            place = getattr(module, "__file__", None)
            if name == "__main__" or (
                isinstance(place, str) and place.startswith(folder + os.sep)
            ):
                del sys.modules[name]
        module = None
        gc.collect()
        for thing in gc.get_objects():
            if isinstance(thing, io.IOBase) and not thing.closed and thing.writable():
                thing.flush()
    exec(compile(b"pass", "-", "exec", dont_inherit=True), {})  # the first time is the slowest
    gc.collect()
    gc.freeze()
    words = take(int(take(8))).split(b"\\0")[1:-1]
    sys.argv = [os.fsdecode(word) for word in words]
    folder = os.path.dirname(os.path.realpath(sys.argv[0]))
    if not sys.flags.safe_path:
        sys.path.insert(0, folder)
        try:
            near = {name.partition(".")[0] for name in os.listdir(folder)}
        except OSError:  # only the script itself was granted
            near = set()
        for name in set(sys.modules) - fresh:
            if name.partition(".")[0] in near:  # a neighbour of that name is meant
                del sys.modules[name]
    before = sys.modules["__main__"]
    code = run(sys.argv[0])
    if not isinstance(code, (int, type(None))):
        print(code, file=sys.stderr)
        code = 1
    try:
        end(folder)
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                if stream is not None and not stream.closed:
                    stream.flush()
            except Exception:
                code = code or 120
        os._exit((code or 0) & 0xFF)
wait()
"""

# `-e` makes every built-in module a global and leaves itself in execArgv: both are undone.
_NODE = r"""
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
"""

_SHELL = """
LC_ALL=C
read -r -N 8 _
IFS= read -r -d '' n
w=()
while ((n--)); do IFS= read -r -d '' x; w+=("$x"); done
unset LC_ALL n x
export -n PWD OLDPWD SHLVL
exec "${w[@]}"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiter:
    """An interpreter that can wait."""

    kind: Kind
    program: str
    flags: tuple[str, ...] = ()

    @property
    def argv(self) -> tuple[str, ...]:
        """How it is started."""
        if self.kind == "python":
            return (self.program, *self.flags, "-c", _PYTHON)
        if self.kind == "node":
            return (self.program, "-e", _NODE)
        return (self.program, "--norc", "--noprofile", "-c", _SHELL)


def waiter_for(interpreter: Interpreter, flags: tuple[str, ...], shell: str) -> Waiter | None:
    """Who can wait to run this interpreter's scripts; None if nobody can."""
    if interpreter.kind == "python":
        return Waiter(kind="python", program=str(interpreter.program), flags=flags)
    if interpreter.kind == "node" and not flags:
        return Waiter(kind="node", program=str(interpreter.program))
    return Waiter(kind="other", program=shell) if shell else None


def order(waiter: Waiter, argv: Sequence[str], script_at: int) -> bytes | None:
    """What makes a waiter run a command whose script is the word `script_at`; None if too long."""
    words = argv[script_at:] if waiter.kind in {"python", "node"} else argv
    encoded = [os.fsencode(word) + b"\0" for word in words]
    body = b"%d\0" % len(words) + b"".join(encoded)
    if max(map(len, encoded)) > _MAX_WORD_BYTES or len(body) > _MAX_ORDER_BYTES:
        return None
    return b"%0*d" % (_LENGTH_DIGITS, len(body)) + body
