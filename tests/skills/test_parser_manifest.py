"""Manifest fields in every spelling, and problems of invalid ones."""

import pytest

from apexbridge.permissions.hook_protocol import Hook, HookEvent
from apexbridge.permissions.rules import ToolPattern
from apexbridge.skills.frontmatter import Frontmatter, read
from apexbridge.skills.model import KEYS, SkillManifest, canonical_key
from apexbridge.skills.parser import ParsedManifest, parse_manifest


def _declared(text: str) -> ParsedManifest:
    values = read(text)
    assert isinstance(values, Frontmatter), values
    return parse_manifest(values)


def _manifest(text: str) -> SkillManifest:
    declared = _declared(text)
    assert declared.problems == ()
    return declared.manifest


def _codes(text: str) -> list[tuple[str, str]]:
    return [(problem.code, problem.where) for problem in _declared(text).problems]


def test_every_field_is_read() -> None:
    manifest = _manifest("""\
name: review
description: Reviews code
when_to_use: on review
version: 1.0
license: MIT
compatibility: Python 3.11
metadata:
  author: someone
  year: 2026
allowed-tools: Read, Bash(git add *) mcp__github__*
disallowed-tools: [Write]
argument-hint: <file>
arguments: path depth
model: inherit
effort: high
context: fork
agent: reviewer
user-invocable: no
disable-model-invocation: on
paths: "src/**/*.{ts,tsx}, lib/*"
hooks: {Stop: [{command: [say, done]}]}
shell: powershell
""")
    assert manifest == SkillManifest.model_validate(
        {
            "name": "review",
            "description": "Reviews code",
            "when_to_use": "on review",
            "version": "1.0",
            "license": "MIT",
            "compatibility": "Python 3.11",
            "metadata": {"author": "someone", "year": "2026"},
            "allowed-tools": ("Read", "Bash(git add *)", "mcp__github__*"),
            "disallowed-tools": ("Write",),
            "argument-hint": "<file>",
            "arguments": ("path", "depth"),
            "model": "inherit",
            "effort": "high",
            "context": "fork",
            "agent": "reviewer",
            "user-invocable": False,
            "disable-model-invocation": True,
            "paths": ("src/**/*.{ts,tsx}", "lib/*"),
            "hooks": {"Stop": [{"command": ["say", "done"]}]},
            "shell": "powershell",
        }
    )


def test_the_fields_are_those_of_the_format_page() -> None:
    assert KEYS == (
        "name", "description", "when_to_use", "version", "license", "compatibility", "metadata",
        "allowed-tools", "disallowed-tools", "argument-hint", "arguments", "model", "effort",
        "context", "agent", "user-invocable", "disable-model-invocation", "paths", "hooks", "shell",
        "secrets",
    )  # fmt: skip


@pytest.mark.promise("M13")
@pytest.mark.parametrize("key", ["allowed-tools", "allowedTools", "allowed_tools"])
@pytest.mark.parametrize(
    "value", ["Read Grep", "Read, Grep", "[Read, Grep]", "\n  - Read\n  - Grep"]
)
def test_tools_are_read_in_every_spelling(key: str, value: str) -> None:
    assert _declared(f"{key}: {value}\n").tools == (ToolPattern("Read"), ToolPattern("Grep"))


def test_two_spellings_of_one_field_are_reported_and_the_canonical_one_wins() -> None:
    declared = _declared("allowedTools: Write\nallowed-tools: Read\nallowed_tools: Edit\n")
    assert declared.manifest.allowed_tools == ("Read",)
    assert [p.code for p in declared.problems] == ["alias_shadowed", "alias_shadowed"]


@pytest.mark.promise("M13")
def test_unknown_keys_are_kept() -> None:
    assert _manifest("name: a\nauthor: b\nx: [1]\n").model_extra == {"author": "b", "x": ["1"]}


def test_fields_outside_the_format_can_be_in_metadata() -> None:
    manifest = _manifest(
        "metadata:\n  apexbridge.context: fork\n  apexbridge.paths: '*.py, *.pyi'\n"
        "  apexbridge.userInvocable: 'false'\n  apexbridge.nothing: x\n  other: y\n"
    )
    assert (manifest.context, manifest.paths) == ("fork", ("*.py", "*.pyi"))
    assert manifest.user_invocable is False


def test_a_field_of_the_top_level_wins_over_one_in_metadata() -> None:
    assert _manifest("context: inline\nmetadata: {apexbridge.context: fork}").context == "inline"


