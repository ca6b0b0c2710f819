"""What weighs more because it stands beside something else."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from apexbridge.scanner.manifest_checks import SkillManifest
from apexbridge.scanner.report import Finding
from apexbridge.scanner.rules import is_at_least

NEARBY_LINES = 12
"""Lines within which two findings belong together."""

_SECRECY_RULES = frozenset({"AB006", "AB009"})
_ACTION_RULES = frozenset(
    {
        "AB011",
        "AB012",
        "AB014",
        "AB021",
        "AB022",
        "AB023",
        "AB026",
        "AB030",
        "AB053",
        "AB017",
        "AB018",
        "AB019",
        "AB033",
        "AB034",
    }
)
MIN_RULES = 3
"""How many kinds of small signs are too many for one skill."""

SHORT_SKILL_BYTES = 2_000
"""Bytes of a skill so short that it teaches nothing, and that whatever it does is its task."""

_PRESENTATION_RULES = frozenset(
    {"AB003", "AB045", "AB047", "AB060", "AB062", "AB063", "AB064", "AB070", "AB075"}
)
"""What says how a skill looks, not what it does."""
_WEAK_RULES = frozenset({"AB039", "AB072"})
"""What is not enough by itself in a short skill: tables are dropped, and words are only words."""
_SECRET_SOURCE_RULES = frozenset({"AB017", "AB018", "AB019", "AB020"})
_EXFILTRATION_RULES = frozenset({"AB022", "AB023", "AB025", "AB026"})
_SURVEILLANCE = re.compile(
    r"pbpaste|xclip|clipboard|screencapture|screenshot|ImageGrab|mss\.mss|VideoCapture|"
    r"sounddevice|pyaudio|Location|ipapi|ip-api|ipinfo|ipify",
    re.IGNORECASE,
)
"""What watches people, of all that looks around a machine."""
_CREDENTIAL_STORES = re.compile(
    r"\.ssh|id_(?:rsa|ed25519|ecdsa)|\.aws|\.netrc|\.npmrc|\.pypirc|git-credentials|\.docker|\.kube|"
    r"gcloud|\.azure|\.gnupg|\.pgpass|vault-token|gh[/\\]hosts|password-store|keychain|login data|"
    r"logins\.json|wallet|cookies",
    re.IGNORECASE,
)
MIN_CREDENTIAL_STORES = 4
"""How many different stores of secrets are more than one task needs."""


def correlate(
    findings: Sequence[Finding], front: SkillManifest, total_bytes: int
) -> Iterator[Finding]:
    """The graver findings that several others make; what a skill is in all is known by then."""
    by_path = dict[str, list[Finding]]()
    for finding in findings:
        by_path.setdefault(finding.path, []).append(finding)
    for found in by_path.values():
        yield from _secret_actions(found)
        yield from _exfiltrated_secrets(found)
        if not front.is_about_security:
            yield from _credential_harvesting(found)
    yield from _undeclared_exfiltration(findings, front)
    yield from _accumulated_findings(findings, front, total_bytes)


def _secret_actions(found: Sequence[Finding]) -> Iterator[Finding]:
    """Something is done, and the user is not to know."""
    acts = [f for f in found if f.rule in _ACTION_RULES and is_at_least(f.level, "review")]
    for finding in found:
        if finding.rule in _SECRECY_RULES and _has_nearby(finding, acts):
            yield replace(finding, level="block" if finding.level == "warn" else "warn")


def _exfiltrated_secrets(found: Sequence[Finding]) -> Iterator[Finding]:
    """Secrets are named, and a way out is near."""
    ways = [f for f in found if f.rule in _EXFILTRATION_RULES and is_at_least(f.level, "review")]
    for finding in found:
        if finding.rule in _SECRET_SOURCE_RULES and _has_nearby(finding, ways):
            yield replace(finding, level="warn")
    sent = [
        f
        for f in found
        if f.rule in {*_EXFILTRATION_RULES, "AB065"} and is_at_least(f.level, "review")
    ]
    for finding in found:
        is_watching = finding.rule == "AB049" and _SURVEILLANCE.search(finding.excerpt)
        if is_watching and _has_nearby(finding, sent):
            yield replace(finding, level="warn")


def _credential_harvesting(found: Sequence[Finding]) -> Iterator[Finding]:
    """Secrets of many kinds are looked up in one place."""
    stores = [f for f in found if f.rule in {"AB017", "AB018"} and is_at_least(f.level, "review")]
    kinds = {m[0].lower() for f in stores for m in _CREDENTIAL_STORES.finditer(f.excerpt)}
    if len(kinds) >= MIN_CREDENTIAL_STORES:
        yield replace(stores[0], level="warn")


def _has_nearby(finding: Finding, others: Sequence[Finding]) -> bool:
    """Say whether a finding that counts has another one beside it."""
    return is_at_least(finding.level, "review") and any(
        abs(finding.line - other.line) <= NEARBY_LINES for other in others
    )


def _undeclared_exfiltration(
    findings: Sequence[Finding], front: SkillManifest
) -> Iterator[Finding]:
    """Secrets are sent away by a skill that says nothing of the kind."""
    worst = next((f for f in findings if f.rule in {"AB021", "AB032"} and f.level == "block"), None)
    if worst and front.description and not front.is_about_security:
        yield Finding(
            rule="AB064", level="review", path=worst.path, line=worst.line, excerpt=worst.excerpt
        )


def _accumulated_findings(
    findings: Sequence[Finding], front: SkillManifest, total_bytes: int
) -> Iterator[Finding]:
    """Small signs of many kinds, or one in a skill that holds hardly anything else."""
    small = [f for f in findings if f.level == "review" and f.rule not in _PRESENTATION_RULES]
    kinds = sorted({finding.rule for finding in small})
    is_all_there_is = total_bytes <= SHORT_SKILL_BYTES and not set(kinds) <= _WEAK_RULES
    if is_all_there_is or (len(kinds) >= MIN_RULES and not front.is_about_security):
        first = small[0]
        yield Finding(
            rule="AB069", level="warn", path=first.path, line=first.line, excerpt=", ".join(kinds)
        )
