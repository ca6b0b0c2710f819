"""Redaction: values of secrets, also in the usual encodings, are replaced by their placeholders.

Responses are searched for parts of a value too: a host that cuts what it echoes would otherwise
give away the beginning, and with other lengths of the request the rest. With a part goes everything
that stands where the rest of the value would be, whatever it is: if only what is right were
replaced, a script that knows a beginning (`sk-ant-api03-`) could have guesses echoed, and see
character by character which one is right (an oracle).
"""

import base64
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from html import escape
from typing import NamedTuple
from urllib.parse import quote, quote_plus

from apexbridge.sandbox.placeholders import MIN_VALUE, RunSecret

_BLOCK = 10
"""Characters of a part that is recognized; a shorter one would be found in ordinary text.

Blocks do not overlap: a guess must have all ten characters right to be told from another.
"""
_MIN_REST = 4
_MAX_BLOCKS = 64


class Redactor:
    """Replace values by their placeholders."""

    def __init__(self, run_secrets: Iterable[RunSecret]) -> None:
        self._replacements: dict[bytes, bytes] = {}
        self._blocks = list[_Block]()
        for secret in run_secrets:
            for encode in _ENCODERS:
                form = encode(secret.value)
                if len(form) >= MIN_VALUE and form not in self._replacements:
                    self._replacements[form] = secret.placeholder.encode()
                    self._blocks += _blocks_of(secret.value, encode)
        self._folded = re.compile(
            b"|".join(map(re.escape, self._replacements)) or b"(?!)", re.IGNORECASE
        )

    def redact(self, data: bytes, *, parts: bool = False) -> bytes:
        """Replace every occurrence of a value; with `parts` also of its longer parts."""
        return _replace(data, self._spans(data, parts=parts))

    def redact_beginning(self, data: bytes, *, parts: bool) -> tuple[bytes, bytes, int]:
        """Redact the beginning of a stream.

        Returns it, the rest that more data may change, and how many bytes after that must go.
        """
        spans = self._spans(data, parts=parts)
        last = max((end for _, end, _ in spans), default=0)
        if last > len(data):
            return _replace(data, spans), b"", last - len(data)
        measure = _inner_overlap if parts else _overlap
        cut = len(data) - max((measure(data, form) for form in self._replacements), default=0)
        for start, end, _ in reversed(spans):
            if start < cut < end:
                cut = start
        return _replace(data[:cut], [span for span in spans if span[1] <= cut]), data[cut:], 0

    def redact_all(self, files: Mapping[str, bytes]) -> dict[str, bytes]:
        """Replace every occurrence in names and contents of files."""
        return {self.redact_name(name): self.redact(data) for name, data in files.items()}

    def redact_name(self, name: str) -> str:
        """Replace every occurrence in the name of a file."""
        return os.fsdecode(self.redact(os.fsencode(name)))

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
        for form, at, text in self._blocks:
            found = data.find(text)
            while found >= 0:
                # Before it, less than a block can belong to the value and not be found itself.
                start = max(found - min(at, len(text) - 1), 0)
                yield start, found - at + len(form), self._replacements[form]
                found = data.find(text, found + 1)


class StreamRedactor:
    """Redact a stream, also a value that is split between pieces; holds back what may be one."""

    def __init__(self, redactor: Redactor, *, parts: bool = False) -> None:
        self._redactor, self._parts, self._rest, self._skip = redactor, parts, b"", 0

    def feed(self, piece: bytes) -> bytes:
        """Take a piece; return what can be passed on."""
        data = self._rest + piece[self._skip :]
        self._skip -= min(self._skip, len(piece))
        if not data:
            return b""
        ready, self._rest, skip = self._redactor.redact_beginning(data, parts=self._parts)
        self._skip += skip
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


class _Block(NamedTuple):
    """A part of an encoded value, and where in it it is."""

    form: bytes
    at: int
    text: bytes


def _blocks_of(value: str, encode: Callable[[str], bytes]) -> Iterator[_Block]:
    """Yield adjacent blocks of an encoded value, the same characters in each encoding."""
    size = max(_BLOCK, len(value) // _MAX_BLOCKS)
    last = len(value) - size
    if last < _MIN_REST:  # hardly more than a word
        return
    form = encode(value)
    for first in (*range(0, last, size), last):
        at = len(encode(value[:first]))
        yield _Block(form, at, form[at : at + len(encode(value[first : first + size]))])


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


def _ascii_json(text: str) -> str:
    return json.dumps(text)[1:-1]


def _escape_json(text: str, chars: str, form: str) -> str:
    r"""Escape further characters, as `\u0026` is for `&`."""
    return "".join(form.format(ord(c)) if c in chars else _ascii_json(c) for c in text)


def _lower_percent(coded: str) -> str:
    return re.sub("%[0-9A-F]{2}", lambda match: match[0].lower(), coded)


_TEXT_ENCODERS: tuple[Callable[[str], str], ...] = (
    str,
    str.lower,
    str.upper,
    _ascii_json,
    lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    lambda text: _ascii_json(text).replace("/", "\\/"),  # PHP
    lambda text: _escape_json(text, "&<>", "\\u{:04x}"),  # Go
    lambda text: _escape_json(text, "\"&'+<>`", "\\u{:04X}"),  # .NET
    escape,
    lambda text: escape(text, quote=False),
    lambda text: escape(text).replace("&quot;", "&#34;").replace("&#x27;", "&#39;"),
    lambda text: quote(text, safe=""),
    quote,
    quote_plus,
    lambda text: _lower_percent(quote(text, safe="")),
    lambda text: _lower_percent(quote(text)),
    lambda text: _lower_percent(quote_plus(text)),
    lambda text: "".join(f"%{byte:02X}" for byte in text.encode()),
    lambda text: "".join(f"%{byte:02x}" for byte in text.encode()),
    lambda text: text.encode().hex(),
    lambda text: text.encode().hex().upper(),
)


def _base64_core(text: str, encode: Callable[[bytes], bytes], offset: int) -> bytes:
    """Return the characters that depend on the value alone, at one of the three alignments."""
    raw = text.encode()
    end = (offset + len(raw)) // 3 * 4
    start = (0, 2, 3)[offset]
    return encode(b"\0" * offset + raw)[start:end]


def _base32_core(text: str) -> bytes:
    raw = text.encode()
    return base64.b32encode(raw[: len(raw) // 5 * 5])


def _as_bytes(encode: Callable[[str], str], text: str) -> bytes:
    return encode(text).encode()


_ENCODERS: tuple[Callable[[str], bytes], ...] = (
    *(partial(_as_bytes, encode) for encode in _TEXT_ENCODERS),
    lambda text: text.encode("utf-16-le"),
    lambda text: text.encode("utf-16-be"),
    lambda text: text.encode()[::-1],
    *(
        partial(_base64_core, encode=encode, offset=offset)
        for encode in (base64.b64encode, base64.urlsafe_b64encode)
        for offset in range(3)
    ),
    _base32_core,
    lambda text: _base32_core(text).lower(),
)
"""The encodings that are recognized; each writes a beginning of a text as it writes the whole."""
