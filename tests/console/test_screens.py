"""Every screen in both languages and themes: labelled and readable; screenshots on request."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.console import stub_responses
from tests.console.console_server import BrowserSession, ConsoleServer, browser_session
from tests.server.chat_server import text_reply, tool_reply

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.unmeasured]
PICTURES = Path(__file__).parents[2] / "build" / "screens"
_Seen = Callable[[BrowserSession, str], None]
_CHECKS = Path(__file__).with_name("checks.js")
_THEMES: tuple[Literal["light"], Literal["dark"]] = ("light", "dark")
_LOCALES = {"en": "en-GB", "zh": "zh-CN"}
_TITLES = {
    "en": ("Chat", "Skills", "Playground", "Runs", "Traces", "Approvals", "Doctor"),
    "zh": ("对话", "技能", "检索试验", "运行", "轨迹", "审批", "诊断"),
}
_ANSWER = """The **three beds** that need water first:

| bed | soil | litres |
|---|---|--:|
| peas | dry | 12 |
| beans | dry | 9 |

1. Water in the *morning*.
2. Then run `garden --check`.
"""


@pytest.fixture(scope="module")
def lived_in(at: ConsoleServer, browser: Browser) -> ConsoleServer:
    """A server in which something was said, run and asked."""
    with browser_session(browser, at) as here:
        here.enter("chat")
        for _ in range(2):
            run = ("SkillScript", '{"skill": "garden", "script": "scripts/main.py"}')
            at.script.play(
                tool_reply(("Skill", '{"skill": "garden"}')), tool_reply(run), text_reply(_ANSWER)
            )
            here.page.fill(".composer textarea", "Which beds need water today?")
            here.page.keyboard.press("Control+Enter")
            expect(here.page.locator(".turn").last).to_contain_text("litres")
            expect(here.page.locator(".turn-foot").last).to_contain_text("rounds")
        ran = here.page.request.post("/v1/skills/garden/run", data={"arguments": ["--check"]})
        assert ran.ok, ran.text()
    return at


def _settled(page: Page) -> None:
    expect(page.locator("main [aria-busy], main .loading")).to_have_count(0)


def _judged(page: Page) -> None:
    """What a reader of the page's structure would complain of."""
    page.evaluate(_CHECKS.read_text(encoding="utf-8"))
    complaints: list[str] = page.evaluate("complaints()")
    assert complaints == []


def _first(here: BrowserSession, screen: str) -> None:
    """Open a screen, and the first thing in its list."""
    here.go(screen)
    here.page.locator(".split-list .list a").first.click()
    _settled(here.page)


@pytest.fixture(scope="module")
def seen(request: pytest.FixtureRequest) -> _Seen:
    """Look at a screen by day and by night; a picture takes longer than all checks of it."""
    has_pictures = bool(request.config.getoption("--pictures"))

    def look(here: BrowserSession, name: str) -> None:
        _settled(here.page)
        for theme in _THEMES:
            here.page.emulate_media(color_scheme=theme)
            _judged(here.page)
            if has_pictures:
                here.page.screenshot(path=PICTURES / f"{name}-{theme}.png")

    return look


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_screen_can_be_read(
    browser: Browser, lived_in: ConsoleServer, seen: _Seen, language: str
) -> None:
    with browser_session(browser, lived_in, locale=_LOCALES[language]) as here:
        page, name = here.page, language
        page.goto(lived_in.url)
        expect(page.locator("#token")).to_be_visible()
        seen(here, f"signin-{name}")
        here.enter()
        expect(page.locator("html")).to_have_attribute(
            "lang", {"en": "en", "zh": "zh-CN"}[language]
        )
        expect(page.locator(".nav a")).to_have_text(
            [re.compile(f"^{title}") for title in _TITLES[language]]
        )
        here.go("chat/new")
        seen(here, f"chat-empty-{name}")
        page.locator(".sessions a").first.click()
        expect(page.locator(".turn .prose table").first).to_be_visible()
        seen(here, f"chat-{name}")
        here.go("skills/garden")
        expect(page.locator(".skill .prose")).to_be_visible()
        seen(here, f"skills-{name}")
        here.go("playground?query=water%20the%20garden%20beds")
        expect(page.locator(".hit").first).to_be_visible()
        seen(here, f"playground-{name}")
        _first(here, "runs")
        expect(page.locator(".run pre").first).to_contain_text("dry: peas")
        seen(here, f"runs-{name}")
        _first(here, "traces")
        expect(page.locator(".timeline .row").first).to_be_visible()
        seen(here, f"traces-{name}")
        here.go("approvals")
        seen(here, f"approvals-empty-{name}")
        here.go("doctor")
        expect(page.locator(".checks li").first).to_be_visible()
        seen(here, f"doctor-{name}")
        page.keyboard.press("Tab")
        page.locator(".doctor .tab").nth(1).click()
        expect(page.locator(".doctor td code").first).to_be_visible()
        seen(here, f"settings-{name}")
        page.locator(".doctor .tab").nth(2).click()
        seen(here, f"audit-{name}")


