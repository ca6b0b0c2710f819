"""The list of skills that a model sees, within a budget of characters. Pure."""

import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Literal, NamedTuple, Self

from apexbridge.skills.model import Origin, Skill

MIN_USEFUL_CHARS = 20
"""A shorter rest of a description says nothing; the name alone is shown then."""
UNUSED_EVERY = 5
"""Every fifth place goes to a skill that was never used, so that it can ever be."""
MAX_NAME_CHARS = 200
"""Longer names, if all do not fit, are the first to go: one must not cost many others."""

_CHARS_A_TOKEN = 4
_WINDOW_PARTS = 100
_WEAKEST_PARTS = 4
"""The weakest skill may keep a quarter of what the strongest may."""
_FINE = 16
_SEPARATOR = ": "
_CUT = "…"
_ENTITY_CHARS = 5
_MAX_CLUSTER = 32
_JOINER = "\u200d"
_CONTROL_CHARS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_LONE_SURROGATES = re.compile(r"[\ud800-\udfff]")

Extent = Literal["full", "shortened", "name_only", "left_out"]
Scores = Mapping[str, float]
NO_SCORES: Scores = {}
_Ranked = tuple[float, float, str, int]
"""Relevance and usage, the strongest lowest; the name; the place it was handed in at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListingBudget:
    """How much of the context window the list may take."""

    total_chars: int = 8_000
    per_skill_chars: int = 1_536
    """The most of one skill's text, `when_to_use` included, its name aside."""

    @classmethod
    def for_window(cls, tokens: int) -> Self:
        """Take one hundredth of a context window."""
        return cls(total_chars=max(tokens, 0) * _CHARS_A_TOKEN // _WINDOW_PARTS)


class Listed(NamedTuple):
    """What became of one skill: `kept` of `chars` characters of its text, as a prompt has them.

    Of a skill that is left out nothing is counted.
    """

    name: str
    extent: Extent
    kept: int
    chars: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The text, and what became of every skill in it; the strongest come first."""

    text: str = ""
    skills: tuple[Listed, ...] = field(default=())

    @property
    def shown(self) -> tuple[str, ...]:
        """The names in the text, in its order."""
        return tuple(skill.name for skill in self.skills if skill.extent != "left_out")

    @property
    def is_cut(self) -> bool:
        """Say whether anything of any skill is missing."""
        return any(skill.extent != "full" for skill in self.skills)

    def names(self, *extents: Extent) -> tuple[str, ...]:
        """The skills that fared so."""
        return tuple(skill.name for skill in self.skills if skill.extent in extents)


def render_listing(
    skills: Sequence[Skill],
    budget: ListingBudget,
    *,
    relevance: Scores = NO_SCORES,
    usage: Scores = NO_SCORES,
    already_sent: Collection[str] = frozenset(),
) -> Listing:
    """List skills one to a line; never over budget, and never silent about what is missing.

    Names go first, then the texts of bundled skills, then the others'. Denied, disabled and
    sleeping skills are left out by the caller.
    """
    ranked = _ranked(skills, relevance, usage, already_sent)
    if not ranked:
        return Listing()
    heads = _fit_names(ranked, budget.total_chars)
    if len(heads) < len(ranked):
        return _names_only(ranked, heads)
    room = budget.total_chars - sum(map(len, heads.values())) - len(heads) + 1
    texts = [to_single_line(skill.summary) for skill in ranked]
    bundled = sum(skill.provenance.origin is Origin.BUNDLED for skill in ranked)
    caps = [min(len(text), max(budget.per_skill_chars, 0)) for text in texts]
    own = _share_budget(texts[:bundled], caps[:bundled], room)
    # Only what whole texts of bundled skills leave: else a greater budget could give others less.
    rest = room - _total_cost(caps[:bundled]) if own == caps[:bundled] else 0
    rooms = own + _share_budget(texts[bundled:], caps[bundled:], rest)
    lines, listed = list[str](), list[Listed]()
    for at, (skill, text, chars) in enumerate(zip(ranked, texts, rooms, strict=True)):
        kept = truncate_line(text, chars)
        if len(kept) < min(MIN_USEFUL_CHARS, len(text)):
            kept = ""
        lines.append(heads[at] + _SEPARATOR + kept if kept else heads[at])
        listed.append(_entry(skill, kept, text))
    return Listing(text="\n".join(lines), skills=tuple(listed))


def to_single_line(text: str) -> str:
    """Any text as part of one line of a prompt: no control characters, no markup."""
    if not text.isprintable():
        text = _LONE_SURROGATES.sub("\ufffd", _CONTROL_CHARS.sub(" ", text))
    if "  " in text or text.strip() != text:
        text = " ".join(text.split())
    return escape(text, quote=False)


def truncate_line(text: str, room: int) -> str:
    """Cut a line so that it fits, the mark of the cut included; nothing is cut in half."""
    if len(text) <= room:
        return text
    end = first = room - len(_CUT)
    if end <= 0:
        return ""
    while end > max(first - _MAX_CLUSTER, 0) and _is_same_cluster(text[end - 1], text[end]):
        end -= 1
    if end <= max(first - _MAX_CLUSTER, 0):
        end = first  # nobody can read so many marks on one letter
    start = text.rfind("&", max(end - _ENTITY_CHARS + 1, 0), end)
    if start >= 0 and ";" not in text[start:end]:
        end = start
    return text[:end].rstrip() + _CUT if end > 0 else ""


def _is_same_cluster(left: str, right: str) -> bool:
    if left.isascii() and right.isascii():
        return False
    is_mark = unicodedata.category(right).startswith("M") or "\U0001f3fb" <= right <= "\U0001f3ff"
    return is_mark or _JOINER in {left, right}


def _ranked(
    skills: Sequence[Skill], relevance: Scores, usage: Scores, already_sent: Collection[str]
) -> list[Skill]:
    """Bundled skills, then the others; of both the strongest first."""
    sent = frozenset(already_sent)
    bundled, others = list[_Ranked](), list[_Ranked]()
    for place, skill in enumerate(skills):
        name = skill.name
        if not skill.manifest.disable_model_invocation and name not in sent:
            scores = _finite(relevance.get(name, 0.0)), _finite(usage.get(name, 0.0))
            is_bundled = skill.provenance.origin is Origin.BUNDLED
            group = bundled if is_bundled else others
            group.append((-scores[0], -scores[1], name, place))
    order = sorted(bundled) + _interleave_unused(sorted(others))
    return [skills[place] for *_, place in order]


def _finite(score: float) -> float:
    return score if score == score else 0.0  # one that is no number ranks nothing


def _interleave_unused(ranked: list[_Ranked]) -> list[_Ranked]:
    """The same ranking, with each fifth turn given to the next that was never used."""
    used = [entry for entry in ranked if entry[1] < 0]
    fresh = [entry for entry in ranked if entry[1] >= 0]
    if not used or not fresh:
        return ranked
    order, next_used, next_fresh = list[_Ranked](), 0, 0
    while next_used < len(used) and next_fresh < len(fresh):
        is_their_turn = (len(order) + 1) % UNUSED_EVERY == 0
        if is_their_turn or fresh[next_fresh] < used[next_used]:
            order.append(fresh[next_fresh])
            next_fresh += 1
        else:
            order.append(used[next_used])
            next_used += 1
    return order + used[next_used:] + fresh[next_fresh:]


def _fit_names(ranked: Sequence[Skill], total: int) -> dict[int, str]:
    """The beginnings of lines that fit, by rank; the strongest, but overlong ones come last."""
    places = sorted(range(len(ranked)), key=lambda at: len(ranked[at].name) > MAX_NAME_CHARS)
    used, heads = -1, dict[int, str]()
    for at in places:
        head = "- " + to_single_line(ranked[at].name)
        used += len(head) + 1
        if used > total:
            break
        heads[at] = head
    return heads


def _names_only(ranked: Sequence[Skill], heads: Mapping[int, str]) -> Listing:
    listed = [
        _entry(skill, "", to_single_line(skill.summary))
        if at in heads
        else Listed(skill.name, "left_out", 0, 0)
        for at, skill in enumerate(ranked)
    ]
    return Listing(text="\n".join(heads[at] for at in sorted(heads)), skills=tuple(listed))


def _entry(skill: Skill, kept: str, text: str) -> Listed:
    if kept == text:
        return Listed(skill.name, "full", len(text), len(text))
    if not kept:
        return Listed(skill.name, "name_only", 0, len(text))
    return Listed(skill.name, "shortened", len(kept) - len(_CUT), len(text))


def _share_budget(texts: Sequence[str], caps: Sequence[int], room: int) -> list[int]:
    """Find how many characters each text gets: all grow together, the strongest fastest.

    More room never takes anything from anyone, because each share grows with the level.
    """
    if _total_cost(caps) <= room:
        return list(caps)
    count = len(caps)
    rows = [
        (cap, _FINE * (count + (_WEAKEST_PARTS - 1) * at), min(MIN_USEFUL_CHARS, len(text)))
        for at, (cap, text) in enumerate(zip(caps, texts, strict=True))
    ]

    def at_level(level: int) -> list[int]:
        filled = level * count
        return [
            share if (share := min(cap, filled // part)) >= least else 0
            for cap, part, least in rows
        ]

    low, high = 0, max(caps) * _FINE * _WEAKEST_PARTS
    while low < high:
        middle = (low + high + 1) // 2
        if _total_cost(at_level(middle)) <= room:
            low = middle
        else:
            high = middle - 1
    return at_level(low)


def _total_cost(shares: Sequence[int]) -> int:
    return sum(shares) + len(_SEPARATOR) * (len(shares) - shares.count(0))
