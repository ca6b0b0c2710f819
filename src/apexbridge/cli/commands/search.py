"""`find` and `index`: hybrid search, score explanations and index maintenance."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from apexbridge.cli.output import ExitCode, Output, sanitize
from apexbridge.cli.progress import progress_bar
from apexbridge.cli.runtime_call import with_runtime
from apexbridge.errors import RetrievalError
from apexbridge.retrieval.results import Hit, IndexStatus, ScoreParts, SearchResults, SyncReport
from apexbridge.runtime import Runtime

_BAR_WIDTH = 8
_NAMES_SHOWN = 10


def find(out: Output, *, query: str, en: str, zh: str, limit: int, explain: bool) -> None:
    """Print the best matches; no match is a result, not a failure."""

    async def search(runtime: Runtime) -> tuple[SearchResults, Mapping[str, str]]:
        with progress_bar(out) as watch:
            await runtime.index_service.sync(watch)
        results = await runtime.search(query, query_en=en or None, query_zh=zh or None, limit=limit)
        return results, {skill.name: skill.summary for skill in runtime.catalog.snapshot.skills}

    results, descriptions = with_runtime(out, search)
    threshold = out.config.settings.index.threshold

    def render() -> None:
        if results.problem is not None:
            _print_search_problem(out, results.problem)
        if not results.searched:
            out.line(out.text("no_skills"))
        elif not results.hits:
            out.note(out.text("find_empty_query"))
        elif results.confidence < threshold:
            out.note(out.text("find_weak_only"))
        if explain:
            for rank, hit in enumerate(results.hits, 1):
                _print_score_parts(out, rank, hit, _score(out, hit, threshold))
        elif results.hits:
            heads = [out.text(key) for key in ("rank", "name", "score", "description")]
            out.table(heads, _rows(out, results.hits, descriptions, threshold))

    found = {
        "query": query,
        "confidence": round(results.confidence, 4),
        "threshold": threshold,
        "hits": [
            {
                "rank": rank,
                "name": hit.name,
                "score": round(hit.score, 4),
                "match": hit.match(threshold),
                "alike": hit.alike,
                "kind": hit.kind,
                "description": descriptions.get(hit.name, ""),
                "parts": _parts(hit.parts),
            }
            for rank, hit in enumerate(results.hits, 1)
        ],
        "searched": results.searched,
        "problem": _as_json(out, results.problem),
    }
    out.finish(found, render, ExitCode.OK if results.searched else ExitCode.NOT_FOUND)


def _rows(
    out: Output, hits: Sequence[Hit], descriptions: Mapping[str, str], threshold: float
) -> Iterator[Sequence[str]]:
    for rank, hit in enumerate(hits, 1):
        # Before the description, of which a narrow terminal cuts the end.
        alike = out.text("find_alike", count=len(hit.alike)) + " " if hit.alike else ""
        text = alike + descriptions.get(hit.name, "")
        yield str(rank), hit.name, _score(out, hit, threshold), text


def _score(out: Output, hit: Hit, threshold: float) -> str:
    """Format the score; a weak match is a word, because "0.00" reads as "not this one"."""
    return _bar(hit.score) if hit.match(threshold) == "good" else out.text("find_weak")


def _bar(score: float) -> str:
    """Format a score as a bar and a number.

    >>> _bar(0.5)[-4:]
    '0.50'
    """
    is_wide = (sys.stdout.encoding or "").lower().startswith("utf")
    full, empty = ("█", "░") if is_wide else ("#", "-")
    filled = round(score * _BAR_WIDTH)
    return f"{full * filled}{empty * (_BAR_WIDTH - filled)} {_number(score)}"


def _number(value: float) -> str:
    return f"{value:.2f}"


def _percent(share: float) -> str:
    return f"{share:.0%}"


def _print_score_parts(out: Output, rank: int, hit: Hit, score: str) -> None:
    parts = hit.parts
    out.line(f"{rank}. {sanitize(hit.name)}  {score}")
    said = [
        out.text(
            "explain_meaning",
            meaning=f"{parts.meaning:+.1f}",
            dense=_number(parts.dense),
            view=_number(parts.view),
        ),
        out.text("explain_view", text=parts.view_text)
        if parts.view_text
        else out.text("explain_no_view"),
        out.text("explain_words", words=_words(parts), lexical=_percent(parts.lexical))
        if parts.words
        else out.text("explain_no_words"),
        *([out.text("explain_name", name=_percent(parts.name))] if parts.name else []),
        *([out.text("explain_clause", text=parts.clause)] if parts.clause else []),
        out.text("explain_usage", usage=_percent(parts.usage)),
        out.text(f"explain_language_{parts.language}"),
    ]
    if hit.alike:
        said.append(out.text("explain_alike", names=_first_names(hit.alike)))
    for line in said:
        out.line(f"   {line}")


def _words(parts: ScoreParts) -> str:
    return ", ".join(f"{word} {_percent(share)}" for word, share in parts.words.items())


def _parts(parts: ScoreParts) -> dict[str, object]:
    return {
        **{
            key: round(value, 4) if isinstance(value, float) else value
            for key, value in asdict(parts).items()
        },
        "words": {word: round(share, 4) for word, share in parts.words.items()},
    }


def _print_search_problem(out: Output, problem: RetrievalError) -> None:
    localized = problem.localized(out.language)
    out.note(out.text("keyword_search_only", message=localized.message))
    if localized.hint:
        out.note(f"{out.text('hint')}: {sanitize(localized.hint)}")


def _as_json(out: Output, problem: RetrievalError | None) -> dict[str, str] | None:
    if problem is None:
        return None
    localized = problem.localized(out.language)
    return {"code": problem.code, "message": localized.message, "hint": localized.hint}


def index_status(out: Output, *, is_thorough: bool = False) -> None:
    """Compare the index with the skills; `is_thorough` reads every entry."""
    found = with_runtime(out, lambda runtime: runtime.index_service.status(is_thorough=is_thorough))
    code = ExitCode.FINDINGS if is_thorough and not found.is_sound else ExitCode.OK
    data = {**asdict(found), "plan": found.plan}
    out.finish(data, lambda: _print_status(out, found), code)


def index_verify(out: Output) -> None:
    """Compare every index entry with the skills; a mismatch sets the exit code."""
    index_status(out, is_thorough=True)


def _print_status(out: Output, found: IndexStatus) -> None:
    out.line(out.text("index_embedder", name=found.embedder, dimensions=found.dimensions))
    out.line(out.text("index_store", store=found.store, path=found.path, bytes=found.bytes))
    out.line(out.text("index_rows", rows=found.rows, skills=found.skills))
    out.line(out.text("index_plan", **found.plan))
    for key, names in (
        ("index_missing", found.missing),
        ("index_stale", found.stale),
        ("index_orphaned", found.orphaned),
    ):
        if names:
            out.line(out.text(key, count=len(names), names=_first_names(names)))
    for problem in found.problems:
        out.line(f"  {sanitize(problem)}")
    if found.is_sound:
        out.line(out.text("index_current"))
    else:
        out.line(out.text("index_corrupted" if found.problems else "index_outdated"))


def _first_names(names: Sequence[str]) -> str:
    """Join the first few names."""
    return ", ".join(names[:_NAMES_SHOWN]) + (", …" if len(names) > _NAMES_SHOWN else "")


def index_rebuild(out: Output) -> None:
    """Rebuild every index entry; a skill that cannot be embedded is a failure."""

    async def rebuild(runtime: Runtime) -> SyncReport:
        with progress_bar(out) as watch:
            report = await runtime.index_service.sync(watch, everything=True)
        # Other commands leave model-generated tags to the server's background task.
        await runtime.index_service.tag_pending()
        return report

    report = with_runtime(out, rebuild)

    def render() -> None:
        made = len(report.added) + len(report.redone)
        out.line(out.text("index_rebuilt", count=made, dropped=len(report.dropped)))
        if report.failed:
            out.note(out.text("index_failed", names=_first_names(report.failed)))
        if report.problem is not None:
            _print_search_problem(out, report.problem)

    data = {
        "added": report.added,
        "redone": report.redone,
        "dropped": report.dropped,
        "pending": report.pending,
        "failed": report.failed,
        "problem": _as_json(out, report.problem),
    }
    out.finish(data, render, ExitCode.FAILURE if report.problem else ExitCode.OK)
