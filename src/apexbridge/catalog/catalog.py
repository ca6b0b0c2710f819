"""The live set of skills: scanned from every source, merged, swapped as one snapshot."""

import difflib
import heapq
import itertools
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import anyio
import anyio.to_thread

from apexbridge.catalog.path_activation import PathActivation
from apexbridge.catalog.snapshot import Snapshot, casefold_name, merge_scans, without_disabled
from apexbridge.catalog.trust import TrustStore, apply_trust
from apexbridge.errors import SkillNotFoundError, SkillNotInvocableError, SourceError
from apexbridge.events import CatalogChanged, ChangeCause, EventSink
from apexbridge.skills import names
from apexbridge.skills.model import Origin, Problem, Skill, SkillContent
from apexbridge.sources.base import Scan, SkillSource, SyncContentSource
from apexbridge.sources.directory_scanner import NestedDiscovery, NestedRoot, resolve_leniently

log = logging.getLogger(__name__)

FIRST_RETRY, LAST_RETRY = 1.0, 60.0
"""Seconds until a source that is down is asked again: twice as long after each failure."""
_CLOSE_SECONDS = 10.0
_MAX_COMPARED = 200
"""Names that are compared letter by letter with one that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceState:
    """A source, and what came of scanning it."""

    source: SkillSource
    scan: Scan = field(default_factory=Scan)
    failures: int = 0
    retry_at: float = 0.0
    """When it is asked again, by the monotonic clock; only of interest while it is down."""
    turn: int = 0
    """Which scan this came of: an older one's findings never replace a newer one's."""
    depth: int = 0
    """How deep in the project it was found; 0 for those that were there from the start."""

    @property
    def is_down(self) -> bool:
        """Say whether it could not be read at all."""
        return self.failures > 0

    def is_there(self) -> bool:
        """Say whether there is anything to read: a folder that nobody made yet is not."""
        roots = self.source.roots
        return not roots or self.is_down or roots[0].exists()


@dataclass(frozen=True, slots=True, kw_only=True)
class TouchResult:
    """What a touched file brought about: skills that woke, and skills found near it."""

    woken: tuple[str, ...] = ()
    found: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogRules:
    """What decides which skills there are: whose win, whose may act, where more are found."""

    precedence: tuple[Origin, ...]
    trust: TrustStore
    nesting: NestedDiscovery
    nested: Callable[[NestedRoot], SkillSource]
    """Makes the source of a skill folder that was found deeper in the project."""
    disabled: Callable[[], Collection[str]] = frozenset
    """The names that are switched off."""
    patience: float = 300.0
    """Seconds after which a source that does not answer counts as down."""


class Catalog:
    """All skills of all sources. Readers take `snapshot` and keep it as long as they like."""

    def __init__(
        self,
        sources: Iterable[SkillSource],
        rules: CatalogRules,
        emit: EventSink,
        problems: Sequence[Problem] = (),
    ) -> None:
        self.snapshot = Snapshot()
        self._rules = rules
        self._emit = emit
        self.states, doubles = _unique_sources(sources)
        self._problems = (*problems, *doubles)
        self._changing, self._touching = anyio.Lock(), anyio.Lock()
        self._lanes: dict[str, anyio.Lock] = {}
        self._turns = itertools.count(1)

    @property
    def skills(self) -> tuple[Skill, ...]:
        """One skill a name, by name."""
        return self.snapshot.skills

    async def refresh(
        self, only: Collection[str] | None = None, *, cause: ChangeCause = "refresh"
    ) -> CatalogChanged:
        """Scan the sources again, or those of these ids; one that is down is a problem beside.

        A source is scanned by one at a time, and one that is slow holds up nobody who did not
        ask for it.
        """
        scanned: dict[str, SourceState] = {}

        async def scan(state: SourceState) -> None:
            source = state.source
            async with self._lanes.setdefault(source.id, anyio.Lock()):
                scanned[source.id] = await self._scan(state)

        async with anyio.create_task_group() as tasks:
            for state in self.states:
                if only is None or state.source.id in only:
                    tasks.start_soon(scan, state)
        async with self._changing:
            return await self._put(scanned, cause)

    async def settle(self) -> CatalogChanged:
        """Apply approvals anew; no source is asked."""
        return await self.refresh((), cause="trust")

    async def touch(self, paths: Iterable[Path], waking: PathActivation) -> TouchResult:
        """Wake what the touched files concern, and find the skills that lie near them."""
        touched = await anyio.to_thread.run_sync(_both_ways, tuple(paths))
        found: tuple[str, ...] = ()
        async with self._touching:
            roots = await anyio.to_thread.run_sync(self._rules.nesting.discover, touched)
            self._add(roots)
            # Also those that an earlier touch found and was cancelled before it read them.
            unread = {state.source.id for state in self.states if state.depth and not state.turn}
            if unread:
                change = await self.refresh(unread, cause="folder")
                found = (*change.added, *change.changed)
            woken = await anyio.to_thread.run_sync(waking.wake, self.snapshot.skills, touched)
        if woken:
            self._emit(CatalogChanged(added=woken, cause="path"))
        return TouchResult(woken=woken, found=found)

    def get(self, name: str) -> Skill:
        """Find a skill by its name; a leading `/` is no part of it.

        Raises:
            SkillNotFoundError: With the names that come near.
        """
        wanted = names.normalise(name).removeprefix("/").strip()
        skill = self.snapshot.winner(wanted)
        if skill is None:
            known = [skill.name for skill in self.snapshot.skills]
            raise SkillNotFoundError(wanted, near=_similar_names(wanted, known))
        return skill

    def find(self, name: str) -> Skill:
        """Find a skill by its name as `get` does, also one that is switched off.

        Raises:
            SkillNotFoundError: With the names that come near.
        """
        wanted = casefold_name(names.normalise(name).removeprefix("/"))
        off = next((s for s in self.snapshot.disabled if casefold_name(s.name) == wanted), None)
        return self.get(name) if off is None else off

    def get_for_model(self, name: str, waking: PathActivation) -> Skill:
        """Find a skill for the model, which may not call all that a user may.

        Raises:
            SkillNotFoundError: With the names that come near.
            SkillNotInvocableError: If the skill sleeps, or is for users alone.
        """
        skill = self.get(name)
        if skill.manifest.disable_model_invocation:
            raise SkillNotInvocableError(code="skill_for_users_only", name=skill.name)
        if waking.is_asleep(skill):
            paths = ", ".join(skill.manifest.paths)
            raise SkillNotInvocableError(code="skill_asleep", name=skill.name, paths=paths)
        return skill

    def source_of(self, skill: Skill) -> SourceState:
        """The source that lists a skill.

        Raises:
            SkillNotFoundError: If none does any more.
        """
        for state in self.states:
            if state.source.id == skill.provenance.source_id:
                return state
        raise SkillNotFoundError(skill.name)

    async def content(self, skill: Skill, arguments: str = "") -> SkillContent:
        """Read a skill's body through the source that listed it."""
        return await self.source_of(skill).source.content(skill, arguments)

    def content_at_once(self, skill: Skill) -> SkillContent | None:
        """The same on a thread of the caller's; nothing where the source must be waited for."""
        source = self.source_of(skill).source
        return source.content_at_once(skill) if isinstance(source, SyncContentSource) else None

    def due(self, now: float) -> list[str]:
        """The sources that are down and should be asked again."""
        return [s.source.id for s in self.states if s.is_down and s.retry_at <= now]

    async def close(self) -> None:
        """Let go of every source, also of those behind one that fails, and when cancelled."""
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as tasks:
                for state in self.states:
                    tasks.start_soon(_close_source, state.source)

    def _add(self, roots: Iterable[NestedRoot]) -> None:
        known = {state.source.id for state in self.states}
        new = [
            SourceState(source=source, depth=len(root.home.parts))
            for root in roots
            if (source := self._rules.nested(root)).id not in known
        ]
        self.states = _deepest_first((*new, *self.states))

    async def _put(self, scanned: Mapping[str, SourceState], cause: ChangeCause) -> CatalogChanged:
        """Make one snapshot of what was scanned now and before, and tell what is different."""
        approved = await anyio.to_thread.run_sync(self._rules.trust.approved)
        disabled = await anyio.to_thread.run_sync(self._rules.disabled)
        self.states = tuple(_newer(s, scanned.get(s.source.id, s)) for s in self.states)
        merged = without_disabled(self._merged(approved), disabled)
        before, self.snapshot = self.snapshot, merged
        change = _change_event(before, self.snapshot, cause)
        if change.added or change.removed or change.changed:
            self._emit(change)
        return change

    def _merged(self, approved: Collection[str]) -> Snapshot:
        scans = [
            replace(s.scan, skills=tuple(apply_trust(skill, approved) for skill in s.scan.skills))
            for s in self.states
        ]
        return merge_scans(scans, self._rules.precedence, self._problems)

    async def _scan(self, state: SourceState) -> SourceState:
        """Ask a source what it holds; whatever it raises is told and ends nothing."""
        source, turn = state.source, next(self._turns)
        try:
            with anyio.fail_after(self._rules.patience):
                scan = await source.scan()
        except SourceError as error:
            return _failed_state(state, turn, error)
        except Exception as error:  # a source may be a stranger's, and raise anything
            log.warning("The source %s failed", source.id, exc_info=True)
            return _failed_state(state, turn, SourceError(_error_text(error), source=source.id))
        return replace(state, scan=scan, failures=0, retry_at=0.0, turn=turn)


