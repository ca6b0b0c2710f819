"""How data moves through a Python program: from secrets to the network, from codes to running.

Names are followed per function, without order, a few rounds. That is coarse; it finds what is
written plainly, and never runs anything.
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
"""How often a node may be looked at in all; nested calls are looked at again and again."""

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
"""A list of as many variables that hold secrets is a search for secrets."""
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
"""What moves data from one name to another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaintFlow:
    """Data of a kind that reaches a place where it does harm."""

    kind: TaintLabel
    end: SinkKind
    line: int


class _AnalysisBudgetError(Exception):
    """The program is too tangled to follow."""


@dataclass(slots=True)
class _TaintState:
    """What is known about names so far; the key is the function and the name in it."""

    partly: set[int]
    """The mentions of `os.environ` that only take one variable."""
    max_steps: int
    steps: int = 0
    labels: dict[tuple[str, str], set[TaintLabel]] = field(
        default_factory=dict[tuple[str, str], set[TaintLabel]]
    )
    functions: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def of(self, scope: str, name: str) -> set[TaintLabel]:
        """The kinds of data a name may hold."""
        return self.labels.get((scope, name), set()) | self.labels.get(("", name), set())

    def add(self, scope: str, name: str, labels: set[TaintLabel]) -> None:
        """Note that a name may hold data of some kinds."""
        if labels:
            self.labels.setdefault((scope, name), set()).update(labels)


def taint_flows(source: str, *, max_steps: int = MAX_VISITS) -> tuple[TaintFlow, ...] | None:
    """Follow the data of a program; None if it is too large or tangled for that.

    What cannot be read as Python has no flows.
    """
    tree = parse_python(source)
    return analyze_tree(tree, max_steps=max_steps) if tree else None


