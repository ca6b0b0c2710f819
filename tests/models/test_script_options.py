"""Script options in requests."""

import pytest

from apexbridge.models.embedded import script_options

DOCUMENTED = r"""
| `--by COLUMN` | group by it |
| `--top N` | the largest |
| `--chart bar\|line` | its shape |
| `--lang en\|zh` | the language |
| `--title TEXT` | the title |
`--quiet` takes nothing
"""


@pytest.mark.parametrize(
    ("request_text", "options"),
    [
        ("Summarise sales.csv by region", ("--by", "region")),
        ("sales.csv by 'customer type'", ("--by", "customer type")),
        ("totals by the shop, top 5", ("--by", "shop", "--top", "5")),
        ("a line chart of sales.csv", ("--chart", "line")),
        ("sales.csv, chart: bar", ("--chart", "bar")),
        ("按 region 汇总 sales.csv", ("--by", "region", "--lang", "zh")),
        ("把 sales.csv 按地区统计,前3名", ("--by", "地区", "--top", "3", "--lang", "zh")),
        ("sales.csv 按“产品 类别”分组", ("--by", "产品 类别", "--lang", "zh")),
    ],
)
def test_an_option_that_the_request_names_is_passed(
    request_text: str, options: tuple[str, ...]
) -> None:
    assert script_options(request_text, DOCUMENTED, ["sales.csv"]) == options


@pytest.mark.parametrize(
    "request_text",
    [
        "Summarise sales.csv",
        "by the",
        "the last line of the file",
        "top of the list",
        "by sales.csv",
        "stand by, quiet please",
        "",
    ],
)
def test_words_that_resemble_an_option_are_no_option(request_text: str) -> None:
    assert script_options(request_text, DOCUMENTED, ["sales.csv"]) == ()


def test_where_it_must_be_sure_only_listed_values_are_passed() -> None:
    asked = "把 sales.csv 按地区统计,前3名"
    assert script_options(asked, DOCUMENTED, is_sure=True) == ("--lang", "zh")


def test_a_unit_of_time_is_no_column() -> None:
    assert script_options("sales.csv 按月合计", DOCUMENTED, is_sure=False) == ("--lang", "zh")


def test_a_skill_that_documents_no_option_gets_none() -> None:
    assert script_options("by region, top 5", "# Do\nRun it with `--verbose`.") == ()


def test_a_very_long_query_is_truncated() -> None:
    assert script_options("x" * 100_000 + " by region", DOCUMENTED) == ()
