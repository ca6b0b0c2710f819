"""One browser for all tests here, and one house for all tests of a module."""

from collections.abc import Generator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.console.console_server import House, furnish, house, launch


@pytest.fixture(scope="package")
def browser() -> Generator[Browser]:
    with sync_playwright() as playwright:
        opened = launch(playwright)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Generator[House]:
    home: Path = tmp_path_factory.mktemp("console")
    furnish(home)
    with house(home, permissions={"ask": ["Bash"]}, index={"tags": False}) as running:
        yield running
