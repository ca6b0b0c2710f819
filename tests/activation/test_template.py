"""Template expansion of arguments and variables in a skill's text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apexbridge.activation.template import (
    CommandPart,
    Substitutions,
    expand,
    expand_variables,
    split_arguments,
)

_VARIABLES = {"CLAUDE_SKILL_DIR": "/skills/x", "CLAUDE_EFFORT": "high"}


def _text(text: str, arguments: str = "", names: tuple[str, ...] = ()) -> str:
    values = Substitutions(arguments=arguments, names=names, variables=_VARIABLES)
    return "".join(part if isinstance(part, str) else "" for part in expand(text, values))


@pytest.mark.parametrize(
    ("text", "arguments", "expected"),
    [
        ("Do $ARGUMENTS!", "a  'b c'", "Do a  'b c'!"),
        ("Do $ARGUMENTS[1] and $0", "a 'b c'", "Do b c and a"),
        ("Do $ARGUMENTS[7] and $9", "a", "Do $ARGUMENTS[7] and $9"),
        ("Do ${ARG1}, ${ARG2}, ${ARG3}", "a b", "Do a, b, ${ARG3}"),
        (r"Costs \$5 and \$ARGUMENTS of $0", "a", "Costs $5 and $ARGUMENTS of a"),
        ("In ${CLAUDE_SKILL_DIR}/x at ${CLAUDE_EFFORT}", "", "In /skills/x/x at high"),
        ("Unknown ${HOME} stays, $HOME too", "", "Unknown ${HOME} stays, $HOME too"),
        ("Nothing open", "a b", "Nothing open\n\nARGUMENTS: a b"),
        ("Nothing open", "  ", "Nothing open"),
        ("$0 is a place", "a b", "a is a place"),
        ("$ARGUMENTSX and $0x", "a", "$ARGUMENTSX and $0x\n\nARGUMENTS: a"),
        ("中文 $0。", "参数", "中文 参数。"),
        ("Say $0", "it's here", "Say it's"),
    ],
)
def test_arguments_and_variables_are_put_in(text: str, arguments: str, expected: str) -> None:
    assert _text(text, arguments) == expected


@pytest.mark.parametrize(
    ("text", "arguments", "expected"),
    [
        ("Move $from to $to.", "a b", "Move a to b."),
        ("Move $from to $to.", "a", "Move a to ."),
        ("Of $from-old and $fromage", "a", "Of a-old and $fromage"),
        ("$文件 是什么", "x.txt", "x.txt 是什么"),
    ],
)
def test_named_arguments_are_put_in_and_those_not_given_are_empty(
    text: str, arguments: str, expected: str
) -> None:
    names = ("文件",) if "文件" in text else ("from", "to")
    assert _text(text, arguments, names) == expected


def test_a_name_that_begins_with_another_is_not_taken_for_it() -> None:
    assert _text("$file-name of $file", "a b", ("file", "file-name")) == "b of a"


def test_commands_come_out_apart_with_their_arguments_quoted() -> None:
    text = "Log: !`git log $ARGUMENTS -- $1`\n```!\nls ${CLAUDE_SKILL_DIR}\n```\nEnd"
    values = Substitutions(arguments="-5 '$(rm x); y'", variables={"CLAUDE_SKILL_DIR": "/a b"})
    assert expand(text, values) == (
        "Log: ",
        CommandPart("git log -5 '$(rm x); y' -- '$(rm x); y'"),
        "\n",
        CommandPart("ls '/a b'"),
        "\nEnd",
    )


def test_commands_stay_text_where_they_may_not_run() -> None:
    assert expand("Now !`date` $0", Substitutions(arguments="x"), has_commands=False) == (
        "Now !`date` x",
    )


@given(st.text(alphabet="$`!{}[]\\ARGUMENTS0123 \n'\"", max_size=60))
def test_what_is_put_in_is_never_looked_at_again(arguments: str) -> None:
    parts = expand("[$ARGUMENTS]", Substitutions(arguments=arguments, variables=_VARIABLES))
    assert "".join(map(str, parts)) == f"[{arguments}]"


@given(st.text(max_size=80), st.text(max_size=30))
def test_no_text_and_no_arguments_make_it_fail(text: str, arguments: str) -> None:
    assert isinstance(expand(text, Substitutions(arguments=arguments, names=("a",))), tuple)


def test_rules_get_variables_only() -> None:
    rule = "Bash(python ${CLAUDE_SKILL_DIR}/x.py $0 ${OTHER} *)"
    assert expand_variables(rule, _VARIABLES) == "Bash(python /skills/x/x.py $0 ${OTHER} *)"


def test_arguments_are_cut_as_a_shell_would() -> None:
    assert split_arguments(r'a "b c" d\ e') == ["a", "b c", "d e"]
