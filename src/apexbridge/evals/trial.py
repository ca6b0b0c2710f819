"""Asking an index for an evaluation: whole answers only, and skills tried without storing them."""

from collections.abc import Iterable, Sequence

from apexbridge.retrieval.base import Entry
from apexbridge.retrieval.embedders.checked import embed_checked
from apexbridge.retrieval.fuse import Fusion
from apexbridge.retrieval.index import SkillIndex
from apexbridge.retrieval.results import Hit, Results
from apexbridge.retrieval.text import SkillText, digest


async def ask(
    index: SkillIndex,
    query: str,
    *,
    limit: int,
    others: Sequence[str | None] = (None, None),
    fusion: Fusion | None = None,
) -> Results:
    """Search; `others` are the request in English and in Chinese.

    Raises:
        RetrievalError: If the embedder fails. Figures without vectors would be of another search.
    """
    english, chinese = others
    results = await index.search(
        query, query_en=english, query_zh=chinese, limit=limit, fusion=fusion
    )
    if results.problem is not None:
        raise results.problem
    return results


async def with_text(index: SkillIndex, text: SkillText) -> SkillIndex:
    """A copy of the index in which a skill has this text; what is stored stays as it is.

    Raises:
        RetrievalError: If the embedder fails.
    """
    cut = digest(text, views=index.views)
    texts = (cut.whole, *cut.views)
    entry = Entry(
        name=text.name,
        fingerprint="",
        texts=texts,
        vectors=await embed_checked(index.embedder, texts, kind="document"),
        terms=cut.terms,
        counts=cut.counts,
    )
    return await index.with_entry(entry)


def rank_of(hits: Iterable[Hit], names: Iterable[str]) -> int | None:
    """Where the first of the names stands, counted from 1; None if nowhere."""
    wanted = frozenset(names)
    places = (place for place, hit in enumerate(hits, 1) if hit.name in wanted)
    return next(places, None)
