"""Which skills and tools the model is told of, and when: what fits, and what it knows not yet."""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from apexbridge.agent import prompt
from apexbridge.agent.session import Session
from apexbridge.agent.turn import Candidate, CandidateStatus, TurnRecord, TurnRequest
from apexbridge.catalog.listing_budget import (
    Listing,
    ListingBudget,
    render_listing,
    to_single_line,
    truncate_line,
)
from apexbridge.catalog.snapshot import Snapshot
from apexbridge.errors import ApexBridgeError
from apexbridge.events import EventSink, ListingCut
from apexbridge.messages import UserMessage
from apexbridge.retrieval.lru_cache import LruCache
from apexbridge.retrieval.results import Hit, SearchResults
from apexbridge.skills.model import Skill
from apexbridge.tools.base import ToolRegistry, ToolSpec

MAX_LISTED = 60
"""Up to so many skills are listed; of more only those that fit, and search finds the rest."""
MAX_OFFERS = 5
OFFER_CHARS = 400
MAX_QUERY_CHARS = 4_000
"""Of a longer request the beginning says what it is about."""
MIN_OFFER_SCORE = 0.1
"""Beside one that clearly fits, what fits less than this is no offer."""
_CACHE_SIZE = 100
SKILL_TOOLS = frozenset({"Skill", "SkillSearch", "SkillScript", "skills_list", "skills_load"})
READ_ONLY_PROFILES: Mapping[str, bool] = {"general-purpose": False, "explore": True, "plan": True}
"""Kinds of child sessions, and whether each only reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """What a session is told of skills with one request, and why."""

    candidates: tuple[Candidate, ...] = ()
    offered: tuple[str, ...] = ()
    listed: tuple[str, ...] = ()
    shortened: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    asleep: int = 0
    message: UserMessage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSelection:
    """Tools as the model is told of them, and as they are called."""

    specs: tuple[ToolSpec, ...]
    registry: ToolRegistry


class AnnouncementCache:
    """What was worked out for one snapshot: in new sessions the same request is told the same."""

    def __init__(self) -> None:
        self.snapshot: Snapshot | None = None
        self.visible: Sequence[Skill] = ()
        self._usage: Mapping[str, float] = {}
        self._told = LruCache[tuple[SearchResults, Announcement]](_CACHE_SIZE)
        self.tools = LruCache[ToolSelection](_CACHE_SIZE)

    def begin(self, snapshot: Snapshot, visible: Sequence[Skill]) -> None:
        """Another snapshot: forget everything else."""
        self.snapshot, self.visible = snapshot, tuple(visible)
        self._told.clear()

    def told(self, found: SearchResults, usage: Mapping[str, float]) -> Announcement | None:
        """What was told with these very results, if skills were used as much as now."""
        if usage is not self._usage:
            self._usage = usage
            self._told.clear()
        known = self._told.get(id(found))
        return known[1] if known is not None and known[0] is found else None

    def keep(self, found: SearchResults, told: Announcement) -> None:
        """Remember what is told with these results."""
        self._told.put(id(found), (found, told))


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillAnnouncer:
    """Decides what the model is told of."""

    snapshot: Callable[[], Snapshot]
    find: Callable[[str], Skill]
    """The skill of a name, or an error with the names that come near."""
    search: Callable[[str], Awaitable[SearchResults]]
    is_denied: Callable[[str], bool]
    """Whether a rule forbids a skill of that name."""
    usage: Callable[[], Mapping[str, float]]
    threshold: float
    """From this confidence on skills are offered with the request itself."""
    budget: ListingBudget
    memory: AnnouncementCache = field(default_factory=AnnouncementCache)

    def has_skills(self, session: Session) -> bool:
        """Say whether there is any skill that the model may use."""
        if session.chain or session.waking.has_activated:
            return any(self._is_visible(skill, session) for skill in self.snapshot().skills)
        return bool(self._visible(session))

    def _visible(self, session: Session) -> Sequence[Skill]:
        """The skills that the model may use; most sessions see what any new one sees."""
        snapshot = self.snapshot()
        if session.chain or session.waking.has_activated:
            return [skill for skill in snapshot.skills if self._is_visible(skill, session)]
        if self.memory.snapshot is not snapshot:
            self.memory.begin(
                snapshot, [skill for skill in snapshot.skills if self._is_visible(skill, session)]
            )
        return self.memory.visible

    def _is_visible(self, skill: Skill, session: Session) -> bool:
        return not (
            skill.manifest.disable_model_invocation
            or skill.name in session.chain  # it is at work already, as this very task
            or session.waking.is_inactive(skill)
            or self.is_denied(skill.name)
        )

    def tools(
        self, session: Session, registry: ToolRegistry, left_out: frozenset[str] = frozenset()
    ) -> ToolSelection:
        """What the model may call; no skills, no tools for them."""
        only_reads = READ_ONLY_PROFILES.get(session.profile.casefold(), False)
        has_skills = self.has_skills(session)
        key = (only_reads, has_skills, left_out, len(registry))
        known = self.memory.tools.get(key)
        if known is None:
            specs = tuple(
                tool.spec
                for tool in registry
                if (tool.spec.read_only or not only_reads)
                and (has_skills or tool.spec.name not in SKILL_TOOLS)
                and tool.spec.name not in left_out
            )
            few = registry.only(frozenset(spec.name for spec in specs))
            known = ToolSelection(specs=specs, registry=few)
            self.memory.tools.put(key, known)
        return known

    async def announce(
        self, session: Session, request: TurnRequest, record: TurnRecord, emit: EventSink
    ) -> list[UserMessage]:
        """What is said of skills with this request: those that fit, those that are new."""
        chosen = [self.find(name).name for name in request.skills]
        if not self.snapshot().skills:
            return []
        told = self._told(session, await self._found(request, record))
        record.candidates += told.candidates
        record.listed, record.asleep = told.listed, told.asleep
        record.shortened, record.dropped = told.shortened, told.dropped
        session.listed.update(told.listed)
        session.listed.update(told.offered)
        if told.shortened or told.dropped:
            emit(ListingCut(session_id=session.id, shortened=told.shortened, dropped=told.dropped))
        said = [told.message, prompt.chosen_skills_reminder(chosen) if chosen else None]
        return [message for message in said if message is not None]

    async def _found(self, request: TurnRequest, record: TurnRecord) -> SearchResults:
        start = time.perf_counter()
        try:
            with record.spanning("search", "skills"):
                found = await self.search(request.text[:MAX_QUERY_CHARS])
        except ApexBridgeError as error:  # whoever cannot search can still be asked
            record.refusals.append(error.code)
            return SearchResults()
        finally:
            record.search_seconds += time.perf_counter() - start
        record.confidence = found.confidence
        return found

    def _told(self, session: Session, found: SearchResults) -> Announcement:
        is_new = session.turns == 1 and not (
            session.listed or session.chain or session.waking.has_activated
        )
        if not is_new:
            return self._work_out(session, found)
        self._visible(session)  # what is remembered of another snapshot is forgotten
        told = self.memory.told(found, self.usage())
        if told is None:
            told = self._work_out(session, found)
            self.memory.keep(found, told)
        return told

    def _work_out(self, session: Session, found: SearchResults) -> Announcement:
        skills = self.snapshot().skills
        candidates, offers = self._offers(session, found)
        listing, unlisted, asleep = Listing(), 0, 0
        if len(skills) <= MAX_LISTED:
            asleep = sum(session.waking.is_inactive(skill) for skill in skills)
            listing = render_listing(
                self._visible(session),
                self.budget,
                relevance={one.name: one.score for one in candidates},
                usage=self.usage(),
                already_sent={*session.listed, *(offer.name for offer in offers)},
            )
        elif session.turns == 1 or offers:
            unlisted = len(skills) - len(offers)
        return Announcement(
            candidates=tuple(candidates),
            offered=tuple(offer.name for offer in offers),
            listed=listing.shown,
            shortened=listing.names("shortened", "name_only"),
            dropped=listing.names("left_out"),
            asleep=asleep,
            message=prompt.skills_reminder(listing, offers, unlisted),
        )

    def _offers(
        self, session: Session, found: SearchResults
    ) -> tuple[list[Candidate], list[prompt.Offer]]:
        """The skills that fit so well that no turn need be spent on looking for them."""
        snapshot = self.snapshot()
        candidates, offers = list[Candidate](), list[prompt.Offer]()
        for hit in found.hits[:MAX_OFFERS]:
            skill = snapshot.winner(hit.name)
            fate = self._fate(hit, skill, session, found.confidence)
            candidates.append(Candidate(name=hit.name, score=hit.score, parts=hit.parts, fate=fate))
            if fate == "offered" and skill is not None:
                text = truncate_line(to_single_line(skill.summary), OFFER_CHARS)
                offers.append(prompt.Offer(name=skill.name, text=text, score=hit.score))
        return candidates, offers

    def _fate(
        self, hit: Hit, skill: Skill | None, session: Session, confidence: float
    ) -> CandidateStatus:
        if skill is None or session.waking.is_inactive(skill):
            return "asleep" if skill else "denied"
        if not self._is_visible(skill, session):
            return "denied"
        if confidence < self.threshold or hit.score < MIN_OFFER_SCORE:
            return "weak"
        return "known" if hit.name in session.listed else "offered"

    def relisted(self, session: Session) -> UserMessage | None:
        """List again what the model was told of, after the conversation was shortened."""
        skills = self.snapshot().skills
        if len(skills) > MAX_LISTED:
            return None
        return self.woken(session, [skill.name for skill in skills])

    def woken(self, session: Session, names: Sequence[str]) -> UserMessage | None:
        """Tell of skills that files have woken or brought to light."""
        snapshot = self.snapshot()
        found = [snapshot.winner(name) for name in names if name not in session.listed]
        visible = [s for s in found if s is not None and self._is_visible(s, session)]
        if not visible:
            return None
        listing = render_listing(visible, self.budget, usage=self.usage())
        session.listed.update(listing.shown)
        return prompt.skills_reminder(listing, (), 0)
