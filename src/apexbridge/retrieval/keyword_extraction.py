"""Keyword extraction: quoted phrases, and phrases that headings and description share."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice

from apexbridge.retrieval.skill_document import name_as_words, strip_markup
from apexbridge.retrieval.tokenizer import tokenize

_MAX_BODY = 4_000
_MAX_SUMMARY = 400
_MAX_WORDS = {True: 6, False: 3}
"""Maximum length of a phrase: characters of a Chinese one, words of an English one."""
_MAX_HEADINGS = 12
_HAN = "\u3400-\u9fff\uf900-\ufaff"
_PIECE = re.compile(
    rf"([{_HAN}])|([^\W_{_HAN}]+[+#]*)[ \t-]*|([ \t-]+)|(.)"  # Chinese, word, gap, boundary
)
_HEADING = re.compile(r"#{1,6}[ \t]+(.{1,200})")
_QUOTED = re.compile(
    r"\"([^\"\n]{2,40})\"|“([^“”\n]{2,40})”|「([^「」\n]{2,40})」|『([^『』\n]{2,40})』"
    r"|(?<!\w)['‘]([^'‘’\n]{2,40})['’](?!\w)"
)
_ANCHOR = "anchor"
_PARTICLES = "的了和与或及把被"

# Generic words occur in every skill and distinguish none.
_ENGLISH = """
use user skill tool task work workflow step guide overview usage example instruction quick start
note reference trigger create ask say mention new based following include provide support common
best practice tip introduction
"""
_CHINESE = """
使用 用户 技能 工具 任务 步骤 说明 概述 示例 用法 指南 介绍 场景 触发 适用 用于 支持 提供 包括 进行
何时 时候 方法 注意 事项 功能 以下 使用场景 使用说明 使用方法 适用场景
"""
_GENERIC_WORDS = frozenset(tokenize(_ENGLISH, kind="document")) | frozenset(_CHINESE.split())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Word:
    """A word or Chinese character, with its stemmed form for comparison."""

    written: str
    compared: str
    is_han: bool


_Run = Sequence[_Word]
"""Adjacent content words."""


def extract_phrases(*, name: str, summary: str, body: str) -> Iterator[str]:
    """Yield candidate phrases, the most specific first."""
    summary = summary[:_MAX_SUMMARY]
    title = name_as_words(name)
    yield from (found[found.lastindex or 0] for found in _QUOTED.finditer(summary))
    yielded = ""
    named, described = list(_runs(title)), list(_runs(summary))
    headings = chain.from_iterable(map(_runs, islice(_headings(body), _MAX_HEADINGS)))
    for phrase in chain(
        _repeated_phrases((*named, *described), headings), _repeated_phrases(named, described)
    ):
        compared = f" {' '.join(word.compared for word in phrase)} "
        if compared not in yielded:  # nor part of a longer phrase
            yielded += f"{compared}\n"
            yield ("" if phrase[0].is_han else " ").join(word.written for word in phrase)


def has_content_words(text: str) -> bool:
    """Say whether a text has more than stop words.

    The tokenizer keeps stop words of a query that has nothing else; the anchor prevents that.
    """
    return len(tokenize(f"{text} {_ANCHOR}", kind="query")) > 1


def _headings(body: str) -> Iterator[str]:
    is_code = False
    for line in body[:_MAX_BODY].splitlines():
        if line.lstrip().startswith(("```", "~~~")):
            is_code = not is_code
        elif not is_code and (heading := _HEADING.match(line)):
            yield strip_markup(heading[1])


def _repeated_phrases(known_runs: Iterable[_Run], lines: Iterable[_Run]) -> Iterator[_Run]:
    """Yield the longest phrases of `lines` that occur in `known_runs`."""
    known = set[tuple[str, ...]]()
    for run in known_runs:
        compared, longest = _comparison_key(run), _MAX_WORDS[run[0].is_han]
        known.update(
            compared[at : at + size] for at in range(len(run)) for size in range(1, longest + 1)
        )
    for run in lines:
        yield from _matching_phrases(run, known)


def _comparison_key(run: _Run) -> tuple[str, ...]:
    return tuple([word.compared for word in run])


def _matching_phrases(run: _Run, known: set[tuple[str, ...]]) -> Iterator[_Run]:
    is_han, at, every = run[0].is_han, 0, _comparison_key(run)
    shortest, longest = 2 if is_han else 1, _MAX_WORDS[is_han]
    while at < len(run):
        if every[at : at + 1] not in known:  # then no longer phrase is known either
            at += 1
            continue
        for size in range(min(longest, len(run) - at), shortest - 1, -1):
            compared = every[at : at + size]
            if compared in known:
                if "".join(compared) not in _GENERIC_WORDS:
                    yield run[at : at + size]
                at += size - 1
                break
        at += 1


def _runs(text: str) -> Iterator[list[_Word]]:
    """Split a text into runs of content words, each Chinese or not."""
    run: list[_Word] = []
    is_han = False
    for han, written, gap, _ in _PIECE.findall(text):
        if gap and run and not is_han:
            continue
        word = _word(han or written, bool(han)) if han or written else None
        if run and (word is None or word.is_han != is_han):
            yield run
            run = []
        if word is not None:
            is_han = word.is_han
            run.append(word)
    if run:
        yield run


@lru_cache(maxsize=16_384)
def _word(written: str, is_han: bool) -> _Word | None:
    if is_han:
        compared = tokenize(written, kind="document")[0]
        is_particle = written in _PARTICLES
        return None if is_particle else _Word(written=written, compared=compared, is_han=True)
    if len(written) < 2 or written.isdecimal():
        return None
    stems = tokenize(written, kind="document")
    if not has_content_words(written) or _GENERIC_WORDS.issuperset(stems):
        return None
    is_name = any(map(str.isupper, written[1:]))
    display = written if is_name else written.lower()
    return _Word(written=display, compared=" ".join(stems), is_han=False)
