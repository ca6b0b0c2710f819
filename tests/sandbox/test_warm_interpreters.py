"""A warm interpreter behaves like a fresh one."""

import subprocess
import zipfile
from pathlib import Path

import pytest

from apexbridge.sandbox import interpreters

ENV = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
BASH = "/bin/bash"

Done = tuple[int, bytes, bytes]


def _both(name: str, script: Path, *arguments: str, stdin: bytes = b"") -> tuple[Done, Done]:
    """What the script did in an interpreter that waited, and in a fresh one."""
    found = interpreters.find(name)
    assert found is not None
    argv = (str(found.program), str(script), *arguments)
    waiter = interpreters.warm_interpreter_for(found, (), BASH)
    assert waiter is not None
    order = interpreters.encode_command(waiter, argv, script_at=1)
    assert order is not None
    warm = subprocess.run(
        waiter.argv, input=order + stdin, capture_output=True, env=ENV, cwd=script.parent
    )
    cold = subprocess.run(argv, input=stdin, capture_output=True, env=ENV, cwd=script.parent)
    return (
        (warm.returncode, warm.stdout, warm.stderr),
        (cold.returncode, cold.stdout, cold.stderr),
    )


PYTHON = {
    "what it is": """
import os, sys, __main__
print(sys.argv, __name__, __file__, sorted(globals()), __spec__, type(__loader__), sys.path[0])
print(sorted(os.environ), sys.flags, sys.stdin.read(), __main__.__dict__ is globals())
""",
    "output without an end": "import sys; sys.stdout.write('no'); sys.stderr.write('end')",
    "a failure": "def f(): raise ValueError('é')\nf()",
    "a failure's cause": "try: 1/0\nexcept ZeroDivisionError as e: raise KeyError('a') from e",
    "a syntax error": "print(1)\nx = = 2",
    "a code": "import atexit, sys; atexit.register(print, 'end'); sys.exit(300)",
    "no code": "raise SystemExit",
    "a text as code": "import sys; sys.exit('bye')",
    "its own end": "import os; os._exit(9)",
    "a signal": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "a thread": """
import threading, time
threading.Thread(target=lambda: (time.sleep(0.1), print('thread'))).start()
print('main')
""",
    "a pool of threads": """
import concurrent.futures as c
c.ThreadPoolExecutor().submit(print, 'from the pool')
""",
    "processes": """
import multiprocessing
def double(x): return 2 * x
if __name__ == '__main__':
    multiprocessing.set_start_method('spawn')
    with multiprocessing.Pool(1) as pool:
        print(pool.map(double, [1, 2]))
""",
    "things that are deleted": """
class A:
    def __del__(self): print('deleted')
a = A(); b = [A()]; b.append(b)
""",
    "clean-up that needs its neighbours": """
import sys
def say(what): print('closed', what, LIMIT)
LIMIT = 3
class A:
    def __del__(self): say('object')
def generate():
    try:
        yield 1
    finally:
        say('generator')
a, g = A(), generate()
next(g)
sys.stdout.flush()
""",
    "its own source": "import inspect\ndef f(): pass\nprint(inspect.getsource(f))",
    "its own hook": "import sys; sys.excepthook = lambda *a: print('hook', a[0]); 1/0",
    "a closed stdout": "import sys; sys.stdout.close()",
    "annotations": "x: int = 3; print(__annotations__)",
    "an event loop": "import asyncio; asyncio.run(asyncio.sleep(0)); print('done')",
}


