"""How a skill presents itself: tools and hooks it asks for, its name, its description."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from apexbridge.skills import names
from apexbridge.skills.interpret import Declared, interpret
from apexbridge.skills.model import Problem
from apexbridge.skills.reader import open_document
from apexbridge.vetting.misspelt import misspelt
from apexbridge.vetting.nearness import slips
from apexbridge.vetting.patterns import Hit
from apexbridge.vetting.rulebook import Level
from apexbridge.vetting.unseen import LOOKALIKES

_EVERYTHING = frozenset({"Bash", "*", "Shell", "PowerShell", "computer"})
_SECURITY = re.compile(
    "(?i)security|pentest|penetration|privilege escalation|vulnerab|malware|exploit|red[ "
    r"-]?team|threat|injection|forensic|\bctf\b|\bowasp\b|hardening|scanner|audit|incident|安全|"
    "渗透|漏洞|恶意"
)
_VENDORS = re.compile(
    r"(?i)\bofficial(?:ly)?\b[^.\n]{0,30}\b(?:anthropic|claude|openai|google|microsoft|github|"
    r"apple|amazon|meta)\b|\b(?:made|built|published|provided|endorsed|certified|verified) by "
    r"(?:anthropic|openai|claude team)\b|官方[^。\n]{0,10}(?:Anthropic|OpenAI|Claude)"
)
_BROAD = re.compile(
    r"(?i)\b(?:always use (?:this|for)|use (?:this skill )?(?:for|on|in) (?:every|any|all) "
    "(?:request|task|message|conversation|question|prompt|query|situation)s?|use (?:this "
    ")?(?:first|before any other)|must be used (?:for|before) (?:every|all|any)|for (?:any|"
    r"every|all) (?:user )?(?:requests?|questions?|tasks?|messages?)\b|whenever the user "
    "(?:says|asks|sends) anything)|任何(?:请求|问题|任务|情况)"
    "|所有(?:请求|问题|对话)|每次(?:对话|请求)都"
)
_WORD = re.compile(r"[a-z0-9]{2,30}|[\u4e00-\u9fff]")
_LIST = re.compile(r"[,;、/|，；]\s*")
_INLINE = re.compile(r"(?:^|(?<=\s))!`([^`\n]{1,400})`|^```!", re.MULTILINE)
_COMMON = frozenset(
    {"the", "and", "for", "with", "use", "when", "this", "that", "skill", "from", "into",
     "your", "user", "users", "to", "of", "in", "on", "or", "is", "are", "be", "it", "as",
     "an", "by", "at", "how", "what"}
)  # fmt: skip
CLONE = 0.9
BAIT_ITEMS = 45


@dataclass(frozen=True, slots=True, kw_only=True)
class Presented:
    """The front of a skill, as far as it can be read."""

    name: str = ""
    description: str = ""
    body: str = ""
    declared: Declared | None = None
    lines: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def is_about_security(self) -> bool:
        """Say whether its subject makes it speak of dangers."""
        return bool(_SECURITY.search(f"{self.name} {self.description}"))


def presented(data: bytes) -> Presented:
    """Read the front of SKILL.md; what cannot be read is left empty."""
    opened = open_document(data)
    if isinstance(opened, Problem):
        return Presented(body=data.decode("utf-8", "replace"))
    document, values = opened
    declared = interpret(values)
    manifest = declared.manifest
    return Presented(
        name=names.normalise(manifest.name or ""),
        description=" ".join(filter(None, (manifest.description, manifest.when_to_use))),
        body=document.body,
        declared=declared,
        lines=values.lines,
    )


def front_hits(front: Presented, others: Mapping[str, str]) -> Iterator[Hit]:
    """Hold the front of a skill against what it asks for and whom it resembles."""
    if front.declared:
        yield from _asks(front, front.declared)
    yield from _inline(front)
    yield from _description(front)
    yield from _likeness(front, others)


def _hit(rule: str, level: Level, line: int, matched: str) -> Hit:
    return Hit(rule=rule, level=level, line=line, matched=matched)


def _asks(front: Presented, declared: Declared) -> Iterator[Hit]:
    line = front.lines.get("allowed-tools", 0)
    for tool in declared.tools:
        is_open = tool.argument is None or set(tool.argument) <= set("* ")
        if tool.tool == "*" or (tool.tool in _EVERYTHING and is_open):
            level: Level = "info" if tool.tool == "Bash" and tool.argument is None else "review"
            yield _hit("AB050", level, line, str(tool))
    for hook in declared.hooks:
        what = hook.url or " ".join(hook.command)
        yield _hit("AB051", "review", front.lines.get("hooks", 0), f"{hook.event}: {what}")
    if declared.manifest.hooks and not declared.hooks:
        yield _hit(
            "AB051", "review", front.lines.get("hooks", 0), ", ".join(declared.manifest.hooks)
        )


def _inline(front: Presented) -> Iterator[Hit]:
    for count, match in enumerate(_INLINE.finditer(front.body)):
        if count >= 20:
            return
        yield _hit("AB052", "info", 0, match[1] or "```!")


def _description(front: Presented) -> Iterator[Hit]:
    line = front.lines.get("description", 0)
    broad = _BROAD.search(front.description)
    if broad:
        yield _hit("AB055", "review", line, broad[0])
    vendor = _VENDORS.search(front.description)
    if vendor:
        yield _hit("AB063", "review", line, vendor[0])
    if _is_bait(front.description):
        yield _hit("AB060", "review", line, front.description)


def _is_bait(description: str) -> bool:
    """A long list of short items, or the same words over and over."""
    items = [item for item in _LIST.split(description) if item and len(item) <= 24]
    if len(items) >= BAIT_ITEMS:
        return True
    words = [word for word in _WORD.findall(description.lower()) if word not in _COMMON]
    if len(words) < 30:
        return False
    counts = Counter(words)
    top = counts.most_common(1)[0][1]
    return len(counts) / len(words) < 0.35 or top / len(words) > 0.2


def _likeness(front: Presented, others: Mapping[str, str]) -> Iterator[Hit]:
    own_name = front.name.casefold()
    for _, known in misspelt(own_name):
        yield _hit("AB062", "warn", front.lines.get("name", 0), known)
    own_words = _shingles(front.description)
    length = len(front.description)
    for name, description in others.items():
        if names.normalise(name).casefold() == own_name:
            continue
        if own_name and _resembles(own_name, names.normalise(name).casefold()):
            yield _hit("AB062", "review", front.lines.get("name", 0), name)
        if len(own_words) < 8 or abs(len(description) - length) > length * 0.25:
            continue
        if _overlap(own_words, _shingles(description)) >= CLONE:
            yield _hit("AB061", "warn", front.lines.get("description", 0), name)


def _resembles(one: str, other: str) -> bool:
    """Say whether two names are easily mistaken: one slip apart, or alike to the eye."""
    if one.translate(LOOKALIKES) == other.translate(LOOKALIKES) or _plain(one) == _plain(other):
        return True
    if min(len(one), len(other)) < 5 or abs(len(one) - len(other)) > 1:
        return False
    if re.sub(r"\d+", "", one) == re.sub(r"\d+", "", other):
        return False  # two versions of one thing
    return slips(one, other) <= 1


def _plain(name: str) -> str:
    return (
        re.sub(r"[-_. ]", "", name)
        .replace("0", "o")
        .replace("1", "l")
        .replace("rn", "m")
        .replace("vv", "w")
    )


def _shingles(text: str) -> set[str]:
    words = _WORD.findall(text.lower()[:4_000])
    return {" ".join(words[at : at + 2]) for at in range(len(words) - 1)}


def _overlap(one: set[str], other: set[str]) -> float:
    return len(one & other) / max(1, len(one | other))
