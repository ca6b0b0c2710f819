"""`eval`: retrieval metrics, trigger checks, skill overlap and description previews."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import anyio

from apexbridge.cli.output import ExitCode, Output, sanitize
from apexbridge.cli.progress import progress_bar
from apexbridge.cli.runtime_call import with_runtime
from apexbridge.errors import SkillInvalidError
from apexbridge.evals import interference, trigger_eval
from apexbridge.evals.corpus import CorpusSkill, EvalQuery, read_corpus, read_queries
from apexbridge.evals.retrieval_eval import (
    Metrics,
    RetrievalReport,
    build_index,
    evaluate,
    with_skill_text,
)
from apexbridge.retrieval.index import SkillIndex
from apexbridge.runtime import Runtime
from apexbridge.runtime.description_preview import preview_description, skill_text
from apexbridge.runtime.embedder_factory import create_embedder
from apexbridge.skills.model import Origin, Skill
from apexbridge.skills.parser import read_skill
from apexbridge.sources.base import SkillSource
from apexbridge.sources.folders import FolderSource


def eval_retrieval(out: Output, *, corpus: Path, queries: Path, limit: int) -> None:
    """Evaluate the configured embedder on a corpus and its queries."""
    skills = read_corpus(corpus)
    asked = read_queries(queries, {skill.id for skill in skills})
    report = anyio.run(_measure, out, skills, asked.queries, limit)

    def render() -> None:
        groups = [(out.text("all"), report.figures)]
        groups += [(out.text(key), part) for key, part in report.by_language.items()]
        heads = [out.text("language"), out.text("queries"), "hit@1", "recall@5", "recall@10"]
        heads += [f"mrr@{report.depth}", "median ms", "p95 ms"]
        out.table(heads, [_row(name, figures) for name, figures in groups])
        out.note(out.text("eval_skills", count=report.skills))
        if asked.unknown_accepts:
            out.note(out.text("eval_unknown", count=asked.unknown_accepts))

    measured = {
        **_figures(report.figures),
        "skills": report.skills,
        "depth": report.depth,
        "unknown_accepts": asked.unknown_accepts,
        "by_language": {key: _figures(part) for key, part in report.by_language.items()},
    }
    out.finish(measured, render)


async def _measure(
    out: Output, skills: Sequence[CorpusSkill], queries: Sequence[EvalQuery], limit: int
) -> RetrievalReport:
    embedder = create_embedder(out.config.settings.index, out.config)
    try:
        with progress_bar(out) as watch:
            index = await build_index(skills, embedder, watch=watch)
        return await evaluate(index, queries, limit=limit)
    finally:
        await embedder.close()


def _row(name: str, figures: Metrics) -> list[str]:
    shares = (figures.hit_at_1, figures.recall_at_5, figures.recall_at_10, figures.mrr)
    times = (figures.latency_ms.median, figures.latency_ms.p95)
    return [
        name,
        str(figures.count),
        *(f"{share:.3f}" for share in shares),
        *(f"{time:.1f}" for time in times),
    ]


def _figures(figures: Metrics) -> dict[str, object]:
    return {
        "hit@1": round(figures.hit_at_1, 4),
        "recall@5": round(figures.recall_at_5, 4),
        "recall@10": round(figures.recall_at_10, 4),
        "mrr": round(figures.mrr, 4),
        "latency_ms": {key: round(time, 3) for key, time in asdict(figures.latency_ms).items()},
        "queries": figures.count,
    }


def eval_triggers(out: Output, *, skills: Sequence[str], limit: int) -> None:
    """Evaluate the trigger queries in each skill's folder."""
    reports = anyio.run(_try_all, out, skills, limit)
    failed = any(not one.passed for report in reports for one in report.queries)

    def render() -> None:
        for report in reports:
            out.line(sanitize(report.name))
            heads = [out.text(key) for key in ("result", "rank", "score", "margin", "query")]
            out.table(heads, [_outcome(out, one) for one in report.queries])
            totals = {key: _number(share) for key, share in _shares(report).items()}
            out.line(out.text("trigger_totals", count=len(report.queries), **totals))

    tried = [
        {
            **asdict(report),
            "queries": [{**asdict(one), "passed": one.passed} for one in report.queries],
            **_shares(report),
        }
        for report in reports
    ]
    out.finish({"skills": tried}, render, ExitCode.FINDINGS if failed else ExitCode.OK)


def _shares(report: trigger_eval.TriggerReport) -> dict[str, float | None]:
    return {key: getattr(report, key) for key in ("accuracy", "precision", "recall")}


