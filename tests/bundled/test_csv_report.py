"""The bundled csv-report script, run as a real process on real files."""

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import pytest

T = TypeVar("T")

SKILL = Path(__file__).parents[2] / "src/apexbridge/bundled/csv-report"
SCRIPT = SKILL / "scripts/main.py"
SVG = "{http://www.w3.org/2000/svg}"
ENVIRONMENT = {key: value for key, value in os.environ.items() if not key.startswith("COVERAGE_")}
"""The script is no part of what is measured, and measuring takes longer than the script."""


@dataclass(frozen=True)
class Chart:
    """The drawn chart, read back from its SVG."""

    root: ET.Element

    def elements(self, tag: str, kind: str = "") -> list[ET.Element]:
        found = self.root.iter(f"{SVG}{tag}")
        return [element for element in found if not kind or element.get("class") == kind]

    def words(self, kind: str = "") -> list[str]:
        return [element.text or "" for element in self.elements("text", kind)]

    def bars(self) -> list[ET.Element]:
        return self.elements("rect", "bar")

    def tips(self, tag: str = "rect") -> list[str]:
        kind = "bar" if tag == "rect" else "point"
        return [bar.findtext(f"{SVG}title", "") for bar in self.elements(tag, kind)]


@dataclass(frozen=True)
class Outcome:
    """What one run printed and wrote."""

    code: int
    out: str
    err: str
    folder: Path

    @property
    def report(self) -> str:
        return (self.folder / "report.md").read_text(encoding="utf-8")

    @property
    def chart(self) -> Chart:
        return Chart(ET.XML((self.folder / "chart.svg").read_bytes()))

    def row(self, first: str, heading: str = "") -> list[str]:
        """The cells of the table row that begins with `first`, below `heading`."""
        text = self.report[self.report.index(heading) :]
        lines = [re.split(r"(?<!\\)\|", line)[1:-1] for line in text.splitlines()]
        rows = [[cell.strip() for cell in cells] for cells in lines if cells]
        return next(row for row in rows if row[0] == first)


def start(*arguments: str, cwd: Path, stdin: bytes = b"") -> Outcome:
    done = subprocess.run(
        [sys.executable, "-I", str(SCRIPT), *arguments],
        cwd=cwd,
        env=ENVIRONMENT,
        input=stdin,
        capture_output=True,
        check=False,
        timeout=60,
    )
    return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode(), cwd)


def report_on(folder: Path, content: str | bytes, *arguments: str) -> Outcome:
    data = content.encode() if isinstance(content, str) else content
    (folder / "input.csv").write_bytes(data)
    outcome = start("input.csv", *arguments, cwd=folder)
    assert outcome.err == ""
    assert outcome.code == 0
    return outcome


def refusal(folder: Path, content: str | bytes, *arguments: str) -> str:
    """Run on bad input, check that the answer is one sentence, and return it."""
    data = content.encode() if isinstance(content, str) else content
    (folder / "input.csv").write_bytes(data)
    return refused(start("input.csv", *arguments, cwd=folder))


def refused(outcome: Outcome) -> str:
    assert outcome.code == 2
    assert outcome.out == ""
    assert "Traceback" not in outcome.err
    assert outcome.err.count("\n") == 1
    assert not (outcome.folder / "report.md").exists()
    return outcome.err.strip()


def side_by_side(work: Callable[[str], T], items: Iterable[str]) -> list[T]:
    """Do `work` for each item, several processes at a time."""
    with ThreadPoolExecutor(max_workers=4) as pool:
        return list(pool.map(work, items))


def number(element: ET.Element, name: str) -> float:
    return float(element.get(name, "nan"))


