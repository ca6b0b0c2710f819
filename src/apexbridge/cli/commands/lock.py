"""The lock file of a command: `add`, `update` and `rm` keep it up to date."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from apexbridge.cli.output import Output
from apexbridge.lifecycle.lockfile import LOCK_FILE, read_lock
from apexbridge.runtime import Runtime
from apexbridge.runtime.install_service import InstallService
from apexbridge.runtime.update_service import UpdateService
from apexbridge.settings.loader import PROJECT_FILE


@dataclass(frozen=True, slots=True, kw_only=True)
class LockChoice:
    """The lock file of a command, if it has one."""

    path: Path | None = None
    creates: bool = False


def lock_choice(out: Output, lock: Path | None, *, no_lock: bool) -> LockChoice:
    """Choose the lock file: the one that is named, else the project's.

    A project is a folder with a lock file or `apexbridge.toml`: elsewhere nothing is written.

    Raises:
        ConfigError: `lock_invalid`, before anything is changed.
    """
    project = out.config.project
    path = project / (lock or LOCK_FILE)
    creates = lock is not None or (project / PROJECT_FILE).exists()
    if no_lock or not (creates or path.exists()):
        return LockChoice()
    read_lock(path)
    return LockChoice(path=path, creates=creates)


def update_service(runtime: Runtime, installer: InstallService) -> UpdateService:
    """Create the service that compares skills with their sources."""
    return UpdateService(installer, runtime.store, runtime.config.data)


async def write_lock(
    runtime: Runtime,
    installer: InstallService,
    lock: LockChoice,
    names: Sequence[str],
    *,
    adds: bool,
) -> None:
    """Bring the lock file's entries of these skills up to date."""
    if lock.path is not None and names:
        service = update_service(runtime, installer)
        await service.write_lock(lock.path, names, adds=adds, creates=adds and lock.creates)
