"""Consistency check (fsck) of a data directory, read-only, and repair of what can be rebuilt."""

import shutil
import tempfile
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import anyio.to_thread

from apexbridge.catalog.catalog import Catalog
from apexbridge.catalog.trust import TrustStore
from apexbridge.catalog.usage import UsageStore
from apexbridge.errors import StateDamagedError, StorageError
from apexbridge.events import EventBus
from apexbridge.lifecycle.crash_cleanup import CheckTally, is_lock_held, temporary_files
from apexbridge.lifecycle.fsck import FsckInput, FsckReport, run_fsck
from apexbridge.lifecycle.states import SkillStates
from apexbridge.lifecycle.store import RecoveryReport, SkillStore
from apexbridge.paths import storage_errors
from apexbridge.retrieval.results import IndexStatus, SyncReport
from apexbridge.runtime.container import Runtime, catalog_rules
from apexbridge.runtime.data_dir_lock import LOCK_FILE
from apexbridge.runtime.index_service import IndexService
from apexbridge.runtime.secret_preparation import check_secrets
from apexbridge.runtime.source_factory import SourceChanges, SourceFactory
from apexbridge.runtime.state_check import STATE_FILES, STATES, damaged_files, set_aside
from apexbridge.sandbox.workspace import Workspaces
from apexbridge.settings import Config
from apexbridge.skills.model import Origin
from apexbridge.sources.scan_cache import ScanCache
from apexbridge.state_databases import copy_database

_REMOTE_ORIGINS = frozenset({Origin.MCP, Origin.REMOTE})
_CHECK_ATTEMPTS = 3
_COPY_ATTEMPTS = 3
"""Copies of an index that looks damaged: another process may be writing it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairReport:
    """What was set aside, counts of what was removed, and the report of the index sync."""

    set_aside: tuple[str, ...]
    """Names of damaged state files, after their renaming."""
    recovered: RecoveryReport
    temporaries: int
    workspaces: int
    index: SyncReport


async def check_data_dir(config: Config) -> FsckReport:
    """Check a data directory against the invariants, without changing it.

    SQLite files, which write when opened, are opened in a copy. MCP servers and remote sources are
    not contacted. Beside a working server, what a second check does not find was a change that was
    going on during the first.

    Raises:
        StorageError: If there is no disk space for the copy.
    """
    report = await _check_once(config)
    lock = config.data / LOCK_FILE
    for _ in range(_CHECK_ATTEMPTS - 1):
        if not report.violations or not await anyio.to_thread.run_sync(is_lock_held, lock):
            break
        report = (await _check_once(config)).confirming(report)
    return report


async def _check_once(config: Config) -> FsckReport:
    with tempfile.TemporaryDirectory(prefix="apexbridge-check-") as folder:
        temporary = Path(folder)
        async with _temporary_catalog(config, temporary) as catalog:
            found = FsckInput(
                data=config.data,
                winners={skill.name: skill for skill in catalog.snapshot.skills},
                disabled=_disabled(config),
                index=await _index_status(config, temporary, catalog),
                state=await anyio.to_thread.run_sync(_check_state, config),
            )
            return await anyio.to_thread.run_sync(run_fsck, found)


async def repair_data_dir(config: Config) -> RepairReport:
    """Set damaged state aside, finish or undo interrupted changes, and sync the index."""
    aside = await anyio.to_thread.run_sync(set_aside, config.data)
    store = SkillStore(config.data / "skills")
    keep = config.settings.skills.undo_days * 86_400
    recovered = await anyio.to_thread.run_sync(partial(store.recover, keep_seconds=keep))
    removed = await anyio.to_thread.run_sync(_remove, list(temporary_files(config.data)))
    swept = await anyio.to_thread.run_sync(Workspaces(config.workspaces).sweep)
    async with Runtime.open(config) as runtime:
        is_damaged = bool((await runtime.index_service.status(is_thorough=True)).problems)
        report = await runtime.index_service.sync(everything=is_damaged)
    return RepairReport(
        set_aside=aside, recovered=recovered, temporaries=removed, workspaces=swept, index=report
    )


def _disabled(config: Config) -> frozenset[str]:
    """Return the disabled names; none if the file is damaged, which is a violation by itself."""
    with suppress(StateDamagedError):
        return SkillStates(config.data / STATES).disabled()
    return frozenset()


def _check_state(config: Config) -> CheckTally:
    names = (name for name in STATE_FILES if (config.data / name).exists())
    tally = CheckTally(checked=sum(1 for _ in names))
    found: list[StorageError] = [*damaged_files(config.data)]
    for error in found or filter(None, (check_secrets(config),)):
        details = {key: Path(str(value)).name for key, value in error.details.items()}
        details["detail"] = str(error.details["detail"])
        tally.violation(error.code, details.get("path", "secrets.json"), **details)
    return tally


def _remove(paths: Iterable[Path]) -> int:
    count = 0
    for path in paths:
        with storage_errors(path):
            path.unlink(missing_ok=True)
        count += 1
    return count


@asynccontextmanager
async def _temporary_catalog(config: Config, temporary: Path) -> AsyncGenerator[Catalog]:
    """Scan the local sources into a catalog whose caches are in a temporary directory."""
    factory = SourceFactory(config, ScanCache(temporary / "scans.db"), SourceChanges())
    sources, _ = factory.create_all()
    states, trust = SkillStates(config.data / STATES), TrustStore(temporary / "trust.db")
    rules = catalog_rules(config, factory, trust, states)
    rules = replace(rules, disabled=partial(_disabled, config))
    local = [s for s in sources if s.id.partition(":")[0] not in _REMOTE_ORIGINS]
    catalog = Catalog(local, rules, EventBus().emit)
    try:
        await catalog.refresh()
        yield catalog
    finally:
        await catalog.close()


async def _index_status(config: Config, temporary: Path, catalog: Catalog) -> IndexStatus | None:
    """Check a copy of the index against the skills; None where there is no index."""
    status = None
    for number in range(_COPY_ATTEMPTS):
        copy = temporary / str(number)
        original = _index_service(config, catalog, tags=config.data / "tags").path
        if not await anyio.to_thread.run_sync(_copy_index, original, copy):
            return None
        settings = config.settings.model_copy(update={"data_dir": copy})
        service = _index_service(
            replace(config, settings=settings), catalog, tags=config.data / "tags"
        )
        try:
            status = await service.status(is_thorough=True)
        except StorageError as error:  # so damaged that it cannot even be set aside
            status = _unreadable_index_status(service.path, catalog, error)
        finally:
            await service.close()
        if not status.problems:
            break
    return status


def _unreadable_index_status(path: Path, catalog: Catalog, error: StorageError) -> IndexStatus:
    names = tuple(skill.name for skill in catalog.snapshot.skills)
    return IndexStatus(
        embedder="",
        dimensions=0,
        store="",
        path=path,
        bytes=0,
        rows=0,
        skills=len(names),
        missing=names,
        problems=(str(error.details["detail"]),),
    )


def _index_service(config: Config, catalog: Catalog, *, tags: Path) -> IndexService:
    usage = UsageStore(config.data / "usage.db")  # never opened: no search runs
    return IndexService(config, catalog, usage, tags=tags)


def _copy_index(source: Path, copy: Path) -> bool:
    """Copy the index as it is at one time; False where there is no index."""
    copy.mkdir(mode=0o700)
    with storage_errors(source):
        if source.is_dir():
            shutil.copytree(source, copy / source.name)
            return True
        return copy_database(source, copy / source.name)