def test_the_shipped_example_gives_a_report_and_a_chart(tmp_path: Path) -> None:
    before = sorted(SKILL.rglob("*"))

    done = start(str(SKILL / "assets/example.csv"), "--value", "revenue", cwd=tmp_path)

    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[-1] == "Files: report.md, chart.svg"
    assert done.out.startswith(done.report)
    assert "- Rows: 12" in done.report
    assert "](chart.svg)" in done.report
    assert done.row("2026-01", "## Sum of revenue by month") == ["2026-01", "$47,670.50"]
    assert done.chart.words("label") == ["2026-01", "2026-02", "2026-03", "2026-04"]
    assert sorted(SKILL.rglob("*")) == before, "the skill's own folder stays as shipped"


def test_the_script_is_executable_by_itself() -> None:
    assert SCRIPT.read_text(encoding="utf-8").startswith("#!/usr/bin/env python3\n")
    assert SCRIPT.stat().st_mode & 0o111 == 0o111


@pytest.mark.parametrize(
    ("codec", "label"),
    [
        ("utf-8-sig", "UTF-8 (BOM)"),
        ("utf-16", "UTF-16"),
    ],
)
def test_the_encoding_is_found_and_named(tmp_path: Path, codec: str, label: str) -> None:
    done = report_on(tmp_path, "城市,人数\n北京,3\n上海,5\n".encode(codec))

    assert f"- Encoding: {label}, delimiter `,`" in done.report
    assert done.row("城市", "## Text")[1:] == ["2", "0", "2", "上海 (1), 北京 (1)"]
    assert done.chart.words("label") == ["上海", "北京"]


def test_a_gbk_file_is_read_as_chinese(tmp_path: Path) -> None:
    done = report_on(tmp_path, "产品,数量\n茶叶,12\n瓷器,7\n".encode("gbk"), "--lang", "zh")

    assert "- 编码：GB18030，分隔符 `,`" in done.report
    assert done.row("茶叶") == ["茶叶", "12"]


def test_an_unknown_encoding_and_a_binary_file_are_refused(tmp_path: Path) -> None:
    assert "UTF-8" in refusal(tmp_path, b"name,n\ncaf\xe9,1\n")
    assert "not CSV text" in refusal(tmp_path, b"PK\x03\x04\0\0\0\0")


@pytest.mark.parametrize(("mark", "shown"), [(";", "`;`"), ("\t", "tab"), ("|", "`|`")])
def test_the_delimiter_is_found_out(tmp_path: Path, mark: str, shown: str) -> None:
    lines = [("item", "price, net", "n"), ("a, b", "1,5", "2"), ("c", "2,25", "3")]

    done = report_on(tmp_path, "\n".join(mark.join(line) for line in lines))

    assert f"delimiter {shown}\n- Rows: 2\n- Columns: 3" in done.report
    assert done.row("price, net")[3:5] == ["1.50", "2.25"]
    assert "price, net was read with a decimal comma" in done.report


def test_the_delimiter_can_be_reported_or_declared(tmp_path: Path) -> None:
    outcome = report_on(tmp_path, "k^n\na,b^2\n", "--delimiter", "^")
    assert outcome.row("a,b") == ["a,b", "2"]

    declared = report_on(tmp_path, "sep=~\nk~n\nx~4\n")
    assert declared.row("x") == ["x", "4"]


def test_quoted_line_breaks_and_pipes_stay_in_their_cell(tmp_path: Path) -> None:
    done = report_on(tmp_path, 'k,n\n"two\nlines | here",1\n"say ""hi""",2\n')

    assert "- Rows: 2" in done.report
    assert done.row("two lines \\| here") == ["two lines \\| here", "1"]
    assert done.row('say "hi"') == ['say "hi"', "2"]


def test_ragged_and_blank_rows_are_counted_and_reported(tmp_path: Path) -> None:
    done = report_on(tmp_path, "\nk,n,m\na,1,1\nb\nc,3,3,extra\n,,\n\nd,4,4,\n")

    assert "- Rows: 4" in done.report
    assert "1 row(s) had too few cells" in done.report
    assert "1 row(s) had too many cells" in done.report
    assert "1 blank row(s) were skipped" in done.report
    assert done.row("n")[1:5] == ["3", "1", "1", "4"]


