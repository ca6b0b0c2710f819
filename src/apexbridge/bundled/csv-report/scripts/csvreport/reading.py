"""From bytes to a rectangular table: encoding, delimiter, header, ragged rows."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from csvreport.words import Lang, ReportError, clean, say

MAX_MB: Final = 50
MAX_BYTES: Final = MAX_MB * 1024 * 1024
DELIMITERS: Final = (",", ";", "\t", "|")
_SAMPLE_ROWS: Final = 50
_SAMPLE_CHARS: Final = 1_000_000
_CHUNK_ROWS: Final = 5000
_ENCODINGS: Final = {
    "utf-8": "UTF-8",
    "utf-8-sig": "UTF-8 (BOM)",
    "utf-16": "UTF-16",
    "gb18030": "GB18030",
}
_SEP_LINE = re.compile(r"sep=(.)\r?\n", re.IGNORECASE)


@dataclass(frozen=True)
class Table:
    """A header, the cells of each column, and what had to be mended to get them."""

    names: list[str]
    columns: list[list[str]]
    rows: int
    encoding: str
    delimiter: str
    notes: list[str]


def read_table(data: bytes, delimiter: str | None, lang: Lang) -> Table:
    """Read the bytes of a CSV file; ``delimiter`` None means find it out."""
    if len(data) > MAX_BYTES:
        raise ReportError("too_large", limit=MAX_MB)
    encoding = find_encoding(data)
    sample = io.TextIOWrapper(io.BytesIO(data), encoding, newline="").read(_SAMPLE_CHARS)
    declared = _SEP_LINE.match(sample)
    if declared:
        sample = sample[declared.end() :]
        delimiter = delimiter or declared.group(1)
    csv.field_size_limit(MAX_BYTES)
    notes: list[str] = []
    try:
        delimiter = delimiter or sniff(sample)
        rows = _Rows(data, encoding, delimiter, skip=1 if declared else 0)
        names = _header(_first_row(rows), lang, notes)
        columns = _fill(rows, len(names), lang, notes)
        open_line = rows.unclosed_line()
    except csv.Error as error:
        raise ReportError("bad_csv", reason=error) from error
    if open_line:
        notes.append(say(lang, "note_unclosed", line=open_line))
    return Table(names, columns, len(columns[0]), _ENCODINGS[encoding], delimiter, notes)


class _Rows:
    """The rows of a CSV file, taken a chunk at a time."""

    def __init__(self, data: bytes, encoding: str, delimiter: str, skip: int) -> None:
        self._data = data
        self._encoding = encoding
        self._delimiter = delimiter
        self._skip = skip
        self._reader = csv.reader(self._lines_from(0), delimiter=delimiter, skipinitialspace=True)
        self._mark = 0

    def take(self, count: int) -> list[list[str]]:
        """Return up to ``count`` further rows; none at the end."""
        line = self._reader.line_num
        rows = list(islice(self._reader, count))
        if rows:
            self._mark = line
        return rows

    def unclosed_line(self) -> int:
        """Return the line of a quote that is never closed, or 0; call it after the last row."""
        start = line = self._mark
        loose = csv.reader(self._lines_from(line), delimiter=self._delimiter, skipinitialspace=True)
        for _ in loose:
            start, line = line, self._mark + loose.line_num
        strict = csv.reader(
            self._lines_from(start), delimiter=self._delimiter, skipinitialspace=True, strict=True
        )
        try:
            for _ in strict:
                pass
        except csv.Error as error:
            return self._skip + start + 1 if "end of data" in str(error) else 0
        return 0

    def _lines_from(self, line: int) -> Iterator[str]:
        """Read the lines anew from ``line`` on; the text is never held as a whole."""
        source = io.TextIOWrapper(io.BytesIO(self._data), self._encoding, newline="")
        return islice(source, self._skip + line, None)


def find_encoding(data: bytes) -> str:
    """Return the codec of ``data``; a byte order mark decides first."""
    candidates = ["utf-8", "gb18030"]
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        candidates = ["utf-16"]
    elif data.startswith(codecs.BOM_UTF8):
        candidates = ["utf-8-sig"]
    for codec in candidates:
        try:
            text = data.decode(codec)
        except UnicodeDecodeError:
            continue
        if "\0" in text:
            raise ReportError("binary")
        return codec
    raise ReportError("binary" if b"\0" in data else "encoding")


def sniff(text: str) -> str:
    """Return the delimiter by which most of the first rows are as wide as the header."""

    def score(delimiter: str) -> tuple[float, int]:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        widths = [len(row) for row in islice((row for row in reader if row), _SAMPLE_ROWS)]
        if not widths or widths[0] < 2:
            return 0.0, 0
        return widths.count(widths[0]) / len(widths), widths[0]

    return max(DELIMITERS, key=score)


def _header(cells: list[str], lang: Lang, notes: list[str]) -> list[str]:
    """Return a distinct, non-empty name for each column."""
    names: list[str] = []
    used: set[str] = set()
    following: Counter[str] = Counter()
    unnamed = repeated = 0
    for number, cell in enumerate(cells, start=1):
        name = clean(cell.lstrip("\ufeff"))[:200]
        if not name:
            name, unnamed = say(lang, "unnamed", number=number), unnamed + 1
        base = name
        repeated += base in used
        while name in used:
            following[base] += 1
            name = f"{base} ({following[base] + 1})"
        used.add(name)
        names.append(name)
    if unnamed:
        notes.append(say(lang, "note_unnamed", n=unnamed))
    if repeated:
        notes.append(say(lang, "note_repeated", n=repeated))
    return names


def _has_content(row: Iterable[str]) -> bool:
    return any(cell.strip() for cell in row)


def _first_row(rows: _Rows) -> list[str]:
    """Return the first row that is not blank: the header."""
    while row := rows.take(1):
        if _has_content(row[0]):
            return row[0]
    raise ReportError("empty")


def _fill(rows: _Rows, size: int, lang: Lang, notes: list[str]) -> list[list[str]]:
    """Return the cells of each of ``size`` columns, and note the rows that did not fit."""
    columns: list[list[str]] = [[] for _ in range(size)]
    misfits: Counter[str] = Counter()
    while chunk := rows.take(_CHUNK_ROWS):
        if set(map(len, chunk)) != {size} or not all(row[0].strip() for row in chunk):
            chunk = _fitted(chunk, size, misfits)
        for column, cells in zip(columns, zip(*chunk, strict=True), strict=bool(chunk)):
            column.extend(map(str.strip, cells))
    keys = [key for key in ("note_short", "note_long", "note_blank") if misfits[key]]
    notes.extend(say(lang, key, n=misfits[key]) for key in keys)
    return columns


def _fitted(rows: list[list[str]], size: int, misfits: Counter[str]) -> list[list[str]]:
    """Return the rows that have content, ``size`` cells wide, and count the others."""
    fitted: list[list[str]] = []
    for row in rows:
        if not _has_content(row):
            misfits["note_blank"] += bool(row)
            continue
        misfits["note_short"] += len(row) < size
        misfits["note_long"] += _has_content(row[size:])
        fitted.append(row[:size] + [""] * (size - len(row)))
    return fitted
