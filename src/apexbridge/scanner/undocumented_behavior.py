"""Undocumented behavior: what the scripts of a skill do and its documents do not mention.

Users decide by the documents. A script that appends to a log, writes a dotfile, uses the network,
reads environment variables or decodes data, and no document mentions it, does more than they agreed
to.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from apexbridge.scanner.budget import UNLIMITED, CpuBudget
from apexbridge.scanner.pattern_matcher import Hit
from apexbridge.scanner.scan_input import TextFile
from apexbridge.scanner.taint import parse_python

RULE = "AB064"
MAX_SCRIPTS = 100
"""Scripts of one skill that are compared with its documents."""

MAX_NAME_LOOKUPS = 12
"""Variables that are resolved from a call to the literal file name."""

_FILE_NAME = re.compile(
    r"[\w./~-]{0,60}?([\w-][\w.-]{0,40}\.(?:jsonl?|log|txt|csv|ya?ml|md|db|conf|env|ini|toml)|"
    r"\.[a-z][a-z_.-]{4,30})"
)
_PASSING_SUFFIXES = (".tmp", ".lock", ".pid", ".bak", ".part", ".swp")
"""Suffixes of files that a script writes for its own use and renames or removes."""
_COMMON_DOTFILES = frozenset(
    {".gitignore", ".cache", ".claude", ".claude.json", ".jsonl", ".gitconfig", ".dockerignore",
     ".editorconfig", ".gitattributes", ".markdown", ".parquet", ".sqlite", ".backup",
     ".gitkeep", ".nojekyll", ".npmrc", ".prettierrc"}
)  # fmt: skip
"""Dotfiles that projects commonly have, and file suffixes."""
_TEST_PATH = re.compile(
    r"(?:^|/)(?:tests?|testing|examples?|fixtures|evals?)/|(?:^|/)test_|_test\.\w+$"
)
"""Tests and examples, which users do not run."""
_ARGUMENTS = re.compile(r"add_argument\([^)\n]{0,400}")


@dataclass(frozen=True, slots=True)
class _Behavior:
    """A kind of call in a script, and the words with which a document would mention it."""

    call: re.Pattern[str]
    mention: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class _PathParts:
    """The literal file names and the variables in a path expression."""

    files: tuple[str, ...]
    variables: tuple[str, ...]
    is_home: bool = False
    """Whether the path starts in the home folder."""


@dataclass(frozen=True, slots=True)
class _WrittenFile:
    name: str
    is_appended: bool
    is_home: bool
    line: int


_BEHAVIORS = (
    _Behavior(
        re.compile(
            r"\brequests\.(?:get|post|put|request|Session)\(|\burlopen\(|\bhttpx\.\w|\bhttp\.client\b|"
            r"\bsocket\.(?:socket|create_connection|gethostbyname)\(|\bfetch\(\s?[\"'`]https?:"
        ),
        re.compile(
            r"https?:|\bapi\b|network|download|fetch|web|\burl|online|server|网络|下载|接口"
        ),
    ),
    _Behavior(
        # Only variables that hold a secret: which folder or port to use is no concern of a user.
        re.compile(
            r"\bos\.(?:environ(?:\.get\(|\[)|getenv\()\s?[\"']\w{0,40}(?:KEY|TOKEN|SECRET|PASS|CRED)|"
            r"\bprocess\.env(?:\.|\[[\"'])\w{0,40}(?:KEY|TOKEN|SECRET|PASS|CRED)|"
            r"\bos\.environ\b(?!\.|\[|,\s?[\"'])(?<!in os\.environ)"
        ),
        re.compile(r"environ|\benv|api[_ -]key|token|export |variable|环境变量|密钥|令牌"),
    ),
    _Behavior(
        re.compile(
            r"\bb64decode\(|\.fromhex\(|\bcodecs\.decode\(|\b(?:zlib|gzip)\.decompress\(|\batob\("
        ),
        re.compile(r"base64|decod|compress|gzip|\bzip|encod|binary|image|解码|解压|编码"),
    ),
    _Behavior(
        re.compile(
            r"\bsocket\.gethostname\(|\bgetpass\.getuser\(|\bos\.getlogin\(|\bplatform\.node\(|"
            r"\buuid\.getnode\("
        ),
        re.compile(r"host|user|machine|system|platform|account|主机|系统|用户"),
    ),
    _Behavior(
        re.compile(r"\bos\.chmod\([^\n]{0,80}0o?[0-7]?[67][67][67]\b|\bchmod\s+(?:-R\s+)?0?777\b"),
        re.compile(r"permission|chmod|executable|rights|权限"),
    ),
    _Behavior(
        re.compile(
            r"\bos\.(?:remove|unlink)\(\s?sys\.argv|\bos\.(?:remove|unlink)\(\s?args\.|"
            r"\b(?:input|source|src|original)_?(?:file|path)?\.unlink\("
        ),
        re.compile(r"delet|remov|clean|discard|overwrit|replac|move|删除|清理|移动"),
    ),
)


def undocumented_behavior(
    files: Sequence[TextFile], subject: str, max_bytes: int, budget: CpuBudget = UNLIMITED
) -> Iterator[tuple[TextFile, Hit]]:
    """Match behavior of scripts that no document of the skill mentions."""
    scripts = [
        file for file in files if file.role_of(1) == "script" and not _TEST_PATH.search(file.path)
    ]
    documents = [file for file in files if file.role_of(1) in {"instruction", "reference"}]
    documentation = "\n".join(file.lower for file in documents)
    calls = [behavior.call for behavior in _BEHAVIORS if not behavior.mention.search(documentation)]
    for file in budget.limit(scripts[:MAX_SCRIPTS] if documentation else []):
        written = _appended_or_hidden_files(file, max_bytes)
        for line in (
            *_undocumented_calls(file, calls),
            *_undocumented_files(file, budget.limit(written), documentation, subject),
        ):
            matched = file.raw_lines[line - 1].strip()
            yield file, Hit(rule=RULE, level="warn", line=line, matched=matched)


def _undocumented_calls(file: TextFile, calls: Sequence[re.Pattern[str]]) -> Iterator[int]:
    """Return the first line of each kind of undocumented call."""
    for call in calls:
        match = call.search(file.text)
        if match:
            yield file.line_number(match.start())


def _undocumented_files(
    file: TextFile, written: Iterable[_WrittenFile], documentation: str, subject: str
) -> Iterator[int]:
    """Return the lines that append to a file or write a dotfile with an undocumented name."""
    # The help text of the command line is documentation too.
    own_help = "\n".join(_ARGUMENTS.findall(file.lower))
    for found in written:
        base = found.name.rsplit("/", 1)[-1].lower()
        is_passing = base.endswith(_PASSING_SUFFIXES) or base.strip(".") in subject
        if not is_passing and base not in own_help and base not in documentation:
            yield found.line


def _appended_or_hidden_files(file: TextFile, max_bytes: int) -> Iterator[_WrittenFile]:
    """Return the files that a Python script appends to, and the dotfiles that it writes."""
    block = file.code_blocks[0]
    if block.language != "python" or len(file.raw) > max_bytes or not _may_write(file.lower):
        return
    tree = parse_python(file.raw)
    for written in _written_files(tree) if tree is not None else ():
        base = written.name.rsplit("/", 1)[-1].lower()
        # In a working folder a dotfile is a marker of the script's own; in the home folder other
        # programs read it.
        is_hidden = written.is_home and base.startswith(".") and base not in _COMMON_DOTFILES
        if written.is_appended or is_hidden:
            yield written


def _may_write(source: str) -> bool:
    """Return whether a script may write files: a cheap check before the AST is built."""
    return "open(" in source or "write_" in source


def _written_files(tree: ast.Module) -> Iterator[_WrittenFile]:
    """Return the files that a script writes, by its AST."""
    known = {
        node.targets[0].id: _path_parts(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        path, mode = _path_and_mode(node)
        if path is not None and mode[:1] in {"w", "a", "x"}:
            parts = _resolve(_path_parts(path), known)
            for name in parts.files:
                yield _WrittenFile(name, mode[:1] == "a", parts.is_home, node.lineno)


def _path_and_mode(call: ast.Call) -> tuple[ast.expr | None, str]:
    """Return the path expression and the mode of a call that opens or writes a file."""
    if isinstance(call.func, ast.Name) and call.func.id == "open" and len(call.args) > 1:
        return call.args[0], _string_value(call.args[1])
    if isinstance(call.func, ast.Attribute):
        if call.func.attr == "open" and call.args:
            return call.func.value, _string_value(call.args[0])
        if call.func.attr in {"write_text", "write_bytes"}:
            return call.func.value, "w"
    return None, ""


def _string_value(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _path_parts(path: ast.expr) -> _PathParts:
    """Split a path expression into literal file names and variables."""
    files, variables = list[str](), list[str]()
    nodes = list(ast.walk(path))
    suffixes = {id(part) for node in nodes for part in _suffix_parts(node)}
    is_home = False
    for node in nodes:
        if isinstance(node, ast.Constant):
            text = _string_value(node)
            is_home = is_home or text.startswith("~")
            if id(node) not in suffixes and _FILE_NAME.fullmatch(text):
                files.append(text)
        elif isinstance(node, ast.Attribute):
            is_home = is_home or node.attr == "home"
        elif isinstance(node, ast.Name):
            variables.append(node.id)
    return _PathParts(tuple(files), tuple(variables), is_home)


def _suffix_parts(node: ast.AST) -> Iterator[ast.AST]:
    """Return the parts that end a name which is not literal: `f"{name}.test.ts"`."""
    if isinstance(node, ast.JoinedStr):
        yield from node.values[1:]
    elif (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "with_suffix"
    ):
        yield from node.args


def _resolve(parts: _PathParts, known: Mapping[str, _PathParts]) -> _PathParts:
    """Return the file names in an expression and in the values of its variables."""
    files, is_home = list(parts.files), parts.is_home
    seen = set[str]()
    pending = list(parts.variables)
    while pending and len(seen) < MAX_NAME_LOOKUPS:
        name = pending.pop()
        if name in known and name not in seen:
            seen.add(name)
            files += known[name].files
            is_home = is_home or known[name].is_home
            pending += known[name].variables[:MAX_NAME_LOOKUPS]
    return _PathParts(tuple(files), (), is_home)