def _told(route: Route, replies: stub_responses.Replies) -> None:
    path = "/" + route.request.url.split("/", 3)[3].partition("?")[0]
    if path in replies:
        route.fulfill(json=replies[path])
    else:
        route.fulfill(
            status=404,
            json=stub_responses.error_response(f"No such route: {path}", "Look elsewhere."),
        )


def test_a_small_screen_shows_one_thing_at_a_time(
    browser: Browser, at: ConsoleServer, seen: _Seen
) -> None:
    """With a server in which more has happened than a test would wait for."""
    small = {"width": 390, "height": 760}
    with browser_session(browser, at, viewport=small, locale="en-GB") as here:
        page = here.page
        replies = stub_responses.default_responses()
        page.route(
            "**/v1/events", lambda route: route.fulfill(body="", content_type="text/event-stream")
        )
        page.route(re.compile("/v1/(?!events)"), lambda route: _told(route, replies))
        here.go("chat")
        expect(page.locator(".nav .count")).to_contain_text("1")
        seen(here, "small-chat")
        here.go("skills")
        expect(page.locator(".split-list")).to_be_visible()
        expect(page.locator(".split-detail")).to_be_hidden()
        seen(here, "small-skills")
        here.go("skills/gone")
        expect(page.locator(".problem")).to_contain_text("Look elsewhere.")
        seen(here, "small-problem")
        page.click(".back")
        expect(page.locator(".split-list")).to_be_visible()
        here.go("traces/4be19c22d0a1")
        expect(page.locator(".timeline .row")).to_have_count(10)
        expect(page.locator(".span.failed")).to_have_count(1)
        seen(here, "small-traces")
        here.go("approvals")
        expect(page.locator(".question")).to_contain_text("git push --force")
        seen(here, "small-approvals")
        replies["/v1/sessions"] = stub_responses.list_response()
        here.go("chat/new")
        expect(page.locator(".thread .empty")).to_be_visible()


def test_language_and_theme_are_chosen_and_remembered(browser: Browser, at: ConsoleServer) -> None:
    with browser_session(browser, at, locale="fr-FR", color_scheme="light") as here:
        here.enter("skills/garden")
        page = here.page
        expect(page.locator(".skill h2")).to_have_text("garden")
        page.select_option("[data-switch=language]", "zh")
        expect(page.locator("h1")).to_have_text("技能")
        expect(page.locator("[data-switch=language]")).to_be_focused()
        page.select_option("[data-switch=theme]", "dark")
        dark = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        assert dark == "rgb(15, 20, 23)"
        page.reload()
        expect(page.locator("h1")).to_have_text("技能")
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        refused = page.evaluate("fetch('/v1/skills/nothing').then((reply) => reply.status)")
        assert refused == 404
        here.go("skills/nothing-of-that-name")
        expect(page.locator(".problem")).to_contain_text(re.compile("[\u4e00-\u9fff]"))
