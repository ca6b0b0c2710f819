"""Every sentence the report says, in English and in Chinese, and how figures are written."""

from __future__ import annotations

import math
import re
import unicodedata
from typing import Final, Literal

Lang = Literal["en", "zh"]

TEXT: Final[dict[str, tuple[str, str]]] = {
    # Errors
    "no_input": (
        "Give one CSV file, or - to read standard input.",
        "请给出一个 CSV 文件，或用 - 表示从标准输入读取。",
    ),
    "unknown_argument": ("Unknown argument: {name}.", "无法识别的参数：{name}。"),
    "no_option_value": ("Option {name} needs a value.", "选项 {name} 需要一个值。"),
    "bad_choice": (
        "Option {name} must be one of {choices}, not {given}.",
        "选项 {name} 只能是 {choices} 之一，不能是 {given}。",
    ),
    "bad_top": (
        "Option --top must be a whole number from 1 to 1000, not {given}.",
        "选项 --top 必须是 1 到 1000 的整数，不能是 {given}。",
    ),
    "bad_delimiter": (
        "Option --delimiter must be one character (or the word tab), not {given}.",
        "选项 --delimiter 必须是一个字符（或单词 tab），不能是 {given}。",
    ),
    "bad_usage": (
        "The arguments are not understood: {detail}.",
        "参数无法理解：{detail}。",
    ),
    "not_found": ("There is no file or folder {name}.", "找不到文件或文件夹 {name}。"),
    "is_folder": ("{name} is a folder, not a CSV file.", "{name} 是文件夹，不是 CSV 文件。"),
    "not_folder": ("{name} is not a folder.", "{name} 不是文件夹。"),
    "no_permission": ("No permission to use {name}.", "没有权限使用 {name}。"),
    "os_error": ("Cannot use {name}: {reason}.", "无法使用 {name}：{reason}。"),
    "too_large": (
        "The input is larger than {limit} MB; filter or split it first.",
        "输入超过 {limit} MB，请先筛选或拆分。",
    ),
    "no_memory": (
        "There is not enough memory for this input; filter or split it first.",
        "内存不足以处理此输入，请先筛选或拆分。",
    ),
    "empty": ("The input is empty.", "输入是空的。"),
    "binary": (
        "The input is not CSV text (it has NUL characters); export it as CSV in UTF-8.",
        "输入不是 CSV 文本（含有 NUL 字符），请导出为 UTF-8 编码的 CSV。",
    ),
    "encoding": (
        "The text encoding is not UTF-8, UTF-16 or GB18030; save the file as UTF-8.",
        "文本编码不是 UTF-8、UTF-16 或 GB18030，请另存为 UTF-8。",
    ),
    "bad_csv": ("The CSV cannot be read: {reason}.", "无法读取 CSV：{reason}。"),
    "no_column": (
        "There is no column {name}; the columns are {known}.",
        "没有名为 {name} 的列；现有的列是 {known}。",
    ),
    "not_number": (
        "Column {name} is not numeric, so {agg} is impossible; use --agg count.",
        "列 {name} 不是数字，无法计算 {agg}；请用 --agg count。",
    ),
    "no_number": (
        "There is no numeric column for {agg}; use --agg count.",
        "没有可以计算 {agg} 的数字列；请用 --agg count。",
    ),
    "internal": (
        "The report failed unexpectedly ({detail}).",
        "报告意外失败（{detail}）。",
    ),
    # The report
    "source": ("Source: ", "来源："),
    "stdin": ("standard input", "标准输入"),
    "encoding_is": ("Encoding: ", "编码："),
    "delimiter_is": (", delimiter ", "，分隔符 "),
    "tab": ("tab", "制表符"),
    "rows": ("Rows: ", "行数："),
    "columns": ("Columns: ", "列数："),
    "more_columns": (
        "Only the first {shown} columns are described; {more} more are not.",
        "只描述了前 {shown} 列，另有 {more} 列未描述。",
    ),
    "number_columns": ("Numeric columns", "数字列"),
    "date_columns": ("Date columns", "日期列"),
    "text_columns": ("Text columns", "文本列"),
    "column": ("Column", "列"),
    "count": ("Count", "计数"),
    "missing": ("Missing", "缺失"),
    "min": ("Min", "最小值"),
    "max": ("Max", "最大值"),
    "mean": ("Mean", "平均值"),
    "median": ("Median", "中位数"),
    "stdev": ("Std dev", "标准差"),
    "distinct": ("Distinct", "不同值"),
    "top_values": ("Most frequent", "最常见的值"),
    "first": ("First", "最早"),
    "last": ("Last", "最晚"),
    "value": ("Value", "值"),
    "chart_alt": ("Chart: {title}", "图表：{title}"),
    "notes": ("Notes", "说明"),
    "files": ("Files: {names}", "文件：{names}"),
    "no_rows": ("There are no data rows below the header.", "表头下面没有数据行。"),
    "no_chart": ("No data to chart", "没有可画的数据"),
    "comma_list": (", ", "、"),
    "times": ("{value} ({times})", "{value}（{times}）"),
    # What the chart shows
    "by_sum": ("Sum of {value} by {by}", "按{by}统计{value}合计"),
    "by_mean": ("Mean of {value} by {by}", "按{by}统计{value}平均值"),
    "by_min": ("Minimum of {value} by {by}", "按{by}统计{value}最小值"),
    "by_max": ("Maximum of {value} by {by}", "按{by}统计{value}最大值"),
    "by_count": ("Count of {value} by {by}", "按{by}统计{value}个数"),
    "by_rows": ("Rows by {by}", "按{by}统计行数"),
    "other": ("Other", "其他"),
    "blank": ("(empty)", "（空）"),
    "unnamed": ("column {number}", "列{number}"),
    # Notes
    "note_short": (
        "{n} row(s) had too few cells; the missing cells count as empty.",
        "{n} 行的单元格过少，缺少的按空值处理。",
    ),
    "note_long": (
        "{n} row(s) had too many cells; the extra cells were ignored.",
        "{n} 行的单元格过多，多出的已忽略。",
    ),
    "note_blank": ("{n} blank row(s) were skipped.", "跳过了 {n} 个空行。"),
    "note_unnamed": ("{n} column(s) without a name were numbered.", "{n} 个无名列已编号。"),
    "note_repeated": (
        "{n} repeated column name(s) were numbered.",
        "{n} 个重复的列名已编号。",
    ),
    "note_unclosed": (
        "A quoted field opened near line {line} is never closed; rows after it may be merged.",
        "第 {line} 行附近的引号没有闭合，其后的行可能被合并。",
    ),
    "note_unreadable_number": (
        "{n} cell(s) of {name} are not numbers and were left out.",
        "{name} 有 {n} 个单元格不是数字，未计入。",
    ),
    "note_unreadable_date": (
        "{n} cell(s) of {name} are not dates and were left out.",
        "{name} 有 {n} 个单元格不是日期，未计入。",
    ),
    "note_units": (
        "{name} mixes units ({units}); its figures were combined as plain numbers.",
        "{name} 混用了单位（{units}），数值按普通数字合并。",
    ),
    "note_comma": (
        "{name} was read with a decimal comma (1,5 is one and a half).",
        "{name} 按逗号小数读取（1,5 即一点五）。",
    ),
    "note_no_key": (
        "{n} row(s) without a usable {name} are not in the chart.",
        "{n} 行没有可用的{name}，未画入图表。",
    ),
    "note_no_value": (
        "{n} row(s) without a usable {name} are not in the chart.",
        "{n} 行没有可用的{name}，未画入图表。",
    ),
    "note_folded": (
        'The {n} smallest groups are shown together as "Other".',
        "最小的 {n} 组合并为“其他”。",
    ),
    "note_last": (
        "Only the last {shown} of {n} groups are shown.",
        "{n} 组中只显示最后 {shown} 组。",
    ),
    "note_month": ("Dates are grouped by month.", "日期按月合并。"),
    "note_year": ("Dates are grouped by year.", "日期按年合并。"),
    "note_ranges": (
        "{name} is grouped in ranges; each includes its lower end.",
        "{name} 按区间分组，每个区间含下限。",
    ),
}

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]+")
_SCALES: Final[dict[Lang, tuple[tuple[float, float, str], ...]]] = {
    "en": ((1e12, 1e12, "T"), (1e9, 1e9, "B"), (1e6, 1e6, "M")),
    "zh": ((1e12, 1e12, "万亿"), (1e8, 1e8, "亿"), (1e5, 1e4, "万")),
}


