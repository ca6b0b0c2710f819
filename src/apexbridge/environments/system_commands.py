"""System commands that a skill's scripts start, and the packages that provide them."""

import ast
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from apexbridge.environments.import_scan import script_sources
from apexbridge.regular_files import read_regular

_SEARCH_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
_MAX_SOURCE_BYTES = 512 * 1024
_STARTERS = frozenset(
    {"run", "call", "Popen", "check_call", "check_output", "system", "which", "execvp", "popen",
     "create_subprocess_exec", "run_command", "run_cmd"}
)  # fmt: skip
_WORD = re.compile(r"[A-Za-z][\w.+-]{1,40}")
PROVIDERS = {
    "soffice": "libreoffice", "libreoffice": "libreoffice", "pandoc": "pandoc",
    "pdftoppm": "poppler-utils", "pdftotext": "poppler-utils", "pdfimages": "poppler-utils",
    "pdfinfo": "poppler-utils", "pdftocairo": "poppler-utils", "pdfunite": "poppler-utils",
    "pdfseparate": "poppler-utils", "git": "git", "gh": "gh", "ffmpeg": "ffmpeg",
    "ffprobe": "ffmpeg", "tesseract": "tesseract-ocr", "qpdf": "qpdf", "gs": "ghostscript",
    "convert": "imagemagick", "magick": "imagemagick", "identify": "imagemagick",
    "montage": "imagemagick", "inkscape": "inkscape", "dot": "graphviz", "jq": "jq",
    "curl": "curl", "wget": "wget", "rg": "ripgrep", "fd": "fd-find", "docker": "docker.io",
    "kubectl": "kubectl", "terraform": "terraform", "node": "nodejs", "npm": "npm", "npx": "npm",
    "pnpm": "pnpm", "yarn": "yarn", "go": "golang-go", "cargo": "cargo", "rustc": "rustc",
    "gcc": "gcc", "make": "make", "cmake": "cmake", "java": "default-jre", "ruby": "ruby",
    "perl": "perl", "php": "php-cli", "Rscript": "r-base", "pwsh": "powershell",
    "xmllint": "libxml2-utils",
    "exiftool": "libimage-exiftool-perl", "sqlite3": "sqlite3", "psql": "postgresql-client",
    "mysql": "default-mysql-client", "redis-cli": "redis-tools", "aws": "awscli", "az": "azure-cli",
    "gcloud": "google-cloud-cli", "yt-dlp": "yt-dlp", "sox": "sox", "latex": "texlive",
    "pdflatex": "texlive-latex-base", "xelatex": "texlive-xetex", "latexmk": "latexmk",
    "bibtex": "texlive-binaries", "semgrep": "semgrep", "codeql": "codeql",
    "shellcheck": "shellcheck",
    "tmux": "tmux", "rsync": "rsync", "ssh": "openssh-client", "zip": "zip", "unzip": "unzip",
    "tar": "tar", "xvfb-run": "xvfb", "chromium": "chromium", "wkhtmltopdf": "wkhtmltopdf",
    "osascript": "", "say": "", "pbcopy": "", "sips": "",
}  # fmt: skip
"""Commands worth naming, each with its package on Debian and Ubuntu; empty for macOS only."""
_BY_MODULE = {
    "pytesseract": "tesseract", "pdf2image": "pdftoppm", "git": "git", "pypandoc": "pandoc",
    "ffmpeg": "ffmpeg", "moviepy": "ffmpeg", "graphviz": "dot",
}  # fmt: skip
"""Modules that are only a way to start a command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemCommand:
    """A command that a skill starts."""

    name: str
    where: str
    package: str
    is_there: bool


def system_commands(root: Path, compatibility: str = "") -> list[SystemCommand]:
    """Return the commands that the scripts start, or the skill says that it needs. Blocks."""
    found = dict[str, str]()
    for path in script_sources(root):
        for name in _python_commands(path):
            found.setdefault(name, path.relative_to(root).as_posix())
    for path in sorted((root / "scripts").rglob("*")):
        if path.suffix in {".sh", ".bash"} and path.is_file():
            for name in _shell_commands(path):
                found.setdefault(name, path.relative_to(root).as_posix())
    for word in _WORD.findall(compatibility):
        if word in PROVIDERS or word.lower() in PROVIDERS:
            found.setdefault(word if word in PROVIDERS else word.lower(), "SKILL.md")
    return [
        SystemCommand(
            name=name,
            where=where,
            package=PROVIDERS[name],
            is_there=shutil.which(name, path=_SEARCH_PATH) is not None,
        )
        for name, where in sorted(found.items())
    ]


def _python_commands(path: Path) -> Iterator[str]:
    try:
        if path.stat().st_size > _MAX_SOURCE_BYTES:
            return
        tree = ast.parse(read_regular(path, _MAX_SOURCE_BYTES))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = (
                [name.name for name in node.names]
                if isinstance(node, ast.Import)
                else [node.module]
            )
            yield from (_BY_MODULE[name] for name in names if name in _BY_MODULE)
        elif isinstance(node, ast.Call) and _callee(node) in _STARTERS and node.args:
            yield from _known(_first_word(node.args[0]))
        elif isinstance(node, ast.List) and node.elts:  # a command line that is built first
            yield from _known(_first_word(node))


def _callee(node: ast.Call) -> str:
    target = node.func
    return target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")


def _first_word(node: ast.expr) -> str:
    if isinstance(node, ast.List | ast.Tuple) and node.elts:
        return _first_word(node.elts[0])
    if isinstance(node, ast.JoinedStr) and node.values:
        return _first_word(node.values[0])
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        words = node.value.split(maxsplit=1)
        return words[0] if words else ""
    return ""


def _known(name: str) -> Iterator[str]:
    if name in PROVIDERS:
        yield name


def _shell_commands(path: Path) -> Iterator[str]:
    """Yield known commands at the start of a simple command, or after `command -v`."""
    try:
        text = read_regular(path, _MAX_SOURCE_BYTES).decode("utf-8", "replace")
    except OSError:
        return
    for line in text.splitlines():
        code = line.split("#", 1)[0]
        for part in re.split(
            r"[|;&(`]|\bthen\b|\bdo\b|\belse\b|\bcommand -v\b|\bwhich\b|\bif\b|!", code
        ):
            word = part.strip().split(" ", 1)[0]
            yield from _known(word)
