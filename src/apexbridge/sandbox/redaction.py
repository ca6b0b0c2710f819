"""Redaction: values of secrets, also in the usual encodings, are replaced by their placeholders.

Responses are searched for long parts of a value too: a host that cuts what it echoes would
otherwise give away the beginning, and with other lengths of the request the rest.
"""

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from urllib.parse import quote, quote_plus

from apexbridge.sandbox.placeholders import MIN_VALUE, RunSecret

_WINDOW = 10
"""Characters of a part that is recognized; a shorter one would be found in ordinary text."""
_STRIDE = 4
_MAX_WINDOWS = 64


class Redactor:
    """Replace values by their placeholders."""

    def __init__(self, run_secrets: Iterable[RunSecret]) -> None:
        self._replacements: dict[bytes, bytes] = {}
        for secret in run_secrets:
            for form in _encoded_forms(secret.value):
                if len(form) >= MIN_VALUE:
                    self._replacements.setdefault(form, secret.placeholder.encode())
        self._folded = re.compile(
            b"|".join(map(re.escape, self._replacements)) or b"(?!)", re.IGNORECASE
        )
        self._windows = [(form, at) for form in self._replacements for at in _window_offsets(form)]

    def redact(self, data: bytes, *, parts: bool = False) -> bytes:
        """Replace every occurrence of a value; with `parts` also of its longer parts."""
        return _replace(data, self._spans(data, parts=parts))

    def redact_beginning(self, data: bytes, *, parts: bool) -> tuple[bytes, bytes]:
        """Redact the beginning of a stream; return it, and the rest that more data may change."""
        spans = self._spans(data, parts=parts)
        measure = _inner_overlap if parts else _overlap
        cut = len(data) - max((measure(data, form) for form in self._replacements), default=0)
        for start, end, _ in reversed(spans):
            if start < cut < end:
                cut = start
        return _replace(data[:cut], [span for span in spans if span[1] <= cut]), data[cut:]

    def redact_all(self, files: Mapping[str, bytes]) -> dict[str, bytes]:
        """Replace every occurrence in names and contents of files."""
        return {
            self.redact(name.encode("utf-8", "surrogateescape")).decode(
                "utf-8", "surrogateescape"
            ): self.redact(data)
            for name, data in files.items()
        }

    def is_in(self, data: bytes) -> bool:
        """Return whether a value occurs, in any letter case."""
        return self._folded.search(data) is not None

    def _spans(self, data: bytes, *, parts: bool) -> list[tuple[int, int, bytes]]:
        """Find what is to be replaced, and by what; in order, the longest first."""
        found = list(self._whole_spans(data))
        if parts:
            found += self._part_spans(data)
        return sorted(found, key=lambda span: (span[0], -span[1]))

    def _whole_spans(self, data: bytes) -> Iterator[tuple[int, int, bytes]]:
        for form, placeholder in self._replacements.items():
            found = data.find(form)
            while found >= 0:
                yield found, found + len(form), placeholder
                found = data.find(form, found + 1)

    def _part_spans(self, data: bytes) -> Iterator[tuple[int, int, bytes]]:
        for form, at in self._windows:
            window = form[at : at + _WINDOW]
            found = data.find(window)
            while found >= 0:
                start, end = _extend(data, found, form, at)
                yield start, end, self._replacements[form]
                found = data.find(window, end)


class StreamRedactor:
    """Redact a stream, also a value that is split between pieces; holds back what may be one."""

    def __init__(self, redactor: Redactor, *, parts: bool = False) -> None:
        self._redactor, self._parts, self._rest = redactor, parts, b""

    def feed(self, piece: bytes) -> bytes:
        """Take a piece; return what can be passed on."""
        data = self._rest + piece
        ready, self._rest = self._redactor.redact_beginning(data, parts=self._parts)
        return ready

    def finish(self) -> bytes:
        """Return the rest at the end of the stream."""
        rest, self._rest = self._rest, b""
        return self._redactor.redact(rest, parts=self._parts)


def _replace(data: bytes, spans: Iterable[tuple[int, int, bytes]]) -> bytes:
    pieces, done = list[bytes](), 0
    for start, end, placeholder in spans:
        if end > done:
            pieces += [data[done : max(start, done)], placeholder]
            done = end
    return b"".join([*pieces, data[done:]]) if pieces else data


def _window_offsets(form: bytes) -> Iterator[int]:
    last = len(form) - _WINDOW
    if last < _WINDOW:  # half of a short value is too short to be told from a word
        return
    yield from range(0, last, max(_STRIDE, last // _MAX_WINDOWS))
    yield last


def _extend(data: bytes, found: int, form: bytes, at: int) -> tuple[int, int]:
    """Extend a match of a part to both sides, as far as the value goes on."""
    start, begin = found, at
    while start and begin and data[start - 1] == form[begin - 1]:
        start, begin = start - 1, begin - 1
    end, rest = found + _WINDOW, at + _WINDOW
    while end < len(data) and rest < len(form) and data[end] == form[rest]:
        end, rest = end + 1, rest + 1
    return start, end


def _overlap(data: bytes, form: bytes) -> int:
    """Return the length of the longest end of `data` that is a proper beginning of the form."""
    at = data.find(form[:1], max(len(data) - len(form) + 1, 0))
    while at >= 0 and not form.startswith(data[at:]):
        at = data.find(form[:1], at + 1)
    return len(data) - at if at >= 0 else 0


def _inner_overlap(data: bytes, form: bytes) -> int:
    """Return the length of the longest end of `data` that occurs anywhere in the form."""
    length = 0
    while length < len(data) and length < len(form) and data[-length - 1 :] in form:
        length += 1
    return length


def _encoded_forms(value: str) -> Iterator[bytes]:
    raw = value.encode()
    yield raw
    yield from (value.encode("utf-16-le"), value.encode("utf-16-be"), raw[::-1])
    texts = {
        json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], escape(value),
        raw.hex(), raw.hex().upper(), *_percent_forms(value),
    }  # fmt: skip
    yield from (text.encode() for text in texts)
    for offset in range(3):
        yield from _base64_core(raw, offset)
    yield from _base32(raw)


def _percent_forms(value: str) -> Iterator[str]:
    for form in (quote(value, safe=""), quote(value), quote_plus(value)):
        yield form
        yield re.sub("%[0-9A-F]{2}", lambda match: match[0].lower(), form)


def _base64_core(raw: bytes, offset: int) -> Iterator[bytes]:
    """Yield the characters that depend on the value alone, at one of the three alignments."""
    end = (offset + len(raw)) // 3 * 4
    start = (0, 2, 3)[offset]
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        yield encode(b"\0" * offset + raw)[start:end]


def _base32(raw: bytes) -> Iterator[bytes]:
    core = base64.b32encode(raw[: len(raw) // 5 * 5])
    yield from (core, core.lower())
