"""Work on the side in a Python program: done without being called for, its failures hidden."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from apexbridge.scanner.pattern_matcher import PARTIAL_SCAN, Hit, SkillContext
from apexbridge.scanner.rules import RiskLevel, lower_level
from apexbridge.scanner.scan_input import CodeBlock, TextFile
from apexbridge.scanner.taint import TaintFlow, analyze_tree, parse_python

SideEffectKind = Literal["writes", "runs", "talks", "grafted"]

_PROCESS_CALLS = frozenset(
    {"system", "popen", "Popen", "check_output", "check_call", "getoutput", "spawn", "execv",
     "execvp", "startfile"}
)  # fmt: skip
_NETWORK_CALLS = frozenset(
    {"urlopen", "urlretrieve", "HTTPHandler", "HTTPConnection", "HTTPSConnection", "Request",
     "create_connection", "gethostbyname", "getaddrinfo", "sendall", "sendto", "sendmail",
     "SMTP", "SMTP_SSL", "post", "put"}
)  # fmt: skip
_NETWORK_MODULES = frozenset({"requests", "httpx", "urllib", "socket", "smtplib", "ftplib"})
_WRITE_CALLS = frozenset(
    {"write_text", "write_bytes", "copyfile", "copytree", "copy2", "symlink_to", "symlink"}
)
_SENSITIVE_MODULES = frozenset(
    {"os", "subprocess", "socket", "urllib", "http", "shutil", "ctypes", "base64", "codecs",
     "requests", "httpx", "ftplib", "smtplib", "logging", "tempfile", "importlib"}
)  # fmt: skip
"""Modules by which a program reaches out of itself, or hides what it does."""
_BROAD_EXCEPTIONS = frozenset({"Exception", "BaseException", "OSError"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SideEffect:
    """Something a program does beside its work."""

    kind: SideEffectKind
    line: int
    is_at_import: bool
    """Whether reading the program is enough to start it."""


def hidden_side_effects(tree: ast.Module) -> Iterator[SideEffect]:
    """What is done in silence: every failure swallowed, and started by the module itself."""
    functions = {
        node.name: node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    hushed = {name for name, node in functions.items() if _suppresses_errors(node.body)}
    for name, line, is_at_import in _module_level_calls(tree):
        kind = _side_effect_kind(functions[name].body) if name in hushed else None
        if kind:
            yield SideEffect(kind=kind, line=line, is_at_import=is_at_import)
    on_top = set(map(id, tree.body))
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Try)
            and _swallows_errors(node)
            and _side_effect_kind(node.body) == "talks"
        ):
            is_at_import = id(node) in on_top
            if is_at_import or _ignores_result(node):
                yield SideEffect(kind="talks", line=node.lineno, is_at_import=is_at_import)
        elif isinstance(node, ast.Import) and _has_private_alias(node):
            yield SideEffect(kind="grafted", line=node.lineno, is_at_import=True)


def _has_private_alias(node: ast.Import) -> bool:
    """Say whether a module is taken in under a hidden name, as in code put into a foreign program.

    An author has no need to keep names apart from those of the same program.
    """
    return any(
        (alias.asname or "").startswith("_") and alias.name.partition(".")[0] in _SENSITIVE_MODULES
        for alias in node.names
    )


def _ignores_result(attempt: ast.Try) -> bool:
    """Say whether something is sent, and neither the answer nor the failure is used."""
    sends = any(
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and _call_kind(node.value) == "talks"
        for node in attempt.body
    )
    return sends and all(isinstance(h.body[0], ast.Pass) for h in attempt.handlers)


def _suppresses_errors(body: Sequence[ast.stmt]) -> bool:
    """Say whether all that counts in a body stands in attempts whose failure nobody hears of."""
    attempts = [node for node in body if isinstance(node, ast.Try)]
    return (
        bool(attempts)
        and all(map(_swallows_errors, attempts))
        and not _side_effect_kind([node for node in body if not isinstance(node, ast.Try)])
    )


def _swallows_errors(attempt: ast.Try) -> bool:
    return any(
        _is_broad_exception(handler.type) and all(map(_is_no_op, handler.body))
        for handler in attempt.handlers
    )


def _is_broad_exception(kind: ast.expr | None) -> bool:
    return kind is None or (isinstance(kind, ast.Name) and kind.id in _BROAD_EXCEPTIONS)


def _is_no_op(node: ast.stmt) -> bool:
    if isinstance(node, ast.Return):
        return node.value is None or isinstance(node.value, ast.Constant)
    if isinstance(node, ast.Assign):
        return isinstance(node.value, ast.Constant)
    return isinstance(node, ast.Pass | ast.Continue) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    )


def _module_level_calls(tree: ast.Module) -> Iterator[tuple[str, int, bool]]:
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


def _side_effect_kind(body: Sequence[ast.stmt]) -> SideEffectKind | None:
    """The gravest thing done in a body."""
    kinds = {
        kind
        for node in body
        for part in ast.walk(node)
        if isinstance(part, ast.Call) and (kind := _call_kind(part))
    }
    for kind in ("talks", "runs", "writes"):
        if kind in kinds:
            return kind
    return None


def _call_kind(call: ast.Call) -> SideEffectKind | None:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    owner = ""
    if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
        owner = call.func.value.id.strip("_")
    elif isinstance(call.func, ast.Name):
        name = call.func.id
    if name in _NETWORK_CALLS or owner in _NETWORK_MODULES:
        return "talks"
    if name in _PROCESS_CALLS or (owner in {"subprocess", "sp"} and name in {"run", "call"}):
        return "runs"
    if name in _WRITE_CALLS or (name == "open" and _opens_for_writing(call)):
        return "writes"
    return None


def _opens_for_writing(call: ast.Call) -> bool:
    at = int(isinstance(call.func, ast.Name))  # open(path, mode), but path.open(mode)
    given = [*call.args[at : at + 1], *(w.value for w in call.keywords if w.arg == "mode")]
    return any(
        isinstance(value, ast.Constant)
        and isinstance(value.value, str)
        and value.value[:1] in {"w", "a", "x"}
        and len(value.value) <= 3
        for value in given
    )


_SUPPRESSION_HINTS = ("except", " as _")
"""Without one of these a program hides nothing; a quick look saves a slow one."""

MAX_CODE_BLOCKS = 200
"""How many pieces of a document are followed."""


def python_findings(view: TextFile, setting: SkillContext, max_bytes: int) -> Iterator[Hit]:
    """Follow every program in a file, as far as it is not too large."""
    pieces = [unit for unit in view.units if unit.language == "python"]
    for unit in pieces[:MAX_CODE_BLOCKS]:
        source = view.raw if unit.place == "script" else _dedented_block(view, unit)
        tree = parse_python(source) if len(source) <= max_bytes else None
        found = analyze_tree(tree) if tree else None
        if tree is None or found is None:
            yield Hit(
                rule=PARTIAL_SCAN, level="review", line=0, matched=f"data flow of {view.path}"
            )
            continue
        steps = _level_reduction(unit, setting)
        before = 0 if unit.place == "script" else unit.first
        for flow in found:
            yield _taint_hit(flow, view, before, steps)
        if unit.place == "script" and any(word in source for word in _SUPPRESSION_HINTS):
            for aside in hidden_side_effects(tree):
                yield _side_effect_hit(aside, view)


def _dedented_block(view: TextFile, unit: CodeBlock) -> str:
    """The lines between two fences, moved to the left as a whole."""
    lines = view.raw_lines[unit.first : unit.last - 1]
    blank = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return "\n".join(line[blank:] for line in lines)


def _level_reduction(unit: CodeBlock, setting: SkillContext) -> int:
    if unit.place == "script":
        return 0
    return 1 + int(unit.place == "reference") + int(setting.is_about_security)


def _taint_hit(flow: TaintFlow, view: TextFile, before: int, steps: int) -> Hit:
    if flow.end == "sent":
        rule, level = "AB021", "block"
    else:
        rule, level = ("AB030", "block") if flow.kind == "decoded" else ("AB011", "warn")
    line = flow.line + before
    shown = view.raw_lines[line - 1].strip()
    return Hit(rule=rule, level=lower_level(level, steps), line=line, matched=shown)


def _side_effect_hit(aside: SideEffect, view: TextFile) -> Hit:
    level: RiskLevel = "warn" if aside.is_at_import else "review"
    shown = view.raw_lines[aside.line - 1].strip()
    return Hit(rule="AB048", level=level, line=aside.line, matched=shown)
