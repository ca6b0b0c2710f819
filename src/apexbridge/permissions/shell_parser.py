"""Shell parser: split a command line into the simple commands it would run, by tree-sitter.

The grammar's tree is not trusted, because a difference from bash would be a bypass: every token
must be one that bash reads the same way, and only blanks may lie between tokens. Anything that is
not on the allow-lists below makes the text unparsable, and it is then evaluated as a whole.
"""

import functools
import re
from collections.abc import Iterator, Sequence

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from apexbridge.permissions import shell_syntax as tokens
from apexbridge.permissions.shell_syntax import (
    ParsedShell,
    ShellWord,
    SimpleCommand,
    UnsupportedShellError,
)
from apexbridge.permissions.shell_wrappers import RESERVED, is_plain_variable, unwrap_command

MAX_CHARACTERS = 20_000
_MAX_DEPTH = 60
_MAX_COMMANDS = 500
_MAX_HEREDOC_SIGNS = 20
_MAX_NESTED_TEXTS = 4
_COMMAND_WORDS = tokens.WORD_NODES | {"command_name", "variable_assignment"}


def parse_shell(text: str) -> ParsedShell | None:
    """Parse everything that bash could run of this text; None if uncertain. Never raises."""
    return _parse(text, _MAX_NESTED_TEXTS)


def simple_commands(text: str) -> tuple[str, ...] | None:
    """Return the simple commands, uniformly quoted; None if the text cannot be parsed."""
    parsed = parse_shell(text)
    return None if parsed is None else tuple(command.text for command in parsed.commands)


def _parse(text: str, nested: int) -> ParsedShell | None:
    if not _is_readable(text) or nested < 0:
        return None
    try:
        source = text.encode()
        root = Parser(_language()).parse(source).root_node
        if root.has_error:
            return None
        reader = _TreeWalker(source, nested)
        reader.whole(root)
    except (UnsupportedShellError, UnicodeEncodeError):
        return None
    return reader.found()


def _is_readable(text: str) -> bool:
    if len(text) > MAX_CHARACTERS or text.count("<<") > _MAX_HEREDOC_SIGNS:
        return False
    return all(char.isprintable() or char in "\n\t" for char in text)


@functools.cache
def _language() -> Language:
    return Language(tree_sitter_bash.language())


def _require(is_so: object) -> None:
    if not is_so:
        raise UnsupportedShellError


