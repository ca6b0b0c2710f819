"""Seatbelt: macOS's own sandbox, by a profile that denies what it does not name.

It has been written from its documentation and tested as text only: nobody has run it yet. Paths are
parameters (`-D`), never pasted into the profile, so no path can say anything in its language.
"""

from pathlib import Path

from apexbridge.sandbox import spawn
from apexbridge.sandbox.base import ExecRequest, ExecutionResult
from apexbridge.sandbox.plain import limiting_words
from apexbridge.sandbox.process import run_on
from apexbridge.sandbox.runner import Started
from apexbridge.sandbox.spawn import Command

PROGRAM = "/usr/bin/sandbox-exec"
NO_DOOR = "network_unavailable: this sandbox cannot let single hosts through"

_ALWAYS = """\
(version 1)
(deny default)
(allow process-exec process-fork)
(allow signal (target same-sandbox))
(allow sysctl-read)
(allow file-read-metadata)
(allow file-read*
    (literal "/")
    (subpath "/usr") (subpath "/bin") (subpath "/sbin") (subpath "/System") (subpath "/Library")
    (subpath "/private/var/db/dyld") (subpath "/private/var/db/timezone")
    (literal "/private/etc/localtime") (subpath "/private/etc/ssl"))
(allow file-read* file-write-data
    (literal "/dev/null") (literal "/dev/zero") (literal "/dev/dtracehelper"))
(allow file-read* (literal "/dev/random") (literal "/dev/urandom"))
(allow file-read* file-write-data (subpath "/dev/fd"))
"""
_READ = '(allow file-read* (subpath (param "READ_{number}")))\n'
_WRITE = '(allow file-read* file-write* (subpath (param "WRITE_{number}")))\n'


def profile(reads: int, writes: int) -> str:
    """The profile for so many readable and writable paths; what they are is said beside it."""
    grants = [_READ.format(number=number) for number in range(reads)]
    grants += [_WRITE.format(number=number) for number in range(writes)]
    return _ALWAYS + "".join(grants)


class SeatbeltSandbox:
    """Runs commands under a seatbelt profile."""

    name = "seatbelt"

    async def run(self, request: ExecRequest) -> ExecutionResult:
        """Run one command to its end, or to its limits."""
        return await run_on(self, request)

    def start(self, request: ExecRequest, *, has_stdin: bool) -> Started:
        """Start the command; whoever asked watches it, and feeds it if it has an stdin.

        Raises:
            OSError: If it cannot be started.
        """
        if request.access.hosts:
            raise OSError(NO_DOOR)
        return spawn.start(
            Command(
                argv=[*limiting_words(request.limits), *sandbox_words(request), *request.argv],
                env=request.env,
                cwd=str(request.cwd),
                has_stdin=has_stdin,
            )
        )


def sandbox_words(request: ExecRequest) -> list[str]:
    """Words that confine what follows them."""
    reads, writes = (_real(paths) for paths in (request.access.read, request.access.write))
    words = [PROGRAM, "-p", profile(len(reads), len(writes))]
    for kind, paths in (("READ", reads), ("WRITE", writes)):
        for number, path in enumerate(paths):
            words += ["-D", f"{kind}_{number}={path}"]
    return [*words, "--"]


def _real(paths: tuple[Path, ...]) -> list[Path]:
    """The kernel asks about real paths: `/tmp` is a link there."""
    return [path.resolve() for path in paths]
