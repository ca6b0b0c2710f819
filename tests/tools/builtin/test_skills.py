"""SkillSearch: wordings in both languages, weak matches and near duplicates."""

from pathlib import Path
from typing import Any

import pytest

from apexbridge.retrieval.index import SkillIndex
from apexbridge.retrieval.results import Hit, ScoreParts, SearchResults, SearchScope
from apexbridge.testing import make_skill
from apexbridge.tools.builtin.skills import MAX_REQUEST_CHARS, SearchArguments
from tests.agent.agent_fixture import calls, open_agent, says

pytestmark = pytest.mark.anyio

Searched = list[tuple[str, dict[str, Any]]]
SKILLS_FOLDED = SearchScope(kinds=frozenset({"skill"}), folds_alike=True)


def _answer(monkeypatch: pytest.MonkeyPatch, *hits: Hit) -> Searched:
    """Let the index return these hits; return the list of its searches."""
    seen: Searched = []
    confidence = hits[0].score if hits else 0.0

    async def search(_: SkillIndex, query: str, **more: Any) -> SearchResults:
        seen.append((query, more))
        return SearchResults(hits=hits, confidence=confidence, searched=9)

    monkeypatch.setattr(SkillIndex, "search", search)
    return seen


def _hit(name: str, score: float, *alike: str) -> Hit:
    return Hit(name=name, score=score, parts=ScoreParts(), alike=alike)


async def test_both_wordings_are_added_to_the_query(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = _answer(monkeypatch)
    wordings = {"query": "kopier csv", "query_en": "copy a CSV file", "query_zh": "复制 CSV 文件"}
    async with open_agent(home) as at:
        properties = at.runtime.chat_service.registry.get("SkillSearch")
        assert properties is not None
        assert {"query_en", "query_zh"} <= set(properties.spec.input_schema["properties"])
        assert properties.spec.input_schema["required"] == ["query"]
        await at.ask("Kopier den", calls(("SkillSearch", wordings)), says("."))
    query, more = seen[-1]
    assert query == "kopier csv"
    assert (more["query_en"], more["query_zh"]) == ("copy a CSV file", "复制 CSV 文件")


async def test_the_users_own_words_are_added_where_a_wording_is_missing(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = _answer(monkeypatch)
    async with open_agent(home) as at:
        await at.ask("把表格汇总一下", calls(("SkillSearch", {"query": "sum a table"})), says("."))
    assert seen[-1] == (
        "sum a table",
        {"query_en": None, "query_zh": "把表格汇总一下", "limit": 5, "scope": SKILLS_FOLDED},
    )


@pytest.mark.parametrize(
    ("request_text", "expected"),
    [
        ("Sum it up", {"query_en": "Sum it up", "query_zh": "求和"}),
        ("求一下和", {"query_en": None, "query_zh": "求和"}),  # the model's wording stays
        ("sum", {"query_en": None, "query_zh": "求和"}),  # equal to the query
        (" ", {"query_en": None, "query_zh": "求和"}),
        ("word " * MAX_REQUEST_CHARS, {"query_en": None, "query_zh": "求和"}),
    ],
)
def test_a_request_takes_only_an_empty_place(request_text: str, expected: object) -> None:
    arguments = SearchArguments(query="sum", query_zh="求和")
    assert arguments.wordings(request_text) == expected


async def test_weak_matches_are_named_in_plain_words(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        make_skill(home / ".claude/skills", name, description=f"Text of {name}.")
    search = calls(("SkillSearch", {"query": "x"}))
    async with open_agent(home) as at:
        _answer(monkeypatch, _hit("one", 0.004), _hit("two", 0.0))
        await at.ask("x", search, says("."))
        _answer(monkeypatch, _hit("one", 0.5), _hit("two", 0.499))
        await at.ask("x", search, says("."))
        _answer(monkeypatch)
        await at.ask("x", search, says("."))
        weak, good, none = await at.results()
    assert weak.splitlines() == [
        "No clear match; the nearest are:",
        "- one (weak match): Text of one.",
        "- two (weak match): Text of two.",
    ]
    assert good.splitlines() == [
        "Confidence that any of them fits: 0.50",
        "- one (0.50): Text of one.",
        "- two (weak match): Text of two.",
    ]
    assert none == "No skill was found."


async def test_near_duplicates_are_named_unless_they_are_hidden(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("denied", "first", "second"):
        make_skill(home / ".claude/skills", name, description="Does the same.")
    make_skill(home / ".claude/skills", "mine", disable_model_invocation=True)
    _answer(monkeypatch, _hit("denied", 0.9, "mine", "first", "second", "unknown"))
    search = calls(("SkillSearch", {"query": "x"}))
    async with open_agent(home, permissions__deny=["Skill(denied)"]) as at:
        await at.ask("x", search, says("."))
        (text,) = await at.results()
        fates = [(one["name"], one["fate"]) for one in at.record()["candidates"]]
    assert text.splitlines()[1:] == ["- first (0.90): Does the same. (alike: second)"]
    assert fates == [("first", "offered")]
