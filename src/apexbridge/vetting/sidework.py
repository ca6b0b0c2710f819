"""Work on the side in a Python program: done without being called for, its failures hidden."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["writes", "runs", "talks", "grafted"]

_RUNS = frozenset(
    {"system", "popen", "Popen", "check_output", "check_call", "getoutput", "spawn", "execv",
     "execvp", "startfile"}
)  # fmt: skip
_TALKS = frozenset(
    {"urlopen", "urlretrieve", "HTTPHandler", "HTTPConnection", "HTTPSConnection", "Request",
     "create_connection", "gethostbyname", "getaddrinfo", "sendall", "sendto", "sendmail",
     "SMTP", "SMTP_SSL", "post", "put"}
)  # fmt: skip
_TALKING_MODULES = frozenset({"requests", "httpx", "urllib", "socket", "smtplib", "ftplib"})
_WRITES = frozenset(
    {"write_text", "write_bytes", "copyfile", "copytree", "copy2", "symlink_to", "symlink"}
)
_OUTWARD = frozenset(
    {"os", "subprocess", "socket", "urllib", "http", "shutil", "ctypes", "base64", "codecs",
     "requests", "httpx", "ftplib", "smtplib", "logging", "tempfile", "importlib"}
)  # fmt: skip
"""Modules by which a program reaches out of itself, or hides what it does."""
_BROAD = frozenset({"Exception", "BaseException", "OSError"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Aside:
    """Something a program does beside its work."""

    kind: Kind
    line: int
    is_at_import: bool
    """Whether reading the program is enough to start it."""


def asides(tree: ast.Module) -> Iterator[Aside]:
    """What is done in silence: every failure swallowed, and started by the module itself."""
    functions = {
        node.name: node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    hushed = {name for name, node in functions.items() if _is_hushed(node.body)}
    for name, line, is_at_import in _started(tree):
        kind = _kind_of(functions[name].body) if name in hushed else None
        if kind:
            yield Aside(kind=kind, line=line, is_at_import=is_at_import)
    on_top = set(map(id, tree.body))
    for node in ast.walk(tree):
        if isinstance(node, ast.Try) and _swallows(node) and _kind_of(node.body) == "talks":
            is_at_import = id(node) in on_top
            if is_at_import or _is_dropped(node):
                yield Aside(kind="talks", line=node.lineno, is_at_import=is_at_import)
        elif isinstance(node, ast.Import) and _is_grafted(node):
            yield Aside(kind="grafted", line=node.lineno, is_at_import=True)


def _is_grafted(node: ast.Import) -> bool:
    """Say whether a module is taken in under a hidden name, as in code put into a foreign program.

    An author has no need to keep names apart from those of the same program.
    """
    return any(
        (alias.asname or "").startswith("_") and alias.name.partition(".")[0] in _OUTWARD
        for alias in node.names
    )


def _is_dropped(attempt: ast.Try) -> bool:
    """Say whether something is sent, and neither the answer nor the failure is used."""
    sends = any(
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and _kind_of_call(node.value) == "talks"
        for node in attempt.body
    )
    return sends and all(isinstance(h.body[0], ast.Pass) for h in attempt.handlers)


def _is_hushed(body: Sequence[ast.stmt]) -> bool:
    """Say whether all that counts in a body stands in attempts whose failure nobody hears of."""
    attempts = [node for node in body if isinstance(node, ast.Try)]
    return (
        bool(attempts)
        and all(map(_swallows, attempts))
        and not _kind_of([node for node in body if not isinstance(node, ast.Try)])
    )


def _swallows(attempt: ast.Try) -> bool:
    return any(
        _is_broad(handler.type) and all(map(_is_nothing, handler.body))
        for handler in attempt.handlers
    )


def _is_broad(kind: ast.expr | None) -> bool:
    return kind is None or (isinstance(kind, ast.Name) and kind.id in _BROAD)


def _is_nothing(node: ast.stmt) -> bool:
    if isinstance(node, ast.Return):
        return node.value is None or isinstance(node.value, ast.Constant)
    if isinstance(node, ast.Assign):
        return isinstance(node.value, ast.Constant)
    return isinstance(node, ast.Pass | ast.Continue) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    )


def _started(tree: ast.Module) -> Iterator[tuple[str, int, bool]]:
    """The functions that a module calls by itself, for nothing that it would use."""
    for node in tree.body:
        if isinstance(node, ast.If):
            yield from ((name, line, False) for name, line in _calls(node.body))
        else:
            yield from ((name, line, True) for name, line in _calls([node]))


def _calls(body: Sequence[ast.stmt]) -> Iterator[tuple[str, int]]:
    for node in body:
        value = node.value if isinstance(node, ast.Expr | ast.Assign) else None
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
            yield value.func.id, node.lineno


def _kind_of(body: Sequence[ast.stmt]) -> Kind | None:
    """The gravest thing done in a body."""
    kinds = {
        kind
        for node in body
        for part in ast.walk(node)
        if isinstance(part, ast.Call) and (kind := _kind_of_call(part))
    }
    for kind in ("talks", "runs", "writes"):
        if kind in kinds:
            return kind
    return None


def _kind_of_call(call: ast.Call) -> Kind | None:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    owner = ""
    if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
        owner = call.func.value.id.strip("_")
    elif isinstance(call.func, ast.Name):
        name = call.func.id
    if name in _TALKS or owner in _TALKING_MODULES:
        return "talks"
    if name in _RUNS or (owner in {"subprocess", "sp"} and name in {"run", "call"}):
        return "runs"
    if name in _WRITES or (name == "open" and _is_for_writing(call)):
        return "writes"
    return None


def _is_for_writing(call: ast.Call) -> bool:
    at = int(isinstance(call.func, ast.Name))  # open(path, mode), but path.open(mode)
    given = [*call.args[at : at + 1], *(w.value for w in call.keywords if w.arg == "mode")]
    return any(
        isinstance(value, ast.Constant)
        and isinstance(value.value, str)
        and value.value[:1] in {"w", "a", "x"}
        and len(value.value) <= 3
        for value in given
    )
