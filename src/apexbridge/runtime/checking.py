"""Check a data folder without changing anything in it, and mend what can be made anew."""

import shutil
import tempfile
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import anyio.to_thread

from apexbridge.catalog.catalog import Catalog, Rules
from apexbridge.catalog.trust import TrustStore
from apexbridge.catalog.usage import UsageStore
from apexbridge.errors import StorageError
from apexbridge.events import Event
from apexbridge.lifecycle.fsck import Ground, Soundness, check
from apexbridge.lifecycle.leftovers import temporaries
from apexbridge.lifecycle.states import States
from apexbridge.lifecycle.store import Recovered, SkillStore
from apexbridge.retrieval.report import IndexStatus, Report
from apexbridge.runtime.core import Runtime
from apexbridge.runtime.places import Places
from apexbridge.runtime.searching import Searching
from apexbridge.sandbox.workspace import Workspaces
from apexbridge.settings import Loaded
from apexbridge.skills.model import Origin
from apexbridge.sources.base import SkillSource
from apexbridge.sources.nested import Nesting
from apexbridge.sources.remembered import ScanMemory

_FAR = frozenset({Origin.MCP, Origin.REMOTE})
"""Whom a check does not ask: servers would be started, and addresses called."""
_TRIES = 3
"""How often an index that looks damaged is copied: somebody may be writing it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mended:
    """What was put right."""

    recovered: Recovered
    temporaries: int
    workspaces: int
    index: Report


async def check_data(loaded: Loaded) -> Soundness:
    """Hold the data folder against the invariants. Nothing in it is changed.

    What writes when it is opened is opened in a copy; servers and remote addresses are not asked.

    Raises:
        StorageError: If there is no room for the copy.
    """
    with tempfile.TemporaryDirectory(prefix="apexbridge-check-") as folder:
        place = Path(folder)
        async with _catalogue(loaded, place) as catalog:
            ground = Ground(
                data=loaded.data,
                winners={skill.name: skill for skill in catalog.snapshot.skills},
                disabled=States(loaded.data / "states.json").disabled(),
                index=await _index_status(loaded, place, catalog),
            )
            return await anyio.to_thread.run_sync(check, ground)


async def mend_data(loaded: Loaded) -> Mended:
    """Do what a start and a scan do, and remove what nobody is at work on any more.

    Raises:
        StorageError: If the disk refuses.
    """
    store = SkillStore(loaded.data / "skills")
    keep = loaded.settings.skills.undo_days * 86_400
    recovered = await anyio.to_thread.run_sync(partial(store.recover, keep_seconds=keep))
    removed = await anyio.to_thread.run_sync(_remove, list(temporaries(loaded.data)))
    swept = await anyio.to_thread.run_sync(Workspaces(loaded.workspaces).sweep)
    async with Runtime.open(loaded) as runtime:
        is_damaged = bool((await runtime.searching.status(is_thorough=True)).problems)
        report = await runtime.searching.vectorise(everything=is_damaged)
    return Mended(recovered=recovered, temporaries=removed, workspaces=swept, index=report)


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
async def _catalogue(loaded: Loaded, place: Path) -> AsyncGenerator[Catalog]:
    """Who has which name, by the sources of this machine; what they remember goes elsewhere."""
    places = Places(loaded, ScanMemory(place / "scans.db"), _nobody)
    sources, _ = places.sources()
    rules = Rules(
        precedence=loaded.settings.skills.precedence,
        trust=TrustStore(place / "trust.db"),
        nesting=Nesting(loaded.project, loaded.settings.skills.project_paths),
        nested=places.nested,
        disabled=States(loaded.data / "states.json").disabled,
    )
    catalog = Catalog([source for source in sources if _is_near(source)], rules, _unheard)
    try:
        await catalog.refresh()
        yield catalog
    finally:
        await catalog.close()


def _is_near(source: SkillSource) -> bool:
    return source.id.partition(":")[0] not in _FAR


def _nobody(_source_id: str) -> None:
    """No source lives long enough to change."""


def _unheard(_event: Event) -> None:
    """Nobody listens."""


async def _index_status(loaded: Loaded, place: Path, catalog: Catalog) -> IndexStatus | None:
    """How a copy of the index stands to the skills; None where there is no index."""
    status = None
    for number in range(_TRIES):
        copy = place / str(number)
        if not await anyio.to_thread.run_sync(_copy_index, _searching(loaded, catalog).place, copy):
            return None
        settings = loaded.settings.model_copy(update={"data_dir": copy})
        searching = _searching(replace(loaded, settings=settings), catalog)
        try:
            status = await searching.status(is_thorough=True)
        except StorageError as error:  # not even to be set aside
            status = _unreadable(searching.place, catalog, error)
        finally:
            await searching.close()
        if not status.problems:
            break
    return status


def _unreadable(place: Path, catalog: Catalog, error: StorageError) -> IndexStatus:
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


def _searching(loaded: Loaded, catalog: Catalog) -> Searching:
    usage = UsageStore(loaded.data / "usage.db")  # never opened: nobody searches
    return Searching(
        loaded, lambda: catalog.snapshot.skills, catalog.content, catalog.content_at_once, usage
    )


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