def _failed_state(state: SourceState, turn: int, error: SourceError) -> SourceState:
    down = Problem(code=error.code, where=state.source.id, details=error.details)
    wait = min(LAST_RETRY, FIRST_RETRY * 2 ** min(state.failures, 10))
    return replace(
        state,
        scan=Scan(problems=(down,)),
        failures=state.failures + 1,
        retry_at=time.monotonic() + wait,
        turn=turn,
    )


def _error_text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".removesuffix(": ")


def _newer(one: SourceState, other: SourceState) -> SourceState:
    return other if other.turn > one.turn else one


def _unique_sources(
    sources: Iterable[SkillSource],
) -> tuple[tuple[SourceState, ...], list[Problem]]:
    """The first source of each id: behind one id, two could not be told apart."""
    states, doubles = dict[str, SourceState](), list[Problem]()
    for source in sources:
        state = SourceState(source=source)
        if states.setdefault(source.id, state) is not state:
            doubles.append(Problem(code="source_twice", where=source.id, details={"id": source.id}))
    return tuple(states.values()), doubles


async def _close_source(source: SkillSource) -> None:
    try:
        with anyio.move_on_after(_CLOSE_SECONDS):
            await source.close()
    except Exception:
        log.warning("The source %s was not closed", source.id, exc_info=True)


