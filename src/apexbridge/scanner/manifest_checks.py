"""How a skill presents itself: tools and hooks it asks for, its name, its description."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from apexbridge.scanner.invisible_unicode import HOMOGLYPHS
from apexbridge.scanner.pattern_matcher import Hit
from apexbridge.scanner.rules import RiskLevel
from apexbridge.scanner.typosquatting import edit_distance, misspelled_words
from apexbridge.skills import names
from apexbridge.skills.model import Problem
from apexbridge.skills.parser import ParsedManifest, parse_document, parse_manifest

_UNRESTRICTED_TOOLS = frozenset({"Bash", "*", "Shell", "PowerShell", "computer"})
_SECURITY_TOPIC = re.compile(
    "(?i)security|pentest|penetration|privilege escalation|vulnerab|malware|exploit|red[ "
    r"-]?team|threat|injection|forensic|\bctf\b|\bowasp\b|hardening|scanner|audit|incident|安全|"
    "渗透|漏洞|恶意"
)
_VENDOR_CLAIM = re.compile(
    r"(?i)\bofficial(?:ly)?\b[^.\n]{0,30}\b(?:anthropic|claude|openai|google|microsoft|github|"
    r"apple|amazon|meta)\b|\b(?:made|built|published|provided|endorsed|certified|verified) by "
    r"(?:anthropic|openai|claude team)\b|官方[^。\n]{0,10}(?:Anthropic|OpenAI|Claude)"
)
_BROAD_TRIGGER = re.compile(
    r"(?i)\b(?:always use (?:this|for)|use (?:this skill )?(?:for|on|in) (?:every|any|all) "
    "(?:request|task|message|conversation|question|prompt|query|situation)s?|use (?:this "
    ")?(?:first|before any other)|must be used (?:for|before) (?:every|all|any)|for (?:any|"
    r"every|all) (?:user )?(?:requests?|questions?|tasks?|messages?)\b|whenever the user "
    "(?:says|asks|sends) anything)|任何(?:请求|问题|任务|情况)"
    "|所有(?:请求|问题|对话)|每次(?:对话|请求)都"
)
_WORD = re.compile(r"[a-z0-9]{2,30}|[\u4e00-\u9fff]")
_LIST_SEPARATOR = re.compile(r"[,;、/|，；]\s*")
_INLINE_COMMAND = re.compile(r"(?:^|(?<=\s))!`([^`\n]{1,400})`|^```!", re.MULTILINE)
_STOP_WORDS = frozenset(
    {"the", "and", "for", "with", "use", "when", "this", "that", "skill", "from", "into",
     "your", "user", "users", "to", "of", "in", "on", "or", "is", "are", "be", "it", "as",
     "an", "by", "at", "how", "what"}
)  # fmt: skip
CLONE_SIMILARITY = 0.9
MAX_KEYWORD_ITEMS = 45


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillManifest:
    """The front of a skill, as far as it can be read."""

    name: str = ""
    description: str = ""
    body: str = ""
    declared: ParsedManifest | None = None
    lines: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def is_about_security(self) -> bool:
        """Say whether its subject makes it speak of dangers."""
        return bool(_SECURITY_TOPIC.search(f"{self.name} {self.description}"))


def read_manifest(data: bytes) -> SkillManifest:
    """Read the front of SKILL.md; what cannot be read is left empty."""
    opened = parse_document(data)
    if isinstance(opened, Problem):
        return SkillManifest(body=data.decode("utf-8", "replace"))
    document, values = opened
    declared = parse_manifest(values)
    manifest = declared.manifest
    return SkillManifest(
        name=names.normalise(manifest.name or ""),
        description=" ".join(filter(None, (manifest.description, manifest.when_to_use))),
        body=document.body,
        declared=declared,
        lines=values.lines,
    )


def manifest_hits(front: SkillManifest, others: Mapping[str, str]) -> Iterator[Hit]:
    """Hold the front of a skill against what it asks for and whom it resembles."""
    if front.declared:
        yield from _permission_hits(front, front.declared)
    yield from _inline_command_hits(front)
    yield from _description_hits(front)
    yield from _similar_skill_hits(front, others)


def _hit(rule: str, level: RiskLevel, line: int, matched: str) -> Hit:
    return Hit(rule=rule, level=level, line=line, matched=matched)


def _permission_hits(front: SkillManifest, declared: ParsedManifest) -> Iterator[Hit]:
    line = front.lines.get("allowed-tools", 0)
    for tool in declared.tools:
        is_open = tool.argument is None or set(tool.argument) <= set("* ")
        if tool.tool == "*" or (tool.tool in _UNRESTRICTED_TOOLS and is_open):
            level: RiskLevel = "info" if tool.tool == "Bash" and tool.argument is None else "review"
            yield _hit("AB050", level, line, str(tool))
    for hook in declared.hooks:
        what = hook.url or " ".join(hook.command)
        yield _hit("AB051", "review", front.lines.get("hooks", 0), f"{hook.event}: {what}")
    if declared.manifest.hooks and not declared.hooks:
        yield _hit(
            "AB051", "review", front.lines.get("hooks", 0), ", ".join(declared.manifest.hooks)
        )


def _inline_command_hits(front: SkillManifest) -> Iterator[Hit]:
    for count, match in enumerate(_INLINE_COMMAND.finditer(front.body)):
        if count >= 20:
            return
        yield _hit("AB052", "info", 0, match[1] or "```!")


def _description_hits(front: SkillManifest) -> Iterator[Hit]:
    line = front.lines.get("description", 0)
    broad = _BROAD_TRIGGER.search(front.description)
    if broad:
        yield _hit("AB055", "review", line, broad[0])
    vendor = _VENDOR_CLAIM.search(front.description)
    if vendor:
        yield _hit("AB063", "review", line, vendor[0])
    if _is_keyword_stuffed(front.description):
        yield _hit("AB060", "review", line, front.description)


def _is_keyword_stuffed(description: str) -> bool:
    """A long list of short items, or the same words over and over."""
    items = [item for item in _LIST_SEPARATOR.split(description) if item and len(item) <= 24]
    if len(items) >= MAX_KEYWORD_ITEMS:
        return True
    words = [word for word in _WORD.findall(description.lower()) if word not in _STOP_WORDS]
    if len(words) < 30:
        return False
    counts = Counter(words)
    top = counts.most_common(1)[0][1]
    return len(counts) / len(words) < 0.35 or top / len(words) > 0.2


def _similar_skill_hits(front: SkillManifest, others: Mapping[str, str]) -> Iterator[Hit]:
    own_name = front.name.casefold()
    for _, known in misspelled_words(own_name):
        yield _hit("AB062", "warn", front.lines.get("name", 0), known)
    own_words = _shingles(front.description)
    length = len(front.description)
    for name, description in others.items():
        if names.normalise(name).casefold() == own_name:
            continue
        if own_name and _is_confusable(own_name, names.normalise(name).casefold()):
            yield _hit("AB062", "review", front.lines.get("name", 0), name)
        if len(own_words) < 8 or abs(len(description) - length) > length * 0.25:
            continue
        if _jaccard(own_words, _shingles(description)) >= CLONE_SIMILARITY:
            yield _hit("AB061", "warn", front.lines.get("description", 0), name)


def _is_confusable(one: str, other: str) -> bool:
    """Say whether two names are easily mistaken: one slip apart, or alike to the eye."""
    if one.translate(HOMOGLYPHS) == other.translate(HOMOGLYPHS) or _skeleton(one) == _skeleton(
        other
    ):
        return True
    if min(len(one), len(other)) < 5 or abs(len(one) - len(other)) > 1:
        return False
    if re.sub(r"\d+", "", one) == re.sub(r"\d+", "", other):
        return False  # two versions of one thing
    return edit_distance(one, other) <= 1


def _skeleton(name: str) -> str:
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


def _jaccard(one: set[str], other: set[str]) -> float:
    return len(one & other) / max(1, len(one | other))
