"""The Markdown report: what each column holds, what the chart shows, what was odd."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from heapq import nsmallest
from typing import Final

from csvreport.columns import Column, Kind
from csvreport.grouping import Series
from csvreport.reading import Table
from csvreport.words import Lang, figure, markdown, say, shorten

CHART_FILE: Final = "chart.svg"
_MOST_COLUMNS: Final = 50
_TOP_VALUES: Final = 5
_WORDY: Final = ("column", "top_values")


@dataclass(frozen=True)
class Report:
    """All that goes into the text."""

    title: str
    source: str
    table: Table
    columns: list[Column]
    series: Series
    lang: Lang


def write_report(report: Report) -> str:
    """Return the whole report as Markdown."""
    lang, table, series = report.lang, report.table, report.series
    shown = report.columns[:_MOST_COLUMNS]
    delimiter = say(lang, "tab") if table.delimiter == "\t" else f"`{table.delimiter}`"
    parts = [
        f"# {markdown(report.title, 120)}",
        "\n".join(
            [
                f"- {say(lang, 'source')}{markdown(report.source, 120)}",
                f"- {say(lang, 'encoding_is')}{table.encoding}"
                f"{say(lang, 'delimiter_is')}{delimiter}",
                f"- {say(lang, 'rows')}{table.rows:,}",
                f"- {say(lang, 'columns')}{len(table.names):,}",
            ]
        ),
    ]
    for kind, section in _SECTIONS.items():
        chosen = [column for column in shown if column.kind == kind]
        if chosen:
            parts.append(section(chosen, lang))
    parts.append(_chart_section(series, lang))
    notes = _notes(report, shown)
    if notes:
        lines = "\n".join(f"- {markdown(note, 400)}" for note in notes)
        parts.append(f"## {say(lang, 'notes')}\n\n{lines}")
    return "\n\n".join(parts) + "\n"


def _table(headings: list[str], rows: list[list[str]], lang: Lang) -> str:
    """Return a Markdown table; figures are right-aligned."""
    head = " | ".join(say(lang, heading) for heading in headings)
    rule = " | ".join("---" if heading in _WORDY else "---:" for heading in headings)
    return "\n".join(f"| {line} |" for line in (head, rule, *(" | ".join(row) for row in rows)))


def _number_section(columns: list[Column], lang: Lang) -> str:
    headings = ["column", "count", "missing", "min", "max", "mean", "median", "stdev"]
    rows: list[list[str]] = []
    for column in columns:
        values = sorted(column.values())
        mean = math.fsum(values) / len(values)
        half = len(values) // 2
        median = values[half] if len(values) % 2 else (values[half - 1] + values[half]) / 2
        figures = [values[0], values[-1], mean, median]
        texts = [figure(number, column.unit) for number in figures]
        texts.append(_deviation(values, mean, column.unit))
        counts = [f"{len(values):,}", f"{column.missing:,}"]
        rows.append([markdown(column.name), *counts, *texts])
    return f"## {say(lang, 'number_columns')}\n\n{_table(headings, rows, lang)}"


def _deviation(values: list[float], mean: float, unit: str) -> str:
    """Return the sample standard deviation, or a dash for a single value."""
    if len(values) < 2:
        return "—"
    squares = math.fsum((value - mean) ** 2 for value in values)
    return figure(math.sqrt(squares / (len(values) - 1)), unit)


def _date_section(columns: list[Column], lang: Lang) -> str:
    headings = ["column", "count", "missing", "distinct", "first", "last"]
    rows = [
        [
            markdown(column.name),
            f"{column.filled:,}",
            f"{column.missing:,}",
            f"{column.distinct:,}",
            min(column.dates.values()).isoformat(),
            max(column.dates.values()).isoformat(),
        ]
        for column in columns
    ]
    return f"## {say(lang, 'date_columns')}\n\n{_table(headings, rows, lang)}"


def _text_section(columns: list[Column], lang: Lang) -> str:
    headings = ["column", "count", "missing", "distinct", "top_values"]
    rows: list[list[str]] = []
    for column in columns:
        pairs = column.counts.items()
        common = nsmallest(_TOP_VALUES, pairs, key=lambda pair: (-pair[1], pair[0]))
        top = say(lang, "comma_list").join(
            say(lang, "times", value=shorten(value, 30), times=f"{times:,}")
            for value, times in common
        )
        counts = [column.filled, column.missing, column.distinct]
        cells = [f"{count:,}" for count in counts]
        rows.append([markdown(column.name), *cells, markdown(top, 240)])
    return f"## {say(lang, 'text_columns')}\n\n{_table(headings, rows, lang)}"


_SECTIONS: Final[dict[Kind, Callable[[list[Column], Lang], str]]] = {
    "number": _number_section,
    "date": _date_section,
    "text": _text_section,
}


def _chart_section(series: Series, lang: Lang) -> str:
    """Return the figures of the chart as a table, and the chart."""
    phrase = markdown(series.phrase, 160)
    if not series.groups:
        return f"## {phrase}\n\n{say(lang, 'no_chart')}"
    head = f"| {markdown(series.by)} | {say(lang, 'value')} |\n| --- | ---: |"
    rows = [
        f"| {markdown(group.label)} | {figure(group.value, series.unit)} |"
        for group in series.groups
    ]
    image = f"![{say(lang, 'chart_alt', title=phrase)}]({CHART_FILE})"
    return "\n".join([f"## {phrase}", "", head, *rows, "", image])


def _notes(report: Report, shown: list[Column]) -> list[str]:
    """Return everything the reader should know before trusting the figures."""
    lang = report.lang
    notes = [] if report.table.rows else [say(lang, "no_rows")]
    notes += report.table.notes
    more = len(report.columns) - len(shown)
    if more:
        notes.append(say(lang, "more_columns", shown=len(shown), more=more))
    for column in shown:
        if column.unreadable:
            key = f"note_unreadable_{column.kind}"
            notes.append(say(lang, key, n=column.unreadable, name=column.name))
        if column.mixed_units:
            units = " ".join(column.mixed_units)
            notes.append(say(lang, "note_units", name=column.name, units=units))
        if column.decimal_comma:
            notes.append(say(lang, "note_comma", name=column.name))
    return notes + report.series.notes
