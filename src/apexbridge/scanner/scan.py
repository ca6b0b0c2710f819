"""Scan pipeline: static analysis of a skill with every rule, within limits.

Nothing is executed, written or fetched: a scan of malicious input is safe without a sandbox.
"""

import itertools
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from apexbridge.scanner.always_on_instructions import always_on_instructions
from apexbridge.scanner.budget import Clock, CpuBudget
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
from apexbridge.scanner.multi_step import multi_step_script, multi_step_shell
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
"""Rules whose excerpt is the decoded payload instead of the line."""
_MASKED_RULES = frozenset({"AB024"})
"""Rules whose match is redacted in the excerpt."""


@dataclass(slots=True)
class _ScanState:
    """The findings so far, deduplicated and capped, and the reasons why a scan is partial."""

    limits: ScannerLimits
    budget: CpuBudget
    is_partial: bool = False
    text_bytes: int = 0
    reasons: list[str] = field(default_factory=list[str])
    found: dict[tuple[str, str, int], Finding] = field(
        default_factory=dict[tuple[str, str, int], Finding]
    )
    files: list[TextFile] = field(default_factory=list[TextFile])
    """The text files scanned so far, for the checks across files."""
    counts: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])

    def add(self, finding: Finding) -> None:
        """Add a finding; of two for the same rule and line, keep the more severe one."""
        key = (finding.rule, finding.path, finding.line)
        known = self.found.get(key)
        if known:
            if RISK_LEVELS.index(finding.level) > RISK_LEVELS.index(known.level):
                self.found[key] = finding
            return
        if len(self.found) >= self.limits.findings:
            self.mark_partial("findings")
            return
        # Beyond the cap a finding is dropped, but the scan is not partial: it would say the same.
        self.counts[finding.rule, finding.path] += 1
        if self.counts[finding.rule, finding.path] <= self.limits.findings_per_rule:
            self.found[key] = finding

    def mark_partial(self, reason: str, *, is_first: bool = False) -> None:
        """Record why a part of the skill is not scanned; a first reason is never cut off."""
        self.is_partial = True
        if is_first:
            self.reasons.insert(0, reason)
        elif reason not in self.reasons and len(self.reasons) < 20:
            self.reasons.append(reason)


def scan_skill(
    target: ScanTarget,
    *,
    limits: ScannerLimits = DEFAULT_LIMITS,
    clock: Clock = time.thread_time,
) -> Report:
    """Scan a skill; what exceeds the limits is skipped and makes the report partial."""
    state = _ScanState(limits, CpuBudget(limits, clock))
    if target.is_partial:
        state.mark_partial("files left out before")
    manifest = _manifest(target)
    context = SkillContext(
        is_about_security=manifest.is_about_security and _total_bytes(target) > SHORT_SKILL_BYTES,
        subject=f"{manifest.name} {manifest.description} {target.folder}".lower(),
    )
    total = 0
    for file in _files_within_limits(target, state):
        total += len(file.data)
        for hit in _scan_file(file, context, state):
            state.add(hit)
    for finding in _scan_across_files(target, manifest, context, state):
        state.add(finding)
    for finding in correlate(tuple(state.found.values()), manifest, _total_bytes(target)):
        state.add(finding)
    if state.is_partial:
        reasons = escape_invisible(", ".join(state.reasons), MAX_EXCERPT)
        finding = Finding(rule=PARTIAL_SCAN, level="review", path=SKILL_MD, excerpt=reasons)
        state.found[PARTIAL_SCAN, SKILL_MD, 0] = finding
    return Report(
        findings=tuple(sorted(state.found.values(), key=_sort_key)),
        partial=state.is_partial,
        files=len(target.files),
        bytes=total,
    )


