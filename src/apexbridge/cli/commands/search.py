"""`find` and `index`: hybrid search, score explanations and index maintenance."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

import anyio
import typer

from apexbridge.cli.options import Json, Quiet
from apexbridge.cli.output import ExitCode, Output, command_output, sanitize
from apexbridge.cli.progress import progress_bar
from apexbridge.errors import RetrievalError
from apexbridge.retrieval.results import Hit, IndexStatus, ScoreParts, SearchResults, SyncReport
from apexbridge.runtime import Runtime

_BAR_WIDTH = 8
_NAMES_SHOWN = 10


app = typer.Typer()
index_app = typer.Typer(
    help="Inspect and rebuild the search index.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(index_app, name="index")


@app.command()
def find(
    context: typer.Context,
    query: Annotated[str, typer.Argument(help="The task, in natural language.")],
    en: Annotated[str, typer.Option(metavar="TEXT", help="The query in English.")] = "",
    zh: Annotated[str, typer.Option(metavar="TEXT", help="The query in Chinese.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="Number of skills to show.")] = 5,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show the components of each score.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Search skills by meaning and keywords, in English or Chinese."""
    with command_output(context, json=json, quiet=quiet) as out:
        request = SearchRequest(query=query, english=en, chinese=zh, limit=limit)
        _find(out, request, explain=explain)


@index_app.command("status")
def index_status(context: typer.Context, json: Json = False, quiet: Quiet = False) -> None:
    """Compare the index with the skills by name and hash."""
    with command_output(context, json=json, quiet=quiet) as out:
        found = anyio.run(_status, out, False)
        out.finish(asdict(found), lambda: _print_status(out, found))


@index_app.command("verify")
def index_verify(context: typer.Context, json: Json = False, quiet: Quiet = False) -> None:
    """Read every index entry and compare it with the skills; exit 8 on a mismatch."""
    with command_output(context, json=json, quiet=quiet) as out:
        found = anyio.run(_status, out, True)
        code = ExitCode.OK if found.is_sound else ExitCode.FINDINGS
        out.finish(asdict(found), lambda: _print_status(out, found), code)


@index_app.command("rebuild")
def index_rebuild(context: typer.Context, json: Json = False, quiet: Quiet = False) -> None:
    """Rebuild every index entry."""
    with command_output(context, json=json, quiet=quiet) as out:
        _rebuild_index(out)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRequest:
    """A query, with optional translations into English and Chinese."""

    query: str
    english: str
    chinese: str
    limit: int


def _find(out: Output, request: SearchRequest, *, explain: bool) -> None:
    """Print the best matches; no match is a result, not a failure."""
    results, descriptions = anyio.run(_search, out, request)
    threshold = out.config.settings.index.threshold

    def render() -> None:
        if results.problem is not None:
            _print_search_problem(out, results.problem)
        if not results.searched:
            out.line(out.text("no_skills"))
        elif not results.hits:
            out.note(out.text("find_empty_query"))
        elif results.confidence < threshold:
            sure, least = _number(results.confidence), _number(threshold)
            out.note(out.text("find_low_confidence", confidence=sure, threshold=least))
        if explain:
            for rank, hit in enumerate(results.hits, 1):
                _print_score_parts(out, rank, hit)
        elif results.hits:
            heads = [out.text(key) for key in ("rank", "name", "score", "description")]
            out.table(heads, _rows(results.hits, descriptions))

    found = {
        "query": request.query,
        "confidence": round(results.confidence, 4),
        "threshold": threshold,
        "hits": [
            {
                "rank": rank,
                "name": hit.name,
                "score": round(hit.score, 4),
                "description": descriptions.get(hit.name, ""),
                "parts": _parts(hit.parts),
            }
            for rank, hit in enumerate(results.hits, 1)
        ],
        "searched": results.searched,
        "problem": _as_json(out, results.problem),
    }
    out.finish(found, render, ExitCode.OK if results.searched else ExitCode.NOT_FOUND)


async def _search(out: Output, request: SearchRequest) -> tuple[SearchResults, Mapping[str, str]]:
    async with Runtime.open(out.config) as runtime:
        with progress_bar(out) as watch:
            await runtime.index_service.sync(watch)
        results = await runtime.search(
            request.query,
            query_en=request.english or None,
            query_zh=request.chinese or None,
            limit=request.limit,
        )
        return results, {skill.name: skill.summary for skill in runtime.catalog.snapshot.skills}


def _rows(hits: Sequence[Hit], descriptions: Mapping[str, str]) -> Iterator[Sequence[str]]:
    for rank, hit in enumerate(hits, 1):
        yield str(rank), hit.name, _bar(hit.score), descriptions.get(hit.name, "")


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


def _print_score_parts(out: Output, rank: int, hit: Hit) -> None:
    parts = hit.parts
    out.line(f"{rank}. {sanitize(hit.name)}  {_bar(hit.score)}")
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
        out.text("explain_usage", usage=_percent(parts.usage)),
        out.text(f"explain_language_{parts.language}"),
    ]
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


async def _status(out: Output, is_thorough: bool) -> IndexStatus:
    async with Runtime.open(out.config) as runtime:
        return await runtime.index_service.status(is_thorough=is_thorough)


def _print_status(out: Output, found: IndexStatus) -> None:
    out.line(out.text("index_embedder", name=found.embedder, dimensions=found.dimensions))
    out.line(out.text("index_store", store=found.store, path=found.path, bytes=found.bytes))
    out.line(out.text("index_rows", rows=found.rows, skills=found.skills))
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


def _rebuild_index(out: Output) -> None:
    """Rebuild every index entry; a skill that cannot be embedded is a failure."""
    report = anyio.run(_rebuild, out)

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


async def _rebuild(out: Output) -> SyncReport:
    async with Runtime.open(out.config) as runtime:
        with progress_bar(out) as watch:
            report = await runtime.index_service.sync(watch, everything=True)
        # Other commands leave model-generated tags to the server's background task.
        await runtime.index_service.tag_pending()
        return report
