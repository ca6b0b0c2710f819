"""Documentation is current: generated pages, links, settings, commands."""

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
import typer

from apexbridge import events, locales
from apexbridge.cli.main import app
from apexbridge.settings import flatten, load
from scripts.write_reference import PAGES, PLACE, commands

ROOT = Path(__file__).parents[2]


def _page(name: str) -> str:
    return (PLACE / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PAGES)
def test_a_reference_page_is_current(name: str) -> None:
    write: Callable[[], str] = PAGES[name]
    assert _page(name) == write(), "run `make docs`"


def test_every_command_and_flag_is_documented() -> None:
    page = _page("cli.md")
    for name, sub in commands(typer.main.get_command(app)):
        assert f"## `apexbridge {name}`" in page
        assert sub.help, name
        for option in sub.params:
            assert f"`{option.opts[0]}`" in page or option.name == "help"


def test_every_setting_is_documented() -> None:
    page = _page("settings.md")
    for key in flatten(load(environment={}).settings):
        assert f"`{key}`" in page
    assert "None" not in page


def test_every_code_is_documented() -> None:
    page = _page("errors.md")
    for code in locales.error_texts("en"):
        assert f"| `{code}` |" in page


def test_every_event_is_documented() -> None:
    kinds: tuple[Any, ...] = get_args(events.Event)
    assert len(kinds) == 16
    for kind in kinds:
        assert f"## `{kind.__name__}`" in _page("events.md")


def test_every_code_that_is_used_has_words() -> None:
    used = set[str]()
    for path in (ROOT / "src").rglob("*.py"):
        if "bundled" not in path.parts:
            text = path.read_text(encoding="utf-8")
            used |= set(re.findall(r'(?:code=|_warning\(\s*|_problem\(\s*)"([a-z0-9_]+)"', text))
    assert len(used) > 40
    assert used <= set(locales.error_texts("en"))


def test_every_library_has_its_keeper_on_the_architecture_page() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    for requirement in project["dependencies"]:
        name = re.split(r"[<>=\[]", requirement)[0]
        assert f"| `{name}` |" in page, name


def test_both_readmes_have_the_same_shape() -> None:
    english, chinese = (
        (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "README.zh-CN.md")
    )
    for pattern in (r"^#+ ", r"^\|", r"^```", r"^- "):
        counts = [len(re.findall(pattern, text, re.MULTILINE)) for text in (english, chinese)]
        assert counts[0] == counts[1], pattern
    blocks = [
        re.findall(r"^```(?:sh|python)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        for text in (english, chinese)
    ]
    assert blocks[0] == blocks[1]
    for text in (english, chinese):
        assert re.search(r"^make run", "\n".join(text.splitlines()[:60]), re.MULTILINE)


def test_the_readme_is_short_and_shows_code_early() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = text.splitlines()
    assert 80 <= len(lines) <= 200
    assert len(text.split()) <= 900
    assert any(line.startswith("```") for line in lines[:40])


PAGES_OF_PEOPLE = [
    *ROOT.glob("*.md"),
    *(path for path in (ROOT / "docs").rglob("*.md") if path.parent != PLACE),
]


@pytest.mark.parametrize("path", PAGES_OF_PEOPLE, ids=lambda path: path.name)
def test_every_link_leads_somewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    targets = [t.split("#")[0] for t in re.findall(r"\]\(([^)\s]+)\)", text)]
    for target in targets:
        if target and "://" not in target:
            assert (path.parent / target).exists(), target


def test_the_changelog_knows_this_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"## [{project['version']}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
