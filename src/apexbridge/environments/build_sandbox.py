"""Build sandbox: run uv or npm with a private folder and the package index, and nothing else.

No home, no data folder, no variables of this process. The network is the egress proxy, which lets
the hosts of the index through. Where no sandbox can do that, nothing runs unless the operator has
allowed it; then only wheels are installed, whose installation runs none of their code.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from apexbridge.environments.package_index import PackageIndex, redact
from apexbridge.errors import DependencyError
from apexbridge.sandbox.base import (
    MIB,
    Access,
    ExecRequest,
    ExecutionResult,
    Sandbox,
    SandboxLimits,
)

_SHOWN_BYTES = 2_000
_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
_OFFLINE = re.compile(
    r"dns error|Host not found|Host not reached|Failed to connect|Connection refused|ENOTFOUND|"
    r"ECONNREFUSED|ETIMEDOUT|EAI_AGAIN|tunnel error|error sending request|Could not connect",
    re.IGNORECASE,
)
_REFUSED_HOST = re.compile(r"403 Host not granted|unsuccessful tunnel|tunnel error: unsuccessful")
_BUILD_FAILED = re.compile(r"[Bb]uild backend|Build failures")
"""A failed download of a package's own build does not mean that the index is not reached."""
_URL_HOST = re.compile(r"https?://([^/\s`'\")]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildLimits:
    """Limits of one build."""

    seconds: float = 900
    bytes: int = 4096 * MIB

    def of_sandbox(self) -> SandboxLimits:
        """Return the limits of the process tree."""
        return SandboxLimits(
            wall_seconds=self.seconds,
            cpu_seconds=int(self.seconds) * 4,
            output_bytes=4 * MIB,
            memory_bytes=4096 * MIB,
            file_bytes=self.bytes,
            processes=256,
            open_files=4096,
            workspace_bytes=self.bytes,
            workspace_files=400_000,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildSandbox:
    """A sandbox with the paths and the index that every step of a build may reach."""

    sandbox: Sandbox
    limits: BuildLimits = BuildLimits()
    is_isolated: bool = True
    """False if the operator allowed builds without isolation: wheels only."""
    read: tuple[Path, ...] = ()

    async def run(
        self,
        place: Path,
        argv: Sequence[str],
        *,
        index: PackageIndex | None = None,
        env: Mapping[str, str] | None = None,
    ) -> ExecutionResult:
        """Run one step in its private folder; without an index there is no network."""
        for name in ("home", "tmp"):
            (place / name).mkdir(exist_ok=True, mode=0o777)
        ca_files = (Path(index.ca_file),) if index and index.ca_file else ()
        variables = {
            "PATH": _SYSTEM_PATH,
            "HOME": str(place / "home"),
            "TMPDIR": str(place / "tmp"),
            "LANG": "C.UTF-8",
            **(env or {}),
        }
        request = ExecRequest(
            argv=tuple(argv),
            cwd=place,
            env=variables,
            limits=self.limits.of_sandbox(),
            access=Access(
                read=(*self.read, *(path.resolve() for path in ca_files if path.is_file())),
                write=(place,),
                operator_hosts=index.hosts if index is not None else (),
            ),
            workspace=place,
        )
        return await self.sandbox.run(request)


def build_error(
    result: ExecutionResult, index: PackageIndex, *, ran_code: bool = False
) -> DependencyError:
    """Return the reason of a failed step in words; credentials are removed.

    Where code of a package ran, no host is suggested: it could have written the name into the
    output, for a person to allow it.
    """
    text = redact((result.stderr[-_SHOWN_BYTES:] or result.stdout[-_SHOWN_BYTES:]).decode(
        "utf-8", "replace"))  # fmt: skip
    detail = " ".join(text.split())
    if result.outcome == "workspace_limit":
        return DependencyError(code="dependencies_too_large")
    if result.outcome == "timeout":
        return DependencyError(code="dependencies_timeout")
    if result.outcome == "not_started":
        return DependencyError(redact(result.error or ""), code="dependencies_sandbox")
    if _REFUSED_HOST.search(text) and not ran_code:
        hosts = sorted(set(_URL_HOST.findall(text)) - set(index.hosts))
        if hosts:
            names = ", ".join(hosts)
            return DependencyError(detail, code="dependencies_host", hosts=names)
    if _OFFLINE.search(text) and not (ran_code and _BUILD_FAILED.search(text)):
        return DependencyError(detail, code="dependencies_offline", index=index.shown)
    return DependencyError(detail or result.outcome, code="dependencies_failed")
