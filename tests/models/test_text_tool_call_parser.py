"""Text tool call parser: strict, and independent of chunk boundaries."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apexbridge.models.text_tool_calls.parser import ParsedReply, ReplyStreamParser, parse_reply

NAMES = frozenset({"Read", "Now"})
READ = '{"path": "a.txt"}'


def _streamed(said: str, *cuts: int) -> tuple[str, str, ParsedReply]:
    """All text and thoughts that are shown on the way and at the end."""
    parser = ReplyStreamParser(NAMES)
    places = [0, *sorted(cuts), len(said)]
    pieces = [said[start:end] for start, end in pairwise(places)]
    shown = [delta for piece in pieces if (delta := parser.feed(piece)) is not None]
    parsed = parser.finish()
    assert parser.raw == said
    text = "".join(delta.text for delta in shown) + parsed.text
    reasoning = "".join(delta.reasoning for delta in shown) + parsed.reasoning
    return text, reasoning, parsed


def _letter_by_letter(said: str) -> tuple[str, str, ParsedReply]:
    return _streamed(said, *range(1, len(said)))


CALLS = [
    '{"tool": "Read", "arguments": {"path": "a.txt"}}',
    '\n {"tool":"Read","arguments":{"path":"a.txt"}} \n',
    '```json\n{"tool": "Read", "arguments": {"path": "a.txt"}}\n```',
    '```\n{"tool": "read", "arguments": {"path": "a.txt"}}\n```\nThen I will see.',
    '<tool_call>\n{"name": "Read", "arguments": {"path": "a.txt"}}\n</tool_call>',
    '{"action": "Read", "input": {"path": "a.txt"}}',
    '{"name": "Read", "parameters": "{\\"path\\": \\"a.txt\\"}"}',
    '[{"tool": "Read", "args": {"path": "a.txt"}}, {"tool": "Now"}]',
    "｛“tool”：“Read”，“arguments”：｛“path”：“a.txt”｝｝",
    "{“tool”: “Read”, “arguments”: {“path”: “a.txt”}}。",
    'Thought: I need the file.\nAction: {"tool": "Read", "arguments": {"path": "a.txt"}}',
    '思考：我需要这个文件。\n{"tool": "Read", "arguments": {"path": "a.txt"}}',
    '<think>a {"tool": "Now"} maybe</think>{"tool": "Read", "arguments": {"path": "a.txt"}}',
    'I will read it.\n\n{"tool": "Read", "arguments": {"path": "a.txt"}}',
    'I will read it.\n```json\n{"tool": "Read", "arguments": {"path": "a.txt"}}\n```\n',
    '{"tool": "Read", "arguments": {"path": "a.txt"}}\n{"tool": "Now", "arguments": {}}',
    '{"tool": "Read", "arguments": {"path": "a.txt"}}\nResult: it says hello.',
]


@pytest.mark.parametrize("said", CALLS)
def test_a_call_is_parsed_in_any_markup(said: str) -> None:
    for text, _, parsed in (_streamed(said), _letter_by_letter(said)):
        assert (parsed.tool, json.loads(parsed.arguments)) == ("Read", json.loads(READ))
        assert text.strip() in {"", "I will read it."}
        assert parsed.problem == ""


def test_reasoning_before_a_call_is_no_text() -> None:
    said = 'Thought: look first\nAction: {"tool": "Now", "arguments": {}}'
    assert _streamed(said)[:2] == ("", "look first")
    assert _letter_by_letter("<think>hm, so</think>\nIt is a cat.")[:2] == (
        "It is a cat.",
        "hm, so",
    )
    assert _letter_by_letter("<think>for ever")[:2] == ("", "for ever")
    said = "Thought: easy\nFinal Answer: 84"
    assert _streamed(said)[:2] == ("84", "easy")


ANSWERS = [
    ("It is 84.", "It is 84."),
    ("  \n It is 84.", "It is 84."),
    ('{"answer": "It is 84."}', "It is 84."),
    ('```json\n{"answer": "It is 84."}\n```', "It is 84."),
    ('{"answer": "a \\"b\\" \\\\ \\n \\u732b \\ud83d\\udc08 猫"} and more', 'a "b" \\ \n 猫 🐈 猫'),
    ('{"answer": "cut off', "cut off"),
    ('{"answer": "a\nb"}', "a\nb"),
    ('{"tool": null, "answer": "It is 84."}', "It is 84."),
    ("Final Answer: It is 84.", "It is 84."),
    ("答案：84", "84"),
    ('Answer: {"answer": "84"}', "84"),
    ('{"name": "Ada", "input": 5}', '{"name": "Ada", "input": 5}'),
    ('[1, {"a": {}}]', '[1, {"a": {}}]'),
    ("`ls` lists files: `{}` and {a} < b", "`ls` lists files: `{}` and {a} < b"),
    (
        "a {long} text " + "about braces " * 8 + "{5}",
        "a {long} text " + "about braces " * 8 + "{5}",
    ),
    ('{"answer": "a\\tb C:\\dir"}', "a\tb C:\\dir"),
    ('{"answer": "\\uZZZZ and \\ud83d so \\ud83d"}', "\\uZZZZ and \ufffd so \ufffd"),
    ('{"answer": "torn \\u73', "torn \\u73"),
    ("Thoughtful people answer.", "Thoughtful people answer."),
    ("A", "A"),
    ("", ""),
    ('{"answer": 5}', '{"answer": 5}'),
    ("{" * 40, "{" * 40),
]


@pytest.mark.parametrize(("said", "text"), ANSWERS)
def test_an_answer_is_parsed_in_any_markup(said: str, text: str) -> None:
    for shown, _, parsed in (_streamed(said), _letter_by_letter(said)):
        assert shown == text
        assert (parsed.tool, parsed.problem) == ("", "")


def test_a_call_that_is_quoted_in_an_answer_is_no_call() -> None:
    said = 'The file says {"tool": "Now", "arguments": {}} and nothing else.'
    for text, _, parsed in (_streamed(said), _letter_by_letter(said)):
        assert text == said
        assert parsed.tool == ""


def test_an_answer_is_streamed() -> None:
    parser = ReplyStreamParser(NAMES)
    shown = [parser.feed(piece) for piece in ('{"answer"', ': "It ', "is \\u73", "2b", '."}')]
    assert [delta.text if delta else None for delta in shown] == [None, "It ", "is ", "猫", "."]
    parser = ReplyStreamParser(NAMES)
    shown = [parser.feed(piece) for piece in ("It", " is", " {5}", " cats")]
    assert [delta.text if delta else None for delta in shown] == ["It", " is", " ", None]
    assert parser.finish().text == "{5} cats"


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ('{"tool": "Rm", "arguments": {}}', "there is no tool 'Rm'; the tools are Now, Read"),
        ('{"tool": 5}', "there is no tool 5"),
        ('{"tool": "Read", "arguments": [1]}', '"arguments" must be a JSON object'),
        ('{"tool": "Read", "arguments": "a.txt"}', '"arguments" must be a JSON object'),
        ('{"tool": "Read", "arguments": {"path": "a.txt"}', "it is not valid JSON"),
        ("{'tool': 'Read'}", "it is not valid JSON"),
        ('{"tool": ' + "[" * 100_000, "it is not valid JSON"),
        ('So: {"tool": "Read", "arguments": {"path": }}', "it is not valid JSON"),
    ],
)
def test_a_parse_error_is_reported_with_the_whole_text(said: str, problem: str) -> None:
    text, _, parsed = _streamed(said)
    assert parsed.problem.startswith(problem)
    assert parsed.tool == ""
    assert text == said


def test_a_call_without_arguments_has_none() -> None:
    for said in (
        '{"tool": "Now"}',
        '{"tool": "Now", "arguments": null}',
        '{"tool":"Now","args":""}',
    ):
        assert parse_reply(said, NAMES) == ParsedReply(tool="Now", arguments="{}")


def test_a_request_without_tools_has_no_tool_rules() -> None:
    assert parse_reply('{"tool": "Now"}', frozenset()).problem == (
        "there is no tool 'Now'; the tools are none"
    )


@given(st.sampled_from([*CALLS, *(said for said, _ in ANSWERS)]), st.lists(st.integers(0, 120)))
def test_parsing_does_not_depend_on_chunk_boundaries(said: str, cuts: list[int]) -> None:
    whole = _streamed(said)
    torn = _streamed(said, *(min(cut, len(said)) for cut in cuts))
    assert torn[0] == whole[0]
    assert (torn[2].tool, torn[2].arguments) == (whole[2].tool, whole[2].arguments)


@given(st.text(alphabet='{}"\\utol:answer 猫“”：<>`\n'), st.lists(st.integers(0, 60)))
def test_any_reply_is_parsed_without_an_error(said: str, cuts: list[int]) -> None:
    _, _, parsed = _streamed(said, *(min(cut, len(said)) for cut in cuts))
    assert parsed.tool == ""


@given(st.text())
def test_any_answer_round_trips(text: str) -> None:
    assert _letter_by_letter(json.dumps({"answer": text}))[0] == text
    assert _letter_by_letter(json.dumps({"answer": text}, ensure_ascii=False))[0] == text


@pytest.mark.unmeasured
def test_any_reply_is_parsed_in_bounded_time() -> None:
    many = 300_000
    for said in ("a" + "{" * many, "\n" * many, "{" * many, "a" + "`" * many, "<think>" * many):
        assert _streamed(said, *range(0, many, 1000))[2].tool == ""
    assert parse_reply('{"tool": "Now", "arguments": {"a": "\\ud83d"}}', NAMES).arguments == (
        '{"a": "\ufffd"}'
    )
