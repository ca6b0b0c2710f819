"""Shell syntax model: words, simple commands, redirections, and the token patterns accepted."""

import re
import shlex
from dataclasses import dataclass
from typing import Literal

Role = Literal["plain", "wrapper", "opaque"]

_PLAIN = re.compile(r"[\w@%+=:,./\-{}\[\]!^#]+")


def word_set(text: str) -> frozenset[str]:
    """Split a string into a set of words."""
    return frozenset(text.split())


@dataclass(frozen=True, slots=True)
class ShellWord:
    """A shell word as written, and its value; None if only the shell can expand it."""

    text: str
    value: str | None
    is_one: bool = True
    """True if it stays one word after expansion (no word splitting)."""

    @property
    def quoted(self) -> str:
        """Canonical quoting: the same for every way of quoting the value."""
        if self.value is None:
            return self.text
        return self.value if _PLAIN.fullmatch(self.value) else shlex.quote(self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimpleCommand:
    """A program and its arguments.

    A `wrapper` only starts commands that are evaluated themselves. An `opaque` one starts something
    that is unknown here, so no prefix can allow it.
    """

    words: tuple[ShellWord, ...]
    assigned: tuple[ShellWord, ...] = ()
    """Variable assignments for it, or for the rest of the script if it has no words."""
    role: Role = "plain"

    @property
    def name(self) -> str:
        """The program; empty if there are only assignments."""
        return (self.words[0].value or "") if self.words else ""

    @property
    def text(self) -> str:
        """The whole command, uniformly quoted."""
        return " ".join(word.quoted for word in (*self.assigned, *self.words))


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedShell:
    """Everything that a text can run, on any branch."""

    commands: tuple[SimpleCommand, ...] = ()
    writes: tuple[str, ...] = ()
    """Files that redirections write, as written."""
    reads: tuple[str, ...] = ()
    changes_directory: bool = False
    """True if it may change the working directory, so that relative paths are unknown."""


class UnsupportedShellError(Exception):
    """The text may do more than can be analysed; it is evaluated as a whole."""


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
