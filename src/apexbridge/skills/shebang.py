"""Interpreter of a script: from its shebang line, else from its suffix. The mode does not matter.

Archives and checkouts lose the executable bit, so a script that names its interpreter in either
way can be run whatever its mode is.
"""

import re
import shlex
from pathlib import PurePosixPath

INTERPRETER_BY_SUFFIX = {
    ".py": "python", ".js": "node", ".mjs": "node", ".cjs": "node", ".sh": "bash",
    ".ts": "typescript", ".mts": "typescript", ".cts": "typescript", ".tsx": "jsx", ".jsx": "jsx",
    ".bash": "bash", ".zsh": "zsh", ".ksh": "ksh", ".fish": "fish", ".ps1": "pwsh",
    ".rb": "ruby", ".pl": "perl", ".php": "php", ".r": "Rscript", ".lua": "lua", ".tcl": "tclsh",
    ".jl": "julia", ".awk": "awk", ".exs": "elixir", ".groovy": "groovy", ".swift": "swift",
    ".applescript": "osascript", ".bat": "cmd", ".cmd": "cmd",
}  # fmt: skip
SHEBANG_BYTES = 1024
_TYPESCRIPT_RUNTIMES = frozenset({"bun", "deno"})
_BOM = b"\xef\xbb\xbf"
_INTERPRETER_NAME = re.compile(r"[A-Za-z0-9._+-]+")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_ENV_VALUE_OPTIONS = frozenset({"-u", "--unset", "-C", "--chdir", "-a", "--argv0"})
_UV_FLAGS = frozenset({
    "-s", "--script", "-q", "--quiet", "-v", "--verbose", "-n", "--no-cache", "--isolated",
    "--no-project", "--no-sync", "--locked", "--frozen", "--offline", "--exact", "--all-extras",
    "--no-dev", "--no-config", "--no-env-file", "--managed-python", "--no-managed-python",
    "--no-progress", "--active", "--native-tls", "--refresh", "--upgrade", "-U", "--no-index",
    "--gui-script", "--no-build", "--no-binary", "--only-dev", "--all-groups",
})  # fmt: skip
"""Options of `uv run` without a value; any other takes the next word."""


def script_interpreter(first_line: bytes, suffix: str) -> list[str]:
    """Determine the interpreter and its arguments from the shebang, else from the suffix.

    `uv run` and `pipx run` stand for Python: the environment is ours to build. The name is empty
    if neither says.

    >>> script_interpreter(b"#!/usr/bin/env -S python3 -u", ".txt")
    ['python3', '-u']
    >>> script_interpreter(b"#!/usr/bin/env -S uv run --script", "")
    ['python']
    >>> script_interpreter(b"print(1)", ".py")
    ['python']
    """
    words = _shebang_words(first_line) or [INTERPRETER_BY_SUFFIX.get(suffix.lower(), "")]
    name = PurePosixPath(words[0]).name
    if words[1:2] == ["run"] and name in {"uv", "pipx"}:
        words = _uv_run(words[2:])[0] if name == "uv" else ["python"]
        name = PurePosixPath(words[0]).name
    by_suffix = INTERPRETER_BY_SUFFIX.get(suffix.lower(), "")
    if by_suffix in {"typescript", "jsx"} and name not in _TYPESCRIPT_RUNTIMES:
        return [by_suffix]  # which node, ts-node or `npx tsx` runs it here depends on the machine
    return [name if _INTERPRETER_NAME.fullmatch(name) else "", *words[1:]]


def shebang_requirements(first_line: bytes) -> tuple[str, ...]:
    """Return the packages that a shebang asks for itself (`uv run --with NAME`).

    >>> shebang_requirements(b"#!/usr/bin/env -S uv run --with rich,httpx --script")
    ('rich', 'httpx')
    """
    words = _shebang_words(first_line)
    if words[1:2] != ["run"] or PurePosixPath(words[0]).name != "uv":
        return ()
    return _uv_run(words[2:])[1]


def _shebang_words(first_line: bytes) -> list[str]:
    """Split a shebang line, without `env`, its options and the variables it sets."""
    line = first_line.removeprefix(_BOM).decode("utf-8", "replace").strip()
    if not line.startswith("#!"):
        return []
    try:
        words = shlex.split(line[2:])
    except ValueError:  # an unclosed quote: no program has that name
        return ["?"]
    if not words or PurePosixPath(words[0]).name != "env":
        return words
    return _without_env_options(words[1:]) or ["?"]


def _without_env_options(words: list[str]) -> list[str]:
    while words and (words[0].startswith("-") or _ASSIGNMENT.match(words[0])):
        if words[0].startswith("-S") and len(words[0]) > len("-S"):  # `-Spython3`
            return [words[0].removeprefix("-S"), *words[1:]]
        words = words[2:] if words[0] in _ENV_VALUE_OPTIONS else words[1:]
    return words


def _uv_run(words: list[str]) -> tuple[list[str], tuple[str, ...]]:
    """Split the words after `uv run` into a Python command and the packages it asks for."""
    wanted = list[str]()
    while words and words[0].startswith("-"):
        option, is_joined, value = words[0].partition("=")
        words = words[1:]
        if option == "--":
            break
        if not is_joined and option not in _UV_FLAGS and words:
            value, words = words[0], words[1:]
        if option in {"--with", "-w"}:
            wanted += filter(None, value.split(","))
    is_python = bool(words) and PurePosixPath(words[0]).name.startswith("python")
    return (words if is_python else ["python"]), tuple(wanted)
