"""Backend selection: run a canary in each sandbox backend, strongest first, and take what isolates.

The canary must start Python and write its workspace, and must fail at everything that a skill is
denied. A backend that is installed but not enforced is worse than none, so only a passed canary
counts; if none passes, nothing runs.
"""

import itertools
import json
import os
import secrets
import socket
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apexbridge.errors import SandboxUnavailableError
from apexbridge.sandbox import interpreters
from apexbridge.sandbox.base import (
    Access,
    ExecRequest,
    ExecutionResult,
    Sandbox,
    SandboxLimits,
    read_data,
)

_ABSENT = "ENOENT"
_REQUIRED = {"write the workspace", "read the skill"}
_LIMITS = SandboxLimits(wall_seconds=10, output_bytes=10_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryResult:
    """Result of one backend's canary, with the reason of a failure."""

    name: str
    passed: bool
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSelection:
    """The selected sandbox, if any, and every canary result."""

    sandbox: Sandbox | None
    trials: tuple[CanaryResult, ...]

    def require(self) -> Sandbox:
        """Return the sandbox.

        Raises:
            SandboxUnavailableError: If none passed; it says what each one lacked.
        """
        if self.sandbox is None:
            reasons = "; ".join(f"{trial.name}: {trial.reason}" for trial in self.trials)
            raise SandboxUnavailableError(reasons or "no backend is known for this system")
        return self.sandbox

    def failed(self) -> tuple[CanaryResult, ...]:
        """Return backends that are present but do not isolate."""
        tried = itertools.takewhile(lambda trial: not trial.passed, self.trials)
        return tuple(trial for trial in tried if trial.reason != _ABSENT)


async def select_backend(
    candidates: Sequence[Sandbox], *, tries_all: bool = False
) -> SandboxSelection:
    """Select the first candidate whose canary passes; `tries_all` runs the others too."""
    trials, chosen = list[CanaryResult](), None
    for candidate in candidates:
        trial = await run_canary(candidate)
        trials.append(trial)
        if trial.passed and chosen is None:
            chosen = candidate
        if chosen is not None and not tries_all:
            break
    return SandboxSelection(sandbox=chosen, trials=tuple(trials))


async def run_canary(candidate: Sandbox) -> CanaryResult:
    """Run the canary in one backend."""
    python = interpreters.find("python")
    if python is None:
        reason = "there is no Python to try it with"
        return CanaryResult(name=candidate.name, passed=False, reason=reason)
    # Outside /tmp: a backend that hides /tmp anyway proves nothing there.
    outside = "/var/tmp" if os.access("/var/tmp", os.W_OK) else None
    with (
        tempfile.TemporaryDirectory(prefix="apexbridge-canary-", dir=outside) as base,
        socket.create_server(("127.0.0.1", 0)) as listener,
    ):
        words = _prepare_canary(Path(base), listener.getsockname()[1])
        skill, workspace = Path(words[1]), Path(words[2])
        request = ExecRequest(
            argv=(str(python.program), "-I", "-S", "-c", read_data("programs/canary.txt"), *words),
            cwd=workspace,
            limits=_LIMITS,
            access=Access(read=(skill, *python.prefix), write=(workspace,)),
        )
        result = await candidate.run(request)
    reason = _canary_failure(result)
    return CanaryResult(name=candidate.name, passed=not reason, reason=reason)


async def is_runnable(candidate: Sandbox) -> bool:
    """Return True if a trivial command runs at all."""
    request = ExecRequest(argv=("/bin/true",), cwd=Path("/"), limits=_LIMITS)
    return (await candidate.run(request)).outcome == "ok"


def _prepare_canary(base: Path, port: int) -> list[str]:
    secret, skill, workspace = base / "secret", base / "skill", base / "workspace"
    secret.write_text(secrets.token_hex(), encoding="utf-8")
    skill.mkdir()
    workspace.mkdir()
    (skill / "SKILL.md").write_text("canary", encoding="utf-8")
    return [str(secret), str(skill), str(workspace), str(port), str(os.getpid())]


def _canary_failure(result: ExecutionResult) -> str:
    """Return why the canary failed; empty if it passed."""
    if result.outcome != "ok":
        lines = result.stderr.decode("utf-8", "replace").strip().splitlines()
        return result.error or (lines[-1] if lines else f"exit code {result.exit_code}")
    try:
        could: dict[str, Any] = json.loads(result.stdout)
    except ValueError:
        return "its output is not valid"
    broken = [f"cannot {deed}" for deed, done in could.items() if deed in _REQUIRED and not done]
    broken += [f"can {deed}" for deed, done in could.items() if deed not in _REQUIRED and done]
    return ", ".join(broken)
