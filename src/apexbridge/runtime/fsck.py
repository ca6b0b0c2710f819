"""Check a data folder without changing anything in it, and mend what can be made anew."""

import shutil
import tempfile
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import anyio.to_thread

from apexbridge.catalog.catalog import Catalog, CatalogRules
from apexbridge.catalog.trust import TrustStore
from apexbridge.catalog.usage import UsageStore
from apexbridge.errors import StorageError
from apexbridge.events import Event
from apexbridge.lifecycle.crash_cleanup import temporary_files
from apexbridge.lifecycle.fsck import FsckInput, FsckReport, run_fsck
from apexbridge.lifecycle.states import SkillStates
from apexbridge.lifecycle.store import RecoveryReport, SkillStore
from apexbridge.retrieval.results import IndexStatus, SyncReport
from apexbridge.runtime.container import Runtime
from apexbridge.runtime.index_service import IndexService
from apexbridge.runtime.source_factory import SourceFactory
from apexbridge.sandbox.workspace import Workspaces
from apexbridge.settings import Config
from apexbridge.skills.model import Origin
from apexbridge.sources.base import SkillSource
from apexbridge.sources.directory_scanner import NestedDiscovery
from apexbridge.sources.scan_cache import ScanCache

_REMOTE_ORIGINS = frozenset({Origin.MCP, Origin.REMOTE})
"""Whom a check does not ask: servers would be started, and addresses called."""
_COPY_ATTEMPTS = 3
"""How often an index that looks damaged is copied: somebody may be writing it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairReport:
    """What was put right."""

    recovered: RecoveryReport
    temporaries: int
    workspaces: int
    index: SyncReport


async def check_data_dir(config: Config) -> FsckReport:
    """Hold the data folder against the invariants. Nothing in it is changed.

    What writes when it is opened is opened in a copy; servers and remote addresses are not asked.

    Raises:
        StorageError: If there is no room for the copy.
    """
    with tempfile.TemporaryDirectory(prefix="apexbridge-check-") as folder:
        place = Path(folder)
        async with _temporary_catalog(config, place) as catalog:
            ground = FsckInput(
                data=config.data,
                winners={skill.name: skill for skill in catalog.snapshot.skills},
                disabled=SkillStates(config.data / "states.json").disabled(),
                index=await _index_status(config, place, catalog),
            )
            return await anyio.to_thread.run_sync(run_fsck, ground)


async def repair_data_dir(config: Config) -> RepairReport:
    """Do what a start and a scan do, and remove what nobody is at work on any more.

    Raises:
        StorageError: If the disk refuses.
    """
    store = SkillStore(config.data / "skills")
    keep = config.settings.skills.undo_days * 86_400
    recovered = await anyio.to_thread.run_sync(partial(store.recover, keep_seconds=keep))
    removed = await anyio.to_thread.run_sync(_remove, list(temporary_files(config.data)))
    swept = await anyio.to_thread.run_sync(Workspaces(config.workspaces).sweep)
    async with Runtime.open(config) as runtime:
        is_damaged = bool((await runtime.index_service.status(is_thorough=True)).problems)
        report = await runtime.index_service.sync(everything=is_damaged)
    return RepairReport(recovered=recovered, temporaries=removed, workspaces=swept, index=report)


def _remove(paths: Iterable[Path]) -> int:
    count = 0
    for path in paths:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise StorageError(error.strerror or str(error), path=path) from error
        count += 1
    return count


@asynccontextmanager
async def _temporary_catalog(config: Config, place: Path) -> AsyncGenerator[Catalog]:
    """Who has which name, by the sources of this machine; what they remember goes elsewhere."""
    places = SourceFactory(config, ScanCache(place / "scans.db"), _ignore_source_change)
    sources, _ = places.sources()
    rules = CatalogRules(
        precedence=config.settings.skills.precedence,
        trust=TrustStore(place / "trust.db"),
        nesting=NestedDiscovery(config.project, config.settings.skills.project_paths),
        nested=places.nested,
        disabled=SkillStates(config.data / "states.json").disabled,
    )
    catalog = Catalog([source for source in sources if _is_local(source)], rules, _ignore_event)
    try:
        await catalog.refresh()
        yield catalog
    finally:
        await catalog.close()


def _is_local(source: SkillSource) -> bool:
    return source.id.partition(":")[0] not in _REMOTE_ORIGINS


def _ignore_source_change(_source_id: str) -> None:
    """No source lives long enough to change."""


def _ignore_event(_event: Event) -> None:
    """Nobody listens."""


async def _index_status(config: Config, place: Path, catalog: Catalog) -> IndexStatus | None:
    """How a copy of the index stands to the skills; None where there is no index."""
    status = None
    for number in range(_COPY_ATTEMPTS):
        copy = place / str(number)
        if not await anyio.to_thread.run_sync(
            _copy_index, _index_service(config, catalog, tags=config.data).path, copy
        ):
            return None
        settings = config.settings.model_copy(update={"data_dir": copy})
        service = _index_service(
            replace(config, settings=settings), catalog, tags=config.data / "tags"
        )
        try:
            status = await service.status(is_thorough=True)
        except StorageError as error:  # not even to be set aside
            status = _unreadable_index_status(service.path, catalog, error)
        finally:
            await service.close()
        if not status.problems:
            break
    return status


def _unreadable_index_status(place: Path, catalog: Catalog, error: StorageError) -> IndexStatus:
    names = tuple(skill.name for skill in catalog.snapshot.skills)
    return IndexStatus(
        embedder="",
        dimensions=0,
        store="",
        path=place,
        bytes=0,
        rows=0,
        skills=len(names),
        missing=names,
        problems=(str(error.details["detail"]),),
    )


def _index_service(config: Config, catalog: Catalog, *, tags: Path) -> IndexService:
    usage = UsageStore(config.data / "usage.db")  # never opened: nothing searches here
    return IndexService(config, catalog, usage, tags=tags)


def _copy_index(source: Path, copy: Path) -> bool:
    """Copy the index and the log beside it; False where there is none."""
    copy.mkdir(mode=0o700)
    try:
        if source.is_dir():
            shutil.copytree(source, copy / source.name)
            return True
        for path in (source, source.with_name(f"{source.name}-wal")):
            if path.exists():
                shutil.copyfile(path, copy / path.name)
    except OSError as error:
        raise StorageError(error.strerror or str(error), path=source) from error
    return source.exists()
