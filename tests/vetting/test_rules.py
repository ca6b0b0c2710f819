"""Every rule has an example that breaks it and one that does not, and words in both languages."""

import re

import pytest

from apexbridge.vetting import words
from apexbridge.vetting.examine import examine
from apexbridge.vetting.report import Finding
from apexbridge.vetting.rulebook import RULES
from tests.vetting.examples import RULE_BREAKERS, skill


def found(rule: str, findings: tuple[Finding, ...]) -> list[Finding]:
    return [finding for finding in findings if finding.rule == rule]


def test_every_rule_has_an_example_and_every_example_a_rule() -> None:
    assert list(RULE_BREAKERS) == list(RULES)


@pytest.mark.parametrize("rule", RULES)
def test_a_skill_that_breaks_the_rule_is_told_so(rule: str) -> None:
    example = RULE_BREAKERS[rule]
    findings = found(rule, examine(example.bad).findings)
    assert example.level in {finding.level for finding in findings}, findings
    assert all(len(finding.excerpt) <= 160 for finding in findings)
    if example.details:
        assert findings[0].details == example.details


@pytest.mark.parametrize("rule", RULES)
def test_a_skill_that_comes_near_the_rule_is_left_alone(rule: str) -> None:
    assert not found(rule, examine(RULE_BREAKERS[rule].good).findings)


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_has_words_in_both_languages_and_its_risks(rule: str) -> None:
    english, chinese = words.say(rule), words.say(rule, "zh")
    assert all(english)
    assert all(chinese)
    assert english.title.isascii()
    assert re.search(r"[\u4e00-\u9fff]", chinese.title)
    assert re.search(r"[\u4e00-\u9fff]", chinese.advice)
    assert RULES[rule].owasp
    assert all(re.fullmatch(r"(?:LLM|ASI)(?:0\d|10)", risk) for risk in RULES[rule].owasp)


def test_the_tables_of_words_hold_the_same_rules_in_the_same_order() -> None:
    assert list(words.TABLES["en"]) == list(words.TABLES["zh"]) == list(RULES)


def test_titles_are_distinct_so_that_a_list_can_be_read() -> None:
    for table in words.TABLES.values():
        assert len({row.title for row in table.values()}) == len(table)


def test_a_plain_skill_has_no_findings() -> None:
    report = examine(
        skill(
            "Read the table. Draw a chart with `scripts/draw.py`.\n",
            scripts__draw_DOT_py="print(1)\n",
        )
    )
    assert (report.findings, report.worst(), report.partial) == ((), None, False)
