"""Which skills and tools the model is told of, and when: what fits, and what it knows not yet."""

import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass

from apexbridge.agent import prompt
from apexbridge.agent.session import Session
from apexbridge.agent.turn import Candidate, Fate, TurnRecord, TurnRequest
from apexbridge.catalog.listing import Listing, ListingBudget, one_line, render, shorten
from apexbridge.catalog.merge import Snapshot
from apexbridge.errors import ApexBridgeError
from apexbridge.events import EventSink, ListingCut
from apexbridge.messages import UserMessage
from apexbridge.retrieval.results import Hit, Results
from apexbridge.skills.model import Skill
from apexbridge.tools.base import ToolRegistry, ToolSpec

MAX_LISTED = 60
"""Up to so many skills are listed; of more only those that fit, and search finds the rest."""
MAX_OFFERS = 5
OFFER_CHARS = 400
MAX_QUERY = 4_000
"""Of a longer request the beginning says what it is about."""
LEAST_SCORE = 0.1
"""Beside one that clearly fits, what fits less than this is no offer."""
SKILL_TOOLS = frozenset({"Skill", "SkillSearch", "SkillScript", "skills_list", "skills_load"})
PROFILES: Mapping[str, bool] = {"general-purpose": False, "explore": True, "plan": True}
"""Kinds of child sessions, and whether each only reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offering:
    """Decides what the model is told of."""

    snapshot: Callable[[], Snapshot]
    find: Callable[[str], Skill]
    """The skill of a name, or an error with the names that come near."""
    search: Callable[[str], Awaitable[Results]]
    is_denied: Callable[[str], bool]
    """Whether a rule forbids a skill of that name."""
    usage: Callable[[], Mapping[str, float]]
    threshold: float
    """From this confidence on skills are offered with the request itself."""
    budget: ListingBudget

    def has_skills(self, session: Session) -> bool:
        """Say whether there is any skill that the model may use."""
        return any(self._is_visible(skill, session) for skill in self.snapshot().skills)

    def _is_visible(self, skill: Skill, session: Session) -> bool:
        return not (
            skill.manifest.disable_model_invocation
            or skill.name in session.chain  # it is at work already, as this very task
            or session.waking.is_asleep(skill)
            or self.is_denied(skill.name)
        )

    def tools(self, session: Session, registry: ToolRegistry) -> tuple[ToolSpec, ...]:
        """What the model may call; no skills, no tools for them."""
        only_reads = PROFILES.get(session.profile.casefold(), False)
        has_skills = self.has_skills(session)
        return tuple(
            tool.spec
            for tool in registry
            if (tool.spec.read_only or not only_reads)
            and (has_skills or tool.spec.name not in SKILL_TOOLS)
        )

    async def announce(
        self, session: Session, request: TurnRequest, record: TurnRecord, emit: EventSink
    ) -> list[UserMessage]:
        """What is said of skills with this request: those that fit, those that are new."""
        skills = self.snapshot().skills
        chosen = [self.find(name).name for name in request.skills]
        if not skills:
            return []
        offers = await self._offers(session, request, record)
        listing, unlisted = Listing(), 0
        if len(skills) <= MAX_LISTED:
            visible = [skill for skill in skills if self._is_visible(skill, session)]
            record.asleep = sum(session.waking.is_asleep(skill) for skill in skills)
            listing = self._listing(visible, session, offers, record, emit)
        elif session.turns == 1 or offers:
            unlisted = len(skills) - len(offers)
        session.listed.update(offer.name for offer in offers)
        said = [prompt.reminder(listing, offers, unlisted)]
        if chosen:
            said.append(prompt.chosen(chosen))
        return [message for message in said if message is not None]

    async def _offers(
        self, session: Session, request: TurnRequest, record: TurnRecord
    ) -> list[prompt.Offer]:
        """The skills that fit so well that no turn need be spent on looking for them."""
        start = time.perf_counter()
        try:
            found = await self.search(request.text[:MAX_QUERY])
        except ApexBridgeError as error:  # whoever cannot search can still be asked
            record.refusals.append(error.code)
            return []
        finally:
            record.search_seconds += time.perf_counter() - start
        record.confidence, snapshot = found.confidence, self.snapshot()
        offers = list[prompt.Offer]()
        for hit in found.hits[:MAX_OFFERS]:
            skill = snapshot.winner(hit.name)
            fate = self._fate(hit, skill, session, found.confidence)
            parts = asdict(hit.parts)
            record.candidates.append(
                Candidate(name=hit.name, score=hit.score, parts=parts, fate=fate)
            )
            if fate == "offered" and skill is not None:
                text = shorten(one_line(skill.summary), OFFER_CHARS)
                offers.append(prompt.Offer(name=skill.name, text=text, score=hit.score))
        return offers

    def _fate(self, hit: Hit, skill: Skill | None, session: Session, confidence: float) -> Fate:
        if skill is None or session.waking.is_asleep(skill):
            return "asleep" if skill else "denied"
        if not self._is_visible(skill, session):
            return "denied"
        if confidence < self.threshold or hit.score < LEAST_SCORE:
            return "weak"
        return "known" if hit.name in session.listed else "offered"

    def _listing(
        self,
        visible: Sequence[Skill],
        session: Session,
        offers: Sequence[prompt.Offer],
        record: TurnRecord,
        emit: EventSink,
    ) -> Listing:
        relevance = {c.name: c.score for c in record.candidates}
        sent: Collection[str] = {*session.listed, *(offer.name for offer in offers)}
        listing = render(
            visible, self.budget, relevance=relevance, usage=self.usage(), already_sent=sent
        )
        record.listed = listing.shown
        record.shortened = listing.names("shortened", "name_only")
        record.dropped = listing.names("left_out")
        session.listed.update(listing.shown)
        if listing.is_cut:
            emit(
                ListingCut(
                    session_id=session.id, shortened=record.shortened, dropped=record.dropped
                )
            )
        return listing

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
        listing = render(visible, self.budget, usage=self.usage())
        session.listed.update(listing.shown)
        return prompt.reminder(listing, (), 0)
