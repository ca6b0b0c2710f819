"""Trigger evaluation: precision and recall of offering a skill, without any model call."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from apexbridge.errors import EvalInputError, SourceError
from apexbridge.evals.corpus import MAX_LINE, validation_summary
from apexbridge.evals.retrieval_eval import first_rank, search_index
from apexbridge.retrieval.index import SkillIndex
from apexbridge.skills.model import Skill
from apexbridge.sources.base import SkillSource

QUERY_FILES = (PurePosixPath("evals/eval_queries.json"), PurePosixPath("eval_queries.json"))
"""Paths of a skill's saved queries; the first existing one is used."""
LIMIT = 5
THRESHOLD = 0.5
_DEPTH = 50
"""Maximum reported rank."""
_BOM = b"\xef\xbb\xbf"


class TriggerQuery(BaseModel):
    """A query, and whether the skill should be offered for it."""

    model_config = ConfigDict(frozen=True, strict=True)

    query: str = Field(min_length=1, validation_alias=AliasChoices("query", "prompt"))
    should_trigger: bool = Field(validation_alias=AliasChoices("should_trigger", "expected"))


class _Wrapped(BaseModel):
    model_config = ConfigDict(strict=True)

    queries: list[TriggerQuery]


_LIST = TypeAdapter(list[TriggerQuery])


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerResult:
    """Result of one query.

    `margin` is the distance of the score to the best other skill's. Beyond the first fifty hits,
    `rank`, `score` and `margin` are None.
    """

    query: str
    should_trigger: bool
    triggered: bool
    rank: int | None
    score: float | None
    margin: float | None
    confidence: float

    @property
    def passed(self) -> bool:
        """Say whether the skill triggered as expected."""
        return self.triggered == self.should_trigger


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerReport:
    """Results of all queries of a skill; a ratio with an empty denominator is None."""

    name: str
    limit: int
    threshold: float
    queries: tuple[TriggerResult, ...]

    @property
    def accuracy(self) -> float | None:
        """Ratio of queries with the expected outcome."""
        return _ratio([one.passed for one in self.queries])

    @property
    def precision(self) -> float | None:
        """Ratio of true positives among triggered queries."""
        return _ratio([one.should_trigger for one in self.queries if one.triggered])

    @property
    def recall(self) -> float | None:
        """Ratio of true positives among queries that should trigger."""
        return _ratio([one.triggered for one in self.queries if one.should_trigger])


def _ratio(flags: Sequence[bool]) -> float | None:
    return sum(flags) / len(flags) if flags else None


async def saved_queries(source: SkillSource, skill: Skill) -> tuple[TriggerQuery, ...]:
    """Read the queries saved in a skill's folder, through its source.

    Raises:
        EvalInputError: If there are none, or they are malformed.
    """
    reasons = list[str]()
    for path in QUERY_FILES:
        try:
            resource = await source.resource(skill, path)
        except SourceError as error:
            reasons.append(str(error.details["detail"]))
        else:
            return parse_queries(resource.data, path=f"{skill.name}/{path}")
    raise EvalInputError("; ".join(reasons), code="eval_queries_missing", path=skill.name)


async def positive_queries(source: SkillSource, skill: Skill) -> Sequence[str]:
    """Return the saved queries that should trigger a skill; a skill need not have any.

    Raises:
        EvalInputError: If they are malformed.
    """
    try:
        queries = await saved_queries(source, skill)
    except EvalInputError as error:
        if error.code != "eval_queries_missing":
            raise
        return ()
    return [query.query for query in queries if query.should_trigger]


def parse_queries(raw: bytes, *, path: str) -> tuple[TriggerQuery, ...]:
    """Parse a JSON list of queries, or an object with one as `queries`.

    Raises:
        EvalInputError: If the JSON is neither.
    """
    if len(raw) > MAX_LINE:
        raise EvalInputError(f"more than {MAX_LINE} bytes", path=path)
    text = raw.removeprefix(_BOM)
    try:
        if text.lstrip().startswith(b"{"):
            queries = _Wrapped.model_validate_json(text).queries
        else:
            queries = _LIST.validate_json(text)
    except ValidationError as error:
        raise EvalInputError(validation_summary(error), path=path) from None
    if not queries:
        raise EvalInputError(code="eval_input_empty", path=path)
    return tuple(queries)


async def evaluate_triggers(
    index: SkillIndex,
    name: str,
    queries: Sequence[TriggerQuery],
    *,
    limit: int = LIMIT,
    threshold: float = THRESHOLD,
) -> TriggerReport:
    """Search every query: the skill triggers in the top `limit` at sufficient confidence."""
    found = [await _evaluate_query(index, name, query, limit, threshold) for query in queries]
    return TriggerReport(name=name, limit=limit, threshold=threshold, queries=tuple(found))


async def _evaluate_query(
    index: SkillIndex, name: str, query: TriggerQuery, limit: int, threshold: float
) -> TriggerResult:
    # Deeper than the limit, so that a report shows by how much a skill misses it.
    results = await search_index(index, query.query, limit=max(limit, _DEPTH))
    rank = first_rank(results.hits, [name])
    score = results.hits[rank - 1].score if rank else None
    best_other = max((hit.score for hit in results.hits if hit.name != name), default=0.0)
    return TriggerResult(
        query=query.query,
        should_trigger=query.should_trigger,
        triggered=rank is not None and rank <= limit and results.confidence >= threshold,
        rank=rank,
        score=score,
        margin=None if score is None else score - best_other,
        confidence=results.confidence,
    )
