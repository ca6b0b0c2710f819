"""`scan`: run the security scanner over skills."""

import json
import tempfile
from pathlib import Path

import anyio

from apexbridge.cli.output import ExitCode, Output, sanitize
from apexbridge.errors import SkillNotFoundError
from apexbridge.lifecycle.scan_folder import scan_folder
from apexbridge.lifecycle.zip.archive import extract_archive
from apexbridge.runtime import Runtime
from apexbridge.scanner.report import DISCLAIMERS, Report
from apexbridge.scanner.rules import RISK_LEVELS, RiskLevel

Known = dict[str, tuple[str, Path | None]]


def scan(out: Output, *, targets: list[str], fail_at: RiskLevel, sarif: bool) -> None:
    """Scan each target; findings of level `fail_at` or higher set the exit code."""
    known = anyio.run(_installed_skills, out)
    reports = {target: _report(target, known) for target in targets}
    gravest = [worst for report in reports.values() if (worst := report.worst()) is not None]
    is_bad = any(RISK_LEVELS.index(level) >= RISK_LEVELS.index(fail_at) for level in gravest)

    def render() -> None:
        if sarif:
            out.line(json.dumps(next(iter(reports.values())).to_sarif(), ensure_ascii=False))
            return
        for target, report in reports.items():
            if report.findings:
                out.line(f"{sanitize(target)}:")
            print_findings(out, target, report)
        out.line(DISCLAIMERS[out.language])

    data = {target: report.to_json(out.language) for target, report in reports.items()}
    out.finish({"reports": data}, render, ExitCode.FINDINGS if is_bad else ExitCode.OK)


async def _installed_skills(out: Output) -> Known:
    async with Runtime.open(out.config) as runtime:
        return {skill.name: (skill.summary, skill.root) for skill in runtime.catalog.skills}


def _report(target: str, known: Known) -> Report:
    """Scan a folder, a zip, or else the skill of that name."""
    others = {name: summary for name, (summary, _) in known.items()}
    path = Path(target)
    if path.is_dir():
        return scan_folder(path.resolve(), others)
    if path.is_file():
        with tempfile.TemporaryDirectory(prefix="apexbridge-") as place:
            new = Path(place) / "new"
            new.mkdir()
            plan = extract_archive(path, new)
            # Findings depend on the folder name: it must be the one in the archive.
            root = new.rename(Path(place) / plan.folder)
            return scan_folder(root, others)
    root = known.get(target, ("", None))[1]
    if root is None:
        raise SkillNotFoundError(target)
    return scan_folder(root, others)


def print_findings(out: Output, name: str, report: Report) -> None:
    """Print findings, highest risk level first."""
    if not report.findings:
        out.line(out.text("scan_nothing", name=name))
    for finding in report.findings:
        localized = finding.localized(out.language)
        place = f"{finding.path}:{finding.line}" if finding.line else finding.path
        level = out.text(f"level_{finding.level}")
        out.line(f"  {finding.rule}  {level}  {sanitize(place)}  {localized.title}")
        if finding.excerpt:
            out.line(f"      {sanitize(finding.excerpt)}")
    if report.partial:
        out.line(out.text("scan_partial", name=name))