class ReportError(Exception):
    """A problem the user can mend: the key of a sentence and what goes into it."""

    def __init__(self, key: str, **values: object) -> None:
        """Keep the key and the values until the language is known."""
        super().__init__(key)
        self.key = key
        self.values = values


def say(lang: Lang, key: str, **values: object) -> str:
    """Return the sentence ``key`` in ``lang`` with ``values`` filled in."""
    return TEXT[key][0 if lang == "en" else 1].format(**values)


def clean(text: str) -> str:
    """Put ``text`` on one line, without control characters."""
    return _CONTROL.sub(" ", text).strip()


def width(text: str) -> int:
    """Return how many Latin letters wide ``text`` is; a Chinese character counts two."""
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def shorten(text: str, limit: int, *, middle: bool = False) -> str:
    """Return ``text`` on one line, at most ``limit`` letters wide, cut at its end or middle."""
    if len(text) > 8 * limit:
        text = text[: 4 * limit] + " " + text[-4 * limit :]
    text = clean(text)
    if width(text) <= limit:
        return text
    tail = (limit - 1) * 2 // 5 if middle else 0
    end = _fitting(text[::-1], tail)[::-1].lstrip()
    return _fitting(text, limit - 1 - tail).rstrip() + "…" + end


def _fitting(text: str, limit: int) -> str:
    """Return as much of the beginning of ``text`` as is at most ``limit`` letters wide."""
    used = 0
    for place, char in enumerate(text):
        used += width(char)
        if used > limit:
            return text[:place]
    return text


