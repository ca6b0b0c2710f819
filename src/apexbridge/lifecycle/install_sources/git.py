"""Any git server, by the git program in the sandbox; nothing of a repository is ever checked out.

Git runs with access to one host through the egress proxy, or to one local repository, and to an
empty workspace. Hooks, submodules, filters (LFS) and credentials play no part: the tree comes out
as a tar (`git archive`), which is read with the checks of every archive.
"""

import shutil
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from urllib.parse import unquote, urlsplit

import anyio.to_thread

from apexbridge.errors import SourceError, ToolFailedError
from apexbridge.lifecycle.install_sources.address import (
    GIT,
    Address,
    checked_commit,
    refused_address,
)
from apexbridge.lifecycle.install_sources.archives import unpack_repository
from apexbridge.lifecycle.install_sources.base import FetchedTree, FetchPolicy
from apexbridge.lifecycle.install_sources.refs import Refs, parse_ls_remote, resolve
from apexbridge.lifecycle.transactions import enter_in_thread
from apexbridge.sandbox.base import Access, ExecRequest, ExecutionResult, Sandbox, SandboxLimits
from apexbridge.sandbox.workspace import Workspaces
from apexbridge.sources.remote.http_client import resolve_and_check
from apexbridge.ssrf import check_url, display_url

