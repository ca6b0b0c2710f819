"""Targets for the attacks: a server with secrets, a skill, a workspace, listeners."""

import ctypes
import json
import os
import platform
import socket
import tempfile
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio

from apexbridge.sandbox import interpreters, seccomp
from apexbridge.sandbox.base import Access, ExecRequest, ExecutionResult, Sandbox, SandboxLimits
from apexbridge.sandbox.execution import Backend, reject_nul, run_process, to_execution_result
from apexbridge.testing import make_skill

PYTHON = interpreters.find("python")
_FLAGS = ("-I", "-S")

PRELUDE = """
import ctypes, errno, json, os, signal, socket, sys, threading, time
F = json.loads(sys.argv[1])
N = F["calls"]
libc = ctypes.CDLL(None, use_errno=True)
verdicts = {}
def attack(name, deed):
    try:
        deed()
    except OSError as error:
        verdicts[name] = errno.errorcode.get(error.errno, "?")
    except Exception as error:
        verdicts[name] = type(error).__name__
    else:
        verdicts[name] = "DONE"
def call(number, *words):
    result = libc.syscall(ctypes.c_long(number), *(ctypes.c_ulong(w & (2**64 - 1)) for w in words))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
def read(path):
    with open(path, "rb") as file:
        file.read(10)
def write(path, mode="wb"):
    with open(path, mode) as file:
        file.write(b"x")
def report():
    print(json.dumps(verdicts))
"""


class WarmSandbox:
    """The same backend, with every command handed to an interpreter that was waiting for it."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.name = f"{backend.name} warm"

    async def run(self, request: ExecRequest) -> ExecutionResult:
        reject_nul((*request.argv, *request.env, *request.env.values()))
        waiter = interpreters.WarmInterpreter(kind="other", program="/bin/bash")
        if PYTHON is not None and request.argv[0] == str(PYTHON.program):
            waiter = interpreters.WarmInterpreter(
                kind="python", program=request.argv[0], flags=_FLAGS
            )
        order = interpreters.encode_command(waiter, request.argv, script_at=1 + len(_FLAGS))
        if order is None:
            order, words = request.stdin, request.argv
        else:
            order, words = order + request.stdin, waiter.argv
        waiting_request = replace(request, argv=words)
        ended = await run_process(
            lambda: self._backend.start(waiting_request, has_stdin=bool(order)),
            replace(request, stdin=order),
        )
        return to_execution_result(ended, self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """Targets of the attacks: secrets, a skill, a workspace, listeners."""

    backend: str
    """`bubblewrap`, `landlock`; the same with ` warm` where the interpreter waits beforehand."""
    sandbox: Sandbox
    skill: Path
    workspace: Path
    facts: dict[str, Any]
    is_metered: bool = True
    """Whether the workspace's size is bounded."""

    async def play(
        self, source: str, limits: SandboxLimits | None = None, stdin: bytes = b""
    ) -> ExecutionResult:
        """Run Python in the sandbox, with the prelude before it."""
        assert PYTHON is not None
        script = self.skill / "scripts/attack.py"
        script.write_text(PRELUDE + source, encoding="utf-8")
        words = (str(PYTHON.program), *_FLAGS, str(script), json.dumps(self.facts))
        return await self.run(words, limits, stdin)

    async def run(
        self, argv: tuple[str, ...], limits: SandboxLimits | None = None, stdin: bytes = b""
    ) -> ExecutionResult:
        """Run a command in the sandbox."""
        assert PYTHON is not None
        return await self.sandbox.run(
            ExecRequest(
                argv=argv,
                cwd=self.workspace,
                env={"PATH": "/usr/bin:/bin", "FIELD": str(self.workspace)},
                stdin=stdin,
                limits=limits or SandboxLimits(wall_seconds=30),
                access=Access(read=(self.skill, *PYTHON.prefix), write=(self.workspace,)),
                workspace=self.workspace if self.is_metered else None,
            )
        )

    async def verdicts(self, source: str) -> dict[str, str]:
        """What each attack of the source came to."""
        result = await self.play(source + "\nreport()\n")
        assert result.outcome == "ok", result
        return json.loads(result.stdout)

    async def is_left_by_all(self) -> None:
        """Wait until no process of this field is there; fail if one stays."""
        await gone(str(self.workspace))


def left(mark: str) -> list[str]:
    """Processes that have the mark in their command line or environment."""
    found = list[str]()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            for name in ("cmdline", "environ"):
                try:
                    if mark.encode() in (entry / name).read_bytes():
                        found.append(entry.name)
                        break
                except OSError:
                    continue
    return found


async def gone(mark: str) -> None:
    """Wait until no process has the mark; fail if one stays."""
    with anyio.fail_after(5):
        while left(mark):
            await anyio.sleep(0.01)


@contextmanager
def field(backend: str, sandbox: Sandbox) -> Generator[Field]:
    """Lay everything out, and take it away."""
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/var/tmp")))
        place.chmod(0o711)
        secret, key = place / "secret", place / "home/.ssh/id"
        key.parent.mkdir(parents=True)
        for path in (secret, key):
            path.write_text("the server's secret", encoding="utf-8")
        for name in ("workspace", "sibling"):
            (place / name).mkdir()
        (place / "sibling/mine").write_text("another run's", encoding="utf-8")
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(("127.0.0.1", 0))
        unix = stack.enter_context(socket.socket(socket.AF_UNIX))
        unix.bind(str(place / "server.sock"))
        unix.listen()
        abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
        abstract.bind(f"\0apexbridge-{os.getpid()}-{id(place)}")
        abstract.listen()
        skill = make_skill(place, "skill", files={"scripts/main.py": "print(1)"})
        machine = seccomp.SYSCALL_TABLES[platform.machine()]
        facts: dict[str, Any] = {
            "secret": str(secret),
            "key": str(key),
            "sibling": str(place / "sibling/mine"),
            "outside": str(place),
            "skill": str(skill),
            "workspace": str(place / "workspace"),
            "code": str(Path(ctypes.__file__).parents[1] / "os.py"),
            "server_code": str(Path(__file__)),
            "pid": os.getpid(),
            "tcp": tcp.getsockname()[1],
            "udp": udp.getsockname()[1],
            "unix": str(place / "server.sock"),
            "abstract": f"\0apexbridge-{os.getpid()}-{id(place)}",
            "calls": dict(machine.numbers),
        }
        yield Field(
            backend=backend,
            sandbox=sandbox,
            skill=skill,
            workspace=place / "workspace",
            facts=facts,
        )
