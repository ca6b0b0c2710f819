"""Undocumented behavior: what the scripts of a skill do and its documents do not mention.

Users decide by the documents. A script that appends to a log, writes a dotfile, uses the network,
reads environment variables or decodes data, and no document mentions it, does more than they agreed
to.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

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
_LOG_SUFFIXES = (".jsonl",)
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
        re.compile(r"\bos\.environ\b|\bos\.getenv\(|\bprocess\.env\b"),
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
    files: Sequence[TextFile], max_bytes: int
) -> Iterator[tuple[TextFile, Hit]]:
    """Match behavior of scripts that no document of the skill mentions."""
    scripts = [
        file for file in files if file.role_of(1) == "script" and not _TEST_PATH.search(file.path)
    ]
    documents = [file for file in files if file.role_of(1) in {"instruction", "reference"}]
    documentation = "\n".join(file.lower for file in documents)
    for file in scripts[:MAX_SCRIPTS] if documentation else []:
        for line in (
            *_undocumented_calls(file, documentation),
            *_undocumented_files(file, documentation, max_bytes),
        ):
            matched = file.raw_lines[line - 1].strip()
            yield file, Hit(rule=RULE, level="warn", line=line, matched=matched)


def _undocumented_calls(file: TextFile, documentation: str) -> Iterator[int]:
    """Return the first line of each kind of undocumented call."""
    for behavior in _BEHAVIORS:
        match = behavior.call.search(file.text)
        if match and not behavior.mention.search(documentation):
            yield file.line_number(match.start())


def _undocumented_files(file: TextFile, documentation: str, max_bytes: int) -> Iterator[int]:
    """Return the lines that append to a file or write a dotfile with an undocumented name."""
    block = file.code_blocks[0]
    if block.language != "python" or len(file.raw) > max_bytes or not _may_write(file.lower):
        return
    tree = parse_python(file.raw)
    if tree is None:
        return
    # The help text of the command line is documentation too.
    documentation += "\n".join(_ARGUMENTS.findall(file.lower))
    for name, is_appended, line in _written_files(tree):
        base = name.rsplit("/", 1)[-1].lower()
        is_hidden = base.startswith(".") and base not in _COMMON_DOTFILES
        if (is_appended or is_hidden or base.endswith(_LOG_SUFFIXES)) and base not in documentation:
            yield line


def _may_write(source: str) -> bool:
    """Return whether a script may write files: a cheap check before the AST is built."""
    return "open(" in source or "write_" in source


def _written_files(tree: ast.Module) -> Iterator[tuple[str, bool, int]]:
    """Return the file names that a script writes, whether it appends, and the line, by its AST."""
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
            for name in _resolve_names(_path_parts(path), known):
                yield name, mode[:1] == "a", node.lineno


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
    for node in ast.walk(path):
        if isinstance(node, ast.Constant) and _FILE_NAME.fullmatch(_string_value(node)):
            files.append(_string_value(node))
        elif isinstance(node, ast.Name):
            variables.append(node.id)
    return _PathParts(tuple(files), tuple(variables))


def _resolve_names(parts: _PathParts, known: Mapping[str, _PathParts]) -> Iterator[str]:
    """Return the file names in an expression and in the values of its variables."""
    yield from parts.files
    seen = set[str]()
    pending = list(parts.variables)
    while pending and len(seen) < MAX_NAME_LOOKUPS:
        name = pending.pop()
        if name in known and name not in seen:
            seen.add(name)
            yield from known[name].files
            pending += known[name].variables[:MAX_NAME_LOOKUPS]
