"""The field that attacks are played on: a server with secrets, a skill, a workspace, listeners."""

import ctypes
import json
import os
import socket
import tempfile
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apexbridge.sandbox import interpreters
from apexbridge.sandbox.base import Access, ExecRequest, ExecutionResult, Sandbox, SandboxLimits
from apexbridge.testing import make_skill

PYTHON = interpreters.find("python")

PRELUDE = """
import ctypes, errno, json, os, signal, socket, sys, threading, time
F = json.loads(sys.argv[1])
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """What is there to attack."""

    sandbox: Sandbox
    skill: Path
    workspace: Path
    facts: dict[str, Any]

    async def play(
        self, source: str, limits: SandboxLimits | None = None, stdin: bytes = b""
    ) -> ExecutionResult:
        """Run Python in the sandbox, with the prelude before it."""
        assert PYTHON is not None
        words = ("-I", "-S", "-c", PRELUDE + source, json.dumps(self.facts))
        return await self.run((str(PYTHON.program), *words), limits, stdin)

    async def run(
        self, argv: tuple[str, ...], limits: SandboxLimits | None = None, stdin: bytes = b""
    ) -> ExecutionResult:
        """Run a command in the sandbox."""
        assert PYTHON is not None
        return await self.sandbox.run(
            ExecRequest(
                argv=argv,
                cwd=self.workspace,
                env={"PATH": "/usr/bin:/bin"},
                stdin=stdin,
                limits=limits or SandboxLimits(wall_seconds=30),
                access=Access(read=(self.skill, *PYTHON.prefix), write=(self.workspace,)),
            )
        )

    async def verdicts(self, source: str) -> dict[str, str]:
        """What each attack of the source came to."""
        result = await self.play(source + "\nreport()\n")
        assert result.outcome == "ok", result
        return json.loads(result.stdout)


@contextmanager
def field(sandbox: Sandbox) -> Generator[Field]:
    """Lay everything out, and take it away."""
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/var/tmp")))
        secret = place / "secret"
        secret.write_text("the server's secret", encoding="utf-8")
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
        facts: dict[str, Any] = {
            "secret": str(secret),
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
        }
        yield Field(sandbox=sandbox, skill=skill, workspace=place / "workspace", facts=facts)
