"""Size, structure and vocabulary of source trees: one table, one column a tree.

    python -m scripts.code_metrics src/apexbridge OTHER/src/apexbridge [--environment .venv-test]

The scripts of bundled skills (the folder `bundled`) are programs of their own and are not counted.
"""

import argparse
import ast
import io
import re
import statistics
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
QUESTION = re.compile(r"(What|Who|How|Which|Where|Whether)\b")
WORD = re.compile(r"[a-z][a-z0-9_-]*")

# Terms that an engineer would type into a search box. By this list httpx has 56 in 1,000, mcp 58,
# fastmcp 62, starlette 59. Words that are one package's whole subject (http, url, query) are left
# out, and so are those that every text has (file, name, request, tool).
TECHNICAL_WORDS = frozenset(
    """
    api ast async asynchronous authentication authorization backend backoff bigram bm25
    bubblewrap buffer callable callback certificate cgroup chunk cjk codec compression
    concurrency coroutine cors cosine cpu crc csrf dataclass deadline deadlock decoder decorator
    deflate deserialize dict dns embedding encoder encoding endpoint entropy event-loop
    exception exfiltration file-descriptor fingerprint flock fork frontmatter fsync generator
    gil gitignore glob handler hash header heuristic hmac homoglyph hook hostname
    human-in-the-loop idempotent injection inode interpreter ip iterator jitter json json-rpc
    jsonl keep-alive keepalive landlock latency levenshtein lexical lifespan loopback lru
    markdown metadata middleware mime minhash mmap multipart mutex n-gram namespace normalise
    normalize numpy oauth onnx openapi param parameter parse parser path-traversal payload pid
    plugin polling pool posix prefix privilege progressive-disclosure prometheus prompt protocol
    proxy queue quota race ram rate-limit rate-limiter recursion redact redirect redos regex
    regression rename retry rlimit rollback router rss sandbox schema score sdk seccomp semantic
    semaphore serialise serialize serializer sha256 shebang sigkill signal sigterm simd
    slowloris snapshot socket sql sqlite sse ssl ssrf stderr stdin stdio stdout stemmer stream
    streaming subagent subclass subprocess symlink syscall taint tcp thread timeout timestamp
    tls toctou token tokenize tokenizer transport traversal truncate truncation tuple
    typosquatting uid umask unicode unpack upsert uri utc utf-8 uuid validate validator vector
    wal warm-pool webhook websocket whitespace workspace xml yaml zip zip-bomb zip-slip zygote
    """.split()  # noqa: SIM905 - a list of words reads better than a list of literals
)
# Terms of two or three words are counted as one.
PHRASES = {term.replace("-", " "): term for term in TECHNICAL_WORDS if "-" in term}