def _scan_across_files(
    target: ScanTarget, manifest: SkillManifest, context: SkillContext, state: _ScanState
) -> Iterator[Finding]:
    """Compare the files with each other, and the manifest with those of other skills."""
    limits, budget = state.limits, state.budget
    budget.start_skill()
    checks = (
        undocumented_behavior(state.files, context.subject, limits.script_bytes, budget),
        always_on_instructions(state.files, context, budget),
        changed_known_skill(state.files, target.origin),
    )
    for text, hit in budget.limit(itertools.chain.from_iterable(budget.limit(checks))):
        yield _to_finding(hit, text.path, text)
    known = dict(itertools.islice(target.known_skills.items(), limits.known_skills))
    for hit in budget.limit(manifest_hits(manifest, known)):
        yield _to_finding(hit, SKILL_MD, None)
    if budget.is_file_exhausted:
        state.mark_partial("time for checks across files", is_first=True)


def _sort_key(finding: Finding) -> tuple[int, str, str, int]:
    return (-RISK_LEVELS.index(finding.level), finding.rule, finding.path, finding.line)


def _manifest(target: ScanTarget) -> SkillManifest:
    for file in target.files:
        if file.path.as_posix() == SKILL_MD:
            return read_manifest(file.data)
    return SkillManifest()


def _total_bytes(target: ScanTarget) -> int:
    return sum(len(file.data) for file in target.files)


def _files_within_limits(target: ScanTarget, state: _ScanState) -> Iterator[ScannedFile]:
    """Return the files to scan, SKILL.md and scripts first, so that limits cut the others."""
    total = 0
    for count, file in enumerate(sorted(target.files, key=_scan_priority)):
        if count >= state.limits.files:
            state.mark_partial("number of files")
            return
        if state.budget.is_exhausted:
            state.mark_partial("time for all files", is_first=True)
            return
        total += len(file.data)
        if total > state.limits.total_bytes:
            state.mark_partial("size of all files")
            return
        yield file


def _scan_priority(file: ScannedFile) -> tuple[bool, bool, str]:
    is_skill_md = file.path.as_posix() == SKILL_MD
    runs = is_script(file.path, file.data, executable=file.executable)
    return (not is_skill_md, not runs, str(file.path))


def _scan_file(file: ScannedFile, context: SkillContext, state: _ScanState) -> Iterator[Finding]:
    path, budget = str(file.path), state.budget
    budget.start_file()
    for hit in file_type_hits(file):
        yield _to_finding(hit, path, None)
    limit = min(state.limits.file_bytes, state.limits.text_bytes - state.text_bytes)
    text = read_text_file(file, file.data[:limit])
    if text is None:
        return
    state.text_bytes += min(len(file.data), limit)
    state.files.append(text)
    if len(file.data) > limit:
        state.mark_partial(f"size of {path}")
    # Generators, which begin when they are asked: the budget is checked between any two.
    checks = (
        hidden_content(text, context),
        match_patterns(text, budget.limit(compiled_patterns()), context),
        secret_exfiltration(text, context),
        exfiltration_requests(text, context),
        undeclared_hosts(text, context),
        multi_step_shell(text, context),
        typosquatted_names(text, context),
        multi_step_script(text),
        python_findings(text, context, state.limits.script_bytes),
    )
    for hit in budget.limit(itertools.chain.from_iterable(budget.limit(checks))):
        if hit.rule == PARTIAL_SCAN:
            state.mark_partial(hit.matched)
        else:
            yield _to_finding(hit, path, text)
    if budget.is_file_exhausted:
        state.mark_partial(f"time for {path}")


def _to_finding(hit: Hit, path: str, file: TextFile | None) -> Finding:
    excerpt = hit.matched
    if file is not None and hit.line and not (hit.rule in _DECODED_RULES and hit.matched):
        line = file.raw_lines[hit.line - 1]
        at = max(0, line.find(hit.matched[:40])) if hit.matched else 0
        excerpt = line[max(0, at - 40) :]
    if hit.rule in _MASKED_RULES:
        # A report must not leak the secret that it warns of.
        excerpt = excerpt.replace(hit.matched, f"{hit.matched[:6]}…")
    finding = Finding(
        rule=hit.rule,
        level=hit.level,
        path=path,
        line=hit.line,
        excerpt=escape_invisible(excerpt, MAX_EXCERPT),
    )
    if hit.rule in _DECODED_RULES and hit.matched:
        return replace(finding, details={"decoded": escape_invisible(hit.matched, MAX_EXCERPT)})
    return finding
