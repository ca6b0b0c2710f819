"""The live set of skills: scanned from every source, merged, swapped as one snapshot."""

import difflib
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import anyio
import anyio.to_thread

from apexbridge.catalog.merge import Snapshot, merge
from apexbridge.catalog.trust import TrustStore, settle
from apexbridge.catalog.waking import Waking
from apexbridge.errors import SkillNotFoundError, SkillNotInvocableError, SourceError
from apexbridge.events import CatalogChanged, Cause, EventSink
from apexbridge.skills.model import Origin, Problem, Skill, SkillContent
from apexbridge.sources.base import Scan, SkillSource
from apexbridge.sources.nested import NestedRoot, Nesting

FIRST_RETRY, LAST_RETRY = 1.0, 60.0
"""Seconds until a source that is down is asked again: twice as long after each failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceState:
    """A source, and what came of scanning it."""

    source: SkillSource
    scan: Scan = field(default_factory=Scan)
    failures: int = 0
    retry_at: float = 0.0
    """When it is asked again, by the monotonic clock; only of interest while it is down."""

    @property
    def is_down(self) -> bool:
        """Say whether it could not be read at all."""
        return self.failures > 0

    def is_there(self) -> bool:
        """Say whether there is anything to read: a folder that nobody made yet is not."""
        roots = self.source.roots
        return not roots or self.is_down or roots[0].exists()


@dataclass(frozen=True, slots=True, kw_only=True)
class Touched:
    """What a touched file brought about: skills that woke, and skills found near it."""

    woken: tuple[str, ...] = ()
    found: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What decides which skills there are: whose win, whose may act, where more are found."""

    precedence: tuple[Origin, ...]
    trust: TrustStore
    nesting: Nesting
    nested: Callable[[NestedRoot], SkillSource]
    """Makes the source of a skill folder that was found deeper in the project."""


class Catalog:
    """All skills of all sources. Readers take `snapshot` and keep it as long as they like."""

    def __init__(
        self,
        sources: Iterable[SkillSource],
        rules: Rules,
        emit: EventSink,
        problems: Sequence[Problem] = (),
    ) -> None:
        self.snapshot = Snapshot()
        self.states = tuple(SourceState(source=source) for source in sources)
        self._rules = rules
        self._emit = emit
        self._problems = tuple(problems)
        self._changing = anyio.Lock()

    @property
    def skills(self) -> tuple[Skill, ...]:
        """One skill a name, by name."""
        return self.snapshot.skills

    async def refresh(
        self, only: Collection[str] | None = None, *, cause: Cause = "refresh"
    ) -> CatalogChanged:
        """Scan the sources again, or those of these ids; one that is down is a problem beside."""
        async with self._changing:
            return await self._refresh(only, cause)

    async def settle(self) -> CatalogChanged:
        """Apply approvals anew; no source is asked."""
        return await self.refresh((), cause="trust")

    async def touch(self, paths: Iterable[Path], waking: Waking) -> Touched:
        """Wake what the touched files concern, and find the skills that lie near them."""
        touched = await anyio.to_thread.run_sync(_both_ways, tuple(paths))
        found: tuple[str, ...] = ()
        async with self._changing:
            nesting = self._rules.nesting
            roots = await anyio.to_thread.run_sync(nesting.discover, touched)
            known = {state.source.id for state in self.states}
            new = [source for root in roots if (source := self._rules.nested(root)).id not in known]
            if new:
                states = [SourceState(source=source) for source in new]
                self.states = _deepest_first((*states, *self.states))
                change = await self._refresh({source.id for source in new}, "folder")
                found = (*change.added, *change.changed)
        woken = waking.wake(self.snapshot.skills, touched)
        if woken:
            self._emit(CatalogChanged(added=woken, cause="path"))
        return Touched(woken=woken, found=found)

    def get(self, name: str) -> Skill:
        """Find a skill by its name; a leading `/` is no part of it.

        Raises:
            SkillNotFoundError: With the names that come near.
        """
        wanted = name.strip().removeprefix("/").strip()
        skill = self.snapshot.winner(wanted)
        if skill is None:
            known = [skill.name for skill in self.snapshot.skills]
            near = difflib.get_close_matches(wanted, known, n=3)
            raise SkillNotFoundError(wanted, near=near)
        return skill

    def get_for_model(self, name: str, waking: Waking) -> Skill:
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

    def due(self, now: float) -> list[str]:
        """The sources that are down and should be asked again."""
        return [s.source.id for s in self.states if s.is_down and s.retry_at <= now]

    async def close(self) -> None:
        """Let go of every source."""
        for state in self.states:
            await state.source.close()

    async def _refresh(self, only: Collection[str] | None, cause: Cause) -> CatalogChanged:
        scanned: dict[str, SourceState] = {}

        async def scan(state: SourceState) -> None:
            scanned[state.source.id] = await _scan(state)

        async with anyio.create_task_group() as tasks:
            for state in self.states:
                if only is None or state.source.id in only:
                    tasks.start_soon(scan, state)
        self.states = tuple(scanned.get(state.source.id, state) for state in self.states)
        approved = await anyio.to_thread.run_sync(self._rules.trust.approved)
        before, self.snapshot = self.snapshot, self._merged(approved)
        change = _difference(before, self.snapshot, cause)
        if change.added or change.removed or change.changed:
            self._emit(change)
        return change

    def _merged(self, approved: Collection[str]) -> Snapshot:
        scans = [
            replace(s.scan, skills=tuple(settle(skill, approved) for skill in s.scan.skills))
            for s in self.states
        ]
        return merge(scans, self._rules.precedence, self._problems)


async def _scan(state: SourceState) -> SourceState:
    try:
        scan = await state.source.scan()
    except SourceError as error:
        down = Problem(code=error.code, where=state.source.id, details=error.details)
        wait = min(LAST_RETRY, FIRST_RETRY * 2 ** min(state.failures, 10))
        return SourceState(
            source=state.source,
            scan=Scan(problems=(down,)),
            failures=state.failures + 1,
            retry_at=time.monotonic() + wait,
        )
    return SourceState(source=state.source, scan=scan)


def _difference(before: Snapshot, after: Snapshot, cause: Cause) -> CatalogChanged:
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
    """Sources in the order in which they win: a project's deeper folders before its upper ones."""

    def depth(state: SourceState) -> int:
        return max((len(root.parts) for root in state.source.roots[:1]), default=0)

    def is_project(state: SourceState) -> bool:
        return state.source.id.startswith(f"{Origin.PROJECT}:")

    projects = sorted(filter(is_project, states), key=depth, reverse=True)
    return (*projects, *(state for state in states if not is_project(state)))


def _both_ways(paths: Sequence[Path]) -> tuple[Path, ...]:
    """Each path as it was named and as it really lies: a link may lead into the project."""
    return tuple(dict.fromkeys(way for path in paths for way in (path, path.resolve())))
