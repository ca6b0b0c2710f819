"""Look at a skill with every rule, within limits. Nothing is run, written or fetched."""

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from apexbridge.vetting.acts import ACTS
from apexbridge.vetting.agents import AGENTS, rewritten
from apexbridge.vetting.commands import COMMANDS
from apexbridge.vetting.declared import Presented, front_hits, presented
from apexbridge.vetting.errands import errands
from apexbridge.vetting.folder import folder_hits
from apexbridge.vetting.footholds import FOOTHOLDS
from apexbridge.vetting.harmful import HARMFUL
from apexbridge.vetting.hidden import hidden
from apexbridge.vetting.hosts import unnamed_hosts
from apexbridge.vetting.incoming import INCOMING
from apexbridge.vetting.leaks import LEAKS
from apexbridge.vetting.lookalikes import lookalikes
from apexbridge.vetting.material import DEFAULT_LIMITS, SKILL_MD, File, Material, VettingLimits
from apexbridge.vetting.meddling import MEDDLING
from apexbridge.vetting.patterns import PARTIAL, Hit, Setting, hits
from apexbridge.vetting.phrases import PHRASES
from apexbridge.vetting.pretences import PRETENCES
from apexbridge.vetting.programs import program_hits
from apexbridge.vetting.published import changed
from apexbridge.vetting.report import MAX_EXCERPT, Finding, Report
from apexbridge.vetting.requests import REQUESTS
from apexbridge.vetting.rulebook import LEVELS
from apexbridge.vetting.standing import standing_orders
from apexbridge.vetting.stepwise import stepwise
from apexbridge.vetting.together import SHORT, together
from apexbridge.vetting.units import units_of
from apexbridge.vetting.unseen import visible
from apexbridge.vetting.unspoken import unspoken
from apexbridge.vetting.view import View, is_program, view_of
from apexbridge.vetting.watching import QUIET_CHANGES, WATCHING

_PATTERNS = (
    *PHRASES,
    *REQUESTS,
    *ACTS,
    *INCOMING,
    *HARMFUL,
    *LEAKS,
    *AGENTS,
    *MEDDLING,
    *WATCHING,
    *QUIET_CHANGES,
    *PRETENCES,
    *FOOTHOLDS,
    *COMMANDS,
)
_DECODED = frozenset({"AB001", "AB003", "AB007", "AB010", "AB042", "AB043", "AB061", "AB062"})
_MASKED = frozenset({"AB024"})


@dataclass(slots=True)
class _Ledger:
    """Findings so far, and whether something was left out."""

    limits: VettingLimits
    is_partial: bool
    text_bytes: int = 0
    reasons: list[str] = field(default_factory=list[str])
    found: dict[tuple[str, str, int], Finding] = field(
        default_factory=dict[tuple[str, str, int], Finding]
    )
    views: list[View] = field(default_factory=list[View])
    """The texts looked at so far."""
    counts: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])

    def add(self, finding: Finding) -> None:
        """Keep a finding, or the graver of two at one place."""
        key = (finding.rule, finding.path, finding.line)
        known = self.found.get(key)
        if known:
            if LEVELS.index(finding.level) > LEVELS.index(known.level):
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


def examine(material: Material, *, limits: VettingLimits = DEFAULT_LIMITS) -> Report:
    """Look at everything within the limits; what lies behind them makes the report partial."""
    ledger = _Ledger(limits, is_partial=False)
    if material.is_partial:
        ledger.cut("files left out before")
    front = _front(material)
    setting = Setting(
        is_about_security=front.is_about_security and _size(material) > SHORT,
        subject=f"{front.name} {front.description} {material.folder}".lower(),
    )
    total = 0
    for file in _within(material, ledger):
        total += len(file.data)
        for hit in _hits_of_file(file, setting, ledger):
            ledger.add(hit)
    of_all = itertools.chain(
        unspoken(ledger.views, limits.program_bytes),
        standing_orders(ledger.views, setting),
        changed(ledger.views),
    )
    for view, hit in of_all:
        ledger.add(_finding(hit, view.path, view))
    for hit in front_hits(front, dict(itertools.islice(material.others.items(), limits.others))):
        ledger.add(_finding(hit, SKILL_MD, None))
    for finding in together(tuple(ledger.found.values()), front, _size(material)):
        ledger.add(finding)
    if ledger.is_partial:
        shown = visible(", ".join(ledger.reasons), MAX_EXCERPT)
        last = Finding(rule=PARTIAL, level="review", path=SKILL_MD, excerpt=shown)
        ledger.found[PARTIAL, SKILL_MD, 0] = last
    return Report(
        findings=tuple(sorted(ledger.found.values(), key=_order)),
        partial=ledger.is_partial,
        files=len(material.files),
        bytes=total,
    )


def _order(finding: Finding) -> tuple[int, str, str, int]:
    return (-LEVELS.index(finding.level), finding.rule, finding.path, finding.line)


def _front(material: Material) -> Presented:
    for file in material.files:
        if file.path.as_posix() == SKILL_MD:
            return presented(file.data)
    return Presented()


def _size(material: Material) -> int:
    return sum(len(file.data) for file in material.files)


def _within(material: Material, ledger: _Ledger) -> Iterator[File]:
    """The files that are looked at, SKILL.md and programs first."""
    total = 0
    for count, file in enumerate(sorted(material.files, key=_importance)):
        if count >= ledger.limits.files:
            ledger.cut("number of files")
            return
        total += len(file.data)
        if total > ledger.limits.total_bytes:
            ledger.cut("size of all files")
            return
        yield file


def _importance(file: File) -> tuple[bool, bool, str]:
    is_skill_md = file.path.as_posix() == SKILL_MD
    runs = is_program(file.path, file.data, executable=file.executable)
    return (not is_skill_md, not runs, str(file.path))


def _hits_of_file(file: File, setting: Setting, ledger: _Ledger) -> Iterator[Finding]:
    path = str(file.path)
    for hit in folder_hits(file):
        yield _finding(hit, path, None)
    limit = min(ledger.limits.file_bytes, ledger.limits.text_bytes - ledger.text_bytes)
    view = view_of(file, file.data[:limit])
    if view is None:
        return
    ledger.text_bytes += min(len(file.data), limit)
    ledger.views.append(view)
    if len(file.data) > limit:
        ledger.cut(f"size of {path}")
    found = itertools.chain(
        hidden(view, setting),
        hits(view, _PATTERNS, setting),
        units_of(view, setting),
        errands(view, setting),
        unnamed_hosts(view, setting),
        stepwise(view, setting),
        lookalikes(view, setting),
        rewritten(view),
        program_hits(view, setting, ledger.limits.program_bytes),
    )
    for hit in found:
        if hit.rule == PARTIAL:
            ledger.cut(hit.matched)
        else:
            yield _finding(hit, path, view)


def _finding(hit: Hit, path: str, view: View | None) -> Finding:
    shown = hit.matched
    if view is not None and hit.line and not (hit.rule in _DECODED and hit.matched):
        line = view.raw_lines[hit.line - 1]
        at = max(0, line.find(hit.matched[:40])) if hit.matched else 0
        shown = line[max(0, at - 40) :]
    if hit.rule in _MASKED:
        shown = shown.replace(hit.matched, f"{hit.matched[:6]}…")
    finding = Finding(
        rule=hit.rule,
        level=hit.level,
        path=path,
        line=hit.line,
        excerpt=visible(shown, MAX_EXCERPT),
    )
    if hit.rule in _DECODED and hit.matched:
        return replace(finding, details={"decoded": visible(hit.matched, MAX_EXCERPT)})
    return finding
