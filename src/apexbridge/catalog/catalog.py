"""Catalog: scan every source, merge the results by precedence, publish immutable snapshots."""

import contextlib
import difflib
import heapq
import itertools
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

import anyio
from anyio import to_thread

from apexbridge.catalog.path_activation import PathActivation
from apexbridge.catalog.snapshot import Snapshot, casefold_name, merge_scans, without_disabled
from apexbridge.catalog.trust import TrustStore, apply_trust, recheck_files
from apexbridge.errors import (
    ApexBridgeError,
    SkillNotFoundError,
    SkillNotInvocableError,
    SourceError,
)
from apexbridge.events import CatalogChanged, ChangeCause, EventSink
from apexbridge.skills import names
from apexbridge.skills.document import SKILL_MD, decode_skill_md
from apexbridge.skills.model import Origin, Problem, Skill, SkillContent
from apexbridge.sources.base import ExtractingSource, Scan, SkillSource, SyncContentSource
from apexbridge.sources.directory_scanner import NestedDiscovery, NestedRoot, resolve_leniently

log = logging.getLogger(__name__)

FIRST_RETRY, LAST_RETRY = 1.0, 60.0
"""Exponential backoff of a failed source, in seconds: doubled after each failure."""
_CLOSE_SECONDS = 10.0
_MAX_COMPARED = 200
"""Candidates of the slow edit-distance comparison with an unknown name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceState:
    """A source with the result of its last scan."""

    source: SkillSource
    source_id: str
    scan: Scan = field(default_factory=Scan)
    failures: int = 0
    retry_at: float = 0.0
    """Monotonic time of the next retry, while the source is down."""
    sequence: int = 0
    """Sequence number of the scan: results of an older scan never replace newer ones."""
    depth: int = 0
    """Depth in the project of a nested source; 0 for configured ones."""

    @property
    def is_down(self) -> bool:
        """Say whether the last scan failed."""
        return self.failures > 0

    def is_there(self) -> bool:
        """Say whether there is anything to scan: a configured folder may not exist yet."""
        roots = self.source.roots
        return not roots or self.is_down or any(root.exists() for root in roots)


@dataclass(frozen=True, slots=True, kw_only=True)
class TouchResult:
    """Skills that touched paths activated, and skills discovered in nested folders near them."""

    activated: tuple[str, ...] = ()
    found: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogRules:
    """Precedence of origins, trust approvals, nested discovery and disabled names."""

    precedence: tuple[Origin, ...]
    trust: TrustStore
    nesting: NestedDiscovery
    nested: Callable[[NestedRoot], SkillSource]
    """Creates the source of a skill folder that was discovered deeper in the project."""
    disabled: Callable[[], Collection[str]] = frozenset
    """Returns the names of disabled skills."""
    scan_timeout: float = 300.0
    """Seconds after which a scan counts as failed."""


class Catalog:
    """All skills of all sources. Readers use `snapshot`, which is immutable and needs no lock."""

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
        self.states, duplicates = _unique_sources(sources)
        self.source_problems: tuple[Problem, ...] = (*problems, *duplicates)
        """Problems with the sources that no scan reports: a path that is no plugin, for example."""
        self._publish_lock, self._touch_lock = anyio.Lock(), anyio.Lock()
        self._source_locks: dict[str, anyio.Lock] = {}
        self._sequence = itertools.count(1)
        self.on_rescan: Callable[[CatalogChanged], None] = lambda _: None
        """Receives the changes that `recheck` found."""

    @property
    def skills(self) -> tuple[Skill, ...]:
        """The winning skill of each name, sorted by name."""
        return self.snapshot.skills

    async def refresh(
        self, only: Collection[str] | None = None, *, cause: ChangeCause = "refresh"
    ) -> CatalogChanged:
        """Scan all sources again, or those of these ids; a failed source becomes a problem.

        Concurrent scans of one source queue on its lock. A slow source delays only callers that
        asked for it.
        """
        scanned: dict[str, SourceState] = {}

        async def scan(state: SourceState) -> None:
            async with self._source_locks.setdefault(state.source_id, anyio.Lock()):
                scanned[state.source_id] = await self._scan(state)

        async with anyio.create_task_group() as tasks:
            for state in self.states:
                if only is None or state.source_id in only:
                    tasks.start_soon(scan, state)
        async with self._publish_lock:
            return await self._publish(scanned, cause)

    async def reapply_trust(self) -> CatalogChanged:
        """Apply changed approvals to the snapshot, without scanning any source."""
        return await self.refresh((), cause="trust")

    async def recheck(self, skill: Skill) -> Skill:
        """TOCTOU guard: return a skill with its files and approvals as they are now."""
        now, trust = await to_thread.run_sync(recheck_files, skill), self._rules.trust
        if now is not skill:
            self.on_rescan(await self.refresh({skill.provenance.source_id}, cause="disk"))
        elif await to_thread.run_sync(trust.differs, skill):
            await self.reapply_trust()
        found = self.snapshot.winner(skill.name)
        return found if found and found.provenance == skill.provenance else now

    async def touch(self, paths: Iterable[Path], activation: PathActivation) -> TouchResult:
        """Activate the skills whose path patterns match, and discover nested skill folders."""
        touched = await to_thread.run_sync(_with_resolved, tuple(paths))
        found: tuple[str, ...] = ()
        async with self._touch_lock:
            roots = await to_thread.run_sync(self._rules.nesting.discover, touched)
            self._add(roots)
            # Including those that an earlier call discovered before it was cancelled.
            unread = {
                state.source_id for state in self.states if state.depth and not state.sequence
            }
            if unread:
                change = await self.refresh(unread, cause="folder")
                found = (*change.added, *change.changed)
            activated = await to_thread.run_sync(activation.activate, self.snapshot.skills, touched)
        if activated:
            self._emit(CatalogChanged(added=activated, cause="path"))
        return TouchResult(activated=activated, found=found)

    def get(self, name: str) -> Skill:
        """Return the skill of a name; a leading `/` is ignored.

        Raises:
            SkillNotFoundError: With similar names.
        """
        wanted = names.normalise(name).removeprefix("/").strip()
        skill = self.snapshot.winner(wanted) or self._by_declared_name(wanted)
        if skill is None:
            known = [skill.name for skill in self.snapshot.skills]
            raise SkillNotFoundError(wanted, near=_similar_names(wanted, known))
        return skill

    def _by_declared_name(self, wanted: str) -> Skill | None:
        """Find a skill by the name in its SKILL.md that is no valid one, as "PDF Miner"."""
        folded = casefold_name(wanted)
        found = [s for s in self.snapshot.skills if casefold_name(s.manifest.name or "") == folded]
        return found[0] if folded and len(found) == 1 else None

    def find(self, name: str) -> Skill:
        """Return the skill of a name as `get` does, including a disabled one.

        Raises:
            SkillNotFoundError: With similar names.
        """
        wanted = casefold_name(names.normalise(name).removeprefix("/"))
        disabled = self.snapshot.disabled
        found = next((s for s in disabled if casefold_name(s.name) == wanted), None)
        return self.get(name) if found is None else found

    def get_for_model(self, name: str, activation: PathActivation) -> Skill:
        """Return a skill that the model may invoke.

        Raises:
            SkillNotFoundError: With similar names.
            SkillNotInvocableError: If its paths are not touched yet, or it is for users only.
        """
        skill = self.get(name)
        if skill.manifest.disable_model_invocation:
            raise SkillNotInvocableError(code="skill_for_users_only", name=skill.name)
        if activation.is_inactive(skill):
            paths = ", ".join(skill.manifest.paths)
            raise SkillNotInvocableError(code="skill_asleep", name=skill.name, paths=paths)
        return skill

    def source_of(self, skill: Skill) -> SourceState:
        """Return the source that provides a skill.

        Raises:
            SkillNotFoundError: If no source does any more.
        """
        for state in self.states:
            if state.source_id == skill.provenance.source_id:
                return state
        raise SkillNotFoundError(skill.name)

    async def content(self, skill: Skill, arguments: str = "") -> SkillContent:
        """Read a skill's body through its source."""
        return await self.source_of(skill).source.content(skill, arguments)

    async def with_folder(self, skill: Skill) -> Skill:
        """Return the skill with a folder on this disk, if its source can make one.

        Raises:
            SourceError: If its files cannot be had.
            StorageError: If the folder cannot be written.
        """
        source = self.source_of(skill).source
        if skill.root is not None or not isinstance(source, ExtractingSource):
            return skill
        return replace(skill, root=await source.folder(skill))

    async def skill_md(self, skill: Skill) -> str:
        """Read the whole SKILL.md, frontmatter included; the body, if its source has no file."""
        source = self.source_of(skill).source
        for name in (SKILL_MD, SKILL_MD.lower()):
            with contextlib.suppress(ApexBridgeError):
                data = (await source.resource(skill, PurePosixPath(name))).data
                text = decode_skill_md(data)
                if isinstance(text, str):
                    return text
        return (await source.content(skill)).body

    def content_at_once(self, skill: Skill) -> SkillContent | None:
        """Read a skill's body on the calling thread; None if its source needs the event loop."""
        source = self.source_of(skill).source
        return source.content_at_once(skill) if isinstance(source, SyncContentSource) else None

    def due(self, now: float) -> list[str]:
        """Return the failed sources whose backoff has elapsed."""
        return [s.source_id for s in self.states if s.is_down and s.retry_at <= now]

    async def close(self) -> None:
        """Close every source, even if one fails or the task is cancelled."""
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as tasks:
                for state in self.states:
                    tasks.start_soon(_close_source, state.source)

    def _add(self, roots: Iterable[NestedRoot]) -> None:
        known = {state.source_id for state in self.states}
        found = [(root, self._rules.nested(root)) for root in roots]
        new = [
            SourceState(source=source, source_id=source.id, depth=len(root.home.parts))
            for root, source in found
            if source.id not in known
        ]
        # By precedence: sources nested deeper in the project first.
        self.states = tuple(sorted((*new, *self.states), key=lambda state: -state.depth))

    async def _publish(
        self, scanned: Mapping[str, SourceState], cause: ChangeCause
    ) -> CatalogChanged:
        """Merge new and earlier scans into a snapshot, and emit the difference."""
        rules = self._rules
        approved, disabled = await to_thread.run_sync(
            lambda: (rules.trust.approved(), rules.disabled())
        )
        if scanned:
            self.states = tuple(_newer(s, scanned.get(s.source_id, s)) for s in self.states)
        merged = without_disabled(self._merged(approved), disabled)
        before, self.snapshot = self.snapshot, merged
        change = _change_event(before, self.snapshot, cause)
        if change.added or change.removed or change.changed:
            self._emit(change)
        return change

    def _merged(self, approved: Collection[str]) -> Snapshot:
        scans = [
            replace(scan, skills=tuple(apply_trust(skill, approved) for skill in scan.skills))
            for scan in (state.scan for state in self.states)
            if scan.skills or scan.problems
        ]
        return merge_scans(scans, self._rules.precedence, self.source_problems)

    async def _scan(self, state: SourceState) -> SourceState:
        """Scan a source; any exception becomes a problem of that source."""
        sequence = next(self._sequence)
        try:
            with anyio.fail_after(self._rules.scan_timeout):
                scan = await state.source.scan()
        except SourceError as error:
            return _failed_state(state, sequence, error)
        except Exception as error:  # a plugin's source may raise anything
            log.warning("Source %s failed", state.source_id, exc_info=True)
            text = f"{type(error).__name__}: {error}".removesuffix(": ")
            return _failed_state(state, sequence, SourceError(text, source=state.source_id))
        return replace(state, scan=scan, failures=0, retry_at=0.0, sequence=sequence)