def test_empty_and_unreadable_cells_are_counted_apart(tmp_path: Path) -> None:
    cells = ["", "N/A", "-", "about ten", *map(str, range(1, 21))]
    done = report_on(tmp_path, "k,n\n" + "".join(f"g,{cell}\n" for cell in cells), "--by", "k")

    assert done.row("n")[1:3] == ["20", "3"]
    assert "1 cell(s) of n are not numbers" in done.report
    assert "4 row(s) without a usable n are not in the chart" in done.report
    assert done.row("g", "## Sum of n by k") == ["g", "210"]


def test_a_missing_category_has_its_own_bar(tmp_path: Path) -> None:
    done = report_on(tmp_path, "k,n\na,1\n,2\n")

    assert done.row("k")[1:3] == ["1", "1"]
    assert done.chart.words("label") == ["(empty)", "a"]


def test_repeated_and_empty_column_names_are_made_distinct(tmp_path: Path) -> None:
    done = report_on(tmp_path, "n,n,,n\n1,2,3,4\n5,6,7,8\n")

    names = [done.row(name)[0] for name in ("n", "n (2)", "column 3", "n (3)")]
    assert names == ["n", "n (2)", "column 3", "n (3)"]
    assert "1 column(s) without a name" in done.report
    assert "2 repeated column name(s)" in done.report


def test_amounts_are_read_with_signs_separators_and_brackets(tmp_path: Path) -> None:
    rows = ['a,"¥1,234.50"', 'b,"(¥2,000)"', "c,￥0.000003亿", "d,-¥4", "e,５元", "f,1.2万元"]
    done = report_on(tmp_path, "k,amount\n" + "\n".join(rows))

    figures = done.row("amount")[3:]
    assert figures == ["-¥2,000", "¥12,000", "¥1,922.58", "¥152.50", "¥5,048.49"]
    assert done.row("b", "## Sum") == ["b", "-¥2,000"]


def test_mixed_currencies_are_reported(tmp_path: Path) -> None:
    done = report_on(tmp_path, "k,amount\na,$5\nb,€7\n")

    assert "amount mixes units ($ €)" in done.report
    assert done.row("amount")[4] == "7"


def test_percentages_are_averaged_not_added(tmp_path: Path) -> None:
    done = report_on(tmp_path, "k,rate\na,10%\na,20%\nb,(5%)\n")

    assert "## Mean of rate by k" in done.report
    assert done.row("a", "## Mean") == ["a", "15%"]
    assert done.row("b", "## Mean") == ["b", "-5%"]


def test_dates_of_every_spelling_are_one_time_line(tmp_path: Path) -> None:
    days = ["2026年1月3日", "2026-01-01", "2026/1/2", "2026-01-10T08:30:00Z"]
    done = report_on(tmp_path, "day,n\n" + "".join(f"{day},{n}\n" for n, day in enumerate(days)))

    assert done.row("day")[1:] == ["4", "0", "4", "2026-01-01", "2026-01-10"]
    chart = done.chart
    assert chart.tips("circle")[0] == "2026-01-01: 1"
    assert chart.bars() == []
    points = [number(point, "cx") for point in chart.elements("circle")]
    gaps = [later - earlier for earlier, later in pairwise(points)]
    assert gaps[2] == pytest.approx(7 * gaps[0], rel=0.01), "the axis is true to the calendar"


def test_impossible_dates_and_codes_stay_text(tmp_path: Path) -> None:
    done = report_on(
        tmp_path, "day,code,card\n2026-02-30,007,6222020000000000001\n2026-13-01,010,1\n"
    )

    assert done.row("day", "## Text")[3] == "2"
    assert done.row("code", "## Text")[4] == "007 (1), 010 (1)"
    assert done.row("card", "## Text")[3] == "2"


def test_numeric_figures_are_right(tmp_path: Path) -> None:
    done = report_on(tmp_path, "k,n\n" + "".join(f"x,{n}\n" for n in (2, 4, 4, 4, 5, 5, 7, 9)))

    assert done.row("n") == ["n", "8", "0", "2", "9", "5", "4.50", "2.14"]


