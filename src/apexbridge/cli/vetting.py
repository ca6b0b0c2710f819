"""`scan`: what looks dangerous in skills."""

import json
import tempfile
from pathlib import Path

import anyio

from apexbridge.cli.output import Exit, Out, visible
from apexbridge.errors import SkillNotFoundError
from apexbridge.lifecycle.archive import extract
from apexbridge.lifecycle.vet import vet
from apexbridge.runtime import Runtime
from apexbridge.vetting import words
from apexbridge.vetting.report import Report
from apexbridge.vetting.rulebook import LEVELS, Level

Known = dict[str, tuple[str, Path | None]]


def scan(out: Out, targets: list[str], *, fail_at: Level, as_sarif: bool) -> None:
    """Look at each target, and fail if one is as bad as `fail_at` or worse."""
    known = anyio.run(_known, out)
    reports = {target: _report(target, known) for target in targets}
    gravest = [worst for report in reports.values() if (worst := report.worst()) is not None]
    is_bad = any(LEVELS.index(level) >= LEVELS.index(fail_at) for level in gravest)

    def render() -> None:
        if as_sarif:
            out.line(json.dumps(next(iter(reports.values())).to_sarif(), ensure_ascii=False))
            return
        for target, report in reports.items():
            if report.findings:
                out.line(f"{visible(target)}:")
            say_findings(out, target, report)
        out.line(words.notice(out.language))

    data = {target: report.to_json(out.language) for target, report in reports.items()}
    out.finish({"reports": data}, render, Exit.FINDINGS if is_bad else Exit.OK)


async def _known(out: Out) -> Known:
    async with Runtime.open(out.loaded) as runtime:
        return {skill.name: (skill.summary, skill.root) for skill in runtime.catalog.skills}


def _report(target: str, known: Known) -> Report:
    """A folder or a zip where there is one, else a skill of that name."""
    others = {name: summary for name, (summary, _) in known.items()}
    path = Path(target)
    if path.is_dir():
        return vet(path.resolve(), others)
    if path.is_file():
        with tempfile.TemporaryDirectory(prefix="apexbridge-") as place:
            new = Path(place) / "new"
            new.mkdir()
            plan = extract(path, new)
            root = new.rename(Path(place) / plan.folder)
            return vet(root, others)
    root = known.get(target, ("", None))[1]
    if root is None:
        raise SkillNotFoundError(target)
    return vet(root, others)


def say_findings(out: Out, name: str, report: Report) -> None:
    """The findings as people read them, the gravest first."""
    if not report.findings:
        out.line(out.word("scan_nothing", name=name))
    for finding in report.findings:
        said = finding.said(out.language)
        place = f"{finding.path}:{finding.line}" if finding.line else finding.path
        level = out.word(f"level_{finding.level}")
        out.line(f"  {finding.rule}  {level}  {visible(place)}  {said.title}")
        if finding.excerpt:
            out.line(f"      {visible(finding.excerpt)}")
    if report.partial:
        out.line(out.word("scan_partial", name=name))