def _outcome(out: Output, one: trigger_eval.TriggerResult) -> list[str]:
    key = f"trigger_{'pass' if one.passed else 'fail'}_{'yes' if one.should_trigger else 'no'}"
    return [
        out.text(key),
        str(one.rank or "-"),
        _number(one.score),
        "-" if one.margin is None else f"{one.margin:+.2f}",
        one.query,
    ]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


async def _try_all(
    out: Output, wanted: Sequence[str], limit: int
) -> list[trigger_eval.TriggerReport]:
    threshold = out.config.settings.index.threshold
    async with Runtime.open(out.config) as runtime:
        index = await _index(out, runtime)
        reports = list[trigger_eval.TriggerReport]()
        for written in wanted:
            skill, source = _resolve(runtime, written)
            queries = await trigger_eval.saved_queries(source, skill)
            among = index
            if skill not in runtime.catalog.snapshot.skills:
                text = await skill_text(skill, source, has_tags=runtime.config.settings.index.tags)
                among = await with_skill_text(index, text)
            reports.append(
                await trigger_eval.evaluate_triggers(
                    among, skill.name, queries, limit=limit, threshold=threshold
                )
            )
        return reports


async def _index(out: Output, runtime: Runtime) -> SkillIndex:
    with progress_bar(out) as watch:
        await runtime.index_service.sync(watch)
    return await runtime.index_service.index()


def _resolve(runtime: Runtime, written: str) -> tuple[Skill, SkillSource]:
    """Resolve an argument to an installed skill by name, or to the skill in a folder."""
    names = {skill.name for skill in runtime.catalog.snapshot.skills}
    is_folder = os.sep in written or (written not in names and Path(written).is_dir())
    return _in_folder(runtime, Path(written)) if is_folder else _by_name(runtime, written)


def _by_name(runtime: Runtime, name: str) -> tuple[Skill, SkillSource]:
    skill = runtime.catalog.get(name)
    return skill, runtime.catalog.source_of(skill).source


def _in_folder(runtime: Runtime, folder: Path) -> tuple[Skill, SkillSource]:
    root = folder.resolve()
    for known in runtime.catalog.snapshot.skills:
        if known.root is not None and known.root.resolve() == root:
            return _by_name(runtime, known.name)
    source = FolderSource(root.parent, Origin.ADDITIONAL)
    reading = read_skill(root, source.provenance)
    if reading.skill is None:
        raise SkillInvalidError(str(folder), reading.problems)
    return reading.skill, source


def eval_coexistence(out: Output) -> None:
    """Print which skills outrank others on their own queries, and near duplicates."""

    async def measure(runtime: Runtime) -> interference.CoexistenceReport:
        index = await _index(out, runtime)
        with progress_bar(out, "comparing") as watch:
            return await interference.measure_coexistence(index, watch=watch)

    found = with_runtime(out, measure)

    def render() -> None:
        out.note(out.text("coexist_queries", skills=found.skills, queries=found.queries))
        if not found.thefts:
            out.line(out.text("coexist_none"))
        else:
            out.table(
                [out.text(key) for key in ("owner", "outranked_by", "queries")], _thefts(found)
            )
        if found.alike:
            heads = [out.text(key) for key in ("near_duplicate", "near_duplicate_of", "cosine")]
            out.table(heads, [(p.one, p.other, f"{p.cosine:.3f}") for p in found.alike])

    data = {
        "skills": found.skills,
        "queries": found.queries,
        "matrix": found.matrix,
        "thefts": [asdict(theft) for theft in found.thefts],
        "alike": [{**asdict(pair), "cosine": round(pair.cosine, 4)} for pair in found.alike],
    }
    out.finish(data, render)


def _thefts(found: interference.CoexistenceReport) -> Iterator[Sequence[str]]:
    for owner, row in found.matrix.items():
        for thief, count in row.items():
            yield owner, thief, str(count)


def eval_preview(out: Output, *, skill: str, description: str) -> None:
    """Print how another description would change the ranks."""

    async def preview(runtime: Runtime) -> interference.DescriptionPreview:
        with progress_bar(out) as watch:
            return await preview_description(runtime, skill, description, watch=watch)

    found = with_runtime(out, preview)

    def render() -> None:
        heads = [out.text(key) for key in ("before", "after", "from", "query")]
        rows = [
            (str(s.before or "-"), str(s.after or "-"), out.text(f"preview_{s.kind}"), s.query)
            for s in found.shifts
        ]
        out.table(heads, rows)
        if found.others:
            heads = [out.text(key) for key in ("other_skill", "ranks_lost", "ranks_gained")]
            out.table(heads, [(o.name, str(o.lost), str(o.gained)) for o in found.others])
        else:
            out.line(out.text("preview_no_others"))

    out.finish(asdict(found), render)
