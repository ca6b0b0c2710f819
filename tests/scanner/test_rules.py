"""Every rule has an example that breaks it and one that does not, and words in both languages."""

import re

import pytest

from apexbridge.scanner import rule_texts
from apexbridge.scanner.report import Finding
from apexbridge.scanner.rules import RULES
from apexbridge.scanner.scan import scan_skill
from tests.scanner.examples import RULE_BREAKERS, skill


def found(rule: str, findings: tuple[Finding, ...]) -> list[Finding]:
    return [finding for finding in findings if finding.rule == rule]


def test_every_rule_has_an_example_and_every_example_a_rule() -> None:
    assert list(RULE_BREAKERS) == list(RULES)


@pytest.mark.parametrize("rule", RULES)
def test_a_skill_that_breaks_the_rule_is_told_so(rule: str) -> None:
    example = RULE_BREAKERS[rule]
    findings = found(rule, scan_skill(example.bad).findings)
    assert example.level in {finding.level for finding in findings}, findings
    assert all(len(finding.excerpt) <= 160 for finding in findings)
    if example.details:
        assert findings[0].details == example.details


@pytest.mark.parametrize("rule", RULES)
def test_a_skill_that_comes_near_the_rule_is_left_alone(rule: str) -> None:
    assert not found(rule, scan_skill(RULE_BREAKERS[rule].good).findings)


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_has_words_in_both_languages_and_its_risks(rule: str) -> None:
    english, chinese = rule_texts.rule_text(rule), rule_texts.rule_text(rule, "zh")
    assert all(english)
    assert all(chinese)
    assert english.title.isascii()
    assert re.search(r"[\u4e00-\u9fff]", chinese.title)
    assert re.search(r"[\u4e00-\u9fff]", chinese.advice)
    assert RULES[rule].owasp
    assert all(re.fullmatch(r"(?:LLM|ASI)(?:0\d|10)", risk) for risk in RULES[rule].owasp)


def test_the_tables_of_words_hold_the_same_rules_in_the_same_order() -> None:
    assert list(rule_texts.RULE_TEXTS["en"]) == list(rule_texts.RULE_TEXTS["zh"]) == list(RULES)


def test_titles_are_distinct_so_that_a_list_can_be_read() -> None:
    for table in rule_texts.RULE_TEXTS.values():
        assert len({row.title for row in table.values()}) == len(table)


def test_a_plain_skill_has_no_findings() -> None:
    report = scan_skill(
        skill(
            "Read the table. Draw a chart with `scripts/draw.py`.\n",
            scripts__draw_DOT_py="print(1)\n",
        )
    )
    assert (report.findings, report.worst(), report.partial) == ((), None, False)
