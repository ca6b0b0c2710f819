"""Look at a skill with every rule, within limits. Nothing is run, written or fetched."""

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from apexbridge.scanner.always_on_instructions import always_on_instructions
from apexbridge.scanner.correlation import SHORT_SKILL_BYTES, correlate
from apexbridge.scanner.exfiltration import (
    exfiltration_requests,
    secret_exfiltration,
    undeclared_hosts,
)
from apexbridge.scanner.file_types import file_type_hits
from apexbridge.scanner.hidden_content import hidden_content
from apexbridge.scanner.invisible_unicode import escape_invisible
from apexbridge.scanner.known_skill_diff import changed_known_skill
from apexbridge.scanner.manifest_checks import SkillManifest, manifest_hits, read_manifest
from apexbridge.scanner.multi_step import agent_file_writes, multi_step_shell
from apexbridge.scanner.pattern_matcher import (
    PARTIAL_SCAN,
    Hit,
    SkillContext,
    compiled_patterns,
    match_patterns,
)
from apexbridge.scanner.python_analysis import python_findings
from apexbridge.scanner.report import MAX_EXCERPT, Finding, Report
from apexbridge.scanner.rules import RISK_LEVELS
from apexbridge.scanner.scan_input import (
    DEFAULT_LIMITS,
    SKILL_MD,
    ScannedFile,
    ScannerLimits,
    ScanTarget,
    TextFile,
    is_script,
    read_text_file,
)
from apexbridge.scanner.typosquatting import typosquatted_names
from apexbridge.scanner.undocumented_behavior import undocumented_behavior

_DECODED_RULES = frozenset({"AB001", "AB003", "AB007", "AB010", "AB042", "AB043", "AB061", "AB062"})
_MASKED_RULES = frozenset({"AB024"})


@dataclass(slots=True)
class _ScanState:
    """Findings so far, and whether something was left out."""

    limits: ScannerLimits
    is_partial: bool
    text_bytes: int = 0
    reasons: list[str] = field(default_factory=list[str])
    found: dict[tuple[str, str, int], Finding] = field(
        default_factory=dict[tuple[str, str, int], Finding]
    )
    views: list[TextFile] = field(default_factory=list[TextFile])
    """The texts looked at so far."""
    counts: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])

    def add(self, finding: Finding) -> None:
        """Keep a finding, or the graver of two at one place."""
        key = (finding.rule, finding.path, finding.line)
        known = self.found.get(key)
        if known:
            if RISK_LEVELS.index(finding.level) > RISK_LEVELS.index(known.level):
                self.found[key] = finding
            return
        if len(self.found) >= self.limits.findings:
            self.cut("findings")
            return
        self.counts[finding.rule, finding.path] += 1
        if self.counts[finding.rule, finding.path] <= self.limits.findings_per_rule:
            self.found[key] = finding

    def cut(self, reason: str) -> None:
        """Note that something was left out."""
        self.is_partial = True
        if reason not in self.reasons and len(self.reasons) < 20:
            self.reasons.append(reason)


def scan_skill(material: ScanTarget, *, limits: ScannerLimits = DEFAULT_LIMITS) -> Report:
    """Look at everything within the limits; what lies behind them makes the report partial."""
    ledger = _ScanState(limits, is_partial=False)
    if material.is_partial:
        ledger.cut("files left out before")
    front = _manifest(material)
    setting = SkillContext(
        is_about_security=front.is_about_security and _total_bytes(material) > SHORT_SKILL_BYTES,
        subject=f"{front.name} {front.description} {material.folder}".lower(),
    )
    total = 0
    for file in _files_within_limits(material, ledger):
        total += len(file.data)
        for hit in _scan_file(file, setting, ledger):
            ledger.add(hit)
    of_all = itertools.chain(
        undocumented_behavior(ledger.views, limits.program_bytes),
        always_on_instructions(ledger.views, setting),
        changed_known_skill(ledger.views),
    )
    for view, hit in of_all:
        ledger.add(_to_finding(hit, view.path, view))
    for hit in manifest_hits(front, dict(itertools.islice(material.others.items(), limits.others))):
        ledger.add(_to_finding(hit, SKILL_MD, None))
    for finding in correlate(tuple(ledger.found.values()), front, _total_bytes(material)):
        ledger.add(finding)
    if ledger.is_partial:
        shown = escape_invisible(", ".join(ledger.reasons), MAX_EXCERPT)
        last = Finding(rule=PARTIAL_SCAN, level="review", path=SKILL_MD, excerpt=shown)
        ledger.found[PARTIAL_SCAN, SKILL_MD, 0] = last
    return Report(
        findings=tuple(sorted(ledger.found.values(), key=_sort_key)),
        partial=ledger.is_partial,
        files=len(material.files),
        bytes=total,
    )


