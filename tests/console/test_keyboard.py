"""Keyboard operation of the console."""

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.console.console_server import ConsoleServer, browser_session
from tests.server.chat_server import text_reply, tool_reply

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.unmeasured]
_MOST = 40


def _until(page: Page, key: str, selector: str) -> None:
    """Press a key until the focus is where it should come to; it must be seen there."""
    for _ in range(_MOST):
        page.keyboard.press(key)
        if page.evaluate("(s) => document.activeElement.matches(s)", selector):
            break
    expect(page.locator(selector).first).to_be_focused()
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"


def test_every_flow_works_by_keyboard(browser: Browser, at: ConsoleServer) -> None:
    with browser_session(browser, at, locale="en-GB") as here:
        page = here.page
        page.goto(at.url)
        expect(page.locator("#token")).to_be_focused()
        page.keyboard.type(at.token())
        page.keyboard.press("Enter")
        expect(page.locator(".composer textarea")).to_be_focused()
        _talk(page, at)
        _find_a_skill(page)
        _open_and_close_a_window(page)
        _sign_out(page)


def _talk(page: Page, at: ConsoleServer) -> None:
    at.script.play(tool_reply(("Bash", '{"command": "echo keys"}')), text_reply("Keys it is."))
    page.keyboard.type("first line")
    page.keyboard.press("Enter")
    page.keyboard.type("second line")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".said")).to_have_text("first line\nsecond line")
    expect(page.locator("[data-answer=once]")).to_be_visible()
    _until(page, "Shift+Tab", "[data-answer=once]")
    page.keyboard.press("Enter")
    expect(page.locator(".question")).to_be_focused()
    expect(page.locator(".turn .prose")).to_contain_text("Keys it is.")
    page.keyboard.press("/")
    expect(page.locator(".composer textarea")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator(".composer textarea")).not_to_be_focused()


def _find_a_skill(page: Page) -> None:
    _until(page, "Shift+Tab", ".nav a[data-screen=skills]")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("Skills")
    expect(page.locator(".list a[data-id=garden]")).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("vegetable")
    expect(page.locator(".list").first.locator("a")).to_have_count(1)
    page.keyboard.press("ArrowDown")
    expect(page.locator(".list a[data-id=garden]")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".skill h2")).to_have_text("garden")
    _until(page, "Tab", "[role=tab][aria-selected=true]")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.locator("[role=tab][aria-selected=true]")).to_have_text("Files")
    expect(page.locator(".tab-panel")).to_contain_text("scripts/main.py")
    page.keyboard.press("Escape")
    expect(page.locator(".skill")).to_have_count(0)


def _open_and_close_a_window(page: Page) -> None:
    page.keyboard.press("/")
    page.keyboard.press("Control+a")
    page.keyboard.press("Delete")
    expect(page.locator(".list a").nth(2)).to_be_visible()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(page.locator(".list a").nth(1)).to_be_focused()
    page.keyboard.press("Home")
    expect(page.locator(".list a").first).to_be_focused()
    page.keyboard.press("End")
    page.keyboard.press("ArrowUp")
    _until(page, "Shift+Tab", ".screen-head .primary")
    page.keyboard.press("Enter")
    expect(page.locator("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).to_have_count(0)
    expect(page.locator(".screen-head .primary")).to_be_focused()


def _sign_out(page: Page) -> None:
    _until(page, "Shift+Tab", "button.leave")
    page.keyboard.press("Enter")
    expect(page.locator("#token")).to_be_focused()


def test_the_first_tab_offers_to_skip_what_is_on_every_screen(
    browser: Browser, at: ConsoleServer
) -> None:
    with browser_session(browser, at) as here:
        here.enter("doctor")
        expect(here.page.locator("h1")).to_be_visible()
        here.page.reload()
        expect(here.page.locator(".checks li").first).to_be_visible()
        here.page.keyboard.press("Tab")
        expect(here.page.locator(".skip")).to_be_focused()
        here.page.keyboard.press("Enter")
        expect(here.page.locator("main")).to_be_focused()
