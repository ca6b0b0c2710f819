"""Skill listing in the system prompt, within a character budget (progressive disclosure).

The model sees names and descriptions only; bodies are loaded on invocation. Bundled skills are
never truncated: there are few, and we write them. Of all others what does not fit is truncated by
rank, and reported. The search index has every description in full.
"""

import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Literal, NamedTuple, Self

from apexbridge.skills.model import Origin, Skill

MIN_USEFUL_CHARS = 20
"""A description truncated below this is dropped: the name alone is listed."""
UNUSED_EVERY = 5
"""Every fifth rank goes to a skill without usage, so that new skills can be discovered."""
MAX_NAME_CHARS = 200
"""Longer names are dropped first when not all names fit."""

_CHARS_PER_TOKEN = 4
_WINDOW_DIVISOR = 100
_SHARE_RATIO = 4
"""The lowest rank gets a quarter of the share of the highest."""
_RESOLUTION = 16
DESCRIPTION_CHARS = 250
"""Default limit of one description in the listing."""
_SEPARATOR = ": "
_ELLIPSIS = "…"
_ENTITY_CHARS = 5
_MAX_CLUSTER = 32
_JOINER = "\u200d"
_CONTROL_CHARS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_LONE_SURROGATES = re.compile(r"[\ud800-\udfff]")

Extent = Literal["full", "shortened", "name_only", "left_out"]
Scores = Mapping[str, float]
NO_SCORES: Scores = {}
_Ranked = tuple[float, float, str, int]
"""Sort key: negated relevance, negated usage, name, and input position."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListingBudget:
    """Character budget of the listing."""

    total_chars: int = 8_000
    per_skill_chars: int = DESCRIPTION_CHARS
    """Maximum length of one description, `when_to_use` included, without the name; bundled skills
    have none."""

    @classmethod
    def for_window(cls, tokens: int, per_skill_chars: int = DESCRIPTION_CHARS) -> Self:
        """Budget of one percent of a context window, at four characters a token."""
        total = max(tokens, 0) * _CHARS_PER_TOKEN // _WINDOW_DIVISOR
        return cls(total_chars=total, per_skill_chars=per_skill_chars)


class Listed(NamedTuple):
    """One skill in the listing: `kept` of `chars` characters of its escaped description.

    Both are 0 for a skill that is left out.
    """

    name: str
    extent: Extent
    kept: int
    chars: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The rendered listing, with the extent to which each skill is shown, by rank."""

    text: str = ""
    skills: tuple[Listed, ...] = field(default=())

    @property
    def shown(self) -> tuple[str, ...]:
        """Names in the text, by rank."""
        return tuple(skill.name for skill in self.skills if skill.extent != "left_out")

    @property
    def is_cut(self) -> bool:
        """Say whether any skill is truncated or left out."""
        return any(skill.extent != "full" for skill in self.skills)

    def names(self, *extents: Extent) -> tuple[str, ...]:
        """Return the names of the skills with one of these extents."""
        return tuple(skill.name for skill in self.skills if skill.extent in extents)


def render_listing(
    skills: Sequence[Skill],
    budget: ListingBudget,
    *,
    relevance: Scores = NO_SCORES,
    usage: Scores = NO_SCORES,
    already_sent: Collection[str] = frozenset(),
) -> Listing:
    """Render one line for each skill; truncation is reported in the result.

    Names are allotted first, then descriptions of bundled skills, which may take more than the
    budget, then the others, which may not. The caller filters denied, disabled and inactive skills.
    """
    ranked = _ranked(skills, relevance, usage, already_sent)
    if not ranked:
        return Listing()
    bundled = sum(map(_is_bundled, ranked))
    heads = _fit_names(ranked, bundled, budget.total_chars)
    texts = [to_single_line(skill.summary) for skill in ranked]
    own = list(map(len, texts[:bundled]))
    available = budget.total_chars - sum(map(len, heads.values())) - len(heads) + 1
    if len(heads) < len(ranked):
        available = 0  # a name says more than the description of another skill
    caps = [min(len(text), max(budget.per_skill_chars, 0)) for text in texts[bundled:]]
    shares = own + _share_budget(texts[bundled:], caps, available - _total_cost(own))
    lines, listed = list[str](), list[Listed]()
    for at, (skill, text, chars) in enumerate(zip(ranked, texts, shares, strict=True)):
        if at not in heads:
            listed.append(Listed(skill.name, "left_out", 0, 0))
            continue
        kept = truncate_line(text, chars)
        if len(kept) < min(MIN_USEFUL_CHARS, len(text)):
            kept = ""
        lines.append(heads[at] + _SEPARATOR + kept if kept else heads[at])
        listed.append(_entry(skill, kept, text))
    return Listing(text="\n".join(lines), skills=tuple(listed))


def _is_bundled(skill: Skill) -> bool:
    return skill.provenance.origin is Origin.BUNDLED


