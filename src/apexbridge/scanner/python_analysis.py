"""Python analysis: taint flows and hidden side effects, by the AST of scripts and code blocks.

The code is parsed, never imported or executed.
"""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from apexbridge.scanner.pattern_matcher import PARTIAL_SCAN, Hit, SkillContext
from apexbridge.scanner.rules import RiskLevel, lower_level
from apexbridge.scanner.scan_input import CodeBlock, TextFile
from apexbridge.scanner.taint import TaintFlow, analyze_tree, parse_python

SideEffectKind = Literal["write", "process", "network", "private import"]

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
"""Modules that access files, processes or the network, or that hide what a script does."""
_BROAD_EXCEPTIONS = frozenset({"Exception", "BaseException", "OSError"})
_SUPPRESSION_HINTS = ("except", " as _")
"""Substrings, one of which is in every script with a hidden side effect: a cheap pre-filter."""

MAX_CODE_BLOCKS = 200
"""Code blocks of one document that are analysed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SideEffect:
    """An action of a script outside of its control flow, with errors suppressed."""

    kind: SideEffectKind
    line: int
    is_at_import: bool
    """Whether importing the module is enough to trigger it."""


def python_findings(file: TextFile, context: SkillContext, max_bytes: int) -> Iterator[Hit]:
    """Analyse the Python code of a file; code over the size limit makes the scan partial."""
    blocks = [block for block in file.code_blocks if block.language == "python"]
    for block in blocks[:MAX_CODE_BLOCKS]:
        source = file.raw if block.role == "script" else _dedented_block(file, block)
        tree = parse_python(source) if len(source) <= max_bytes else None
        found = analyze_tree(tree) if tree else None
        if tree is None or found is None:
            yield Hit(
                rule=PARTIAL_SCAN, level="review", line=0, matched=f"data flow of {file.path}"
            )
            continue
        steps = _level_reduction(block, context)
        before = 0 if block.role == "script" else block.first
        for flow in found:
            yield _taint_hit(flow, file, before, steps)
        if block.role == "script" and any(word in source for word in _SUPPRESSION_HINTS):
            for effect in hidden_side_effects(tree):
                yield _side_effect_hit(effect, file)


def _dedented_block(file: TextFile, block: CodeBlock) -> str:
    """Return the code between two fences without its common indentation."""
    lines = file.raw_lines[block.first : block.last - 1]
    indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return "\n".join(line[indent:] for line in lines)


def _level_reduction(block: CodeBlock, context: SkillContext) -> int:
    if block.role == "script":
        return 0
    return 1 + int(block.role == "reference") + int(context.is_about_security)


def _taint_hit(flow: TaintFlow, file: TextFile, before: int, steps: int) -> Hit:
    if flow.end == "sent":
        rule, level = "AB021", "block"
    else:
        rule, level = ("AB030", "block") if flow.kind == "decoded" else ("AB011", "warn")
    line = flow.line + before
    matched = file.raw_lines[line - 1].strip()
    return Hit(rule=rule, level=lower_level(level, steps), line=line, matched=matched)


def _side_effect_hit(effect: SideEffect, file: TextFile) -> Hit:
    level: RiskLevel = "warn" if effect.is_at_import else "review"
    matched = file.raw_lines[effect.line - 1].strip()
    return Hit(rule="AB048", level=level, line=effect.line, matched=matched)


def hidden_side_effects(tree: ast.Module) -> Iterator[SideEffect]:
    """Return actions that a module starts by itself and whose errors it swallows."""
    functions = {
        node.name: node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    # Errors are swallowed so that a user does not notice a failed exfiltration.
    suppressed = {name for name, node in functions.items() if _suppresses_errors(node.body)}
    for name, line, is_at_import in _module_level_calls(tree):
        kind = _side_effect_kind(functions[name].body) if name in suppressed else None
        if kind:
            yield SideEffect(kind=kind, line=line, is_at_import=is_at_import)
    top_level = set(map(id, tree.body))
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Try)
            and _swallows_errors(node)
            and _side_effect_kind(node.body) == "network"
        ):
            is_at_import = id(node) in top_level
            if is_at_import or _ignores_result(node):
                yield SideEffect(kind="network", line=node.lineno, is_at_import=is_at_import)
        elif isinstance(node, ast.Import) and _has_private_alias(node):
            is_at_import = id(node) in top_level
            yield SideEffect(kind="private import", line=node.lineno, is_at_import=is_at_import)


def _has_private_alias(node: ast.Import) -> bool:
    """Return whether a sensitive module is imported under a private alias.

    Injected code does that to avoid name clashes; an author has no need to.
    """
    return any(
        (alias.asname or "").startswith("_") and alias.name.partition(".")[0] in _SENSITIVE_MODULES
        for alias in node.names
    )


def _ignores_result(node: ast.Try) -> bool:
    """Return whether a request is sent whose response and errors are both ignored."""
    sends = any(
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and _call_kind(node.value) == "network"
        for node in node.body
    )
    return sends and all(isinstance(h.body[0], ast.Pass) for h in node.handlers)


def _suppresses_errors(body: Sequence[ast.stmt]) -> bool:
    """Return whether every action of a body is in a `try` that swallows its errors."""
    tries = [node for node in body if isinstance(node, ast.Try)]
    return (
        bool(tries)
        and all(map(_swallows_errors, tries))
        and not _side_effect_kind([node for node in body if not isinstance(node, ast.Try)])
    )


def _swallows_errors(node: ast.Try) -> bool:
    return any(
        _is_broad_exception(handler.type) and all(map(_is_no_op, handler.body))
        for handler in node.handlers
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
    """Return the functions that a module calls at top level, and whether importing it suffices."""
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
    """Return the most severe kind of action in a body."""
    kinds = {
        kind
        for node in body
        for part in ast.walk(node)
        if isinstance(part, ast.Call) and (kind := _call_kind(part))
    }
    for kind in ("network", "process", "write"):
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
        return "network"
    if name in _PROCESS_CALLS or (owner in {"subprocess", "sp"} and name in {"run", "call"}):
        return "process"
    if name in _WRITE_CALLS or (name == "open" and _opens_for_writing(call)):
        return "write"
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
