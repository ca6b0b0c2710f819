"""Progressive disclosure: announce skills to the model by one line each, best matches first.

The full text of a skill enters the context only when it is invoked. Each request is searched for:
hits over the confidence threshold are offered with it, other skills are listed once within a token
budget. Where there are too many to list, the best hits below the threshold are named (hinted): a
model can ignore a name, but it cannot use a skill that it never saw.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Protocol

from apexbridge.agent import prompt
from apexbridge.agent.permission_checker import PermissionChecker
from apexbridge.agent.session import Session
from apexbridge.agent.skills_section import NO_SECTION, SectionCache, SkillsSection
from apexbridge.agent.turn import Candidate, CandidateStatus, TurnRecord, TurnRequest
from apexbridge.catalog.catalog import Catalog
from apexbridge.catalog.listing_budget import (
    Listing,
    ListingBudget,
    render_listing,
    to_single_line,
    truncate_line,
)
from apexbridge.catalog.snapshot import Snapshot
from apexbridge.catalog.usage import UsageCache
from apexbridge.errors import ApexBridgeError
from apexbridge.events import EventSink, ListingCut
from apexbridge.messages import UserMessage
from apexbridge.models.aliases import LONG_WINDOW, has_long_context
from apexbridge.retrieval.lru_cache import LruCache
from apexbridge.retrieval.results import SearchResults
from apexbridge.skills.model import Skill
from apexbridge.tools.base import AgentProfile, ToolRegistry, ToolSpec

MAX_LISTED = 60
"""With more skills than this only matches are announced; SkillSearch finds the rest."""
SEARCH_LIMIT = 8
MAX_OFFERS = 5
OFFER_CHARS = 400
MAX_QUERY_CHARS = 4_000
"""A longer request is truncated: its subject is in the beginning."""
MIN_OFFER_SCORE = 0.1
"""Hits below this score are not offered, however confident the best one is."""
MAX_HINTS = 3
MIN_HINT_SCORE = 0.02
"""Weak hits below this score are not even named: small talk costs no tokens."""
_CACHE_SIZE = 100
SKILL_TOOLS = frozenset({"Skill", "SkillSearch", "SkillScript", "skills_list", "skills_load"})


class SkillSearch(Protocol):
    """The search index of skills, as the agent uses it."""

    async def search(
        self,
        query: str,
        *,
        query_en: str | None = None,
        query_zh: str | None = None,
        limit: int = 5,
    ) -> SearchResults:
        """Return the best matches, and the confidence that any of them fits."""
        ...

    async def reindex(self, names: Collection[str]) -> None:
        """Update the entries of skills that were added, changed or removed."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """The skills that one request announces, and the search candidates behind that."""

    candidates: tuple[Candidate, ...] = ()
    offered: tuple[str, ...] = ()
    hinted: tuple[str, ...] = ()
    listed: tuple[str, ...] = ()
    shortened: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    asleep: int = 0
    message: UserMessage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSelection:
    """Tools of a model request: their specs, and the registry that executes them."""

    specs: tuple[ToolSpec, ...]
    registry: ToolRegistry


class AnnouncementCache:
    """LRU of announcements for one catalog snapshot: new sessions get equal ones."""

    def __init__(self) -> None:
        self.snapshot: Snapshot | None = None
        self.visible: Sequence[Skill] = ()
        self._usage: Mapping[str, float] = {}
        self._announcements = LruCache[tuple[SearchResults, Announcement]](_CACHE_SIZE)
        self.tools = LruCache[ToolSelection](_CACHE_SIZE)

    def reset(self, snapshot: Snapshot, visible: Sequence[Skill]) -> None:
        """Start over with another snapshot."""
        self.snapshot, self.visible = snapshot, tuple(visible)
        self._announcements.clear()

    def get(self, results: SearchResults, usage: Mapping[str, float]) -> Announcement | None:
        """Return the announcement for these results, unless usage scores have changed since."""
        if usage is not self._usage:
            self._usage = usage
            self._announcements.clear()
        # The search caches its results: identity is enough, and cheaper than a hash of them.
        cached = self._announcements.get(id(results))
        return cached[1] if cached is not None and cached[0] is results else None

    def put(self, results: SearchResults, announcement: Announcement) -> None:
        """Cache an announcement; the results are held, so that their id stays theirs."""
        self._announcements.put(id(results), (results, announcement))


@lru_cache(maxsize=256)  # different requests get the same few skills
def _offer_text(summary: str) -> str:
    return truncate_line(to_single_line(summary), OFFER_CHARS)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnouncementOptions:
    """Bounds of announcements, and the section of the system prompt that names skills already."""

    threshold: float
    """Confidence from which on hits are offered together with the request."""
    budget: ListingBudget
    section: SectionCache | None = None


class SkillAnnouncer:
    """Decide which skills and tools a session's model sees."""

    def __init__(
        self,
        catalog: Catalog,
        index: SkillSearch,
        permissions: PermissionChecker,
        usage: UsageCache,
        options: AnnouncementOptions,
    ) -> None:
        self._catalog, self._index, self._usage = catalog, index, usage
        self._permissions = permissions
        self._threshold, self._budget = options.threshold, options.budget
        self._section = options.section
        self._cache = AnnouncementCache()

    @property
    def section(self) -> SkillsSection:
        """The section of the system prompt that names skills; empty if it is off."""
        return NO_SECTION if self._section is None else self._section.get()

    def has_skills(self, session: Session) -> bool:
        """Return whether the model may use any skill."""
        return bool(self._visible(session))

    def _visible(self, session: Session) -> Sequence[Skill]:
        snapshot = self._catalog.snapshot
        # Only these two make a session differ from a new one: for all others the list is cached.
        if session.chain or session.path_activation.active:
            return self._filter_visible(snapshot.skills, session)
        if self._cache.snapshot is not snapshot:
            self._cache.reset(snapshot, self._filter_visible(snapshot.skills, session))
        return self._cache.visible

    def _filter_visible(self, skills: Sequence[Skill], session: Session) -> list[Skill]:
        return [
            skill
            for skill in session.path_activation.visible(skills)
            if not skill.manifest.disable_model_invocation
            and skill.name not in session.chain  # a subagent cannot invoke the skill it executes
            and not self._permissions.is_skill_denied(skill.name)
        ]

    def select_tools(
        self, session: Session, registry: ToolRegistry, excluded: frozenset[str] = frozenset()
    ) -> ToolSelection:
        """Select the tools that the model may call; skill tools only where there are skills."""
        profile, has_skills = session.profile, self.has_skills(session)
        key = (profile, has_skills, excluded, len(registry))
        cached = self._cache.tools.get(key)
        if cached is None:
            specs = tuple(
                tool.spec
                for tool in registry
                if _is_in_profile(tool.spec, profile)
                and (has_skills or tool.spec.name not in SKILL_TOOLS)
                and tool.spec.name not in excluded
            )
            subset = registry.only(frozenset(spec.name for spec in specs))
            cached = ToolSelection(specs=specs, registry=subset)
            self._cache.tools.put(key, cached)
        return cached

    async def announce(
        self, session: Session, request: TurnRequest, record: TurnRecord, emit: EventSink
    ) -> list[UserMessage]:
        """Search for the request, and return reminders of matching and of new skills."""
        chosen = [self._catalog.get(name).name for name in request.skills]
        if not self._catalog.snapshot.skills:
            return []
        results = await self._search(request, record)
        announcement = self._announcement(session, results, self._budget_for(request.model))
        record.candidates += announcement.candidates
        record.listed, record.asleep = announcement.listed, announcement.asleep
        record.shortened, record.dropped = announcement.shortened, announcement.dropped
        session.announced.update(announcement.listed)
        session.announced.update(announcement.offered)
        session.hinted.update(announcement.hinted)
        if announcement.shortened or announcement.dropped:
            emit(
                ListingCut(
                    session_id=session.id,
                    shortened=announcement.shortened,
                    dropped=announcement.dropped,
                )
            )
        messages = [announcement.message, prompt.chosen_skills_reminder(chosen) if chosen else None]
        return [message for message in messages if message is not None]

    async def _search(self, request: TurnRequest, record: TurnRecord) -> SearchResults:
        start = time.perf_counter()
        try:
            with record.span("search", "skills"):
                results = await self._index.search(
                    request.text[:MAX_QUERY_CHARS], limit=SEARCH_LIMIT
                )
        except ApexBridgeError as error:  # a turn without search results is better than none
            record.refusals.append(error.code)
            return SearchResults()
        finally:
            record.search_seconds += time.perf_counter() - start
        record.confidence = results.confidence
        return results

    def _budget_for(self, model: str) -> ListingBudget:
        if not has_long_context(model):
            return self._budget
        return ListingBudget.for_window(LONG_WINDOW, self._budget.per_skill_chars)

    def _announcement(
        self, session: Session, results: SearchResults, budget: ListingBudget
    ) -> Announcement:
        is_new = session.turns == 1 and not (
            session.announced or session.chain or session.path_activation.active
        )
        if not is_new or budget is not self._budget:
            return self._build_announcement(session, results, budget)
        self._visible(session)  # resets the cache if the snapshot is another one
        announcement = self._cache.get(results, self._usage.scores())
        if announcement is None:
            announcement = self._build_announcement(session, results, budget)
            self._cache.put(results, announcement)
        return announcement

    def _build_announcement(
        self, session: Session, results: SearchResults, budget: ListingBudget
    ) -> Announcement:
        skills = self._catalog.snapshot.skills
        candidates, offers = self._offers(session, results)
        hints, listing, unlisted, asleep = list[str](), Listing(), 0, 0
        if len(skills) <= MAX_LISTED:
            asleep = len(skills) - len(session.path_activation.visible(skills))
            listing = render_listing(
                self._visible(session),
                budget,
                relevance={one.name: one.score for one in candidates},
                usage=self._usage.scores(),
                already_sent={
                    *session.announced,
                    *self.section.names,
                    *(offer.name for offer in offers),
                },
            )
        else:
            candidates, hints = self._hints(session, candidates, offers)
            if session.turns == 1 or offers:
                unlisted = len(skills) - len(offers)
        return Announcement(
            candidates=tuple(candidates),
            offered=tuple(offer.name for offer in offers),
            hinted=tuple(hints),
            listed=listing.shown,
            shortened=listing.names("shortened", "name_only"),
            dropped=listing.names("left_out"),
            asleep=asleep,
            message=prompt.skills_reminder(listing, offers, unlisted, hints),
        )

    def _offers(
        self, session: Session, results: SearchResults
    ) -> tuple[list[Candidate], list[prompt.Offer]]:
        """Offer the best hits with the request, which saves the model a round of SkillSearch."""
        snapshot = self._catalog.snapshot
        candidates, offers = list[Candidate](), list[prompt.Offer]()
        hits = results.hits[:MAX_OFFERS]
        every = (snapshot.winner(name) for hit in hits for name in (hit.name, *hit.alike))
        found = [skill for skill in every if skill is not None]
        active = {skill.name for skill in session.path_activation.visible(found)}
        visible = {skill.name for skill in self._filter_visible(found, session)}
        for one in hits:
            # A hit that is hidden from the model must not hide its near duplicates.
            hit = one.visible(visible.__contains__) or one
            skill = snapshot.winner(hit.name)
            status: CandidateStatus = "known" if hit.name in session.announced else "offered"
            if skill is None:
                status = "denied"
            elif skill.name not in visible:
                status = "denied" if skill.name in active else "asleep"
            elif results.confidence < self._threshold or hit.score < MIN_OFFER_SCORE:
                status = "weak"
            candidates.append(
                Candidate(name=hit.name, score=hit.score, parts=hit.parts, fate=status)
            )
            if status == "offered" and skill is not None:
                text = _offer_text(skill.summary)
                offers.append(prompt.Offer(name=skill.name, text=text, score=hit.score))
        return candidates, offers

    def _hints(
        self, session: Session, candidates: Sequence[Candidate], offers: Sequence[prompt.Offer]
    ) -> tuple[list[Candidate], list[str]]:
        """Name the best weak hits, within what the offers leave of the listing's budget."""
        available = self._budget.total_chars - sum(len(offer.text) for offer in offers)
        marked, hints = list[Candidate](), list[str]()
        for one in candidates:
            is_new = one.name not in session.announced and one.name not in session.hinted
            if (
                one.fate == "weak"
                and is_new
                and one.score >= MIN_HINT_SCORE
                and len(hints) < MAX_HINTS
                and len(prompt.hint_line([*hints, one.name])) <= available
            ):
                hints.append(one.name)
                one = replace(one, fate="hinted")
            marked.append(one)
        return marked, hints

    def announce_all(self, session: Session) -> UserMessage | None:
        """Announce all skills again, after compaction removed earlier announcements."""
        skills = self._catalog.snapshot.skills
        if len(skills) > MAX_LISTED:
            return None
        return self.announce_new(session, [skill.name for skill in skills])

    def announce_new(self, session: Session, names: Sequence[str]) -> UserMessage | None:
        """Announce skills that touched paths have activated or discovered."""
        snapshot = self._catalog.snapshot
        found = [snapshot.winner(name) for name in names if name not in session.announced]
        visible = self._filter_visible([skill for skill in found if skill], session)
        if not visible:
            return None
        listing = render_listing(visible, self._budget, usage=self._usage.scores())
        session.announced.update(listing.shown)
        return prompt.skills_reminder(listing, (), 0)


def _is_in_profile(spec: ToolSpec, profile: AgentProfile) -> bool:
    is_named = profile.tools is None or any(pattern.names(spec.name) for pattern in profile.tools)
    is_denied = any(pattern.is_any and pattern.names(spec.name) for pattern in profile.denied)
    return is_named and not is_denied and (spec.read_only or not profile.is_read_only)