def _similar_names(wanted: str, known: Iterable[str]) -> list[str]:
    """Names that come near. To compare thousands is slow: pairs of letters choose first."""
    text = wanted.casefold()[: 2 * names.MAX_LENGTH]
    pairs = _bigrams(text)

    def likeness(name: str) -> float:
        others = _bigrams(name)
        return len(pairs & others) / (len(pairs) + len(others) or 1)

    return difflib.get_close_matches(text, heapq.nlargest(_MAX_COMPARED, known, key=likeness), n=3)


def _bigrams(text: str) -> set[str]:
    return set(map("".join, itertools.pairwise(text)))


def _change_event(before: Snapshot, after: Snapshot, cause: ChangeCause) -> CatalogChanged:
    old = {skill.name: skill for skill in before.skills}
    new = {skill.name: skill for skill in after.skills}
    return CatalogChanged(
        added=tuple(name for name in new if name not in old),
        removed=tuple(name for name in old if name not in new),
        changed=tuple(n for n in new if n in old and _is_other(old[n], new[n])),
        cause=cause,
    )


def _is_other(old: Skill, new: Skill) -> bool:
    """Another state, another source's skill, or another standing of the same one."""
    if old is new:
        return False
    return (
        old.fingerprint != new.fingerprint
        or old.summary != new.summary
        or old.provenance.source_id != new.provenance.source_id
        or old.is_trusted != new.is_trusted
    )


def _deepest_first(states: Sequence[SourceState]) -> tuple[SourceState, ...]:
    """Sources in the order in which they win: those found deeper in the project first."""
    return tuple(sorted(states, key=lambda state: -state.depth))


def _both_ways(paths: Sequence[Path]) -> tuple[Path, ...]:
    """Each path as it was named and as it really lies: a link may lead into the project."""
    return tuple(dict.fromkeys(way for path in paths for way in (path, resolve_leniently(path))))
