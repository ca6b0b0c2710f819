"""Correlation: raise findings that are more severe in combination than alone.

A heuristic over findings instead of text: access to a token is ordinary, a webhook is ordinary, and
both within twelve lines are probably exfiltration.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from apexbridge.scanner.manifest_checks import SkillManifest
from apexbridge.scanner.report import Finding
from apexbridge.scanner.rules import fragment, is_at_least

NEARBY_LINES = 12
"""Lines within which two findings are correlated."""

_SECRECY_RULES = frozenset({"AB006", "AB009"})
_ACTION_RULES = frozenset(
    {"AB011", "AB012", "AB014", "AB017", "AB018", "AB019", "AB021", "AB022", "AB023", "AB026",
     "AB030", "AB033", "AB034", "AB053"}
)  # fmt: skip
MIN_RULES = 3
"""Different rules at level review, near each other, that together make a warning."""

ACCUMULATION_LINES = 60
"""Lines within which they are."""

SHORT_SKILL_BYTES = 2_000
"""Size below which a skill is too short to be educational: what it contains is its purpose."""

_PRESENTATION_RULES = frozenset(
    {"AB003", "AB045", "AB047", "AB055", "AB060", "AB062", "AB063", "AB064", "AB070", "AB075"}
)
"""Rules about how a skill presents itself, not about what it does."""
_WEAK_RULES = frozenset({"AB039", "AB072"})
"""Rules that do not suffice alone in a short skill: `DROP TABLE` can be its legitimate task."""
_DOWNLOAD_RULES = frozenset({"AB011", "AB012"})
_SECRET_SOURCE_RULES = frozenset({"AB017", "AB018", "AB019", "AB020"})
_EXFILTRATION_RULES = frozenset({"AB022", "AB023", "AB025", "AB026"})
MIN_CREDENTIAL_STORES = 4
"""Different credential stores that no single task needs."""


def correlate(
    findings: Sequence[Finding], manifest: SkillManifest, total_bytes: int
) -> Iterator[Finding]:
    """Return the findings that result from others, once all files are scanned."""
    by_path = dict[str, list[Finding]]()
    for finding in findings:
        by_path.setdefault(finding.path, []).append(finding)
    for found in by_path.values():
        yield from _secret_actions(found)
        yield from _exfiltrated_secrets(found)
        if not manifest.is_about_security:
            yield from _credential_harvesting(found)
    yield from _undeclared_exfiltration(findings, manifest)
    yield from _accumulated_findings(findings, manifest, total_bytes)


def _secret_actions(found: Sequence[Finding]) -> Iterator[Finding]:
    """Raise a demand for secrecy beside a dangerous action."""
    actions = [f for f in found if f.rule in _ACTION_RULES and is_at_least(f.level, "review")]
    for finding in found:
        if finding.rule in _SECRECY_RULES and _has_nearby(finding, actions):
            yield replace(finding, level="block" if finding.level == "warn" else "warn")


def _exfiltrated_secrets(found: Sequence[Finding]) -> Iterator[Finding]:
    """Raise access to secrets, or surveillance, beside a way to send data out."""
    exits = [f for f in found if f.rule in _EXFILTRATION_RULES and is_at_least(f.level, "review")]
    for finding in found:
        if finding.rule in _SECRET_SOURCE_RULES and _has_nearby(finding, exits):
            yield replace(finding, level="warn")
    sent = [
        f
        for f in found
        if f.rule in {*_EXFILTRATION_RULES, "AB065"} and is_at_least(f.level, "review")
    ]
    for finding in found:
        is_surveillance = finding.rule == "AB049" and fragment("surveillance").search(
            finding.excerpt
        )
        if is_surveillance and _has_nearby(finding, sent):
            yield replace(finding, level="warn")


def _credential_harvesting(found: Sequence[Finding]) -> Iterator[Finding]:
    """Raise access to many kinds of credential stores in one file."""
    stores = [f for f in found if f.rule in {"AB017", "AB018"} and is_at_least(f.level, "review")]
    names = fragment("credential_store_names")
    kinds = {m[0].lower() for f in stores for m in names.finditer(f.excerpt)}
    if len(kinds) >= MIN_CREDENTIAL_STORES:
        yield replace(stores[0], level="warn")


def _has_nearby(finding: Finding, others: Sequence[Finding]) -> bool:
    """Return whether a finding at level review or above has another one nearby."""
    return is_at_least(finding.level, "review") and any(
        abs(finding.line - other.line) <= NEARBY_LINES for other in others
    )


def _undeclared_exfiltration(
    findings: Sequence[Finding], manifest: SkillManifest
) -> Iterator[Finding]:
    """Report exfiltration or a reverse shell in a skill whose description does not suggest it."""
    worst = next((f for f in findings if f.rule in {"AB021", "AB032"} and f.level == "block"), None)
    if worst and manifest.description and not manifest.is_about_security:
        yield Finding(
            rule="AB064", level="review", path=worst.path, line=worst.line, excerpt=worst.excerpt
        )


def _accumulated_findings(
    findings: Sequence[Finding], manifest: SkillManifest, total_bytes: int
) -> Iterator[Finding]:
    """Report several low-level findings, or a single one in a very short skill."""
    small = [
        f
        for f in findings
        if f.level == "review" and f.rule not in _PRESENTATION_RULES and not _is_documented(f)
    ]
    kinds = {finding.rule for finding in small}
    if total_bytes > SHORT_SKILL_BYTES:
        small = [] if manifest.is_about_security else _close_together(small)
        kinds = {finding.rule for finding in small}
    elif kinds <= _WEAK_RULES:
        return
    if small:
        first = small[0]
        excerpt = ", ".join(sorted(kinds))
        yield Finding(rule="AB069", level="warn", path=first.path, line=first.line, excerpt=excerpt)


def _is_documented(finding: Finding) -> bool:
    """Return whether a finding is the installation command that a well-known vendor documents."""
    return finding.rule in _DOWNLOAD_RULES and bool(
        fragment("known_installers").search(finding.excerpt)
    )


def _close_together(small: Sequence[Finding]) -> list[Finding]:
    """Return findings of different rules that are near each other in one file; none if too few.

    In a long reference three unrelated lines are found by chance.
    """
    by_path = dict[str, list[Finding]]()
    for finding in small:
        by_path.setdefault(finding.path, []).append(finding)
    for found in by_path.values():
        found.sort(key=lambda finding: finding.line)
        for at, finding in enumerate(found):
            near = [f for f in found[at:] if f.line - finding.line <= ACCUMULATION_LINES]
            if len({f.rule for f in near}) >= MIN_RULES:
                return near
    return []
