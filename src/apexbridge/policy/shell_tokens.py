"""The few forms of shell text that are taken at their word."""

import re

from apexbridge.policy.shell_model import names

BLANK = re.compile(rb"(?:[ \t]|(?<=[ \t])\\\n)*")
BLANK_OR_LINES = re.compile(rb"(?:[ \t\n]|(?<=[ \t\n])\\\n)*")
WORD = re.compile(r"(?:[^\s'\"\\$`|&;<>()#]|\\[^\n]|(?<!\A)#)+")
LITERAL = re.compile(r"(?:[^\"\\$`]|\\[\s\S])*")
ANSI = re.compile(r"\$'(?:[^'\\]|\\.)*'")
SUMS = re.compile(r"\$\(\([0-9+*/%() -]*\)\)")
EXPANSION = re.compile(r"\$(?:[A-Za-z_][A-Za-z0-9_]*|[0-9?#@*$!-])|\$\{[A-Za-z_][A-Za-z0-9_]*\}")
FILLED_IN = {
    "ansi_c_string": ANSI,
    "arithmetic_expansion": SUMS,
    "simple_expansion": EXPANSION,
    "expansion": EXPANSION,
}
NEVER_SPLIT = frozenset({"$#", "$?", "$$", "$!"})
RAW = re.compile(r"'[^']*'")
DELIMITER = re.compile(
    r"[A-Za-z_][A-Za-z0-9_]*|'[A-Za-z_][A-Za-z0-9_]*'|\"[A-Za-z_][A-Za-z0-9_]*\""
)
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\[.*\])?\+?=", re.DOTALL)
CASE_PATTERN = re.compile(r"[\w.*?/-]+")
ESCAPED = re.compile(r"\\(.)", re.DOTALL)
ESCAPED_IN_QUOTES = re.compile(r"\\([\"\\$`\n])")
ANY_MEANING = re.compile(r"(?:[^\\*?\[{~]|\\.)*[*?\[{~]", re.DOTALL)
# The shell itself runs or reads what these hold.
EVALUATED = names("PS0 PS1 PS2 PS3 PS4 PROMPT_COMMAND BASH_ENV ENV SHELLOPTS BASHOPTS IFS")
NO_FILES = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/stdin"})

BLOCKS = names(
    "program list pipeline negated_command subshell compound_statement do_group if_statement "
    "elif_clause else_clause while_statement redirected_statement"
)
MARKS = names(
    "; & && || | |& ( ) { } if then elif else fi do done while until ! function for in case "
    "esac ;; ;& ;;&"
)
WRITING = frozenset({">", ">>", ">|", "&>", "&>>"})
WORDS = names(
    "word number string raw_string ansi_c_string concatenation simple_expansion expansion "
    "command_substitution process_substitution arithmetic_expansion brace_expression "
    "variable_name special_variable_name test_operator regex extglob_pattern"
)
