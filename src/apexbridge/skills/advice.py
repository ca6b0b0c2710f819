"""Advice on a SKILL.md that is valid: a vague description, a text that fills the context window."""

import re
from collections.abc import Iterator

from apexbridge.messages import estimate_tokens
from apexbridge.skills.document import SKILL_MD
from apexbridge.skills.model import Problem, SkillManifest

MAX_TOKENS = 5_000
"""Estimated tokens of a whole SKILL.md, from which on parts of it belong in other files."""
_MIN_WORDS = 4
"""A description with fewer words is vague, whatever they are."""
_ENOUGH_WORDS = 12
"""A description with as many words is specific enough without saying when it applies."""
_TRIGGER = re.compile(
    r"\b(?:when|whenever|while|before|after|if|use[ds]?|using|trigger\w*|invoke\w*|asks?|asked|"
    r"mentions?|wants?|needs?|for)\b|[当时若如请]|用于|适用|触发|需要",
    re.IGNORECASE,
)
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_WORD = re.compile(r"\w+")
_CJK_CHARS_PER_WORD = 2


def advise(manifest: SkillManifest, text: str, line: str) -> Iterator[Problem]:
    """Yield advice on the description, at this line, and on the length of the whole text."""
    described = " ".join(filter(None, (manifest.description, manifest.when_to_use))).strip()
    if described and is_vague(described):
        yield Problem(code="description_vague", where=line, severity="advice")
    tokens = estimate_tokens(text)
    if tokens > MAX_TOKENS:
        details = {"tokens": tokens, "limit": MAX_TOKENS}
        yield Problem(code="skill_md_long", where=SKILL_MD, severity="advice", details=details)


def is_vague(description: str) -> bool:
    """Return whether a description says too little to choose the skill by.

    Few words are too little; some more, if none of them says when the skill applies.
    """
    words = _count_words(description)
    return words < _MIN_WORDS or (words < _ENOUGH_WORDS and not _TRIGGER.search(description))


def _count_words(text: str) -> int:
    """Count words; two characters of a script without blanks are one."""
    rest, chars = _CJK.subn(" ", text)
    return len(_WORD.findall(rest)) + chars // _CJK_CHARS_PER_WORD
