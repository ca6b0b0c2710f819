"""Typosquatting: packages, hosts and skill names that imitate well-known ones."""

import pytest

from apexbridge.scanner.rules import RiskLevel
from apexbridge.scanner.scan import scan_skill
from apexbridge.scanner.scan_input import ScanTarget
from apexbridge.scanner.typosquatting import edit_distance, impersonates_brand, misspelled_words
from tests.scanner.examples import LONG_BODY, described, level_of, shell, skill


def severe_rules(target: ScanTarget) -> set[str]:
    return {f.rule for f in scan_skill(target).findings if f.level in {"warn", "block"}}


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("pip install reqeusts", "warn"),
        ("npm install --save lodahs", "warn"),
        ("npx -y expresss-cli", None),
        ("pip install requests numpy", None),
        ("pip install requests==2.0 django5", None),
        ("pip install git+https://github.com/tables/tables", None),
    ],
)
def test_packages_one_edit_away_from_popular_ones_are_found(
    command: str, expected: RiskLevel | None
) -> None:
    assert level_of("AB013", shell(command)) == expected


def test_dependency_files_are_checked() -> None:
    assert level_of("AB013", skill(requirements_DOT_txt="numpy==1\npandsa==2\n")) == "warn"
    package = '{"dependencies": {\n  "axios": "^1.0.0",\n  "exppress": "^4.0.0"\n}}'
    assert level_of("AB013", skill(package_DOT_json=package)) == "warn"


@pytest.mark.parametrize(
    ("host", "borrows"),
    [
        ("github.com", False),
        ("docs.github.com", False),
        ("githb.com", True),
        ("paypal-secure.net", True),
        ("github-com.tables.dev", True),
        ("github-com.tables.invalid", False),
        ("tables.com", False),
        ("www.google-analytics.com", False),
    ],
)
def test_hosts_that_impersonate_a_brand_are_distinguished_from_it(host: str, borrows: bool) -> None:
    assert impersonates_brand(host) == borrows
    found = level_of("AB058", skill(f"{LONG_BODY}See https://{host}/a and https://{host}/b.\n"))
    assert (found == "warn") == borrows


@pytest.mark.parametrize(
    ("one", "other", "count"),
    [("a", "a", 0), ("ab", "ba", 1), ("ab", "abc", 1), ("abc", "abd", 1), ("abcd", "badc", 2)],
)
def test_edit_distance_is_capped_at_two(one: str, other: str, count: int) -> None:
    assert edit_distance(one, other) == edit_distance(other, one) == count


def test_a_misspelled_popular_word_in_a_skill_name_is_found() -> None:
    assert "AB062" in severe_rules(described("Draws.", name="githbu-charts"))
    assert not severe_rules(described("Draws.", name="github-charts"))


@pytest.mark.parametrize("name", ["dashboards", "python3-charts", "manage", "openapi", "charts"])
def test_plurals_versions_and_real_words_are_not_misspelled(name: str) -> None:
    assert not list(misspelled_words(name))
