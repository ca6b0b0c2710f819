"""Guess the packages of Python scripts from their imports: the AST is read, nothing is run.

A name that a package is imported by is often not the name that it is installed by; `distributions`
has the pairs. An import that a script survives without (`except ImportError`) is optional, unless
the handler ends the program.
"""

import ast
import sys
import tomllib
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from pathlib import Path

from apexbridge.regular_files import open_regular, read_regular
from apexbridge.skills.shebang import SHEBANG_BYTES, script_interpreter

_MAX_SOURCE_BYTES = 256 * 1024
_MAX_TOTAL_BYTES = 2 * 1024 * 1024
"""All sources of a skill: a syntax tree takes about a second a mebibyte."""
_MAX_FILES = 400
_MAX_CACHED = 2_000
_SKIPPED_FOLDERS = frozenset(
    {"tests", "test", "node_modules", "templates", "examples", "assets", "references", "evals",
     "fixtures", "__pycache__", ".git", ".venv", "venv"}
)  # fmt: skip
_IMPORT_ERRORS = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})
_ENDINGS = frozenset({"exit", "_exit", "quit", "abort"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """A module that a script imports, by its dotted name."""

    module: str
    is_optional: bool


def script_sources(root: Path) -> list[Path]:
    """Return the Python files to read: the scripts, then the skill's modules that they import."""
    entries = sorted(path for path in _python_files(root) if _is_entry(root, path))
    entries = entries or sorted(_python_files(root))
    found = dict[Path, None]()
    total, pending = 0, entries[:_MAX_FILES]
    while pending and len(found) < _MAX_FILES:
        path = pending.pop(0)
        total += 0 if path in found else path.stat().st_size
        if path in found or total > _MAX_TOTAL_BYTES:
            continue
        found[path] = None
        pending += _local_imports(root, path)
    return list(found)


def _python_files(root: Path) -> Iterator[Path]:
    named = (path for path in (*root.glob("*"), *(root / "scripts").rglob("*")) if not path.suffix)
    for path in (*root.rglob("*.py"), *filter(_is_python_program, named)):
        parts = path.relative_to(root).parts
        is_test = path.name.startswith(("test_", "conftest"))
        is_skipped = is_test or not _SKIPPED_FOLDERS.isdisjoint(parts[:-1])
        if not is_skipped and path.is_file() and not _is_python_2(path):
            yield path


def _is_python_program(path: Path) -> bool:
    """Return whether a file without a suffix is a Python script, by its first line."""
    return _interpreter(path).startswith("python")


def _is_python_2(path: Path) -> bool:
    return _interpreter(path).startswith("python2")


def _interpreter(path: Path) -> str:
    try:
        with open_regular(path) as file:
            return script_interpreter(file.readline(SHEBANG_BYTES), path.suffix)[0]
    except OSError:
        return ""


def _is_entry(root: Path, path: Path) -> bool:
    return path.parent == root or path.relative_to(root).parts[0] == "scripts"


def _local_imports(root: Path, path: Path) -> Iterator[Path]:
    for found in imports_of(path):
        relative = Path(*found.module.split("."))
        for base in dict.fromkeys((path.parent, root, root / "scripts")):
            for near in (base / relative.with_suffix(".py"), base / relative / "__init__.py"):
                if near.is_file() and near.resolve().is_relative_to(root):
                    yield near


def imports_of(path: Path) -> tuple[Import, ...]:
    """Return the absolute imports of a Python file; none if it cannot be parsed."""
    try:
        status = path.stat()
    except OSError:
        return ()
    return _imports(path, status.st_mtime_ns, status.st_size)


@lru_cache(_MAX_CACHED)
def _imports(path: Path, _mtime: int, size: int) -> tuple[Import, ...]:
    if size > _MAX_SOURCE_BYTES:
        return ()
    try:
        with warnings.catch_warnings(action="ignore"):  # invalid escapes of the script
            tree = ast.parse(read_regular(path, _MAX_SOURCE_BYTES))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    reader = _ImportReader()
    try:
        reader.visit(tree)
    except RecursionError:
        return ()
    return tuple(dict.fromkeys(reader.found))


class _ImportReader(ast.NodeVisitor):
    def __init__(self) -> None:
        self.found = list[Import]()
        self._is_optional: bool = False

    def visit_Import(self, node: ast.Import) -> None:  # the name that ast expects
        for name in node.names:
            self._add(name.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if not node.level and node.module:
            for name in node.names:
                self._add(f"{node.module}.{name.name}" if name.name != "*" else node.module)

    def visit_Try(self, node: ast.Try) -> None:
        before: bool = self._is_optional
        self._is_optional = before or any(map(_survives, node.handlers))
        for statement in node.body:
            self.visit(statement)
        self._is_optional = before
        fallback = any(_catches_import_error(handler) for handler in node.handlers)
        self._is_optional = before or fallback  # another module instead: one of the two is enough
        for handler in node.handlers:
            self.visit(handler)
        self._is_optional = before
        for statement in (*node.orelse, *node.finalbody):
            self.visit(statement)

    def visit_If(self, node: ast.If) -> None:
        is_typing = ast.unparse(node.test).endswith("_CHECKING")
        for statement in node.orelse if is_typing else (node.test, *node.body, *node.orelse):
            self.visit(statement)

    def _add(self, module: str) -> None:
        self.found.append(Import(module=module, is_optional=self._is_optional))


def _catches_import_error(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(isinstance(kind, ast.Name) and kind.id in _IMPORT_ERRORS for kind in kinds)


def _survives(handler: ast.ExceptHandler) -> bool:
    """Return whether the script goes on without the module: the handler does not end it."""
    return _catches_import_error(handler) and not any(map(_ends, handler.body))


def _ends(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Raise):
        return True
    for node in ast.walk(statement):
        if isinstance(node, ast.Call):
            target = node.func
            name = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")
            if name in _ENDINGS:
                return True
    return False


def foreign_imports(root: Path, sources: Sequence[Path]) -> list[tuple[Import, Path]]:
    """Return imports of modules that are neither in the standard library nor in the skill."""
    places = _own_modules(root)
    return [
        (found, path)
        for path in sources
        for found in imports_of(path)
        if (top := found.module.partition(".")[0]) not in sys.stdlib_module_names
        and top.isidentifier()
        and not _is_own(top, path, places)
    ]


def _own_modules(root: Path) -> dict[str, set[Path]]:
    """Return the skill's modules and packages by name, each with the folders that hold one."""
    found = defaultdict[str, set[Path]](set)
    for path in root.rglob("*.py"):
        found[path.stem].add(path.parent)
        for folder in path.relative_to(root).parents:
            found[folder.name].add((root / folder).parent)
    return found


def _is_own(module: str, script: Path, places: Mapping[str, set[Path]]) -> bool:
    """Return whether an import means a module of the skill.

    One beside the script or above it does. One elsewhere is found only by a changed `sys.path`: it
    counts unless the name is known to be that of a package (`validators/pptx.py` is no `pptx`).
    """
    holders = places.get(module, set())
    if not holders.isdisjoint(script.parents):
        return True
    return bool(holders) and module not in distributions()


@cache
def distributions() -> dict[str, tuple[str, ...]]:
    """Return the names that a module is installed by, where they are not its own."""
    text = resources.files(__package__ or "").joinpath("distributions.toml").read_text("utf-8")
    table: dict[str, str | list[str]] = tomllib.loads(text)["distributions"]
    return {
        module: (names,) if isinstance(names, str) else tuple(names)
        for module, names in table.items()
    }


def distributions_of(module: str) -> tuple[str, ...]:
    """Return the distributions that may provide a module, the usual one first.

    >>> distributions_of("PIL.Image"), distributions_of("requests")
    (('pillow',), ('requests',))
    """
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        names = distributions().get(".".join(parts[:length]))
        if names is not None:
            return names
    return (parts[0].replace("_", "-").lower(),)
