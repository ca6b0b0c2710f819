"""What the programs of a skill do and none of its documents speaks of.

A reader learns from the documents what a skill does. A program that keeps a record, writes a hidden
file, talks to others, reads the environment or decodes something, where no document has a word of
it, does more than the reader was told.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from apexbridge.scanner.pattern_matcher import Hit
from apexbridge.scanner.scan_input import TextFile
from apexbridge.scanner.taint import parse_python

RULE = "AB064"
MAX_PROGRAMS = 100
"""How many programs of one skill are held against its documents."""

MAX_NAME_LOOKUPS = 12
"""How many names are followed from a call to the text of a file's name."""

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
"""Hidden files that a project has anyway, and ends of names."""
_TEST_PATH = re.compile(
    r"(?:^|/)(?:tests?|testing|examples?|fixtures|evals?)/|(?:^|/)test_|_test\.\w+$"
)
"""Where a project tries itself out."""
_ARGUMENTS = re.compile(r"add_argument\([^)\n]{0,400}")


@dataclass(frozen=True, slots=True)
class _Behavior:
    """Something a program does, and the words a document would have for it."""

    done: re.Pattern[str]
    said: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class _PathParts:
    """What an expression is made of, as far as it matters here."""

    files: tuple[str, ...]
    others: tuple[str, ...]


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
    views: Sequence[TextFile], max_bytes: int
) -> Iterator[tuple[TextFile, Hit]]:
    """Hold every program against all documents of the skill."""
    programs = [
        view for view in views if view.place_of(1) == "script" and not _TEST_PATH.search(view.path)
    ]
    documents = [view for view in views if view.place_of(1) in {"instruction", "reference"}]
    told = "\n".join(view.lower for view in documents)
    for view in programs[:MAX_PROGRAMS] if told else []:
        for line in (*_undocumented_calls(view, told), *_undocumented_files(view, told, max_bytes)):
            shown = view.raw_lines[line - 1].strip()
            yield view, Hit(rule=RULE, level="warn", line=line, matched=shown)


def _undocumented_calls(view: TextFile, told: str) -> Iterator[int]:
    """The first line of each kind of deed that nobody was told of."""
    for deed in _BEHAVIORS:
        match = deed.done.search(view.text)
        if match and not deed.said.search(told):
            yield view.line_at(match.start())


def _undocumented_files(view: TextFile, told: str, max_bytes: int) -> Iterator[int]:
    """Where a program adds to a record, or writes a hidden file, whose name nobody was told."""
    unit = view.units[0]
    if unit.language != "python" or len(view.raw) > max_bytes or not _may_write(view.lower):
        return
    tree = parse_python(view.raw)
    if tree is None:
        return
    told += "\n".join(_ARGUMENTS.findall(view.lower))
    for name, is_added_to, line in _written_files(tree):
        base = name.rsplit("/", 1)[-1].lower()
        is_hidden = base.startswith(".") and base not in _COMMON_DOTFILES
        if (is_added_to or is_hidden or base.endswith(_LOG_SUFFIXES)) and base not in told:
            yield line


def _may_write(source: str) -> bool:
    """A quick look that saves a slow one."""
    return "open(" in source or "write_" in source


def _written_files(tree: ast.Module) -> Iterator[tuple[str, bool, int]]:
    """The files that a program names and writes, and whether it adds to them."""
    known = {
        node.targets[0].id: _path_parts(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        place, mode = _path_and_mode(node)
        if place is not None and mode[:1] in {"w", "a", "x"}:
            for name in _resolve_names(_path_parts(place), known):
                yield name, mode[:1] == "a", node.lineno


def _path_and_mode(call: ast.Call) -> tuple[ast.expr | None, str]:
    """What is opened or written, and in which way."""
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


def _path_parts(place: ast.expr) -> _PathParts:
    """The file names in an expression, and the other names it is made of."""
    files, others = list[str](), list[str]()
    for node in ast.walk(place):
        if isinstance(node, ast.Constant) and _FILE_NAME.fullmatch(_string_value(node)):
            files.append(_string_value(node))
        elif isinstance(node, ast.Name):
            others.append(node.id)
    return _PathParts(tuple(files), tuple(others))


def _resolve_names(parts: _PathParts, known: Mapping[str, _PathParts]) -> Iterator[str]:
    """The file names in an expression and in what its names stand for, a few names deep."""
    yield from parts.files
    seen = set[str]()
    waiting = list(parts.others)
    while waiting and len(seen) < MAX_NAME_LOOKUPS:
        name = waiting.pop()
        if name in known and name not in seen:
            seen.add(name)
            yield from known[name].files
            waiting += known[name].others[:MAX_NAME_LOOKUPS]
