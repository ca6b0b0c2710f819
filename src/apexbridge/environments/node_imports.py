"""Guess the packages of JavaScript scripts from `import` and `require` of bare names."""

import re
from collections.abc import Iterator
from pathlib import Path

from apexbridge.environments.needs import Package, node_package
from apexbridge.regular_files import read_regular

_SUFFIXES = frozenset({".js", ".mjs", ".cjs", ".ts", ".mts", ".cts"})
_MAX_SOURCE_BYTES = 512 * 1024
_MAX_TOTAL_BYTES = 4 * 1024 * 1024
_MAX_FILES = 200
# ReDoS: what is imported ends at the next `import`, or a file of nothing else would be quadratic.
_IMPORT = re.compile(
    r"""^[ \t]*(?:import|export)\b(?:(?!\b(?:im|ex)port\b)[^'"`;]){0,2000}?"""
    r"""\bfrom[ \t]*['"]([^'"\n]{1,200})['"]"""
    r"""|^[ \t]*import[ \t]*['"]([^'"\n]{1,200})['"]"""
    r"""|\b(?:require|import)\([ \t]*['"]([^'"\n]{1,200})['"][ \t]*\)""",
    re.MULTILINE,
)
_TYPES_ONLY = re.compile(r"^[ \t]*import[ \t]+type\b")
_BUILTIN = frozenset({
    "assert", "async_hooks", "buffer", "child_process", "cluster", "console", "constants", "crypto",
    "dgram", "diagnostics_channel", "dns", "domain", "events", "fs", "http", "http2", "https",
    "inspector", "module", "net", "os", "path", "perf_hooks", "process", "punycode", "querystring",
    "readline", "repl", "sea", "sqlite", "stream", "string_decoder", "sys", "test", "timers", "tls",
    "trace_events", "tty", "url", "util", "v8", "vm", "wasi", "worker_threads", "zlib",
})  # fmt: skip
_EDITORS = frozenset({"vscode", "figma", "obsidian", "bun", "deno"})
"""Modules that a program provides to its extensions; no registry has them."""


def guess_node_packages(root: Path) -> Iterator[Package]:
    """Return the packages that the files in `scripts/` and at the root import."""
    files = [path for path in sorted((*root.glob("*"), *(root / "scripts").rglob("*")))
             if path.suffix in _SUFFIXES and "node_modules" not in path.parts]  # fmt: skip
    total = 0
    for path in files[:_MAX_FILES]:
        if not path.is_file() or path.stat().st_size > _MAX_SOURCE_BYTES:
            continue
        total += path.stat().st_size
        if total > _MAX_TOTAL_BYTES:
            return
        where = path.relative_to(root).as_posix()
        for name in _imported(read_regular(path, _MAX_SOURCE_BYTES).decode("utf-8", "replace")):
            found = node_package(name, "*", where, "guess")
            if isinstance(found, Package):
                yield found


def _imported(source: str) -> Iterator[str]:
    for match in _IMPORT.finditer(source):
        name = next(filter(None, match.groups()))
        if name[0] in "./#$" or ":" in name or _TYPES_ONLY.match(match[0]):
            continue
        parts = name.split("/")
        package = "/".join(parts[:2]) if name.startswith("@") else parts[0]
        if package not in _BUILTIN and package not in _EDITORS:
            yield package