class Tree:
    """The modules of one source tree, parsed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.texts = {
            path: path.read_text(encoding="utf-8")
            for path in sorted(root.rglob("*.py"))
            if "bundled" not in path.relative_to(root).parts[:-1]
        }
        self.asts = {path: ast.parse(text) for path, text in self.texts.items()}
        self.names = {self._dotted(path): path for path in self.texts}

    def _dotted(self, path: Path) -> str:
        parts = path.relative_to(self.root.parent).with_suffix("").parts
        return ".".join(parts).removesuffix(".__init__")

    def functions(self) -> list[int]:
        """Lengths in lines of all functions and methods."""
        return sorted(
            (node.end_lineno or 0) - node.lineno + 1
            for tree in self.asts.values()
            for node in ast.walk(tree)
            if isinstance(node, FUNCTIONS)
        )

    def docstrings(self) -> Iterator[str]:
        """All docstrings: of modules, classes, functions and methods."""
        for tree in self.asts.values():
            for node in ast.walk(tree):
                if isinstance(
                    node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
                ):
                    text = ast.get_docstring(node)
                    if text:
                        yield text

    def comments(self) -> int:
        """Lines that are a comment or end in one."""
        return sum(
            token.type == tokenize.COMMENT
            for text in self.texts.values()
            for token in tokenize.generate_tokens(io.StringIO(text).readline)
        )

    def imports(self) -> dict[str, set[str]]:
        """Map each module to the modules of the tree that it imports, at any depth of its code."""
        graph: dict[str, set[str]] = {name: set() for name in self.names}
        for name, path in self.names.items():
            for node in ast.walk(self.asts[path]):
                if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    full = {f"{node.module}.{alias.name}" for alias in node.names}
                    inner = full & graph.keys()
                    graph[name] |= inner
                    if len(inner) < len(full) and node.module in graph:
                        graph[name].add(node.module)
                elif isinstance(node, ast.Import):
                    graph[name] |= {alias.name for alias in node.names} & graph.keys()
            graph[name].discard(name)
        return graph


def import_cycles(graph: dict[str, set[str]]) -> int:
    """Modules that reach themselves through their imports."""

    def reaches(start: str) -> bool:
        seen: set[str] = set()
        stack = list(graph[start])
        while stack:
            name = stack.pop()
            if name == start:
                return True
            if name not in seen:
                seen.add(name)
                stack += graph[name]
        return False

    return sum(reaches(name) for name in graph)


def is_technical(word: str) -> bool:
    """Say whether a word, or its singular, is in the list."""
    return (
        word in TECHNICAL_WORDS
        or (word.endswith("s") and word[:-1] in TECHNICAL_WORDS)
        or (word.endswith("es") and word[:-2] in TECHNICAL_WORDS)
    )


def technical_words(docstrings: list[str]) -> float:
    """Technical words in 1,000 words of docstrings."""
    total = technical = 0
    for text in docstrings:
        lower = text.lower()
        for phrase, term in PHRASES.items():
            lower = lower.replace(phrase, term)
        words = WORD.findall(lower)
        total += len(words)
        technical += sum(map(is_technical, words))
    return 1000 * technical / max(total, 1)


def megabytes(folder: Path) -> float:
    """Size on disk of a folder; files with several hard links count once."""
    seen: dict[tuple[int, int], int] = {}
    for path in folder.rglob("*"):
        info = path.lstat()
        seen[info.st_dev, info.st_ino] = info.st_blocks * 512
    return sum(seen.values()) / 1e6


def runtime_dependencies(root: Path) -> str:
    """Packages that a plain installation names, read from the project file above the tree."""
    for folder in root.resolve().parents:
        project = folder / "pyproject.toml"
        if project.is_file():
            data = tomllib.loads(project.read_text(encoding="utf-8"))
            return str(len(data["project"]["dependencies"]))
    return "-"


def measure(root: Path) -> dict[str, str]:
    """All rows of one column."""
    tree = Tree(root)
    lengths, docstrings, graph = tree.functions(), list(tree.docstrings()), tree.imports()
    importers = Counter(target for targets in graph.values() for target in targets)
    single = sum(importers[name] == 1 for name in graph)
    lines = {path: text.count("\n") for path, text in tree.texts.items()}
    total = sum(lines.values())
    largest = max(lines, key=lambda path: lines[path])
    questions = sum(bool(QUESTION.match(text)) for text in docstrings)
    return {
        "modules": str(len(graph)),
        "lines of Python": f"{total:,}",
        "function lines: median / p90 / longest": (
            f"{statistics.median(lengths):.0f} / {lengths[len(lengths) * 9 // 10]} / {lengths[-1]}"
        ),
        "largest module": f"{lines[largest]} ({largest.relative_to(root)})",
        "modules in import cycles": str(import_cycles(graph)),
        "modules with one importer": f"{single} ({100 * single / len(graph):.0f} %)",
        "modules named -ing": str(sum(name.endswith("ing") for name in graph)),
        "docstrings that open with What/Who/How": (
            f"{questions} of {len(docstrings)} ({100 * questions / len(docstrings):.1f} %)"
        ),
        "technical words in 1,000": f"{technical_words(docstrings):.1f}",
        "comments in 100 lines": f"{100 * tree.comments() / total:.1f}",
        "runtime dependencies": runtime_dependencies(root),
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Measure source trees.")
    parser.add_argument("trees", nargs="+", type=Path)
    parser.add_argument("--environment", action="append", default=[], type=Path)
    chosen = parser.parse_args()
    columns = [measure(root) for root in chosen.trees]
    for folder, column in zip(chosen.environment, columns, strict=False):
        column["test environment"] = f"{megabytes(folder):,.0f} MB"
    print("| | " + " | ".join(str(root) for root in chosen.trees) + " |")
    print("|---|" + "---|" * len(columns))
    for row in columns[0]:
        print(f"| {row} | " + " | ".join(column.get(row, "-") for column in columns) + " |")


if __name__ == "__main__":
    main()