_PATH = "/usr/bin:/bin"
_TAR = "tree.tar"
_CONFIG = "gitconfig"
_REPOSITORY = "repository"
_SETTINGS = (
    "protocol.allow=never",
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.symlinks=false",
    "credential.helper=",
    "submodule.recurse=false",
    "gc.auto=0",
    "http.followRedirects=initial",
    "filter.lfs.smudge=",
    "filter.lfs.process=",
    "filter.lfs.required=false",
)
_SSH = "ssh -oBatchMode=yes -oForwardAgent=no -oPermitLocalCommand=no -oClearAllForwardings=yes"
_MAX_DETAIL = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class GitPrograms:
    """Where git runs: in a sandbox, and for ssh, if that is allowed, without one."""

    sandbox: Callable[[], Awaitable[Sandbox]]
    ssh: Sandbox | None = None
    """Runs git with the keys and known hosts of the user; None refuses ssh addresses."""
    environment: Mapping[str, str] | None = None
    """Variables for ssh, such as the socket of the user's agent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Remote:
    """How one address is reached."""

    url: str
    protocol: str
    access: Access


class GitSource:
    """Repositories of any git server, on this machine, or reached by ssh."""

    kinds = frozenset({GIT})

    def __init__(self, policy: FetchPolicy, workspaces: Workspaces, programs: GitPrograms) -> None:
        self._policy = policy
        self._workspaces = workspaces
        self._programs = programs

    async def parse(self, text: str) -> Address | None:
        """Leave it to `parse_address`."""
        return None

    async def resolve(self, address: Address) -> Address:
        """Find the commit by `git ls-remote`."""
        if address.revision:
            return address
        remote = await self._remote(address)
        async with enter_in_thread(self._workspaces.lease()) as workspace:
            return resolve(address, await self._refs(remote, workspace))

    async def fetch(self, address: Address, into: Path) -> FetchedTree:
        """Fetch one commit without its history, and unpack its tree."""
        remote, commit = await self._remote(address), checked_commit(address)
        async with enter_in_thread(self._workspaces.lease()) as workspace:
            await self._run(remote, workspace, "init", "-q", "--bare", _REPOSITORY)
            await self._fetch(remote, workspace, commit)
            words = ("archive", "--format=tar", f"--output={workspace / _TAR}", commit)
            await self._run(remote, workspace, *words, is_inside=True)
            unpack = partial(
                unpack_repository,
                workspace / _TAR,
                into / "tree",
                self._policy.archive,
                has_root=False,
            )
            path, dropped = await anyio.to_thread.run_sync(unpack)
        return FetchedTree(address=address, path=path, dropped=dropped)

    async def _refs(self, remote: _Remote, workspace: Path) -> Refs:
        listed = await self._run(remote, workspace, "ls-remote", "-q", "--", remote.url)
        return parse_ls_remote(listed.stdout.decode("utf-8", "replace"))

    async def _fetch(self, remote: _Remote, workspace: Path, commit: str) -> None:
        """Fetch the commit alone; from a server that does not allow that, all branches and tags."""
        plain = ("fetch", "-q", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head")
        one = (*plain, "--depth=1", "--", remote.url, f"{commit}:refs/wanted")
        try:
            await self._run(remote, workspace, *one, is_inside=True)
        except SourceError as error:
            if error.code != "source_git_failed":
                raise
            every = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
            await self._run(remote, workspace, *plain, "--", remote.url, *every, is_inside=True)

    async def _run(
        self, remote: _Remote, workspace: Path, *words: str, is_inside: bool = False
    ) -> ExecutionResult:
        """Run git to its end.

        Raises:
            SourceError: `source_git_failed` with what git says, `remote_unreachable` at the
                deadline, `remote_unusable` if there is too much.
        """
        git = shutil.which("git", path=_PATH)
        if git is None:
            raise ToolFailedError(code="source_needs_git", address=display_url(remote.url))
        is_ssh = remote.protocol == "ssh"
        if is_ssh and self._programs.ssh is not None:
            sandbox = self._programs.ssh
        else:
            sandbox = await self._programs.sandbox()
        settings = (*_SETTINGS, f"protocol.{remote.protocol}.allow=always")
        options = [word for setting in settings for word in ("-c", setting)]
        config = workspace / _CONFIG
        # Another user may own a local repository. In a file, because git ignores it elsewhere.
        text = "[safe]\n\tdirectory = *\n"
        await anyio.to_thread.run_sync(config.write_text, text, "utf-8")
        environment = self._programs.environment if is_ssh else None
        result = await sandbox.run(
            ExecRequest(
                argv=(git, *options, *words),
                cwd=workspace / _REPOSITORY if is_inside else workspace,
                env=_environment(workspace, environment or {}),
                limits=self._limits(),
                access=replace(remote.access, write=(workspace,)),
                workspace=workspace,
            )
        )
        if result.outcome != "ok":
            raise self._error(remote, result)
        return result

    def _limits(self) -> SandboxLimits:
        policy = self._policy
        size = policy.fetch.max_bytes + policy.archive.unpacked_bytes
        return SandboxLimits(
            wall_seconds=policy.fetch.seconds,
            cpu_seconds=int(policy.fetch.seconds) + 1,
            file_bytes=size,
            workspace_bytes=size,
            output_bytes=64 * 1024 * 1024,
        )

    def _error(self, remote: _Remote, result: ExecutionResult) -> SourceError:
        url = display_url(remote.url)
        if result.timed_out:
            detail = f"no response within {self._policy.fetch.seconds:g} s"
            return SourceError(detail, code="remote_unreachable", url=url)
        if result.outcome in {"workspace_limit", "output_limit"}:
            detail = f"it has more than {self._limits().workspace_bytes} bytes"
            return SourceError(detail, code="remote_unusable", url=url)
        detail = result.error or _complaint(result.stderr) or f"exit code {result.exit_code}"
        return SourceError(detail[:_MAX_DETAIL], code="source_git_failed", url=url)

    async def _remote(self, address: Address) -> _Remote:
        """Return how an address is reached.

        Raises:
            SourceError: `source_refused` for ssh, where that is not allowed, `remote_refused` for a
                host that is not public.
        """
        url = address.location
        if "://" not in url or url.startswith("ssh://"):
            if self._programs.ssh is None:
                raise refused_address(url, "ssh uses your keys: only from the command line")
            return _Remote(url=url, protocol="ssh", access=Access())
        parts = urlsplit(url)
        if parts.scheme == "file":
            place = Path(unquote(parts.path))
            return _Remote(url=url, protocol="file", access=Access(read=_existing(place)))
        target, networks = check_url(url), self._policy.fetch.allow_networks
        if target.address is not None:
            raise refused_address(url, "its host is an IP address, not a name")
        # Once more by the egress proxy, which connects to what it has checked (DNS rebinding).
        await resolve_and_check(target, self._policy.fetch, self._policy.transport)
        access = Access(hosts=(f"{target.host}:{target.port}",), private_networks=networks)
        return _Remote(url=url, protocol=target.scheme, access=access)


def _complaint(stderr: bytes) -> str:
    """Return what git and ssh say, without the advice that follows."""
    said = list[str]()
    for line in stderr.decode("utf-8", "replace").strip().splitlines():
        said.append(line.strip())
        if line.startswith("fatal:"):
            break
    return "; ".join(filter(None, said))


def _environment(workspace: Path, more: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which git asks for nothing and reads no settings but ours."""
    return {
        "HOME": str(workspace),
        **more,
        "PATH": _PATH,
        "LC_ALL": "C.UTF-8",
        "GIT_CONFIG_GLOBAL": str(workspace / _CONFIG),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "/bin/false",
        "GIT_LFS_SKIP_SMUDGE": "1",
        "GIT_PROTOCOL_FROM_USER": "0",
        "GIT_SSH_COMMAND": _SSH,
        "GIT_SSH_VARIANT": "ssh",
    }


def _existing(path: Path) -> tuple[Path, ...]:
    return (path.resolve(),) if path.exists() else ()
