"""Taint analysis of the Python AST: secrets that reach the network, payloads that reach `exec`.

Taint labels are propagated per function, flow-insensitively, in a few rounds: a heuristic that is
fast and finds what is written plainly. An interpreter is never started.
"""

import ast
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from apexbridge.scanner.rules import regex

TaintLabel = Literal["secret", "environment", "decoded", "remote"]
SinkKind = Literal["sent", "run"]

MAX_ROUNDS = 4
MAX_NODES = 60_000
MAX_VISITS = 1_000_000
"""Visits of AST nodes in all: a budget, because nested calls are visited repeatedly."""

_SECRET_PATHS = (
    "{{credential_paths}}",
    "{{credential_stores}}",
    r"(?:^|/)\.env(?:\.\w{1,12})?$",
    r"\.pem$",
    r"\.mykey",
    r"(?:^|/)\.(?:ssh|aws|gnupg|kube|azure|mozilla|password-store)/?$",
    r"\.tfstate(?:\.backup)?$",
)
_SECRET_NAME = re.compile(
    r"(?:AWS|GITHUB|GH|GITLAB|STRIPE|SLACK|DISCORD|NPM|PYPI|DATABASE|DB|POSTGRES|MONGO\w{0,3}|AZURE|"
    r"GCP|GOOGLE|SSH|DOCKER|OP|TWILIO|SENDGRID|REDIS|VAULT|PRIVATE|OPENAI|ANTHROPIC|COHERE|"
    r"HUGGINGFACE|HF)_(?:\w{1,24}_)?(?:TOKEN|KEY|KEY_ID|SECRET|PASSWORD|URL|URI|PASS)"
)
MIN_SECRET_NAMES = 3
"""Names of secret variables in one list that make it a search for secrets."""
_DECODERS = frozenset(
    {"b64decode", "b32decode", "b16decode", "b85decode", "a85decode", "urlsafe_b64decode",
     "standard_b64decode", "unhexlify", "a2b_base64", "fromhex", "decompress", "unescape"}
)  # fmt: skip
_REMOTE_SOURCES = frozenset(
    {"requests.get", "urllib.request.urlopen", "urlopen", "httpx.get", "urllib2.urlopen"}
)
_EXEC_SINKS = frozenset(
    {"exec", "eval", "compile", "os.system", "os.popen", "subprocess.run", "subprocess.call",
     "subprocess.Popen", "subprocess.check_output", "subprocess.check_call",
     "subprocess.getoutput", "pty.spawn", "marshal.loads", "importlib.import_module",
     "__import__"}
)  # fmt: skip
_NETWORK_SINKS = frozenset(
    {"requests.post", "requests.put", "requests.patch", "requests.request", "httpx.post",
     "httpx.put", "httpx.request", "urllib.request.urlopen", "urllib.request.Request",
     "Request", "urlopen", "aiohttp.request", "logging.handlers.HTTPHandler", "HTTPHandler"}
)  # fmt: skip
_NETWORK_METHODS = (
    ".post",
    ".put",
    ".sendall",
    ".sendto",
    ".send",
    ".sendmail",
    ".storbinary",
    ".send_message",
)
_DANGEROUS_LABELS: Mapping[SinkKind, frozenset[TaintLabel]] = {
    "run": frozenset({"decoded", "remote"}),
    "sent": frozenset({"secret", "environment"}),
}
_PROPAGATING_NODES = (
    ast.Assign,
    ast.AnnAssign,
    ast.AugAssign,
    ast.NamedExpr,
    ast.For,
    ast.AsyncFor,
    ast.comprehension,
    ast.withitem,
    ast.Return,
    ast.Call,
)
"""AST nodes that move data from one name to another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaintFlow:
    """Tainted data that reaches a dangerous sink."""

    kind: TaintLabel
    end: SinkKind
    line: int


class _AnalysisBudgetError(Exception):
    """The visit budget is exhausted."""


@dataclass(slots=True)
class _TaintState:
    """The taint labels found so far, keyed by function and variable name."""

    single_items: set[int]
    """Ids of the `os.environ` nodes that are read for a single variable."""
    max_visits: int
    visits: int = 0
    labels: dict[tuple[str, str], set[TaintLabel]] = field(
        default_factory=dict[tuple[str, str], set[TaintLabel]]
    )
    functions: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def labels_of(self, scope: str, name: str) -> set[TaintLabel]:
        """Return the labels of a name, in its function or global."""
        return self.labels.get((scope, name), set()) | self.labels.get(("", name), set())

    def add(self, scope: str, name: str, labels: set[TaintLabel]) -> None:
        """Add labels to a name."""
        if labels:
            self.labels.setdefault((scope, name), set()).update(labels)


def parse_python(source: str) -> ast.Module | None:
    """Parse Python; return an empty module for a syntax error, None for code nested too deeply."""
    try:
        with warnings.catch_warnings():
            # The parser warns of invalid escapes in the scanned code, which is not ours to fix.
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except (SyntaxError, ValueError):
        return ast.Module(body=[], type_ignores=[])
    except (RecursionError, MemoryError):
        return None


def analyze_tree(tree: ast.Module, *, max_visits: int = MAX_VISITS) -> tuple[TaintFlow, ...] | None:
    """Return the taint flows of a parsed program; None if it exceeds the budget."""
    nodes = list(_nodes_with_scope(tree))
    if len(nodes) >= MAX_NODES:
        return None
    # Propagation is the expensive part, and most programs have nothing to propagate.
    if not _has_source_and_sink(nodes):
        return ()
    single_items = {id(part) for _, node in nodes for part in _single_item_access(node)}
    state = _TaintState(single_items=single_items, max_visits=max_visits)
    for _, node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            state.functions[node.name] = _parameters(node)
    propagating = [(scope, node) for scope, node in nodes if isinstance(node, _PROPAGATING_NODES)]
    try:
        for _ in range(MAX_ROUNDS):
            for scope, node in propagating:
                _propagate(state, scope, node)
        found = {flow for scope, node in propagating for flow in _sink_flows(state, scope, node)}
    except (RecursionError, _AnalysisBudgetError):
        return None
    return tuple(sorted(found, key=lambda flow: (flow.line, flow.kind, flow.end)))


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """Return the parameters that positional arguments bind to, without `self` and `cls`."""
    names = [arg.arg for arg in function.args.args]
    return names[1:] if names[:1] in (["self"], ["cls"]) else names


def _nodes_with_scope(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """Return every node with the name of its enclosing function."""
    pending: list[tuple[str, ast.AST]] = [("", tree)]
    count = 0
    while pending and count < MAX_NODES:
        scope, node = pending.pop()
        count += 1
        yield scope, node
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        inner = node.name if is_function else scope
        pending.extend((inner, child) for child in ast.iter_child_nodes(node))


def _has_source_and_sink(nodes: Sequence[tuple[str, ast.AST]]) -> bool:
    """Return whether a source and a matching sink exist; most programs lack one and are skipped."""
    starts, ends = set[SinkKind](), set[SinkKind]()
    for _, node in nodes:
        if isinstance(node, ast.Call):
            name = _dotted_name(node.func)
            is_remote = name in _REMOTE_SOURCES or _is_decoder(name, node)
            starts.update(("run",) if is_remote else ())
            ends.update(_sink_kinds(name))
        elif (
            (isinstance(node, ast.Attribute) and node.attr == "environ")
            or (isinstance(node, ast.Constant) and _is_secret_path(node.value))
            or _lists_secret_names(node)
        ):
            starts.add("sent")
    return bool(starts & ends)


def _sink_kinds(name: str) -> Iterator[SinkKind]:
    """Return the kinds of sinks that a function is."""
    if name in _EXEC_SINKS:
        yield "run"
    if name in _NETWORK_SINKS or name.endswith(_NETWORK_METHODS):
        yield "sent"


def _is_decoder(name: str, call: ast.Call) -> bool:
    end = name.rpartition(".")[2]
    is_codec = name == "codecs.decode" and len(call.args) > 1
    return end in _DECODERS or is_codec or (end == "join" and _joins_chr_calls(call))


def _joins_chr_calls(call: ast.Call) -> bool:
    """Return whether a string is joined from `chr()` calls."""
    given = call.args[0] if call.args else None
    if isinstance(given, ast.GeneratorExp | ast.ListComp):
        parts = [given.elt]
    else:
        parts = given.elts if isinstance(given, ast.List | ast.Tuple) else []
    return any(isinstance(part, ast.Call) and _dotted_name(part.func) == "chr" for part in parts)


def _is_secret_path(value: object) -> bool:
    return isinstance(value, str) and len(value) < 300 and bool(regex(*_SECRET_PATHS).search(value))


def _lists_secret_names(node: ast.AST) -> bool:
    """Return whether a list names secrets of several providers."""
    if not isinstance(node, ast.List | ast.Tuple | ast.Set):
        return False
    names = {
        match[0].split("_", 1)[0]
        for item in node.elts
        if isinstance(item, ast.Constant)
        and isinstance(item.value, str)
        and (match := _SECRET_NAME.fullmatch(item.value))
    }
    return len(names) >= MIN_SECRET_NAMES


def _propagate(state: _TaintState, scope: str, node: ast.AST) -> None:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            _bind(state, scope, target, _labels(state, scope, node.value))
    elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr) and node.value:
        _bind(state, scope, node.target, _labels(state, scope, node.value))
    elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
        _bind(state, scope, node.target, _labels(state, scope, node.iter))
    elif isinstance(node, ast.withitem) and node.optional_vars:
        _bind(state, scope, node.optional_vars, _labels(state, scope, node.context_expr))
    elif isinstance(node, ast.Return) and node.value:
        state.add("", f"{scope}()", _labels(state, scope, node.value))
    elif isinstance(node, ast.Call):
        _propagate_call(state, scope, node)


def _bind(state: _TaintState, scope: str, target: ast.expr, labels: set[TaintLabel]) -> None:
    for node in ast.walk(target):
        if isinstance(node, ast.Name):
            state.add(scope, node.id, labels)
        elif isinstance(node, ast.Attribute):
            state.add("", f".{node.attr}", labels)


def _propagate_call(state: _TaintState, scope: str, call: ast.Call) -> None:
    """Propagate labels from arguments to parameters, and from appended values to containers."""
    name = _dotted_name(call.func)
    end = name.rpartition(".")[2]
    for parameter, argument in zip(state.functions.get(end, ()), call.args, strict=False):
        state.add(end, parameter, _labels(state, scope, argument))
    if end in {"append", "extend", "update", "add", "write", "insert"} and "." in name:
        owner = name.split(".", 1)[0]
        for argument in call.args:
            state.add(scope, owner, _labels(state, scope, argument))


def _labels(state: _TaintState, scope: str, value: ast.AST) -> set[TaintLabel]:
    """Return the labels of an expression."""
    labels = set[TaintLabel]()
    for node in ast.walk(value):
        state.visits += 1
        if state.visits > state.max_visits:
            raise _AnalysisBudgetError
        if isinstance(node, ast.Name):
            labels |= state.labels_of(scope, node.id)
        elif isinstance(node, ast.Attribute):
            labels |= state.labels_of("", f".{node.attr}")
            if node.attr == "environ" and id(node) not in state.single_items:
                labels.add("environment")
        elif isinstance(node, ast.Constant):
            labels |= {"secret"} if _is_secret_path(node.value) else set()
        elif isinstance(node, ast.Call):
            labels |= _call_labels(state, node)
        elif _lists_secret_names(node):
            labels.add("secret")
    return labels


def _single_item_access(node: ast.AST) -> Iterator[ast.AST]:
    """Return the values from which a node takes a single item."""
    if isinstance(node, ast.Subscript) or (
        isinstance(node, ast.Attribute) and node.attr not in {"items", "copy", "values"}
    ):
        yield node.value
    elif isinstance(node, ast.Compare):
        yield from node.comparators


def _call_labels(state: _TaintState, call: ast.Call) -> set[TaintLabel]:
    name = _dotted_name(call.func)
    end = name.rpartition(".")[2]
    labels = set(state.labels_of("", f"{end}()"))
    if _is_decoder(name, call):
        labels.add("decoded")
    if name in _REMOTE_SOURCES:
        labels.add("remote")
    return labels


def _sink_flows(state: _TaintState, scope: str, node: ast.AST) -> Iterator[TaintFlow]:
    if not isinstance(node, ast.Call):
        return
    name = _dotted_name(node.func)
    ends = set(_sink_kinds(name))
    if not ends:
        return
    given = [*node.args, *(keyword.value for keyword in node.keywords)]
    labels = set[TaintLabel]().union(*(_labels(state, scope, value) for value in given))
    for end in ends:
        for kind in labels & _DANGEROUS_LABELS[end]:
            yield TaintFlow(kind=kind, end=end, line=node.lineno)


def _dotted_name(node: ast.expr) -> str:
    """Return the dotted name of a function, without the calls in between."""
    parts = list[str]()
    while True:
        if isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        elif isinstance(node, ast.Call):
            node = node.func
        else:
            break
    parts.append(node.id if isinstance(node, ast.Name) else "")
    return ".".join(reversed(parts)).lstrip(".")