@pytest.mark.parametrize("kind", PYTHON)
def test_python_does_the_same(tmp_path: Path, kind: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(PYTHON[kind], encoding="utf-8")
    warm, cold = _both("python", script, "x", "é", "", "a b", "\udcff", stdin=b"input")
    assert warm == cold


@pytest.mark.parametrize(
    "source",
    [
        "f = open('made', 'w'); f.write('kept')",
        "import helper",
        "import zipfile; z = zipfile.ZipFile('made', 'w'); z.writestr('kept', '')",
    ],
    ids=["open file", "a module's open file", "open archive"],
)
def test_what_was_left_open_is_not_lost(tmp_path: Path, source: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(source, encoding="utf-8")
    (tmp_path / "helper.py").write_text("f = open('made', 'w'); f.write('kept')", encoding="utf-8")
    warm, _ = _both("python", script)
    made = tmp_path / "made"
    assert warm == (0, b"", b"")
    if zipfile.is_zipfile(made):
        assert zipfile.ZipFile(made).namelist() == ["kept"]
    else:
        assert made.read_bytes() == b"kept"


def test_a_module_beside_the_script_shadows_preloaded_ones(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import csv, random; print(csv.__file__, random.__file__)", encoding="utf-8")
    for name in ("csv", "random"):
        (tmp_path / f"{name}.py").touch()
    warm, cold = _both("python", script)
    assert warm == cold  # some installations have loaded the one or the other by themselves


NODE = {
    "script.js": """
console.log(process.argv, __filename, require.main === module, process.execArgv, module.paths[0]);
console.log(typeof fs, typeof globalThis.require, typeof crypto.subtle, Object.keys(process.env));
console.log(Object.getOwnPropertyNames(globalThis).sort().join());
console.log(require('fs').readFileSync(0).toString());
if (!process.argv.includes('kid'))
  require('child_process').fork(__filename, ['kid']).on('exit', c => console.log('kid', c));
""",
    "script.mjs": """
import fs from 'fs';
console.log(import.meta.url, typeof require, typeof path, process.argv.slice(2));
await 1;
process.exitCode = 4;
""",
    "exit.js": "process.on('exit', c => console.log('exit', c)); process.exit(3)",
}


@pytest.mark.needs("node")
@pytest.mark.parametrize("name", NODE)
def test_node_does_the_same(tmp_path: Path, name: str) -> None:
    script = tmp_path / name
    script.write_text(NODE[name], encoding="utf-8")
    warm, cold = _both("node", script, "x", "é", "", stdin=b"input")
    assert warm == cold


@pytest.mark.needs("node")
def test_an_error_in_node_is_reported_like_nodes_own(tmp_path: Path) -> None:
    script = tmp_path / "script.js"
    script.write_text("throw new TypeError('oops')", encoding="utf-8")
    warm, cold = _both("node", script)
    head = cold[2].partition(b"at Object.<anonymous>")[0]
    assert (warm[0], warm[1], warm[2].startswith(head)) == (cold[0], cold[1], True)


def test_anything_else_is_what_the_shell_turns_into(tmp_path: Path) -> None:
    script = tmp_path / "script.sh"
    script.write_text('echo "$0" "$@" "$#"; cat; env | sort; exit 4', encoding="utf-8")
    warm, cold = _both("bash", script, "x", "é", "a b", "", "*", "\udcff", "a\nb", stdin=b"in")
    assert warm == cold


def test_interpreters_that_support_warm_starts(tmp_path: Path) -> None:
    other = interpreters.Interpreter(program=tmp_path / "perl")
    node = interpreters.Interpreter(program=Path("/usr/bin/node"))
    assert interpreters.warm_interpreter_for(other, (), "") is None
    waiter = interpreters.warm_interpreter_for(node, ("--flag",), BASH)
    assert waiter is not None
    assert waiter.kind == "other"  # flags must be there from the start


def test_what_no_command_line_could_carry_is_left_to_the_kernel() -> None:
    waiter = interpreters.WarmInterpreter(kind="python", program="python3")
    assert (
        interpreters.encode_command(waiter, ("python3", "a.py", "x" * 140_000), script_at=1) is None
    )
    assert (
        interpreters.encode_command(waiter, ("python3", "a.py", *["x" * 1000] * 1100), script_at=1)
        is None
    )


def test_a_warm_interpreter_exits_with_its_server() -> None:
    found = interpreters.find("python")
    assert found is not None
    waiter = interpreters.warm_interpreter_for(found, (), BASH)
    assert waiter is not None
    assert subprocess.run(waiter.argv, input=b"", timeout=20).returncode == 0
