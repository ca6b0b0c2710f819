"""The SVG chart, written by hand: bars across, bars upright, or a line."""

from __future__ import annotations

import html
import math
from dataclasses import dataclass
from typing import Final

from csvreport.grouping import Group, Series, round_step
from csvreport.words import Lang, clean, figure, say, short_figure, shorten, tick_figures, width

_WIDTH: Final = 800
_TOP: Final = 76
_EDGE: Final = 24
_PLOT_HEIGHT: Final = 300
_ROW_HEIGHT: Final = 28
_BAR_HEIGHT: Final = 18
_LETTER: Final = 6.7
_LABEL_LETTERS: Final = 34
_STEP_LETTERS: Final = 14
_FONT: Final = (
    "system-ui, -apple-system, 'Segoe UI', 'PingFang SC', 'Microsoft YaHei', "
    "'Noto Sans CJK SC', sans-serif"
)
_BLUE, _RED, _GREY = "#2f6fab", "#c2504a", "#98a2ad"
_INK, _FAINT, _GRID, _AXIS = "#22272e", "#5b6570", "#e4e8ec", "#8a939c"


@dataclass(frozen=True)
class Scale:
    """A value axis: its round ticks, and where a value lies between two pixels."""

    ticks: list[float]
    start: float
    end: float

    def at(self, value: float) -> float:
        """Return the pixel of ``value``."""
        low, high = self.ticks[0], self.ticks[-1]
        return self.start + (value - low) / (high - low) * (self.end - self.start)


def draw(series: Series, title: str, lang: Lang) -> str:
    """Return the chart as a complete SVG document."""
    if not series.groups:
        middle = text(_WIDTH / 2, 150, say(lang, "no_chart"), anchor="middle", fill=_FAINT)
        return _document([middle], 240, title, series.phrase)
    if series.shape == "line":
        body, height = _upright(series, lang, line=True)
    elif series.ordered:
        body, height = _upright(series, lang, line=False)
    else:
        body, height = _across(series, lang)
    return _document(body, height, title, series.phrase)


def tag(name: str, body: str = "", **attributes: object) -> str:
    """Return one XML element; numbers are rounded and values escaped."""
    pairs: list[str] = []
    for key, value in attributes.items():
        shown = f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
        pairs.append(f' {key.rstrip("_").replace("_", "-")}="{html.escape(clean(shown))}"')
    return f"<{name}{''.join(pairs)}>{body}</{name}>" if body else f"<{name}{''.join(pairs)}/>"


def text(
    x: float, y: float, words: str, *, anchor: str = "start", fill: str = _INK, kind: str = ""
) -> str:
    """Return one line of text."""
    extra = {"class_": kind} if kind else {}
    return tag("text", html.escape(clean(words)), x=x, y=y, text_anchor=anchor, fill=fill, **extra)


def _document(body: list[str], height: float, title: str, phrase: str) -> str:
    """Put the frame around the drawing: size, background, title and subtitle."""
    title_text = tag("title", html.escape(clean(title)))
    heading = tag(
        "text",
        html.escape(shorten(title, 82)),
        x=_EDGE,
        y=32,
        fill=_INK,
        font_size=17,
        font_weight="bold",
    )
    parts = [
        title_text,
        tag("desc", html.escape(clean(phrase))),
        tag("rect", width=_WIDTH, height=float(height), fill="#ffffff"),
        heading,
        text(_EDGE, 53, shorten(phrase, 108), fill=_FAINT),
        *body,
    ]
    svg = tag(
        "svg",
        "\n" + "\n".join(parts) + "\n",
        xmlns="http://www.w3.org/2000/svg",
        width=_WIDTH,
        height=float(height),
        viewBox=f"0 0 {_WIDTH} {height:.0f}",
        role="img",
        font_family=_FONT,
        font_size=12,
    )
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{svg}\n'


def round_ticks(low: float, high: float, *, from_zero: bool) -> list[float]:
    """Return about five round ticks that enclose ``low`` to ``high``."""
    if from_zero or 0 <= low < high / 2 or low / 2 < high <= 0:
        low, high = min(low, 0.0), max(high, 0.0)
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        spare = abs(high) / 10 or 1.0
        low, high = (0.0, 1.0) if high == 0 else (low - spare, high + spare)
    step = round_step(high - low, 5)
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    return [count * step for count in range(first, last + 1)]


def _colour(group: Group) -> str:
    if group.other:
        return _GREY
    return _RED if group.value < 0 else _BLUE


def _tip(group: Group, series: Series) -> str:
    """Return the whole label and figure, shown when the pointer rests on a bar or point."""
    whole = f"{shorten(group.label, 300)}: {figure(group.value, series.unit)}"
    return tag("title", html.escape(whole))


def _bar(group: Group, series: Series, box: tuple[float, float, float, float]) -> str:
    """Return one bar with its figure as a tooltip; ``box`` is x, y, width and height."""
    x, y, wide, high = box
    return tag(
        "rect",
        _tip(group, series),
        class_="bar",
        x=x,
        y=y,
        width=wide,
        height=high,
        fill=_colour(group),
        rx=1.5,
    )