class _TreeWalker:
    """Walk one syntax tree and collect commands, redirections and reads."""

    def __init__(self, source: bytes, nested: int) -> None:
        self._source = source
        self._nested = nested
        self._depth = 0
        self._heredocs = 0
        self._commands: list[SimpleCommand] = []
        self._writes: list[str] = []
        self._reads: list[str] = []
        self._changes_directory = False
        self._readers = {
            "command": self._command,
            "test_command": self._test,
            "declaration_command": self._declaration,
            "variable_assignment": self._assignments,
            "variable_assignments": self._assignments,
            "for_statement": self._compound,
            "case_statement": self._compound,
            "case_item": self._compound,
            "function_definition": self._compound,
            "file_redirect": self._redirect,
            "heredoc_redirect": self._heredoc,
            "herestring_redirect": self._herestring,
        }

    def found(self) -> ParsedShell:
        """The collected result."""
        moving = any(command.name in {"cd", "pushd", "popd"} for command in self._commands)
        return ParsedShell(
            commands=tuple(self._commands),
            writes=tuple(self._writes),
            reads=tuple(self._reads),
            changes_directory=moving or self._changes_directory,
        )

    def whole(self, root: Node) -> None:
        """Walk the tree; it must cover the source from the first byte to the last."""
        for edge in (self._source[: root.start_byte], self._source[root.end_byte :]):
            _require(tokens.BLANK_OR_NEWLINES.fullmatch(edge))
        self._statement(root)

    def _text(self, node: Node) -> str:
        return self._source[node.start_byte : node.end_byte].decode()

    def _parts(self, node: Node, blank: re.Pattern[bytes] = tokens.BLANK) -> Iterator[Node]:
        """Return the children, with nothing but blanks between them."""
        at = node.start_byte
        for child in node.children:
            _require(blank.fullmatch(self._source, at, child.start_byte))
            at = child.end_byte
            if child.type == "comment":
                before = self._source[child.start_byte - 1 : child.start_byte]
                _require(before in {b"", b" ", b"\t", b"\n"} and "\n" not in self._text(child))
            else:
                yield child
        _require(blank.fullmatch(self._source, at, node.end_byte))

    def _statement(self, node: Node) -> None:
        self._depth += 1
        _require(self._depth <= _MAX_DEPTH)
        if node.type in tokens.BLOCK_NODES:
            _require(not self._text(node).startswith("(("))
            for child in self._parts(node, tokens.BLANK_OR_NEWLINES):
                self._statement(child)
        elif node.is_named:
            read = self._readers.get(node.type)
            if read is None:
                raise UnsupportedShellError
            read(node)
        else:
            _require(node.type in tokens.PUNCTUATION or node.type == "\n")
        self._depth -= 1

    def _compound(self, node: Node) -> None:
        _require(self._source[node.start_byte : node.start_byte + 6] != b"select")
        for child in self._parts(node, tokens.BLANK_OR_NEWLINES):
            match child.type:
                case "variable_name":
                    _require(is_plain_variable(self._text(child)))
                case "extglob_pattern":
                    _require(tokens.CASE_PATTERN.fullmatch(self._text(child)))
                case "word" if node.type == "function_definition":
                    _require(tokens.IDENTIFIER.fullmatch(self._text(child)))
                case kind if kind in tokens.WORD_NODES:
                    self._word(child)
                case _:
                    self._statement(child)

    def _command(self, node: Node) -> None:
        assigned, words, end = list[ShellWord](), list[ShellWord](), -1
        for child in self._parts(node):
            is_word = child.type in _COMMAND_WORDS
            _require(not (is_word and child.start_byte == end))
            if child.type == "variable_assignment":
                (words or assigned).append(self._assignment(child))
            elif child.type == "command_name":
                (inner,) = self._parts(child)
                words.append(self._name(inner))
            elif child.type in tokens.WORD_NODES:
                words.append(self._word(child))
            else:
                self._statement(child)
            end = child.end_byte if is_word else -1
        self._add(SimpleCommand(words=tuple(words), assigned=tuple(assigned)))

    def _name(self, node: Node) -> ShellWord:
        word = self._word(node)
        is_keyword = word.text in RESERVED and word.text != "time"
        _require(word.value and not is_keyword and not tokens.ASSIGNMENT.match(word.text))
        return word

    def _add(self, command: SimpleCommand) -> None:
        names = [word.text.partition("=")[0].removesuffix("+") for word in command.assigned]
        if not command.words and all(map(is_plain_variable, names)):
            return
        self._commands += unwrap_command(command, self._inner_text)
        _require(len(self._commands) <= _MAX_COMMANDS)

    def _inner_text(self, text: str) -> Sequence[SimpleCommand]:
        inner = _parse(text, self._nested - 1)
        if inner is None:
            raise UnsupportedShellError
        self._writes += inner.writes
        self._reads += inner.reads
        self._changes_directory = self._changes_directory or inner.changes_directory
        return inner.commands

    def _test(self, node: Node) -> None:
        """Handle `[ … ]`, an ordinary command; `[[ … ]]` and `(( … ))` evaluate and are refused."""
        words = list(self._test_words(node))
        _require(words[0].text == "[" and words[-1].text == "]")
        self._add(SimpleCommand(words=tuple(words)))

    def _test_words(self, node: Node) -> Iterator[ShellWord]:
        for child in self._parts(node):
            if child.type in {"unary_expression", "binary_expression"}:
                yield from self._test_words(child)
            elif child.is_named:
                yield self._word(child)
            else:
                _require(child.type in {"[", "]", "=", "==", "!=", "!"})
                yield ShellWord(child.type, child.type)

    def _declaration(self, node: Node) -> None:
        first, *rest = self._parts(node)
        _require(first.type == "export")
        words = [
            self._assignment(child) if child.type == "variable_assignment" else self._word(child)
            for child in rest
        ]
        self._add(SimpleCommand(words=(ShellWord("export", "export"), *words)))

    def _assignments(self, node: Node) -> None:
        nodes = [node] if node.type == "variable_assignment" else list(self._parts(node))
        _require(all(child.type == "variable_assignment" for child in nodes))
        self._add(SimpleCommand(words=(), assigned=tuple(map(self._assignment, nodes))))

    def _assignment(self, node: Node) -> ShellWord:
        name, sign, *values = self._parts(node)
        _require(name.type == "variable_name" and tokens.IDENTIFIER.fullmatch(self._text(name)))
        _require(sign.type in {"=", "+="} and len(values) <= 1)
        _require(self._text(name) not in tokens.EVALUATED_VARIABLES)
        _require(not values or values[0].start_byte == sign.end_byte)
        head = f"{self._text(name)}{sign.type}"
        value = self._word(values[0]).value if values else ""
        return ShellWord(self._text(node), None if value is None else head + value)

    def _redirect(self, node: Node) -> None:
        first, *rest = self._parts(node)
        if first.type == "file_descriptor":
            before = self._source[: first.start_byte][-1:]
            _require(self._text(first).isdigit() and before in {b"", b" ", b"\t", b"\n"})
            first, *rest = rest
        # The shell takes `{name}>` for a variable that it sets.
        _require(self._source[: first.start_byte][-1:] != b"}")
        if first.type in {">&-", "<&-"} and not rest:
            return
        _require(len(rest) == 1)
        target, sign = self._word(rest[0]).value, first.type
        _require(target and not target.startswith(("/dev/tcp/", "/dev/udp/")))
        target = target or ""
        if sign in {">&", "<&"} and (target.isdigit() or target == "-"):
            return
        _require(sign in tokens.WRITE_REDIRECTS or sign in {">&", "<"})
        if target not in tokens.NON_FILES:
            (self._reads if sign == "<" else self._writes).append(target)

    def _herestring(self, node: Node) -> None:
        *_, value = self._parts(node)
        self._word(value)

    def _heredoc(self, node: Node) -> None:
        """Accept a here-document only if the shell expands nothing in it and its end is certain."""
        self._heredocs += 1
        delimiter, strips, body, end = "", False, "", ""
        for child in self._parts(node, tokens.BLANK_OR_NEWLINES):
            match child.type:
                case "<<" | "<<-":
                    strips = child.type == "<<-"
                case "heredoc_start":
                    delimiter = self._text(child)
                case "heredoc_body":
                    body = self._text(child)
                case "heredoc_end":
                    end = self._text(child)
                case _:
                    self._statement(child)
        _require(self._heredocs == 1 and self._nested == _MAX_NESTED_TEXTS)
        _require(tokens.DELIMITER.fullmatch(delimiter))
        word = delimiter.strip("'\"")
        _require(end == word and (word != delimiter or not re.search(r"[\\$`]", body)))
        self._check_heredoc_end(node, word, strips=strips)

    def _check_heredoc_end(self, node: Node, word: str, *, strips: bool) -> None:
        """Find the delimiter as bash does, and check that the tree agrees."""
        text = self._source.decode()
        start = len(self._source[: node.start_byte].decode())
        at = text.find("\n", start)
        lines = text[at + 1 :].split("\n")
        read = [line.lstrip("\t") if strips else line for line in lines]
        _require(word in read)
        at += sum(1 + len(line) for line in lines[: read.index(word) + 1])
        _require(len(text[:at].encode()) == node.end_byte)

    def _word(self, node: Node) -> ShellWord:
        self._depth += 1
        _require(self._depth <= _MAX_DEPTH)
        word = self._read_word(node, self._text(node))
        self._depth -= 1
        return word

    def _read_word(self, node: Node, text: str) -> ShellWord:
        kind = node.type
        if kind in tokens.EXPANSIONS:
            _require(tokens.EXPANSIONS[kind].fullmatch(text))
            is_split = kind in {"simple_expansion", "expansion"}
            return ShellWord(text, None, not is_split or text in tokens.UNSPLIT_EXPANSIONS)
        if kind in {"command_substitution", "process_substitution"}:
            self._substitution(node, text)
            return ShellWord(text, None, kind == "process_substitution")
        if kind == "string":
            return ShellWord(text, self._string(node), "$@" not in text)
        if kind == "concatenation":
            return self._joined(node, text)
        if kind == "raw_string":
            _require(tokens.RAW_STRING.fullmatch(text))
            return ShellWord(text, text[1:-1])
        _require(kind in tokens.WORD_NODES and tokens.WORD.fullmatch(text))
        is_open = bool(text != "{}" and tokens.GLOB_CHARACTERS.match(text))
        return ShellWord(text, None if is_open else tokens.ESCAPED.sub(r"\1", text), not is_open)

    def _joined(self, node: Node, text: str) -> ShellWord:
        """Join adjacent pieces; together they may be a glob pattern that no single piece is."""
        pieces, at = list[ShellWord](), node.start_byte
        for child in node.children:
            _require(child.start_byte == at)
            at = child.end_byte
            pieces.append(self._word(child))
        _require(at == node.end_byte)
        if text == "{}":
            return ShellWord(text, text)
        is_open = any(piece.value is None for piece in pieces)
        value = None if is_open else "".join(piece.value or "" for piece in pieces)
        return ShellWord(text, value, all(piece.is_one for piece in pieces))

    def _string(self, node: Node) -> str | None:
        """Parse a double-quoted string; expansions in it are handled separately."""
        at, pieces, is_open = node.start_byte + 1, list[str](), False
        for child in node.children[1:-1]:
            if child.type == "string_content":
                continue
            pieces.append(self._source[at : child.start_byte].decode())
            # The grammar counts blanks before it as part of it.
            self._read_word(child, self._text(child).lstrip(" \t\n"))
            at, is_open = child.end_byte, True
        pieces.append(self._source[at : node.end_byte - 1].decode())
        _require(all(tokens.LITERAL.fullmatch(piece) for piece in pieces))
        _require(node.children[0].type == node.children[-1].type == '"')
        if is_open:
            return None
        return tokens.ESCAPED_IN_QUOTES.sub(lambda found: found[1].strip("\n"), pieces[0])

    def _substitution(self, node: Node, text: str) -> None:
        first, *inner, last = self._parts(node, tokens.BLANK_OR_NEWLINES)
        if first.type == "`":
            _require(last.type == "`" and not re.search(r"[\\'\"]", text))
        else:
            _require(first.type in {"$(", "<(", ">("} and last.type == ")")
        for child in inner:
            self._statement(child)
