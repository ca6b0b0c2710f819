"""What texts go through before they meet a model."""

import re
from collections.abc import Container, Iterator

_LONE_SURROGATES = re.compile("[\ud800-\udfff]")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_CHINESE_RUN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f]+")
_LONGEST_WORD = 4


def encodable(text: str) -> str:
    """The text with what UTF-8 cannot carry replaced."""
    return _LONE_SURROGATES.sub("\ufffd", text)


def words(text: str) -> Iterator[str]:
    """Words in lower case; a run of Chinese as its pairs of characters."""
    start = 0
    lower = text.lower()
    for run in _CHINESE_RUN.finditer(lower):
        yield from re.findall(r"\w+", lower[start : run.start()])
        start = run.end()
        found = run.group()
        yield from (found[at : at + 2] for at in range(max(1, len(found) - 1)))
    yield from re.findall(r"\w+", lower[start:])


def spaced(text: str, known: Container[str]) -> str:
    """Split camelCase, and put blanks around the known words, or else characters, of Chinese."""
    split = _CAMEL.sub(" ", text)
    return _CHINESE_RUN.sub(lambda run: f" {' '.join(_cut(run.group(), known))} ", split)


def _cut(run: str, known: Container[str]) -> Iterator[str]:
    start = 0
    while start < len(run):
        sizes = range(min(_LONGEST_WORD, len(run) - start), 1, -1)
        size = next((size for size in sizes if run[start : start + size] in known), 1)
        yield run[start : start + size]
        start += size