def test_text_columns_name_their_most_frequent_values(tmp_path: Path) -> None:
    done = report_on(tmp_path, "k\n" + "b\n" * 3 + "a\n" * 5 + "c\nd\ne\nf\n")

    assert done.row("k")[1:] == ["12", "0", "6", "a (5), b (3), c (1), d (1), e (1)"]
    assert done.chart.tips()[:2] == ["a: 5", "b: 3"]
    assert "## Rows by k" in done.report


def test_an_empty_input_is_refused_in_one_sentence(tmp_path: Path) -> None:
    assert refusal(tmp_path, "") == "The input is empty."
    assert refusal(tmp_path, "\ufeff \n , \n", "--lang", "zh") == "输入是空的。"


def test_a_header_alone_is_reported_without_a_chart(tmp_path: Path) -> None:
    done = report_on(tmp_path, "a,b\n", "--agg", "sum")

    assert "- Rows: 0" in done.report
    assert "no data rows" in done.report
    assert "No data to chart" in done.chart.words()
    assert done.chart.bars() == []


def test_a_file_over_the_cap_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "input.csv").open("wb") as file:
        file.truncate(50 * 1024 * 1024 + 1)

    assert "larger than 50 MB" in refused(start("input.csv", cwd=tmp_path))


def test_a_huge_field_is_read_and_shortened(tmp_path: Path) -> None:
    done = report_on(tmp_path, f'k,n\n"{"长文本 " * 100_000}",1\n"b",2\n')

    assert "- Rows: 2" in done.report
    assert len(done.report) < 2_000
    assert max(map(len, done.chart.words("label"))) <= 34


def test_many_categories_are_folded_into_other(tmp_path: Path) -> None:
    rows = "".join(f"item {n},{n}\n" for n in range(1, 20_001))
    done = report_on(tmp_path, "k,n\n" + rows)

    chart = done.chart
    assert len(chart.bars()) == 13
    assert chart.words("label")[0] == "item 20000"
    assert chart.words("label")[-1] == "Other"
    total = 20_000 * 20_001 // 2 - sum(range(19_989, 20_001))
    assert done.row("Other") == ["Other", f"{total:,}"]
    assert "19988 smallest groups" in done.report


def test_top_sets_how_many_groups_are_shown(tmp_path: Path) -> None:
    table = "k,n\n" + "".join(f"g{n},{n}\n" for n in range(1, 8))

    done = report_on(tmp_path, table, "--top", "2", "--agg", "max")

    assert done.chart.tips() == ["g7: 7", "g6: 6", "Other: 5"]


def test_bars_are_as_long_as_their_figures(tmp_path: Path) -> None:
    done = report_on(tmp_path, "k,n\na,10\nb,40\nc,20\n")

    bars = done.chart.bars()
    assert done.chart.words("label") == ["b", "c", "a"]
    assert done.chart.words("figure") == ["40", "20", "10"]
    widths = [number(bar, "width") for bar in bars]
    assert widths[0] == pytest.approx(2 * widths[1], rel=0.001)
    assert widths[0] == pytest.approx(4 * widths[2], rel=0.001)


def test_negative_bars_stand_on_the_other_side_of_zero(tmp_path: Path) -> None:
    done = report_on(tmp_path, "k,n\nup,30\ndown,-70\n")

    up, down = done.chart.bars()
    assert number(down, "x") + number(down, "width") == pytest.approx(number(up, "x"), abs=0.02)
    assert up.get("fill") != down.get("fill")
    assert done.chart.words("tick") == ["-80", "-60", "-40", "-20", "0", "20", "40"]


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ((9_700_000, 1), ["0", "2M", "4M", "6M", "8M", "10M"]),
        ((0, 0), ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
    ],
)
def test_axis_ticks_are_round(tmp_path: Path, values: tuple[float, ...], ticks: list[str]) -> None:
    done = report_on(tmp_path, "k,n\n" + "".join(f"g{v}{n},{v}\n" for n, v in enumerate(values)))

    assert done.chart.words("tick") == ticks


