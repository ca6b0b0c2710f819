"""One browser for all console tests, and one server per module."""

from collections.abc import Generator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.console.console_server import ConsoleServer, add_sample_skills, console_server, launch


@pytest.fixture(scope="package")
def browser() -> Generator[Browser]:
    with sync_playwright() as playwright:
        opened = launch(playwright)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Generator[ConsoleServer]:
    home: Path = tmp_path_factory.mktemp("console")
    add_sample_skills(home)
    with console_server(home, permissions={"ask": ["Bash"]}, index={"tags": False}) as running:
        yield running