def _failed_state(state: SourceState, sequence: int, error: SourceError) -> SourceState:
    problem = Problem(code=error.code, where=state.source_id, details=error.details)
    backoff = min(LAST_RETRY, FIRST_RETRY * 2 ** min(state.failures, 10))
    return replace(
        state,
        scan=Scan(problems=(problem,)),
        failures=state.failures + 1,
        retry_at=time.monotonic() + backoff,
        sequence=sequence,
    )


def _newer(one: SourceState, other: SourceState) -> SourceState:
    return other if other.sequence > one.sequence else one


def _unique_sources(
    sources: Iterable[SkillSource],
) -> tuple[tuple[SourceState, ...], list[Problem]]:
    """Keep the first source of each id, and report duplicates."""
    states, duplicates = dict[str, SourceState](), list[Problem]()
    for source in sources:
        state = SourceState(source=source, source_id=source.id)
        if states.setdefault(state.source_id, state) is not state:
            details = {"id": state.source_id}
            duplicates.append(Problem(code="source_twice", where=state.source_id, details=details))
    return tuple(states.values()), duplicates


async def _close_source(source: SkillSource) -> None:
    try:
        with anyio.move_on_after(_CLOSE_SECONDS):
            await source.close()
    except Exception:
        log.warning("Source %s was not closed", source.id, exc_info=True)


