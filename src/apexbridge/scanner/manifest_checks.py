"""Manifest checks on the frontmatter: permissions, hooks, inline commands, description and name."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from apexbridge.scanner.invisible_unicode import HOMOGLYPHS
from apexbridge.scanner.pattern_matcher import Hit
from apexbridge.scanner.rules import RiskLevel, fragment
from apexbridge.scanner.typosquatting import edit_distance, misspelled_words
from apexbridge.skills import names
from apexbridge.skills.model import Problem
from apexbridge.skills.parser import ParsedManifest, parse_document, parse_manifest

_UNRESTRICTED_TOOLS = frozenset({"Bash", "*", "Shell", "PowerShell", "computer"})
_WORD = re.compile(r"[a-z0-9]{2,30}|[\u4e00-\u9fff]")
_LIST_SEPARATOR = re.compile(r"[,;、/|，；]\s*")
_INLINE_COMMAND = re.compile(r"(?:^|(?<=\s))!`([^`\n]{1,400})`|^```!", re.MULTILINE)
_STOP_WORDS = frozenset(
    {"the", "and", "for", "with", "use", "when", "this", "that", "skill", "from", "into",
     "your", "user", "users", "to", "of", "in", "on", "or", "is", "are", "be", "it", "as",
     "an", "by", "at", "how", "what"}
)  # fmt: skip
CLONE_SIMILARITY = 0.9
"""Jaccard similarity of word pairs from which a description is a clone."""

MAX_KEYWORD_ITEMS = 45
MAX_INLINE_COMMANDS = 20


MIN_SECURITY_LINES = 5
"""Lines of the body that are about security in a skill about it."""

MAX_BODY_LINE = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillManifest:
    """The frontmatter and body of SKILL.md, as far as they can be parsed."""

    name: str = ""
    description: str = ""
    body: str = ""
    declared: ParsedManifest | None = None
    lines: Mapping[str, int] = field(default_factory=dict[str, int])

    is_about_security: bool = False
    """Whether the skill is about security, and so mentions attacks for a good reason."""


def read_manifest(data: bytes) -> SkillManifest:
    """Parse the frontmatter of SKILL.md; values that cannot be parsed are left empty."""
    opened = parse_document(data)
    if isinstance(opened, Problem):
        return SkillManifest(body=data.decode("utf-8", "replace"))
    document, values = opened
    declared = parse_manifest(values)
    manifest = declared.manifest
    name = names.normalise(manifest.name or "")
    description = " ".join(filter(None, (manifest.description, manifest.when_to_use)))
    return SkillManifest(
        name=name,
        description=description,
        body=document.body,
        declared=declared,
        lines=values.lines,
        is_about_security=_is_about_security(f"{name} {description}", document.body),
    )


def _is_about_security(subject: str, body: str) -> bool:
    """Return whether the name or description says so, and the body keeps to it.

    One word in a description lowers most findings, and an attacker writes the description.
    """
    topic = fragment("security_topic")
    if not topic.search(subject):
        return False
    lines = sum(bool(topic.search(line[:MAX_BODY_LINE])) for line in body.splitlines())
    return lines >= MIN_SECURITY_LINES


def manifest_hits(manifest: SkillManifest, known_skills: Mapping[str, str]) -> Iterator[Hit]:
    """Match requested permissions, inline commands, the description, and similar known skills."""
    if manifest.declared:
        yield from _permission_hits(manifest, manifest.declared)
    yield from _inline_command_hits(manifest)
    yield from _description_hits(manifest)
    yield from _similar_skill_hits(manifest, known_skills)


def _hit(rule: str, level: RiskLevel, line: int, matched: str) -> Hit:
    return Hit(rule=rule, level=level, line=line, matched=matched)


def _permission_hits(manifest: SkillManifest, declared: ParsedManifest) -> Iterator[Hit]:
    line = manifest.lines.get("allowed-tools", 0)
    for tool in declared.tools:
        is_open = tool.argument is None or set(tool.argument) <= set("* ")
        if tool.tool == "*" or (tool.tool in _UNRESTRICTED_TOOLS and is_open):
            level: RiskLevel = "info" if tool.tool == "Bash" and tool.argument is None else "review"
            yield _hit("AB050", level, line, str(tool))
    for hook in declared.hooks:
        action = hook.url or " ".join(hook.command)
        yield _hit("AB051", "review", manifest.lines.get("hooks", 0), f"{hook.event}: {action}")
    if declared.manifest.hooks and not declared.hooks:
        yield _hit(
            "AB051", "review", manifest.lines.get("hooks", 0), ", ".join(declared.manifest.hooks)
        )


def _inline_command_hits(manifest: SkillManifest) -> Iterator[Hit]:
    for count, match in enumerate(_INLINE_COMMAND.finditer(manifest.body)):
        if count >= MAX_INLINE_COMMANDS:
            return
        yield _hit("AB052", "info", 0, match[1] or "```!")


def _description_hits(manifest: SkillManifest) -> Iterator[Hit]:
    line = manifest.lines.get("description", 0)
    broad = fragment("broad_trigger").search(manifest.description)
    if broad:
        yield _hit("AB055", "review", line, broad[0])
    vendor = fragment("vendor_claim").search(manifest.description)
    if vendor:
        yield _hit("AB063", "review", line, vendor[0])
    if _is_keyword_stuffed(manifest.description):
        yield _hit("AB060", "review", line, manifest.description)


def _is_keyword_stuffed(description: str) -> bool:
    """Return whether a description is a long list of short items, or repeats the same words."""
    items = [item for item in _LIST_SEPARATOR.split(description) if item and len(item) <= 24]
    if len(items) >= MAX_KEYWORD_ITEMS:
        return True
    words = [word for word in _WORD.findall(description.lower()) if word not in _STOP_WORDS]
    if len(words) < 30:
        return False
    counts = Counter(words)
    top = counts.most_common(1)[0][1]
    return len(counts) / len(words) < 0.35 or top / len(words) > 0.2


def _similar_skill_hits(manifest: SkillManifest, known_skills: Mapping[str, str]) -> Iterator[Hit]:
    own_name = manifest.name.casefold()
    for _, known in misspelled_words(own_name):
        yield _hit("AB062", "warn", manifest.lines.get("name", 0), known)
    own_words = _shingles(manifest.description)
    length = len(manifest.description)
    for name, description in known_skills.items():
        if names.normalise(name).casefold() == own_name:
            continue
        if own_name and _is_confusable(own_name, names.normalise(name).casefold()):
            yield _hit("AB062", "review", manifest.lines.get("name", 0), name)
        # The length is compared first, because shingles of every known skill would be slow.
        if len(own_words) < 8 or abs(len(description) - length) > length * 0.25:
            continue
        if _jaccard(own_words, _shingles(description)) >= CLONE_SIMILARITY:
            yield _hit("AB061", "warn", manifest.lines.get("description", 0), name)


def _is_confusable(one: str, other: str) -> bool:
    """Return whether two names are one edit apart, or look alike."""
    if one.translate(HOMOGLYPHS) == other.translate(HOMOGLYPHS):
        return True
    if _skeleton(one) == _skeleton(other):
        return True
    if min(len(one), len(other)) < 5 or abs(len(one) - len(other)) > 1:
        return False
    if re.sub(r"\d+", "", one) == re.sub(r"\d+", "", other):
        return False  # two versions of the same skill
    return edit_distance(one, other) <= 1


def _skeleton(name: str) -> str:
    """Map characters that look alike in ASCII to one form."""
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
