"""Rule files: every rule loads, matches its examples, and is described in both languages."""

import pytest

from apexbridge.scanner.pattern_matcher import (
    Pattern,
    SkillContext,
    compiled_patterns,
    match_patterns,
)
from apexbridge.scanner.report import Finding
from apexbridge.scanner.rules import (
    Rule,
    RuleExample,
    RuleFileError,
    compile_regex,
    load_rules,
    parse_rules,
)
from apexbridge.scanner.scan import scan_skill
from apexbridge.scanner.scan_input import read_text_file
from tests.scanner.examples import CODED_EXAMPLES, build, shell, skill

RULES = load_rules()
MATCHES = [(rule, example) for rule in RULES.values() for example in rule.matches]
NON_MATCHES = [(rule, example) for rule in RULES.values() for example in rule.non_matches]
REVIEWED_COMMANDS = [
    example
    for rule, example in MATCHES
    if example.shell and example.long and (example.level or rule.level) == "review"
]
ENTRY = """
[[rules]]
id = "AB999"
slug = "test-rule"
level = "warn"
owasp = ["LLM01"]
title.en = "Test"
title.zh = "测试"
advice.en = "Test it."
advice.zh = "请测试。"
matches = [{ text = "boom" }]
non_matches = [{ text = "calm" }]

[[rules.patterns]]
find = ['boom']
"""


def found(rule: str, findings: tuple[Finding, ...]) -> list[Finding]:
    return [finding for finding in findings if finding.rule == rule]


def name_of(value: Rule | RuleExample) -> str:
    return value.id if isinstance(value, Rule) else ""


@pytest.mark.parametrize(("rule", "example"), MATCHES, ids=name_of)
def test_a_matching_example_is_found_at_its_level(rule: Rule, example: RuleExample) -> None:
    findings = found(rule.id, scan_skill(build(example)).findings)
    assert findings
    assert findings[0].level == (example.level or rule.level)
    assert all(len(finding.excerpt) <= 160 for finding in findings)


@pytest.mark.parametrize(("rule", "example"), NON_MATCHES, ids=name_of)
def test_a_non_matching_example_has_no_finding(rule: Rule, example: RuleExample) -> None:
    assert not found(rule.id, scan_skill(build(example)).findings)


@pytest.mark.parametrize("rule", CODED_EXAMPLES)
def test_a_coded_example_is_found_and_its_near_miss_is_not(rule: str) -> None:
    example = CODED_EXAMPLES[rule]
    findings = found(rule, scan_skill(example.bad).findings)
    assert example.level in {finding.level for finding in findings}, findings
    assert all(len(finding.excerpt) <= 160 for finding in findings)
    if example.details:
        assert findings[0].details == example.details
    assert not found(rule, scan_skill(example.good).findings)


@pytest.mark.parametrize(
    "example",
    REVIEWED_COMMANDS,
    ids=lambda example: example.shell[:30],
)
def test_a_command_to_review_is_more_severe_in_a_short_skill(example: RuleExample) -> None:
    findings = found("AB069", scan_skill(shell(example.shell)).findings)
    assert [finding.level for finding in findings] == ["warn"]


def test_every_rule_has_examples() -> None:
    for rule in RULES.values():
        assert rule.id in CODED_EXAMPLES or (rule.matches and rule.non_matches), rule.id


@pytest.mark.parametrize("pattern", compiled_patterns(), ids=lambda pattern: pattern.rule)
def test_every_pattern_is_matched_by_an_example_of_its_rule(pattern: Pattern) -> None:
    targets = [build(example) for example in RULES[pattern.rule].matches]
    if pattern.rule in CODED_EXAMPLES:
        targets.append(CODED_EXAMPLES[pattern.rule].bad)
    files = [read_text_file(file, file.data) for target in targets for file in target.files]
    assert any(list(match_patterns(file, (pattern,), SkillContext())) for file in files if file)


def test_titles_are_unique_in_each_language() -> None:
    assert len({rule.title.en for rule in RULES.values()}) == len(RULES)
    assert len({rule.title.zh for rule in RULES.values()}) == len(RULES)


def test_ids_are_in_order_and_every_pattern_compiles() -> None:
    assert list(RULES) == sorted(RULES)
    assert len(compiled_patterns()) == sum(len(rule.patterns) for rule in RULES.values())


def test_a_new_pattern_rule_is_one_entry_in_one_file() -> None:
    rule = parse_rules({"test.toml": ENTRY})["AB999"]
    assert rule.text("zh") == ("测试", "请测试。")
    assert compile_regex(rule.patterns[0].find).search("BOOM")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('level = "warn"', 'level = "grave"', "rules.0.level"),
        ('slug = "test-rule"', 'slug = "Test Rule"', "rules.0.slug"),
        ('owasp = ["LLM01"]', 'owasp = ["LLM11"]', "rules.0.owasp.0"),
        ('advice.zh = "请测试。"\n', "", "rules.0.advice.zh"),
        ('title.zh = "测试"', 'title.zh = "test"', "rules.0.title.zh"),
        ("find = ['boom']", "find = []", "rules.0.patterns.0.find"),
        ("find = ['boom']", "finds = ['boom']", "rules.0.patterns.0.finds"),
        ("find = ['boom']", "find = 'boom", "Expected"),
        ('non_matches = [{ text = "calm" }]', "", "AB999 needs matches and non_matches"),
    ],
)
def test_an_invalid_entry_is_refused_with_its_file_and_field(
    old: str, new: str, message: str
) -> None:
    assert old in ENTRY
    with pytest.raises(RuleFileError, match=r"^test\.toml: ") as caught:
        parse_rules({"test.toml": ENTRY.replace(old, new)})
    assert message in str(caught.value)


def test_two_rules_with_one_id_are_refused() -> None:
    with pytest.raises(RuleFileError, match=r"b\.toml: duplicate id or slug: AB999"):
        parse_rules({"a.toml": ENTRY, "b.toml": ENTRY})


@pytest.mark.parametrize(
    ("regex", "message"),
    [("(open", "invalid regular expression"), ("{{nothing}}", "unknown fragment {{nothing}}")],
)
def test_an_invalid_expression_is_named(regex: str, message: str) -> None:
    with pytest.raises(RuleFileError) as caught:
        compile_regex([regex])
    assert message in str(caught.value)


def test_a_plain_skill_has_no_findings() -> None:
    report = scan_skill(
        skill(
            "Read the table. Draw a chart with `scripts/draw.py`.\n",
            scripts__draw_DOT_py="print(1)\n",
        )
    )
    assert (report.findings, report.worst(), report.partial) == ((), None, False)
