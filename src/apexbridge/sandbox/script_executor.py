"""Script executor: run a script in a private workspace, in a warm sandbox or a cold one."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import anyio
import anyio.to_thread

from apexbridge.errors import PermissionDeniedError
from apexbridge.sandbox import child_process, interpreters
from apexbridge.sandbox.base import Access, ExecRequest, ExecutionResult, Sandbox, SandboxLimits
from apexbridge.sandbox.execution import (
    Backend,
    reject_nul,
    run_in_thread,
    run_spec_for,
    to_execution_result,
)
from apexbridge.sandbox.interceptor import Interceptor
from apexbridge.sandbox.interpreters import Interpreter
from apexbridge.sandbox.warm_pool import PoolKey, SandboxLease, WarmPool, cold_lease, workspace_env
from apexbridge.sandbox.workspace import CollectedOutputs, Workspaces, collect_outputs, write_inputs


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptJob:
    """A script with its interpreter, inputs, access and limits."""

    interpreter: Interpreter
    flags: tuple[str, ...] = ()
    """Interpreter flags, before the script."""
    script: Path | None = None
    """None if the flags alone are the command."""
    arguments: tuple[str, ...] = ()
    read: tuple[Path, ...] = ()
    """Readable paths besides the system, the interpreter and the workspace."""
    write: tuple[Path, ...] = ()
    """Resolved directories it may change besides its workspace; they persist."""
    cwd: Path | None = None
    """Working directory, if not the workspace: one that it may read or write."""
    env: dict[str, str] = field(default_factory=dict[str, str])
    inputs: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    stdin: bytes = b""
    hosts: tuple[str, ...] = ()
    interceptor: Interceptor | None = None
    limits: SandboxLimits = SandboxLimits()
    on_output: Callable[[int, bytes], None] | None = None

    @property
    def argv(self) -> tuple[str, ...]:
        """The complete argv."""
        script = (str(self.script),) if self.script else ()
        return (str(self.interpreter.program), *self.flags, *script, *self.arguments)


class ScriptExecutor:
    """Run jobs in a sandbox, each in a workspace that is removed afterwards."""

    def __init__(
        self,
        sandbox: Sandbox,
        workspaces: Workspaces,
        pool: WarmPool | None = None,
        *,
        protected: Sequence[Path] = (),
    ) -> None:
        self._protected = protected
        self._sandbox = sandbox
        self._workspaces = workspaces
        self._pool = pool
        self._shell = shutil.which("bash", path="/usr/bin:/bin") or ""

    @property
    def isolation(self) -> str:
        """The sandbox's name."""
        return self._sandbox.name

    @property
    def pool(self) -> WarmPool | None:
        """The warm pool, if there is one."""
        return self._pool

    async def run(self, job: ScriptJob) -> ExecutionResult:
        """Run a job; its output files are part of the result.

        Raises:
            ValueError: If an argument holds NUL.
            PermissionDeniedError: If a protected path is in a folder that the job may reach.
            StorageError: If an input's name leads outside, or the disk refuses.
        """
        reject_nul((*job.argv, *job.env, *job.env.values()))
        sandbox = self._sandbox
        if isinstance(sandbox, Backend):  # all of it in one thread: each change costs time
            return await run_in_thread(lambda cancel: self._run_on_backend(sandbox, job, cancel))
        lease = await anyio.to_thread.run_sync(self._lease, job)
        found = CollectedOutputs()
        try:
            result = await sandbox.run(_exec_request(job, lease.workspace))
        finally:
            with anyio.CancelScope(shield=True):
                found = await anyio.to_thread.run_sync(_collect_and_close, lease, job)
        return replace(result, produced=found.files, not_taken=found.left)

    def _run_on_backend(self, backend: Backend, job: ScriptJob, cancel: int) -> ExecutionResult:
        lease = self._lease(job)
        try:
            request = _exec_request(job, lease.workspace)
            if lease.key is None:
                has_stdin = bool(request.stdin)
                spec = run_spec_for(request, lambda: backend.start(request, has_stdin=has_stdin))
            else:
                stdin = (self._command_frame(lease.key, job) or b"") + job.stdin
                spec = run_spec_for(replace(request, stdin=stdin), lease.claim)
            result = to_execution_result(child_process.run(spec, cancel), backend.name)
        finally:
            found = _collect_and_close(lease, job)
        return replace(result, produced=found.files, not_taken=found.left)

    def _lease(self, job: ScriptJob) -> SandboxLease:
        """Lease a warm sandbox that matches, else a cold workspace; write the inputs."""
        self._refuse_protected(job)
        key = self._key(job)
        lease = None
        if self._pool is not None and key is not None and self._command_frame(key, job) is not None:
            lease = self._pool.acquire(key)
        lease = lease or cold_lease(self._workspaces)
        try:
            write_inputs(lease.workspace, job.inputs)
        except BaseException:
            lease.close()
            raise
        return lease

    def _refuse_protected(self, job: ScriptJob) -> None:
        """Refuse folders around a protected path: not every backend can leave a part of one out."""
        for folder in (*job.read, *job.write):
            for path in self._protected:
                if path.is_relative_to(folder) and path.exists():
                    raise PermissionDeniedError(code="path_protected", path=path, folder=folder)

    def _key(self, job: ScriptJob) -> PoolKey | None:
        """Return the warm-pool key of a job; None if a warm sandbox cannot be used."""
        warm = interpreters.warm_interpreter_for(job.interpreter, job.flags, self._shell)
        is_plain = job.script is not None and not job.write and job.cwd is None
        if warm is None or job.hosts or not is_plain:
            return None
        try:
            return PoolKey.create(warm, _readable_paths(job), job.env, job.limits)
        except OSError:  # a path that is not there: the run itself will tell
            return None

    def _command_frame(self, key: PoolKey, job: ScriptJob) -> bytes | None:
        return interpreters.encode_command(key.interpreter, job.argv, script_at=1 + len(job.flags))


def _exec_request(job: ScriptJob, workspace: Path) -> ExecRequest:
    access = Access(
        read=_readable_paths(job),
        write=(*job.write, workspace),
        hosts=job.hosts,
        interceptor=job.interceptor,
    )
    return ExecRequest(
        argv=job.argv,
        cwd=job.cwd or workspace,
        env=job.env | workspace_env(workspace),
        stdin=job.stdin,
        limits=job.limits,
        access=access,
        workspace=workspace,
        on_output=job.on_output,
    )


def _collect_and_close(lease: SandboxLease, job: ScriptJob) -> CollectedOutputs:
    """Collect the files that are new or changed, then remove the workspace."""
    try:
        return collect_outputs(lease.workspace, job.limits.output_bytes, inputs=job.inputs)
    finally:
        lease.close()


def _readable_paths(job: ScriptJob) -> tuple[Path, ...]:
    return (*job.read, *job.interpreter.prefix)