def test_nested_metadata_is_kept_as_json() -> None:
    manifest = _manifest("metadata:\n  tool: {a: [b]}\n  empty:\n")
    assert manifest.metadata == {"tool": '{"a": ["b"]}', "empty": ""}


@pytest.mark.parametrize(
    ("written", "hint"), [("[file]", "[file]"), ("[a, b]", "[a, b]"), ("<x>", "<x>")]
)
def test_a_hint_in_brackets_is_text(written: str, hint: str) -> None:
    assert _manifest(f"argument-hint: {written}\n").argument_hint == hint


def test_unicode_line_breaks_are_reported() -> None:
    assert _codes("name: a\u2028b\n") == [("frontmatter_line_breaks", "SKILL.md")]


@pytest.mark.promise("M14")
def test_many_or_long_patterns_are_bounded_together() -> None:
    many = ", ".join("'{a,b}{c,d}'" for _ in range(100))
    declared = _declared(f"paths: [{many}]\n")
    assert len(declared.manifest.paths) == 64
    assert {p.code for p in declared.problems} == {"path_pattern_too_wide"}
    assert _declared(f"paths: '{'z' * 2_000}'\n").manifest.paths == ()


@pytest.mark.parametrize("word", ["true", "True", "yes", "on", "1"])
def test_booleans_are_read_in_every_spelling(word: str) -> None:
    assert _manifest(f"disable-model-invocation: {word}\n").disable_model_invocation is True


def test_a_shell_in_a_list_of_one_is_that_shell() -> None:
    assert _manifest("shell: [bash]\ncontext: Fork\n").context == "fork"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("context: sometimes", "field_invalid"),
        ("user-invocable: perhaps", "field_invalid"),
        ("shell: [bash, zsh]", "field_invalid"),
        ("metadata: text", "field_invalid"),
        ("version: [1, 2]", "field_not_text"),
        ("allowed-tools: {a: b}", "field_invalid"),
        ("allowed-tools: Bash(git", "tool_pattern_invalid"),
        ("allowed-tools: ['(x)']", "tool_pattern_invalid"),
        ("disallowed-tools: ')'", "tool_pattern_invalid"),
        ("hooks: {Never: []}", "hook_invalid"),
        ("hooks: {Stop: text}", "hook_invalid"),
        ("hooks: {Stop: [{type: http}]}", "hook_invalid"),
        ("hooks: {Stop: [{command: 'a \"b'}]}", "hook_invalid"),
        ("hooks: {Stop: [{command: a, timeout: -1}]}", "hook_invalid"),
        ("hooks: text", "field_invalid"),
        ("paths: 'a{b'", None),
        ("paths: '!'", "path_pattern_invalid"),
    ],
)
def test_an_invalid_field_is_left_out_and_reported(text: str, code: str | None) -> None:
    assert _codes(f"name: a\n{text}\n") == ([(code, "SKILL.md:3")] if code else [])
    assert _declared(f"name: a\n{text}\n").manifest.name == "a"


@pytest.mark.promise("M14")
def test_endless_braces_are_refused_without_writing_them_out() -> None:
    declared = _declared(f"paths: ['{'{a,b}' * 30}', 'src/*']\n")
    assert [p.code for p in declared.problems] == ["path_pattern_too_wide"]
    assert declared.manifest.paths == ("src/*",)


def test_hooks_are_read_in_both_forms() -> None:
    declared = _declared("""\
hooks:
  PreToolUse:
    - matcher: Bash|Write
      hooks:
        - {type: command, command: ./check.sh, args: [-v, "a b"], timeout: 5, once: true}
        - {type: http, url: "https://example.org/hook"}
  Stop:
    - command: [echo, bye]
""")
    assert declared.problems == ()
    assert declared.hooks == (
        Hook(
            event=HookEvent.PRE_TOOL_USE,
            matcher="Bash|Write",
            command=("./check.sh", "-v", "a b"),
            timeout_seconds=5,
            once=True,
        ),
        Hook(event=HookEvent.PRE_TOOL_USE, matcher="Bash|Write", url="https://example.org/hook"),
        Hook(event=HookEvent.STOP, command=("echo", "bye")),
    )


@pytest.mark.parametrize(
    ("key", "meant"),
    [("whenToUse", "when_to_use"), ("Argument_Hint", "argument-hint"), ("author", None)],
)
def test_a_key_is_known_by_its_letters(key: str, meant: str | None) -> None:
    assert canonical_key(key) == meant