def test_long_labels_are_shortened_and_still_reported_apart(tmp_path: Path) -> None:
    name = "The very same beginning of a long product name, number "
    done = report_on(tmp_path, f'k,n\n"{name}1",3\n"{name}2",2\n')

    labels = done.chart.words("label")
    assert all("…" in label and len(label) <= 34 for label in labels)
    assert len(set(labels)) == 2
    assert done.chart.tips()[0] == f"{name}1: 3"


def test_markup_in_cells_is_text_and_nothing_else(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    table = f'"a<b>&c",n\n{evil},3\n[x](http://example.invalid),2\nbell\x07,1\n'
    done = report_on(tmp_path, table, "--title", 'T "<&>')

    assert done.chart.words("label") == [evil, "[x](http://example.invalid)", "bell"]
    assert done.chart.root.findtext(f"{SVG}title") == 'T "<&>'
    assert done.chart.elements("script") == []
    assert "<script" not in done.report
    assert "\\[x\\](http" in done.report


def test_all_text_lies_inside_the_picture(tmp_path: Path) -> None:
    rows = "".join(
        f"类别名称很长很长的第{n}项产品说明,{(-1) ** n * n * 1234567}\n" for n in range(30)
    )
    done = report_on(tmp_path, "类别,金额\n" + rows, "--lang", "zh")

    root = done.chart.root
    assert root.get("width") == "800"
    for element in done.chart.elements("text"):
        assert 0 <= number(element, "x") <= 800
        assert 0 <= number(element, "y") <= number(root, "height")
    assert "-80万" not in done.chart.words("tick")
    assert any(words.endswith("万") for words in done.chart.words("tick"))


def test_many_days_are_grouped_by_month(tmp_path: Path) -> None:
    days = [f"2026-{month:02d}-{day:02d}" for month in range(1, 5) for day in range(1, 29)]
    done = report_on(tmp_path, "day,n\n" + "".join(f"{day},1\n" for day in days))

    assert done.row("2026-02") == ["2026-02", "28"]
    assert "grouped by month" in done.report
    assert len(done.chart.elements("circle")) == 4


def test_a_bar_chart_of_dates_keeps_their_order(tmp_path: Path) -> None:
    table = "day,n\n2026-03-02,1\n2026-01-02,9\n2026-02-02,-5\n"

    done = report_on(tmp_path, table, "--chart", "bar", "--top", "2")

    assert done.chart.tips() == ["2026-02-02: -5", "2026-03-02: 1"]
    assert "Only the last 2 of 3 groups" in done.report


def test_a_line_of_names_keeps_the_order_of_the_file(tmp_path: Path) -> None:
    done = report_on(tmp_path, "stage,n\nlead,5\noffer,9\nwon,2\n", "--chart", "line")

    assert done.chart.words("label") == ["lead", "offer", "won"]
    assert len(done.chart.elements("polyline")) == 1
    assert done.chart.bars() == []


def test_a_single_numeric_column_is_shown_in_ranges(tmp_path: Path) -> None:
    done = report_on(tmp_path, "ms\n" + "".join(f"{n}\n" for n in range(100)))

    assert done.chart.words("label")[0] == "0–10"
    assert done.chart.words("figure") == ["10"] * 10


def test_identifiers_and_years_are_not_added_up(tmp_path: Path) -> None:
    rows = "".join(f"{n},{2020 + n % 3},{n * 10}\n" for n in range(1, 7))
    done = report_on(tmp_path, "order id,year,amount\n" + rows)

    assert "## Sum of amount by year" in done.report
    assert done.chart.words("label") == ["2020", "2021", "2022"]


def test_every_aggregate_does_what_it_says(tmp_path: Path) -> None:
    table = b"K,extra,N\na,5,1\na,5,3\na,5,8\nb,5,\n"
    (tmp_path / "input.csv").write_bytes(table)
    figures = {"sum": "12", "mean": "4", "count": "3", "min": "1", "max": "8"}

    def aggregate(agg: str) -> Outcome:
        arguments = ("--by", "k", "--value", "n", "--agg", agg)
        (tmp_path / agg).mkdir()
        return start("../input.csv", *arguments, cwd=tmp_path / agg)

    done = dict(zip(figures, side_by_side(aggregate, figures), strict=True))

    rows = {agg: outcome.row("a", " of N by K")[1] for agg, outcome in done.items()}
    assert rows == figures
    tips = {agg: outcome.chart.tips() for agg, outcome in done.items()}
    assert tips == {agg: [f"a: {figure}"] for agg, figure in figures.items()}


def test_an_unclosed_quote_is_reported(tmp_path: Path) -> None:
    done = report_on(tmp_path, 'k,n\na,1\n"b,2\nc,3\n')

    assert "opened near line 3 is never closed" in done.report


def test_the_report_and_the_chart_speak_chinese(tmp_path: Path) -> None:
    rows = "2026年1月,华东,¥120\n2026年1月,华南,¥80\n2026年2月,华东,¥90\n2026年3月,,¥70\n"
    arguments = ("--lang", "zh", "--by", "地区", "--title", "一季度")
    done = report_on(tmp_path, "月份,地区,销售额\n" + rows, *arguments)

    for words in ("# 一季度", "## 数字列", "## 日期列", "## 文本列", "## 按地区统计销售额合计"):
        assert words in done.report
    assert done.row("华东", "## 按地区") == ["华东", "¥210"]
    assert done.row("地区", "## 文本列")[4] == "华东（2）、华南（1）"
    assert done.chart.words("label") == ["华东", "华南", "（空）"]
    assert done.chart.words()[:2] == ["一季度", "按地区统计销售额合计"]
    assert done.out.splitlines()[-1] == "文件：report.md, chart.svg"


def test_standard_input_is_read_and_the_folder_is_made(tmp_path: Path) -> None:
    done = start("-", "--out", "new/folder", cwd=tmp_path, stdin=b"k,n\na,1\n")

    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[0] == "# standard input"
    names = [str(Path("new/folder") / name) for name in ("report.md", "chart.svg")]
    assert done.out.splitlines()[-1] == f"Files: {', '.join(names)}"
    assert all((tmp_path / name).is_file() for name in names)


def test_a_wrong_request_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "input.csv").write_bytes(b"k,n\na,1\nb,2\n")
    requests = {
        "--by nothing": "There is no column nothing; the columns are k, n.",
        "--value k --agg mean": "Column k is not numeric, so mean is impossible; use --agg count.",
        "--agg median": "Option --agg must be one of sum|mean|count|min|max, not median.",
        "--top 0": "Option --top must be a whole number from 1 to 1000, not 0.",
        "--delimiter ab": "Option --delimiter must be one character (or the word tab), not 'ab'.",
        "--chart": "Option --chart needs a value.",
        "--colour red": "Unknown argument: --colour.",
        "--out input.csv": "input.csv is not a folder.",
        "--by 没有 --lang zh": "没有名为 没有 的列；现有的列是 k、n。",
        "--top x --lang=zh": "选项 --top 必须是 1 到 1000 的整数，不能是 x。",
    }

    def ask(request: str) -> str:
        return refused(start("input.csv", *request.split(), cwd=tmp_path))

    assert dict(zip(requests, side_by_side(ask, requests), strict=True)) == requests


def test_a_wrong_file_is_refused_in_one_sentence(tmp_path: Path) -> None:
    assert "no file or folder gone.csv" in refused(start("gone.csv", cwd=tmp_path))
    assert "is a folder" in refused(start(".", cwd=tmp_path))
    assert "请给出一个 CSV 文件" in refused(start("--lang", "zh", cwd=tmp_path))