def to_single_line(text: str) -> str:
    """Escape a text for one prompt line: no control characters, no markup (prompt injection)."""
    if not text.isprintable():
        text = _LONE_SURROGATES.sub("\ufffd", _CONTROL_CHARS.sub(" ", text))
    if "  " in text or text.strip() != text:
        text = " ".join(text.split())
    return escape(text, quote=False)


def truncate_line(text: str, available: int) -> str:
    """Truncate a line with an ellipsis, never within a grapheme cluster or an HTML entity."""
    if len(text) <= available:
        return text
    end = first = available - len(_ELLIPSIS)
    if end <= 0:
        return ""
    while end > max(first - _MAX_CLUSTER, 0) and _is_same_cluster(text[end - 1], text[end]):
        end -= 1
    if end <= max(first - _MAX_CLUSTER, 0):
        end = first  # an absurd stack of combining marks: cut anyway
    start = text.rfind("&", max(end - _ENTITY_CHARS + 1, 0), end)
    if start >= 0 and ";" not in text[start:end]:
        end = start
    return text[:end].rstrip() + _ELLIPSIS if end > 0 else ""


def _is_same_cluster(left: str, right: str) -> bool:
    if left.isascii() and right.isascii():
        return False
    is_mark = unicodedata.category(right).startswith("M") or "\U0001f3fb" <= right <= "\U0001f3ff"
    return is_mark or _JOINER in {left, right}


def _ranked(
    skills: Sequence[Skill], relevance: Scores, usage: Scores, already_sent: Collection[str]
) -> list[Skill]:
    """Sort bundled skills first, each group by relevance, then usage, then name."""
    sent = frozenset(already_sent)
    bundled, others = list[_Ranked](), list[_Ranked]()
    for place, skill in enumerate(skills):
        name = skill.name
        if not skill.manifest.disable_model_invocation and name not in sent:
            scores = _finite(relevance.get(name, 0.0)), _finite(usage.get(name, 0.0))
            group = bundled if _is_bundled(skill) else others
            group.append((-scores[0], -scores[1], name, place))
    order = sorted(bundled) + _interleave_unused(sorted(others))
    return [skills[place] for *_, place in order]


def _finite(score: float) -> float:
    return score if score == score else 0.0  # NaN would break the sort order


def _interleave_unused(ranked: list[_Ranked]) -> list[_Ranked]:
    """Give every fifth rank to the next skill without usage."""
    used = [entry for entry in ranked if entry[1] < 0]
    unused = [entry for entry in ranked if entry[1] >= 0]
    if not used or not unused:
        return ranked
    order, next_used, next_unused = list[_Ranked](), 0, 0
    while next_used < len(used) and next_unused < len(unused):
        is_reserved = (len(order) + 1) % UNUSED_EVERY == 0
        if is_reserved or unused[next_unused] < used[next_used]:
            order.append(unused[next_unused])
            next_unused += 1
        else:
            order.append(used[next_used])
            next_used += 1
    return order + used[next_used:] + unused[next_unused:]


def _fit_names(ranked: Sequence[Skill], bundled: int, total: int) -> dict[int, str]:
    """Return the line prefixes of bundled skills, and others that fit; overlong ones come last."""
    others = range(bundled, len(ranked))
    places = sorted(others, key=lambda at: len(ranked[at].name) > MAX_NAME_CHARS)
    used, heads = -1, dict[int, str]()
    for at in (*range(bundled), *places):
        head = "- " + to_single_line(ranked[at].name)
        used += len(head) + 1
        if at >= bundled and used > total:
            break
        heads[at] = head
    return heads


def _entry(skill: Skill, kept: str, text: str) -> Listed:
    if kept == text:
        return Listed(skill.name, "full", len(text), len(text))
    if not kept:
        return Listed(skill.name, "name_only", 0, len(text))
    return Listed(skill.name, "shortened", len(kept) - len(_ELLIPSIS), len(text))


def _share_budget(texts: Sequence[str], caps: Sequence[int], available: int) -> list[int]:
    """Water-filling: binary search for the level at which the weighted shares fill the budget.

    Every share is monotonic in the level, so a larger budget never shortens a text.
    """
    if not caps or _total_cost(caps) <= available:
        return list(caps)
    count = len(caps)
    rows = [
        (cap, _RESOLUTION * (count + (_SHARE_RATIO - 1) * at), min(MIN_USEFUL_CHARS, len(text)))
        for at, (cap, text) in enumerate(zip(caps, texts, strict=True))
    ]

    def at_level(level: int) -> list[int]:
        filled = level * count
        return [
            share if (share := min(cap, filled // part)) >= least else 0
            for cap, part, least in rows
        ]

    low, high = 0, max(caps) * _RESOLUTION * _SHARE_RATIO
    while low < high:
        middle = (low + high + 1) // 2
        if _total_cost(at_level(middle)) <= available:
            low = middle
        else:
            high = middle - 1
    return at_level(low)


def _total_cost(shares: Sequence[int]) -> int:
    return sum(shares) + len(_SEPARATOR) * (len(shares) - shares.count(0))
