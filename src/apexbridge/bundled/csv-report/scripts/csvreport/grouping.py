"""Choosing what to chart, and adding it up in groups."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date
from typing import Final, Literal

from csvreport.columns import Column
from csvreport.words import Lang, ReportError, figure, say, shorten

Agg = Literal["sum", "mean", "count", "min", "max"]
Shape = Literal["bar", "line"]
Key = str | float | date

DEFAULT_TOP: Final = 12
_MOST_STEPS: Final = 62
_FEW: Final = 50


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


_AGGREGATES: Final[dict[Agg, Callable[[list[float]], float]]] = {
    "sum": math.fsum,
    "mean": _mean,
    "count": len,
    "min": min,
    "max": max,
}


@dataclass(frozen=True)
class Request:
    """What the caller asked for; None means choose."""

    by: str | None = None
    value: str | None = None
    agg: Agg | None = None
    top: int | None = None
    shape: Shape | None = None


@dataclass(frozen=True)
class Group:
    """One bar or point: its label, its figure, and its place on an axis of dates."""

    label: str
    value: float
    place: float | None = None
    other: bool = False


@dataclass(frozen=True)
class Series:
    """All that the chart shows."""

    groups: list[Group]
    by: str
    phrase: str
    unit: str
    shape: Shape
    ordered: bool
    adds_up: bool
    notes: list[str] = field(default_factory=list[str])


def make_series(columns: list[Column], request: Request, lang: Lang) -> Series:
    """Choose the columns that were not named, group the rows and aggregate them."""
    by = _named(columns, request.by, lang) or _choose_by(columns, request.value)
    agg = request.agg
    value = _named(columns, request.value, lang)
    if value is None and agg != "count":
        value = _choose_value(columns, by)
    if value is None and agg not in (None, "count") and by.cells:
        raise ReportError("no_number", agg=agg)
    if agg is None:
        agg = _choose_agg(value)
    if value is not None and value.kind != "number" and agg != "count" and value.cells:
        raise ReportError("not_number", name=value.name, agg=agg)
    notes: list[str] = []
    groups = _group(by, value, agg, request, lang, notes)
    names = {"by": by.name, "value": value.name if value else ""}
    phrase = say(lang, f"by_{agg}" if value else "by_rows", **names)
    unit = value.unit if value and agg != "count" else ""
    shape = request.shape or ("line" if by.kind == "date" and len(groups) > 2 else "bar")
    ordered, adds_up = by.kind != "text", agg in ("sum", "count")
    return Series(groups, by.name, phrase, unit, shape, ordered, adds_up, notes)


def _named(columns: list[Column], name: str | None, lang: Lang) -> Column | None:
    """Return the column called ``name``; the case matters only where it must."""
    if name is None:
        return None
    wanted = name.strip()
    for column in columns:
        if column.name == wanted:
            return column
    for column in columns:
        if column.name.casefold() == wanted.casefold():
            return column
    known = say(lang, "comma_list").join(shorten(column.name, 40) for column in columns[:20])
    raise ReportError(
        "no_column", name=shorten(name, 80), known=known + ("…" if len(columns) > 20 else "")
    )


def _choose_by(columns: list[Column], value: str | None) -> Column:
    """Prefer dates, then years, then a text column with few values, then anything."""
    rest = [c for c in columns if c.name != value and _can_group(c)] or columns
    text = [c for c in rest if c.kind == "text"]
    wishes: list[list[Column]] = [
        [c for c in rest if c.kind == "date"],
        [c for c in rest if c.is_label() and c.distinct < c.filled],
        [c for c in text if c.distinct <= _FEW and c.distinct < c.filled],
        text,
        [c for c in rest if c.is_label()],
        rest,
    ]
    return next(wish[0] for wish in wishes if wish)


def _can_group(column: Column) -> bool:
    """Say whether grouping by ``column`` gives more than one group; text may be empty."""
    return column.distinct + (column.kind == "text" and column.missing > 0) > 1


def _choose_value(columns: list[Column], by: Column) -> Column | None:
    """Take the first column that measures something."""
    numeric = [c for c in columns if c.kind == "number" and c is not by]
    return next((c for c in numeric if not c.is_label()), None)


def _choose_agg(value: Column | None) -> Agg:
    """Add amounts up, but average percentages, and count where there is no number."""
    if value is None or value.kind != "number":
        return "count"
    return "mean" if value.unit == "%" else "sum"


def _group(
    by: Column, value: Column | None, agg: Agg, request: Request, lang: Lang, notes: list[str]
) -> list[Group]:
    """Collect the values of each key and aggregate them into groups, in chart order."""
    members: dict[Key, list[float]] = {}
    no_key = no_value = 0
    for (key, number), times in _pairs(by, value):
        if key is None:
            no_key += times
        elif number is None:
            no_value += times
        else:
            members.setdefault(key, []).extend([number] * times)
    if no_key:
        notes.append(say(lang, "note_no_key", n=no_key, name=by.name))
    if no_value and value is not None:
        notes.append(say(lang, "note_no_value", n=no_value, name=value.name))
    if by.kind == "text":
        return _ranked(members, agg, request, lang, notes)
    return _in_order(by, members, agg, request.top, lang, notes)


def _pairs(
    by: Column, value: Column | None
) -> Iterator[tuple[tuple[Key | None, float | None], int]]:
    """Yield each distinct pair of a key and a number, and how many rows hold it."""
    others = by.cells if value is None else value.cells
    for (cell, other), times in Counter(zip(by.cells, others, strict=True)).items():
        key: Key | None = cell
        if by.kind == "number":
            key = by.numbers.get(cell)
        elif by.kind == "date":
            key = by.dates.get(cell)
        number: float | None = 1.0
        if value is not None and value.kind == "number":
            number = value.numbers.get(other)
        elif value is not None and not other:
            number = None
        yield (key, number), times


def _ranked(
    members: dict[Key, list[float]], agg: Agg, request: Request, lang: Lang, notes: list[str]
) -> list[Group]:
    """Keep the largest groups and fold the rest into one."""
    total = _AGGREGATES[agg]
    figures = {key: total(values) for key, values in members.items()}
    kept = sorted(figures, key=lambda key: -abs(figures[key]))
    top = request.top or DEFAULT_TOP
    rest = kept[top:] if len(kept) > top + (request.top is None) else []
    chosen = set(kept) - set(rest)
    if request.shape == "line":
        order = [key for key in figures if key in chosen]
    else:
        order = sorted(chosen, key=lambda key: (-figures[key], str(key)))
    groups = [Group(str(key) or say(lang, "blank"), figures[key]) for key in order]
    if rest:
        folded = [number for key in rest for number in members[key]]
        groups.append(Group(say(lang, "other"), total(folded), other=True))
        notes.append(say(lang, "note_folded", n=len(rest)))
    return groups


def _in_order(
    by: Column,
    members: dict[Key, list[float]],
    agg: Agg,
    top: int | None,
    lang: Lang,
    notes: list[str],
) -> list[Group]:
    """Aggregate along an axis of dates or numbers, in coarser steps where there are many."""
    days = {key: values for key, values in members.items() if isinstance(key, date)}
    numbers = {key: values for key, values in members.items() if isinstance(key, float)}
    if by.kind == "date":
        labelled = _by_period(days, lang, notes)
    else:
        labelled = _by_range(numbers, by, lang, notes)
    if agg != "count":
        labelled = [step for step in labelled if step[2]]
    if top is not None and len(labelled) > top:
        notes.append(say(lang, "note_last", shown=top, n=len(labelled)))
        labelled = labelled[-top:]
    total = _AGGREGATES[agg]
    return [Group(label, total(values), place) for label, place, values in labelled]


_Labelled = list[tuple[str, float | None, list[float]]]


def _by_period(members: dict[date, list[float]], lang: Lang, notes: list[str]) -> _Labelled:
    """Group days as they are, by month or by year, whichever is few enough."""
    monthly = all(day.day == 1 for day in members)
    months = len({(day.year, day.month) for day in members})
    size = 10
    if months > _MOST_STEPS:
        size = 4
        notes.append(say(lang, "note_year"))
    elif len(members) > _MOST_STEPS or monthly:
        size = 7
        if not monthly:
            notes.append(say(lang, "note_month"))
    periods: dict[str, list[float]] = {}
    places: dict[str, float] = {}
    for day in sorted(members):
        label = day.isoformat()[:size]
        periods.setdefault(label, []).extend(members[day])
        first = day.replace(month=1, day=1) if size == 4 else day.replace(day=1)
        places[label] = float((day if size == 10 else first).toordinal())
    return [(label, places[label], values) for label, values in periods.items()]


def _by_range(
    members: dict[float, list[float]], by: Column, lang: Lang, notes: list[str]
) -> _Labelled:
    """Group numbers as they are, or in round ranges where there are many."""
    if len(members) <= _MOST_STEPS:
        write = str if by.is_label() else figure
        return [
            (write(int(key)) if key == int(key) else figure(key), None, members[key])
            for key in sorted(members)
        ]
    notes.append(say(lang, "note_ranges", name=by.name))
    step = round_step(max(members) - min(members), 10)
    ranges: dict[int, list[float]] = {}
    for key in sorted(members):
        ranges.setdefault(math.floor(key / step + 1e-9), []).extend(members[key])
    return [
        (f"{figure(slot * step)}–{figure((slot + 1) * step)}", None, ranges.get(slot, []))
        for slot in range(min(ranges), max(ranges) + 1)
    ]


def round_step(span: float, parts: int) -> float:
    """Return the step of 1, 2 or 5 times a power of ten that cuts ``span`` into ``parts``."""
    rough = span / parts
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * factor for factor in (1, 2, 5, 10) if rough <= power * factor * 1.0000001)
