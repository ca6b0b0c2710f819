"""What a column holds: numbers, dates or text, read cell by distinct cell."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date
from typing import Final, Literal

Kind = Literal["number", "date", "text"]

_ENOUGH: Final = 0.9
_LONGEST: Final = 40
_LARGEST: Final = 1e100
_MOST_DIGITS: Final = 15
_NO_VALUE: Final = frozenset({"na", "n/a", "#n/a", "nan", "null", "none", "-", "--", "—", "——"})
_SCALE: Final = {None: 1.0, "万": 1e4, "亿": 1e8}
_CODE_WORDS: Final = frozenset({"id", "no", "index", "code", "phone", "zip"})
_CODE_ENDS: Final = ("编号", "序号", "号码", "代码", "编码", "电话", "手机", "邮编")
_SIGNS = str.maketrans({"−": "-", "–": "-", "’": "'", "元": "¥"})


def _number_pattern(point: str, comma: str) -> re.Pattern[str]:
    return re.compile(
        r"(?P<sign>[-+]?)\s*(?P<before>[¥$€£]?)\s*(?P<inner>[-+]?)"
        rf"(?P<whole>\d{{1,3}}(?P<sep>[{comma}' ])\d{{3}}(?:(?P=sep)\d{{3}})*|\d*)"
        rf"(?:{point}(?P<part>\d*))?(?P<power>[eE][-+]?\d{{1,3}})?"
        r"\s*(?P<scale>[万亿]?)\s*(?P<after>[%¥$€£]?)",
        re.ASCII,
    )


_PLAIN = re.compile(r"-?(?:0|[1-9]\d{0,14})(?:\.\d{1,15})?", re.ASCII)
_POINT = _number_pattern(r"\.", ",")
_COMMA = _number_pattern(",", r"\.")
_TIME = r"(?:[T\s]+\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?\s*(?:Z|[-+]\d{2}:?\d{2})?)?"
_DATES = (
    re.compile(rf"(\d{{4}})([-/.])(\d{{1,2}})\2(\d{{1,2}}){_TIME}", re.ASCII),
    re.compile(rf"(\d{{4}})\s*(年)\s*(\d{{1,2}})\s*月\s*(\d{{1,2}})\s*[日号]{_TIME}", re.ASCII),
    re.compile(r"(\d{4})([-/])(\d{1,2})", re.ASCII),
    re.compile(r"(\d{4})\s*(年)\s*(\d{1,2})\s*月", re.ASCII),
)


@dataclass(frozen=True)
class Column:
    """One column: its cells, and the number or date that each distinct cell stands for."""

    name: str
    cells: list[str]
    kind: Kind
    distinct: int
    missing: int
    unreadable: int = 0
    counts: Counter[str] = field(default_factory=Counter[str])
    numbers: dict[str, float] = field(default_factory=dict[str, float])
    dates: dict[str, date] = field(default_factory=dict[str, date])
    unit: str = ""
    mixed_units: tuple[str, ...] = ()
    decimal_comma: bool = False

    @property
    def filled(self) -> int:
        """How many cells hold a value of the column's kind."""
        return len(self.cells) - self.missing - self.unreadable

    def values(self) -> list[float]:
        """Return the numbers of a number column, in row order."""
        numbers = self.numbers
        return [numbers[cell] for cell in self.cells if cell in numbers]

    def is_label(self) -> bool:
        """Say whether the numbers name things (a year, an identifier) and measure nothing."""
        if self.kind != "number" or self.unit or self.mixed_units:
            return False
        if not all(number == int(number) for number in self.numbers.values()):
            return False
        name = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", self.name).lower()
        words = re.split(r"[\W_]+", name.strip())
        low, high = min(self.numbers.values()), max(self.numbers.values())
        year = ("year" in words or "年" in name) and 1900 <= low <= high <= 2100
        month = ("month" in words or "月" in name) and 1 <= low <= high <= 12
        return year or month or words[-1] in _CODE_WORDS or name.endswith(_CODE_ENDS)