def markdown(text: str, limit: int = 60) -> str:
    """Return ``text`` so that it is plain text in a Markdown line or table cell."""
    text = re.sub(r"([\\`*\[\]|])", r"\\\1", shorten(text, limit))
    return text.replace("&", "&amp;").replace("<", "&lt;")


def figure(value: float, unit: str = "") -> str:
    """Write ``value`` with thousands separators, sensible decimals and its unit."""
    size = abs(value)
    if size >= 1e15 or 0 < size < 1e-4:
        text = f"{size:.4g}"
    elif math.isclose(size, round(size), rel_tol=1e-12, abs_tol=1e-12):
        text = f"{round(size):,}"
    else:
        text = f"{size:,.2f}" if size >= 1 else f"{size:.4g}"
    return _signed(text, unit, negative=value < 0)


def short_figure(value: float, lang: Lang, unit: str = "") -> str:
    """Write ``value`` for a chart: millions as M or 万, few decimals, no idle zeros."""
    size = abs(value)
    if not 1 <= size < 1e15:
        return figure(value, unit)
    scale, name = next(((s, n) for least, s, n in _SCALES[lang] if size >= least), (1.0, ""))
    text = f"{size / scale:,.0f}." if size / scale >= 1e4 else f"{size / scale:,.2f}"
    return _signed(text.rstrip("0").rstrip(".") + name, unit, negative=value < 0)


def tick_figures(ticks: list[float], lang: Lang, unit: str = "") -> list[str]:
    """Write the ticks of one axis, all with the same scale and the same decimals."""
    largest = max(abs(tick) for tick in ticks)
    step = ticks[1] - ticks[0]
    if largest >= 1e16 or step < 1e-6:
        return [_signed(f"{abs(tick):.3g}", unit, negative=tick < 0) for tick in ticks]
    scale, name = next(((s, n) for least, s, n in _SCALES[lang] if largest >= least), (1.0, ""))
    decimals = next(d for d in range(7) if _is_whole(step / scale * 10**d) or d == 6)
    texts: list[str] = []
    for tick in ticks:
        body = f"{abs(tick) / scale:,.{decimals}f}"
        zero = float(body.replace(",", "")) == 0
        texts.append(_signed("0" if zero else body + name, unit, negative=tick < 0 and not zero))
    return texts


def _is_whole(value: float) -> bool:
    return value > 0.5 and abs(value - round(value)) < 1e-6 * value


def _signed(text: str, unit: str, *, negative: bool) -> str:
    text = f"{text}{unit}" if unit == "%" else f"{unit}{text}"
    return f"-{text}" if negative else text
