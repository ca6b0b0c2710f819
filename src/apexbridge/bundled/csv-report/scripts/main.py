#!/usr/bin/env python3
"""Summarise a CSV file: a Markdown report and an SVG chart.

Exit code 0: report.md and chart.svg were written. Exit code 2: the arguments or the input
are wrong, said in one sentence on standard error. See --help for the arguments.
"""

from __future__ import annotations

import argparse
import gc
import io
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Final, NoReturn, cast, get_args

if __name__ == "__main__":
    # Run with -I, Python does not look here by itself; and the skill folder stays as shipped.
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    sys.dont_write_bytecode = True

from csvreport.chart import draw
from csvreport.columns import build_column
from csvreport.grouping import Agg, Request, Shape, make_series
from csvreport.reading import MAX_BYTES, read_table
from csvreport.report import CHART_FILE, Report, write_report
from csvreport.words import Lang, ReportError, clean, say

_USAGE: Final = (
    "main.py INPUT.csv [--by COLUMN] [--value COLUMN] [--agg sum|mean|count|min|max]\n"
    "               [--top N] [--chart bar|line] [--out DIR] [--title TEXT] [--lang en|zh]\n"
    "               [--delimiter CHAR]"
)
REPORT_FILE: Final = "report.md"
_MOST_TOP: Final = 1000
_OS_ERRORS: Final[tuple[tuple[type[OSError], str], ...]] = (
    (FileNotFoundError, "not_found"),
    (IsADirectoryError, "is_folder"),
    (NotADirectoryError, "not_folder"),
    (FileExistsError, "not_folder"),
    (PermissionError, "no_permission"),
)


@dataclass(frozen=True)
class Options:
    """The command line, checked."""

    source: str
    request: Request
    out: Path
    title: str | None
    lang: Lang
    delimiter: str | None


class _Parser(argparse.ArgumentParser):
    """A parser whose complaints become our own sentences."""

    def error(self, message: str) -> NoReturn:
        raise ReportError("bad_usage", detail=message.rstrip("."))


def build_parser() -> argparse.ArgumentParser:
    """Describe the command line; the values are checked afterwards, in either language."""
    parser = _Parser(
        prog="main.py",
        usage=_USAGE,
        description="Summarise a CSV file as report.md and chart.svg.",
        allow_abbrev=False,
    )
    parser.add_argument("input", nargs="?", metavar="INPUT.csv", help="a CSV file, or - for stdin")
    texts = {
        "--by": ("COLUMN", "the column to group by (chosen when not given)"),
        "--value": ("COLUMN", "the column to aggregate (chosen when not given)"),
        "--agg": ("AGG", "sum, mean, count, min or max"),
        "--top": ("N", "show the N largest groups (the last N for dates and numbers)"),
        "--chart": ("SHAPE", "bar or line"),
        "--out": ("DIR", "where report.md and chart.svg go (default: the current folder)"),
        "--title": ("TEXT", "the title (default: the file's name)"),
        "--lang": ("LANG", "en or zh (default: en)"),
        "--delimiter": ("CHAR", "the character between cells (found out when not given)"),
    }
    for name, (metavar, text) in texts.items():
        parser.add_argument(name, nargs="?", const="", metavar=metavar, help=text)
    return parser


def language(argv: list[str]) -> Lang:
    """Return the language asked for, so that even a wrong command line is answered in it."""
    asked = "--lang=zh" in argv or ("--lang", "zh") in pairwise(argv)
    return "zh" if asked else "en"


def parse(argv: list[str], lang: Lang) -> Options:
    """Read and check the command line."""
    known, unknown = build_parser().parse_known_args(argv)
    given = cast("dict[str, str | None]", vars(known))
    if unknown:
        raise ReportError("unknown_argument", name=unknown[0])
    for name, value in given.items():
        if value == "" and name != "input":
            raise ReportError("no_option_value", name=f"--{name}")
    source = given["input"]
    if not source:
        raise ReportError("no_input")
    _choice(given, "lang", ("en", "zh"))
    request = Request(
        given["by"],
        given["value"],
        cast("Agg | None", _choice(given, "agg", get_args(Agg))),
        _top(given["top"]),
        cast("Shape | None", _choice(given, "chart", get_args(Shape))),
    )
    delimiter = _delimiter(given["delimiter"])
    return Options(source, request, Path(given["out"] or "."), given["title"], lang, delimiter)


def _choice(given: dict[str, str | None], name: str, choices: tuple[str, ...]) -> str | None:
    value = given[name]
    if value is not None and value not in choices:
        shown = "|".join(choices)
        raise ReportError("bad_choice", name=f"--{name}", choices=shown, given=value)
    return value


def _top(given: str | None) -> int | None:
    if given is None:
        return None
    number = int(given) if given.isascii() and given.isdigit() and len(given) < 9 else 0
    if not 1 <= number <= _MOST_TOP:
        raise ReportError("bad_top", given=given)
    return number


def _delimiter(given: str | None) -> str | None:
    if given is None:
        return None
    char = "\t" if given in ("tab", "\\t") else given
    if len(char) != 1 or char in '"\r\n\0 ':
        raise ReportError("bad_delimiter", given=repr(given))
    return char


def read_source(source: str) -> bytes:
    """Return the bytes of the input, and one more than allowed where it is too large."""
    if source == "-":
        return sys.stdin.buffer.read(MAX_BYTES + 1)
    with Path(source).open("rb") as file:
        return file.read(MAX_BYTES + 1)


def run(options: Options) -> None:
    """Read the input, write both files and print the report."""
    lang = options.lang
    table = read_table(read_source(options.source), options.delimiter, lang)
    columns = [build_column(*pair) for pair in zip(table.names, table.columns, strict=True)]
    series = make_series(columns, options.request, lang)
    source = say(lang, "stdin") if options.source == "-" else Path(options.source).name
    title = options.title or (source if options.source == "-" else Path(source).stem)
    text = write_report(Report(title, source, table, columns, series, lang))
    options.out.mkdir(parents=True, exist_ok=True)
    names: list[str] = []
    for name, content in ((REPORT_FILE, text), (CHART_FILE, draw(series, title, lang))):
        path = options.out / name
        path.write_text(content, encoding="utf-8", errors="replace", newline="\n")
        names.append(str(path))
    print(text)
    print(say(lang, "files", names=", ".join(names)))


def main(argv: list[str]) -> int:
    """Run the command line and return its exit code."""
    lang = language(argv)
    try:
        run(parse(argv, lang))
    except ReportError as error:
        complaint = say(lang, error.key, **error.values)
    except MemoryError:
        complaint = say(lang, "no_memory")
    except OSError as error:
        kinds = (key for kind, key in _OS_ERRORS if isinstance(error, kind))
        name = str(error.filename or "stdin/stdout")
        complaint = say(lang, next(kinds, "os_error"), name=name, reason=error.strerror)
    else:
        return 0
    print(clean(complaint), file=sys.stderr)
    return 2


def _explain(kind: type[BaseException], error: BaseException, _: TracebackType | None) -> None:
    """Say what failed in one sentence instead of a traceback."""
    detail = clean(f"{kind.__name__}: {error}")
    print(say(language(sys.argv), "internal", detail=detail), file=sys.stderr)


if __name__ == "__main__":
    gc.disable()  # Millions of cells and no cycles: collecting would only take time.
    sys.excepthook = _explain
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="replace")
    sys.exit(main(sys.argv[1:]))