def read_number(text: str, *, comma: bool = False) -> tuple[float, str] | None:
    """Return the number in ``text`` and its unit, or None when it is not a number."""
    if len(text) > _LONGEST:
        return None
    if not comma and _PLAIN.fullmatch(text):
        return float(text), ""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text).translate(_SIGNS)
    negative = text.endswith(")") and "(" in text[:2]
    if negative:
        text = text[:-1].replace("(", "", 1)
    match = (_COMMA if comma else _POINT).fullmatch(text.strip())
    if match is None or not _is_quantity(match):
        return None
    sep = match["sep"]
    whole = match["whole"].replace(sep, "") if sep else match["whole"]
    number = float(f"{whole or 0}.{match['part'] or 0}{match['power'] or ''}")
    number *= _SCALE[match["scale"] or None]
    if not math.isfinite(number) or abs(number) > _LARGEST:
        return None
    if negative or "-" in (match["sign"], match["inner"]):
        number = -number
    return number, match["before"] or match["after"]


def _is_quantity(match: re.Match[str]) -> bool:
    """Refuse what only looks like a number: no digits, 007, card numbers, two units."""
    whole, part = match["whole"], match["part"]
    if not whole and not part:
        return False
    if len(whole) > _MOST_DIGITS and not match["sep"]:
        return False
    code = len(whole) > 1 and whole[0] == "0" and part is None
    doubled = bool(match["sign"] and match["inner"]) or bool(match["before"] and match["after"])
    return not code and not doubled


def read_date(text: str) -> date | None:
    """Return the day in ``text`` (a month stands for its first day), or None."""
    if len(text) > _LONGEST or not text[:4].isdigit():
        return None
    text = unicodedata.normalize("NFKC", text)
    for pattern in _DATES:
        match = pattern.fullmatch(text)
        if match:
            year, _, month, *day = match.groups()
            try:
                return date(int(year), int(month), int(day[0]) if day else 1)
            except ValueError:
                return None
    return None


def build_column(name: str, cells: list[str]) -> Column:
    """Find out what ``cells`` hold; nine in ten must agree for numbers or dates."""
    counts = Counter(cells)
    blank = counts.pop("", 0)
    readable = [text for text in counts if text.lower() not in _NO_VALUE]
    total = _weight(readable, counts)
    missing = len(cells) - total
    numbers, units, comma = _read_numbers(readable, counts)
    known = _weight(numbers, counts)
    if total and known >= _ENOUGH * total:
        unit, mixed = _one_unit(units)
        return Column(
            name,
            cells,
            "number",
            len(numbers),
            missing,
            total - known,
            numbers=numbers,
            unit=unit,
            mixed_units=mixed,
            decimal_comma=comma,
        )
    dates = {text: day for text in readable if (day := read_date(text)) is not None}
    known = _weight(dates, counts)
    if total and known >= _ENOUGH * total:
        return Column(
            name, cells, "date", len(set(dates.values())), missing, total - known, dates=dates
        )
    return Column(name, cells, "text", len(counts), blank, counts=counts)


def _read_numbers(
    texts: list[str], counts: Counter[str]
) -> tuple[dict[str, float], set[str], bool]:
    """Read with a decimal point, or with a decimal comma where that reads more cells."""
    numbers, units = _read_all(texts, comma=False)
    if len(numbers) < len(texts):
        others, other_units = _read_all(texts, comma=True)
        if _weight(others, counts) > _weight(numbers, counts):
            return others, other_units, True
    return numbers, units, False


def _read_all(texts: list[str], *, comma: bool) -> tuple[dict[str, float], set[str]]:
    numbers: dict[str, float] = {}
    units: set[str] = set()
    for text in texts:
        pair = read_number(text, comma=comma)
        if pair is not None:
            numbers[text] = pair[0]
            units.add(pair[1])
    return numbers, units


def _weight(texts: Iterable[str], counts: Counter[str]) -> int:
    """Return how many cells hold one of ``texts``."""
    return sum(map(counts.__getitem__, texts))


def _one_unit(units: set[str]) -> tuple[str, tuple[str, ...]]:
    """Return the unit all numbers share, or the units that are mixed."""
    named = sorted(units - {""})
    if len(named) > 1 or (named == ["%"] and "" in units):
        return "", (*named, *(["-"] if "" in units else []))
    return (named[0] if named else ""), ()
