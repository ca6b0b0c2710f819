"""What a line of shell comes to: the commands it runs, and the files it writes and reads."""

import re
import shlex
from dataclasses import dataclass
from typing import Literal

Role = Literal["plain", "wrapper", "opaque"]

_PLAIN = re.compile(r"[\w@%+=:,./\-{}\[\]!^#]+")


def word_set(text: str) -> frozenset[str]:
    """Names that are written in a row."""
    return frozenset(text.split())


@dataclass(frozen=True, slots=True)
class ShellWord:
    """One word: as it is written, and what it stands for; None where only the shell can tell."""

    text: str
    value: str | None
    is_one: bool = True
    """Whether it stays one word when the shell is done with it."""

    @property
    def said(self) -> str:
        """The same for every way of quoting it."""
        if self.value is None:
            return self.text
        return self.value if _PLAIN.fullmatch(self.value) else shlex.quote(self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimpleCommand:
    """A program and its arguments.

    A `wrapper` only starts what is judged beside it. What an `opaque` one starts cannot be told,
    so no prefix can allow it.
    """

    words: tuple[ShellWord, ...]
    assigned: tuple[ShellWord, ...] = ()
    """Variables that are set for it, or for all that follows where it has no words."""
    role: Role = "plain"

    @property
    def name(self) -> str:
        """The program; empty where variables are set and nothing is run."""
        return (self.words[0].value or "") if self.words else ""

    @property
    def text(self) -> str:
        """The whole of it, the same for every way of quoting."""
        return " ".join(word.said for word in (*self.assigned, *self.words))


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedShell:
    """Everything that a text can run, whichever way it takes."""

    commands: tuple[SimpleCommand, ...] = ()
    writes: tuple[str, ...] = ()
    """Files that redirections write, as they are written there."""
    reads: tuple[str, ...] = ()
    moves: bool = False
    """Whether it may change its folder: then nobody can tell where a relative path leads."""


class UnsupportedShellError(Exception):
    """The text may do more than can be told; it is judged as a whole."""


BLANK = re.compile(rb"(?:[ \t]|(?<=[ \t])\\\n)*")
BLANK_OR_NEWLINES = re.compile(rb"(?:[ \t\n]|(?<=[ \t\n])\\\n)*")
WORD = re.compile(r"(?:[^\s'\"\\$`|&;<>()#]|\\[^\n]|(?<!\A)#)+")
LITERAL = re.compile(r"(?:[^\"\\$`]|\\[\s\S])*")
ANSI = re.compile(r"\$'(?:[^'\\]|\\.)*'")
ARITHMETIC = re.compile(r"\$\(\([0-9+*/%() -]*\)\)")
EXPANSION = re.compile(r"\$(?:[A-Za-z_][A-Za-z0-9_]*|[0-9?#@*$!-])|\$\{[A-Za-z_][A-Za-z0-9_]*\}")
EXPANSIONS = {
    "ansi_c_string": ANSI,
    "arithmetic_expansion": ARITHMETIC,
    "simple_expansion": EXPANSION,
    "expansion": EXPANSION,
}
UNSPLIT_EXPANSIONS = frozenset({"$#", "$?", "$$", "$!"})
RAW_STRING = re.compile(r"'[^']*'")
DELIMITER = re.compile(
    r"[A-Za-z_][A-Za-z0-9_]*|'[A-Za-z_][A-Za-z0-9_]*'|\"[A-Za-z_][A-Za-z0-9_]*\""
)
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\[.*\])?\+?=", re.DOTALL)
CASE_PATTERN = re.compile(r"[\w.*?/-]+")
ESCAPED = re.compile(r"\\(.)", re.DOTALL)
ESCAPED_IN_QUOTES = re.compile(r"\\([\"\\$`\n])")
GLOB_CHARACTERS = re.compile(r"(?:[^\\*?\[{~]|\\.)*[*?\[{~]", re.DOTALL)
# The shell itself runs or reads what these hold.
EVALUATED_VARIABLES = word_set(
    "PS0 PS1 PS2 PS3 PS4 PROMPT_COMMAND BASH_ENV ENV SHELLOPTS BASHOPTS IFS"
)
NON_FILES = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/stdin"})

BLOCK_NODES = word_set(
    "program list pipeline negated_command subshell compound_statement do_group if_statement "
    "elif_clause else_clause while_statement redirected_statement"
)
PUNCTUATION = word_set(
    "; & && || | |& ( ) { } if then elif else fi do done while until ! function for in case "
    "esac ;; ;& ;;&"
)
WRITE_REDIRECTS = frozenset({">", ">>", ">|", "&>", "&>>"})
WORD_NODES = word_set(
    "word number string raw_string ansi_c_string concatenation simple_expansion expansion "
    "command_substitution process_substitution arithmetic_expansion brace_expression "
    "variable_name special_variable_name test_operator regex extglob_pattern"
)