def _sort_key(finding: Finding) -> tuple[int, str, str, int]:
    return (-RISK_LEVELS.index(finding.level), finding.rule, finding.path, finding.line)


def _manifest(material: ScanTarget) -> SkillManifest:
    for file in material.files:
        if file.path.as_posix() == SKILL_MD:
            return read_manifest(file.data)
    return SkillManifest()


def _total_bytes(material: ScanTarget) -> int:
    return sum(len(file.data) for file in material.files)


def _files_within_limits(material: ScanTarget, ledger: _ScanState) -> Iterator[ScannedFile]:
    """The files that are looked at, SKILL.md and programs first."""
    total = 0
    for count, file in enumerate(sorted(material.files, key=_scan_priority)):
        if count >= ledger.limits.files:
            ledger.cut("number of files")
            return
        total += len(file.data)
        if total > ledger.limits.total_bytes:
            ledger.cut("size of all files")
            return
        yield file


def _scan_priority(file: ScannedFile) -> tuple[bool, bool, str]:
    is_skill_md = file.path.as_posix() == SKILL_MD
    runs = is_script(file.path, file.data, executable=file.executable)
    return (not is_skill_md, not runs, str(file.path))


def _scan_file(file: ScannedFile, setting: SkillContext, ledger: _ScanState) -> Iterator[Finding]:
    path = str(file.path)
    for hit in file_type_hits(file):
        yield _to_finding(hit, path, None)
    limit = min(ledger.limits.file_bytes, ledger.limits.text_bytes - ledger.text_bytes)
    view = read_text_file(file, file.data[:limit])
    if view is None:
        return
    ledger.text_bytes += min(len(file.data), limit)
    ledger.views.append(view)
    if len(file.data) > limit:
        ledger.cut(f"size of {path}")
    found = itertools.chain(
        hidden_content(view, setting),
        match_patterns(view, compiled_patterns(), setting),
        secret_exfiltration(view, setting),
        exfiltration_requests(view, setting),
        undeclared_hosts(view, setting),
        multi_step_shell(view, setting),
        typosquatted_names(view, setting),
        agent_file_writes(view),
        python_findings(view, setting, ledger.limits.program_bytes),
    )
    for hit in found:
        if hit.rule == PARTIAL_SCAN:
            ledger.cut(hit.matched)
        else:
            yield _to_finding(hit, path, view)


def _to_finding(hit: Hit, path: str, view: TextFile | None) -> Finding:
    shown = hit.matched
    if view is not None and hit.line and not (hit.rule in _DECODED_RULES and hit.matched):
        line = view.raw_lines[hit.line - 1]
        at = max(0, line.find(hit.matched[:40])) if hit.matched else 0
        shown = line[max(0, at - 40) :]
    if hit.rule in _MASKED_RULES:
        shown = shown.replace(hit.matched, f"{hit.matched[:6]}…")
    finding = Finding(
        rule=hit.rule,
        level=hit.level,
        path=path,
        line=hit.line,
        excerpt=escape_invisible(shown, MAX_EXCERPT),
    )
    if hit.rule in _DECODED_RULES and hit.matched:
        return replace(finding, details={"decoded": escape_invisible(hit.matched, MAX_EXCERPT)})
    return finding
