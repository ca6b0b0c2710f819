"""Typosquatting: package names, hostnames and skill names that imitate well-known ones."""

import re
from collections.abc import Iterator, Mapping
from functools import cache

from apexbridge.scanner.pattern_matcher import Hit, SkillContext
from apexbridge.scanner.rules import lower_level, word_list
from apexbridge.scanner.scan_input import TextFile

MIN_WORD_LENGTH = 6
"""Letters below which words are similar by chance."""

MAX_NAMES = 2_000
"""Names of one file that are compared, to bound the scan time."""

_RESERVED_TLDS = frozenset({"invalid", "test", "example", "localhost", "local", "internal", "lan"})
"""Top-level domains that nobody can register."""
_UNRELATED_DOMAINS = frozenset({"google-analytics", "finance", "githubnext", "github-readme-stats"})
_INSTALL_COMMAND = re.compile(
    r"\b(?:pip3?|uv pip|uv|pipx|poetry|npm|pnpm|yarn|bun)\s+(?:install|add|i)\s+([^\n;&|`#]{2,300})"
    r"|\b(?:npx|uvx|bunx|pnpm dlx)\s+(?:-y\s+|--yes\s+)?([@\w][\w./@-]{1,80})",
    re.IGNORECASE,
)
_EXTRAS = re.compile(r"\[[^\]\n]{0,120}\]")
"""Extras of a package, which are no packages."""
_INSTALL_WORDS = ("pip", "uv ", "poetry", "npm", "yarn", "bun", "npx", "uvx")
_DEPENDENCY_LINE = re.compile(
    r"(?m)^\s{0,8}[\"']?([a-z0-9][\w.-]{2,40})[\"']?\s{0,2}(?:[=~><!]=|:\s?\"[\^~\d])"
)
_PACKAGE_NAME = re.compile(r"@?[a-z0-9][\w.-]{2,40}(?:/[\w.-]{2,40})?", re.IGNORECASE)
_HOST = re.compile(r"https?://((?:[a-z0-9-]{1,63}\.){1,5}[a-z]{2,12})", re.IGNORECASE)
_DEPENDENCY_FILES = ("requirements", "package.json", "pyproject.toml", "package.template.json")
_INFLECTION = re.compile(r"(?:ed|er|or|ing)$")
"""Endings by which words of one stem differ: `scanned` does not misspell `scanner`."""
_NAME_WORD = re.compile(r"[a-z0-9]+")


def edit_distance(one: str, other: str) -> int:
    """Return the Damerau-Levenshtein edit distance of two names, capped at 2.

    Only 0, 1 and "more" matter here, so that a full distance matrix is not computed.
    """
    start = 0
    while start < min(len(one), len(other)) and one[start] == other[start]:
        start += 1
    a, b = one[start:], other[start:]
    if a == b:
        return 0
    if a[1:] == b[1:] or a[1:] == b or a == b[1:]:
        return 1
    return 1 if a[:2] == b[:2][::-1] and a[2:] == b[2:] else 2


@cache
def _popular_stems() -> Mapping[str, str]:
    return {word.rstrip("s"): word for word in sorted(word_list("popular_words"))}


def misspelled_words(name: str) -> Iterator[tuple[str, str]]:
    """Return the words of a name that are one edit away from a popular word, with that word."""
    stems = _popular_stems()
    for whole in _NAME_WORD.findall(name.lower())[:20]:
        word = whole.rstrip("0123456789s")  # a plural or a version is no misspelling
        if len(word) < MIN_WORD_LENGTH or word in word_list("real_words") or word in stems:
            continue
        for bare, known in stems.items():
            if (
                len(bare) >= MIN_WORD_LENGTH
                and word[0] == bare[0]
                and edit_distance(word, bare) == 1
                and _INFLECTION.sub("", word) != _INFLECTION.sub("", bare)
            ):
                yield whole, known
                break


def typosquatted_names(file: TextFile, context: SkillContext) -> Iterator[Hit]:
    """Match packages one edit away from a popular one, and hosts that impersonate a brand."""
    for line, name in _package_names(file):
        known = _typosquatted_package(name)
        if known:
            is_reference = file.role_of(line) == "reference" and not _is_dependency_file(file)
            steps = int(context.is_about_security) + int(is_reference)
            yield Hit(
                rule="AB013",
                level=lower_level("warn", steps),
                line=line,
                matched=f"{name} ~ {known}",
            )
    seen = set[str]()
    for match in _HOST.finditer(file.text):
        host = match[1].lower()
        if host in seen or len(seen) >= MAX_NAMES:
            continue
        seen.add(host)
        if impersonates_brand(host):
            line = file.line_number(match.start())
            steps = int(context.is_about_security)
            yield Hit(rule="AB058", level=lower_level("warn", steps), line=line, matched=host)


def _package_names(file: TextFile) -> Iterator[tuple[int, str]]:
    """Return the packages that a file installs or lists, with line numbers."""
    count = 0
    is_installing = any(word in file.lower for word in _INSTALL_WORDS)
    for match in _INSTALL_COMMAND.finditer(file.text) if is_installing else ():
        line = file.line_number(match.start())
        for name in _PACKAGE_NAME.findall(_EXTRAS.sub("", match[1] or match[2])):
            count += 1
            if count > MAX_NAMES:
                return
            yield line, name
    if _is_dependency_file(file):
        for match in _DEPENDENCY_LINE.finditer(file.text):
            count += 1
            if count > MAX_NAMES:
                return
            yield file.line_number(match.start(1)), match[1]


def _is_dependency_file(file: TextFile) -> bool:
    return any(part in file.path.lower() for part in _DEPENDENCY_FILES)


def _typosquatted_package(name: str) -> str | None:
    """Return the popular package that a name is one edit away from; None if there is none."""
    packages = word_list("popular_packages")
    plain = name.lower().split("@")[0]
    if len(plain) < 5 or plain in {"https", "fetch"}:
        return None
    if plain in packages or plain.replace("_", "-") in packages:
        return None
    for known in packages:
        is_similar = len(known) >= 5 and abs(len(known) - len(plain)) <= 1
        if is_similar and edit_distance(plain, known) == 1:
            return None if _is_version_variant(plain, known) else known
    return None


def _is_version_variant(one: str, other: str) -> bool:
    """Return whether two names differ by digits or a plural only: a relative, not a typosquat."""
    return re.sub(r"\d", "", one) == re.sub(r"\d", "", other) or one == f"{other}s"


def impersonates_brand(host: str) -> bool:
    """Return whether a hostname contains or misspells a brand, and is not the brand's domain."""
    labels = host.split(".")
    domain, tld = labels[-2], labels[-1]
    brands = word_list("brands")
    if domain in brands or tld in brands or tld in _RESERVED_TLDS or domain in _UNRELATED_DOMAINS:
        return False
    words = domain.split("-")
    if len(words) > 1 and not brands.isdisjoint(words):
        return True
    is_misspelled = any(len(brand) > 5 and edit_distance(domain, brand) == 1 for brand in brands)
    return is_misspelled or any(f"{brand}-com" in host for brand in brands)
