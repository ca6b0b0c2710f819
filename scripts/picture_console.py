"""Take the picture of the console that the README shows, of a real server with its real skills.

What the model says is written down here; what its calls do is done.

python -m scripts.picture_console
"""

import json
import tempfile
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

from tests.console.console_server import (
    BrowserSession,
    ConsoleServer,
    browser_session,
    console_server,
    launch,
)
from tests.server.chat_server import text_reply, tool_reply

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "console.png"
MAX_BYTES = 200_000
SALES = "month,region,units\nMay,north,120\nMay,south,90\nJune,north,140\nJune,south,110\n"
ANSWER = """Units sold **rose by 19 %** from May to June, in both regions:

| month | north | south | all |
|---|--:|--:|--:|
| May | 120 | 90 | 210 |
| June | 140 | 110 | 250 |
"""


def main() -> None:
    """Take it."""
    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        home = Path(place)
        (home / "project").mkdir()
        (home / "project" / "sales.csv").write_text(SALES, encoding="utf-8")
        with console_server(home, permissions={"ask": ["Bash"]}) as at:
            browser = launch(playwright)
            options = {"width": 1180, "height": 720}
            with browser_session(
                browser, at, viewport=options, color_scheme="light", locale="en-GB"
            ) as here:
                _talk(here, at)
                _take(here.page)
            browser.close()
    print(f"{PICTURE.name}: {PICTURE.stat().st_size:,} bytes")


def _talk(here: BrowserSession, at: ConsoleServer) -> None:
    script = json.dumps(
        {
            "skill": "csv-report",
            "script": "scripts/main.py",
            "arguments": ["sales.csv", "--by", "month", "--value", "units"],
            "files": ["sales.csv"],
        }
    )
    shell = ("Bash", '{"command": "git add sales.csv && git commit -m \\"June figures\\""}')
    at.script.play(
        text_reply("The skill **csv-report** can: it sums a file up and draws a chart."),
        tool_reply(("Skill", '{"skill": "csv-report"}')),
        tool_reply(("SkillScript", script)),
        tool_reply(shell, text=ANSWER),
    )
    here.enter("chat")
    _say(here.page, "Which skills can work with tables?")
    expect(here.page.locator(".sessions a")).to_have_count(1)
    here.go("chat/new")
    _say(here.page, "Summarise sales.csv by month and region, then commit it.")
    expect(here.page.locator(".call[data-state=done]")).to_have_count(2)
    expect(here.page.locator(".question [data-answer=once]")).to_be_visible()


def _say(page: Page, text: str) -> None:
    page.fill(".composer textarea", text)
    page.keyboard.press("Control+Enter")


def _take(page: Page) -> None:
    page.evaluate("document.activeElement.blur()")
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=PICTURE)
    if PICTURE.stat().st_size > MAX_BYTES:
        raise SystemExit(f"{PICTURE.name} is larger than {MAX_BYTES:,} bytes")


if __name__ == "__main__":
    main()