def _across(series: Series, lang: Lang) -> tuple[list[str], float]:
    """Draw one horizontal bar for each category, its name on the left."""
    groups = series.groups
    names = [shorten(group.label, _LABEL_LETTERS, middle=True) for group in groups]
    figures = [short_figure(group.value, lang, series.unit) for group in groups]
    room = max(width(words) for words in figures) * _LETTER + 12
    left = _EDGE + max(width(name) for name in names) * _LETTER + 12
    values = [group.value for group in groups]
    ticks = round_ticks(min(values), max(values), from_zero=True)
    start = left + (room if min(values) < 0 else 0)
    scale = Scale(ticks, start, _WIDTH - _EDGE - (room if max(values) > 0 else 0))
    bottom = _TOP + _ROW_HEIGHT * len(groups) + 4
    parts: list[str] = []
    labels = tick_figures(ticks, lang, series.unit)
    for tick, label in zip(ticks, labels, strict=True):
        x = scale.at(tick)
        stroke = _AXIS if tick == 0 else _GRID
        parts.append(tag("line", x1=x, y1=float(_TOP - 4), x2=x, y2=float(bottom), stroke=stroke))
        parts.append(text(x, bottom + 18, label, anchor="middle", fill=_FAINT, kind="tick"))
    for row, group in enumerate(groups):
        y = _TOP + row * _ROW_HEIGHT + (_ROW_HEIGHT - _BAR_HEIGHT) / 2
        zero, tip = scale.at(0.0), scale.at(group.value)
        box = (min(zero, tip), y, abs(tip - zero), float(_BAR_HEIGHT))
        parts.append(text(left - 12, y + 13, names[row], anchor="end", kind="label"))
        parts.append(_bar(group, series, box))
        side, anchor = (-6, "end") if group.value < 0 else (6, "start")
        parts.append(text(tip + side, y + 13, figures[row], anchor=anchor, kind="figure"))
    return parts, bottom + 36


def _upright(series: Series, lang: Lang, *, line: bool) -> tuple[list[str], float]:
    """Draw upright bars or a line along an axis of dates, numbers or names."""
    values = [group.value for group in series.groups]
    ticks = round_ticks(min(values), max(values), from_zero=not line or series.adds_up)
    bottom = _TOP + _PLOT_HEIGHT
    scale = Scale(ticks, float(bottom), float(_TOP))
    labels = tick_figures(ticks, lang, series.unit)
    left = _EDGE + max(width(label) for label in labels) * _LETTER + 10
    parts: list[str] = []
    for tick, label in zip(ticks, labels, strict=True):
        y = scale.at(tick)
        stroke = _AXIS if tick == 0 else _GRID
        parts.append(tag("line", x1=left, y1=y, x2=_WIDTH - _EDGE, y2=y, stroke=stroke))
        parts.append(text(left - 8, y + 4, label, anchor="end", fill=_FAINT, kind="tick"))
    places = _places(series.groups, left, by_date=line)
    parts += _step_labels(series.groups, places, bottom + 20)
    if line:
        parts += _line(series, places, scale)
    else:
        parts += _columns(series, lang, places, scale)
    return parts, bottom + 44


def _places(groups: list[Group], left: float, *, by_date: bool) -> list[float]:
    """Return the pixel of each group: true to the calendar for a line of dates."""
    right = float(_WIDTH - _EDGE)
    slot = (right - left) / len(groups)
    dates = [group.place for group in groups if group.place is not None]
    if by_date and len(dates) == len(groups) > 1:
        first, last = left + 16, right - 24
        span = dates[-1] - dates[0]
        return [first + (day - dates[0]) / span * (last - first) for day in dates]
    return [left + slot * (number + 0.5) for number in range(len(groups))]


def _step_labels(groups: list[Group], places: list[float], y: float) -> list[str]:
    """Write as many labels below the axis as fit without touching."""
    parts: list[str] = []
    free = -math.inf
    for group, x in zip(groups, places, strict=True):
        name = shorten(group.label, _STEP_LETTERS, middle=True)
        half = width(name) * _LETTER / 2
        if x - half >= free and x + half <= _WIDTH:
            parts.append(text(x, y, name, anchor="middle", kind="label"))
            free = x + half + 12
    return parts


def _columns(series: Series, lang: Lang, places: list[float], scale: Scale) -> list[str]:
    """Draw one upright bar for each group, with its figure where there is room."""
    slot = places[1] - places[0] if len(places) > 1 else 120.0
    wide = min(slot * 0.72, 64.0)
    figures = [short_figure(group.value, lang, series.unit) for group in series.groups]
    roomy = max(width(words) for words in figures) * _LETTER + 6 < slot
    zero = scale.at(0.0)
    parts: list[str] = []
    for group, x, words in zip(series.groups, places, figures, strict=True):
        tip = scale.at(group.value)
        box = (x - wide / 2, min(zero, tip), wide, abs(zero - tip))
        parts.append(_bar(group, series, box))
        if roomy:
            y = tip + 14 if group.value < 0 else tip - 5
            parts.append(text(x, y, words, anchor="middle", kind="figure"))
    return parts


def _line(series: Series, places: list[float], scale: Scale) -> list[str]:
    """Draw the line and, where they are not too many, its points."""
    spots = [(x, scale.at(g.value)) for g, x in zip(series.groups, places, strict=True)]
    path = " ".join(f"{x:.2f},{y:.2f}" for x, y in spots)
    parts = [tag("polyline", points=path, fill="none", stroke=_BLUE, stroke_width=2, class_="line")]
    size = 3.5 if len(spots) <= 31 else 2.0
    for group, (x, y) in zip(series.groups, spots, strict=True):
        tip = _tip(group, series)
        parts.append(tag("circle", tip, class_="point", cx=x, cy=y, r=size, fill=_BLUE))
    return parts