def _similar_names(wanted: str, known: Iterable[str]) -> list[str]:
    """Return up to three similar names; bigram overlap preselects, edit distance is slow."""
    text = wanted.casefold()[: 2 * names.MAX_LENGTH]
    bigrams = _bigrams(text)

    def overlap(name: str) -> float:
        others = _bigrams(name)
        return len(bigrams & others) / (len(bigrams) + len(others) or 1)

    return difflib.get_close_matches(text, heapq.nlargest(_MAX_COMPARED, known, key=overlap), n=3)


def _bigrams(text: str) -> set[str]:
    return set(map("".join, itertools.pairwise(text)))


def _change_event(before: Snapshot, after: Snapshot, cause: ChangeCause) -> CatalogChanged:
    old = {skill.name: skill for skill in before.skills}
    new = {skill.name: skill for skill in after.skills}
    return CatalogChanged(
        added=tuple(name for name in new if name not in old),
        removed=tuple(name for name in old if name not in new),
        changed=tuple(n for n in new if n in old and _has_changed(old[n], new[n])),
        cause=cause,
    )


def _has_changed(old: Skill, new: Skill) -> bool:
    """Compare content, description, source and trust of two skills of one name."""
    if old is new:
        return False
    return (
        old.fingerprint != new.fingerprint
        or old.summary != new.summary
        or old.provenance.source_id != new.provenance.source_id
        or old.is_trusted != new.is_trusted
    )


def _with_resolved(paths: Sequence[Path]) -> tuple[Path, ...]:
    """Return each path as given and with symlinks resolved: a link may lead into the project."""
    return tuple(dict.fromkeys(each for path in paths for each in (path, resolve_leniently(path))))
