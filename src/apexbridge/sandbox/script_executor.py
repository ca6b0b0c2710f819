"""One script in a workspace of its own: in a sandbox that waits for it, else in a fresh one."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import anyio
import anyio.to_thread

from apexbridge.sandbox import child_process, interpreters
from apexbridge.sandbox.base import Access, ExecRequest, ExecutionResult, Sandbox, SandboxLimits
from apexbridge.sandbox.execution import (
    Backend,
    reject_nul,
    run_in_thread,
    run_spec_for,
    to_execution_result,
)
from apexbridge.sandbox.interpreters import Interpreter
from apexbridge.sandbox.warm_pool import PoolKey, SandboxLease, WarmPool, cold_lease, workspace_env
from apexbridge.sandbox.workspace import CollectedOutputs, Workspaces, collect_outputs, write_inputs


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptJob:
    """A script, who runs it, and what it is given."""

    interpreter: Interpreter
    flags: tuple[str, ...] = ()
    """The interpreter's own words, before the script."""
    script: Path | None = None
    """None where the words alone say what to do."""
    arguments: tuple[str, ...] = ()
    read: tuple[Path, ...] = ()
    """What it may read besides the system, the interpreter and its workspace."""
    write: tuple[Path, ...] = ()
    """Folders, as they really are, that it may change besides its workspace; they stay."""
    cwd: Path | None = None
    """Where it starts, if not in its workspace: one of those that it may read or write."""
    env: dict[str, str] = field(default_factory=dict[str, str])
    inputs: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    stdin: bytes = b""
    hosts: tuple[str, ...] = ()
    limits: SandboxLimits = SandboxLimits()
    on_output: Callable[[int, bytes], None] | None = None

    @property
    def argv(self) -> tuple[str, ...]:
        """The whole command."""
        script = (str(self.script),) if self.script else ()
        return (str(self.interpreter.program), *self.flags, *script, *self.arguments)


class ScriptExecutor:
    """Runs jobs in a sandbox, each in a workspace that is gone afterwards."""

    def __init__(
        self, sandbox: Sandbox, workspaces: Workspaces, pool: WarmPool | None = None
    ) -> None:
        self._sandbox = sandbox
        self._workspaces = workspaces
        self._pool = pool
        self._shell = shutil.which("bash", path="/usr/bin:/bin") or ""

    @property
    def isolation(self) -> str:
        """The name of the sandbox."""
        return self._sandbox.name

    async def run(self, job: ScriptJob) -> ExecutionResult:
        """Run a job; files it left behind come with the result.

        Raises:
            ValueError: If an argument holds NUL.
            StorageError: If an input's name leads outside, or the disk refuses.
        """
        reject_nul((*job.argv, *job.env, *job.env.values()))
        sandbox = self._sandbox
        if isinstance(sandbox, Backend):  # all of it in one thread: each change costs time
            return await run_in_thread(lambda cancel: self._run_here(sandbox, job, cancel))
        station = await anyio.to_thread.run_sync(self._station, job)
        found = CollectedOutputs()
        try:
            result = await sandbox.run(_exec_request(job, station.place))
        finally:
            with anyio.CancelScope(shield=True):
                found = await anyio.to_thread.run_sync(_collect_and_close, station, job.limits)
        return _with_outputs(result, found, job)

    def _run_here(self, backend: Backend, job: ScriptJob, cancel: int) -> ExecutionResult:
        station = self._station(job)
        try:
            request = _exec_request(job, station.place)
            if station.mould is None:
                has_stdin = bool(request.stdin)
                order = run_spec_for(request, lambda: backend.start(request, has_stdin=has_stdin))
            else:
                stdin = (self._order(station.mould, job) or b"") + job.stdin
                order = run_spec_for(replace(request, stdin=stdin), station.use)
            result = to_execution_result(child_process.run(order, cancel), backend.name)
        finally:
            found = _collect_and_close(station, job.limits)
        return _with_outputs(result, found, job)

    def _station(self, job: ScriptJob) -> SandboxLease:
        """One where a sandbox waits for just this, else an empty one; with the inputs in it."""
        mould = self._mould(job)
        station = None
        if self._pool is not None and mould is not None and self._order(mould, job) is not None:
            station = self._pool.take(mould)
        station = station or cold_lease(self._workspaces)
        try:
            write_inputs(station.place, job.inputs)
        except BaseException:
            station.close()
            raise
        return station

    def _mould(self, job: ScriptJob) -> PoolKey | None:
        """What a waiting sandbox must have been made for; None where none can be used."""
        waiter = interpreters.warm_interpreter_for(job.interpreter, job.flags, self._shell)
        is_plain = job.script is not None and not job.write and job.cwd is None
        if waiter is None or job.hosts or not is_plain:
            return None
        try:
            return PoolKey.of(waiter, _readable_paths(job), job.env, job.limits)
        except OSError:  # a path that is not there: the run itself will tell
            return None

    def _order(self, mould: PoolKey, job: ScriptJob) -> bytes | None:
        return interpreters.encode_command(mould.waiter, job.argv, script_at=1 + len(job.flags))


def _exec_request(job: ScriptJob, place: Path) -> ExecRequest:
    return ExecRequest(
        argv=job.argv,
        cwd=job.cwd or place,
        env=job.env | workspace_env(place),
        stdin=job.stdin,
        limits=job.limits,
        access=Access(read=_readable_paths(job), write=(*job.write, place), hosts=job.hosts),
        workspace=place,
        on_output=job.on_output,
    )


def _with_outputs(
    result: ExecutionResult, found: CollectedOutputs, job: ScriptJob
) -> ExecutionResult:
    """The result, with the files that were not there before or are no longer the same."""
    made = {name: data for name, data in found.files.items() if data != job.inputs.get(name)}
    return replace(result, produced=made, not_taken=found.left)


def _collect_and_close(station: SandboxLease, limits: SandboxLimits) -> CollectedOutputs:
    """What was left behind, before all of it is removed."""
    try:
        return collect_outputs(station.place, limits.output_bytes)
    finally:
        station.close()


def _readable_paths(job: ScriptJob) -> tuple[Path, ...]:
    return (*job.read, *job.interpreter.prefix)