def parse_python(source: str) -> ast.Module | None:
    """Read a program; an empty one if it is no Python, None if it is too tangled."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except (SyntaxError, ValueError):
        return ast.Module(body=[], type_ignores=[])
    except (RecursionError, MemoryError):
        return None


def analyze_tree(tree: ast.Module, *, max_steps: int = MAX_VISITS) -> tuple[TaintFlow, ...] | None:
    """Follow the data of a program that was read."""
    nodes = list(_nodes_with_scope(tree))
    if len(nodes) >= MAX_NODES:
        return None
    if not _has_source_and_sink(nodes):
        return ()
    partly = {id(part) for _, node in nodes for part in _single_item_access(node)}
    program = _TaintState(partly=partly, max_steps=max_steps)
    for _, node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            program.functions[node.name] = _parameters(node)
    telling = [(scope, node) for scope, node in nodes if isinstance(node, _PROPAGATING_NODES)]
    try:
        for _ in range(MAX_ROUNDS):
            for scope, node in telling:
                _propagate(program, scope, node)
        found = {flow for scope, node in telling for flow in _sink_flows(program, scope, node)}
    except (RecursionError, _AnalysisBudgetError):
        return None
    return tuple(sorted(found, key=lambda flow: (flow.line, flow.kind, flow.end)))


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """What a call gives a value to; a method gets its object without being given it."""
    names = [arg.arg for arg in function.args.args]
    return names[1:] if names[:1] in (["self"], ["cls"]) else names


def _nodes_with_scope(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """Every node with the name of the function it stands in."""
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
    """Say whether there is anything to follow, and an end it could reach; most have neither."""
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
    """What becomes of the data given to a function."""
    if name in _EXEC_SINKS:
        yield "run"
    if name in _NETWORK_SINKS or name.endswith(_NETWORK_METHODS):
        yield "sent"


def _is_decoder(name: str, call: ast.Call) -> bool:
    end = name.rpartition(".")[2]
    is_told = name == "codecs.decode" and len(call.args) > 1
    return end in _DECODERS or is_told or (end == "join" and _joins_chr_calls(call))


def _joins_chr_calls(call: ast.Call) -> bool:
    """Say whether a text is joined from the numbers of its characters."""
    given = call.args[0] if call.args else None
    if isinstance(given, ast.GeneratorExp | ast.ListComp):
        parts = [given.elt]
    else:
        parts = given.elts if isinstance(given, ast.List | ast.Tuple) else []
    return any(isinstance(part, ast.Call) and _dotted_name(part.func) == "chr" for part in parts)


def _is_secret_path(value: object) -> bool:
    return isinstance(value, str) and len(value) < 300 and bool(regex(*_SECRET_PATHS).search(value))


def _lists_secret_names(node: ast.AST) -> bool:
    """Say whether a list names secrets of several kinds."""
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


def _propagate(program: _TaintState, scope: str, node: ast.AST) -> None:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            _bind(program, scope, target, _labels(program, scope, node.value))
    elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr) and node.value:
        _bind(program, scope, node.target, _labels(program, scope, node.value))
    elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
        _bind(program, scope, node.target, _labels(program, scope, node.iter))
    elif isinstance(node, ast.withitem) and node.optional_vars:
        _bind(program, scope, node.optional_vars, _labels(program, scope, node.context_expr))
    elif isinstance(node, ast.Return) and node.value:
        program.add("", f"{scope}()", _labels(program, scope, node.value))
    elif isinstance(node, ast.Call):
        _propagate_call(program, scope, node)


def _bind(program: _TaintState, scope: str, target: ast.expr, labels: set[TaintLabel]) -> None:
    for node in ast.walk(target):
        if isinstance(node, ast.Name):
            program.add(scope, node.id, labels)
        elif isinstance(node, ast.Attribute):
            program.add("", f".{node.attr}", labels)


def _propagate_call(program: _TaintState, scope: str, call: ast.Call) -> None:
    """Arguments become parameters; what is appended belongs to the list."""
    name = _dotted_name(call.func)
    end = name.rpartition(".")[2]
    for parameter, argument in zip(program.functions.get(end, ()), call.args, strict=False):
        program.add(end, parameter, _labels(program, scope, argument))
    if end in {"append", "extend", "update", "add", "write", "insert"} and "." in name:
        owner = name.split(".", 1)[0]
        for argument in call.args:
            program.add(scope, owner, _labels(program, scope, argument))


def _labels(program: _TaintState, scope: str, value: ast.AST) -> set[TaintLabel]:
    """The kinds of data that an expression may hold."""
    labels = set[TaintLabel]()
    for node in ast.walk(value):
        program.steps += 1
        if program.steps > program.max_steps:
            raise _AnalysisBudgetError
        if isinstance(node, ast.Name):
            labels |= program.of(scope, node.id)
        elif isinstance(node, ast.Attribute):
            labels |= program.of("", f".{node.attr}")
            if node.attr == "environ" and id(node) not in program.partly:
                labels.add("environment")
        elif isinstance(node, ast.Constant):
            labels |= {"secret"} if _is_secret_path(node.value) else set()
        elif isinstance(node, ast.Call):
            labels |= _call_labels(program, node)
        elif _lists_secret_names(node):
            labels.add("secret")
    return labels


def _single_item_access(node: ast.AST) -> Iterator[ast.AST]:
    """What a node takes only one thing out of."""
    if isinstance(node, ast.Subscript) or (
        isinstance(node, ast.Attribute) and node.attr not in {"items", "copy", "values"}
    ):
        yield node.value
    elif isinstance(node, ast.Compare):
        yield from node.comparators


def _call_labels(program: _TaintState, call: ast.Call) -> set[TaintLabel]:
    name = _dotted_name(call.func)
    end = name.rpartition(".")[2]
    labels = set(program.of("", f"{end}()"))
    if _is_decoder(name, call):
        labels.add("decoded")
    if name in _REMOTE_SOURCES:
        labels.add("remote")
    return labels


def _sink_flows(program: _TaintState, scope: str, node: ast.AST) -> Iterator[TaintFlow]:
    if not isinstance(node, ast.Call):
        return
    name = _dotted_name(node.func)
    ends = set(_sink_kinds(name))
    if not ends:
        return
    given = [*node.args, *(keyword.value for keyword in node.keywords)]
    labels = set[TaintLabel]().union(*(_labels(program, scope, value) for value in given))
    for end in ends:
        for kind in labels & _DANGEROUS_LABELS[end]:
            yield TaintFlow(kind=kind, end=end, line=node.lineno)


def _dotted_name(node: ast.expr) -> str:
    """The dotted name of a function; calls in between are left out."""
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
